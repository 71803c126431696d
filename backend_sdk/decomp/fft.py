"""Rules for Fourier transforms: aten's normalizations are a multiplication after the unscaled transform."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from backend_sdk import dtypes, prims
from backend_sdk.decomp.promotion import axis_of
from backend_sdk.decomp.registry import decomposition
from backend_sdk.graph import Value
from backend_sdk.prims.shorthand import cast, constant, count, scaled
from backend_sdk.spec import Shape, SymExpr, TensorType
from backend_sdk.torch_compat.ops import aten

# aten's codes (ATen/native/SpectralOpsUtils.h, fft_norm_mode): none, by the root of the element count, by the count.
_NONE, _BY_ROOT, _BY_COUNT = 0, 1, 2


def _axes(dims: Sequence[int], rank: int) -> tuple[int, ...]:
    return tuple(axis_of(dim, rank) for dim in dims)


def _normalized(x: Value, shape: Shape, axes: tuple[int, ...], normalization: int) -> Any:
    """x divided by the element count of ``shape`` along ``axes``, or by its root, as the code says."""
    if normalization == _NONE or not axes:
        return x
    number = count(shape, axes)
    if not isinstance(number, SymExpr):
        factor = number**-0.5 if normalization == _BY_ROOT else 1.0 / number
        return scaled(x, factor)
    divisor = constant(x, number)
    if normalization == _BY_ROOT:
        divisor = prims.sqrt(divisor)
    return prims.div(x, divisor)


@decomposition(aten._fft_c2c.default)
def fft_c2c(out: TensorType, x: Value, dim: Sequence[int], normalization: int, forward: bool) -> Any:
    axes = _axes(dim, x.ndim)
    return _normalized(prims.fft(x, axes=axes, inverse=not forward), x.shape, axes, normalization)


@decomposition(aten._fft_r2c.default)
def fft_r2c(out: TensorType, x: Value, dim: Sequence[int], normalization: int, onesided: bool) -> Any:
    if out.dtype not in dtypes.COMPLEX:
        # torch's complex32, which exists on CUDA only.
        return NotImplemented
    axes = _axes(dim, x.ndim)
    if onesided:
        result = prims.rfft(x, axes=axes)
    else:
        result = prims.fft(prims.complex(x, constant(x, 0.0)), axes=axes, inverse=False)
    return _normalized(result, x.shape, axes, normalization)


@decomposition(aten._fft_c2r.default)
def fft_c2r(out: TensorType, x: Value, dim: Sequence[int], normalization: int, last_dim_size: Any) -> Any:
    axes = _axes(dim, x.ndim)
    result = prims.irfft(x, axes=axes, size=out.shape[axes[-1]])
    return _normalized(result, out.shape, axes, normalization)


# ---- the frequencies of a transform's results, in cycles for each unit of the sample spacing


def _frequencies(out: TensorType, samples: int, spacing: float, first_negative: int | None) -> Any:
    """k / (samples * spacing) for k = 0, 1, ...; from ``first_negative`` on, k - samples in k's place."""
    wide = dtypes.compute_dtype(out.dtype)
    if wide not in dtypes.FLOATING:
        return NotImplemented
    number = prims.iota(length=out.shape[0], dtype=wide)
    if first_negative is not None:
        below = prims.sub(number, constant(number, samples))
        number = prims.select(prims.lt(number, constant(number, first_negative)), number, below)
    step = 1.0 / (samples * spacing) if samples * spacing else math.inf
    return cast(scaled(number, step), out.dtype)


@decomposition(aten.fft_fftfreq.default)
def fft_fftfreq(out: TensorType, n: Any, d: float = 1.0, **_: Any) -> Any:
    return NotImplemented if isinstance(n, SymExpr) else _frequencies(out, n, d, (n + 1) // 2)


@decomposition(aten.fft_rfftfreq.default)
def fft_rfftfreq(out: TensorType, n: Any, d: float = 1.0, **_: Any) -> Any:
    return NotImplemented if isinstance(n, SymExpr) else _frequencies(out, n, d, None)
