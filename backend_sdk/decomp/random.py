"""Rules for random ops: distributions of the contract, each with a stream of its own in the graph's key."""

from __future__ import annotations

import math
from typing import Any

import torch

from backend_sdk import dtypes, prims
from backend_sdk.decomp.promotion import spread
from backend_sdk.decomp.registry import decomposition
from backend_sdk.graph import Value
from backend_sdk.prims.shorthand import cast, constant, scaled
from backend_sdk.spec import Prim, TensorType
from backend_sdk.torch_compat.ops import aten

# Streams of a graph are fewer than this. What a rule draws beside its first numbers it takes from streams above.
_STREAMS = 1 << 32


def substream(stream: int, part: int) -> int:
    """The stream of one of a rule's several draws, independent of all others of the graph."""
    return stream + part * _STREAMS


def _drawn(draw: Prim, key: Value, stream: int, out: TensorType) -> Any:
    """Numbers of a distribution; of a complex dtype each part is drawn by itself."""
    if out.dtype in dtypes.FLOATING:
        return draw(key, stream=stream, shape=out.shape, dtype=out.dtype)
    if out.dtype not in dtypes.COMPLEX:
        return NotImplemented
    part = TensorType(out.shape, out.dtype.to_real())
    return prims.complex(*(_drawn(draw, key, substream(stream, number), part) for number in range(2)))


def _uniform(key: Value, stream: int, out: TensorType) -> Any:
    return _drawn(prims.random_uniform, key, stream, out)


def standard_normal(key: Value, stream: int, out: TensorType) -> Any:
    """Numbers of mean 0 and variance 1, of a floating or complex dtype; `NotImplemented` for another."""
    drawn = _drawn(prims.random_normal, key, stream, out)
    # The variance is that of both parts together.
    return scaled(drawn, math.sqrt(0.5)) if out.dtype in dtypes.COMPLEX else drawn


def _moved(drawn: Any, factor: float, by: float) -> Any:
    """Draws, if there are any, times ``factor`` plus ``by``, which eager adds to both parts of complex ones."""
    if drawn is NotImplemented:
        return NotImplemented
    return prims.add(scaled(drawn, factor), constant(drawn, complex(by, by) if drawn.dtype in dtypes.COMPLEX else by))


def chosen(key: Value, stream: int, out: TensorType, probability: Any) -> Value:
    """True with the given probability. Float32 draws, so that a small probability is not rounded away."""
    draws = prims.random_uniform(key, stream=stream, shape=out.shape, dtype=torch.float32)
    return prims.lt(draws, spread(probability, out.shape, torch.float32))  # type: ignore[no-any-return]


# Overloads with a generator come here when it is None; one that is given is no value of the dialect.


@decomposition(aten.rand.default, aten.rand.generator, aten.rand_like.default, aten.rand_like.generator, draws=True)
def rand(out: TensorType, key: Value, stream: int, *_: Any, **__: Any) -> Any:
    return _uniform(key, stream, out)


@decomposition(aten.randn.default, aten.randn.generator, aten.randn_like.default, aten.randn_like.generator, draws=True)
def randn(out: TensorType, key: Value, stream: int, *_: Any, **__: Any) -> Any:
    return standard_normal(key, stream, out)


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
    return _moved(_uniform(key, stream, out), high - low, low)


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
    return _moved(standard_normal(key, stream, out), deviation, center)


@decomposition(aten.bernoulli.p, draws=True)
def bernoulli_p(out: TensorType, key: Value, stream: int, x: Value, p: Any = 0.5, *, generator: Any = None) -> Any:
    return cast(chosen(key, stream, out, p), out.dtype)


@decomposition(aten.bernoulli.Tensor, draws=True)
def bernoulli_of_tensor(out: TensorType, key: Value, stream: int, x: Value, p: Value, *, generator: Any = None) -> Any:
    return cast(chosen(key, stream, out, p), out.dtype)


@decomposition(aten.bernoulli.default, draws=True)
def bernoulli(out: TensorType, key: Value, stream: int, x: Value, *, generator: Any = None) -> Any:
    return cast(chosen(key, stream, out, x), out.dtype)


@decomposition(aten.native_dropout.default, draws=True)
def native_dropout(
    out: tuple[TensorType, TensorType], key: Value, stream: int, x: Value, p: float, train: bool | None
) -> Any:
    if train is False or p == 0.0:
        return x, constant(x, True, torch.bool)
    keep = chosen(key, stream, out[1], 1.0 - p)
    survivor = 0.0 if p == 1.0 else 1.0 / (1.0 - p)
    return prims.mul(prims.mul(x, cast(keep, x.dtype)), constant(x, survivor)), keep


@decomposition(aten.native_dropout_backward.default)
def native_dropout_backward(out: TensorType, grad: Value, mask: Value, scale: float) -> Any:
    kept = prims.mul(cast(grad, out.dtype), cast(mask, out.dtype))
    return prims.mul(kept, constant(kept, scale))
