"""Hypotenuse and greatest common divisor as composites, and one prim for the orthogonal polynomials.

Does not: hold the families with a module of their own (`bessel`, `gamma`, `normal`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch

from backend_sdk import dtypes
from backend_sdk.prims.define import Operand, elementwise, prim
from backend_sdk.prims.elementwise import (
    abs,
    add,
    bitwise_or,
    div,
    eq,
    fmod,
    lt,
    mul,
    select,
    sqrt,
)
from backend_sdk.prims.samples import tensor
from backend_sdk.prims.series import computed
from backend_sdk.prims.shorthand import constant
from backend_sdk.spec import DtypeVar, Sample, Shape, TensorType, Ulp, refuse, same_shape

_FLOAT = DtypeVar("T", dtypes.FLOATING)


def _hypot(x: Operand, y: Operand) -> Operand:
    a, b = abs(x), abs(y)
    smaller = lt(a, b)
    long, short = select(smaller, b, a), select(smaller, a, b)
    ratio = div(short, select(eq(long, constant(x, 0.0)), constant(x, 1.0), long))
    length = mul(long, sqrt(add(constant(x, 1.0), mul(ratio, ratio))))
    infinite = constant(x, math.inf)
    # An infinite side decides, whatever the other is.
    return select(bitwise_or(eq(a, infinite), eq(b, infinite)), infinite, length)


@elementwise(dtypes.FLOATING, tolerance=Ulp(4), ranges=((-4.0, 4.0), (-4.0, 4.0)), body=True)
def hypot(x: Operand, y: Operand) -> Operand:
    """sqrt(x^2 + y^2) without overflow or underflow on the way. An infinite side gives inf, even beside NaN
    (C99, F.9.4.3). 16-bit floats compute in float32 and round once.
    """
    return computed(_hypot, x, y)


@elementwise(dtypes.INTEGRAL, tolerance=Ulp(0), ranges=((-60.0, 60.0), (-60.0, 60.0)), differentiable=False, body=True)
def gcd(x: Operand, y: Operand) -> Operand:
    """Greatest common divisor, not negative; 0 of two zeros. By Euclid, in as many steps as the width needs."""
    a, b = abs(x), abs(y)
    # Lame: consecutive Fibonacci numbers take the most divisions, log(2^bits) / log(golden ratio) of them.
    steps = math.ceil(8 * x.dtype.itemsize * math.log(2.0) / math.log((1.0 + math.sqrt(5.0)) / 2.0)) + 2
    zero, one = constant(x, 0), constant(x, 1)
    for _ in range(steps):
        done = eq(a, zero)
        rest = fmod(b, select(done, one, a))
        a, b = rest, select(done, b, a)
    return b


POLYNOMIALS: dict[str, Callable[..., torch.Tensor]] = {
    "chebyshev_t": torch.special.chebyshev_polynomial_t,
    "chebyshev_u": torch.special.chebyshev_polynomial_u,
    "chebyshev_v": torch.special.chebyshev_polynomial_v,
    "chebyshev_w": torch.special.chebyshev_polynomial_w,
    "hermite_h": torch.special.hermite_polynomial_h,
    "hermite_he": torch.special.hermite_polynomial_he,
    "laguerre_l": torch.special.laguerre_polynomial_l,
    "legendre_p": torch.special.legendre_polynomial_p,
    "shifted_chebyshev_t": torch.special.shifted_chebyshev_polynomial_t,
    "shifted_chebyshev_u": torch.special.shifted_chebyshev_polynomial_u,
    "shifted_chebyshev_v": torch.special.shifted_chebyshev_polynomial_v,
    "shifted_chebyshev_w": torch.special.shifted_chebyshev_polynomial_w,
}


def _polynomial_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    for kind in POLYNOMIALS:
        for shape in ((), (7,), (3, 5), (0, 3)):
            x = tensor(shape, dtype, generator, 0.05, 0.95)
            n = tensor(shape, dtype, generator, 0.0, 6.0).floor()
            yield Sample((x, n), {"kind": kind})


def _polynomial_shape(x: TensorType, n: TensorType, *, kind: str) -> Shape:
    if kind not in POLYNOMIALS:
        raise refuse("orthogonal_polynomial", f"kind {kind!r} is none of {sorted(POLYNOMIALS)}", x, n)
    return same_shape("orthogonal_polynomial", x, n)


@prim(
    shape=_polynomial_shape,
    operands=(_FLOAT, _FLOAT),
    results=(_FLOAT,),
    tolerance=Ulp(64, floor=16),
    samples=_polynomial_samples,
    differentiable=False,
)
def orthogonal_polynomial(x: Operand, n: Operand, *, kind: str) -> Operand:
    """The polynomial of degree n, truncated to an integer, of one of the classical orthogonal families at x.

    ``kind``: ``chebyshev_t``, ``_u``, ``_v``, ``_w`` (on [-1, 1]) and ``shifted_chebyshev_...`` (on [0, 1]),
    ``hermite_h`` (physicist's), ``hermite_he`` (probabilist's), ``laguerre_l``, ``legendre_p``; by the three-term
    recurrences of Abramowitz and Stegun 22.7, standardized as in 22.4. 0 for negative n. A Hermite polynomial of degree
    above 128 (float64: 512) is NaN, as in torch. A prim, since the recurrence has as many steps as the data says.
    """
    wide = dtypes.compute_dtype(x.dtype)
    return POLYNOMIALS[kind](x.to(wide), n.to(wide)).to(x.dtype)
