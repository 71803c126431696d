"""Polynomials and Chebyshev series, in which bodies of special functions are written. Adds no op to the contract.

Does not: hold coefficients (each function's module does, with their source).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from backend_sdk import dtypes
from backend_sdk.prims.define import Operand
from backend_sdk.prims.elementwise import add, div, mul, sub
from backend_sdk.prims.shorthand import cast, constant, scaled


def computed(function: Callable[..., Operand], *operands: Operand) -> Operand:
    """``function`` in the operands' compute dtype, rounded once to their own."""
    own = operands[0].dtype
    return cast(function(*(cast(operand, dtypes.compute_dtype(own)) for operand in operands)), own)


def polynomial(x: Operand, coefficients: Sequence[float]) -> Operand:
    """The polynomial in x with these coefficients, highest power first, by Horner's rule."""
    value = constant(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = mul(value, x)
        if coefficient:
            value = add(value, constant(x, coefficient))
    return value


def rational(x: Operand, above: Sequence[float], below: Sequence[float]) -> Operand:
    """Quotient of two polynomials in x."""
    return div(polynomial(x, above), polynomial(x, below))


def chebyshev(x: Operand, coefficients: Sequence[float]) -> Operand:
    """Sum of ``c[k] T_k(x / 2)`` for x in [-2, 2] by Clenshaw's rule, the highest k first; ``c[0]`` counts half.

    Coefficients that cannot move the sum in x's dtype are left out.
    """
    kept = list(coefficients[_insignificant(coefficients, x.dtype) :])
    older, old, new = constant(x, 0.0), constant(x, 0.0), constant(x, kept[0])
    for coefficient in kept[1:]:
        older, old = old, new
        new = add(sub(mul(x, old), older), constant(x, coefficient))
    return scaled(sub(new, older), 0.5)


def _insignificant(coefficients: Sequence[float], dtype: torch.dtype) -> int:
    """How many of the first (highest) coefficients add up to less than a sixteenth of a unit of the largest."""
    spare = torch.finfo(dtype).eps / 16 * max(abs(coefficient) for coefficient in coefficients)
    total = 0.0
    for position, coefficient in enumerate(coefficients):
        total += abs(coefficient)
        if total > spare:
            return position
    return 0
