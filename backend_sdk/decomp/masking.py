"""Rules for masks, flat indices and memory order: what takes or puts elements in the order in which they stand.

Does not: index along dims (`indexing.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from backend_sdk import prims
from backend_sdk.decomp.indexing import index as indexed
from backend_sdk.decomp.indexing import index_put as put_at
from backend_sdk.decomp.indexing import scattered_at, wrapped
from backend_sdk.decomp.places import never_empty
from backend_sdk.decomp.promotion import spread
from backend_sdk.decomp.registry import Declined, Layout, Memory, decomposition
from backend_sdk.decomp.searching import flat
from backend_sdk.decomp.shape import slice_axis
from backend_sdk.graph import Value, memory_of
from backend_sdk.prims.shorthand import cast, constant, trailing
from backend_sdk.spec import Shape, TensorType
from backend_sdk.spec.symbolic import contiguous_strides, element_count, is_symbolic
from backend_sdk.torch_compat.ops import aten, prims_of_torch


def _order(mask: Value) -> Value:
    """How many elements of the 1-d mask are true before each one that is true."""
    number = prims.cumsum(cast(mask, torch.int64), axis=0)
    return prims.maximum(prims.sub(number, constant(number, 1)), constant(number, 0))  # type: ignore[no-any-return]


@decomposition(aten.masked_scatter.default)
def masked_scatter(out: TensorType, x: Value, mask: Value, source: Value) -> Any:
    """x where the mask is false, else the elements of the source in turn."""
    target = spread(x, out.shape, out.dtype)
    if 0 in source.shape or 0 in out.shape:
        return target
    chosen = trailing(cast(mask, torch.bool), out.shape)
    supply = never_empty(flat(source), 0)
    place = _order(flat(chosen))
    place = prims.minimum(place, constant(place, supply.shape[0] - 1))
    taken = prims.reshape(prims.take(supply, place, axis=0), shape=out.shape)
    return prims.select(chosen, taken, target)


@decomposition(aten.masked_scatter_backward.default)
def masked_scatter_backward(out: TensorType, grad: Value, mask: Value, sizes: Any) -> Any:
    """The gradients under the mask, in turn, then zeros."""
    if 0 in out.shape or 0 in grad.shape:
        return prims.full(shape=out.shape, value=0, dtype=out.dtype)
    chosen = flat(trailing(cast(mask, torch.bool), grad.shape))
    length = element_count(out.shape)
    place = _order(chosen)
    last = constant(place, length)
    # One place too many takes what is not under the mask.
    place = prims.select(chosen, prims.minimum(place, last), last)
    start = prims.full(shape=(length + 1,), value=0, dtype=out.dtype)
    moved = prims.scatter(start, place, cast(flat(grad), out.dtype), axis=0, mode="set")
    return prims.reshape(slice_axis(moved, 0, 0, length), shape=out.shape)


@decomposition(aten.take.default)
def take(out: TensorType, x: Value, index: Value) -> Any:
    if 0 in out.shape:
        return prims.full(shape=out.shape, value=0, dtype=out.dtype)
    row = flat(x)
    return prims.take(row, wrapped(index, row.shape[0]), axis=0)


@decomposition(aten.put.default)
def put(out: TensorType, x: Value, index: Value, source: Value, accumulate: bool = False) -> Any:
    if 0 in index.shape:
        return x
    row = flat(x)
    places = wrapped(flat(index), row.shape[0])
    result = scattered_at(row, places, flat(cast(source, x.dtype)), 0, "add" if accumulate else "set")
    return prims.reshape(result, shape=out.shape)


# ---- indices that may lie outside, under a mask


def _clamped(x: Value, indices: Sequence[Value | None]) -> list[Value | None]:
    """Indices cut to the range of their dim: what lay outside is under the mask."""
    result: list[Value | None] = []
    for index, size in zip(indices, x.shape, strict=False):
        if index is not None:
            index = cast(index, torch.int64)
            index = prims.maximum(prims.minimum(index, constant(index, size - 1)), constant(index, 0))
        result.append(index)
    return result


@decomposition(aten._unsafe_masked_index.default)
def masked_index(out: TensorType, x: Value, mask: Value, indices: Sequence[Value | None], fill: Any) -> Any:
    default = prims.full(shape=out.shape, value=fill, dtype=out.dtype)
    if 0 in x.shape or 0 in out.shape:
        return default
    found = indexed(out, x, _clamped(x, indices))
    return found if found is NotImplemented else prims.select(trailing(mask, out.shape), found, default)


@decomposition(aten._unsafe_masked_index_put_accumulate.default)
def masked_index_put_accumulate(
    out: TensorType, x: Value, mask: Value, indices: Sequence[Value | None], values: Value
) -> Any:
    if 0 in x.shape or 0 in values.shape:
        return x
    kept = prims.select(trailing(mask, values.shape), values, constant(values, 0))
    return put_at(out, x, _clamped(x, indices), kept, True)


# ---- memory order, of tensors that lie in it


def _addresses(size: Shape, strides: Sequence[Any], offset: int) -> Value:
    """The address of each element, 1-d."""
    address = prims.full(shape=size, value=offset, dtype=torch.int64)
    for axis, (length, stride) in enumerate(zip(size, strides, strict=True)):
        steps = prims.iota(length=length, dtype=torch.int64)
        steps = prims.broadcast(prims.mul(steps, constant(steps, stride)), shape=size, dims=(axis,))
        address = prims.add(address, steps)
    return flat(address)


def _fits(x: Value, size: Shape, strides: Sequence[Any], offset: int) -> bool:
    """Whether every address lies within x, which is all of its memory that the dialect has."""
    if is_symbolic((*x.shape, *size, *strides, offset)):
        return False
    last = offset + sum((length - 1) * stride for length, stride in zip(size, strides, strict=True))
    return 0 in size or last < math.prod(x.shape)


_OUTSIDE = Declined(
    "it reads memory that its operand's own elements, in order, are not known to hold, and a value has no other memory"
)


def _in_order(x: Value, size: Shape, strides: Sequence[Any]) -> bool:
    """Whether the view reads all of x in row-major order: a reshape."""
    return element_count(size) == element_count(x.shape) and all(
        length == 1 or stride == step
        for length, stride, step in zip(size, strides, contiguous_strides(size), strict=True)
    )


@decomposition(aten.as_strided.default, aten.as_strided_copy.default, reads_memory=True)
def as_strided(
    out: TensorType,
    memory: Memory,
    x: Value,
    size: Sequence[Any],
    strides: Sequence[Any],
    offset: Any = None,
) -> Any:
    start = _start(memory.operands[0], offset)
    if start is None or not _fits(x, out.shape, strides, start):
        seen = memory_of(x, out, tuple(strides), memory.results[0].offset)
        return _OUTSIDE if seen is None else seen
    if 0 in out.shape:
        return prims.full(shape=out.shape, value=0, dtype=out.dtype)
    if start == 0 and _in_order(x, out.shape, strides):
        return prims.reshape(x, shape=out.shape)
    taken = prims.take(flat(x), _addresses(out.shape, strides, start), axis=0)
    return prims.reshape(taken, shape=out.shape)


def _start(x: Layout, offset: Any) -> int | None:
    """Where a view starts within x's own elements, or None when they do not lie in order."""
    own = x.offset
    if not x.contiguous or not isinstance(own, int) or not isinstance(offset, int | None):
        return None
    start = 0 if offset is None else offset - own
    return start if start >= 0 else None


@decomposition(aten.as_strided_scatter.default, prims_of_torch.as_strided_scatter.default, reads_memory=True)
def as_strided_scatter(
    out: TensorType,
    memory: Memory,
    x: Value,
    source: Value,
    size: Sequence[Any],
    strides: Sequence[Any],
    offset: Any = None,
) -> Any:
    start = _start(memory.operands[0], offset)
    if start is None or not _fits(x, source.shape, strides, start):
        return _OUTSIDE
    if 0 in source.shape:
        return x
    places = _addresses(source.shape, strides, start)
    return prims.reshape(
        prims.scatter(flat(x), places, flat(cast(source, out.dtype)), axis=0, mode="set"), shape=out.shape
    )


@decomposition(aten.resize.default, reads_memory=True)
def resize(out: TensorType, memory: Memory, x: Value, size: Sequence[Any], **_: Any) -> Any:
    """The first elements in another shape; zeros where eager leaves what it adds undefined."""
    if not memory.operands[0].contiguous or is_symbolic((*x.shape, *out.shape)):
        return NotImplemented
    row = flat(x)
    missing = math.prod(out.shape) - math.prod(x.shape)
    row = prims.pad(row, low=(0,), high=(missing,), interior=(0,), value=0)
    return prims.reshape(row, shape=out.shape)
