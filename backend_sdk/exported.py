"""`compile_program`: a ``torch.export`` program through the pipeline, without Dynamo.

Does not: capture models (``torch.export.export`` does).
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind

from backend_sdk.errors import CaptureError, DeviceError, OptionError
from backend_sdk.pipeline.capture import INFERENCE, Captured, boundary_type, dim_of
from backend_sdk.pipeline.compile import compile_captured
from backend_sdk.pipeline.options import Options
from backend_sdk.pipeline.report import current_listeners
from backend_sdk.plugins import get_backend
from backend_sdk.runtime.eager import with_strides
from backend_sdk.spec import SymExpr, TensorType
from backend_sdk.torch_compat import trees


class CompiledProgram:
    """An exported program compiled for a backend: called like the model that was exported.

    Parameters and buffers are those of the program; buffer mutations are applied to them. It runs for inference:
    results never require grad, whatever the arguments do.
    """

    def __init__(self, program: ExportedProgram, runner: Callable[[list[Any]], Any]) -> None:
        self._program = program
        self._runner = runner
        signature = program.graph_signature
        users = [spec for spec in signature.input_specs if spec.kind == InputKind.USER_INPUT]
        self._names = [str(getattr(spec.arg, "name", spec.arg)) for spec in users]
        # The position of an argument among the leaves of a call's arguments, or the tensor of a lifted input.
        # Constant arguments are part of the graph.
        positions = itertools.count()
        inputs = [
            (spec, next(positions) if spec.kind == InputKind.USER_INPUT else self._lifted(spec))
            for spec in signature.input_specs
        ]
        self._inputs: list[Any] = [source for spec, source in inputs if not isinstance(spec.arg, ConstantArgument)]
        self._outputs = signature.output_specs
        self._tree = trees.ProgramTree(program)
        self._arguments = _Arguments(program, self._names)

    @property
    def state_dict(self) -> dict[str, torch.Tensor]:
        """The program's parameters and persistent buffers, as the calls so far have left them."""
        return dict(self._program.state_dict)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program.

        Raises `CaptureError` when the arguments are not those that the program was exported for (their nesting,
        kinds, dtypes, sizes, constants), and `DeviceError` for a tensor on another device.
        """
        supplied = self._tree.flatten(args, kwargs)
        if supplied is None:
            raise CaptureError(
                f"the program was called with {_call(args, kwargs)}, which are not nested like the arguments it was "
                "exported with",
                hint=f"call it like {self._tree.expected}",
            )
        checked = self._arguments.check(supplied)
        values = [checked[index] if isinstance(index, int) else index for index in self._inputs]
        results = self._runner(values)
        returned = []
        for spec, result in zip(self._outputs, results, strict=True):
            if spec.kind == OutputKind.USER_OUTPUT:
                returned.append(result)
            elif spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION):
                self._mutated(spec, supplied).copy_(result)
        return self._tree.unflatten(returned)

    def _lifted(self, spec: Any) -> Any:
        """The tensor of an input that is not an argument."""
        if spec.kind == InputKind.BUFFER and not spec.persistent:
            return self._program.constants[spec.target]
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
            return self._program.state_dict[spec.target]
        if spec.kind in (InputKind.CONSTANT_TENSOR, InputKind.CUSTOM_OBJ):
            return self._program.constants[spec.target]
        raise CaptureError(f"exported programs with inputs of kind {spec.kind.name} are not supported")

    def _mutated(self, spec: Any, supplied: list[Any]) -> torch.Tensor:
        target = spec.target
        if spec.kind == OutputKind.USER_INPUT_MUTATION:
            tensor = supplied[self._names.index(target)]
        else:
            state = self._program.state_dict
            tensor = state[target] if target in state else self._program.constants[target]
        assert isinstance(tensor, torch.Tensor)
        return tensor


class _Arguments:
    """What a program takes, and the check of a call against it."""

    def __init__(self, program: ExportedProgram, names: Sequence[str]) -> None:
        fakes = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
        self._expected = [(name, fakes[name]) for name in names]
        self._types = [boundary_type(fake) if isinstance(fake, torch.Tensor) else None for _, fake in self._expected]
        self._numbers = [dim_of(fake) for _, fake in self._expected]
        self._ranges = {
            dim: (_finite(allowed.lower), _finite(allowed.upper))
            for expression, allowed in program.range_constraints.items()
            if isinstance(dim := SymExpr.of(expression), SymExpr)
        }

    def check(self, values: Sequence[Any]) -> list[Any]:
        """The values, tensors with the strides they were exported with. Raises `CaptureError` and `DeviceError`."""
        sizes = _Sizes(self._ranges)
        for (name, fake), boundary, number, value in zip(
            self._expected, self._types, self._numbers, values, strict=True
        ):
            if boundary is not None:
                self._check_tensor(name, value, fake, boundary.type, sizes)
            elif isinstance(number, SymExpr):
                if type(value) not in (int, float):
                    raise _refused(name, _describe(value), f"a number ({number})")
                sizes.take(number, value, name, f"is {value}", f"a number ({number})")
            elif _is_constant(number) and not _same_constant(value, number):
                raise _refused(
                    name,
                    _describe(value),
                    f"the constant {number!r} that it was exported with",
                    hint=f"pass {number!r}, or export the model again for the other value",
                )
        sizes.check_expressions()
        return [
            value if boundary is None or boundary.strides is None else self._laid_out(value, boundary.strides, sizes)
            for boundary, value in zip(self._types, values, strict=True)
        ]

    def _check_tensor(self, name: str, value: Any, fake: torch.Tensor, type: TensorType, sizes: _Sizes) -> None:
        taken = str(type)
        if not isinstance(value, torch.Tensor):
            raise _refused(name, _describe(value), f"a tensor {taken}")
        device = fake.device
        other_index = None not in (device.index, value.device.index) and device.index != value.device.index
        if value.device.type != device.type or other_index:
            raise DeviceError(
                f"argument {name!r} is on {str(value.device)!r}, but the program takes it on {str(device)!r}",
                hint=f"move it with .to({str(device)!r})",
            )
        if value.dtype != fake.dtype or value.layout != fake.layout or value.dim() != fake.dim():
            layout = "" if fake.layout == torch.strided else f" of layout {fake.layout}"
            raise _refused(name, _describe(value), taken + layout)
        for dim, (declared, size) in enumerate(zip(type.shape, value.shape, strict=True)):
            if isinstance(declared, SymExpr):
                sizes.take(declared, size, name, f"is {_describe(value)}", taken, f"size {dim} of ")
            elif declared != size:
                raise _refused(
                    name,
                    _describe(value),
                    taken,
                    hint="pass these sizes, or export the model with dynamic_shapes=...",
                )

    def _laid_out(self, value: torch.Tensor, strides: Sequence[Any], sizes: _Sizes) -> torch.Tensor:
        """``value`` with the strides that the program was compiled for: kernels may have been made for them."""
        wanted = tuple([sizes.value(stride) for stride in strides])
        return value if None in wanted or value.stride() == wanted else with_strides(value, wanted)


class _Sizes:
    """The symbolic sizes of one call: what each is, and which argument said so."""

    def __init__(self, ranges: Mapping[SymExpr, tuple[int | None, int | None]]) -> None:
        self._ranges = ranges
        self._known: dict[str, int | float] = {}
        self._said_by: dict[str, str] = {}
        self._pending: list[tuple[SymExpr, int | float, str, str, str]] = []

    def take(self, declared: SymExpr, size: int | float, name: str, actual: str, taken: str, where: str = "") -> None:
        """``size`` is given for ``declared``. Raises `CaptureError` when it contradicts an earlier one or the range."""
        low, high = self._ranges.get(declared, (None, None))
        if (low is not None and size < low) or (high is not None and size > high):
            span = f"at least {low}" if high is None else f"at most {high}" if low is None else f"{low} to {high}"
            raise CaptureError(
                f"argument {name!r} {actual}, but the program takes {taken} with {declared} {span}",
                hint="pass a size in this range, or export the model for another",
            )
        if not declared.is_symbol:
            self._pending.append((declared, size, name, actual, taken))
            return
        symbol = declared.source
        known = self._known.setdefault(symbol, size)
        self._said_by.setdefault(symbol, f"{where}argument {name!r}")
        if known != size:
            raise self._contradiction(declared, name, actual, taken)

    def check_expressions(self) -> None:
        """Raises `CaptureError` when a size that is computed from others is not what they give."""
        for declared, size, name, actual, taken in self._pending:
            expected = self.value(declared)
            if expected is not None and expected != size:
                raise self._contradiction(declared, name, actual, taken)

    def value(self, dim: Any) -> Any:
        """The number of a size, None when it cannot be told."""
        if not isinstance(dim, SymExpr):
            return dim
        return dim.evaluate(self._known) if dim.symbols <= self._known.keys() else None

    def _contradiction(self, declared: SymExpr, name: str, actual: str, taken: str) -> CaptureError:
        facts = ", ".join(
            f"{symbol} is {self._known[symbol]} ({self._said_by[symbol]})" for symbol in sorted(declared.symbols)
        )
        return CaptureError(
            f"argument {name!r} {actual}, but the program takes {taken}, where {facts}",
            hint="pass sizes that agree, as in the export",
        )


def _without_constants(program: ExportedProgram) -> fx.GraphModule:
    """The program's graph without the inputs for constant arguments: their values stand where they are used."""
    names = [spec.arg.name for spec in program.graph_signature.input_specs if isinstance(spec.arg, ConstantArgument)]
    graph = copy.deepcopy(program.graph)
    for node in list(graph.nodes):
        if node.op == "placeholder" and node.name in names:
            graph.erase_node(node)
    return fx.GraphModule(program.graph_module, graph)


def _refused(name: str, actual: str, taken: str, hint: str | None = None) -> CaptureError:
    return CaptureError(
        f"argument {name!r} is {actual}, but the program takes {taken}",
        hint=hint or "pass what the program was exported with, or export the model again for this",
    )


def _describe(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return f"{value!r:.100} ({type(value).__name__})"
    layout = "" if value.layout == torch.strided else f" of layout {value.layout}"
    return str(TensorType(tuple(value.shape), value.dtype)) + layout


def _call(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    named = f" and the keywords {', '.join(kwargs)}" if kwargs else ""
    return f"{len(args)} positional arguments{named}"


def _is_constant(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def _same_constant(value: Any, expected: Any) -> bool:
    if type(value) is not type(expected):
        return False
    return bool(value == expected) or (isinstance(value, float) and math.isnan(value) and math.isnan(expected))


def _finite(bound: Any) -> int | None:
    return int(bound) if bound.is_Integer else None


def compile_program(
    program: ExportedProgram, *, backend: str, options: Mapping[str, Any] | None = None
) -> CompiledProgram:
    """Compile an exported program for ``backend`` (its name, without ``sdk:``), for inference.

    The result runs for inference, whatever the mode of gradients: what it returns never requires grad. Raises
    `UnknownBackendError`, `OptionError`, `CaptureError` and what compiling raises.
    """
    if not isinstance(program, ExportedProgram):
        raise CaptureError(
            f"compile_program takes a torch.export.ExportedProgram, not {type(program).__name__}",
            hint="torch.export.export(model, args) first",
        )
    if options is not None and not isinstance(options, Mapping):
        raise OptionError(f"options must be a dict, not {options!r}")
    target, parsed = get_backend(backend), Options.parse(options)
    functional = program.run_decompositions({})
    outputs = functional.graph.output_node().args[0]
    captured = Captured(_without_constants(functional), INFERENCE, len(outputs))
    with torch.no_grad():
        runner = compile_captured(captured, target, parsed, current_listeners())

    def run(values: list[Any]) -> Any:
        with torch.no_grad():
            return runner(values)

    return CompiledProgram(functional, run)
