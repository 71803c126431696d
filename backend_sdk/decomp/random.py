"""Rules for random ops: distributions of the contract, each with a stream of its own in the graph's key."""

from __future__ import annotations

from typing import Any

import torch

from backend_sdk import dtypes, prims
from backend_sdk.decomp.promotion import spread
from backend_sdk.decomp.registry import decomposition
from backend_sdk.decomp.shape import slice_axis
from backend_sdk.graph import Value
from backend_sdk.prims.shorthand import cast, constant, scaled
from backend_sdk.spec import Shape, TensorType

aten = torch.ops.aten


def _uniform(key: Value, stream: int, out: TensorType) -> Value:
    return prims.random_uniform(key, stream=stream, shape=out.shape, dtype=out.dtype)  # type: ignore[no-any-return]


def _normal(key: Value, stream: int, out: TensorType) -> Value:
    return prims.random_normal(key, stream=stream, shape=out.shape, dtype=out.dtype)  # type: ignore[no-any-return]


def _chosen(key: Value, stream: int, out: TensorType, probability: Any) -> Value:
    """True with the given probability. Float32 draws, so that a small probability is not rounded away."""
    draws = prims.random_uniform(key, stream=stream, shape=out.shape, dtype=torch.float32)
    return prims.lt(draws, spread(probability, out.shape, torch.float32))  # type: ignore[no-any-return]


@decomposition(aten.rand.default, aten.rand_like.default, draws=True)
def rand(out: TensorType, key: Value, stream: int, *_: Any, **__: Any) -> Any:
    return _uniform(key, stream, out) if out.dtype in dtypes.FLOATING else NotImplemented


@decomposition(aten.randn.default, aten.randn_like.default, draws=True)
def randn(out: TensorType, key: Value, stream: int, *_: Any, **__: Any) -> Any:
    return _normal(key, stream, out) if out.dtype in dtypes.FLOATING else NotImplemented


@decomposition(aten.uniform.default, draws=True)
def uniform(
    out: TensorType,
    key: Value,
    stream: int,
    x: Value,
    low: float = 0.0,
    high: float = 1.0,
    *,
    generator: Any = None,
) -> Any:
    if out.dtype not in dtypes.FLOATING:
        return NotImplemented
    return prims.add(scaled(_uniform(key, stream, out), high - low), constant(x, low))


@decomposition(aten.normal_functional.default, draws=True)
def normal(
    out: TensorType,
    key: Value,
    stream: int,
    x: Value,
    center: float = 0.0,
    deviation: float = 1.0,
    *,
    generator: Any = None,
) -> Any:
    if out.dtype not in dtypes.FLOATING:
        return NotImplemented
    return prims.add(scaled(_normal(key, stream, out), deviation), constant(x, center))


@decomposition(aten.bernoulli.p, draws=True)
def bernoulli_p(out: TensorType, key: Value, stream: int, x: Value, p: Any = 0.5, *, generator: Any = None) -> Any:
    return cast(_chosen(key, stream, out, p), out.dtype)


@decomposition(aten.bernoulli.default, draws=True)
def bernoulli(out: TensorType, key: Value, stream: int, x: Value, *, generator: Any = None) -> Any:
    return cast(_chosen(key, stream, out, x), out.dtype)


@decomposition(aten.native_dropout.default, draws=True)
def native_dropout(
    out: tuple[TensorType, TensorType], key: Value, stream: int, x: Value, p: float, train: bool | None
) -> Any:
    if train is False or p == 0.0:
        return x, constant(x, True, torch.bool)
    keep = _chosen(key, stream, out[1], 1.0 - p)
    survivor = 0.0 if p == 1.0 else 1.0 / (1.0 - p)
    return prims.mul(prims.mul(x, cast(keep, x.dtype)), constant(x, survivor)), keep


@decomposition(aten.native_dropout_backward.default)
def native_dropout_backward(out: TensorType, grad: Value, mask: Value, scale: float) -> Any:
    kept = prims.mul(cast(grad, out.dtype), cast(mask, out.dtype))
    return prims.mul(kept, constant(kept, scale))


# ---- integers


def _wide_bits(key: Value, stream: int, shape: Shape) -> Value:
    """62 random bits an element, as int64: enough that taking them modulo a range has no bias worth naming."""
    words = cast(prims.random_bits(key, stream=stream, shape=(2, *shape)), torch.int64)
    low_31 = prims.bitwise_and(words, constant(words, 2**31 - 1))
    high, low = (prims.reshape(slice_axis(low_31, 0, part, part + 1), shape=shape) for part in (0, 1))
    return prims.bitwise_or(prims.shift_left(high, constant(high, 31)), low)  # type: ignore[no-any-return]


def _between(out: TensorType, key: Value, stream: int, low: Any, high: Any) -> Value:
    """Uniform integers in ``[low, high)``."""
    bits = _wide_bits(key, stream, out.shape)
    rest = prims.fmod(bits, constant(bits, high - low))
    return cast(prims.add(rest, constant(rest, low)), out.dtype)  # type: ignore[no-any-return]


@decomposition(aten.randint.default, draws=True)
def randint(out: TensorType, key: Value, stream: int, high: Any, size: Any, **_: Any) -> Any:
    return _between(out, key, stream, 0, high)


@decomposition(aten.randint.low, draws=True)
def randint_low(out: TensorType, key: Value, stream: int, low: Any, high: Any, size: Any, **_: Any) -> Any:
    return _between(out, key, stream, low, high)


@decomposition(aten.randint_like.default, draws=True)
def randint_like(out: TensorType, key: Value, stream: int, x: Value, high: Any, **_: Any) -> Any:
    return _between(out, key, stream, 0, high)


@decomposition(aten.randint_like.low_dtype, draws=True)
def randint_like_low(out: TensorType, key: Value, stream: int, x: Value, low: Any, high: Any, **_: Any) -> Any:
    return _between(out, key, stream, low, high)


@decomposition(aten.randperm.default, draws=True)
def randperm(out: TensorType, key: Value, stream: int, n: Any, **_: Any) -> Any:
    """The order that sorts random words. Two of n equal words, which would favour one order, have a chance below
    n^2 / 2^63.
    """
    _, order = prims.sort(_wide_bits(key, stream, out.shape), axis=0, descending=False)
    return cast(order, out.dtype)


@decomposition(aten.exponential.default, draws=True)
def exponential(
    out: TensorType, key: Value, stream: int, x: Value, lambd: float = 1.0, *, generator: Any = None
) -> Any:
    """-ln(1 - u) / lambd, with u in [0, 1)."""
    if out.dtype not in dtypes.FLOATING:
        return NotImplemented
    wide = dtypes.compute_dtype(out.dtype)
    draws = prims.random_uniform(key, stream=stream, shape=out.shape, dtype=wide)
    return cast(scaled(prims.neg(prims.log1p(prims.neg(draws))), 1.0 / lambd), out.dtype)
