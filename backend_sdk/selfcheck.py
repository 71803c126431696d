"""Runs each op that a backend claims, alone, on the contract's samples, and judges the result: a first check.

Each op is lowered as a region of its own and compared with the float64 reference under the op's own
tolerance. A vendor sees within a minute which op is wrong before any model runs.

Does not: certify. It has a handful of samples an op, no special values, gradients, dynamic shapes or fusion,
and runs in this process: the conformance suite does what this leaves out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import torch

from backend_sdk import dtypes as dtype_sets
from backend_sdk.backend import Backend
from backend_sdk.contract import Kernel, Node, Region
from backend_sdk.errors import RegistryError, SdkError
from backend_sdk.graph import GraphBuilder, Value, verify
from backend_sdk.pipeline.lower import lower
from backend_sdk.plugins import plugin_of
from backend_sdk.prims import CONTRACT
from backend_sdk.runtime.function_kernel import check_results
from backend_sdk.spec import BoundaryType, Call, DtypeVar, Exact, FromAttribute, Prim, Sample, TensorType
from backend_sdk.spec.residual_tolerance import largest_share
from backend_sdk.spec.symbolic import contiguous_strides

# Any fixed number: the same samples in every run, so that a failure can be met again.
_SEED = 20250117


class Verdict(StrEnum):
    """``refused``: the backend says that it does not run this. Never counted as passed."""

    PASS = "pass"
    MISMATCH = "mismatch"
    RAISED = "raised"
    REFUSED = "refused"


@dataclass(frozen=True)
class OpResult:
    """The verdict on one op with one dtype, over all its samples.

    ``ran`` and ``refused`` count samples. ``worst`` is the largest error as a share of the op's tolerance (at
    most 1.0 passes). ``reason`` says why for every verdict but ``pass``, and ``call`` which call it was;
    ``error`` is the exception behind ``raised``. ``source`` is ``"contract"``, or the plugin whose own case
    it is.
    """

    op: str
    dtype: torch.dtype
    verdict: Verdict
    ran: int = 0
    refused: int = 0
    worst: float = 0.0
    reason: str = ""
    call: str = ""
    error: Exception | None = field(default=None, compare=False)
    source: str = "contract"

    @property
    def failed(self) -> bool:
        """Whether the backend claims the op and gets it wrong."""
        return self.verdict in (Verdict.MISMATCH, Verdict.RAISED)


def check_ops(
    backend: Backend,
    ops: Iterable[str | Prim] | None = None,
    dtypes: Iterable[torch.dtype] | None = None,
) -> list[OpResult]:
    """One result for each contract op and dtype that has samples, in the contract's order.

    ``ops`` (names or ops) and ``dtypes`` narrow the check. When ``backend`` is the one of a loaded or
    registered plugin, that plugin's own conformance cases follow. What a backend raises becomes a verdict.

    Raises `RegistryError` for an unknown op, for what is no dtype and for a backend class in place of an instance,
    `BrokenPluginError` when the plugin's cases cannot be had.
    """
    if isinstance(backend, type):
        raise RegistryError(f"{backend.__name__} is a class, not a backend", hint=f"pass {backend.__name__}()")
    for dtype in dtypes or ():
        if not isinstance(dtype, torch.dtype):
            raise RegistryError(f"{dtype!r} is no dtype", hint="name torch dtypes: torch.float32")
    chosen = [op if isinstance(op, Prim) else CONTRACT[op] for op in ops] if ops is not None else list(CONTRACT)
    wanted = frozenset(dtypes) if dtypes is not None else dtype_sets.ANY
    results = []
    for op in chosen:
        for dtype in sample_dtypes(op):
            samples = samples_of(op, dtype) if dtype in wanted else []
            if samples:
                results.append(_check(backend, op, dtype, samples, "contract"))
    return results + list(_own_cases(backend, chosen, wanted))


def _own_cases(backend: Backend, chosen: Sequence[Prim], wanted: frozenset[torch.dtype]) -> Iterator[OpResult]:
    plugin = plugin_of(backend.name)
    if plugin is None or plugin.backend is not backend:
        return
    for case in plugin.cases():
        op, dtype = CONTRACT[case.op], _dtype_of_sample(case.sample)
        if op in chosen and dtype in wanted:
            yield _check(backend, op, dtype, [case.sample], f"{plugin.name}: {case.name or case.op}")


def sample_dtypes(op: Prim) -> list[torch.dtype]:
    """The dtypes to ask an op's samples for: its first dtype variable's, else its result's."""
    rule = op.dtype_rule
    for slot in rule.operands:
        if isinstance(slot, DtypeVar):
            return [dtype for dtype in dtype_sets.COMPUTING_DTYPES if dtype in slot.domain]
    result = rule.results[0]
    if isinstance(result, FromAttribute):
        return list(dtype_sets.COMPUTING_DTYPES)
    return [result] if isinstance(result, torch.dtype) else []


def samples_of(op: Prim, dtype: torch.dtype) -> list[Sample]:
    """An op's samples in ``dtype``, the same in every run."""
    return list(op.samples(dtype, torch.Generator().manual_seed(_SEED)))


def _dtype_of_sample(sample: Sample) -> torch.dtype:
    """The dtype a sample is reported under: a float operand's before an index's or a mask's."""
    found = [operand.dtype for operand in sample.operands if operand is not None]
    found += [value for value in sample.attributes.values() if isinstance(value, torch.dtype)]
    return min(found, key=dtype_sets.STORED_DTYPES.index, default=torch.float32)


# ---- one op with one dtype


def _check(backend: Backend, op: Prim, dtype: torch.dtype, samples: list[Sample], source: str) -> OpResult:
    ran = refused = 0
    worst = 0.0
    refusal = call = ""
    for sample in samples:
        types = tuple(None if operand is None else _type_of(operand) for operand in sample.operands)
        attributes = dict(sample.attributes)
        if op.identity is not None and op.identity(*types, **attributes):
            # The SDK leaves such a call out of every graph.
            continue
        node = Node(op, types, op.infer(types, attributes), attributes)
        try:
            support = backend.supports(node)
            if not support:
                refused, refusal, call = refused + 1, support.reason, str(node)
                continue
            ran += 1
            share, complaint = _run(backend, node, sample)
        except Exception as error:
            message = error.message if isinstance(error, SdkError) else f"{type(error).__name__}: {error}"
            return OpResult(op.name, dtype, Verdict.RAISED, ran, refused, worst, message, str(node), error, source)
        # Not max(): a share that is not a number is the worst of all.
        worst = worst if share <= worst else share
        if complaint or not share <= 1.0:
            reason = complaint or f"the error is {share:.3g} times its tolerance ({op.tolerance.describe()})"
            return OpResult(op.name, dtype, Verdict.MISMATCH, ran, refused, worst, reason, str(node), source=source)
    if refused and not ran:
        return OpResult(op.name, dtype, Verdict.REFUSED, ran, refused, worst, refusal, call, source=source)
    return OpResult(op.name, dtype, Verdict.PASS, ran, refused, worst, source=source)


def _run(backend: Backend, node: Node, sample: Sample) -> tuple[float, str]:
    """Lower and run one call. Returns the worst share of the tolerance, and a complaint or ``""``."""
    region = _region(node)
    kernel = lower(region, backend)
    references, judge = _truth(node.op, sample)
    inputs = [
        operand.to(backend.device.type, copy=True).contiguous() for operand in sample.operands if operand is not None
    ]
    before = [operand.clone() for operand in inputs]
    actual = _call(kernel, backend, node, inputs, references)
    for index, (now, then) in enumerate(zip(inputs, before, strict=True)):
        if not torch.equal(_bits(now), _bits(then)):
            return 0.0, f"the kernel wrote into its input {index}"
    return largest_share(node.op.tolerance, [result.cpu() for result in actual], references, judge), ""


def _region(node: Node) -> Region:
    """The one-op graph of a call."""
    builder = GraphBuilder()
    operands = [
        None if type is None else builder.input(f"operand_{index}", type) for index, type in enumerate(node.operands)
    ]
    result = builder.emit(node.op, tuple(operands), dict(node.attributes))
    values: tuple[Value, ...] = result if isinstance(result, tuple) else (result,)
    for inner in builder.graph.nodes:
        if inner.op == "call_function" and isinstance(inner.target, Prim):
            inner.meta["call"] = node
    builder.graph.output(tuple(value.node for value in values))
    verify(builder.graph)
    return Region(
        f"check_{node.op.name}",
        builder.graph,
        tuple(BoundaryType(type) for type in node.operands if type is not None),
        tuple(BoundaryType(value.type) for value in values),
    )


def _call(
    kernel: Kernel,
    backend: Backend,
    node: Node,
    inputs: list[torch.Tensor],
    references: Sequence[torch.Tensor],
) -> list[torch.Tensor]:
    if kernel.allocates_outputs:
        results = kernel.run(inputs)
        backend.device.synchronize()
        check_results(results, node.results, {}, lambda: (f"backend {backend.name!r}: the kernel for {node}", None))
        return list(results)
    outputs = []
    for type, reference in zip(node.results, references, strict=True):
        shape = tuple(int(dim) for dim in type.shape)  # type: ignore[arg-type]
        output = backend.device.empty(shape, contiguous_strides(shape), type.dtype)  # type: ignore[arg-type]
        outputs.append(output.copy_(_wrong(reference, type.dtype)))
    kernel.run(inputs, outputs)
    backend.device.synchronize()
    return outputs


def _wrong(reference: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Values that no element of a right result has, so that an element left unwritten shows."""
    if dtype == torch.bool:
        return ~reference.to(torch.bool)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.where(reference.isnan(), 0.0, torch.nan).to(dtype)
    return reference.to(dtype) + 1


# ---- the truth


def _truth(op: Prim, sample: Sample) -> tuple[list[torch.Tensor], Call]:
    """The references of a call's results, in float64 where the op rounds, and the call for the tolerance.

    An exact op has no rounding to look past; its own dtype decides the result (a float16 uniform number is
    made of 11 random bits, a float64 one of 53), so its reference runs in that dtype.
    """
    exact = isinstance(op.tolerance, Exact)

    def wide(value: Any) -> Any:
        if exact:
            return value
        if isinstance(value, torch.Tensor):
            return value.to(dtype_sets.reference_dtype(value.dtype))
        return dtype_sets.reference_dtype(value) if isinstance(value, torch.dtype) else value

    attributes = {name: wide(value) for name, value in sample.attributes.items()}

    def evaluate(*operands: Any) -> Any:
        return op.reference(*operands, **attributes)

    operands = tuple(wide(operand) for operand in sample.operands)
    results = evaluate(*operands)
    references = list(results) if isinstance(results, (tuple, list)) else [results]
    return references, Call(operands, attributes, evaluate)


def _type_of(operand: torch.Tensor) -> TensorType:
    return TensorType(tuple(operand.shape), operand.dtype)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8) if tensor.numel() else tensor
