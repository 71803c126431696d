"""The gamma function's family: its logarithm and logarithmic derivative as composites, and two prims.

16-bit floats compute in float32 and round once.

Does not: define the gamma function itself, for which torch has no op.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from backend_sdk import dtypes
from backend_sdk.prims.define import Operand, elementwise, prim
from backend_sdk.prims.elementwise import (
    abs,
    add,
    bitwise_and,
    div,
    eq,
    floor,
    ge,
    log,
    lt,
    maximum,
    minimum,
    mul,
    neg,
    round,
    select,
    sin,
    sub,
    tan,
    trunc,
)
from backend_sdk.prims.samples import ELEMENTWISE_SHAPES, tensor
from backend_sdk.prims.series import chebyshev, computed, polynomial
from backend_sdk.prims.shorthand import constant, scaled
from backend_sdk.spec import DtypeVar, Sample, Shape, TensorType, Ulp, same_shape

_FLOAT = DtypeVar("T", dtypes.FLOATING)

# log(gamma(x)) / ((x - 1) (x - 2)) on [1, 3], in 2 (x - 2): Chebyshev interpolation with 40 digits by mpmath. Without
# its two zeros the function is smooth, so that the product is accurate near them too.
_LGAMMA_CENTRAL = (
    4.714169006756272e-17,
    -1.8232177141662118e-16,
    7.060670507214892e-16,
    -2.7382420786652826e-15,
    1.0635701227757898e-14,
    -4.137949206814042e-14,
    1.6128460030283787e-13,
    -6.298868140791711e-13,
    2.465348198355661e-12,
    -9.672485299656325e-12,
    3.8050196458110534e-11,
    -1.501312977072867e-10,
    5.943541905817546e-10,
    -2.361999702184645e-09,
    9.428100823624284e-09,
    -3.782637660291326e-08,
    1.5268677399071546e-07,
    -6.208535880776316e-07,
    2.5474336873408417e-06,
    -1.05728743735943e-05,
    4.454470184975607e-05,
    -0.00019153855341365593,
    0.0008478989895953857,
    -0.003922461463025264,
    0.01951044826068884,
    -0.11119580321752523,
    0.8829780509100285,
)

# B_2k / (2k (2k - 1)) of Stirling's series, highest k first (Abramowitz and Stegun 6.1.41).
_STIRLING = (
    43867 / 244188,
    -3617 / 122400,
    1 / 156,
    -691 / 360360,
    1 / 1188,
    -1 / 1680,
    1 / 1260,
    -1 / 360,
    1 / 12,
)

# B_2k / 2k of the asymptotic series of digamma, highest k first (Abramowitz and Stegun 6.3.18).
_DIGAMMA = (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)

# Where the asymptotic series reach float64.
_STIRLING_FROM, _DIGAMMA_FROM = 8, 10


def _log_gamma_of_positive(x: Operand) -> Operand:
    # gamma(x) = gamma(y) times (x - 1) ... (x - steps), y = x - steps in [1, 3); below 1 gamma(x) = gamma(x + 1) / x.
    below_one = lt(x, constant(x, 1.0))
    steps = sub(floor(minimum(maximum(x, constant(x, 2.0)), constant(x, 7.0))), constant(x, 2.0))
    steps = select(below_one, constant(x, -1.0), steps)
    product = constant(x, 1.0)
    for step in range(1, _STIRLING_FROM - 2):
        factor = sub(x, constant(x, float(step)))
        product = mul(product, select(ge(steps, constant(x, float(step))), factor, constant(x, 1.0)))
    # x - 1 and x - 2 of the central interval, by one subtraction each: x + 1 would be rounded.
    from_two = sub(x, add(steps, constant(x, 2.0)))
    from_one = sub(x, add(steps, constant(x, 1.0)))
    central = mul(mul(from_one, from_two), chebyshev(scaled(from_two, 2.0), _LGAMMA_CENTRAL))
    shift = log(select(below_one, x, product))
    near = add(central, select(below_one, neg(shift), shift))
    inverse = div(constant(x, 1.0), x)
    series = mul(inverse, polynomial(mul(inverse, inverse), _STIRLING))
    leading = mul(sub(x, constant(x, 0.5)), sub(log(x), constant(x, 1.0)))
    far = add(leading, add(series, constant(x, 0.5 * math.log(2.0 * math.pi) - 0.5)))
    return select(lt(x, constant(x, float(_STIRLING_FROM))), near, far)


def _log_gamma(x: Operand) -> Operand:
    magnitude = abs(x)
    of_positive = _log_gamma_of_positive(magnitude)
    # gamma(-x) gamma(x) = -pi / (x sin(pi x)). sin sees the distance to the nearest integer, which is exact.
    angle = scaled(sub(magnitude, round(magnitude)), math.pi)
    sine = abs(sin(angle))
    reflected = sub(sub(sub(constant(x, math.log(math.pi)), log(magnitude)), log(sine)), of_positive)
    infinite = constant(x, math.inf)
    pole = bitwise_and(lt(x, constant(x, 0.0)), eq(x, trunc(x)))
    value = select(lt(x, constant(x, 0.0)), reflected, of_positive)
    return select(pole, infinite, value)


@elementwise(dtypes.FLOATING, tolerance=Ulp(8, floor=8), ranges=((-6.0, 12.0),), body=True)
def lgamma(x: Operand) -> Operand:
    """Logarithm of the magnitude of the gamma function; +inf at 0, at the negative integers and at both infinities.

    From 8 on Stirling's series; between 0 and 8 the recurrence to [1, 3] and a Chebyshev series; below 0 the reflection
    formula, whose error near the function's negative zeros is absolute.
    """
    return computed(_log_gamma, x)


def _psi(x: Operand) -> Operand:
    negative = lt(x, constant(x, 0.0))
    one = constant(x, 1.0)
    # psi(1 - x) = psi(x) + pi / tan(pi x). tan sees the distance to the nearest integer, which is exact.
    start = select(negative, sub(one, x), x)
    total, y = constant(x, 0.0), start
    for _ in range(_DIGAMMA_FROM):
        small = lt(y, constant(x, float(_DIGAMMA_FROM)))
        total = select(small, sub(total, div(one, y)), total)
        y = select(small, add(y, one), y)
    inverse = div(one, y)
    squared = mul(inverse, inverse)
    tail = add(scaled(inverse, 0.5), mul(squared, polynomial(squared, _DIGAMMA)))
    value = sub(add(total, log(y)), tail)
    cotangent = div(constant(x, math.pi), tan(scaled(sub(x, round(x)), math.pi)))
    value = select(negative, sub(value, cotangent), value)
    return select(bitwise_and(negative, eq(x, trunc(x))), constant(x, math.nan), value)


@elementwise(dtypes.FLOATING, tolerance=Ulp(16, floor=8), ranges=((-6.0, 12.0),), body=True)
def digamma(x: Operand) -> Operand:
    """Logarithmic derivative of the gamma function (Cephes ``psi``): recurrence to 10, then the asymptotic series.

    At zero infinite with the sign of -x, at negative integers and -inf NaN.
    """
    return computed(_psi, x)


# ---- prims: their loops are bounded by the data only


@elementwise(dtypes.FLOATING, tolerance=Ulp(16), ranges=((1.1, 8.0), (0.1, 8.0)))
def zeta(x: Operand, y: Operand) -> Operand:
    """Hurwitz zeta function, the sum over k >= 0 of (k + y) to the power -x.

    +inf at x = 1 and where y is 0 or a negative integer; NaN for x < 1, and for negative y unless x is an integer.
    """
    wide = dtypes.compute_dtype(x.dtype)
    return torch.special.zeta(x.to(wide), y.to(wide)).to(x.dtype)


def _gamma_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    for upper in (False, True):
        for shape in ELEMENTWISE_SHAPES:
            operands = tuple(tensor(shape, dtype, generator, 0.1, 12.0) for _ in range(2))
            yield Sample(operands, {"upper": upper})


def _gamma_shape(a: TensorType, x: TensorType, *, upper: bool) -> Shape:
    return same_shape("incomplete_gamma", a, x)


@prim(
    shape=_gamma_shape,
    operands=(_FLOAT, _FLOAT),
    results=(_FLOAT,),
    tolerance=Ulp(64, floor=8),
    samples=_gamma_samples,
)
def incomplete_gamma(a: Operand, x: Operand, *, upper: bool) -> Operand:
    """Regularized incomplete gamma function: the integral of t^(a - 1) exp(-t) from 0 to x (``upper``: from x to
    infinity) over gamma(a), for a >= 0 and x >= 0 (Abramowitz and Stegun 6.5.1).

    NaN for a negative operand, for two zeros and for two infinities. a = 0: 1 (upper: 0); x = 0: 0 (1); x = inf: 1 (0);
    a = inf: 0 (1). Each of the two is small where the other is near 1, and accurate there.
    """
    wide = dtypes.compute_dtype(x.dtype)
    function = torch.special.gammaincc if upper else torch.special.gammainc
    return function(a.to(wide), x.to(wide)).to(x.dtype)
