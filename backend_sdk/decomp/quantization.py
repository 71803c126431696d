"""Rules for quantizers on plain dtypes: simulated ones, observers, and the integer ops of quantized exports.

Does not: cover tensors that hold a quantizer, or weights in a packed format (`coverage.scope`).
"""

from __future__ import annotations

import math
from typing import Any

import torch

from backend_sdk import dtypes, prims
from backend_sdk.decomp.promotion import spread
from backend_sdk.decomp.registry import decomposition
from backend_sdk.graph import Value
from backend_sdk.prims.shorthand import along, cast, constant, scaled
from backend_sdk.spec import SymExpr, TensorType
from backend_sdk.spec.symbolic import element_count
from backend_sdk.torch_compat.ops import aten


def _number(value: Any, dtype: torch.dtype) -> Value:
    """A number, or a tensor of one element, as a 0-d value."""
    if isinstance(value, Value):
        return prims.reshape(cast(value, dtype), shape=())  # type: ignore[no-any-return]
    return prims.full(shape=(), value=value, dtype=dtype)  # type: ignore[no-any-return]


def _reciprocal(scale: Value) -> Value:
    return prims.div(constant(scale, 1.0), scale)  # type: ignore[no-any-return]


# ---- simulated quantization


def _along_axis(part: Value, axis: int | None, x: Value, dtype: torch.dtype) -> Value:
    return along(cast(part, dtype), () if axis is None else (axis,), x.shape)  # type: ignore[no-any-return]


def _within(x: Value, scale: Value, zero_point: Value, axis: int | None, low: int, high: int) -> Value:
    """Where x is not clamped."""
    wide = cast(x, dtypes.compute_dtype(x.dtype))
    value = prims.round(prims.mul(wide, _along_axis(_reciprocal(scale), axis, x, wide.dtype)))
    value = prims.add(value, _along_axis(zero_point, axis, x, wide.dtype))
    inside = prims.ge(value, constant(value, float(low))), prims.le(value, constant(value, float(high)))
    return prims.bitwise_and(*inside)  # type: ignore[no-any-return]


def _simulated(x: Value, scale: Value, zero_point: Value, axis: int | None, low: int, high: int) -> Value:
    """x quantized and back. ``scale`` is float32 and ``zero_point`` int32, 0-d or along ``axis``."""
    limits = {"lowest": low, "highest": high, "dtype": torch.int32}
    q = prims.quantize(x, _reciprocal(scale), zero_point, axis=axis, **limits)
    # Without channels eager multiplies in float32, whatever x is.
    narrow = torch.float32 if axis is None and x.dtype == torch.float64 else x.dtype
    return cast(prims.dequantize(q, scale, zero_point, axis=axis, dtype=narrow), x.dtype)  # type: ignore[no-any-return]


def _simulated_around_a_fraction(
    x: Value, scale: Value, zero_point: Value, axis: int, low: int, high: int
) -> tuple[Value, Value]:
    """The same with a zero point that need not be an integer: it is added before rounding."""
    wide = cast(x, dtypes.compute_dtype(x.dtype))
    zero = _along_axis(zero_point, axis, x, wide.dtype)
    value = prims.mul(wide, _along_axis(_reciprocal(scale), axis, x, wide.dtype))
    value = prims.round(prims.add(value, zero))
    low_end, high_end = constant(value, float(low)), constant(value, float(high))
    inside = prims.bitwise_and(prims.ge(value, low_end), prims.le(value, high_end))
    value = prims.select(prims.ne(value, value), low_end, prims.minimum(prims.maximum(value, low_end), high_end))
    back = prims.mul(prims.sub(value, zero), _along_axis(scale, axis, x, wide.dtype))
    return cast(back, x.dtype), inside


@decomposition(aten.fake_quantize_per_tensor_affine_cachemask.default)
def fake_quantize_per_tensor(
    out: tuple[TensorType, TensorType], x: Value, scale: float, zero_point: int, low: int, high: int
) -> Any:
    step, zero = _number(scale, torch.float32), _number(zero_point, torch.int32)
    return _simulated(x, step, zero, None, low, high), _within(x, step, zero, None, low, high)


@decomposition(aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default)
def fake_quantize_per_tensor_by_tensors(
    out: tuple[TensorType, TensorType], x: Value, scale: Value, zero_point: Value, enabled: Value, low: int, high: int
) -> Any:
    step, zero = _number(scale, torch.float32), _number(zero_point, torch.int32)
    return _where_enabled(
        enabled, x, _simulated(x, step, zero, None, low, high), _within(x, step, zero, None, low, high)
    )


def _where_enabled(enabled: Value, x: Value, simulated: Value, inside: Value) -> tuple[Value, Value]:
    """What a quantizer that is switched on gives, else x itself and all of it inside."""
    flag = _number(enabled, enabled.dtype)
    switched = along(prims.ne(flag, constant(flag, 0)), (), x.shape)
    return prims.select(switched, simulated, x), prims.select(switched, inside, constant(inside, True))


@decomposition(aten.fake_quantize_per_channel_affine_cachemask.default)
def fake_quantize_per_channel(
    out: tuple[TensorType, TensorType], x: Value, scale: Value, zero_point: Value, axis: int, low: int, high: int
) -> Any:
    scale = cast(scale, torch.float32)
    if zero_point.dtype in dtypes.FLOATING:
        return _simulated_around_a_fraction(x, scale, zero_point, axis, low, high)
    return _simulated(x, scale, zero_point, axis, low, high), _within(x, scale, zero_point, axis, low, high)


# ---- quantizers that learn their parameters (Jain et al., "Trained Quantization Thresholds for Accurate and Efficient
# Fixed-Point Inference of Deep Neural Networks", arXiv:1903.08066)


def _limited(x: Value, low: int, high: int) -> Value:
    return prims.minimum(prims.maximum(x, constant(x, float(low))), constant(x, float(high)))  # type: ignore[no-any-return]


@decomposition(aten._fake_quantize_learnable_per_tensor_affine.default)
def learnable_per_tensor(
    out: TensorType, x: Value, scale: Value, zero_point: Value, low: int, high: int, grad_factor: float = 1.0
) -> Any:
    zero = _limited(prims.round(_number(zero_point, torch.float32)), low, high)
    return _simulated(x, _number(scale, torch.float32), prims.convert(zero, dtype=torch.int32), None, low, high)


@decomposition(aten._fake_quantize_learnable_per_channel_affine.default)
def learnable_per_channel(
    out: TensorType, x: Value, scale: Value, zero_point: Value, axis: int, low: int, high: int, grad_factor: float = 1.0
) -> Any:
    zero = _limited(prims.round(cast(zero_point, torch.float32)), low, high)
    return _simulated(x, cast(scale, torch.float32), prims.convert(zero, dtype=torch.int32), axis, low, high)


def _gradients(
    grad: Value, x: Value, scale: Value, zero_point: Value, axis: int | None, low: int, high: int, factor: float
) -> tuple[Value, Value, Value]:
    """Gradients with respect to x, and of each element with respect to scale and zero point. All is float32."""
    step, zero = _along_axis(scale, axis, x, x.dtype), _along_axis(zero_point, axis, x, x.dtype)
    inverse = _along_axis(_reciprocal(scale), axis, x, x.dtype)
    # Unlike forward, eager rounds here after it has added the zero point.
    value = prims.round(prims.add(prims.mul(x, inverse), zero))
    below, above = prims.lt(value, constant(value, float(low))), prims.gt(value, constant(value, float(high)))
    clamped = prims.bitwise_or(below, above)
    nothing = constant(x, 0.0)
    of_x = prims.select(clamped, nothing, grad)
    rounded = prims.mul(prims.sub(_limited(value, low, high), zero), step)
    of_inside = prims.mul(prims.sub(rounded, x), inverse)
    of_low, of_high = (prims.sub(constant(x, float(end)), zero) for end in (low, high))
    slope = prims.select(below, of_low, prims.select(above, of_high, of_inside))
    of_scale = scaled(prims.mul(grad, slope), factor)
    of_zero = prims.select(clamped, scaled(prims.neg(prims.mul(grad, step)), factor), nothing)
    return of_x, of_scale, of_zero


@decomposition(aten._fake_quantize_learnable_per_tensor_affine_backward.default)
def learnable_per_tensor_backward(
    out: tuple[TensorType, ...],
    grad: Value,
    x: Value,
    scale: Value,
    zero_point: Value,
    low: int,
    high: int,
    grad_factor: float = 1.0,
) -> Any:
    if 0 in x.shape:
        return x, scale, zero_point
    # Eager rounds a zero point half up here, and half to even forward.
    zero = _number(zero_point, torch.float32)
    zero = prims.trunc(_limited(prims.add(zero, constant(zero, 0.5)), low, high))
    of_x, *others = _gradients(grad, x, _number(scale, torch.float32), zero, None, low, high, grad_factor)
    axes = tuple(range(x.ndim))
    totals = (prims.reduce_sum(part, axes=axes) for part in others)
    return (of_x, *(prims.reshape(total, shape=type.shape) for total, type in zip(totals, out[1:], strict=True)))


@decomposition(aten._fake_quantize_learnable_per_channel_affine_backward.default)
def learnable_per_channel_backward(
    out: tuple[TensorType, ...],
    grad: Value,
    x: Value,
    scale: Value,
    zero_point: Value,
    axis: int,
    low: int,
    high: int,
    grad_factor: float = 1.0,
) -> Any:
    if 0 in x.shape:
        return x, scale, zero_point
    grad, wide, scale, zero_point = (cast(part, torch.float32) for part in (grad, x, scale, zero_point))
    zero = _limited(prims.round(zero_point), low, high)
    of_x, *others = _gradients(grad, wide, scale, zero, axis, low, high, grad_factor)
    axes = tuple(dim for dim in range(x.ndim) if dim != axis)
    return (cast(of_x, out[0].dtype), *(prims.reduce_sum(part, axes=axes) for part in others))


# ---- observers


# Scales below this are raised to it: the smallest that leaves half precision's subnormals alone.
_LEAST_SCALE = torch.tensor(6.1e-5, dtype=torch.float32).item()


def _parameters(low: Value, high: Value, lowest: int, highest: int, symmetric: bool) -> tuple[Value, Value]:
    """Scale (float64) and zero point (int32) for values from ``low`` to ``high``, float32, 0-d or 1-d, as eager
    chooses them: zero is representable, and a range of nothing has the scale 0.1.
    """
    zero = constant(low, 0.0)
    crosses = prims.bitwise_and(prims.lt(low, zero), prims.gt(high, zero))
    if symmetric:
        half = (highest - lowest) // 2
        reach = prims.maximum(
            prims.abs(prims.div(low, constant(low, float(-half - 1)))), prims.abs(prims.div(high, constant(high, half)))
        )
        low = prims.select(crosses, scaled(reach, float(-half - 1)), low)
        high = prims.select(crosses, scaled(reach, float(half)), high)
    low = cast(prims.minimum(low, zero), torch.float64)
    high = cast(prims.maximum(high, zero), torch.float64)
    nothing = constant(low, 0.0)
    scale = prims.div(prims.sub(high, low), constant(low, float(highest - lowest)))
    single = cast(scale, torch.float32)
    useless = prims.bitwise_or(
        prims.eq(single, constant(single, 0.0)), prims.bitwise_not(prims.is_finite(_reciprocal(single)))
    )
    scale = prims.select(useless, constant(scale, 0.1), scale)
    # A scale that is raised takes the range with it, rounded as eager rounds it.
    small = prims.lt(scale, constant(scale, _LEAST_SCALE))
    least = constant(single, _LEAST_SCALE)
    growth = prims.div(least, cast(scale, torch.float32))
    whole = scaled(least, float(highest - lowest))
    low_is_0, high_is_0 = prims.eq(low, nothing), prims.eq(high, nothing)
    grown_low, grown_high = (cast(prims.mul(cast(end, torch.float32), growth), torch.float64) for end in (low, high))
    wide_whole = cast(whole, torch.float64)
    new_low = prims.select(low_is_0, low, prims.select(high_is_0, prims.neg(wide_whole), grown_low))
    new_high = prims.select(low_is_0, wide_whole, prims.select(high_is_0, high, grown_high))
    low, high = prims.select(small, new_low, low), prims.select(small, new_high, high)
    scale = prims.select(small, constant(scale, _LEAST_SCALE), scale)
    # The end whose terms are smaller decides: its zero point has the smaller rounding error. The scale is the one that
    # is given out, in float32: a zero point halfway between two integers hangs on it.
    rounded = cast(cast(scale, torch.float32), torch.float64)
    from_low, from_high = prims.div(low, rounded), prims.div(high, rounded)
    lower = prims.lt(
        prims.sub(constant(scale, float(abs(lowest))), prims.abs(from_low)),
        prims.sub(constant(scale, float(abs(highest))), prims.abs(from_high)),
    )
    point = prims.select(
        lower,
        prims.sub(constant(scale, float(lowest)), from_low),
        prims.sub(constant(scale, float(highest)), from_high),
    )
    if symmetric:
        point = prims.select(crosses, constant(point, (lowest + highest) / 2), point)
    return scale, prims.convert(prims.round(_limited(point, lowest, highest)), dtype=torch.int32)


def _observed(x: Value, running: Value, share: float, per_row: bool, reduce: Any) -> Value:
    """The running extreme moved towards x's own by a share; x's own when there is none yet (an infinity)."""
    axes = tuple(range(1, x.ndim)) if per_row else tuple(range(x.ndim))
    now = prims.reshape(reduce(x, axes=axes), shape=running.shape)
    moved = prims.add(running, scaled(prims.sub(now, running), share))
    return prims.select(prims.eq(prims.abs(running), constant(running, math.inf)), now, moved)  # type: ignore[no-any-return]


@decomposition(aten._fused_moving_avg_obs_fq_helper_functional.default)
def moving_average_observer(
    out: tuple[TensorType, ...],
    x: Value,
    observes: Value,
    quantizes: Value,
    running_min: Value,
    running_max: Value,
    scale: Value,
    zero_point: Value,
    share: float,
    low: int,
    high: int,
    axis: int,
    per_row: bool = False,
    symmetric: bool = False,
) -> Any:
    rows = x.shape[0] if per_row and x.ndim else 1
    state = (running_min, running_max, scale, zero_point)
    if 0 in x.shape or x.dtype != torch.float32 or any(element_count(part.shape) != rows for part in state):
        return NotImplemented
    if per_row and (axis != 0 or isinstance(rows, SymExpr)):
        return NotImplemented
    observing = prims.ne(_number(observes, observes.dtype), _number(0, observes.dtype))
    extremes = []
    for running, reduce in ((running_min, prims.reduce_min), (running_max, prims.reduce_max)):
        updated = _observed(x, running, share, per_row, reduce)
        extremes.append(prims.select(along(observing, (), running.shape), updated, running))
    shape = (rows,) if per_row else ()
    least, most = (prims.reshape(end, shape=shape) for end in extremes)
    step, zero = _parameters(least, most, low, high, symmetric)
    step = cast(step, torch.float32)
    place = 0 if per_row else None
    simulated = _simulated(x, step, zero, place, low, high), _within(x, step, zero, place, low, high)
    result, mask = _where_enabled(quantizes, x, *simulated)
    quantizing = prims.ne(_number(quantizes, quantizes.dtype), _number(0, quantizes.dtype))
    parameters = [
        prims.select(along(quantizing, (), old.shape), cast(prims.reshape(new, shape=old.shape), old.dtype), old)
        for new, old in ((step, scale), (zero, zero_point))
    ]
    return (result, mask, *extremes, *parameters)


# ---- products of integers


@decomposition(aten._int_mm.default)
def int_mm(out: TensorType, x: Value, y: Value) -> Any:
    x, y = cast(x, torch.int32), cast(y, torch.int32)
    return prims.dot_general(x, y, contract=((1,), (0,)), batch=((), ()))


@decomposition(aten._weight_int8pack_mm.default)
def weight_int8_mm(out: TensorType, x: Value, weight: Value, scales: Value) -> Any:
    """x times the transpose of int8 weights, each row of which has a scale."""
    wide = dtypes.compute_dtype(x.dtype)
    product = prims.dot_general(cast(x, wide), cast(weight, wide), contract=((1,), (1,)), batch=((), ()))
    return cast(prims.mul(product, spread(scales, out.shape, wide)), out.dtype)


# ---- the ops of quantized exports, which torch registers with `torch.ao.quantization`


def _bounds(low: Any, high: Any) -> bool:
    """Whether the ends of the range are numbers: the contract has them as attributes."""
    return isinstance(low, int) and isinstance(high, int)


def _multiplier(scale: Any) -> Value:
    """1 / scale: a number is divided in double precision."""
    return (
        _reciprocal(_number(scale, torch.float32)) if isinstance(scale, Value) else _number(1.0 / scale, torch.float32)
    )


@decomposition(
    "quantized_decomposed.quantize_per_tensor.default",
    "quantized_decomposed.quantize_per_tensor.tensor",
    "quantized_decomposed.quantize_per_tensor.tensor2",
)
def quantize_per_tensor(
    out: TensorType, x: Value, scale: Any, zero_point: Any, low: Any, high: Any, dtype: torch.dtype
) -> Any:
    if not _bounds(low, high):
        return NotImplemented
    factor, zero = _multiplier(scale), _number(zero_point, torch.int32)
    return prims.quantize(x, factor, zero, axis=None, lowest=low, highest=high, dtype=out.dtype)


@decomposition(
    "quantized_decomposed.dequantize_per_tensor.default",
    "quantized_decomposed.dequantize_per_tensor.tensor",
    "quantized_decomposed.dequantize_per_tensor.tensor2",
)
def dequantize_per_tensor(
    out: TensorType, q: Value, scale: Any, zero_point: Any, low: Any, high: Any, dtype: torch.dtype, **_: Any
) -> Any:
    step, zero = _number(scale, torch.float32), _number(zero_point, torch.int32)
    return prims.dequantize(q, step, zero, axis=None, dtype=out.dtype)


@decomposition("quantized_decomposed.quantize_per_channel.default")
def quantize_per_channel(
    out: TensorType, x: Value, scales: Value, zero_points: Value, axis: int, low: int, high: int, dtype: torch.dtype
) -> Any:
    factors = _reciprocal(cast(scales, torch.float32))
    zero = cast(zero_points, torch.int32)
    return prims.quantize(x, factors, zero, axis=axis % x.ndim, lowest=low, highest=high, dtype=out.dtype)


@decomposition("quantized_decomposed.dequantize_per_channel.default")
def dequantize_per_channel(
    out: TensorType,
    q: Value,
    scales: Value,
    zero_points: Value | None,
    axis: int,
    low: int,
    high: int,
    dtype: torch.dtype,
    **_: Any,
) -> Any:
    scales = cast(scales, torch.float32)
    zero = constant(scales, 0, torch.int32) if zero_points is None else cast(zero_points, torch.int32)
    return prims.dequantize(q, scales, zero, axis=axis % q.ndim, dtype=out.dtype)
