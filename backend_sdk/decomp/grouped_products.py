"""Rules for matrix products by groups of rows, columns or terms, as mixtures of experts compute them."""

from __future__ import annotations

from typing import Any

import torch

from backend_sdk import prims
from backend_sdk.decomp.registry import decomposition
from backend_sdk.graph import Value
from backend_sdk.prims.shorthand import along, cast, constant
from backend_sdk.spec import Shape, TensorType
from backend_sdk.spec.symbolic import Dim
from backend_sdk.torch_compat.ops import aten


def _group_of(ends: Value, length: Dim, groups: Dim) -> Value:
    """The group of each place: the first one that ends after it. Places after the last end are the last group's."""
    place = prims.iota(length=length, dtype=torch.int64)
    found = prims.searchsorted(cast(ends, torch.int64), place, right=True)
    return prims.minimum(found, constant(found, groups - 1))  # type: ignore[no-any-return]


def _member(ends: Value, groups: Dim, length: Dim) -> Value:
    """Whether a place lies in a group, ``[groups, length]``."""
    shape = (groups, length)
    last = along(cast(ends, torch.int64), (0,), shape)
    head = prims.pad(cast(ends, torch.int64), low=(1,), high=(-1,), interior=(0,), value=0)
    place = along(prims.iota(length=length, dtype=torch.int64), (1,), shape)
    return prims.bitwise_and(prims.ge(place, along(head, (0,), shape)), prims.lt(place, last))  # type: ignore[no-any-return]


def _kept(x: Value, axes: tuple[int, int], shape: Shape, kept: Value) -> Value:
    """x repeated for each group, and 0 where the group has no part."""
    spread = along(x, (1, 2), shape)
    return prims.select(along(kept, axes, shape), spread, constant(spread, 0))  # type: ignore[no-any-return]


@decomposition(aten._grouped_mm.default)
def grouped_mm(
    out: TensorType,
    x: Value,
    y: Value,
    offs: Value | None = None,
    bias: Value | None = None,
    out_dtype: torch.dtype | None = None,
) -> Any:
    """Group g multiplies its own rows of x with ``y[g]``, ``x[g]`` with its own columns of y, or its own terms of both.

    ``offs[g]`` is where group g ends. Which group a row belongs to is known when the graph runs only, so that a product
    is made for every group, and one of them taken.
    """
    if bias is not None:
        return NotImplemented
    x, y = cast(x, out.dtype), cast(y, out.dtype)
    if offs is None:
        return prims.dot_general(x, y, contract=((2,), (1,)), batch=((0,), (0,)))
    groups = offs.shape[0]
    if x.ndim == 2 and y.ndim == 3:
        rows, columns = out.shape
        products = prims.dot_general(x, y, contract=((1,), (1,)), batch=((), ()))
        index = along(_group_of(offs, rows, groups), (0,), (rows, 1, columns))
        return prims.reshape(prims.gather(products, index, axis=1), shape=out.shape)
    if x.ndim == 3 and y.ndim == 2:
        rows, columns = out.shape
        products = prims.dot_general(x, y, contract=((2,), (0,)), batch=((), ()))
        index = along(_group_of(offs, columns, groups), (2,), (1, rows, columns))
        return prims.reshape(prims.gather(products, index, axis=0), shape=out.shape)
    if x.ndim == 2 and y.ndim == 2:
        rows, terms = x.shape
        member = _member(offs, groups, terms)
        left = _kept(x, (0, 2), (groups, rows, terms), member)
        right = _kept(y, (0, 1), (groups, terms, y.shape[1]), member)
        return prims.dot_general(left, right, contract=((2,), (1,)), batch=((0,), (0,)))
    return NotImplemented
