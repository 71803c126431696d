"""Resizing along spatial axes and its gradients: nearest, linear and cubic, and with antialiasing.

All work one axis at a time on a table of taps (`windows.py`): which elements of the axis an output reads, with what
weight. Linear and cubic resizing of bytes, which eager has of 2-d images alone, is in fixed point
(`fixed_point_resizing.py`). Eager has several kernels for it, chosen by the number of channels and the layout, which
agree to the bit but in results of one column. There, of more than four channels that do not lie together, each row gets
what belongs to the first one; and of three channels a result of 1 x 1 raises. The rules give what the kernel for
channels that lie together gives.

Does not: sample at positions given as data (`grid_sampling.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from backend_sdk import dtypes, prims
from backend_sdk.decomp.fixed_point_resizing import WeightedTaps, largest_of, nearby_taps, weigh_bytes
from backend_sdk.decomp.registry import decomposition
from backend_sdk.decomp.windows import Taps, table, weigh, weigh_back, within
from backend_sdk.graph import Value
from backend_sdk.prims.shorthand import along, cast, constant, scaled, stretch
from backend_sdk.spec import TensorType
from backend_sdk.spec.symbolic import Dim, is_symbolic
from backend_sdk.torch_compat.ops import aten

# ---- where an output lies on the input's axis, and what it reads there


def _ratio(size: Dim, outputs: Dim, scale: float | None, dtype: torch.dtype) -> Any:
    """Input steps for each output step: a number, or 0-d values' worth of one when sizes are symbolic."""
    if scale is not None and scale > 0.0:
        return 1.0 / scale
    if isinstance(size, int) and isinstance(outputs, int):
        return size / outputs
    return prims.div(prims.full(shape=(), value=size, dtype=dtype), prims.full(shape=(), value=outputs, dtype=dtype))


def _steps(like: Value, ratio: Any) -> Value:
    return along(ratio, (), like.shape) if isinstance(ratio, Value) else constant(like, ratio)  # type: ignore[no-any-return]


def _is_kept(size: Dim, outputs: Dim) -> bool:
    """Whether an axis keeps its size. Eager then copies it, whatever scale the call gives."""
    return not is_symbolic((size, outputs)) and size == outputs


def _centers(size: Dim, outputs: Dim, taps: int, aligned: bool, scale: float | None, dtype: torch.dtype) -> Value:
    """The position of each output on the input's axis, in its elements: ``[outputs, taps]``."""
    number, _ = table(outputs, taps, dtype)
    if aligned:
        if outputs == 1:
            return constant(number, 0.0)  # type: ignore[no-any-return]
        return prims.mul(number, _steps(number, _ratio(size - 1, outputs - 1, None, dtype)))  # type: ignore[no-any-return]
    half = constant(number, 0.5)
    return prims.sub(prims.mul(prims.add(number, half), _steps(number, _ratio(size, outputs, scale, dtype))), half)  # type: ignore[no-any-return]


def _nearest_taps(exact: bool, size: Dim, outputs: Dim, scale: float | None, dtype: torch.dtype) -> Taps:
    number, _ = table(outputs, 1, dtype)
    if exact:
        number = prims.add(number, constant(number, 0.5))
    position = prims.floor(prims.mul(number, _steps(number, _ratio(size, outputs, scale, dtype))))
    return Taps(within(prims.convert(position, dtype=torch.int64), size))


def _linear_taps(size: Dim, outputs: Dim, aligned: bool, scale: float | None, dtype: torch.dtype) -> Taps | None:
    if _is_kept(size, outputs):
        return None
    center = _centers(size, outputs, 2, aligned, scale, dtype)
    center = prims.maximum(center, constant(center, 0.0))
    low = prims.floor(center)
    rest = prims.sub(center, low)
    _, tap = table(outputs, 2, torch.int64)
    upper = prims.eq(tap, constant(tap, 1))
    place = prims.add(prims.convert(low, dtype=torch.int64), tap)
    return Taps(within(place, size), prims.select(upper, rest, prims.sub(constant(rest, 1.0), rest)))


# Keys' cubic kernel, the slope at 1 that torch (and OpenCV) takes; with antialiasing the one that Pillow takes.
_CUBIC = -0.75
_CUBIC_ANTIALIASED = -0.5


def cubic(distance: Value, slope: float) -> Value:
    """Keys' cubic convolution kernel at a distance of at least 0; 0 from 2 on."""

    def polynomial(*coefficients: float) -> Value:
        result = constant(distance, coefficients[0])
        for coefficient in coefficients[1:]:
            result = prims.add(prims.mul(result, distance), constant(distance, coefficient))
        return result  # type: ignore[no-any-return]

    near = polynomial(slope + 2.0, -(slope + 3.0), 0.0, 1.0)
    far = polynomial(slope, -5.0 * slope, 8.0 * slope, -4.0 * slope)
    outer = prims.select(prims.lt(distance, constant(distance, 2.0)), far, constant(far, 0.0))
    return prims.select(prims.lt(distance, constant(distance, 1.0)), near, outer)  # type: ignore[no-any-return]


def _cubic_taps(size: Dim, outputs: Dim, aligned: bool, scale: float | None, dtype: torch.dtype) -> Taps:
    center = _centers(size, outputs, 4, aligned, scale, dtype)
    low = prims.floor(center)
    _, tap = table(outputs, 4, dtype)
    place = prims.sub(prims.add(low, tap), constant(tap, 1.0))
    weights = cubic(prims.abs(prims.sub(center, place)), _CUBIC)
    return Taps(within(prims.convert(place, dtype=torch.int64), size), weights)


@dataclass(frozen=True)
class _Kernel:
    """A resampling kernel: its weight at a distance of at least 0, and the distance that it reaches."""

    weight: Callable[[Value], Value]
    reach: float


def _triangle(distance: Value) -> Value:
    rest = prims.sub(constant(distance, 1.0), distance)
    return prims.maximum(rest, constant(rest, 0.0))  # type: ignore[no-any-return]


def _lanczos(distance: Value) -> Value:
    """sinc(x) sinc(x / 3), 0 from 3 on (Duchon, "Lanczos filtering in one and two dimensions", 1979)."""
    center = prims.eq(distance, constant(distance, 0.0))
    angle = scaled(prims.select(center, constant(distance, 1.0), distance), math.pi)
    waves = prims.mul(prims.sin(angle), prims.sin(scaled(angle, 1.0 / 3.0)))
    weight = prims.div(scaled(waves, 3.0), prims.mul(angle, angle))
    near = prims.select(prims.lt(distance, constant(distance, 3.0)), weight, constant(weight, 0.0))
    return prims.select(center, constant(near, 1.0), near)  # type: ignore[no-any-return]


_TRIANGLE_KERNEL = _Kernel(_triangle, 1.0)
_CUBIC_KERNEL = _Kernel(lambda distance: cubic(distance, _CUBIC_ANTIALIASED), 2.0)
_LANCZOS_KERNEL = _Kernel(_lanczos, 3.0)


def _antialiased_taps(
    kernel: _Kernel,
    size: int,
    outputs: int,
    aligned: bool,
    scale: float | None,
    dtype: torch.dtype,
) -> Taps:
    """The kernel, widened by the ratio when it shrinks, over all elements that it reaches; weights of sum 1."""
    if aligned:
        ratio = (size - 1) / (outputs - 1) if outputs > 1 else 0.0
    else:
        ratio = _ratio(size, outputs, scale, dtype)
    support = kernel.reach * ratio if ratio >= 1.0 else kernel.reach
    narrow = 1.0 / ratio if ratio >= 1.0 else 1.0
    output, tap = table(outputs, math.ceil(support) * 2 + 1, dtype)
    center = prims.mul(constant(output, ratio), prims.add(output, constant(output, 0.5)))
    start = prims.trunc(prims.add(prims.sub(center, constant(center, support)), constant(center, 0.5)))
    end = prims.trunc(prims.add(prims.add(center, constant(center, support)), constant(center, 0.5)))
    start = prims.maximum(start, constant(start, 0.0))
    end = prims.minimum(end, constant(end, float(size)))
    place = prims.add(start, tap)
    valid = prims.lt(place, end)
    offset = prims.add(prims.sub(place, center), constant(place, 0.5))
    weights = kernel.weight(prims.abs(scaled(offset, narrow)))
    weights = prims.select(valid, weights, constant(weights, 0.0))
    total = prims.reduce_sum(weights, axes=(1,))
    total = prims.select(prims.eq(total, constant(total, 0.0)), constant(total, 1.0), total)
    weights = prims.div(weights, stretch(total, (1,), weights.shape))
    return Taps(within(prims.convert(place, dtype=torch.int64), size), weights, valid)


# Builds the taps of one axis: (input size, output size, scale or None, compute dtype). None: the axis stays as it is.
_Axis = Callable[[Any, Any, "float | None", torch.dtype], "Taps | None"]


def _resized(out: TensorType, x: Value, scales: Sequence[float | None], axis_taps: _Axis) -> Any:
    if out.dtype not in dtypes.FLOATING:
        return NotImplemented
    wide = dtypes.compute_dtype(x.dtype)
    result = cast(x, wide)
    # The last axis first, as eager does.
    for axis, scale in reversed(list(enumerate(scales, start=x.ndim - len(scales)))):
        taps = axis_taps(x.shape[axis], out.shape[axis], scale, wide)
        result = result if taps is None else weigh(result, axis, taps)
    return cast(result, out.dtype)


# The same of bytes: (input size, output size, scale or None).
_BytesAxis = Callable[[Any, Any, "float | None"], WeightedTaps]


def _resized_bytes(out: TensorType, x: Value, scales: Sequence[float | None], axis_taps: _BytesAxis) -> Value:
    """The last axis first, as eager does: what it gives is rounded to bytes."""
    result = x
    for axis, scale in reversed(list(enumerate(scales, start=x.ndim - len(scales)))):
        size, outputs = x.shape[axis], out.shape[axis]
        if not _is_kept(size, outputs):
            result = weigh_bytes(result, axis, axis_taps(size, outputs, scale))
    return result


def _bytes_axis(number: int, weight: Callable[[Value], Value], aligned: bool, *, within_axis: bool) -> _BytesAxis:
    """``number`` taps with the ``weight`` of a distance. ``within_axis``: no position lies before the first element."""

    def taps(size: Dim, outputs: Dim, scale: float | None) -> WeightedTaps:
        center = _centers(size, outputs, number, aligned, scale, torch.float64)
        if within_axis:
            center = prims.maximum(center, constant(center, 0.0))
        return nearby_taps(center, number, size, weight)

    return taps


def _linear_bytes_axis(aligned: bool) -> _BytesAxis:
    return _bytes_axis(2, _triangle, aligned, within_axis=True)


def _cubic_bytes_axis(aligned: bool) -> _BytesAxis:
    return _bytes_axis(4, lambda distance: cubic(distance, _CUBIC), aligned, within_axis=False)


def _resized_back(out: TensorType, grad: Value, scales: Sequence[float | None], axis_taps: _Axis) -> Any:
    if out.dtype not in dtypes.FLOATING:
        return NotImplemented
    wide = dtypes.compute_dtype(grad.dtype)
    result = cast(grad, wide)
    for axis, scale in enumerate(scales, start=grad.ndim - len(scales)):
        size = out.shape[axis]
        taps = axis_taps(size, grad.shape[axis], scale, wide)
        result = result if taps is None else weigh_back(result, axis, taps, size)
    return cast(result, out.dtype)


def _nearest_axis(exact: bool, *, doubles: bool = False) -> _Axis:
    """``doubles``: eager doubles an axis, and keeps its size, whatever scale the call gives."""

    def taps(size: Dim, outputs: Dim, scale: float | None, dtype: torch.dtype) -> Taps | None:
        if doubles and _is_kept(size, outputs):
            return None
        return _nearest_taps(exact, size, outputs, None if doubles and _is_kept(2 * size, outputs) else scale, dtype)

    return taps


def _linear_axis(aligned: bool) -> _Axis:
    return lambda size, outputs, scale, dtype: _linear_taps(size, outputs, aligned, scale, dtype)


def _cubic_axis(aligned: bool) -> _Axis:
    return lambda size, outputs, scale, dtype: _cubic_taps(size, outputs, aligned, scale, dtype)


def _scales_of(spatial: int, scales: tuple[float | None, ...]) -> tuple[float | None, ...]:
    return (*scales, *(None,) * (spatial - len(scales)))


def _picked(out: TensorType, x: Value, scales: Sequence[float | None], axis_taps: _Axis) -> Any:
    """Resizing that computes nothing: each output is an element, of any dtype."""
    # Of integers eager computes places in float32.
    wide = dtypes.compute_dtype(x.dtype) if x.dtype in dtypes.FLOATING else torch.float32
    result = x
    for axis, scale in enumerate(scales, start=x.ndim - len(scales)):
        taps = axis_taps(x.shape[axis], out.shape[axis], scale, wide)
        if taps is not None:
            result = prims.take(result, prims.reshape(taps.places, shape=(taps.outputs,)), axis=axis)
    return result


@decomposition(aten.upsample_nearest1d.default, aten.upsample_nearest2d.default, aten.upsample_nearest3d.default)
def upsample_nearest(out: TensorType, x: Value, output_size: Any, *scales: float | None) -> Any:
    return _picked(out, x, _scales_of(len(output_size), scales), _nearest_axis(False, doubles=len(output_size) == 2))


@decomposition(
    aten._upsample_nearest_exact1d.default,
    aten._upsample_nearest_exact2d.default,
    aten._upsample_nearest_exact3d.default,
)
def upsample_nearest_exact(out: TensorType, x: Value, output_size: Any, *scales: float | None) -> Any:
    return _picked(out, x, _scales_of(len(output_size), scales), _nearest_axis(True))


@decomposition(aten.upsample_linear1d.default, aten.upsample_bilinear2d.default, aten.upsample_trilinear3d.default)
def upsample_linear(out: TensorType, x: Value, output_size: Any, align_corners: bool, *scales: float | None) -> Any:
    if x.dtype == torch.uint8:
        return _resized_bytes(out, x, _scales_of(2, scales), _linear_bytes_axis(align_corners))
    return _resized(out, x, _scales_of(len(output_size), scales), _linear_axis(align_corners))


@decomposition(aten.upsample_bicubic2d.default)
def upsample_bicubic(out: TensorType, x: Value, output_size: Any, align_corners: bool, *scales: float | None) -> Any:
    if x.dtype == torch.uint8:
        return _resized_bytes(out, x, _scales_of(2, scales), _cubic_bytes_axis(align_corners))
    return _resized(out, x, _scales_of(2, scales), _cubic_axis(align_corners))


@decomposition(
    aten.upsample_nearest1d_backward.default,
    aten.upsample_nearest2d_backward.default,
    aten.upsample_nearest3d_backward.default,
)
def upsample_nearest_backward(
    out: TensorType, grad: Value, output_size: Any, input_size: Any, *scales: float | None
) -> Any:
    return _resized_back(out, grad, _scales_of(len(output_size), scales), _nearest_axis(False, doubles=True))


@decomposition(
    aten._upsample_nearest_exact1d_backward.default,
    aten._upsample_nearest_exact2d_backward.default,
    aten._upsample_nearest_exact3d_backward.default,
)
def upsample_nearest_exact_backward(
    out: TensorType, grad: Value, output_size: Any, input_size: Any, *scales: float | None
) -> Any:
    return _resized_back(out, grad, _scales_of(len(output_size), scales), _nearest_axis(True))


@decomposition(
    aten.upsample_linear1d_backward.default,
    aten.upsample_bilinear2d_backward.default,
    aten.upsample_trilinear3d_backward.default,
)
def upsample_linear_backward(
    out: TensorType, grad: Value, output_size: Any, input_size: Any, align_corners: bool, *scales: float | None
) -> Any:
    return _resized_back(out, grad, _scales_of(len(output_size), scales), _linear_axis(align_corners))


@decomposition(aten.upsample_bicubic2d_backward.default)
def upsample_bicubic_backward(
    out: TensorType, grad: Value, output_size: Any, input_size: Any, align_corners: bool, *scales: float | None
) -> Any:
    if out.shape == grad.shape:
        # Eager copies what keeps its size, though forward it does not.
        return grad
    return _resized_back(out, grad, _scales_of(len(output_size), scales), _cubic_axis(align_corners))


def _antialiased_axis(kernel: _Kernel, aligned: bool, *, keeps: bool) -> _Axis:
    """``keeps``: an axis that keeps its size is copied, which eager does forward only."""

    def taps(size: int, outputs: int, scale: float | None, dtype: torch.dtype) -> Taps | None:
        if keeps and _is_kept(size, outputs):
            return None
        return _antialiased_taps(kernel, size, outputs, aligned, scale, dtype)

    return taps


def _antialiased(
    kernel: _Kernel, out: TensorType, x: Value, output_size: Any, aligned: bool, *scales: float | None
) -> Any:
    if is_symbolic((*x.shape[2:], *out.shape[2:])):
        # How many elements an output reads is then not known.
        return NotImplemented
    if x.shape == out.shape and out.dtype not in dtypes.FLOATING:
        # Eager copies what keeps its size, of any dtype.
        return x
    if x.dtype == torch.uint8:
        return _resized_bytes(
            out,
            x,
            _scales_of(2, scales),
            lambda size, outputs, scale: largest_of(
                _antialiased_taps(kernel, size, outputs, aligned, scale, torch.float64)
            ),
        )
    return _resized(out, x, _scales_of(2, scales), _antialiased_axis(kernel, aligned, keeps=True))


@decomposition(aten._upsample_bilinear2d_aa.default)
def upsample_bilinear2d_aa(out: TensorType, x: Value, *rest: Any) -> Any:
    return _antialiased(_TRIANGLE_KERNEL, out, x, *rest)


@decomposition(aten._upsample_bicubic2d_aa.default)
def upsample_bicubic2d_aa(out: TensorType, x: Value, *rest: Any) -> Any:
    return _antialiased(_CUBIC_KERNEL, out, x, *rest)


@decomposition(aten._upsample_lanczos2d_aa.default)
def upsample_lanczos2d_aa(out: TensorType, x: Value, *rest: Any) -> Any:
    return _antialiased(_LANCZOS_KERNEL, out, x, *rest)


def _antialiased_back(
    kernel: _Kernel,
    out: TensorType,
    grad: Value,
    output_size: Any,
    input_size: Any,
    aligned: bool,
    *scales: float | None,
) -> Any:
    if is_symbolic((*grad.shape[2:], *out.shape[2:])):
        return NotImplemented
    return _resized_back(out, grad, _scales_of(2, scales), _antialiased_axis(kernel, aligned, keeps=False))


@decomposition(aten._upsample_bilinear2d_aa_backward.default)
def upsample_bilinear2d_aa_backward(out: TensorType, grad: Value, *rest: Any) -> Any:
    return _antialiased_back(_TRIANGLE_KERNEL, out, grad, *rest)


@decomposition(aten._upsample_bicubic2d_aa_backward.default)
def upsample_bicubic2d_aa_backward(out: TensorType, grad: Value, *rest: Any) -> Any:
    return _antialiased_back(_CUBIC_KERNEL, out, grad, *rest)


@decomposition(aten._upsample_lanczos2d_aa_backward.default)
def upsample_lanczos2d_aa_backward(out: TensorType, grad: Value, *rest: Any) -> Any:
    return _antialiased_back(_LANCZOS_KERNEL, out, grad, *rest)
