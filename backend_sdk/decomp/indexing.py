"""Rules for indexing with tensors. Negative indices are wrapped here: the prims take indices in range."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from backend_sdk import dtypes, prims
from backend_sdk.decomp.places import never_empty, true_coordinates
from backend_sdk.decomp.promotion import axis_of, spread
from backend_sdk.decomp.registry import Declined, decomposition
from backend_sdk.graph import Value
from backend_sdk.prims.shorthand import cast, constant, count, stretch, trailing
from backend_sdk.spec import Shape, TensorType
from backend_sdk.spec.symbolic import Dim, contiguous_strides
from backend_sdk.torch_compat.ops import aten


def wrapped(indices: Value, size: Dim) -> Value:
    """int64 indices with negative ones counted from the end of ``size``."""
    indices = cast(indices, torch.int64)
    negative = prims.lt(indices, constant(indices, 0))
    return prims.select(negative, prims.add(indices, constant(indices, size)), indices)  # type: ignore[no-any-return]


# ---- embeddings


@decomposition(aten.embedding.default)
def embedding(
    out: TensorType,
    weight: Value,
    indices: Value,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    return prims.take(weight, cast(indices, torch.int64), axis=0)


@decomposition(aten.embedding_dense_backward.default)
def embedding_dense_backward(
    out: TensorType,
    grad: Value,
    indices: Value,
    num_weights: int,
    padding_idx: int,
    scale_grad_by_freq: bool,
) -> Any:
    wide = dtypes.compute_dtype(grad.dtype)
    width = grad.shape[-1]
    total = count(indices.shape, tuple(range(indices.ndim)))
    rows = prims.reshape(cast(indices, torch.int64), shape=(total,))
    updates = prims.reshape(cast(grad, wide), shape=(total, width))
    if scale_grad_by_freq:
        ones = constant(rows, 1)
        times = prims.scatter(
            prims.full(shape=(num_weights,), value=0, dtype=torch.int64), rows, ones, axis=0, mode="add"
        )
        frequency = cast(prims.take(times, rows, axis=0), wide)
        updates = prims.div(updates, stretch(frequency, (1,), updates.shape))
    if padding_idx >= 0:
        padding = stretch(prims.eq(rows, constant(rows, padding_idx)), (1,), updates.shape)
        updates = prims.select(padding, constant(updates, 0.0), updates)
    start = prims.full(shape=(num_weights, width), value=0, dtype=wide)
    places = stretch(rows, (1,), updates.shape)
    return cast(prims.scatter(start, places, updates, axis=0, mode="add"), out.dtype)


# ---- one axis


def _at_least_1d(x: Value) -> Value:
    return x if x.ndim else prims.reshape(x, shape=(1,))


@decomposition(aten.index_select.default)
def index_select(out: TensorType, x: Value, dim: int, index: Value) -> Any:
    taken = prims.take(
        _at_least_1d(x), wrapped(_at_least_1d(index), x.shape[dim] if x.ndim else 1), axis=axis_of(dim, x.ndim)
    )
    return prims.reshape(taken, shape=out.shape)


@decomposition(aten.gather.default)
def gather(out: TensorType, x: Value, dim: int, index: Value, *, sparse_grad: bool = False) -> Any:
    if 0 in out.shape:
        # torch lets an empty index have any rank.
        return prims.full(shape=out.shape, value=0, dtype=out.dtype)
    taken = prims.gather(_at_least_1d(x), cast(_at_least_1d(index), torch.int64), axis=axis_of(dim, x.ndim))
    return prims.reshape(taken, shape=out.shape)


_REDUCTIONS = {
    "sum": "add",
    "add": "add",
    "prod": "multiply",
    "multiply": "multiply",
    "amax": "maximum",
    "amin": "minimum",
}


# Of truth values, which the prim does not add or multiply: a sum is their or, a product their and.
_OF_TRUTH = {"set": "set", "add": "maximum", "multiply": "minimum", "maximum": "maximum", "minimum": "minimum"}


def scattered_at(x: Value, places: Value, updates: Value, axis: int, mode: str) -> Value:
    """`scatter` for every dtype."""
    if x.dtype != torch.bool or mode == "set":
        return prims.scatter(x, places, updates, axis=axis, mode=mode)  # type: ignore[no-any-return]
    numbers = [cast(part, torch.uint8) for part in (x, updates)]
    return cast(prims.scatter(numbers[0], places, numbers[1], axis=axis, mode=_OF_TRUTH[mode]), torch.bool)  # type: ignore[no-any-return]


def _scattered(out: TensorType, x: Value, dim: int, index: Value, source: Any, mode: str) -> Any:
    if 0 in index.shape:
        return x
    places = cast(_at_least_1d(index), torch.int64)
    if isinstance(source, Value):
        # torch reads only as much of the source as the index covers.
        source = _at_least_1d(source)
        updates = prims.slice(source, starts=(0,) * places.ndim, limits=places.shape, strides=(1,) * places.ndim)
    else:
        updates = prims.full(shape=places.shape, value=source, dtype=out.dtype)
    result = scattered_at(_at_least_1d(x), places, updates, axis_of(dim, x.ndim), mode)
    return prims.reshape(result, shape=out.shape)


@decomposition(aten.scatter.src, aten.scatter.value)
def scatter(out: TensorType, x: Value, dim: int, index: Value, source: Any) -> Any:
    return _scattered(out, x, dim, index, source, "set")


@decomposition(aten.scatter.reduce, aten.scatter.value_reduce)
def scatter_with_mode(out: TensorType, x: Value, dim: int, index: Value, source: Any, *, reduce: str) -> Any:
    return _scattered(out, x, dim, index, source, _REDUCTIONS[reduce])


@decomposition(aten.scatter_add.default)
def scatter_add(out: TensorType, x: Value, dim: int, index: Value, source: Value) -> Any:
    return _scattered(out, x, dim, index, source, "add")


# What eager's kernel reduces, by kind of dtype: truth values have no mean, complex numbers no order.
_SCATTER_REDUCTIONS = {
    "real": {"sum", "prod", "mean", "amax", "amin"},
    "truth": {"sum", "prod", "amax", "amin"},
    "complex": {"sum", "prod", "mean"},
    "stored": set[str](),
}


def _kind(dtype: torch.dtype) -> str:
    if dtype in dtypes.COMPLEX:
        return "complex"
    if dtype == torch.bool:
        return "truth"
    return "real" if dtype in dtypes.REAL else "stored"


@decomposition(aten.scatter_reduce.two)
def scatter_reduce(
    out: TensorType, x: Value, dim: int, index: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Any:
    if reduce not in _SCATTER_REDUCTIONS[_kind(out.dtype)]:
        return Declined(f"eager has no {reduce} of {dtypes.name(out.dtype)}")
    if reduce == "prod" and out.dtype in dtypes.COMPLEX:
        return Declined("the contract's scatter multiplies no complex numbers")
    if 0 in index.shape:
        return x
    axis, target = axis_of(dim, x.ndim), _at_least_1d(x)
    places = cast(_at_least_1d(index), torch.int64)
    values = _at_least_1d(source)
    updates = prims.slice(values, starts=(0,) * places.ndim, limits=places.shape, strides=(1,) * places.ndim)
    return prims.reshape(_combined(target, places, updates, axis, reduce, include_self), shape=out.shape)


def _combined(target: Value, places: Value, updates: Value, axis: int, reduce: str, include_self: bool) -> Any:
    """torch's scatter with a reduction. ``mean`` divides by how many numbers met; without ``include_self`` the
    target's own element counts only where nothing was scattered.
    """
    if target.dtype == torch.bool:
        # As numbers: truth is whatever is not 0.
        numbers = [cast(part, torch.int64) for part in (target, updates)]
        return cast(_combined(numbers[0], places, numbers[1], axis, reduce, include_self), torch.bool)
    if target.dtype in dtypes.COMPLEX:
        # Sums and means, which add and divide each part by itself.
        parts = [(part(target), part(updates)) for part in (prims.real, prims.imag)]
        return prims.complex(*(_combined(x, places, y, axis, reduce, include_self) for x, y in parts))
    wide = dtypes.compute_dtype(target.dtype)
    start, moved = cast(target, wide), cast(updates, wide)
    once = constant(moved, 1, torch.int64)
    met = prims.scatter(constant(start, 0, torch.int64), places, once, axis=axis, mode="add")
    untouched = prims.eq(met, constant(met, 0))
    if not include_self:
        start = prims.select(untouched, start, constant(start, _neutral(reduce, wide)))
    mode = "add" if reduce == "mean" else _REDUCTIONS[reduce]
    result = prims.scatter(start, places, moved, axis=axis, mode=mode)
    if reduce == "mean":
        own = constant(met, 1)
        times = prims.add(met, own) if include_self else prims.select(untouched, own, met)
        divide = prims.floor_div if wide in dtypes.INTEGRAL else prims.div
        result = divide(result, cast(times, wide))
    return cast(result, target.dtype)


def _neutral(reduce: str, dtype: torch.dtype) -> Any:
    """The number that changes nothing when it is combined."""
    if reduce in ("amax", "amin"):
        limits = torch.finfo(dtype) if dtype in dtypes.FLOATING else torch.iinfo(dtype)
        low, high = (-math.inf, math.inf) if dtype in dtypes.FLOATING else (limits.min, limits.max)
        return low if reduce == "amax" else high
    return 1 if reduce == "prod" else 0


@decomposition(aten.index_reduce.default)
def index_reduce(
    out: TensorType, x: Value, dim: int, index: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Any:
    if out.dtype not in dtypes.REAL:
        return NotImplemented
    if 0 in index.shape:
        return x
    target, updates = _at_least_1d(x), _at_least_1d(source)
    axis = axis_of(dim, target.ndim)
    places = _places(target, axis, index, updates)
    return prims.reshape(_combined(target, places, updates, axis, reduce, include_self), shape=out.shape)


@decomposition(aten.index_add.default)
def index_add(out: TensorType, x: Value, dim: int, index: Value, source: Value, *, alpha: Any = 1) -> Any:
    updates = source
    if alpha != 1:
        multiply = prims.bitwise_and if out.dtype == torch.bool else prims.mul
        updates = multiply(source, constant(source, alpha))
    return _along_axis(out, x, dim, index, updates, "add")


@decomposition(aten.index_copy.default)
def index_copy(out: TensorType, x: Value, dim: int, index: Value, source: Value) -> Any:
    return _along_axis(out, x, dim, index, source, "set")


def _along_axis(out: TensorType, x: Value, dim: int, index: Value, source: Value, mode: str) -> Any:
    target, updates = _at_least_1d(x), _at_least_1d(source)
    axis = axis_of(dim, target.ndim)
    places = _places(target, axis, index, updates)
    return prims.reshape(scattered_at(target, places, updates, axis, mode), shape=out.shape)


def _places(target: Value, axis: int, index: Value, updates: Value) -> Value:
    """A 1-d index along ``axis`` as one index for each element of ``updates``."""
    rows = wrapped(_at_least_1d(index), target.shape[axis])
    return prims.broadcast(rows, shape=updates.shape, dims=(axis,))  # type: ignore[no-any-return]


# ---- advanced indexing


def broadcast_shapes(shapes: Sequence[Shape]) -> Shape:
    """The shape to which torch broadcasts ``shapes``, which it has found to fit."""
    rank = max(map(len, shapes))
    result: list[Dim] = [1] * rank
    for shape in shapes:
        for dim, size in enumerate(shape, start=rank - len(shape)):
            if size != 1:
                result[dim] = size
    return tuple(result)


class _Plan:
    """Advanced indexing as indexing of rows: the indexed dims of x, moved to the front and flattened.

    ``order`` is the permutation, ``rows`` the flat size, ``index`` one int64 row number for each element of
    ``shape``, the broadcast shape of the indices.
    """

    def __init__(self, x: Value, indices: Sequence[Value | None]) -> None:
        self.axes = tuple(axis for axis, index in enumerate(indices) if index is not None)
        self.rest = tuple(axis for axis in range(x.ndim) if axis not in self.axes)
        self.order = (*self.axes, *self.rest)
        self.sizes = tuple(x.shape[axis] for axis in self.axes)
        self.rest_sizes = tuple(x.shape[axis] for axis in self.rest)
        self.rows = count(x.shape, self.axes)
        given = [index for index in indices if index is not None]
        self.shape = broadcast_shapes([index.shape for index in given])
        flat: Value | None = None
        for index, size, stride in zip(given, self.sizes, contiguous_strides(self.sizes), strict=True):
            part = trailing(wrapped(index, size), self.shape)
            if stride != 1:
                part = prims.mul(part, constant(part, stride))
            flat = part if flat is None else prims.add(flat, part)
        assert flat is not None
        self.index = flat
        # numpy's rule: the indexed dims stay in place when they are neighbours, else they go to the front.
        neighbours = self.axes[-1] - self.axes[0] + 1 == len(self.axes)
        lead = self.axes[0] if neighbours else 0
        rank = len(self.shape)
        moved = tuple(range(rank, rank + lead))
        self.to_result = (*moved, *range(rank), *range(rank + lead, rank + len(self.rest)))

    def flattened(self, x: Value) -> Value:
        """x as ``[rows, *rest]``."""
        return prims.reshape(prims.permute(x, dims=self.order), shape=(self.rows, *self.rest_sizes))  # type: ignore[no-any-return]

    def restored(self, x: Value) -> Value:
        """The inverse of `flattened`."""
        inverse = tuple(self.order.index(axis) for axis in range(len(self.order)))
        full = prims.reshape(x, shape=(*self.sizes, *self.rest_sizes))
        return prims.permute(full, dims=inverse)  # type: ignore[no-any-return]


def _is_mask(index: Value | None) -> bool:
    return index is not None and index.dtype in (torch.bool, torch.uint8)


@decomposition(aten.index.Tensor, aten._unsafe_index.Tensor)
def index(out: TensorType, x: Value, indices: Sequence[Value | None]) -> Any:
    if 0 in out.shape:
        return prims.full(shape=out.shape, value=0, dtype=out.dtype)
    if any(map(_is_mask, indices)):
        return _index_by_masks(out, x, indices)
    if 0 in x.shape:
        return NotImplemented
    if all(entry is None for entry in indices):
        return x
    plan = _Plan(x, indices)
    return prims.permute(prims.take(plan.flattened(x), plan.index, axis=0), dims=plan.to_result)


def _index_by_masks(out: TensorType, x: Value, indices: Sequence[Value | None]) -> Any:
    """A mask stands for the indices of what is true in it, one for each of its dims."""
    axes: list[int] = []
    rank, axis = 1, 0
    for entry in indices:
        width = entry.ndim if entry is not None and _is_mask(entry) else 1
        axes += range(axis, axis + width) if entry is not None else ()
        rank = max(rank, entry.ndim) if entry is not None and not _is_mask(entry) else rank
        axis += width
    if not axes or any(entry is not None and _is_mask(entry) and not entry.ndim for entry in indices):
        return NotImplemented
    neighbours = axes[-1] - axes[0] + 1 == len(axes)
    number = out.shape[(axes[0] if neighbours else 0) + rank - 1]
    expanded: list[Value | None] = []
    for entry in indices:
        expanded += true_coordinates(entry, number) if entry is not None and _is_mask(entry) else [entry]
    return index(out, x, expanded)


@decomposition(aten.index_put.default, aten._unsafe_index_put.default, aten._index_put_impl.default)
def index_put(
    out: TensorType,
    x: Value,
    indices: Sequence[Value | None],
    values: Value,
    accumulate: bool = False,
    unsafe: bool = False,
) -> Any:
    if any(map(_is_mask, indices)):
        return _masked_put(out, x, indices, values, accumulate)
    if 0 in x.shape:
        # Nothing can be written.
        return x
    if all(entry is None for entry in indices):
        everywhere = spread(values, out.shape, out.dtype)
        if not accumulate:
            return everywhere
        return prims.bitwise_or(x, everywhere) if out.dtype == torch.bool else prims.add(x, everywhere)
    plan = _Plan(x, indices)
    source = (*plan.shape, *plan.rest_sizes)
    shown = tuple(source[dim] for dim in plan.to_result)
    back = tuple(plan.to_result.index(dim) for dim in range(len(source)))
    updates = prims.permute(spread(values, shown, out.dtype), dims=back)
    total, width = count(plan.shape, tuple(range(len(plan.shape)))), count(x.shape, plan.rest)
    places = prims.broadcast(prims.reshape(plan.index, shape=(total,)), shape=(total, width), dims=(0,))
    result = scattered_at(
        prims.reshape(plan.flattened(x), shape=(plan.rows, width)),
        places,
        prims.reshape(updates, shape=(total, width)),
        0,
        "add" if accumulate else "set",
    )
    return plan.restored(result)


def _masked_put(out: TensorType, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool) -> Any:
    """``x[:, mask] = values``, one mask and nothing else: each place under the mask takes the next of the values.

    The mask's count, which only the data knows, is the length of the values, so nothing's size depends on it.
    """
    masks = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if len(masks) != 1:
        return NotImplemented
    if 0 in x.shape:
        return x
    axis, mask = masks[0]
    inner = x.ndim - axis - mask.ndim
    chosen = prims.broadcast(cast(mask, torch.bool), shape=x.shape, dims=tuple(range(axis, axis + mask.ndim)))
    # The values broadcast to [*before, count, *after].
    shape = (*(1,) * (axis + 1 + inner - values.ndim), *values.shape)
    if 0 in shape:
        return x
    number = shape[axis]
    supply = cast(prims.reshape(values, shape=shape), out.dtype)
    whole = (*x.shape[:axis], number, *x.shape[axis + mask.ndim :])
    supply = prims.broadcast(supply, shape=whole, dims=tuple(range(len(whole))))
    flags = prims.reshape(
        cast(cast(mask, torch.bool), torch.int64), shape=(count(mask.shape, tuple(range(mask.ndim))),)
    )
    order = prims.cumsum(flags, axis=0)
    place = prims.sub(prims.maximum(order, constant(order, 1)), constant(order, 1))
    supply = never_empty(supply, axis)
    place = prims.minimum(place, constant(place, supply.shape[axis] - 1))
    update = prims.reshape(prims.take(supply, place, axis=axis), shape=x.shape)
    if accumulate:
        update = prims.bitwise_or(x, update) if out.dtype == torch.bool else prims.add(x, update)
    return prims.select(chosen, update, x)
