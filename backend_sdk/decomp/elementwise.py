"""Rules for elementwise aten ops: promotion and broadcasting made explicit, then one prim each."""

from __future__ import annotations

import math
from typing import Any

import torch

from backend_sdk import dtypes, prims
from backend_sdk.decomp.promotion import filled, promoted, spread, wrapped_number
from backend_sdk.decomp.registry import decomposition
from backend_sdk.errors import DialectError
from backend_sdk.graph import Value
from backend_sdk.prims.shorthand import cast, constant, scaled
from backend_sdk.spec import Prim, TensorType
from backend_sdk.torch_compat.ops import aten, prims_of_torch

# ---- families that differ by one prim: data, not code

# aten op -> prim, for functions that turn integers into floats.
_FLOAT_UNARY = {
    "acos": prims.acos,
    "acosh": prims.acosh,
    "asin": prims.asin,
    "asinh": prims.asinh,
    "atan": prims.atan,
    "atanh": prims.atanh,
    "cos": prims.cos,
    "cosh": prims.cosh,
    "erf": prims.erf,
    "erfc": prims.erfc,
    "erfinv": prims.erfinv,
    "exp": prims.exp,
    "expm1": prims.expm1,
    "log": prims.log,
    "log1p": prims.log1p,
    "log2": prims.log2,
    "rsqrt": prims.rsqrt,
    "sigmoid": prims.sigmoid,
    "sin": prims.sin,
    "sinh": prims.sinh,
    "sqrt": prims.sqrt,
    "tan": prims.tan,
    "tanh": prims.tanh,
}

# aten op -> prim, for functions that keep the dtype. On integers those of `_ROUNDING` change nothing.
_SAME_UNARY = {
    "bitwise_not": prims.bitwise_not,
    "neg": prims.neg,
    "relu": prims.relu,
    "silu": prims.silu,
}
_ROUNDING = {"ceil": prims.ceil, "floor": prims.floor, "round": prims.round, "trunc": prims.trunc}

_COMPARISONS = {
    "eq": prims.eq,
    "ge": prims.ge,
    "gt": prims.gt,
    "le": prims.le,
    "lt": prims.lt,
    "ne": prims.ne,
}

# aten op -> prim, for functions of two operands whose result has the promoted dtype.
_SAME_BINARY = {
    "__lshift__": prims.shift_left,
    "__rshift__": prims.shift_right,
    "atan2": prims.atan2,
    "bitwise_and": prims.bitwise_and,
    "bitwise_left_shift": prims.shift_left,
    "bitwise_or": prims.bitwise_or,
    "bitwise_right_shift": prims.shift_right,
    "bitwise_xor": prims.bitwise_xor,
    "fmod": prims.fmod,
    "maximum": prims.maximum,
    "minimum": prims.minimum,
}


def _overloads(op: str, names: tuple[str, ...]) -> list[Any]:
    packet = getattr(aten, op)
    return [getattr(packet, name) for name in names if name in packet.overloads()]


def _register_unary(op: str, prim: Prim) -> None:
    domain = prim.dtype_rule.domain(0)

    def rule(out: TensorType, x: Value) -> Any:
        return prim(cast(x, out.dtype)) if out.dtype in domain else NotImplemented

    rule.__name__ = op
    decomposition(getattr(aten, op).default)(rule)


def _register_rounding(op: str, prim: Prim) -> None:
    def rule(out: TensorType, x: Value) -> Any:
        return prim(x) if x.dtype in dtypes.FLOATING else x

    rule.__name__ = op
    decomposition(getattr(aten, op).default)(rule)


def _register_binary(op: str, prim: Prim) -> None:
    domain = prim.dtype_rule.domain(0)

    def rule(out: TensorType, x: Any, y: Any) -> Any:
        if out.dtype not in domain:
            return NotImplemented
        return prim(spread(x, out.shape, out.dtype), spread(y, out.shape, out.dtype))

    rule.__name__ = op
    decomposition(*_overloads(op, ("default", "Tensor", "Scalar", "Tensor_Scalar", "Scalar_Tensor")))(rule)


def _register_comparison(op: str, prim: Prim) -> None:
    domain = prim.dtype_rule.domain(0)

    def rule(out: TensorType, x: Any, y: Any) -> Any:
        dtype = promoted(x, y)
        if dtype not in domain:
            return NotImplemented
        return prim(spread(x, out.shape, dtype), spread(y, out.shape, dtype))

    rule.__name__ = op
    decomposition(*_overloads(op, ("Tensor", "Scalar")))(rule)


for _op, _prim in {**_FLOAT_UNARY, **_SAME_UNARY}.items():
    _register_unary(_op, _prim)
for _op, _prim in _ROUNDING.items():
    _register_rounding(_op, _prim)
for _op, _prim in _SAME_BINARY.items():
    _register_binary(_op, _prim)
for _op, _prim in _COMPARISONS.items():
    _register_comparison(_op, _prim)


# ---- arithmetic


def _added(out: TensorType, x: Any, y: Any, alpha: Any, combine: Prim) -> Any:
    if combine is prims.sub and out.dtype in dtypes.INTEGRAL and isinstance(alpha, int) and alpha != 1:
        # Eager adds -alpha times y, and it is this factor that must not overflow.
        combine, alpha = prims.add, wrapped_number(-alpha, torch.int64)
    if alpha == 1:
        return combine(spread(x, out.shape, out.dtype), spread(y, out.shape, out.dtype))
    wide = dtypes.compute_dtype(out.dtype)
    return cast(combine(spread(x, out.shape, wide), scaled(spread(y, out.shape, wide), alpha)), out.dtype)


@decomposition(aten.add.Tensor, aten.add.Scalar)
def add(out: TensorType, x: Any, y: Any, alpha: Any = 1) -> Any:
    if out.dtype == torch.bool:
        first = spread(x, out.shape, out.dtype)
        return prims.bitwise_or(first, spread(y, out.shape, out.dtype)) if alpha else first
    return _added(out, x, y, alpha, prims.add)


@decomposition(aten._add_relu.Tensor, aten._add_relu.Scalar)
def add_relu(out: TensorType, x: Value, y: Any, alpha: Any = 1) -> Any:
    """The sum, clamped between 0 and the largest finite number.

    NaN stays: eager's kernel gives NaN, or 0 in the last elements, which fill no vector.
    """
    total = _added(out, x, y, alpha, prims.add)
    positive = prims.maximum(total, constant(total, 0))
    if out.dtype not in dtypes.FLOATING:
        return positive
    return prims.minimum(positive, constant(total, torch.finfo(out.dtype).max))


@decomposition(aten.sub.Tensor, aten.sub.Scalar)
def sub(out: TensorType, x: Any, y: Any, alpha: Any = 1) -> Any:
    return _added(out, x, y, alpha, prims.sub)


@decomposition(aten.rsub.Tensor, aten.rsub.Scalar)
def rsub(out: TensorType, x: Any, y: Any, alpha: Any = 1) -> Any:
    return _added(out, y, x, alpha, prims.sub)


def _beside(out: TensorType, *operands: Any) -> torch.dtype:
    """The dtype in which eager multiplies and divides: beside a number or a 0-d tensor among ``operands`` 16-bit floats
    compute in float32, so that 0.1 is not rounded to 16 bits first.
    """
    alone = any(not isinstance(one, Value) or (one.ndim == 0 and one.dtype != out.dtype) for one in operands)
    return dtypes.compute_dtype(out.dtype) if alone else out.dtype


@decomposition(aten.mul.Tensor, aten.mul.Scalar)
def mul(out: TensorType, x: Any, y: Any) -> Any:
    if out.dtype == torch.bool:
        return prims.bitwise_and(spread(x, out.shape, out.dtype), spread(y, out.shape, out.dtype))
    wide = _beside(out, x, y)
    return cast(prims.mul(spread(x, out.shape, wide), spread(y, out.shape, wide)), out.dtype)


@decomposition(aten.div.Tensor, aten.div.Scalar)
def div(out: TensorType, x: Any, y: Any) -> Any:
    # Only of the divisor: a dividend without dims eager rounds to 16 bits.
    wide = _beside(out, y)
    return cast(prims.div(spread(x, out.shape, wide), spread(y, out.shape, wide)), out.dtype)


@decomposition(aten.div.Tensor_mode, aten.div.Scalar_mode)
def div_mode(out: TensorType, x: Any, y: Any, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        return div(out, x, y)
    if rounding_mode == "floor":
        return floor_divide(out, x, y)
    wide = _beside(out, y)
    left, right = spread(x, out.shape, wide), spread(y, out.shape, wide)
    if out.dtype in dtypes.INTEGRAL:
        # Without its remainder the dividend divides evenly, so that no rounding is left to choose.
        return prims.floor_div(prims.sub(left, prims.fmod(left, right)), right)
    return cast(prims.trunc(prims.div(left, right)), out.dtype)


@decomposition(aten.floor_divide.default, aten.floor_divide.Scalar)
def floor_divide(out: TensorType, x: Any, y: Any) -> Any:
    wide = _beside(out, y)
    left, right = spread(x, out.shape, wide), spread(y, out.shape, wide)
    if out.dtype in dtypes.INTEGRAL:
        return prims.floor_div(left, right)
    return cast(_floor_quotient(left, right), out.dtype)


def _floor_quotient(x: Value, y: Value) -> Any:
    """floor(x / y) for floats, exact where x / y is near an integer: (x - fmod(x, y)) / y, adjusted (Python's //)."""
    wide = dtypes.compute_dtype(x.dtype)
    a, b = cast(x, wide), cast(y, wide)
    zero = constant(a, 0.0)
    remainder = prims.fmod(a, b)
    quotient = prims.div(prims.sub(a, remainder), b)
    opposite = prims.bitwise_and(prims.ne(remainder, zero), prims.ne(prims.lt(b, zero), prims.lt(remainder, zero)))
    quotient = prims.select(opposite, prims.sub(quotient, constant(a, 1.0)), quotient)
    # The quotient is within rounding of an integer: take the nearest one that is not above by half.
    whole = prims.floor(quotient)
    whole = prims.select(
        prims.gt(prims.sub(quotient, whole), constant(a, 0.5)), prims.add(whole, constant(a, 1.0)), whole
    )
    plain = prims.div(a, b)
    # A zero has the sign of the operands together.
    whole = prims.select(prims.eq(quotient, zero), prims.mul(plain, zero), whole)
    # Where the quotient overflows, no remainder says anything.
    overflows = prims.bitwise_and(prims.is_finite(a), prims.bitwise_not(prims.is_finite(plain)))
    return cast(prims.select(prims.bitwise_or(prims.eq(b, zero), overflows), plain, whole), x.dtype)


@decomposition(aten.remainder.Tensor, aten.remainder.Scalar, aten.remainder.Scalar_Tensor)
def remainder(out: TensorType, x: Any, y: Any) -> Any:
    left, right = spread(x, out.shape, out.dtype), spread(y, out.shape, out.dtype)
    zero = constant(left, 0)
    rest = prims.fmod(left, right)
    if out.dtype == torch.uint8:
        return rest
    opposite = prims.bitwise_and(prims.ne(rest, zero), prims.ne(prims.lt(right, zero), prims.lt(rest, zero)))
    return prims.select(opposite, prims.add(rest, right), rest)


@decomposition(aten.pow.Tensor_Tensor, aten.pow.Tensor_Scalar, aten.pow.Scalar)
def pow(out: TensorType, x: Any, y: Any) -> Any:
    base = spread(x, out.shape, out.dtype)
    if y == 1 and not isinstance(y, Value):
        return base
    if y == 2 and not isinstance(y, Value):
        return prims.mul(base, base)
    if y == 0.5 and not isinstance(y, Value):
        return prims.sqrt(base)
    if y == 3 and not isinstance(y, Value):
        return prims.mul(prims.mul(base, base), base)
    exponent = filled(y, out.shape, out.dtype)
    if out.dtype in dtypes.INTEGRAL and isinstance(y, int) and y < 0:
        raise DialectError(f"eager raises no integers to a negative integer power, here {y}")
    return prims.pow(base, exponent)


@decomposition(aten.fmax.default)
def fmax(out: TensorType, x: Value, y: Value) -> Any:
    return _ignoring_nan(prims.maximum, out, x, y)


@decomposition(aten.fmin.default)
def fmin(out: TensorType, x: Value, y: Value) -> Any:
    return _ignoring_nan(prims.minimum, out, x, y)


def _ignoring_nan(prim: Prim, out: TensorType, x: Value, y: Value) -> Any:
    left, right = spread(x, out.shape, out.dtype), spread(y, out.shape, out.dtype)
    chosen = prims.select(prims.ne(right, right), left, prim(left, right))
    return prims.select(prims.ne(left, left), right, chosen)


@decomposition(aten.square.default)
def square(out: TensorType, x: Value) -> Any:
    return prims.mul(x, x)


@decomposition(aten.reciprocal.default)
def reciprocal(out: TensorType, x: Value) -> Any:
    value = cast(x, out.dtype)
    return prims.div(constant(value, 1), value)


@decomposition(aten.abs.default)
def abs(out: TensorType, x: Value) -> Any:
    if x.dtype in dtypes.COMPLEX:
        return NotImplemented
    return x if x.dtype == torch.bool else prims.abs(x)


@decomposition(aten.sign.default, aten.sgn.default)
def sign(out: TensorType, x: Value) -> Any:
    if x.dtype in dtypes.COMPLEX:
        return NotImplemented
    return x if x.dtype == torch.bool else prims.sign(x)


@decomposition(aten.log10.default)
def log10(out: TensorType, x: Value) -> Any:
    wide = cast(cast(x, out.dtype), dtypes.compute_dtype(out.dtype))
    return cast(scaled(prims.log(wide), 1.0 / math.log(10.0)), out.dtype)


@decomposition(aten.exp2.default)
def exp2(out: TensorType, x: Value) -> Any:
    value = cast(x, out.dtype)
    return prims.pow(constant(value, 2), value)


# ---- logic


def _truth(x: Any, out: TensorType) -> Value:
    if not isinstance(x, Value):
        return spread(bool(x), out.shape, torch.bool)
    return spread(cast(x, torch.bool), out.shape, torch.bool)


@decomposition(aten.logical_not.default)
def logical_not(out: TensorType, x: Value) -> Any:
    return prims.bitwise_not(_truth(x, out))


@decomposition(aten.logical_and.default)
def logical_and(out: TensorType, x: Value, y: Value) -> Any:
    return prims.bitwise_and(_truth(x, out), _truth(y, out))


@decomposition(aten.logical_or.default)
def logical_or(out: TensorType, x: Value, y: Value) -> Any:
    return prims.bitwise_or(_truth(x, out), _truth(y, out))


@decomposition(aten.logical_xor.default)
def logical_xor(out: TensorType, x: Value, y: Value) -> Any:
    return prims.bitwise_xor(_truth(x, out), _truth(y, out))


@decomposition(aten.isnan.default)
def isnan(out: TensorType, x: Value) -> Any:
    return prims.ne(x, x)


@decomposition(aten.isinf.default)
def isinf(out: TensorType, x: Value) -> Any:
    if x.dtype in dtypes.COMPLEX:
        return NotImplemented
    if x.dtype not in dtypes.FLOATING:
        return spread(False, out.shape, torch.bool)
    return prims.eq(prims.abs(x), constant(x, math.inf))


@decomposition(aten.isfinite.default)
def isfinite(out: TensorType, x: Value) -> Any:
    if x.dtype in dtypes.COMPLEX:
        return NotImplemented
    return prims.is_finite(x) if x.dtype in dtypes.FLOATING else spread(True, out.shape, torch.bool)


# ---- selection


@decomposition(aten.where.self, aten.where.ScalarSelf, aten.where.ScalarOther, aten.where.Scalar)
def where(out: TensorType, condition: Value, x: Any, y: Any) -> Any:
    return prims.select(_truth(condition, out), filled(x, out.shape, out.dtype), filled(y, out.shape, out.dtype))


@decomposition(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill(out: TensorType, x: Value, mask: Value, value: Any) -> Any:
    return where(out, mask, value, x)


@decomposition(aten.clamp.default, aten.clamp.Tensor)
def clamp(out: TensorType, x: Value, min: Any = None, max: Any = None) -> Any:
    value = spread(x, out.shape, out.dtype)
    if min is not None:
        value = prims.maximum(value, filled(min, out.shape, out.dtype))
    if max is not None:
        value = prims.minimum(value, filled(max, out.shape, out.dtype))
    return value


@decomposition(aten.clamp_min.default, aten.clamp_min.Tensor)
def clamp_min(out: TensorType, x: Value, min: Any) -> Any:
    return clamp(out, x, min, None)


@decomposition(aten.clamp_max.default, aten.clamp_max.Tensor)
def clamp_max(out: TensorType, x: Value, max: Any) -> Any:
    return clamp(out, x, None, max)


@decomposition(aten.hardtanh.default)
def hardtanh(out: TensorType, x: Value, min_val: Any = -1, max_val: Any = 1) -> Any:
    return clamp(out, x, min_val, max_val)


# ---- fused arithmetic


@decomposition(aten.addcmul.default)
def addcmul(out: TensorType, x: Value, first: Value, second: Value, *, value: Any = 1) -> Any:
    return _added_scaled(prims.mul, out, x, first, second, value)


@decomposition(aten.addcdiv.default)
def addcdiv(out: TensorType, x: Value, first: Value, second: Value, *, value: Any = 1) -> Any:
    return _added_scaled(prims.div, out, x, first, second, value)


def _added_scaled(combine: Prim, out: TensorType, x: Value, first: Value, second: Value, factor: Any) -> Any:
    """x + combine(factor * first, second), eager's order, with 16-bit floats rounded once."""
    wide = dtypes.compute_dtype(out.dtype)
    start = spread(first, out.shape, wide)
    part = combine(scaled(start, factor) if factor != 1 else start, spread(second, out.shape, wide))
    return cast(prims.add(spread(x, out.shape, wide), part), out.dtype)


@decomposition(aten.nan_to_num.default)
def nan_to_num(
    out: TensorType, x: Value, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Any:
    """NaN becomes 0, and an infinity the largest finite number of its sign, or what is given for it."""
    if out.dtype not in dtypes.FLOATING:
        return x
    limits = torch.finfo(out.dtype)
    high, low = (limits.max if posinf is None else posinf), (limits.min if neginf is None else neginf)
    found = prims.select(prims.ne(x, x), constant(x, nan or 0.0), x)
    found = prims.select(prims.eq(x, constant(x, math.inf)), constant(x, high), found)
    return prims.select(prims.eq(x, constant(x, -math.inf)), constant(x, low), found)


@decomposition(aten.lerp.Scalar, aten.lerp.Tensor)
def lerp(out: TensorType, start: Value, end: Value, weight: Any) -> Any:
    if out.dtype in dtypes.COMPLEX:
        return NotImplemented
    wide = dtypes.compute_dtype(out.dtype)
    low, high = spread(start, out.shape, wide), spread(end, out.shape, wide)
    part = spread(weight, out.shape, wide)
    difference = prims.sub(high, low)
    # torch's two forms, each exact at its own end.
    near = prims.add(low, prims.mul(part, difference))
    far = prims.sub(high, prims.mul(difference, prims.sub(constant(part, 1.0), part)))
    return cast(prims.select(prims.lt(prims.abs(part), constant(part, 0.5)), near, far), out.dtype)


# ---- activations


@decomposition(aten.gelu.default)
def gelu(out: TensorType, x: Value, *, approximate: str = "none") -> Any:
    return prims.gelu(x, approximate=approximate)


@decomposition(aten.gelu_backward.default)
def gelu_backward(out: TensorType, grad: Value, x: Value, *, approximate: str = "none") -> Any:
    wide = dtypes.compute_dtype(out.dtype)
    upstream, value = cast(grad, wide), cast(x, wide)
    one, half = constant(value, 1.0), constant(value, 0.5)
    if approximate == "none":
        # d/dx x Phi(x) = Phi(x) + x phi(x)
        cdf = prims.mul(half, prims.add(one, prims.erf(scaled(value, math.sqrt(0.5)))))
        density = scaled(prims.exp(scaled(prims.mul(value, value), -0.5)), 1.0 / math.sqrt(2.0 * math.pi))
        slope = prims.add(cdf, prims.mul(value, density))
    else:
        beta = math.sqrt(2.0 / math.pi)
        squared = prims.mul(value, value)
        inner = scaled(prims.add(value, scaled(prims.mul(squared, value), 0.044715)), beta)
        inner_slope = scaled(prims.add(one, scaled(squared, 3 * 0.044715)), beta)
        curve = prims.tanh(inner)
        left = prims.mul(half, prims.add(one, curve))
        right = prims.mul(prims.mul(prims.mul(half, value), prims.sub(one, prims.mul(curve, curve))), inner_slope)
        slope = prims.add(left, right)
    return cast(prims.mul(upstream, slope), out.dtype)


@decomposition(aten.threshold.default)
def threshold(out: TensorType, x: Value, threshold: Any, value: Any) -> Any:
    """Eager rounds both numbers to the dtype first: of integers a threshold of -1.5 is -1."""
    operand = spread(x, out.shape, out.dtype)
    dead = prims.le(operand, filled(threshold, out.shape, out.dtype))
    return prims.select(dead, filled(value, out.shape, out.dtype), operand)


@decomposition(aten.threshold_backward.default)
def threshold_backward(out: TensorType, grad: Value, x: Value, threshold: Any) -> Any:
    dead = prims.le(spread(x, out.shape, out.dtype), filled(threshold, out.shape, out.dtype))
    upstream = spread(grad, out.shape, out.dtype)
    return prims.select(dead, constant(upstream, 0), upstream)


@decomposition(aten.sigmoid_backward.default)
def sigmoid_backward(out: TensorType, grad: Value, result: Value) -> Any:
    if out.dtype in dtypes.COMPLEX:
        return NotImplemented
    value = spread(result, out.shape, dtypes.compute_dtype(out.dtype))
    rest = prims.sub(constant(value, 1.0), value)
    return cast(prims.mul(prims.mul(spread(grad, out.shape, value.dtype), rest), value), out.dtype)


@decomposition(aten.tanh_backward.default)
def tanh_backward(out: TensorType, grad: Value, result: Value) -> Any:
    if out.dtype in dtypes.COMPLEX:
        return NotImplemented
    value = spread(result, out.shape, dtypes.compute_dtype(out.dtype))
    slope = prims.sub(constant(value, 1.0), prims.mul(value, value))
    return cast(prims.mul(spread(grad, out.shape, value.dtype), slope), out.dtype)


@decomposition(aten.silu_backward.default)
def silu_backward(out: TensorType, grad: Value, x: Value) -> Any:
    wide = dtypes.compute_dtype(out.dtype)
    upstream, value = cast(grad, wide), cast(x, wide)
    gate = prims.sigmoid(value)
    one = constant(gate, 1.0)
    slope = prims.mul(gate, prims.add(one, prims.mul(value, prims.sub(one, gate))))
    return cast(prims.mul(upstream, slope), out.dtype)


# ---- conversion


# A tensor without a quantizer is dequantized by conversion to float32.
@decomposition(aten._to_copy.default, aten.dequantize.self, prims_of_torch.convert_element_type.default)
def to_copy(out: TensorType, x: Value, *_: Any, **__: Any) -> Any:
    return cast(x, out.dtype)


@decomposition(
    aten.alias.default,
    aten.clone.default,
    aten.contiguous.default,
    aten.detach.default,
    aten.detach_copy.default,
    aten._lazy_clone.default,
    aten.lift.default,
    aten.lift_fresh.default,
    aten.lift_fresh_copy.default,
    aten.positive.default,
    prims_of_torch.view_of.default,
)
def same(out: TensorType, x: Value, *_: Any, **__: Any) -> Any:
    return x


@decomposition(aten.set.source_Tensor)
def set_source(out: TensorType, x: Value, source: Value) -> Any:
    return source


@decomposition(aten.copy.default)
def copy(out: TensorType, x: Value, source: Value, *_: Any) -> Any:
    return spread(source, out.shape, out.dtype)
