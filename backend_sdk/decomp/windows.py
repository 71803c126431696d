"""Rules that read or sum windows whose place differs from output to output: uneven adaptive pooling, fractional
pooling, the gradients of replicating and reflecting padding, col2im.

All work one spatial axis at a time on a table of taps: which elements of the axis an output reads, with what weight.

Does not: pool with windows of one size and stride (`pooling.py`), resize (`resizing.py`), or sample at positions given
as data (`grid_sampling.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from backend_sdk import dtypes, prims
from backend_sdk.decomp.promotion import spread
from backend_sdk.decomp.registry import decomposition
from backend_sdk.decomp.shape import slice_axis
from backend_sdk.graph import Value
from backend_sdk.prims.shorthand import along, cast, constant, stretch
from backend_sdk.spec import TensorType
from backend_sdk.spec.symbolic import Dim, element_count
from backend_sdk.torch_compat.ops import aten


@dataclass(frozen=True)
class Taps:
    """What each output along an axis reads: int64 ``places`` ``[outputs, taps]`` in range, and, in the same shape,
    ``weights`` (None: all 1) or ``valid`` (None: all), whose false entries read nothing.
    """

    places: Value
    weights: Value | None = None
    valid: Value | None = None

    @property
    def outputs(self) -> Dim:
        return self.places.shape[0]

    @property
    def taps(self) -> Dim:
        return self.places.shape[1]


def read(x: Value, axis: int, taps: Taps, fill: Any = 0) -> Value:
    """``[.., outputs, taps, ..]`` in place of the axis: the elements that the taps read, ``fill`` for invalid ones."""
    windows = prims.take(x, taps.places, axis=axis)
    if taps.valid is None:
        return windows  # type: ignore[no-any-return]
    valid = along(taps.valid, (axis, axis + 1), windows.shape)
    return prims.select(valid, windows, constant(windows, fill))  # type: ignore[no-any-return]


def weigh(x: Value, axis: int, taps: Taps) -> Value:
    """The weighted sum of what each output reads along the axis."""
    windows = read(x, axis, taps)
    if taps.weights is not None:
        windows = prims.mul(windows, along(cast(taps.weights, x.dtype), (axis, axis + 1), windows.shape))
    return prims.reduce_sum(windows, axes=(axis + 1,))  # type: ignore[no-any-return]


def weigh_back(grad: Value, axis: int, taps: Taps, size: Dim) -> Value:
    """The gradient of `weigh`: each output's gradient, weighted, added to the elements it read."""
    shape = (*grad.shape[: axis + 1], taps.taps, *grad.shape[axis + 1 :])
    updates = stretch(grad, (axis + 1,), shape)
    if taps.weights is not None:
        updates = prims.mul(updates, along(cast(taps.weights, grad.dtype), (axis, axis + 1), shape))
    if taps.valid is not None:
        updates = prims.select(along(taps.valid, (axis, axis + 1), shape), updates, constant(updates, 0))
    return add_at(updates, axis, taps.places, size)


def add_at(updates: Value, axis: int, places: Value, size: Dim) -> Value:
    """Sums of ``[.., a, b, ..]`` at ``places`` ``[a, b]`` of an axis of ``size`` that takes the two dims' place."""
    total = places.shape[0] * places.shape[1]
    rows = (*updates.shape[:axis], total, *updates.shape[axis + 2 :])
    index = along(prims.reshape(places, shape=(total,)), (axis,), rows)
    empty = prims.full(shape=(*updates.shape[:axis], size, *updates.shape[axis + 2 :]), value=0, dtype=updates.dtype)
    return prims.scatter(empty, index, prims.reshape(updates, shape=rows), axis=axis, mode="add")  # type: ignore[no-any-return]


def table(outputs: Dim, taps: Dim, dtype: torch.dtype) -> tuple[Value, Value]:
    """The number of the output and the number of the tap for each entry."""
    shape = (outputs, taps)
    return (
        along(prims.iota(length=outputs, dtype=dtype), (0,), shape),
        along(prims.iota(length=taps, dtype=dtype), (1,), shape),
    )


def within(place: Value, size: Dim) -> Value:
    """Places clamped to the axis."""
    return prims.minimum(prims.maximum(place, constant(place, 0)), constant(place, size - 1))  # type: ignore[no-any-return]


# ---- adaptive pooling: output o of O covers floor(o * I / O) <= i < ceil((o + 1) * I / O)


def _adaptive(size: Dim, outputs: Dim) -> Taps:
    # A window that straddles one border more than the quotient says has one element more.
    widest = (size + outputs - 1) // outputs + (0 if _divides(outputs, size) else 1)
    output, tap = table(outputs, widest, torch.int64)
    into, length = constant(output, outputs), constant(output, size)
    start = prims.floor_div(prims.mul(output, length), into)
    after = prims.mul(prims.add(output, constant(output, 1)), length)
    end = prims.floor_div(prims.add(after, constant(after, outputs - 1)), into)
    place = prims.add(start, tap)
    valid = None if _divides(outputs, size) else prims.lt(place, end)
    return Taps(prims.minimum(place, constant(place, size - 1)), valid=valid)


def _divides(outputs: Dim, size: Dim) -> bool:
    return isinstance(outputs, int) and isinstance(size, int) and size % outputs == 0


def _window_counts(taps: Taps, dtype: torch.dtype) -> Value:
    if taps.valid is None:
        return prims.full(shape=(taps.outputs,), value=taps.taps, dtype=dtype)  # type: ignore[no-any-return]
    return prims.reduce_sum(cast(taps.valid, dtype), axes=(1,))  # type: ignore[no-any-return]


def _divided(x: Value, axis: int, taps: Taps) -> Value:
    return prims.div(x, along(_window_counts(taps, x.dtype), (axis,), x.shape))  # type: ignore[no-any-return]


def adaptive_average(spatial: int, out: TensorType, x: Value) -> Any:
    """The mean of each window."""
    if 0 in out.shape or 0 in x.shape:
        return prims.full(shape=out.shape, value=math.nan if 0 in x.shape else 0, dtype=out.dtype)
    total = cast(x, dtypes.compute_dtype(x.dtype))
    for axis in range(x.ndim - spatial, x.ndim):
        taps = _adaptive(x.shape[axis], out.shape[axis])
        total = _divided(weigh(total, axis, taps), axis, taps)
    return cast(total, out.dtype)


def adaptive_average_grad(spatial: int, out: TensorType, grad: Value) -> Any:
    """Each gradient, divided by its window's count, added to all of the window."""
    if 0 in out.shape or 0 in grad.shape:
        return prims.full(shape=out.shape, value=0, dtype=out.dtype)
    total = cast(grad, dtypes.compute_dtype(grad.dtype))
    for axis in range(grad.ndim - spatial, grad.ndim):
        taps = _adaptive(out.shape[axis], grad.shape[axis])
        total = weigh_back(_divided(total, axis, taps), axis, taps, out.shape[axis])
    return cast(total, out.dtype)


@decomposition(aten._adaptive_avg_pool3d.default)
def adaptive_avg_pool3d(out: TensorType, x: Value, output_size: Any) -> Any:
    return adaptive_average(3, out, x) if out.dtype in dtypes.FLOATING else NotImplemented


@decomposition(aten._adaptive_avg_pool3d_backward.default)
def adaptive_avg_pool3d_backward(out: TensorType, grad: Value, x: Value) -> Any:
    return adaptive_average_grad(3, out, grad)


def largest(windows: Value, places: Value, out: tuple[TensorType, TensorType], first: Value | None = None) -> Any:
    """The largest of the last dim, and the entry of ``places`` (same shape) where it stands: the first one, or the
    one that ``first`` says.
    """
    axis = windows.ndim - 1
    index = prims.argmax(windows, axis=axis) if first is None else first
    index = prims.reshape(index, shape=(*index.shape, 1))
    return tuple(
        prims.reshape(prims.gather(part, index, axis=axis), shape=type.shape)
        for part, type in zip((windows, places), out, strict=True)
    )


def _lowest(dtype: torch.dtype) -> Any:
    return -math.inf if dtype in dtypes.FLOATING else torch.iinfo(dtype).min


def _adaptive_max(spatial: int, out: tuple[TensorType, TensorType], x: Value) -> Any:
    if 0 in out[0].shape:
        return tuple(prims.full(shape=type.shape, value=0, dtype=type.dtype) for type in out)
    lead = x.ndim - spatial
    windows = x
    tables = [_adaptive(x.shape[axis], out[0].shape[axis]) for axis in range(lead, x.ndim)]
    for position, taps in enumerate(tables):
        # An invalid tap never wins: the first tap of a window is valid and comes before it.
        windows = read(windows, lead + 2 * position, taps, _lowest(x.dtype))
    pairs = tuple((2 * position, 2 * position + 1) for position in range(spatial))
    flat: Value | None = None
    table_shape = windows.shape[lead:]
    for taps, pair, size in zip(tables, pairs, x.shape[lead:], strict=True):
        part = along(taps.places, pair, table_shape)
        flat = part if flat is None else prims.add(prims.mul(flat, constant(flat, size)), part)
    assert flat is not None
    order = (*(pair[0] for pair in pairs), *(pair[1] for pair in pairs))
    outputs = out[0].shape[lead:]
    area = element_count(tuple(taps.taps for taps in tables))
    places = prims.reshape(prims.permute(flat, dims=order), shape=(*outputs, area))
    moved = prims.permute(windows, dims=(*range(lead), *(lead + dim for dim in order)))
    rows = prims.reshape(moved, shape=(*x.shape[:lead], *outputs, area))
    return largest(rows, along(places, tuple(range(lead, rows.ndim)), rows.shape), out)


@decomposition(aten.adaptive_max_pool2d.default)
def adaptive_max_pool2d(out: tuple[TensorType, TensorType], x: Value, output_size: Any) -> Any:
    return _adaptive_max(2, out, x)


@decomposition(aten.adaptive_max_pool3d.default)
def adaptive_max_pool3d(out: tuple[TensorType, TensorType], x: Value, output_size: Any) -> Any:
    return _adaptive_max(3, out, x)


def _chosen_back(spatial: int, out: TensorType, grad: Value, indices: Value) -> Any:
    """Each gradient goes to the element of its plane that won."""
    if 0 in grad.shape or 0 in out.shape:
        return prims.full(shape=out.shape, value=0, dtype=out.dtype)
    wide = dtypes.compute_dtype(out.dtype)
    lead = len(out.shape) - spatial
    rows = element_count(out.shape[:lead])
    area, number = element_count(out.shape[lead:]), element_count(grad.shape[lead:])
    total = prims.scatter(
        prims.full(shape=(rows, area), value=0, dtype=wide),
        prims.reshape(indices, shape=(rows, number)),
        prims.reshape(cast(grad, wide), shape=(rows, number)),
        axis=1,
        mode="add",
    )
    return cast(prims.reshape(total, shape=out.shape), out.dtype)


@decomposition(aten.adaptive_max_pool2d_backward.default)
def adaptive_max_pool2d_backward(out: TensorType, grad: Value, x: Value, indices: Value) -> Any:
    return _chosen_back(2, out, grad, indices)


@decomposition(aten.adaptive_max_pool3d_backward.default)
def adaptive_max_pool3d_backward(out: TensorType, grad: Value, x: Value, indices: Value) -> Any:
    return _chosen_back(3, out, grad, indices)


# ---- fractional pooling: windows of one size at random steps


def _fractional_starts(sample: Value, size: Dim, outputs: Dim, extent: int) -> Value:
    """Where each window starts, for each ``sample`` in [0, 1): ``[*samples, outputs]``.

    Truncated sequence of Graham, "Fractional max-pooling" (2014), as eager rounds it; the last window ends the axis.
    """
    shape = (*sample.shape, outputs)
    rank = len(shape)
    number = along(prims.iota(length=outputs, dtype=torch.int64), (rank - 1,), shape)
    last = constant(number, size - extent)
    if outputs == 1:
        return last  # type: ignore[no-any-return]
    ratio: Any = size - extent
    given = along(sample, tuple(range(rank - 1)), shape)
    alpha = prims.div(spread(ratio, shape, sample.dtype), spread(outputs - 1, shape, sample.dtype))
    reached = prims.convert(prims.mul(prims.add(cast(number, sample.dtype), given), alpha), dtype=torch.int64)
    before = prims.convert(prims.mul(given, alpha), dtype=torch.int64)
    start = prims.sub(reached, before)
    return prims.select(prims.eq(number, constant(number, outputs - 1)), last, start)  # type: ignore[no-any-return]


def _fractional(
    spatial: int,
    out: tuple[TensorType, TensorType],
    x: Value,
    kernel: Sequence[int],
    samples: Value,
    order: tuple[int, ...],
) -> Any:
    """``order``: which column of the samples belongs to each spatial axis."""
    if 0 in out[0].shape:
        return tuple(prims.full(shape=type.shape, value=0, dtype=type.dtype) for type in out)
    lead = x.ndim - spatial
    planes = element_count(x.shape[:lead])
    outputs = out[0].shape[lead:]
    points = cast(prims.reshape(samples, shape=(planes, samples.shape[-1])), dtypes.compute_dtype(x.dtype))
    shape = (planes, *outputs, *kernel)
    flat: Value | None = None
    for position, (size, number, extent) in enumerate(zip(x.shape[lead:], outputs, kernel, strict=True)):
        column = prims.reshape(slice_axis(points, 1, order[position], order[position] + 1), shape=(planes,))
        start = along(_fractional_starts(column, size, number, extent), (0, 1 + position), shape)
        step = along(prims.iota(length=extent, dtype=torch.int64), (1 + spatial + position,), shape)
        place = prims.add(start, step)
        flat = place if flat is None else prims.add(prims.mul(flat, constant(flat, size)), place)
    assert flat is not None
    number = element_count(outputs)
    area = math.prod(kernel)
    places = prims.reshape(flat, shape=(planes, number * area))
    rows = prims.reshape(x, shape=(planes, element_count(x.shape[lead:])))
    windows = prims.reshape(prims.gather(rows, places, axis=1), shape=(planes, number, area))
    return largest(windows, prims.reshape(places, shape=(planes, number, area)), out)


@decomposition(aten.fractional_max_pool2d.default)
def fractional_max_pool2d(
    out: tuple[TensorType, TensorType], x: Value, kernel: Sequence[int], output_size: Any, samples: Value
) -> Any:
    return _fractional(2, out, x, kernel, samples, (1, 0))


@decomposition(aten.fractional_max_pool3d.default)
def fractional_max_pool3d(
    out: tuple[TensorType, TensorType], x: Value, kernel: Sequence[int], output_size: Any, samples: Value
) -> Any:
    return _fractional(3, out, x, kernel, samples, (0, 1, 2))


@decomposition(aten.fractional_max_pool2d_backward.default)
def fractional_max_pool2d_backward(
    out: TensorType, grad: Value, x: Value, kernel: Any, output_size: Any, indices: Value
) -> Any:
    return _chosen_back(2, out, grad, indices)


@decomposition(aten.fractional_max_pool3d_backward.default)
def fractional_max_pool3d_backward(
    out: TensorType, grad: Value, x: Value, kernel: Any, output_size: Any, indices: Value
) -> Any:
    return _chosen_back(3, out, grad, indices)


# ---- gradients of padding with the operand's own elements


def _pad_back(out: TensorType, grad: Value, padding: Sequence[Dim], reflects: bool) -> Any:
    """Each gradient goes to the element whose copy the padded place holds."""
    wide = dtypes.compute_dtype(grad.dtype)
    total = cast(grad, wide)
    for position in range(len(padding) // 2):
        axis = grad.ndim - 1 - position
        size = out.shape[axis]
        number, _ = table(grad.shape[axis], 1, torch.int64)
        place = prims.sub(number, constant(number, padding[2 * position]))
        if reflects:
            place = prims.abs(place)
            last = constant(place, size - 1)
            place = prims.sub(last, prims.abs(prims.sub(last, place)))
        total = weigh_back(total, axis, Taps(within(place, size)), size)
    return cast(total, out.dtype)


@decomposition(
    aten.replication_pad1d_backward.default,
    aten.replication_pad2d_backward.default,
    aten.replication_pad3d_backward.default,
)
def replication_pad_backward(out: TensorType, grad: Value, x: Value, padding: Sequence[Dim]) -> Any:
    return _pad_back(out, grad, padding, False)


@decomposition(
    aten.reflection_pad1d_backward.default,
    aten.reflection_pad2d_backward.default,
    aten.reflection_pad3d_backward.default,
)
def reflection_pad_backward(out: TensorType, grad: Value, x: Value, padding: Sequence[Dim]) -> Any:
    return _pad_back(out, grad, padding, True)


# ---- columns of windows, added up


@decomposition(aten.col2im.default)
def col2im(
    out: TensorType,
    x: Value,
    output_size: Sequence[Dim],
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Any:
    """The sum of windows, given as columns ``[N, C * kernel, windows]``, at their places in the image."""
    batch = x if x.ndim == 3 else prims.reshape(x, shape=(1, *x.shape))
    counts = tuple(
        (size + 2 * edge - reach * (extent - 1) - 1) // step + 1
        for size, edge, reach, extent, step in zip(output_size, padding, dilation, kernel, stride, strict=True)
    )
    channels = out.shape[-3]
    wide = dtypes.compute_dtype(x.dtype)
    image = cast(prims.reshape(batch, shape=(batch.shape[0], channels, *kernel, *counts)), wide)
    # [N, C, kernel rows, rows, kernel columns, columns]
    image = prims.permute(image, dims=(0, 1, 2, 4, 3, 5))
    for position in range(2):
        axis = 2 + position
        extent, number = table(kernel[position], counts[position], torch.int64)
        place = prims.add(
            prims.mul(extent, constant(extent, dilation[position])),
            prims.mul(number, constant(number, stride[position])),
        )
        edge, size = padding[position], out.shape[len(out.shape) - 2 + position]
        image = slice_axis(add_at(image, axis, place, size + 2 * edge), axis, edge, edge + size)
    return prims.reshape(cast(image, out.dtype), shape=out.shape)
