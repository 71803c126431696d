"""Every private name of torch that Backend SDK uses: where, why, and what a user loses without it.

A name is dotted as the code spells it. ``module:attribute`` is an attribute of objects whose type the code does not
spell out (``op._schema``), with the torch module that defines or reads it. ``tests/test_private_names.py`` holds this
list to the code and to the installed torch, in both directions.

Does not: import torch.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PrivateName:
    """One private name. ``where`` is the module that uses it, ``breaks`` what stops working without it."""

    name: str
    where: str
    why: str
    breaks: str


_HERE = "backend_sdk.torch_compat"

PRIVATE_NAMES: tuple[PrivateName, ...] = (
    PrivateName(
        "functorch.compile.min_cut_rematerialization_partition",
        f"{_HERE}.aot",
        "the cut between forward and backward graph that saves the least memory",
        "training: no backward graphs",
    ),
    PrivateName(
        "torch._dynamo.backends.common:_is_wrapped_bw_compiler",
        f"{_HERE}.aot",
        "marks a backward compiler that keeps Dynamo out by itself",
        "training: Dynamo traces into the compilation of a backward graph",
    ),
    PrivateName(
        "torch._functorch._aot_autograd.utils:_boxed_call",
        f"{_HERE}.aot",
        "marks a callable that takes its inputs as a list, which it empties",
        "memory: inputs of a graph live until it returns",
    ),
    PrivateName(
        "torch._functorch.aot_autograd.aot_module_simplified",
        f"{_HERE}.aot",
        "functionalization and ahead-of-time autograd of a Dynamo graph; there is no public entry",
        "every compilation",
    ),
    PrivateName(
        "torch._guards.TracingContext",
        f"{_HERE}.aot",
        "the environment of such a capture",
        "backend-sdk coverage --prove: ops whose result has a size that only the data decide",
    ),
    PrivateName(
        "torch._guards.TracingContext.try_get",
        f"{_HERE}.aot",
        "tells how many results of a forward graph reach the user, and which are saved for backward",
        "training: saved tensors get copies that nobody needs",
    ),
    PrivateName(
        "torch._guards.tracing",
        f"{_HERE}.aot",
        "captures with sizes that only the data decide, as Dynamo does",
        "backend-sdk coverage --prove: ops whose result has a size that only the data decide",
    ),
    PrivateName(
        "torch._subclasses.fake_tensor.FakeTensorMode",
        f"{_HERE}.aot",
        "stands for tensors in such a capture",
        "backend-sdk coverage --prove: ops whose result has a size that only the data decide",
    ),
    PrivateName(
        "torch._assert_async",
        f"{_HERE}.checks",
        "a check of data that both Dynamo and export keep in the graph",
        "backend_sdk.traceable: functions that check their operands",
    ),
    PrivateName(
        "torch._C._dispatch_has_kernel_for_dispatch_key",
        f"{_HERE}.decompositions",
        "tells whether an op is made of other ops (CompositeImplicit)",
        "ops that only such a kernel reduces to the contract run in eager",
    ),
    PrivateName(
        "torch._decomp.core_aten_decompositions",
        f"{_HERE}.decompositions",
        "torch's own decompositions to Core ATen",
        "ops without a rule of ours run in eager",
    ),
    PrivateName(
        "torch._decomp.decomposition_table",
        f"{_HERE}.decompositions",
        "torch's other decompositions, which the core table leaves out",
        "ops without a rule of ours run in eager",
    ),
    PrivateName(
        "torch._ops.OpOverload",
        f"{_HERE}.decompositions",
        "its decompose() runs a CompositeImplicit kernel",
        "ops that only such a kernel reduces to the contract run in eager",
    ),
    PrivateName(
        "torch._ops:_schema",
        f"{_HERE}.decompositions",
        "argument names of ops on lists of tensors (_foreach_add)",
        "the ops on lists that optimizers call run in eager",
    ),
    PrivateName(
        "torch._subclasses.fake_tensor.FakeTensorMode",
        f"{_HERE}.decompositions",
        "decompositions are traced on tensors without data",
        "ops without a rule of ours run in eager",
    ),
    PrivateName(
        "torch.utils._pytree.tree_flatten",
        f"{_HERE}.decompositions",
        "finds the tensors among the nested arguments of an op",
        "ops without a rule of ours run in eager",
    ),
    PrivateName(
        "torch.utils._pytree.tree_unflatten",
        f"{_HERE}.decompositions",
        "puts traced tensors back among the nested arguments of an op",
        "ops without a rule of ours run in eager",
    ),
    PrivateName(
        "torch._dynamo.exc.ShortenTraceback",
        f"{_HERE}.dynamo_errors",
        "Dynamo passes its subclasses on as they are, and wraps any other exception",
        "users cannot catch our exception types, all come as BackendCompilerFailed",
    ),
    PrivateName(
        "torch._dynamo.backends.registry",
        f"{_HERE}.dynamo_registry",
        "torch's table of backend names, which is read from entry points once",
        "backends registered by a call are unknown to torch.compile",
    ),
    PrivateName(
        "torch._dynamo.backends.registry:_BACKENDS",
        f"{_HERE}.dynamo_registry",
        "the table of entry points by backend name",
        "backends registered after the first torch.compile are unknown to it",
    ),
    PrivateName(
        "torch._dynamo.backends.registry:_COMPILER_FNS",
        f"{_HERE}.dynamo_registry",
        "the table of loaded backends by name",
        "a backend that is registered anew, or taken back, goes on as the old one",
    ),
    PrivateName(
        "torch.autograd.graph:_sequence_nr",
        f"{_HERE}.gradients",
        "tells what a call recorded from what was recorded before it",
        "explain() does not compile backward graphs",
    ),
    PrivateName(
        "torch._dynamo.convert_frame",
        f"{_HERE}.graph_breaks",
        "holds one of the two logs that say where capturing gave up",
        "explain() does not list graph breaks",
    ),
    PrivateName(
        "torch._dynamo.symbolic_convert",
        f"{_HERE}.graph_breaks",
        "holds the other log that says where capturing gave up",
        "explain() does not list graph breaks",
    ),
    PrivateName(
        "torch._C.DispatchKey",
        f"{_HERE}.kept_whole",
        "names the Python kernels by which torch takes resizing apart",
        "resizing by a scale differs from eager where an axis keeps its size; no backend can claim it whole",
    ),
    PrivateName(
        "torch._ops.OpOverload",
        f"{_HERE}.kept_whole",
        "holds those kernels",
        "resizing by a scale differs from eager where an axis keeps its size; no backend can claim it whole",
    ),
    PrivateName(
        "torch._ops:_dispatch_cache",
        f"{_HERE}.kept_whole",
        "remembers which kernel a call takes, and must forget it when one is taken out",
        "resizing by a scale differs from eager where an axis keeps its size; no backend can claim it whole",
    ),
    PrivateName(
        "torch.testing._internal.common_methods_invocations",
        f"{_HERE}.op_catalogue",
        "its wrapper_set_seed, by which the catalogue's random ops draw the same numbers whatever the caller's seed",
        "backend-sdk coverage --prove cannot compare distributions",
    ),
    PrivateName(
        "torch.testing._internal.common_methods_invocations.op_db",
        f"{_HERE}.op_catalogue",
        "torch's catalogue of sample calls (OpInfo); there is no public one",
        "backend-sdk coverage --prove has no samples",
    ),
    PrivateName(
        "torch._ops.HigherOrderOperator",
        f"{_HERE}.ops",
        "the class of cond, while_loop and their like",
        "models with them: their effects lose their order",
    ),
    PrivateName(
        "torch._ops.OpOverload",
        f"{_HERE}.ops",
        "the class of aten and custom ops, to tell them from Python functions",
        "every compilation: no op is recognized",
    ),
    PrivateName(
        "torch._ops:_schema",
        f"{_HERE}.ops",
        "argument names, defaults and mutation of an op",
        "claiming aten overloads, and the order of calls with effects",
    ),
    PrivateName(
        "torch._C._dispatch_get_all_op_names",
        f"{_HERE}.overloads",
        "the names of all overloads of the installed torch",
        "backend-sdk coverage: no report",
    ),
    PrivateName(
        "torch._C._dispatch_has_kernel_for_dispatch_key",
        f"{_HERE}.overloads",
        "tells whether an op is made of other ops (CompositeImplicit)",
        "backend-sdk coverage: ops that only such a kernel reduces have no verdict",
    ),
    PrivateName(
        "torch._ops.OpOverload",
        f"{_HERE}.overloads",
        "the class of aten ops, as a type",
        "backend-sdk coverage: no report",
    ),
    PrivateName(
        "torch._ops:_schema",
        f"{_HERE}.overloads",
        "arguments of an overload, and which of them it writes",
        "backend-sdk coverage: in-place and out= overloads are not told from others",
    ),
    PrivateName(
        "torch.utils._python_dispatch.TorchDispatchMode",
        f"{_HERE}.overloads",
        "sees which overloads a call runs",
        "backend-sdk coverage --prove: no overload counts as proven",
    ),
    PrivateName(
        "torch._subclasses.fake_tensor.FakeTensorMode",
        f"{_HERE}.reach",
        "shows which ops torch's decompositions call, and computes nothing",
        "`backend-sdk drift`",
    ),
    PrivateName(
        "torch._foreach_addcdiv",
        f"{_HERE}.reads_numbers",
        "takes factors in a tensor, which its kernel wants on the CPU and a traced one never is",
        "backend_sdk.traceable: steps of optimizers over lists of tensors",
    ),
    PrivateName(
        "torch._foreach_addcdiv_",
        f"{_HERE}.reads_numbers",
        "takes factors in a tensor, which its kernel wants on the CPU and a traced one never is",
        "backend_sdk.traceable: steps of optimizers over lists of tensors",
    ),
    PrivateName(
        "torch._foreach_addcmul",
        f"{_HERE}.reads_numbers",
        "takes factors in a tensor, which its kernel wants on the CPU and a traced one never is",
        "backend_sdk.traceable: steps of optimizers over lists of tensors",
    ),
    PrivateName(
        "torch._foreach_addcmul_",
        f"{_HERE}.reads_numbers",
        "takes factors in a tensor, which its kernel wants on the CPU and a traced one never is",
        "backend_sdk.traceable: steps of optimizers over lists of tensors",
    ),
    PrivateName(
        "torch._pack_padded_sequence",
        f"{_HERE}.reads_numbers",
        "what torch.nn.utils.rnn calls; tracing it reads lengths off a tensor",
        "backend_sdk.traceable: models that pack sequences",
    ),
    PrivateName(
        "torch._pad_packed_sequence",
        f"{_HERE}.reads_numbers",
        "what torch.nn.utils.rnn calls; tracing it reads lengths off a tensor",
        "backend_sdk.traceable: models that pack sequences",
    ),
    PrivateName(
        "torch._rowwise_prune",
        f"{_HERE}.reads_numbers",
        "its kernel reads the mask while it is traced",
        "backend_sdk.traceable: pruning of rows",
    ),
    PrivateName(
        "torch.utils._python_dispatch.TorchDispatchMode",
        f"{_HERE}.rounding",
        "moves the results of each step of a call",
        "backend-sdk coverage --prove: results other than eager's cannot be measured",
    ),
    PrivateName(
        "torch.storage:_cdata",
        f"{_HERE}.storage",
        "tells whether two fake tensors show one memory",
        "results that are views of one another come as copies: changing one in place does not change the other",
    ),
    PrivateName(
        "torch.utils._sympy.functions.FloorDiv",
        f"{_HERE}.symbolic",
        "torch's own floor division of sizes, so that ours compares equal to it",
        "dynamic shapes: sizes that are equal are refused as different",
    ),
    PrivateName(
        "torch.utils._sympy.functions.Max",
        f"{_HERE}.symbolic",
        "the larger of two sizes in torch's own form",
        "slices between numbers that are read off the data run in eager",
    ),
    PrivateName(
        "torch.utils._sympy.functions.Min",
        f"{_HERE}.symbolic",
        "the smaller of two sizes in torch's own form",
        "slices between numbers that are read off the data run in eager",
    ),
    PrivateName(
        "torch.utils._sympy.functions.PythonMod",
        f"{_HERE}.symbolic",
        "torch's own modulo of sizes, so that ours compares equal to it",
        "dynamic shapes: sizes that are equal are refused as different",
    ),
    PrivateName(
        "torch.utils._sympy.printers.PythonPrinter",
        f"{_HERE}.symbolic",
        "prints an expression over sizes as Python",
        "dynamic shapes: plans cannot be written down",
    ),
    PrivateName(
        "torch._ops.OpOverload",
        f"{_HERE}.taken_apart",
        "holds the Python kernels that take an op apart",
        "a claim that no graph of torch.compile holds goes unreported",
    ),
    PrivateName(
        "torch.utils._pytree",
        f"{_HERE}.trees",
        "how nested inputs and results are flattened, as Dynamo and torch.export do it",
        "explain() and exported programs",
    ),
)
