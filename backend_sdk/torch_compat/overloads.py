"""Every aten overload of the installed torch: its schema, where its kernels come from, and which ones a call runs.

Does not: judge an overload (the coverage report does).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from backend_sdk.torch_compat import decompositions


@dataclass(frozen=True)
class Argument:
    """One argument of a schema. ``type`` is torch's word (``Tensor``, ``List[Tensor]``, ``Optional[List[int]]``)."""

    name: str
    type: str
    required: bool
    written: bool
    out: bool
    length: int | None


@functools.cache
def aten_overloads() -> Mapping[str, OpOverload]:
    """All aten overloads by name (``aten.add.Tensor``), sorted."""
    found = {}
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        if name.startswith("aten::"):
            base, _, overload = name.removeprefix("aten::").partition(".")
            op = getattr(getattr(torch.ops.aten, base), overload or "default")
            found[str(op)] = op
    return found


def base_name(op: OpOverload) -> str:
    """The name that all overloads of an op share: ``add`` of ``aten.add.Tensor``."""
    return str(op).split(".")[1]


@functools.cache
def arguments(op: OpOverload) -> tuple[Argument, ...]:
    """The arguments of the schema, in order."""
    return tuple(
        Argument(
            argument.name,
            str(argument.real_type),
            not argument.has_default_value(),
            argument.alias_info is not None and argument.alias_info.is_write,
            argument.is_out,
            argument.N,  # type: ignore[attr-defined]
        )
        for argument in op._schema.arguments
    )


def functional_base(base: str) -> str:
    """The base name without the ``_`` of an in-place op: ``exp`` of ``exp_``. That of ``__lshift__`` stays."""
    return base[:-1] if base.endswith("_") and not base.endswith("__") else base


def functional_variant(op: OpOverload) -> str:
    """The overload's own name without what says that it writes: ``default`` of ``out``."""
    return str(op).rsplit(".", 1)[1].removesuffix("_out").removesuffix("out") or "default"


def schema_text(op: OpOverload) -> str:
    """The schema without the op's name: ``(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor``."""
    text = str(op._schema)
    return text[text.index("(") :]


def is_view(op: OpOverload) -> bool:
    """Whether the result shares memory with an argument."""
    return bool(op.is_view)


def is_elementwise(op: OpOverload) -> bool:
    """Whether torch tags the overload as computing each element of its result from those beside it."""
    return torch.Tag.pointwise in op.tags


def is_mutable(op: OpOverload) -> bool:
    """Whether the schema writes into an argument: in-place and out= overloads."""
    return bool(op._schema.is_mutable)


def has_composite_kernel(op: OpOverload) -> bool:
    """Whether torch itself makes the op of other ops, under autograd too (CompositeImplicitAutograd)."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd"))


def has_torch_rule(op: OpOverload) -> bool:
    """Whether torch's decomposition tables have the op."""
    return op in decompositions.table()


class _Recorder(TorchDispatchMode):
    """Notes each overload that a thread dispatches below autograd, with its first arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.setdefault(str(func), (args, kwargs or {}))
        return func(*args, **(kwargs or {}))


@contextmanager
def recording() -> Iterator[dict[str, tuple[tuple[Any, ...], dict[str, Any]]]]:
    """The overloads that run within the context, by name, each with the arguments of its first call.

    Ops that torch makes of others under autograd are seen as their parts.
    """
    with _Recorder() as recorder:
        yield recorder.calls


def has_list_rule(op: OpOverload) -> bool:
    """Whether the op does to each tensor of a list what another op does to one (``_foreach_add``)."""
    return decompositions.of_lists(op) is not None


def result_count(op: OpOverload) -> int:
    """How many results an overload's schema has; a list of tensors is one."""
    return len(op._schema.returns)
