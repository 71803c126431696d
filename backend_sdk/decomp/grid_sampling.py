"""Rules for sampling at positions that are data: the grid sampler of images and volumes, and its gradients.

Does not: resize by a ratio (`windows.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from backend_sdk import dtypes, prims
from backend_sdk.decomp.registry import decomposition
from backend_sdk.decomp.shape import slice_axis
from backend_sdk.graph import Value
from backend_sdk.prims.shorthand import along, cast, constant, scaled
from backend_sdk.spec import Shape, TensorType
from backend_sdk.spec.symbolic import Dim, contiguous_strides, element_count
from backend_sdk.torch_compat.ops import aten

# torch's numbers for the modes.
_LINEAR, _NEAREST, _CUBIC = 0, 1, 2
_ZEROS, _BORDER, _REFLECTION = 0, 1, 2

# Keys' cubic kernel, with the slope at 1 that torch takes.
_SLOPE = -0.75


@dataclass(frozen=True)
class _Tap:
    """One element that a position reads on one axis: its place (int64, in range), whether that is inside the image,
    its weight, and the weight's derivative by the grid's coordinate (None: 0).
    """

    place: Value
    inside: Value
    weight: Value
    slope: Value | None


def _filled(like: Value, value: Any) -> Value:
    return constant(like, value)  # type: ignore[no-any-return]


def _unnormalized(grid: Value, size: Dim, aligned: bool) -> tuple[Value, Value]:
    """[-1, 1] to elements of the axis, and the derivative: the ends are the outer elements' centers or their edges."""
    length = _filled(grid, size)
    if aligned:
        half = scaled(prims.sub(length, _filled(grid, 1.0)), 0.5)
        return prims.mul(prims.add(grid, _filled(grid, 1.0)), half), half
    half = scaled(length, 0.5)
    position = prims.sub(prims.mul(prims.add(grid, _filled(grid, 1.0)), half), _filled(grid, 0.5))
    return position, half


def _clipped(position: Value, slope: Value, size: Dim) -> tuple[Value, Value]:
    low, high = _filled(position, 0.0), prims.sub(_filled(position, size), _filled(position, 1.0))
    # At the border itself the derivative is 0, as in eager.
    moves = prims.bitwise_and(prims.gt(position, low), prims.lt(position, high))
    # NaN compares false: it becomes the low end, as in eager.
    cut = prims.select(prims.gt(position, low), position, low)
    cut = prims.select(prims.lt(cut, high), cut, high)
    return cut, prims.select(moves, slope, _filled(slope, 0.0))


def _reflected(position: Value, slope: Value, size: Dim, aligned: bool) -> tuple[Value, Value]:
    """Positions folded back between the centers (aligned) or the edges of the outer elements."""
    low = _filled(position, 0.0 if aligned else -0.5)
    span = _filled(position, size)
    if aligned:
        span = prims.sub(span, _filled(position, 1.0))
    away = prims.sub(position, low)
    distance = prims.abs(away)
    zero, one = _filled(position, 0.0), _filled(position, 1.0)
    point = prims.eq(span, zero)
    safe = prims.select(point, one, span)
    rest = prims.fmod(distance, safe)
    odd = prims.ne(prims.fmod(prims.floor(prims.div(distance, safe)), _filled(position, 2.0)), zero)
    folded = prims.add(prims.select(odd, prims.sub(span, rest), rest), low)
    turned = prims.ne(cast(odd, torch.int64), cast(prims.lt(away, zero), torch.int64))
    slope = prims.select(turned, prims.neg(slope), slope)
    return prims.select(point, zero, folded), prims.select(point, zero, slope)


def _padded(position: Value, slope: Value, size: Dim, padding: int, aligned: bool) -> tuple[Value, Value]:
    if padding == _REFLECTION:
        position, slope = _reflected(position, slope, size, aligned)
    return (position, slope) if padding == _ZEROS else _clipped(position, slope, size)


def _tap(place: Value, size: Dim, weight: Value, slope: Value | None) -> _Tap:
    high = prims.sub(_filled(place, size), _filled(place, 1.0))
    inside = prims.bitwise_and(prims.ge(place, _filled(place, 0.0)), prims.le(place, high))
    # Outside (and NaN) reads element 0, under the mask.
    known = prims.select(inside, place, _filled(place, 0.0))
    return _Tap(prims.convert(known, dtype=torch.int64), inside, weight, slope)


def _polynomial(x: Value, *coefficients: float) -> Value:
    result = _filled(x, coefficients[0])
    for coefficient in coefficients[1:]:
        result = prims.add(prims.mul(result, x), _filled(x, coefficient))
    return result


def _cubic_weights(rest: Value) -> list[tuple[Value, Value]]:
    """Weight and derivative of the four taps for a position ``rest`` behind the second one."""
    a = _SLOPE
    one, two = _filled(rest, 1.0), _filled(rest, 2.0)
    near, far = (a + 2.0, -(a + 3.0), 0.0, 1.0), (a, -5.0 * a, 8.0 * a, -4.0 * a)
    weights = []
    for distance, kernel, direction in (
        (prims.add(rest, one), far, 1.0),
        (rest, near, 1.0),
        (prims.sub(one, rest), near, -1.0),
        (prims.sub(two, rest), far, -1.0),
    ):
        derivative = (3.0 * kernel[0] * direction, 2.0 * kernel[1] * direction, kernel[2] * direction)
        weights.append((_polynomial(distance, *kernel), _polynomial(distance, *derivative)))
    return weights


def _taps(grid: Value, size: Dim, mode: int, padding: int, aligned: bool) -> list[_Tap]:
    position, half = _unnormalized(grid, size, aligned)
    one = _filled(position, 1.0)
    if mode == _CUBIC:
        low = prims.floor(position)
        taps = []
        for step, (weight, slope) in enumerate(_cubic_weights(prims.sub(position, low)), start=-1):
            # The elements are folded or clipped, not the position: the weights stay smooth at the border.
            place, _ = _padded(prims.add(low, _filled(low, float(step))), half, size, padding, aligned)
            taps.append(_tap(place, size, weight, prims.mul(slope, half)))
        return taps
    position, slope = _padded(position, half, size, padding, aligned)
    if mode == _NEAREST:
        return [_tap(prims.round(position), size, one, None)]
    low = prims.floor(position)
    rest = prims.sub(position, low)
    return [
        _tap(low, size, prims.sub(one, rest), prims.neg(slope)),
        _tap(prims.add(low, one), size, rest, slope),
    ]


class _Sampler:
    """What each position of the grid reads: for each combination of taps of the axes, the flat place, whether it is
    inside, and the axes' taps. All have the shape ``[N, positions]``.
    """

    def __init__(self, x_shape: Shape, grid: Value, mode: int, padding: int, aligned: bool, dtype: torch.dtype) -> None:
        self.spatial = len(x_shape) - 2
        sizes = x_shape[2:]
        self.rows = (grid.shape[0], element_count(grid.shape[1:-1]))
        self.area = element_count(sizes)
        self._strides = contiguous_strides(sizes)
        flat = cast(prims.reshape(grid, shape=(*self.rows, self.spatial)), dtype)
        # The grid's last dim holds x, y, z: the last axis first.
        columns = [
            prims.reshape(slice_axis(flat, 2, column, column + 1), shape=self.rows)
            for column in reversed(range(self.spatial))
        ]
        self._axes = [_taps(column, size, mode, padding, aligned) for column, size in zip(columns, sizes, strict=True)]

    def combinations(self) -> list[tuple[Value, Value, Sequence[_Tap]]]:
        found: list[tuple[Value, Value, Sequence[_Tap]]] = []
        for taps in itertools.product(*self._axes):
            place: Value | None = None
            inside: Value | None = None
            for tap, stride in zip(taps, self._strides, strict=True):
                part = tap.place if stride == 1 else prims.mul(tap.place, constant(tap.place, stride))
                place = part if place is None else prims.add(place, part)
                inside = tap.inside if inside is None else prims.bitwise_and(inside, tap.inside)
            assert place is not None and inside is not None
            found.append((place, inside, taps))
        return found


def _product(factors: Sequence[Value]) -> Value:
    result = factors[0]
    for factor in factors[1:]:
        result = prims.mul(result, factor)
    return result


def _read(image: Value, place: Value, inside: Value) -> Value:
    """``[N, C, positions]`` elements of the flat image; 0 outside."""
    shape = (*image.shape[:2], place.shape[1])
    values = prims.gather(image, along(place, (0, 2), shape), axis=2)
    return prims.select(along(inside, (0, 2), shape), values, constant(values, 0))  # type: ignore[no-any-return]


@decomposition(aten.grid_sampler_2d.default, aten.grid_sampler_3d.default)
def grid_sampler(out: TensorType, x: Value, grid: Value, mode: int, padding: int, aligned: bool) -> Any:
    if 0 in x.shape or 0 in out.shape:
        return prims.full(shape=out.shape, value=0, dtype=out.dtype)
    wide = dtypes.compute_dtype(x.dtype)
    sampler = _Sampler(x.shape, grid, mode, padding, aligned, wide)
    image = cast(prims.reshape(x, shape=(*x.shape[:2], sampler.area)), wide)
    total: Value | None = None
    for place, inside, taps in sampler.combinations():
        values = _read(image, place, inside)
        part = prims.mul(values, along(_product([tap.weight for tap in taps]), (0, 2), values.shape))
        total = part if total is None else prims.add(total, part)
    assert total is not None
    return prims.reshape(cast(total, out.dtype), shape=out.shape)


@decomposition(aten.grid_sampler_2d_backward.default, aten.grid_sampler_3d_backward.default)
def grid_sampler_backward(
    out: tuple[TensorType | None, TensorType | None],
    grad: Value,
    x: Value,
    grid: Value,
    mode: int,
    padding: int,
    aligned: bool,
    output_mask: Sequence[bool],
) -> Any:
    """Of the image: each gradient, weighted, added where it was read. Of the grid: the derivative of the weights."""
    if 0 in x.shape or 0 in grad.shape:
        return tuple(None if type is None else prims.full(shape=type.shape, value=0, dtype=type.dtype) for type in out)
    wide = dtypes.compute_dtype(x.dtype)
    sampler = _Sampler(x.shape, grid, mode, padding, aligned, wide)
    combinations = sampler.combinations()
    upstream = cast(prims.reshape(grad, shape=(*x.shape[:2], sampler.rows[1])), wide)
    of_image = _of_image(out[0], upstream, sampler, combinations) if output_mask[0] else None
    of_grid = _of_grid(out[1], upstream, x, sampler, combinations) if output_mask[1] else None
    return of_image, of_grid


def _of_image(type: TensorType | None, upstream: Value, sampler: _Sampler, combinations: Sequence[Any]) -> Value:
    assert type is not None
    total = prims.full(shape=(*upstream.shape[:2], sampler.area), value=0, dtype=upstream.dtype)
    for place, inside, taps in combinations:
        update = prims.mul(upstream, along(_product([tap.weight for tap in taps]), (0, 2), upstream.shape))
        update = prims.select(along(inside, (0, 2), update.shape), update, constant(update, 0))
        total = prims.scatter(total, along(place, (0, 2), update.shape), update, axis=2, mode="add")
    return prims.reshape(cast(total, type.dtype), shape=type.shape)  # type: ignore[no-any-return]


def _of_grid(
    type: TensorType | None, upstream: Value, x: Value, sampler: _Sampler, combinations: Sequence[Any]
) -> Value:
    assert type is not None
    image = cast(prims.reshape(x, shape=(*x.shape[:2], sampler.area)), upstream.dtype)
    totals: list[Value | None] = [None] * sampler.spatial
    for place, inside, taps in combinations:
        if taps[0].slope is None:
            continue
        met = prims.reduce_sum(prims.mul(upstream, _read(image, place, inside)), axes=(1,))
        for axis in range(sampler.spatial):
            factors = [tap.slope if position == axis else tap.weight for position, tap in enumerate(taps)]
            part = prims.mul(met, _product(factors))
            known = totals[axis]
            totals[axis] = part if known is None else prims.add(known, part)
    columns = [
        prims.full(shape=(*sampler.rows, 1), value=0, dtype=upstream.dtype)
        if total is None
        else prims.reshape(total, shape=(*sampler.rows, 1))
        for total in reversed(totals)
    ]
    return prims.reshape(cast(prims.concat(*columns, axis=2), type.dtype), shape=type.shape)  # type: ignore[no-any-return]
