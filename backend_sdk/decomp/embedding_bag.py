"""Rules for bags of embeddings: rows of a table, summed, averaged or their maximum taken bag by bag; and for a table
whose rows are kept short.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from backend_sdk import dtypes, prims
from backend_sdk.decomp.registry import decomposition
from backend_sdk.decomp.shape import slice_axis
from backend_sdk.graph import Value
from backend_sdk.prims.shorthand import along, cast, constant, stretch
from backend_sdk.spec import TensorType
from backend_sdk.spec.symbolic import Dim, element_count
from backend_sdk.torch_compat.ops import aten

# torch's numbers for what is done with a bag.
_SUM, _MEAN, _MAX = 0, 1, 2


def _bag_of(offsets: Value, number: Dim, bags: Dim) -> Value:
    """The bag of each of ``number`` indices: the last one that starts at or before it."""
    starts = slice_axis(cast(offsets, torch.int64), 0, 0, bags)
    place = prims.iota(length=number, dtype=torch.int64)
    found = prims.searchsorted(starts, place, right=True)
    return prims.sub(found, constant(found, 1))  # type: ignore[no-any-return]


def _counted(indices: Value, padding: int) -> Value:
    """Which indices take part: all but the padding index."""
    return prims.ne(indices, constant(indices, padding))  # type: ignore[no-any-return]


def _by_row(flags: Value, like: Value) -> Value:
    return stretch(flags, (1,), like.shape)  # type: ignore[no-any-return]


def _sizes(bag: Value, counted: Value, bags: Dim) -> Value:
    empty = prims.full(shape=(bags,), value=0, dtype=torch.int64)
    return prims.scatter(empty, bag, cast(counted, torch.int64), axis=0, mode="add")  # type: ignore[no-any-return]


def _largest(rows: Value, bag: Value, counted: Value, indices: Value, bags: Dim) -> tuple[Value, Value]:
    """The maximum of each bag, 0 for an empty one, and the table's row that it is from."""
    shape = (bags, rows.shape[1])
    places = _by_row(bag, rows)
    low = constant(rows, -math.inf)
    kept = prims.select(_by_row(counted, rows), rows, low)
    best = prims.scatter(
        prims.full(shape=shape, value=-math.inf, dtype=rows.dtype), places, kept, axis=0, mode="maximum"
    )
    # The first index of the bag whose row holds the maximum.
    wins = prims.bitwise_and(prims.eq(kept, prims.gather(best, places, axis=0)), _by_row(counted, rows))
    number = along(prims.iota(length=rows.shape[0], dtype=torch.int64), (0,), rows.shape)
    unset = constant(number, rows.shape[0])
    first = prims.scatter(
        prims.full(shape=shape, value=rows.shape[0], dtype=torch.int64),
        places,
        prims.select(wins, number, unset),
        axis=0,
        mode="minimum",
    )
    # An index too many stands for no index at all.
    table = prims.pad(indices, low=(0,), high=(1,), interior=(0,), value=0)
    filled = prims.lt(first, constant(first, rows.shape[0]))
    return prims.select(filled, best, constant(best, 0.0)), prims.take(table, first, axis=0)


@decomposition(aten._embedding_bag.default, aten._embedding_bag_forward_only.default)
def embedding_bag(
    out: tuple[TensorType, ...],
    weight: Value,
    indices: Value,
    offsets: Value,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: Value | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    bags = out[0].shape[0]
    if 0 in indices.shape or 0 in out[0].shape:
        return tuple(prims.full(shape=type.shape, value=0, dtype=type.dtype) for type in out)
    wide = dtypes.compute_dtype(weight.dtype)
    index = cast(indices, torch.int64)
    bag = _bag_of(offsets, index.shape[0], bags)
    counted = _counted(index, padding_idx)
    sizes = _sizes(bag, counted, bags)
    rows = cast(prims.take(weight, index, axis=0), wide)
    chosen = None
    if mode == _MAX:
        result, chosen = _largest(rows, bag, counted, index, bags)
    else:
        if per_sample_weights is not None:
            rows = prims.mul(rows, _by_row(cast(per_sample_weights, wide), rows))
        rows = prims.select(_by_row(counted, rows), rows, constant(rows, 0.0))
        empty = prims.full(shape=(bags, rows.shape[1]), value=0, dtype=wide)
        result = prims.scatter(empty, _by_row(bag, rows), rows, axis=0, mode="add")
        if mode == _MEAN:
            result = prims.div(result, _by_row(_at_least_one(sizes, wide), result))
    return (
        cast(result, out[0].dtype),
        _as_type(bag, out[1]),
        _as_type(sizes, out[2]),
        _as_type(chosen if chosen is not None else sizes, out[3]),
    )


def _at_least_one(sizes: Value, dtype: torch.dtype) -> Value:
    return cast(prims.maximum(sizes, constant(sizes, 1)), dtype)  # type: ignore[no-any-return]


def _as_type(x: Value, type: TensorType) -> Value:
    """What a gradient may read; eager leaves it out, or undefined, where none does."""
    if x.shape == type.shape:
        return cast(x, type.dtype)  # type: ignore[no-any-return]
    return prims.full(shape=type.shape, value=0, dtype=type.dtype)  # type: ignore[no-any-return]


def _spread_back(
    out: TensorType,
    grad: Value,
    indices: Value,
    bag: Value,
    chosen: Value,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: Value | None,
    padding: int,
) -> Any:
    """Each bag's gradient to the rows it read; for the maximum to the row, of each column, that won."""
    if 0 in indices.shape or 0 in grad.shape:
        return prims.full(shape=out.shape, value=0, dtype=out.dtype)
    wide = dtypes.compute_dtype(grad.dtype)
    index = cast(indices, torch.int64)
    counted = _counted(index, padding)
    sizes = _sizes(bag, counted, grad.shape[0])
    upstream = cast(grad, wide)
    start = prims.full(shape=out.shape, value=0, dtype=wide)
    if mode == _MAX:
        filled = _by_row(prims.ne(sizes, constant(sizes, 0)), upstream)
        upstream = prims.select(filled, upstream, constant(upstream, 0.0))
        return cast(prims.scatter(start, cast(chosen, torch.int64), upstream, axis=0, mode="add"), out.dtype)
    if mode == _MEAN:
        upstream = prims.div(upstream, _by_row(_at_least_one(sizes, wide), upstream))
    updates = prims.take(upstream, bag, axis=0)
    if per_sample_weights is not None:
        updates = prims.mul(updates, _by_row(cast(per_sample_weights, wide), updates))
    if scale_grad_by_freq:
        none = prims.full(shape=(out.shape[0],), value=0, dtype=torch.int64)
        times = prims.scatter(none, index, constant(index, 1), axis=0, mode="add")
        updates = prims.div(updates, _by_row(cast(prims.take(times, index, axis=0), wide), updates))
    updates = prims.select(_by_row(counted, updates), updates, constant(updates, 0.0))
    return cast(prims.scatter(start, _by_row(index, updates), updates, axis=0, mode="add"), out.dtype)


@decomposition(aten._embedding_bag_backward.default)
def embedding_bag_backward(
    out: TensorType,
    grad: Value,
    indices: Value,
    offsets: Value,
    offset2bag: Value,
    bag_size: Value,
    maximum_indices: Value,
    num_weights: Any,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Value | None,
    padding_idx: int = -1,
) -> Any:
    if sparse:
        return NotImplemented
    # Not `offset2bag`: eager leaves it out of the forward results when it has no use for it.
    bag = _bag_of(offsets, indices.shape[0], grad.shape[0])
    return _spread_back(
        out, grad, indices, bag, maximum_indices, scale_grad_by_freq, mode, per_sample_weights, padding_idx
    )


@decomposition(aten._embedding_bag_dense_backward.default)
def embedding_bag_dense_backward(
    out: TensorType,
    grad: Value,
    indices: Value,
    offset2bag: Value,
    bag_size: Value,
    maximum_indices: Value,
    num_weights: Any,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: Value | None,
    padding_idx: int = -1,
) -> Any:
    bag = cast(offset2bag, torch.int64)
    return _spread_back(
        out, grad, indices, bag, maximum_indices, scale_grad_by_freq, mode, per_sample_weights, padding_idx
    )


@decomposition(aten._embedding_bag_per_sample_weights_backward.default)
def embedding_bag_per_sample_weights_backward(
    out: TensorType,
    grad: Value,
    weight: Value,
    indices: Value,
    offsets: Value,
    offset2bag: Value,
    mode: int,
    padding_idx: int = -1,
) -> Any:
    """The product of the bag's gradient and the row that the weight scaled."""
    if 0 in indices.shape or 0 in grad.shape:
        return prims.full(shape=out.shape, value=0, dtype=out.dtype)
    wide = dtypes.compute_dtype(grad.dtype)
    index = cast(indices, torch.int64)
    upstream = prims.take(cast(grad, wide), _bag_of(offsets, index.shape[0], grad.shape[0]), axis=0)
    rows = cast(prims.take(weight, index, axis=0), wide)
    result = prims.reduce_sum(prims.mul(upstream, rows), axes=(1,))
    return cast(prims.select(_counted(index, padding_idx), result, constant(result, 0.0)), out.dtype)


# Added to a norm before it divides, as eager does.
_NORM_ROOM = 1e-7


@decomposition(aten.embedding_renorm.default)
def embedding_renorm(out: TensorType, weight: Value, indices: Value, max_norm: float, norm_type: float) -> Any:
    """The table with the rows that are asked for scaled to at most ``max_norm``."""
    if 0 in indices.shape or 0 in weight.shape:
        return weight
    wide = dtypes.compute_dtype(weight.dtype)
    size = prims.abs(cast(weight, wide))
    if norm_type == math.inf:
        norm = prims.reduce_max(size, axes=(1,))
    elif norm_type == 0.0:
        norm = prims.reduce_sum(cast(prims.ne(size, constant(size, 0.0)), wide), axes=(1,))
    else:
        norm = prims.reduce_sum(prims.pow(size, constant(size, norm_type)), axes=(1,))
        norm = prims.pow(norm, constant(norm, 1.0 / norm_type))
    asked = cast(prims.reshape(indices, shape=(element_count(indices.shape),)), torch.int64)
    none = prims.full(shape=(weight.shape[0],), value=0, dtype=torch.int64)
    used = prims.scatter(none, asked, constant(asked, 1), axis=0, mode="set")
    limit = constant(norm, max_norm)
    long = prims.bitwise_and(prims.gt(norm, limit), prims.eq(used, constant(used, 1)))
    scale = prims.div(limit, prims.add(norm, constant(norm, _NORM_ROOM)))
    shortened = cast(prims.mul(cast(weight, wide), _by_row(scale, weight)), out.dtype)
    return prims.select(_by_row(long, weight), shortened, weight)
