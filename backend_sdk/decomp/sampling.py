"""Rules for random integers, permutations, draws by weight and more continuous distributions.

Does not: draw from distributions that need rejection (`distributions.py`).
"""

from __future__ import annotations

import math
from typing import Any

import torch

from backend_sdk import dtypes, prims
from backend_sdk.decomp.promotion import spread
from backend_sdk.decomp.random import standard_normal
from backend_sdk.decomp.registry import decomposition
from backend_sdk.decomp.shape import slice_axis
from backend_sdk.graph import Value
from backend_sdk.prims.shorthand import along, cast, constant, scaled, stretch
from backend_sdk.spec import Shape, SymExpr, TensorType
from backend_sdk.spec.symbolic import element_count
from backend_sdk.torch_compat.ops import aten

# Ranges below this take the remainder of as many random bits, so that the most frequent number is at most twice as
# frequent as the rarest one, and in a range below 2^32 more frequent by a factor of 1 + 2^-30.
_SMALL_RANGE = 1 << 62


def _words(key: Value, stream: int, shape: Shape) -> Value:
    """64 random bits an element, int64."""
    number = element_count(shape)
    words = cast(prims.random_bits(key, stream=stream, shape=(2, number)), torch.int64)
    high, low = (slice_axis(words, 0, half, half + 1) for half in range(2))
    low = prims.bitwise_and(low, constant(low, (1 << 32) - 1))
    joined = prims.bitwise_or(prims.shift_left(high, constant(high, 32)), low)
    return prims.reshape(joined, shape=shape)  # type: ignore[no-any-return]


def _integers(key: Value, stream: int, shape: Shape) -> Value:
    """Integers of 62 random bits, int64, not negative."""
    words = _words(key, stream, shape)
    return prims.bitwise_and(words, constant(words, _SMALL_RANGE - 1))  # type: ignore[no-any-return]


def _wrapped(number: int) -> int:
    """An unsigned number of 64 bits as the signed one of the same bits."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _between(key: Value, stream: int, out: TensorType, low: Any, high: Any) -> Any:
    """Uniform integers in ``[low, high)``: a remainder, of 62 bits or, in a large range, of 64."""
    count = high - low
    if isinstance(count, SymExpr) or count <= _SMALL_RANGE:
        drawn = _integers(key, stream, out.shape)
        drawn = prims.fmod(drawn, constant(drawn, count))
    else:
        drawn = _words(key, stream, out.shape)
        # With the sign bit turned over, unsigned numbers have the order of signed ones.
        turn, size = constant(drawn, _wrapped(1 << 63)), constant(drawn, _wrapped(count))
        limit = constant(drawn, _wrapped(count - (1 << 63)))
        # At most three times a range above 2^62 goes into 2^64; all of 2^64 is a range that needs none.
        for _ in range(3 if count < 1 << 64 else 0):
            beyond = prims.ge(prims.bitwise_xor(drawn, turn), limit)
            drawn = prims.select(beyond, prims.sub(drawn, size), drawn)
    return cast(prims.add(drawn, constant(drawn, low)), out.dtype)


@decomposition(aten.randint.default, aten.randint.generator, draws=True)
def randint(out: TensorType, key: Value, stream: int, high: Any, size: Any, **_: Any) -> Any:
    return _between(key, stream, out, 0, high)


@decomposition(aten.randint.low, aten.randint.low_generator, draws=True)
def randint_from(out: TensorType, key: Value, stream: int, low: Any, high: Any, size: Any, **_: Any) -> Any:
    return _between(key, stream, out, low, high)


@decomposition(aten.randint_like.default, aten.randint_like.generator, draws=True)
def randint_like(out: TensorType, key: Value, stream: int, x: Value, high: Any, **_: Any) -> Any:
    return _between(key, stream, out, 0, high)


@decomposition(aten.randint_like.low_dtype, aten.randint_like.low_generator_dtype, draws=True)
def randint_like_from(out: TensorType, key: Value, stream: int, x: Value, low: Any, high: Any, **_: Any) -> Any:
    return _between(key, stream, out, low, high)


@decomposition(aten.randint_like.Tensor, aten.randint_like.Tensor_generator, draws=True)
def randint_like_tensor(out: TensorType, key: Value, stream: int, x: Value, high: Value, **_: Any) -> Any:
    drawn = _integers(key, stream, out.shape)
    count = along(prims.reshape(cast(high, torch.int64), shape=()), (), out.shape)
    return cast(prims.fmod(drawn, count), out.dtype)


def _greatest(dtype: torch.dtype) -> int:
    """The greatest integer up to which a dtype has all of them, where eager's ``random_`` ends by default."""
    if dtype in dtypes.FLOATING:
        return 1 << (dtypes.fraction_bits(dtype) + 1)
    return 1 if dtype == torch.bool else torch.iinfo(dtype).max


@decomposition(aten.random.default, draws=True)
def random(out: TensorType, key: Value, stream: int, x: Value, **_: Any) -> Any:
    return _between(key, stream, out, 0, _greatest(out.dtype) + 1)


@decomposition(aten.random.to, draws=True)
def random_to(out: TensorType, key: Value, stream: int, x: Value, high: int, **_: Any) -> Any:
    return _between(key, stream, out, 0, high)


@decomposition(aten.randperm.default, aten.randperm.generator, draws=True)
def randperm(out: TensorType, key: Value, stream: int, n: Any, **_: Any) -> Any:
    """The order of random integers. Two of n are equal with a chance below n^2 / 2^63; the lower index goes first."""
    _, order = prims.sort(_integers(key, stream, out.shape), axis=0, descending=False)
    return cast(order, out.dtype)


def _uniform(key: Value, stream: int, shape: Shape, dtype: torch.dtype) -> Value:
    return prims.random_uniform(key, stream=stream, shape=shape, dtype=dtypes.compute_dtype(dtype))  # type: ignore[no-any-return]


# The smallest exponential number: about half of what the first uniform number above 0 gives. None may be 0.
_LEAST = 2.0**-25


def exponential_of_rate_one(key: Value, stream: int, shape: Shape, dtype: torch.dtype) -> Value:
    """Exponential numbers of rate 1, by inversion, above 0, in the compute dtype."""
    u = _uniform(key, stream, shape, dtype)
    return prims.maximum(prims.neg(prims.log1p(prims.neg(u))), constant(u, _LEAST))  # type: ignore[no-any-return]


@decomposition(aten.exponential.default, draws=True)
def exponential(out: TensorType, key: Value, stream: int, x: Value, rate: float = 1.0, *, generator: Any = None) -> Any:
    return cast(scaled(exponential_of_rate_one(key, stream, out.shape, out.dtype), 1.0 / rate), out.dtype)


@decomposition(aten.geometric.default, draws=True)
def geometric(out: TensorType, key: Value, stream: int, x: Value, p: float, *, generator: Any = None) -> Any:
    """Trials up to the first success: an exponential number rounded up."""
    if p == 1.0:
        return constant(x, 1, out.dtype)
    wide = out.dtype if out.dtype in dtypes.FLOATING else torch.float64
    drawn = scaled(exponential_of_rate_one(key, stream, out.shape, wide), -1.0 / math.log1p(-p))
    return cast(prims.ceil(drawn), out.dtype)


@decomposition(aten.cauchy.default, draws=True)
def cauchy(
    out: TensorType,
    key: Value,
    stream: int,
    x: Value,
    median: float = 0.0,
    sigma: float = 1.0,
    *,
    generator: Any = None,
) -> Any:
    u = _uniform(key, stream, out.shape, out.dtype)
    angle = scaled(prims.sub(u, constant(u, 0.5)), math.pi)
    return cast(prims.add(scaled(prims.tan(angle), sigma), constant(u, median)), out.dtype)


def _normal(key: Value, stream: int, out: TensorType, center: Any, deviation: Any) -> Value:
    wide = dtypes.compute_dtype(out.dtype)
    drawn = standard_normal(key, stream, TensorType(out.shape, wide))
    return prims.add(prims.mul(drawn, spread(deviation, out.shape, wide)), spread(center, out.shape, wide))  # type: ignore[no-any-return]


@decomposition(aten.log_normal.default, draws=True)
def log_normal(
    out: TensorType,
    key: Value,
    stream: int,
    x: Value,
    center: float = 1.0,
    deviation: float = 2.0,
    *,
    generator: Any = None,
) -> Any:
    return cast(prims.exp(_normal(key, stream, out, center, deviation)), out.dtype)


@decomposition(
    aten.normal.Tensor_Tensor, aten.normal.Tensor_float, aten.normal.float_Tensor, aten.normal.float_float, draws=True
)
def normal(out: TensorType, key: Value, stream: int, mean: Any, std: Any = 1.0, size: Any = None, **_: Any) -> Any:
    if out.dtype not in dtypes.FLOATING | dtypes.COMPLEX:
        return NotImplemented
    return cast(_normal(key, stream, out, mean, std), out.dtype)


@decomposition(aten.rrelu_with_noise_functional.default, draws=True)
def rrelu_with_noise(
    out: tuple[TensorType, TensorType],
    key: Value,
    stream: int,
    x: Value,
    noise: Value,
    lower: float = 0.125,
    upper: float = 1.0 / 3.0,
    training: bool = False,
    generator: Any = None,
) -> Any:
    """In training each negative element has a random slope, which the noise remembers; else all have the mean one."""
    negative = prims.le(x, constant(x, 0))
    if not training:
        return prims.select(negative, scaled(x, (lower + upper) / 2.0), x), noise
    u = _uniform(key, stream, out[0].shape, out[0].dtype)
    slope = cast(prims.add(scaled(u, upper - lower), constant(u, lower)), x.dtype)
    slope = prims.select(negative, slope, constant(x, 1.0))
    return prims.mul(x, slope), cast(slope, out[1].dtype)


@decomposition(aten.multinomial.default, draws=True)
def multinomial(
    out: TensorType, key: Value, stream: int, x: Value, number: Any, replacement: bool = False, **_: Any
) -> Any:
    """Indices of the last dim, drawn by weight. Without replacement: the largest of the weights over exponential
    numbers (Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006), which eager takes too.
    """
    wide = dtypes.compute_dtype(x.dtype)
    weights = cast(x if x.ndim == 2 else prims.reshape(x, shape=(1, *x.shape)), wide)
    rows, size = weights.shape
    if not replacement or out.shape[-1] == 1:
        scores = prims.div(weights, exponential_of_rate_one(key, stream, weights.shape, wide))
        _, order = prims.sort(scores, axis=1, descending=True)
        return prims.reshape(slice_axis(order, 1, 0, out.shape[-1]), shape=out.shape)
    reached = prims.cumsum(weights, axis=1)
    total = slice_axis(reached, 1, size - 1, size)
    u = _uniform(key, stream, (rows, out.shape[-1]), wide)
    found = prims.searchsorted(reached, prims.mul(u, along(total, (0, 1), u.shape)), right=True)
    # A product that is rounded up to the total belongs to the last element that has a weight.
    last = prims.reshape(prims.searchsorted(reached, total, right=False), shape=(rows,))
    return prims.reshape(prims.minimum(found, stretch(last, (1,), found.shape)), shape=out.shape)
