"""What the SDK and a backend say to each other: capability, support, nodes, regions, kernels, limitations.

Does not: define ops (`backend_sdk.prims`) or the class that a vendor writes (`backend_sdk.backend`).
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch

from backend_sdk import dtypes
from backend_sdk.errors import RegistryError, nearest
from backend_sdk.spec import BoundaryType, Prim, SymExpr, TensorType

# An op that a node can hold: of the contract, or an aten (or custom, or higher-order) op.
Op = Any


DENORMAL_POLICIES = ("preserve", "flush")


@dataclass(frozen=True)
class Capability:
    """The static part of what a backend can run, as data.

    ``accumulation_dtype`` is what sums of 16-bit floats accumulate in; ``denormals`` is ``"preserve"`` or
    ``"flush"``. ``minimum_region`` is the number of computing (not merely reshaping) nodes below which a region
    between two fallbacks is not worth the crossing and stays in eager. ``computes`` is false for a backend that
    only stands in for one: its results hold no values, and nobody should judge them. Raises `RegistryError` for a
    value that means nothing.
    """

    dtypes: frozenset[torch.dtype] = dtypes.ANY
    max_rank: int | None = None
    dynamic_shapes: bool = True
    training: bool = True
    denormals: str = "preserve"
    accumulation_dtype: torch.dtype = torch.float32
    minimum_region: int = 1
    computes: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.denormals, str) or self.denormals not in DENORMAL_POLICIES:
            self._refuse("denormals", nearest(str(self.denormals), DENORMAL_POLICIES))
        if not _is_whole(self.minimum_region, 0):
            self._refuse("minimum_region", "a count of nodes from 0 on")
        if self.max_rank is not None and not _is_whole(self.max_rank, 0):
            self._refuse("max_rank", "a rank from 0 on, or None for no limit")
        if isinstance(self.dtypes, (str, torch.dtype)) or not all(isinstance(one, torch.dtype) for one in self.dtypes):
            self._refuse("dtypes", "a frozenset of torch dtypes, e.g. frozenset({torch.float32})")
        if self.accumulation_dtype not in dtypes.FLOATING:
            known = ", ".join(sorted(f"torch.{dtypes.name(dtype)}" for dtype in dtypes.FLOATING))
            self._refuse("accumulation_dtype", f"one of {known}")

    def _refuse(self, field: str, choices: str) -> NoReturn:
        raise RegistryError(f"Capability({field}={getattr(self, field)!r}): it cannot be that", hint=choices)


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


@dataclass(frozen=True, slots=True)
class Support:
    """The answer to "can you run this node?". Truthy for yes; a no carries its reason."""

    supported: bool
    reason: str = ""

    def __bool__(self) -> bool:
        return self.supported


YES = Support(True)


def no(reason: str) -> Support:
    """A refusal. ``reason`` reads on from "because": ``"float64 is not a dtype of this device"``."""
    return Support(False, reason)


@dataclass(frozen=True, slots=True)
class Node:
    """One op with the types of its operands and results, as `Backend.supports` and a vendor's rules see it.

    An operand that the caller left out (an absent bias) has the type None.
    """

    op: Op
    operands: tuple[TensorType | None, ...]
    results: tuple[TensorType, ...]
    attributes: Mapping[str, Any]

    @property
    def name(self) -> str:
        return op_name(self.op)

    def __str__(self) -> str:
        parts = ["None" if operand is None else str(operand) for operand in self.operands]
        parts += [f"{key}={value!r}" for key, value in self.attributes.items()]
        return f"{self.name}({', '.join(parts)})"


def op_name(op: Op) -> str:
    """``"exp"`` for a contract op, ``"aten.exp.default"`` for an aten overload."""
    return op.name if isinstance(op, Prim) else str(op)


@dataclass(frozen=True)
class Region:
    """A convex part of a graph that one backend runs as a unit.

    ``graph`` is verified: its placeholders carry ``meta["type"]`` (a `TensorType`), its calls have contract ops
    (or aten overloads that the backend claimed) as targets, ``meta["type"]`` with the results' types and
    ``meta["call"]`` with the `Node` that the backend accepted, and it ends in one output node.
    ``backend_sdk.graph.runnable(region.graph)`` runs it. Sizes that no tensor input has as a bare dimension are
    inputs of their own, after the tensors: a `SymExpr` here, an int for the kernel.
    """

    name: str
    graph: torch.fx.Graph
    inputs: tuple[BoundaryType | SymExpr, ...]
    outputs: tuple[BoundaryType, ...]


@dataclass(frozen=True)
class Kernel:
    """What `Backend.lower` returns.

    ``run(inputs, outputs)`` writes its results into ``outputs``: dense row-major tensors of the region's output
    types, allocated by the plan (so kernels never allocate what the plan can reuse). With
    ``allocates_outputs`` it is called as ``run(inputs)`` and returns a sequence of tensors instead.
    ``diagnose(inputs)``, when given, runs the same region step by step and raises a `KernelError` that names the
    op which fails; the plan calls it to explain a failure, and in place of a ``run`` that allocates its outputs in
    a checked call (option ``check``). Operands belong to the plan: a kernel never writes into them.
    """

    run: Callable[..., Any]
    allocates_outputs: bool = False
    diagnose: Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]] | None = None


@dataclass(frozen=True)
class Limitation:
    """A known gap that the vendor declares in its own package.

    ``op`` names a contract op or a claimed aten overload (``"*"``: all), ``dtypes`` narrows it (empty: all).
    ``expires`` makes a promise that a certificate can hold the vendor to: past that day the limitation still
    covers, and `explanation` says that it expired.
    """

    op: str
    reason: str
    dtypes: frozenset[torch.dtype] = field(default_factory=frozenset)
    url: str = ""
    expires: datetime.date | None = None

    def covers(self, node: Node) -> bool:
        """Whether ``node`` falls under this limitation."""
        if self.op not in ("*", node.name):
            return False
        types = (*(t for t in node.operands if t is not None), *node.results)
        return not self.dtypes or any(t.dtype in self.dtypes for t in types)

    @property
    def has_expired(self) -> bool:
        """Whether the day by which it was to be gone has passed."""
        return self.expires is not None and self.expires < datetime.date.today()

    @property
    def explanation(self) -> str:
        """The reason, and the broken promise if there is one."""
        if self.expires is None or not self.has_expired:
            return self.reason
        return f"{self.reason} (expired on {self.expires.isoformat()})"


PASS_STAGES = ("decomposed", "partitioned")


@dataclass(frozen=True)
class Pass:
    """A rewrite of the graph that a plugin adds to the pipeline of its own backends.

    ``stage`` is ``"decomposed"`` (the verified prims graph of the whole model) or ``"partitioned"`` (the graph of
    one region, before it is lowered). ``run(graph)`` changes the graph in place; new calls need ``meta["type"]``.
    What it leaves is verified, and the backend is asked about new calls. Raises `RegistryError` for an unknown
    stage.
    """

    name: str
    stage: str
    run: Callable[[torch.fx.Graph], None]

    def __post_init__(self) -> None:
        if self.stage not in PASS_STAGES:
            raise RegistryError(
                f"pass {self.name!r}: there is no stage {self.stage!r}",
                hint=f"stages are {', '.join(PASS_STAGES)}",
            )
