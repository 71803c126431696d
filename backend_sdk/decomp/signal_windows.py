"""Rules for the windows of signal processing: Bartlett, Blackman, Hamming, Kaiser.

Each is a function of the sample's number; a periodic window of n samples is the first n of the symmetric one of n + 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from backend_sdk import dtypes, prims
from backend_sdk.decomp.registry import decomposition
from backend_sdk.graph import Value
from backend_sdk.prims.shorthand import cast, constant, scaled
from backend_sdk.spec import SymExpr, TensorType
from backend_sdk.torch_compat.ops import aten


def _window(out: TensorType, periodic: bool, shape: Callable[[Value, int], Any]) -> Any:
    """``shape(number, last)``: the window at each sample's number, where ``last`` is the symmetric window's last one.

    A window of one sample is 1.
    """
    length = out.shape[0]
    wide = dtypes.compute_dtype(out.dtype)
    if wide not in dtypes.FLOATING or isinstance(length, SymExpr):
        return NotImplemented
    if length <= 1:
        return prims.full(shape=out.shape, value=1, dtype=out.dtype)
    last = length if periodic else length - 1
    return cast(shape(prims.iota(length=length, dtype=wide), last), out.dtype)


def _triangle(number: Value, last: int) -> Any:
    rise = scaled(number, 2.0 / last)
    return prims.select(prims.le(number, constant(number, last // 2)), rise, prims.sub(constant(rise, 2.0), rise))


def _cosine(number: Value, last: int, turns: int) -> Any:
    return prims.cos(scaled(number, 2.0 * math.pi * turns / last))


def _blackman(number: Value, last: int) -> Any:
    """0.42 - 0.5 cos(2 pi n / N) + 0.08 cos(4 pi n / N)."""
    once, twice = scaled(_cosine(number, last, 1), 0.5), scaled(_cosine(number, last, 2), 0.08)
    return prims.add(prims.sub(twice, once), constant(once, 0.42))


@decomposition(aten.bartlett_window.default, aten.bartlett_window.periodic)
def bartlett_window(out: TensorType, length: Any, periodic: bool = True, **_: Any) -> Any:
    return _window(out, periodic, _triangle)


@decomposition(aten.blackman_window.default, aten.blackman_window.periodic)
def blackman_window(out: TensorType, length: Any, periodic: bool = True, **_: Any) -> Any:
    return _window(out, periodic, _blackman)


@decomposition(
    aten.hamming_window.default,
    aten.hamming_window.periodic,
    aten.hamming_window.periodic_alpha,
    aten.hamming_window.periodic_alpha_beta,
)
def hamming_window(
    out: TensorType, length: Any, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, **_: Any
) -> Any:
    """alpha - beta cos(2 pi n / N)."""

    def shape(number: Value, last: int) -> Any:
        return prims.sub(constant(number, alpha), scaled(_cosine(number, last, 1), beta))

    return _window(out, periodic, shape)


@decomposition(aten.kaiser_window.default, aten.kaiser_window.periodic, aten.kaiser_window.beta)
def kaiser_window(out: TensorType, length: Any, periodic: bool = True, beta: float = 12.0, **_: Any) -> Any:
    """I0(beta sqrt(1 - (2 n / N - 1)^2)) / I0(beta)."""

    def shape(number: Value, last: int) -> Any:
        place = prims.sub(scaled(number, 2.0 / last), constant(number, 1.0))
        inside = prims.sub(constant(place, 1.0), prims.mul(place, place))
        root = prims.sqrt(prims.maximum(inside, constant(inside, 0.0)))
        return prims.div(prims.bessel_i0(scaled(root, beta)), prims.bessel_i0(constant(root, beta)))

    return _window(out, periodic, shape)
