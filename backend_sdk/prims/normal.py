"""Functions of the normal distribution, as composites: the scaled complement of erf, quantiles, log probabilities.

16-bit floats compute in float32 and round once.

Does not: define erf, erfc and erfinv, which are prims.
"""

from __future__ import annotations

import math

from backend_sdk import dtypes
from backend_sdk.prims.define import Operand, elementwise
from backend_sdk.prims.elementwise import (
    abs,
    add,
    div,
    eq,
    erfc,
    exp,
    gt,
    log,
    log1p,
    lt,
    minimum,
    mul,
    neg,
    select,
    sqrt,
    sub,
    trunc,
)
from backend_sdk.prims.series import chebyshev, computed, rational
from backend_sdk.prims.shorthand import constant, scaled
from backend_sdk.spec import Ulp

# (1 + 2x) erfcx(x) on [0, inf) in 2 (x - 3.75) / (x + 3.75): the form of Shepherd and Laframboise, "Chebyshev
# approximation of (1 + 2x) exp(x^2) erfc(x) in 0 <= x < inf", Math. Comp. 36 (1981). Interpolated here with 40 digits.
_ERFCX = (
    5.068148904796111e-17,
    7.418235256624044e-17,
    -1.2507950530688648e-15,
    -1.864562880419313e-15,
    3.3478119482868056e-14,
    3.25254814814874e-14,
    -9.65469674843344e-13,
    1.9455868545777347e-13,
    2.86879501093067e-11,
    -6.318088340886684e-11,
    -7.754400208831351e-10,
    4.521959811218287e-09,
    1.076499946567091e-08,
    -2.1886401049234397e-07,
    7.74038306619849e-07,
    4.13902798607301e-06,
    -6.916973302501207e-05,
    0.0004907758365258086,
    -0.002413163540417608,
    0.009074997670705265,
    -0.026658668435305753,
    0.05920993999819189,
    -0.08424913336651792,
    -0.004590054580646478,
    2.3551578691348034,
)

# Quantiles of the normal distribution: Cephes ``ndtri`` (S. L. Moshier, BSD license). Around 1/2 in (y - 1/2)^2; in the
# tails in 1 / z, z = sqrt(-2 log(y)), up to 8 and beyond.
_QUANTILE = (
    -59.96335010141079,
    98.00107541859997,
    -56.67628574690703,
    13.931260938727968,
    -1.2391658386738125,
)
_QUANTILE_BELOW = (
    1.0,
    1.9544885833814176,
    4.676279128988815,
    86.36024213908905,
    -225.46268785411937,
    200.26021238006066,
    -82.03722561683334,
    15.90562251262117,
    -1.1833162112133,
)
_TAIL = (
    4.0554489230596245,
    31.525109459989388,
    57.16281922464213,
    44.08050738932008,
    14.684956192885803,
    2.1866330685079025,
    -0.1402560791713545,
    -0.03504246268278482,
    -0.0008574567851546854,
)
_TAIL_BELOW = (
    1.0,
    15.779988325646675,
    45.39076351288792,
    41.3172038254672,
    15.04253856929075,
    2.504649462083094,
    -0.14218292285478779,
    -0.03808064076915783,
    -0.0009332594808954574,
)
_FAR_TAIL = (
    3.2377489177694603,
    6.915228890689842,
    3.9388102529247444,
    1.3330346081580755,
    0.20148538954917908,
    0.012371663481782003,
    0.00030158155350823543,
    2.6580697468673755e-06,
    6.239745391849833e-09,
)
_FAR_TAIL_BELOW = (
    1.0,
    6.02427039364742,
    3.6798356385616087,
    1.3770209948908132,
    0.21623699359449663,
    0.013420400608854318,
    0.00032801446468212774,
    2.8924786474538068e-06,
    6.790194080099813e-09,
)


def _erfcx(x: Operand) -> Operand:
    magnitude, one = abs(x), constant(x, 1.0)
    # 1 - 7.5 / (x + 3.75) is (x - 3.75) / (x + 3.75), at infinity too.
    place = sub(one, div(constant(x, 7.5), add(magnitude, constant(x, 3.75))))
    # 1 + 2x in halves: 2x may overflow.
    positive = div(scaled(chebyshev(scaled(place, 2.0), _ERFCX), 0.5), add(constant(x, 0.5), magnitude))
    # exp(x^2) as exp(h^2) exp((x - h) (x + h)), h with few digits: x^2 alone would lose log2(x^2) bits to rounding.
    # Beyond 32 every result is infinite.
    bounded = minimum(magnitude, constant(x, 32.0))
    head = scaled(trunc(scaled(bounded, 16.0)), 1.0 / 16.0)
    rest = mul(sub(bounded, head), add(bounded, head))
    grown = mul(exp(mul(head, head)), exp(rest))
    return select(lt(x, constant(x, 0.0)), sub(scaled(grown, 2.0), positive), positive)


@elementwise(dtypes.FLOATING, tolerance=Ulp(12), ranges=((-8.0, 20.0),), body=True)
def erfcx(x: Operand) -> Operand:
    """exp(x^2) erfc(x), scaled so as to vanish like 1 / x only. Overflows below -9.38 in float32, -26.6 in float64."""
    return computed(_erfcx, x)


# Where the central approximation ends.
_CENTRAL = math.exp(-2.0)


def _ndtri(y: Operand) -> Operand:
    one = constant(y, 1.0)
    upper = gt(y, constant(y, 1.0 - _CENTRAL))
    tail = select(upper, sub(one, y), y)
    centered = sub(y, constant(y, 0.5))
    squared = mul(centered, centered)
    quotient = mul(squared, rational(squared, _QUANTILE, _QUANTILE_BELOW))
    central = scaled(add(centered, mul(centered, quotient)), math.sqrt(2.0 * math.pi))
    z = sqrt(scaled(log(tail), -2.0))
    inverse = div(one, z)
    near = rational(inverse, _TAIL, _TAIL_BELOW)
    far = rational(inverse, _FAR_TAIL, _FAR_TAIL_BELOW)
    correction = mul(inverse, select(lt(z, constant(y, 8.0)), near, far))
    outer = sub(sub(z, mul(log(z), inverse)), correction)
    value = select(gt(tail, constant(y, _CENTRAL)), central, select(upper, outer, neg(outer)))
    value = select(eq(y, constant(y, 0.0)), constant(y, -math.inf), value)
    return select(eq(y, one), constant(y, math.inf), value)


@elementwise(dtypes.FLOATING, tolerance=Ulp(12), ranges=((0.001, 0.999),), body=True)
def ndtri(x: Operand) -> Operand:
    """Quantile of the standard normal distribution: where its probability is x. Infinite at 0 and 1, NaN outside."""
    return computed(_ndtri, x)


def _log_ndtr(x: Operand) -> Operand:
    scaled_x = scaled(x, math.sqrt(0.5))
    # Far below 0 the probability underflows long before its logarithm does. Squares come from x itself: the rounding of
    # x / sqrt(2) would count x^2 times.
    tail = sub(log(scaled(_erfcx(neg(scaled_x)), 0.5)), mul(scaled(x, 0.5), x))
    near = log1p(scaled(erfc(scaled_x), -0.5))
    return select(lt(x, constant(x, -1.0)), tail, near)


@elementwise(dtypes.FLOATING, tolerance=Ulp(64), ranges=((-20.0, 6.0),), body=True)
def log_ndtr(x: Operand) -> Operand:
    """Logarithm of the standard normal distribution's probability up to x. -inf at -inf, 0 at inf."""
    return computed(_log_ndtr, x)
