"""Rules for order statistics, running extremes, searches and histograms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from backend_sdk import dtypes, prims
from backend_sdk.decomp.promotion import axis_of, promoted, spread
from backend_sdk.decomp.registry import decomposition
from backend_sdk.decomp.shape import slice_axis
from backend_sdk.graph import Value
from backend_sdk.prims.shorthand import along, cast, constant, count, keepdim
from backend_sdk.spec import Prim, Shape, TensorType
from backend_sdk.spec.symbolic import Dim, SymExpr
from backend_sdk.torch_compat.ops import aten


def flat(x: Value) -> Value:
    """x in one dim, in row-major order."""
    return prims.reshape(x, shape=(count(x.shape, tuple(range(x.ndim))),))  # type: ignore[no-any-return]


def positions(shape: Shape, axis: int) -> Value:
    """The index along ``axis`` of each element of ``shape``."""
    return along(prims.iota(length=shape[axis], dtype=torch.int64), (axis,), shape)  # type: ignore[no-any-return]


# ---- order statistics: an element of the sorted operand


def _picked(out: tuple[TensorType, TensorType], ordered: tuple[Value, Value], place: Value, axis: int) -> Any:
    """The elements of ``ordered`` (values and where they came from) at ``place``, an index for each row."""
    index = keepdim(place, (axis,))
    return tuple(
        prims.reshape(prims.gather(part, index, axis=axis), shape=type.shape)
        for part, type in zip(ordered, out, strict=True)
    )


def _of_a_number(out: tuple[TensorType, TensorType], x: Value) -> Any:
    return prims.reshape(x, shape=out[0].shape), prims.full(shape=out[1].shape, value=0, dtype=torch.int64)


def _is_nan(x: Value) -> Value:
    """True for NaN; integers have none."""
    return prims.ne(x, x)  # type: ignore[no-any-return]


def _median_place(x: Value, axis: int, skips_nan: bool) -> Value:
    """Where the median of each row stands once it is sorted: the lower one of two. A NaN, which sorts last, is the
    median of a row that holds one, unless NaN is skipped.
    """
    nans = prims.reduce_sum(cast(_is_nan(x), torch.int64), axes=(axis,))
    size = constant(nans, x.shape[axis])
    one, two, zero = constant(nans, 1), constant(nans, 2), constant(nans, 0)
    if skips_nan:
        known = prims.sub(size, nans)
        return prims.maximum(prims.floor_div(prims.sub(known, one), two), zero)  # type: ignore[no-any-return]
    middle = prims.floor_div(prims.sub(size, one), two)
    # The first of the NaNs in the operand's order.
    return prims.select(prims.gt(nans, zero), prims.sub(size, nans), middle)  # type: ignore[no-any-return]


def _median_along(out: tuple[TensorType, TensorType], x: Value, dim: int, skips_nan: bool) -> Any:
    if x.ndim == 0:
        return _of_a_number(out, x)
    if 0 in out[0].shape:
        return tuple(prims.full(shape=type.shape, value=0, dtype=type.dtype) for type in out)
    axis = axis_of(dim, x.ndim)
    ordered = prims.sort(x, axis=axis, descending=False)
    return _picked(out, ordered, _median_place(x, axis, skips_nan), axis)


@decomposition(aten.median.dim)
def median_dim(out: tuple[TensorType, TensorType], x: Value, dim: int, keepdim: bool = False) -> Any:
    return _median_along(out, x, dim, False)


@decomposition(aten.nanmedian.dim)
def nanmedian_dim(out: tuple[TensorType, TensorType], x: Value, dim: int, keepdim: bool = False) -> Any:
    return _median_along(out, x, dim, True)


def _median_of_all(out: TensorType, x: Value, skips_nan: bool) -> Any:
    if 0 in x.shape:
        # Of nothing: NaN, and for integers what eager's conversion makes of it.
        empty = math.nan if out.dtype in dtypes.FLOATING else torch.iinfo(out.dtype).min
        return prims.full(shape=(), value=empty, dtype=out.dtype)
    return _median_along((out, TensorType((), torch.int64)), flat(x), 0, skips_nan)[0]


@decomposition(aten.median.default)
def median(out: TensorType, x: Value) -> Any:
    return _median_of_all(out, x, False)


@decomposition(aten.nanmedian.default)
def nanmedian(out: TensorType, x: Value) -> Any:
    return _median_of_all(out, x, True)


@decomposition(aten.kthvalue.default)
def kthvalue(out: tuple[TensorType, TensorType], x: Value, k: Any, dim: int = -1, keepdim: bool = False) -> Any:
    if x.ndim == 0:
        return _of_a_number(out, x)
    axis = axis_of(dim, x.ndim)
    ordered = prims.sort(x, axis=axis, descending=False)
    return tuple(
        prims.reshape(slice_axis(part, axis, k - 1, k), shape=type.shape)
        for part, type in zip(ordered, out, strict=True)
    )


@decomposition(aten.mode.default)
def mode(out: tuple[TensorType, TensorType], x: Value, dim: int = -1, keepdim: bool = False) -> Any:
    """The smallest of the most frequent elements, and where its last one stands: the longest run once sorted."""
    if x.ndim == 0:
        return _of_a_number(out, x)
    if 0 in x.shape:
        return tuple(prims.full(shape=type.shape, value=0, dtype=type.dtype) for type in out)
    axis = axis_of(dim, x.ndim)
    ordered = prims.sort(x, axis=axis, descending=False)
    values, size = ordered[0], x.shape[axis]
    place = positions(x.shape, axis)
    begins = prims.ne(slice_axis(values, axis, 1, size), slice_axis(values, axis, 0, size - 1))
    first = constant(slice_axis(values, axis, 0, 1), True, torch.bool)
    begins = prims.concat(first, begins, axis=axis)
    start, _ = prims.cummax(prims.select(begins, place, constant(place, 0)), axis=axis)
    return _picked(out, ordered, prims.argmax(prims.sub(place, start), axis=axis), axis)


# ---- running orders


def _running(prim: Prim, out: tuple[TensorType, TensorType], x: Value, dim: int) -> Any:
    if x.ndim == 0:
        return _of_a_number(out, x)
    return prim(x, axis=axis_of(dim, x.ndim))


@decomposition(aten.cummax.default)
def cummax(out: tuple[TensorType, TensorType], x: Value, dim: int) -> Any:
    return _running(prims.cummax, out, x, dim)


@decomposition(aten.cummin.default)
def cummin(out: tuple[TensorType, TensorType], x: Value, dim: int) -> Any:
    return _running(prims.cummin, out, x, dim)


@decomposition(aten.logcumsumexp.default, aten._logcumsumexp.default)
def logcumsumexp(out: TensorType, x: Value, dim: int) -> Any:
    return prims.logcumsumexp(x, axis=axis_of(dim, x.ndim)) if x.ndim else x


# ---- searches


def _search(out: TensorType, sequence: Value, values: Any, right: bool) -> Any:
    """Places of ``values`` (or of a number) in the dtype that torch promotes both to."""
    common = promoted(sequence, values)
    if common not in dtypes.REAL | dtypes.BOOLEAN:
        return NotImplemented
    sequence = cast(sequence, common)
    values = cast(values, common) if isinstance(values, Value) else spread(values, (), common)
    if sequence.ndim == 1:
        found = prims.searchsorted(sequence, flat(values), right=right)
    else:
        found = prims.searchsorted(sequence, values, right=right)
    return cast(prims.reshape(found, shape=out.shape), out.dtype)


@decomposition(aten.searchsorted.Tensor, aten.searchsorted.Scalar)
def searchsorted(
    out: TensorType,
    sequence: Value,
    values: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Value | None = None,
) -> Any:
    if sorter is not None:
        sequence = prims.gather(sequence, sorter, axis=sequence.ndim - 1)
    return _search(out, sequence, values, right or side == "right")


@decomposition(aten.bucketize.Tensor, aten.bucketize.Scalar)
def bucketize(out: TensorType, values: Any, boundaries: Value, *, out_int32: bool = False, right: bool = False) -> Any:
    return _search(out, boundaries, values, right)


@decomposition(aten.nonzero_static.default)
def nonzero_static(out: TensorType, x: Value, *, size: Any, fill_value: int = -1) -> Any:
    """The flat positions of the elements that are not 0, in order, each split into its coordinates."""
    if 0 in out.shape or 0 in x.shape:
        return prims.full(shape=out.shape, value=fill_value, dtype=out.dtype)
    rows = out.shape[0]
    chosen = flat(prims.ne(x, constant(x, 0)))
    number = prims.iota(length=chosen.shape[0], dtype=torch.int64)
    order = prims.cumsum(cast(chosen, torch.int64), axis=0)
    # One row too many takes what is not chosen and what does not fit.
    last = constant(order, rows)
    place = prims.select(chosen, prims.minimum(prims.sub(order, constant(order, 1)), last), last)
    unset = prims.full(shape=(rows + 1,), value=-1, dtype=torch.int64)
    found = slice_axis(prims.scatter(unset, place, number, axis=0, mode="set"), 0, 0, rows)
    empty = prims.lt(found, constant(found, 0))
    columns = []
    rest = prims.maximum(found, constant(found, 0))
    for length in reversed(x.shape):
        part = prims.fmod(rest, constant(rest, length))
        rest = prims.floor_div(rest, constant(rest, length))
        columns.append(prims.reshape(prims.select(empty, constant(part, fill_value), part), shape=(rows, 1)))
    return prims.concat(*reversed(columns), axis=1)


# ---- histograms


def _between(low: Value, high: Value, bins: int) -> Value:
    """``bins`` + 1 numbers from ``low`` to ``high``, as eager's linspace rounds them: each half from its own end."""
    shape = (bins + 1,)
    step = prims.div(prims.sub(high, low), constant(high, float(bins)))
    place = prims.iota(length=bins + 1, dtype=low.dtype)
    back = prims.sub(constant(place, float(bins)), place)
    first, last, wide = (along(part, (), shape) for part in (low, high, step))
    ahead = prims.add(first, prims.mul(wide, place))
    return prims.select(  # type: ignore[no-any-return]
        prims.lt(place, constant(place, float((bins + 1) // 2))), ahead, prims.sub(last, prims.mul(wide, back))
    )


def _ends(x: Value, low: Any, high: Any, apart: float) -> tuple[Value, Value]:
    """The outer edges, 0-d: the given ones, else those of the data. An empty range grows by ``apart`` on each side."""
    if low != high:
        return tuple(prims.full(shape=(), value=end, dtype=x.dtype) for end in (low, high))
    if low is not None:
        ends = [prims.full(shape=(), value=low, dtype=x.dtype)] * 2
    else:
        ends = [reduce(x, axes=(0,)) for reduce in (prims.reduce_min, prims.reduce_max)]
    equal = prims.eq(*ends)
    room = constant(ends[0], apart)
    return (
        prims.select(equal, prims.sub(ends[0], room), ends[0]),
        prims.select(equal, prims.add(ends[1], room), ends[1]),
    )


def _counted(bins: int, place: Value, inside: Value, weight: Value | None, dtype: torch.dtype) -> Value:
    """How many elements (or how much weight) each place got. What is not inside goes to a place too many."""
    wide = dtypes.compute_dtype(dtype)
    updates = constant(place, 1, wide) if weight is None else cast(weight, wide)
    place = prims.select(inside, place, constant(place, bins))
    start = prims.full(shape=(bins + 1,), value=0, dtype=wide)
    return slice_axis(prims.scatter(start, place, updates, axis=0, mode="add"), 0, 0, bins)


def _place(x: Value, edges: Value, bins: int) -> tuple[Value, Value]:
    """The bin of each element of the 1-d x, in range, and whether it lies in one. The last bin holds its upper edge."""
    found = prims.searchsorted(edges, x, right=True)
    first, last = (along(prims.reshape(slice_axis(edges, 0, at, at + 1), shape=()), (), x.shape) for at in (0, bins))
    inside = prims.bitwise_and(prims.ge(x, first), prims.le(x, last))
    place = prims.sub(found, constant(found, 1))
    return prims.maximum(prims.minimum(place, constant(place, bins - 1)), constant(place, 0)), inside


@decomposition(aten.histc.default)
def histc(out: TensorType, x: Value, bins: int = 100, min: Any = 0, max: Any = 0) -> Any:
    """Counts between ``min`` and ``max``, or the data's own when they are equal, in bins of one width."""
    if 0 in x.shape:
        return prims.full(shape=out.shape, value=0, dtype=out.dtype)
    if out.dtype not in dtypes.FLOATING:
        return NotImplemented
    data = cast(flat(x), dtypes.compute_dtype(x.dtype))
    low, high = _ends(data, None if min == max else min, None if min == max else max, 1.0)
    first, last = (along(end, (), data.shape) for end in (low, high))
    inside = prims.bitwise_and(prims.ge(data, first), prims.le(data, last))
    # The bin as eager computes it, in this order of operations; it does not search the edges.
    known = prims.select(inside, data, first)
    scaled = prims.mul(prims.sub(known, first), constant(known, float(bins)))
    place = prims.convert(prims.div(scaled, prims.sub(last, first)), dtype=torch.int64)
    return cast(_counted(bins, prims.minimum(place, constant(place, bins - 1)), inside, None, out.dtype), out.dtype)


def _flat_weight(weight: Value | None) -> Value | None:
    return None if weight is None else flat(weight)


def _density(counts: Value, edges: Sequence[Value]) -> Value:
    """Counts over their sum and the volume of their bin."""
    rank = counts.ndim
    total = prims.reduce_sum(counts, axes=tuple(range(rank)))
    result = prims.div(counts, along(total, (), counts.shape))
    for axis, edge in enumerate(edges):
        size = edge.shape[0]
        width = prims.sub(slice_axis(edge, 0, 1, size), slice_axis(edge, 0, 0, size - 1))
        result = prims.div(result, along(width, (axis,), counts.shape))
    return result  # type: ignore[no-any-return]


def _histogram(
    points: Sequence[Value], edges: Sequence[Value], weight: Value | None, density: bool, dtype: torch.dtype
) -> Value:
    """Counts of points, given by one 1-d value for each coordinate, in the boxes between the edges."""
    sizes = tuple(_known(edge.shape[0]) - 1 for edge in edges)
    number: Value | None = None
    inside: Value | None = None
    for coordinate, edge, bins in zip(points, edges, sizes, strict=True):
        place, within = _place(coordinate, edge, bins)
        number = place if number is None else prims.add(prims.mul(number, constant(number, bins)), place)
        inside = within if inside is None else prims.bitwise_and(inside, within)
    assert number is not None and inside is not None
    counts = prims.reshape(_counted(math.prod(sizes), number, inside, weight, dtype), shape=sizes)
    return cast(_density(counts, edges) if density else counts, dtype)  # type: ignore[no-any-return]


def _known(size: Dim) -> int:
    if isinstance(size, SymExpr):
        raise TypeError(f"the number of bins {size} is symbolic")
    return size


def _edges(x: Value, bins: int, range: Sequence[float] | None) -> Value:
    """``bins`` of one width over the range, or over the data's own; of no data over [0, 1]."""
    if range is None and 0 in x.shape:
        range = (0.0, 1.0)
    low, high = (None, None) if range is None else range
    return _between(*_ends(x, low, high, 0.5), bins)


@decomposition(aten.histogram.bin_ct)
def histogram_of_count(
    out: tuple[TensorType, TensorType],
    x: Value,
    bins: int = 100,
    *,
    range: Sequence[float] | None = None,
    weight: Value | None = None,
    density: bool = False,
) -> Any:
    edges = _edges(flat(x), bins, range)
    return _histogram([flat(x)], [edges], _flat_weight(weight), density, out[0].dtype), edges


@decomposition(aten.histogram.bins_tensor)
def histogram_of_edges(
    out: tuple[TensorType, TensorType],
    x: Value,
    bins: Value,
    *,
    weight: Value | None = None,
    density: bool = False,
) -> Any:
    if isinstance(bins.shape[0], SymExpr):
        return NotImplemented
    return _histogram([flat(x)], [bins], _flat_weight(weight), density, out[0].dtype), bins


def _coordinates(x: Value) -> list[Value]:
    """The last dim of x taken apart: one 1-d value for each coordinate."""
    width = _known(x.shape[-1])
    points = prims.reshape(x, shape=(count(x.shape, tuple(range(x.ndim - 1))), width))
    return [flat(slice_axis(points, 1, column, column + 1)) for column in range(width)]


def _range_of(range: Sequence[float] | None, column: int) -> Sequence[float] | None:
    return None if range is None else range[2 * column : 2 * column + 2]


@decomposition(aten._histogramdd_bin_edges.default)
def histogramdd_edges(
    out: tuple[TensorType, ...],
    x: Value,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: Value | None = None,
    density: bool = False,
) -> Any:
    return tuple(
        _edges(points, number, _range_of(range, column))
        for column, (points, number) in enumerate(zip(_coordinates(x), bins, strict=True))
    )


@decomposition(aten._histogramdd_from_bin_cts.default)
def histogramdd_of_counts(
    out: TensorType,
    x: Value,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: Value | None = None,
    density: bool = False,
) -> Any:
    points = _coordinates(x)
    edges = [
        _edges(part, number, _range_of(range, column))
        for column, (part, number) in enumerate(zip(points, bins, strict=True))
    ]
    return _histogram(points, edges, _flat_weight(weight), density, out.dtype)


@decomposition(aten._histogramdd_from_bin_tensors.default)
def histogramdd_of_edges(
    out: TensorType,
    x: Value,
    bins: Sequence[Value],
    *,
    weight: Value | None = None,
    density: bool = False,
) -> Any:
    if any(isinstance(edge.shape[0], SymExpr) for edge in bins):
        return NotImplemented
    return _histogram(_coordinates(x), bins, _flat_weight(weight), density, out.dtype)


# ---- segments


_STARTS = {"sum": 0, "mean": 0, "prod": 1, "max": -math.inf, "min": math.inf}
_MODES = {"sum": "add", "mean": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}


def _segment_of(data: Value, lengths: Value | None, offsets: Value | None) -> tuple[Value, Value, int]:
    """The segment of each position along the axis, in the shape of ``data``, the segments' sizes, and the axis.

    A position behind the last segment gets the number of segments.
    """
    given = lengths if lengths is not None else offsets
    assert given is not None
    given = cast(given, torch.int64)
    axis = given.ndim - 1
    if lengths is not None:
        sizes = given
        ends = prims.cumsum(sizes, axis=axis)
    else:
        number = given.shape[axis]
        ends = slice_axis(given, axis, 1, number)
        sizes = prims.sub(ends, slice_axis(given, axis, 0, number - 1))
    lead = (*given.shape[:axis], data.shape[axis])
    found = prims.searchsorted(ends, positions(lead, axis), right=True)
    return along(found, tuple(range(axis + 1)), data.shape), sizes, axis


def _collected(start: Any, segment: Value, sizes: Value, axis: int, updates: Value, mode: str) -> Value:
    """Updates combined by segment along the axis."""
    number = sizes.shape[axis]
    shape = (*updates.shape[:axis], number + 1, *updates.shape[axis + 1 :])
    empty = prims.full(shape=shape, value=start, dtype=updates.dtype)
    return slice_axis(prims.scatter(empty, segment, updates, axis=axis, mode=mode), axis, 0, number)


def _handed_out(values: Value, segment: Value, axis: int, fill: Any) -> Value:
    """Each position's element of its segment; ``fill`` behind the last segment."""
    low, high = [0] * values.ndim, [0] * values.ndim
    high[axis] = 1
    padded = prims.pad(values, low=tuple(low), high=tuple(high), interior=(0,) * values.ndim, value=fill)
    return prims.gather(padded, segment, axis=axis)  # type: ignore[no-any-return]


@decomposition(aten.segment_reduce.default)
def segment_reduce(
    out: TensorType,
    data: Value,
    reduce: str,
    *,
    lengths: Value | None = None,
    indices: Value | None = None,
    offsets: Value | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> Any:
    if indices is not None or (lengths is None and offsets is None):
        return NotImplemented
    segment, sizes, axis = _segment_of(data, lengths, offsets)
    wide = dtypes.compute_dtype(data.dtype)
    start = _STARTS[reduce] if initial is None else initial
    result = _collected(start, segment, sizes, axis, cast(data, wide), _MODES[reduce])
    if reduce == "mean":
        times = along(cast(sizes, wide), tuple(range(axis + 1)), result.shape)
        empty = prims.eq(times, constant(times, 0.0))
        average = prims.div(result, prims.select(empty, constant(times, 1.0), times))
        result = prims.select(empty, constant(result, math.nan), average) if initial is None else average
    return cast(result, out.dtype)


@decomposition(aten._segment_reduce_backward.default)
def segment_reduce_backward(
    out: TensorType,
    grad: Value,
    output: Value,
    data: Value,
    reduce: str,
    *,
    lengths: Value | None = None,
    offsets: Value | None = None,
    axis: int = 0,
    initial: Any = None,
) -> Any:
    """max and min share a gradient among equals; a product's goes to each element times the product of the others."""
    segment, sizes, axis = _segment_of(data, lengths, offsets)
    wide = dtypes.compute_dtype(data.dtype)
    x, upstream = cast(data, wide), _handed_out(cast(grad, wide), segment, axis, 0)
    if reduce == "sum":
        return cast(upstream, out.dtype)
    if reduce == "mean":
        times = along(cast(sizes, wide), tuple(range(axis + 1)), grad.shape)
        return cast(prims.div(upstream, _handed_out(times, segment, axis, 1)), out.dtype)
    if reduce in ("max", "min"):
        best = _handed_out(cast(output, wide), segment, axis, 0)
        wins = cast(prims.bitwise_or(prims.eq(x, best), prims.ne(x, x)), wide)
        winners = _collected(0, segment, sizes, axis, wins, "add")
        share = prims.div(upstream, _handed_out(winners, segment, axis, 1))
        return cast(prims.select(prims.ne(wins, constant(wins, 0)), share, constant(share, 0)), out.dtype)
    zero = prims.eq(x, constant(x, 0))
    start = 1 if initial is None else initial
    rest = _collected(start, segment, sizes, axis, prims.select(zero, constant(x, 1), x), "multiply")
    zeros = _handed_out(_collected(0, segment, sizes, axis, cast(zero, wide), "add"), segment, axis, 0)
    # The product of the others: of all that are not 0, unless another one is.
    others = prims.div(_handed_out(rest, segment, axis, 0), prims.select(zero, constant(x, 1), x))
    another = prims.gt(prims.sub(zeros, cast(zero, wide)), constant(zeros, 0))
    others = prims.select(another, constant(others, 0), others)
    return cast(prims.mul(upstream, others), out.dtype)
