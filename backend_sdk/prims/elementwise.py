"""Elementwise prims: arithmetic, transcendental functions, comparisons, bits, selection, conversion.

All operands have one shape and one dtype; nothing broadcasts and nothing promotes.

Does not: define activations (`activations.py`).
"""

from __future__ import annotations

import torch

from backend_sdk import dtypes
from backend_sdk.prims.define import FLOATING_OR_COMPLEX, Operand, elementwise, prim
from backend_sdk.prims.samples import elementwise_samples, tensor
from backend_sdk.spec import DtypeVar, Exact, FromAttribute, Sample, TensorType, Ulp, same_shape

_BINARY = ((-4.0, 4.0), (-4.0, 4.0))
_BITS = dtypes.INTEGRAL | dtypes.BOOLEAN
_ORDERED = dtypes.REAL | dtypes.BOOLEAN
_EXACT = Exact()


# ---- unary arithmetic


@elementwise(dtypes.NUMERIC, tolerance=_EXACT)
def neg(x: Operand) -> Operand:
    """-x. Integers wrap: the most negative value is its own negation."""
    return torch.neg(x)


@elementwise(dtypes.REAL, tolerance=_EXACT)
def abs(x: Operand) -> Operand:
    """Magnitude of a real x. Integers wrap at the most negative value."""
    return torch.abs(x)


@elementwise(dtypes.REAL, tolerance=_EXACT, differentiable=False)
def sign(x: Operand) -> Operand:
    """-1, 0 or 1. NaN gives 0, as in torch."""
    return torch.sign(x)


@elementwise(dtypes.FLOATING, tolerance=_EXACT, differentiable=False)
def floor(x: Operand) -> Operand:
    """Largest integer not above x."""
    return torch.floor(x)


@elementwise(dtypes.FLOATING, tolerance=_EXACT, differentiable=False)
def ceil(x: Operand) -> Operand:
    """Smallest integer not below x."""
    return torch.ceil(x)


@elementwise(dtypes.FLOATING, tolerance=_EXACT, differentiable=False)
def round(x: Operand) -> Operand:
    """Nearest integer, ties to even (IEEE 754 roundToIntegralTiesToEven)."""
    return torch.round(x)


@elementwise(dtypes.FLOATING, tolerance=_EXACT, differentiable=False)
def trunc(x: Operand) -> Operand:
    """Integer part, toward zero."""
    return torch.trunc(x)


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(3), ranges=((0.1, 4.0),))
def sqrt(x: Operand) -> Operand:
    """Square root; NaN for negative reals."""
    return torch.sqrt(x)


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(4, 2), ranges=((0.1, 4.0),))
def rsqrt(x: Operand) -> Operand:
    """1 / sqrt(x); +inf at 0."""
    return torch.rsqrt(x)


# ---- transcendental functions


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(3))
def exp(x: Operand) -> Operand:
    """e to the power x."""
    return torch.exp(x)


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(3))
def expm1(x: Operand) -> Operand:
    """exp(x) - 1, accurate near 0."""
    return torch.expm1(x)


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(3), ranges=((0.1, 4.0),))
def log(x: Operand) -> Operand:
    """Natural logarithm; -inf at 0, NaN for negative reals."""
    return torch.log(x)


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(3), ranges=((-0.9, 4.0),))
def log1p(x: Operand) -> Operand:
    """log(1 + x), accurate near 0."""
    return torch.log1p(x)


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(3), ranges=((0.1, 4.0),))
def log2(x: Operand) -> Operand:
    """Logarithm to base 2; exact at powers of two."""
    return torch.log2(x)


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(4))
def sin(x: Operand) -> Operand:
    """Sine of x in radians."""
    return torch.sin(x)


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(4))
def cos(x: Operand) -> Operand:
    """Cosine of x in radians."""
    return torch.cos(x)


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(5), ranges=((-1.5, 1.5),))
def tan(x: Operand) -> Operand:
    """Tangent of x in radians."""
    return torch.tan(x)


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(4), ranges=((-1.0, 1.0),))
def asin(x: Operand) -> Operand:
    """Arc sine; NaN outside [-1, 1]."""
    return torch.asin(x)


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(4), ranges=((-1.0, 1.0),))
def acos(x: Operand) -> Operand:
    """Arc cosine; NaN outside [-1, 1]."""
    return torch.acos(x)


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(5))
def atan(x: Operand) -> Operand:
    """Arc tangent."""
    return torch.atan(x)


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(4))
def sinh(x: Operand) -> Operand:
    """Hyperbolic sine."""
    return torch.sinh(x)


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(4))
def cosh(x: Operand) -> Operand:
    """Hyperbolic cosine."""
    return torch.cosh(x)


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(5))
def tanh(x: Operand) -> Operand:
    """Hyperbolic tangent."""
    return torch.tanh(x)


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(4))
def asinh(x: Operand) -> Operand:
    """Inverse hyperbolic sine."""
    return torch.asinh(x)


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(4), ranges=((1.0, 4.0),))
def acosh(x: Operand) -> Operand:
    """Inverse hyperbolic cosine; NaN below 1."""
    return torch.acosh(x)


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(5), ranges=((-0.99, 0.99),))
def atanh(x: Operand) -> Operand:
    """Inverse hyperbolic tangent; infinite at -1 and 1."""
    return torch.atanh(x)


@elementwise(dtypes.FLOATING, tolerance=Ulp(16, 4))
def erf(x: Operand) -> Operand:
    """Error function, 2 / sqrt(pi) times the integral of exp(-t**2) from 0 to x."""
    return torch.erf(x)


@elementwise(dtypes.FLOATING, tolerance=Ulp(16, 4))
def erfc(x: Operand) -> Operand:
    """1 - erf(x), accurate for large x."""
    return torch.erfc(x)


@elementwise(dtypes.FLOATING, tolerance=Ulp(16), ranges=((-0.99, 0.99),))
def erfinv(x: Operand) -> Operand:
    """Inverse of erf; infinite at -1 and 1, NaN outside."""
    return torch.erfinv(x)


# ---- binary arithmetic


@elementwise(dtypes.NUMERIC, tolerance=Ulp(0.5, 0.5), ranges=_BINARY)
def add(x: Operand, y: Operand) -> Operand:
    """x + y. Integers wrap."""
    return torch.add(x, y)


@elementwise(dtypes.NUMERIC, tolerance=Ulp(0.5, 0.5), ranges=_BINARY)
def sub(x: Operand, y: Operand) -> Operand:
    """x - y. Integers wrap."""
    return torch.sub(x, y)


@elementwise(dtypes.NUMERIC, tolerance=Ulp(0.5, 0.5), ranges=_BINARY)
def mul(x: Operand, y: Operand) -> Operand:
    """x * y. Integers wrap."""
    return torch.mul(x, y)


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(2.5), ranges=((-4.0, 4.0), (0.5, 4.0)))
def div(x: Operand, y: Operand) -> Operand:
    """x / y in floating point. Integers use `floor_div`."""
    return torch.div(x, y)


@elementwise(dtypes.INTEGRAL, tolerance=_EXACT, ranges=((-9.0, 9.0), (1.0, 4.0)), differentiable=False)
def floor_div(x: Operand, y: Operand) -> Operand:
    """Integer quotient rounded toward minus infinity. A zero divisor is the caller's fault."""
    return torch.div(x, y, rounding_mode="floor")


@elementwise(dtypes.REAL, tolerance=_EXACT, ranges=((-9.0, 9.0), (1.0, 4.0)))
def fmod(x: Operand, y: Operand) -> Operand:
    """Remainder with the sign of x (C's fmod). Exact for floats."""
    return torch.fmod(x, y)


@elementwise(dtypes.NUMERIC, tolerance=Ulp(16), ranges=((0.1, 4.0), (0.0, 3.0)))
def pow(x: Operand, y: Operand) -> Operand:
    """x to the power y. Integer powers need y >= 0."""
    return torch.pow(x, y)


@elementwise(dtypes.FLOATING, tolerance=Ulp(6), ranges=_BINARY)
def atan2(x: Operand, y: Operand) -> Operand:
    """Angle of the point (y, x), in radians, in [-pi, pi]."""
    return torch.atan2(x, y)


@elementwise(_ORDERED, tolerance=_EXACT, ranges=_BINARY)
def maximum(x: Operand, y: Operand) -> Operand:
    """The larger operand; NaN if either is NaN (IEEE 754-2019 maximum)."""
    return torch.maximum(x, y)


@elementwise(_ORDERED, tolerance=_EXACT, ranges=_BINARY)
def minimum(x: Operand, y: Operand) -> Operand:
    """The smaller operand; NaN if either is NaN (IEEE 754-2019 minimum)."""
    return torch.minimum(x, y)


# ---- bits


@elementwise(_BITS, tolerance=_EXACT, differentiable=False)
def bitwise_not(x: Operand) -> Operand:
    """Complement of each bit; logical not for bool."""
    return torch.bitwise_not(x)


@elementwise(_BITS, tolerance=_EXACT, ranges=_BINARY, differentiable=False)
def bitwise_and(x: Operand, y: Operand) -> Operand:
    """And of each bit; logical and for bool."""
    return torch.bitwise_and(x, y)


@elementwise(_BITS, tolerance=_EXACT, ranges=_BINARY, differentiable=False)
def bitwise_or(x: Operand, y: Operand) -> Operand:
    """Or of each bit; logical or for bool."""
    return torch.bitwise_or(x, y)


@elementwise(_BITS, tolerance=_EXACT, ranges=_BINARY, differentiable=False)
def bitwise_xor(x: Operand, y: Operand) -> Operand:
    """Exclusive or of each bit."""
    return torch.bitwise_xor(x, y)


@elementwise(dtypes.INTEGRAL, tolerance=_EXACT, ranges=((-9.0, 9.0), (0.0, 7.0)), differentiable=False)
def shift_left(x: Operand, y: Operand) -> Operand:
    """x shifted left by y bits, 0 <= y < width."""
    return torch.bitwise_left_shift(x, y)


@elementwise(dtypes.INTEGRAL, tolerance=_EXACT, ranges=((-9.0, 9.0), (0.0, 7.0)), differentiable=False)
def shift_right(x: Operand, y: Operand) -> Operand:
    """x shifted right by y bits, 0 <= y < width; arithmetic for signed dtypes."""
    return torch.bitwise_right_shift(x, y)


# ---- comparisons: the result is bool


@elementwise(dtypes.ANY, tolerance=_EXACT, result=torch.bool, ranges=_BINARY, differentiable=False)
def eq(x: Operand, y: Operand) -> Operand:
    """x == y; false where either is NaN."""
    return torch.eq(x, y)


@elementwise(dtypes.ANY, tolerance=_EXACT, result=torch.bool, ranges=_BINARY, differentiable=False)
def ne(x: Operand, y: Operand) -> Operand:
    """x != y; true where either is NaN."""
    return torch.ne(x, y)


@elementwise(_ORDERED, tolerance=_EXACT, result=torch.bool, ranges=_BINARY, differentiable=False)
def lt(x: Operand, y: Operand) -> Operand:
    """x < y; false where either is NaN."""
    return torch.lt(x, y)


@elementwise(_ORDERED, tolerance=_EXACT, result=torch.bool, ranges=_BINARY, differentiable=False)
def le(x: Operand, y: Operand) -> Operand:
    """x <= y; false where either is NaN."""
    return torch.le(x, y)


@elementwise(_ORDERED, tolerance=_EXACT, result=torch.bool, ranges=_BINARY, differentiable=False)
def gt(x: Operand, y: Operand) -> Operand:
    """x > y; false where either is NaN."""
    return torch.gt(x, y)


@elementwise(_ORDERED, tolerance=_EXACT, result=torch.bool, ranges=_BINARY, differentiable=False)
def ge(x: Operand, y: Operand) -> Operand:
    """x >= y; false where either is NaN."""
    return torch.ge(x, y)


@elementwise(dtypes.FLOATING, tolerance=_EXACT, result=torch.bool, differentiable=False)
def is_finite(x: Operand) -> Operand:
    """True where x is neither infinite nor NaN."""
    return torch.isfinite(x)


# ---- selection and conversion

_T = DtypeVar("T", dtypes.STORED)


def _select_shape(condition: TensorType, x: TensorType, y: TensorType) -> object:
    return same_shape("select", condition, x, y)


@prim(
    shape=_select_shape,
    operands=(torch.bool, _T, _T),
    results=(_T,),
    tolerance=_EXACT,
    samples=elementwise_samples((0, 2), (-4.0, 4.0), (-4.0, 4.0), dtypes_of_operands=(torch.bool, None, None)),
)
def select(condition: Operand, x: Operand, y: Operand) -> Operand:
    """x where ``condition`` holds, else y. Elements that are not chosen have no effect, not even NaN."""
    return torch.where(condition, x, y)


def _convert_samples(source: torch.dtype, generator: torch.Generator):  # type: ignore[no-untyped-def]
    targets = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool)
    for target in (*targets, *(dtypes.STORAGE_DTYPES if source in dtypes.ANY else ())):
        low = -4.0 if target.is_signed and source.is_signed else 0.0
        yield Sample((tensor((3, 5), source, generator, low),), {"dtype": target})


def _convert_shape(x: TensorType, *, dtype: torch.dtype) -> object:
    return x.shape


@prim(
    structural=True,
    shape=_convert_shape,
    operands=(_T,),
    results=(FromAttribute("dtype", dtypes.STORED),),
    tolerance=Ulp(0.5, 0.5),
    samples=_convert_samples,
    identity=lambda x, *, dtype: x.dtype == dtype,
)
def convert(x: Operand, *, dtype: torch.dtype) -> Operand:
    """x in another dtype: floats round to nearest even, float to integer truncates toward zero, nonzero is
    True, complex to real keeps the real part. Out-of-range float to integer is undefined.
    """
    if x.is_complex() and not dtype.is_complex and dtype != torch.bool:
        x = x.real
    return x.to(dtype)
