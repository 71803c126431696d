"""Where a mask is true: as many places as only the data decide, in a result of that size.

The largest size is known, so the places are written into a buffer of that size; the host reads how many there are,
and the buffer is cut.

Does not: hold rules.
"""

from __future__ import annotations

import torch

from backend_sdk import prims
from backend_sdk.decomp.searching import flat
from backend_sdk.decomp.shape import slice_axis
from backend_sdk.graph import Value, read
from backend_sdk.prims.shorthand import cast, constant
from backend_sdk.spec.symbolic import Dim, SymExpr, contiguous_strides


def never_empty(x: Value, axis: int) -> Value:
    """x with a 0 behind its end along ``axis``, if its size there is known only later: then it can be indexed."""
    if not isinstance(x.shape[axis], SymExpr):
        return x
    end = prims.full(shape=(*x.shape[:axis], 1, *x.shape[axis + 1 :]), value=0, dtype=x.dtype)
    return prims.concat(x, end, axis=axis)  # type: ignore[no-any-return]


def is_true(x: Value) -> Value:
    """Truth as torch sees it: whatever is not 0."""
    return x if x.dtype == torch.bool else prims.ne(x, constant(x, 0))


def true_places(mask: Value, number: Dim) -> Value:
    """The places of what is true in a 1-d ``mask``, ascending: int64[number], where ``number`` is read off the data."""
    ones = cast(mask, torch.int64)
    read(prims.reduce_sum(ones, axes=(0,)), number)
    size = mask.shape[0]
    # The k-th true element writes its place at k, every other one behind the end.
    rank = prims.sub(prims.cumsum(ones, axis=0), constant(ones, 1))
    target = prims.select(mask, rank, constant(rank, size))
    places = prims.iota(length=size, dtype=torch.int64)
    buffer = prims.full(shape=(size + 1,), value=0, dtype=torch.int64)
    return slice_axis(prims.scatter(buffer, target, places, axis=0, mode="set"), 0, 0, number)


def true_coordinates(x: Value, number: Dim) -> list[Value]:
    """`true_places` of x of any rank but 0, as one index int64[number] for each dim."""
    places = true_places(is_true(flat(x)), number)
    found = []
    for size, stride in zip(x.shape, contiguous_strides(x.shape), strict=True):
        index = prims.floor_div(places, constant(places, stride)) if stride != 1 else places
        # An empty operand has no places, so nothing is divided by its size.
        found.append(prims.fmod(index, constant(index, size)))
    return found
