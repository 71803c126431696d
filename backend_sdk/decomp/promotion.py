"""torch's type promotion and broadcasting, made explicit for the dialect.

Does not: know any op.
"""

from __future__ import annotations

from typing import Any

import torch

from backend_sdk import dtypes
from backend_sdk.graph import Value
from backend_sdk.prims.shape import full
from backend_sdk.prims.shorthand import cast, trailing
from backend_sdk.spec import Shape, SymExpr


def promoted(*operands: Any) -> torch.dtype:
    """The dtype in which torch computes on ``operands`` (values and Python numbers).

    torch's rule: dimensioned tensors, 0-d tensors and numbers are three priorities; a lower one counts only
    when its kind (bool < integer < float < complex) is above that of every higher one.
    """
    ranked: list[torch.dtype | None] = [None, None, None]
    for operand in operands:
        if isinstance(operand, Value):
            level, dtype = (0 if operand.ndim else 1), operand.dtype
        else:
            level, dtype = 2, number_dtype(operand)
        known = ranked[level]
        ranked[level] = dtype if known is None else torch.promote_types(known, dtype)
    result = _combine(ranked[0], _combine(ranked[1], ranked[2]))
    if result is None:
        raise ValueError("promotion needs at least one operand")
    return result


def _combine(higher: torch.dtype | None, lower: torch.dtype | None) -> torch.dtype | None:
    if higher is None or lower is None:
        return higher if lower is None else lower
    if higher.is_complex:
        return higher
    if higher.is_floating_point:
        return higher.to_complex() if lower.is_complex else higher
    if higher == torch.bool or lower.is_floating_point or lower.is_complex:
        return torch.promote_types(higher, lower)
    return higher


def number_dtype(number: Any) -> torch.dtype:
    """The dtype that torch gives a Python (or symbolic) number in a computation."""
    if isinstance(number, SymExpr):
        return torch.int64 if number.expr.is_integer else torch.get_default_dtype()
    if isinstance(number, bool):
        return torch.bool
    if isinstance(number, int):
        return torch.int64
    if isinstance(number, complex):
        return torch.get_default_dtype().to_complex()
    return torch.get_default_dtype()


def wrapped_number(number: int, dtype: torch.dtype) -> int:
    """The number of an integer dtype that has the same low bits (two's complement)."""
    limits = torch.iinfo(dtype)
    return (number - limits.min) % (1 << limits.bits) + int(limits.min)


def spread(operand: Any, shape: Shape, dtype: torch.dtype) -> Value:
    """A value or a number as a value of ``shape`` and ``dtype``, an operand of arithmetic or of a comparison.

    Eager makes a tensor of such a number and converts that: an integer outside an integer dtype wraps (of uint8, 300 is
    44). Numbers that an op takes as they are, to be written or as limits, go through `filled`.
    """
    if isinstance(operand, int) and dtype in dtypes.INTEGRAL:
        operand = wrapped_number(operand, dtype)
    return filled(operand, shape, dtype)


def filled(operand: Any, shape: Shape, dtype: torch.dtype) -> Value:
    """As `spread`, but a number must be one of ``dtype``. Raises `DialectError` where eager finds that it overflows."""
    if isinstance(operand, Value):
        # Converting before stretching touches fewer elements.
        return trailing(cast(operand, dtype), shape)  # type: ignore[no-any-return]
    return full(shape=tuple(shape), value=operand, dtype=dtype)  # type: ignore[no-any-return]


def axis_of(dim: int, rank: int) -> int:
    """A possibly negative dim as an axis in ``[0, rank)``; a 0-d tensor has one axis for this purpose."""
    return dim % max(rank, 1)


def axes_of(dims: Any, rank: int) -> tuple[int, ...]:
    """A dim, a list of dims, or None or an empty list (all dims), as sorted axes."""
    if dims is None or (isinstance(dims, (list, tuple)) and not dims):
        return tuple(range(rank))
    if isinstance(dims, int):
        dims = (dims,)
    return tuple(sorted({axis_of(dim, rank) for dim in dims})) if rank else ()
