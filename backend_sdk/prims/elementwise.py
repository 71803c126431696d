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
    """-x: the sign bit flipped, of zeros, infinities and NaN too. Integers wrap: the most negative value is its own
    negation. Complex: both parts.
    """
    return torch.neg(x)


@elementwise(dtypes.REAL, tolerance=_EXACT)
def abs(x: Operand) -> Operand:
    """Magnitude of a real x: the sign bit cleared. Integers wrap at the most negative value, which stays negative."""
    return torch.abs(x)


@elementwise(dtypes.REAL, tolerance=_EXACT, differentiable=False)
def sign(x: Operand) -> Operand:
    """-1, 0 or 1, in the dtype of x. NaN gives 0, as in torch; zeros of either sign give 0."""
    return torch.sign(x)


@elementwise(dtypes.FLOATING, tolerance=_EXACT, differentiable=False)
def floor(x: Operand) -> Operand:
    """Largest integer not above x (IEEE 754 roundToIntegralTowardNegative). Infinities, NaN and -0 stay."""
    return torch.floor(x)


@elementwise(dtypes.FLOATING, tolerance=_EXACT, differentiable=False)
def ceil(x: Operand) -> Operand:
    """Smallest integer not below x (IEEE 754 roundToIntegralTowardPositive). Infinities, NaN and -0 stay; -0.5
    gives -0.
    """
    return torch.ceil(x)


@elementwise(dtypes.FLOATING, tolerance=_EXACT, differentiable=False)
def round(x: Operand) -> Operand:
    """Nearest integer, ties to even (IEEE 754 roundToIntegralTiesToEven). Infinities, NaN and -0 stay."""
    return torch.round(x)


@elementwise(dtypes.FLOATING, tolerance=_EXACT, differentiable=False)
def trunc(x: Operand) -> Operand:
    """Integer part, toward zero (IEEE 754 roundToIntegralTowardZero). Infinities, NaN and -0 stay."""
    return torch.trunc(x)


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(3), ranges=((0.1, 4.0),))
def sqrt(x: Operand) -> Operand:
    """Square root; NaN for negative reals, -0 at -0. Complex: the principal root, real part not negative, cut along
    the negative real axis (C99, G.6.4.2).
    """
    return torch.sqrt(x)


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(4, 2), ranges=((0.1, 4.0),))
def rsqrt(x: Operand) -> Operand:
    """1 / sqrt(x): infinite at zeros with their sign, 0 at +inf, NaN for negative reals. Complex: of the principal
    root.
    """
    return torch.rsqrt(x)


# ---- transcendental functions


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(3))
def exp(x: Operand) -> Operand:
    """e to the power x: 0 at -inf, +inf at +inf and from about 88.72 (float32 and bfloat16), 709.78 (float64),
    11.09 (float16) on. Complex: exp(re) (cos(im) + i sin(im)), and real for a real x, NaN and infinities too (C99,
    G.6.3.1).
    """
    return torch.exp(x)


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(3))
def expm1(x: Operand) -> Operand:
    """exp(x) - 1 without cancellation near 0, where it is x; -1 at -inf, +inf at +inf."""
    return torch.expm1(x)


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(3), ranges=((0.1, 4.0),))
def log(x: Operand) -> Operand:
    """Natural logarithm; -inf at zeros of either sign, NaN for negative reals, +inf at +inf. Complex: log |x| + i
    arg(x), arg in [-pi, pi], cut along the negative real axis.
    """
    return torch.log(x)


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(3), ranges=((-0.9, 4.0),))
def log1p(x: Operand) -> Operand:
    """log(1 + x) without cancellation near 0, where it is x; -inf at -1, NaN below, +inf at +inf. Complex: cut along
    the real axis below -1.
    """
    return torch.log1p(x)


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(3), ranges=((0.1, 4.0),))
def log2(x: Operand) -> Operand:
    """Logarithm to base 2, exact at powers of two for real x; -inf at zeros of either sign, NaN for negative reals,
    +inf at +inf. Complex: log(x) / log(2).
    """
    return torch.log2(x)


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(4))
def sin(x: Operand) -> Operand:
    """Sine of x in radians, of an argument reduced exactly however large; NaN at infinities, -0 at -0. Complex:
    sin(re) cosh(im) + i cos(re) sinh(im).
    """
    return torch.sin(x)


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(4))
def cos(x: Operand) -> Operand:
    """Cosine of x in radians, of an argument reduced exactly however large; NaN at infinities. Complex: cos(re)
    cosh(im) - i sin(re) sinh(im).
    """
    return torch.cos(x)


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(5), ranges=((-1.5, 1.5),))
def tan(x: Operand) -> Operand:
    """Tangent of x in radians, of an argument reduced exactly however large; NaN at infinities, -0 at -0. Complex:
    sin(x) / cos(x), which tends to i and -i far from the real axis.
    """
    return torch.tan(x)


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(4), ranges=((-1.0, 1.0),))
def asin(x: Operand) -> Operand:
    """Arc sine in radians, in [-pi / 2, pi / 2]; NaN for reals outside [-1, 1], -0 at -0. Complex: cut along the real
    axis outside [-1, 1].
    """
    return torch.asin(x)


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(4), ranges=((-1.0, 1.0),))
def acos(x: Operand) -> Operand:
    """Arc cosine in radians, in [0, pi]; NaN for reals outside [-1, 1]. Complex: cut along the real axis outside
    [-1, 1].
    """
    return torch.acos(x)


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(5))
def atan(x: Operand) -> Operand:
    """Arc tangent in radians, in [-pi / 2, pi / 2], the bounds at the infinities; -0 at -0. Complex: cut along the
    imaginary axis outside [-i, i].
    """
    return torch.atan(x)


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(4))
def sinh(x: Operand) -> Operand:
    """Hyperbolic sine, (exp(x) - exp(-x)) / 2 without cancellation near 0; infinities and -0 stay. Overflows with
    exp(|x|) / 2.
    """
    return torch.sinh(x)


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(4))
def cosh(x: Operand) -> Operand:
    """Hyperbolic cosine, (exp(x) + exp(-x)) / 2; +inf at both infinities. Overflows with exp(|x|) / 2."""
    return torch.cosh(x)


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(5))
def tanh(x: Operand) -> Operand:
    """Hyperbolic tangent, sinh(x) / cosh(x), in [-1, 1]; -1 and 1 at the infinities, -0 at -0."""
    return torch.tanh(x)


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(4))
def asinh(x: Operand) -> Operand:
    """Inverse hyperbolic sine, log(x + sqrt(x^2 + 1)) without cancellation; infinities and -0 stay. Complex: cut
    along the imaginary axis outside [-i, i].
    """
    return torch.asinh(x)


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(4), ranges=((1.0, 4.0),))
def acosh(x: Operand) -> Operand:
    """Inverse hyperbolic cosine, log(x + sqrt(x^2 - 1)), not negative; NaN for reals below 1, +inf at +inf. Complex:
    cut along the real axis below 1.
    """
    return torch.acosh(x)


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(5), ranges=((-0.99, 0.99),))
def atanh(x: Operand) -> Operand:
    """Inverse hyperbolic tangent, log((1 + x) / (1 - x)) / 2; infinite at -1 and 1 with the sign of x, NaN for reals
    outside, -0 at -0. Complex: cut along the real axis outside [-1, 1].
    """
    return torch.atanh(x)


@elementwise(dtypes.FLOATING, tolerance=Ulp(16, 4))
def erf(x: Operand) -> Operand:
    """Error function, 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x; odd, -1 and 1 at the infinities
    (Abramowitz and Stegun 7.1.1).
    """
    return torch.erf(x)


@elementwise(dtypes.FLOATING, tolerance=Ulp(16, 4))
def erfc(x: Operand) -> Operand:
    """1 - erf(x) without cancellation for large x, where it vanishes like exp(-x^2) / (sqrt(pi) x); 2 at -inf, 0 at
    +inf (Abramowitz and Stegun 7.1.2).
    """
    return torch.erfc(x)


@elementwise(dtypes.FLOATING, tolerance=Ulp(16), ranges=((-0.99, 0.99),))
def erfinv(x: Operand) -> Operand:
    """The x of which this is `erf`: odd, infinite at -1 and 1 with the sign of the operand, NaN outside."""
    return torch.erfinv(x)


# ---- binary arithmetic


@elementwise(dtypes.NUMERIC, tolerance=Ulp(0.5, 0.5), ranges=_BINARY)
def add(x: Operand, y: Operand) -> Operand:
    """x + y, rounded once to nearest even. Integers wrap modulo 2^width. inf + -inf is NaN; 0 + -0 is 0."""
    return torch.add(x, y)


@elementwise(dtypes.NUMERIC, tolerance=Ulp(0.5, 0.5), ranges=_BINARY)
def sub(x: Operand, y: Operand) -> Operand:
    """x - y, rounded once to nearest even. Integers wrap modulo 2^width. inf - inf is NaN; 0 - 0 is 0."""
    return torch.sub(x, y)


@elementwise(dtypes.NUMERIC, tolerance=Ulp(0.5, 0.5), ranges=_BINARY)
def mul(x: Operand, y: Operand) -> Operand:
    """x * y, rounded once to nearest even. Integers wrap modulo 2^width. 0 * inf is NaN; the sign is that of the
    operands together. Complex: (a c - b d) + i (a d + b c).
    """
    return torch.mul(x, y)


@elementwise(FLOATING_OR_COMPLEX, tolerance=Ulp(2.5), ranges=((-4.0, 4.0), (0.5, 4.0)))
def div(x: Operand, y: Operand) -> Operand:
    """x / y in floating point; integers use `floor_div`. Infinite over a zero divisor with the sign of both operands;
    0 / 0 and inf / inf are NaN.
    """
    return torch.div(x, y)


def _by_zero(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Where an integer is divided by zero."""
    return y == 0 if not y.is_floating_point() else torch.zeros_like(y, dtype=torch.bool)


@elementwise(
    dtypes.INTEGRAL, tolerance=_EXACT, ranges=((-9.0, 9.0), (1.0, 4.0)), differentiable=False, undefined=_by_zero
)
def floor_div(x: Operand, y: Operand) -> Operand:
    """Integer quotient rounded toward minus infinity. A zero divisor is the caller's fault: no value is defined. The
    most negative value by -1 wraps.
    """
    return torch.div(x, y, rounding_mode="floor")


@elementwise(dtypes.REAL, tolerance=_EXACT, ranges=((-9.0, 9.0), (1.0, 4.0)), undefined=_by_zero)
def fmod(x: Operand, y: Operand) -> Operand:
    """Remainder x - trunc(x / y) y with the sign of x, exact for floats (C99, 7.12.10.1). NaN for an infinite x or a
    zero y; x for an infinite y. Integers: a zero divisor is the caller's fault.
    """
    return torch.fmod(x, y)


@elementwise(dtypes.NUMERIC, tolerance=Ulp(16), ranges=((0.1, 4.0), (0.0, 3.0)))
def pow(x: Operand, y: Operand) -> Operand:
    """x to the power y: 1 for y = 0 and for x = 1, even beside NaN; NaN for negative finite x and fractional y (C99,
    F.9.4.4). Integers wrap, and need y >= 0. Complex: exp(y log(x)).
    """
    return torch.pow(x, y)


@elementwise(dtypes.FLOATING, tolerance=Ulp(6), ranges=_BINARY)
def atan2(x: Operand, y: Operand) -> Operand:
    """Angle of the point (y, x) in radians, in [-pi, pi], with the quadrant and the signs of zeros and infinities
    (C99, F.9.1.4): the first operand is the ordinate.
    """
    return torch.atan2(x, y)


@elementwise(_ORDERED, tolerance=_EXACT, ranges=_BINARY)
def maximum(x: Operand, y: Operand) -> Operand:
    """The larger operand; NaN if either is NaN (IEEE 754-2019 maximum, but of 0 and -0 either). Truth values: or."""
    return torch.maximum(x, y)


@elementwise(_ORDERED, tolerance=_EXACT, ranges=_BINARY)
def minimum(x: Operand, y: Operand) -> Operand:
    """The smaller operand; NaN if either is NaN (IEEE 754-2019 minimum, but of 0 and -0 either). Truth values: and."""
    return torch.minimum(x, y)


# ---- bits


@elementwise(_BITS, tolerance=_EXACT, differentiable=False)
def bitwise_not(x: Operand) -> Operand:
    """Complement of each bit of the two's complement: -1 - x for signed dtypes. Truth values: not."""
    return torch.bitwise_not(x)


@elementwise(_BITS, tolerance=_EXACT, ranges=_BINARY, differentiable=False)
def bitwise_and(x: Operand, y: Operand) -> Operand:
    """And of each bit of the two's complement. Truth values: and."""
    return torch.bitwise_and(x, y)


@elementwise(_BITS, tolerance=_EXACT, ranges=_BINARY, differentiable=False)
def bitwise_or(x: Operand, y: Operand) -> Operand:
    """Or of each bit of the two's complement. Truth values: or."""
    return torch.bitwise_or(x, y)


@elementwise(_BITS, tolerance=_EXACT, ranges=_BINARY, differentiable=False)
def bitwise_xor(x: Operand, y: Operand) -> Operand:
    """Exclusive or of each bit of the two's complement. Truth values: whether they differ."""
    return torch.bitwise_xor(x, y)


def _beyond_width(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Where a shift is negative, or by the width or more."""
    return (y < 0) | (y >= 8 * x.element_size())


@elementwise(
    dtypes.INTEGRAL, tolerance=_EXACT, ranges=((-9.0, 9.0), (0.0, 7.0)), differentiable=False, undefined=_beyond_width
)
def shift_left(x: Operand, y: Operand) -> Operand:
    """x shifted left by y bits, zeros moved in and the sign bit moved out: x * 2^y, wrapped. Defined for
    0 <= y < width.
    """
    return torch.bitwise_left_shift(x, y)


@elementwise(
    dtypes.INTEGRAL, tolerance=_EXACT, ranges=((-9.0, 9.0), (0.0, 7.0)), differentiable=False, undefined=_beyond_width
)
def shift_right(x: Operand, y: Operand) -> Operand:
    """x shifted right by y bits, floor(x / 2^y): arithmetic for signed dtypes, zeros moved in for unsigned. Defined
    for 0 <= y < width.
    """
    return torch.bitwise_right_shift(x, y)


# ---- comparisons: the result is bool


@elementwise(dtypes.ANY, tolerance=_EXACT, result=torch.bool, ranges=_BINARY, differentiable=False)
def eq(x: Operand, y: Operand) -> Operand:
    """x == y as numbers: 0 equals -0, and it is false where either is NaN. Complex: both parts are equal."""
    return torch.eq(x, y)


@elementwise(dtypes.ANY, tolerance=_EXACT, result=torch.bool, ranges=_BINARY, differentiable=False)
def ne(x: Operand, y: Operand) -> Operand:
    """x != y as numbers, the opposite of `eq`: true where either is NaN. Complex: some part differs."""
    return torch.ne(x, y)


@elementwise(_ORDERED, tolerance=_EXACT, result=torch.bool, ranges=_BINARY, differentiable=False)
def lt(x: Operand, y: Operand) -> Operand:
    """x < y as numbers: 0 is not below -0, and it is false where either is NaN. False is below True."""
    return torch.lt(x, y)


@elementwise(_ORDERED, tolerance=_EXACT, result=torch.bool, ranges=_BINARY, differentiable=False)
def le(x: Operand, y: Operand) -> Operand:
    """x <= y as numbers: 0 equals -0, and it is false where either is NaN. False is below True."""
    return torch.le(x, y)


@elementwise(_ORDERED, tolerance=_EXACT, result=torch.bool, ranges=_BINARY, differentiable=False)
def gt(x: Operand, y: Operand) -> Operand:
    """x > y as numbers: 0 is not above -0, and it is false where either is NaN. True is above False."""
    return torch.gt(x, y)


@elementwise(_ORDERED, tolerance=_EXACT, result=torch.bool, ranges=_BINARY, differentiable=False)
def ge(x: Operand, y: Operand) -> Operand:
    """x >= y as numbers: 0 equals -0, and it is false where either is NaN. True is above False."""
    return torch.ge(x, y)


@elementwise(dtypes.FLOATING, tolerance=_EXACT, result=torch.bool, differentiable=False)
def is_finite(x: Operand) -> Operand:
    """True where x is neither infinite nor NaN: where its exponent bits are not all ones."""
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
    for shape in ((), (0, 3)):
        yield Sample((tensor(shape, source, generator),), {"dtype": torch.float32})


def _beyond_integers(x: torch.Tensor, *, dtype: torch.dtype) -> torch.Tensor:
    """Where a float has no integer of ``dtype`` after it is truncated."""
    real = x.real if x.is_complex() else x
    if dtype not in dtypes.INTEGRAL or not real.is_floating_point():
        return torch.zeros(x.shape, dtype=torch.bool)
    whole, info = real.double().trunc(), torch.iinfo(dtype)
    # The largest integer may be no float64, the one after it is. A NaN fails both comparisons.
    return ~((whole >= float(info.min)) & (whole < float(info.max // 2 + 1) * 2))


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
    undefined=_beyond_integers,
)
def convert(x: Operand, *, dtype: torch.dtype) -> Operand:
    """x in another dtype, element by element, in the same shape.

    To a float: rounded to nearest even; beyond its range infinite, but float8_e4m3fn gives its largest number and
    the other dtypes without infinities (float8_...fnuz) NaN. To an integer: a float is truncated toward zero, and
    beyond the range, infinite or NaN it is undefined; an integer keeps the low bits. To bool: True but for zeros,
    NaN is True; of complex numbers, unless both parts are zero. Complex to real keeps the real part; real to
    complex has an imaginary part of 0.
    """
    if x.is_complex() and not dtype.is_complex and dtype != torch.bool:
        x = x.real
    return x.to(dtype)
