"""Shorthand in which bodies and decompositions are written: constants, explicit broadcasts, means.

Works on tensors and on graph values alike. Adds no op to the contract.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from backend_sdk.prims.define import Operand
from backend_sdk.prims.elementwise import convert, div, mul
from backend_sdk.prims.reduction import reduce_max, reduce_sum
from backend_sdk.prims.shape import broadcast, full, pad, reshape
from backend_sdk.spec import Scalar, Shape
from backend_sdk.spec.symbolic import Dim, SymExpr, may_be_empty


def constant(like: Operand, value: Scalar, dtype: torch.dtype | None = None) -> Operand:
    """``value`` in the shape (and dtype) of ``like``."""
    return full(shape=tuple(like.shape), value=value, dtype=dtype or like.dtype)


def cast(x: Operand, dtype: torch.dtype) -> Operand:
    """``convert``, or x itself when it has the dtype."""
    return x if x.dtype == dtype else convert(x, dtype=dtype)


def scaled(x: Operand, factor: Scalar) -> Operand:
    """x times a number."""
    return mul(x, constant(x, factor))


def stretch(reduced: Operand, axes: tuple[int, ...], shape: Shape) -> Operand:
    """A value whose ``axes`` were reduced away, repeated along them back to ``shape``."""
    kept = tuple(dim for dim in range(len(shape)) if dim not in axes)
    return broadcast(reduced, shape=tuple(shape), dims=kept)


def along(values: Operand, axes: tuple[int, ...], shape: Shape) -> Operand:
    """A value whose dims are the ``axes`` of ``shape``, repeated along all others."""
    return broadcast(values, shape=tuple(shape), dims=axes)


def trailing(values: Operand, shape: Shape) -> Operand:
    """numpy's broadcasting rule made explicit: ``values`` aligned with the last dims of ``shape``."""
    offset = len(shape) - len(values.shape)
    return broadcast(values, shape=tuple(shape), dims=tuple(range(offset, len(shape))))


def keepdim(reduced: Operand, axes: tuple[int, ...]) -> Operand:
    """A reduced value with dims of size 1 put back at ``axes`` (of the full rank)."""
    shape: list[Dim] = list(reduced.shape)
    for axis in sorted(axes):
        shape.insert(axis, 1)
    return reshape(reduced, shape=tuple(shape))


def count(shape: Shape, axes: tuple[int, ...]) -> Any:
    """Number of elements along ``axes``: an int or a symbolic expression."""
    total: Dim = 1
    for axis in axes:
        total = total * shape[axis]
    return total


def mean(x: Operand, axes: tuple[int, ...]) -> Operand:
    """Mean over ``axes``, which disappear."""
    total = reduce_sum(x, axes=axes)
    number = count(tuple(x.shape), axes)
    return div(total, constant(total, number if isinstance(number, SymExpr) else float(number)))


def largest_along(x: Operand, axis: int) -> Operand:
    """The maximum of floats along ``axis``, which goes; of nothing, which has none, -inf."""
    if may_be_empty((x.shape[axis],)):
        one = tuple(int(dim == axis) for dim in range(x.ndim))
        none = (0,) * x.ndim
        x = pad(x, low=none, high=one, interior=none, value=-math.inf)
    return reduce_max(x, axes=(axis,))
