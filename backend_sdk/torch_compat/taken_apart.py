"""Which overloads no graph of `torch.compile` holds, because torch takes them apart before a backend is asked.

Does not: say what a backend should claim in their place (`backend_sdk.plugins.unasked` does).
"""

from __future__ import annotations

from enum import StrEnum

from torch._ops import OpOverload

from backend_sdk.torch_compat.kept_whole import KEYS, kept_overloads
from backend_sdk.torch_compat.overloads import (
    base_name,
    functional_base,
    functional_variant,
    has_composite_kernel,
    is_mutable,
)


class Absence(StrEnum):
    """Why a captured graph holds no call of an overload, to go on from its name."""

    IN_PARTS = "is taken apart by torch before a backend is asked"
    FUNCTIONALIZED = "writes into an argument, and torch writes each captured graph without writes"


def absence(op: OpOverload) -> Absence | None:
    """Why no graph of `torch.compile` calls ``op``; None for one that a graph may call.

    Read off torch's dispatcher: an op that has a kernel made of other ops under autograd is captured as those, but for
    the Python kernels that are taken out during a capture (`kept_whole`). Of writing overloads aten's alone are
    rewritten.
    """
    if op.namespace == "aten" and is_mutable(op):
        return Absence.FUNCTIONALIZED
    if has_composite_kernel(op):
        return Absence.IN_PARTS
    # Which are kept is asked last: it goes through all overloads of torch, and a plugin's loading comes here.
    if any(key in op.py_kernels for key in KEYS) and op not in kept_overloads():
        return Absence.IN_PARTS
    return None


def functional_name(op: OpOverload) -> str:
    """The name under which what an overload computes is captured when it writes: ``aten.exp.default`` of
    ``aten.exp_.default`` and of ``aten.exp.out``. There may be no such overload.
    """
    return f"{op.namespace}.{functional_base(base_name(op))}.{functional_variant(op)}"
