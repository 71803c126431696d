"""Rules for special functions: promotion and broadcasting made explicit, then one contract op each.

Does not: repeat functions that torch's own decompositions reduce to the elementwise prims (sinc, logit, entr, ...).
"""

from __future__ import annotations

import math
from typing import Any

from backend_sdk import dtypes, prims
from backend_sdk.decomp.promotion import spread
from backend_sdk.decomp.registry import decomposition
from backend_sdk.graph import Value
from backend_sdk.prims.shorthand import cast, constant, scaled
from backend_sdk.spec import Prim, TensorType
from backend_sdk.torch_compat.ops import aten, prims_of_torch

# aten op -> contract op, for functions of one operand that turn integers into floats.
_UNARY = {
    "digamma": prims.digamma,
    "i0": prims.bessel_i0,
    "lgamma": prims.lgamma,
    "special_airy_ai": prims.airy_ai,
    "special_bessel_j0": prims.bessel_j0,
    "special_bessel_j1": prims.bessel_j1,
    "special_bessel_y0": prims.bessel_y0,
    "special_bessel_y1": prims.bessel_y1,
    "special_erfcx": prims.erfcx,
    "special_i0e": prims.bessel_i0e,
    "special_i1": prims.bessel_i1,
    "special_i1e": prims.bessel_i1e,
    "special_log_ndtr": prims.log_ndtr,
    "special_modified_bessel_i0": prims.bessel_i0,
    "special_modified_bessel_i1": prims.bessel_i1,
    "special_modified_bessel_k0": prims.bessel_k0,
    "special_modified_bessel_k1": prims.bessel_k1,
    "special_ndtri": prims.ndtri,
    "special_scaled_modified_bessel_k0": prims.bessel_k0e,
    "special_scaled_modified_bessel_k1": prims.bessel_k1e,
    "special_spherical_bessel_j0": prims.spherical_bessel_j0,
}

# The same for ``torch.ops.prims``, which torch's own decompositions may leave.
_UNARY_PRIMS = {
    "bessel_i0": prims.bessel_i0,
    "bessel_i0e": prims.bessel_i0e,
    "bessel_i1": prims.bessel_i1,
    "bessel_i1e": prims.bessel_i1e,
    "bessel_j0": prims.bessel_j0,
    "bessel_j1": prims.bessel_j1,
    "digamma": prims.digamma,
    "erfcx": prims.erfcx,
    "lgamma": prims.lgamma,
    "ndtri": prims.ndtri,
    "spherical_bessel_j0": prims.spherical_bessel_j0,
}

_POLYNOMIALS = {
    "chebyshev_polynomial_t": "chebyshev_t",
    "chebyshev_polynomial_u": "chebyshev_u",
    "chebyshev_polynomial_v": "chebyshev_v",
    "chebyshev_polynomial_w": "chebyshev_w",
    "hermite_polynomial_h": "hermite_h",
    "hermite_polynomial_he": "hermite_he",
    "laguerre_polynomial_l": "laguerre_l",
    "legendre_polynomial_p": "legendre_p",
    "shifted_chebyshev_polynomial_t": "shifted_chebyshev_t",
    "shifted_chebyshev_polynomial_u": "shifted_chebyshev_u",
    "shifted_chebyshev_polynomial_v": "shifted_chebyshev_v",
    "shifted_chebyshev_polynomial_w": "shifted_chebyshev_w",
}


def _register_unary(packet: Any, prim: Prim) -> None:
    def rule(out: TensorType, x: Value) -> Any:
        return prim(cast(x, out.dtype))

    rule.__name__ = prim.name
    decomposition(packet.default)(rule)


def _register_polynomial(packet: Any, kind: str) -> None:
    def rule(out: TensorType, x: Any, n: Any) -> Any:
        operands = spread(x, out.shape, out.dtype), spread(n, out.shape, out.dtype)
        return prims.orthogonal_polynomial(*operands, kind=kind)

    rule.__name__ = kind
    decomposition(packet.default, packet.x_scalar, packet.n_scalar)(rule)


for _op, _prim in _UNARY.items():
    _register_unary(getattr(aten, _op), _prim)
for _op, _prim in _UNARY_PRIMS.items():
    _register_unary(getattr(prims_of_torch, _op), _prim)
for _op, _kind in _POLYNOMIALS.items():
    _register_polynomial(getattr(aten, f"special_{_op}"), _kind)


@decomposition(
    aten.special_zeta.default,
    aten.special_zeta.self_scalar,
    aten.special_zeta.other_scalar,
    prims_of_torch.zeta.default,
)
def zeta(out: TensorType, x: Any, y: Any) -> Any:
    return prims.zeta(spread(x, out.shape, out.dtype), spread(y, out.shape, out.dtype))


@decomposition(aten.polygamma.default)
def polygamma(out: TensorType, n: int, x: Value) -> Any:
    """Abramowitz and Stegun 6.4.10: (-1)^(n + 1) n! zeta(n + 1, x)."""
    value = cast(x, out.dtype)
    if n == 0:
        return prims.digamma(value)
    wide = cast(value, dtypes.compute_dtype(out.dtype))
    order = spread(float(n + 1), out.shape, wide.dtype)
    # Beyond 170! float64 is infinite, and Python's float would refuse.
    factorial = float(math.factorial(n)) if n <= 170 else math.inf
    found = scaled(prims.zeta(order, wide), factorial if n % 2 else -factorial)
    if n == 1:
        # The sum's limit: eager has it for the trigamma function, and NaN for the others.
        found = prims.select(prims.eq(wide, constant(wide, math.inf)), constant(found, 0.0), found)
    return cast(found, out.dtype)


@decomposition(aten.igamma.default, prims_of_torch.igamma.default)
def igamma(out: TensorType, a: Value, x: Value) -> Any:
    return prims.incomplete_gamma(spread(a, out.shape, out.dtype), spread(x, out.shape, out.dtype), upper=False)


@decomposition(aten.igammac.default, prims_of_torch.igammac.default)
def igammac(out: TensorType, a: Value, x: Value) -> Any:
    return prims.incomplete_gamma(spread(a, out.shape, out.dtype), spread(x, out.shape, out.dtype), upper=True)


@decomposition(aten.hypot.default, prims_of_torch.hypot.default)
def hypot(out: TensorType, x: Value, y: Value) -> Any:
    return prims.hypot(spread(x, out.shape, out.dtype), spread(y, out.shape, out.dtype))


@decomposition(aten.gcd.default, prims_of_torch.gcd.default)
def gcd(out: TensorType, x: Value, y: Value) -> Any:
    return prims.gcd(spread(x, out.shape, out.dtype), spread(y, out.shape, out.dtype))
