"""Rules for complex values: their parts, conjugates, magnitudes and angles, and what differs from the real rules.

eager keeps conjugation, negation and zero gradients as lazy bits of a tensor; here they are values like any other.

Does not: repeat rules whose prims take complex operands as they are.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

from backend_sdk import dtypes, prims
from backend_sdk.decomp import elementwise, reduction, torch_prims
from backend_sdk.decomp.promotion import spread
from backend_sdk.decomp.registry import RULES, Declined, Rule, decomposition
from backend_sdk.graph import Value
from backend_sdk.prims.shorthand import cast, constant, scaled
from backend_sdk.spec import Dim, Shape, TensorType
from backend_sdk.torch_compat.ops import aten, prims_of_torch


def _is_complex(item: Any) -> bool:
    return isinstance(item, (Value, TensorType)) and item.dtype in dtypes.COMPLEX


def _of_complex(*overloads: Any) -> Callable[[Rule], Rule]:
    """Register a rule for calls with a complex operand or result; all others go to the rule that was there."""

    def register(rule: Rule) -> Rule:
        for overload in overloads:
            RULES[overload] = _either(rule, RULES.get(overload))
        return rule

    return register


def _either(for_complex: Rule, for_real: Rule | None) -> Rule:
    def rule(out: Any, *args: Any, **kwargs: Any) -> Any:
        results = out if isinstance(out, tuple) else (out,)
        if any(map(_is_complex, (*results, *args, *kwargs.values()))):
            return for_complex(out, *args, **kwargs)
        return for_real(out, *args, **kwargs) if for_real is not None else NotImplemented

    rule.__name__ = for_complex.__name__
    rule.__signature__ = inspect.signature(for_real or for_complex)  # type: ignore[attr-defined]
    return rule


# ---- parts


def _parts(x: Value) -> tuple[Value, Value]:
    return prims.real(x), prims.imag(x)


def _conjugate(x: Value) -> Any:
    if not x.dtype.is_complex:
        return x
    if x.dtype not in dtypes.COMPLEX:
        return Declined(f"no op of the contract computes with {dtypes.name(x.dtype)}")
    real, imag = _parts(x)
    return prims.complex(real, prims.neg(imag))


def _magnitude(x: Value) -> Any:
    return prims.hypot(*_parts(x))


@decomposition(
    aten._conj.default,
    aten._conj_copy.default,
    aten._conj_physical.default,
    aten.conj_physical.default,
    prims_of_torch.conj.default,
    prims_of_torch.conj_physical.default,
)
def conj(out: TensorType, x: Value) -> Any:
    return _conjugate(x)


@decomposition(aten.resolve_conj.default, aten.resolve_neg.default)
def resolved(out: TensorType, x: Value) -> Any:
    return x


@decomposition(aten._neg_view.default, aten._neg_view_copy.default)
def neg_view(out: TensorType, x: Value) -> Any:
    return prims.neg(x)


@decomposition(aten._efficientzerotensor.default)
def zeros(out: TensorType, size: Any, **_: Any) -> Any:
    return prims.full(shape=out.shape, value=0, dtype=out.dtype)


@decomposition(prims_of_torch.real.default)
def real(out: TensorType, x: Value) -> Any:
    return prims.real(x)


@decomposition(prims_of_torch.imag.default)
def imag(out: TensorType, x: Value) -> Any:
    return prims.imag(x)


@decomposition(aten.complex.default)
def complex_of(out: TensorType, real: Value, imag: Value) -> Any:
    part = out.dtype.to_real()
    # ComplexHalf is no dtype of the contract.
    if out.dtype not in dtypes.COMPLEX:
        return NotImplemented
    return prims.complex(spread(real, out.shape, part), spread(imag, out.shape, part))


@decomposition(aten.polar.default)
def polar(out: TensorType, magnitude: Value, angle: Value) -> Any:
    part = out.dtype.to_real()
    if out.dtype not in dtypes.COMPLEX:
        return NotImplemented
    length, turn = spread(magnitude, out.shape, part), spread(angle, out.shape, part)
    return prims.complex(prims.mul(length, prims.cos(turn)), prims.mul(length, prims.sin(turn)))


def pairs(x: Value) -> Any:
    """Real and imaginary parts in a last dim of 2."""
    shape: Shape = (*x.shape, 1)
    return prims.concat(*(prims.reshape(part, shape=shape) for part in _parts(x)), axis=x.ndim)


def from_pairs(x: Value, shape: Shape) -> Any:
    """The reverse of `pairs`: a complex value of ``shape``."""
    parts = []
    for position in (0, 1):
        starts: tuple[Dim, ...] = (*(0 for _ in shape), position)
        limits: tuple[Dim, ...] = (*shape, position + 1)
        column = prims.slice(x, starts=starts, limits=limits, strides=(1,) * x.ndim)
        parts.append(prims.reshape(column, shape=shape))
    return prims.complex(*parts)


@decomposition(aten.view_as_real.default, aten.view_as_real_copy.default)
def view_as_real(out: TensorType, x: Value) -> Any:
    return pairs(x)


@decomposition(aten.view_as_complex.default, aten.view_as_complex_copy.default)
def view_as_complex(out: TensorType, x: Value) -> Any:
    return from_pairs(x, out.shape)


# ---- magnitude and direction


@_of_complex(aten.abs.default, prims_of_torch.abs.default)
def abs(out: TensorType, x: Value) -> Any:
    return _magnitude(x)


@decomposition(aten.angle.default)
def angle(out: TensorType, x: Value) -> Any:
    if x.dtype in dtypes.COMPLEX:
        real, imag = _parts(x)
        return prims.atan2(imag, real)
    value = cast(x, out.dtype)
    zero = constant(value, 0.0)
    turned = prims.select(prims.lt(value, zero), constant(value, math.pi), zero)
    return prims.select(prims.ne(value, value), value, turned)


@_of_complex(aten.sgn.default)
def sgn(out: TensorType, x: Value) -> Any:
    length = _magnitude(x)
    zero = prims.eq(length, constant(length, 0.0))
    divisor = prims.select(zero, constant(length, 1.0), length)
    real, imag = (prims.div(part, divisor) for part in _parts(x))
    return prims.select(zero, constant(x, 0), prims.complex(real, imag))


@_of_complex(aten.nan_to_num.default)
def nan_to_num(out: TensorType, x: Value, *given: float | None, **named: float | None) -> Any:
    """Of each part by itself."""
    part = TensorType(out.shape, out.dtype.to_real())
    return prims.complex(*(elementwise.nan_to_num(part, one, *given, **named) for one in _parts(x)))


@_of_complex(aten.isinf.default)
def isinf(out: TensorType, x: Value) -> Any:
    real, imag = (elementwise.isinf(out, part) for part in _parts(x))
    return prims.bitwise_or(real, imag)


@_of_complex(aten.isfinite.default, prims_of_torch.isfinite.default)
def isfinite(out: TensorType, x: Value) -> Any:
    real, imag = (prims.is_finite(part) for part in _parts(x))
    return prims.bitwise_and(real, imag)


# ---- functions whose composite is for real numbers


@_of_complex(aten.sigmoid.default)
def sigmoid(out: TensorType, x: Value) -> Any:
    one = constant(x, 1)
    return prims.div(one, prims.add(one, prims.exp(prims.neg(x))))


@_of_complex(aten.silu.default)
def silu(out: TensorType, x: Value) -> Any:
    return prims.mul(x, sigmoid(out, x))


@_of_complex(aten.sigmoid_backward.default)
def sigmoid_backward(out: TensorType, grad: Value, result: Value) -> Any:
    value = spread(result, out.shape, out.dtype)
    slope = prims.mul(prims.sub(constant(value, 1), value), value)
    return prims.mul(spread(grad, out.shape, out.dtype), _conjugate(slope))


@_of_complex(aten.tanh_backward.default)
def tanh_backward(out: TensorType, grad: Value, result: Value) -> Any:
    value = spread(result, out.shape, out.dtype)
    slope = prims.sub(constant(value, 1), prims.mul(value, value))
    return prims.mul(spread(grad, out.shape, out.dtype), _conjugate(slope))


@_of_complex(aten.silu_backward.default)
def silu_backward(out: TensorType, grad: Value, x: Value) -> Any:
    gate, one = sigmoid(out, x), constant(x, 1)
    slope = prims.mul(gate, prims.add(one, prims.mul(x, prims.sub(one, gate))))
    return prims.mul(grad, _conjugate(slope))


@_of_complex(aten.log10.default, prims_of_torch.log10.default)
def log10(out: TensorType, x: Value) -> Any:
    return scaled(prims.log(cast(x, out.dtype)), 1.0 / math.log(10.0))


@_of_complex(aten.lerp.Scalar, aten.lerp.Tensor)
def lerp(out: TensorType, start: Value, end: Value, weight: Any) -> Any:
    low, high = spread(start, out.shape, out.dtype), spread(end, out.shape, out.dtype)
    part = spread(weight, out.shape, out.dtype)
    difference = prims.sub(high, low)
    # torch's two forms, each exact at its own end.
    near = prims.add(low, prims.mul(part, difference))
    far = prims.sub(high, prims.mul(difference, prims.sub(constant(part, 1), part)))
    length = _magnitude(part)
    return prims.select(prims.lt(length, constant(length, 0.5)), near, far)


# ---- moments: those of the real and of the imaginary part, added


@_of_complex(aten.var.correction)
def var(out: TensorType, x: Value, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    return prims.add(*(reduction.var(out, part, dim, correction=correction, keepdim=keepdim) for part in _parts(x)))


@_of_complex(aten.std.correction)
def std(out: TensorType, x: Value, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    return prims.sqrt(var(out, x, dim, correction=correction, keepdim=keepdim))


@_of_complex(aten.var_mean.correction)
def var_mean(
    out: tuple[TensorType, TensorType],
    x: Value,
    dim: Any = None,
    *,
    correction: Any = None,
    keepdim: bool = False,
) -> Any:
    variance = var(out[0], x, dim, correction=correction, keepdim=keepdim)
    return variance, reduction.mean(out[1], x, dim, keepdim)


@_of_complex(prims_of_torch.var.default)
def prims_var(out: TensorType, x: Value, dims: Any, correction: Any = 1, *, output_dtype: Any = None) -> Any:
    return prims.add(*(torch_prims.var(out, part, dims, correction) for part in _parts(x)))
