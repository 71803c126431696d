"""Random numbers: one counter-based prim, and distributions as composites over it.

A graph with random ops has a hidden input, the key, that the runner draws from torch's default generator at
each call; so `torch.manual_seed` fixes every number, and a graph stays a pure function of its inputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from backend_sdk import dtypes
from backend_sdk._native import philox_fill
from backend_sdk.prims.define import Operand, composite, prim
from backend_sdk.prims.elementwise import add, bitwise_and, convert, cos, log, mul, neg, shift_right, sqrt
from backend_sdk.prims.shape import full, reshape, slice
from backend_sdk.spec import Exact, FromAttribute, Relative, Sample, Shape, TensorType, refuse
from backend_sdk.spec.prim import ShapeRule
from backend_sdk.spec.symbolic import Dim, element_count

_KEY = torch.int64


def key(seed: int) -> torch.Tensor:
    """The key operand, int64 ``[1]``, for a seed."""
    return torch.tensor([seed], dtype=_KEY)


def _bits_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    for shape in ((), (5,), (3, 4), (0,)):
        yield Sample((key(1234),), {"stream": 3, "shape": shape})


def _random_shape(key: TensorType, *, stream: int, shape: Shape) -> Shape:
    return _drawn("random_bits", key, shape)


def _drawn(op: str, key: TensorType, shape: Shape) -> Shape:
    if key.shape != (1,):
        raise refuse(op, "the key must be int64[1]", key)
    return shape


@prim(
    shape=_random_shape,
    operands=(_KEY,),
    results=(torch.int32,),
    tolerance=Exact(),
    samples=_bits_samples,
    profiles=("random",),
    differentiable=False,
)
def random_bits(key: Operand, *, stream: int, shape: Shape) -> Operand:
    """32 random bits an element: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
    SC 2011). Element ``i`` in row-major order is word ``i % 4`` of the block with counter
    ``(i // 4, stream)`` (two words each, low word first) under the 64-bit ``key``.
    """
    out = torch.empty(math.prod(shape), dtype=torch.int32)  # type: ignore[arg-type]
    # The stubs of numpy for Python 3.11 do not say that an array is a buffer.
    words: Any = out.numpy()
    philox_fill(words, int(key.item()) & (2**64 - 1), stream)
    return out.reshape(shape)  # type: ignore[arg-type]


def _distribution_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    if dtype in dtypes.FLOATING:
        for shape in ((), (7,), (3, 4), (0,)):
            yield Sample((key(99),), {"stream": 1, "shape": shape, "dtype": dtype})


def _distribution_shape(op: str) -> ShapeRule:
    def shape_of(key: TensorType, *, stream: int, shape: Shape, dtype: torch.dtype) -> Shape:
        return _drawn(op, key, shape)

    return shape_of


def _scaled_bits(bits: Operand, kept: int, scale: float, dtype: torch.dtype) -> Operand:
    """The top ``kept`` bits of int32 ``bits`` as an unsigned integer, times ``scale``, exactly, in ``dtype``."""
    shape = tuple(bits.shape)

    def constant(value: int) -> Operand:
        return full(shape=shape, value=value, dtype=torch.int32)

    high = bitwise_and(shift_right(bits, constant(32 - kept)), constant((1 << kept) - 1))
    return mul(convert(high, dtype=dtype), full(shape=shape, value=scale, dtype=dtype))


# Random bits that fill the significand, so that every value is exact and 1.0 is never reached.
_SIGNIFICAND_BITS = {torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}


@composite(
    shape=_distribution_shape("random_uniform"),
    operands=(_KEY,),
    results=(FromAttribute("dtype", dtypes.FLOATING),),
    tolerance=Exact(),
    samples=_distribution_samples,
    profiles=("random",),
    differentiable=False,
)
def random_uniform(key: Operand, *, stream: int, shape: Shape, dtype: torch.dtype) -> Operand:
    """Uniform in [0, 1): the top 24 (float32), 11 (float16) or 8 (bfloat16) bits of `random_bits` times a power
    of two; for float64 53 bits of two words.
    """
    if dtype != torch.float64:
        kept = _SIGNIFICAND_BITS[dtype]
        return _scaled_bits(random_bits(key, stream=stream, shape=tuple(shape)), kept, 2.0**-kept, dtype)
    high, low = _two_words(key, stream, shape)
    return add(_scaled_bits(high, 31, 2.0**-31, dtype), _scaled_bits(low, 22, 2.0**-53, dtype))


def _two_words(key: Operand, stream: int, shape: Shape) -> tuple[Operand, Operand]:
    """Two independent words an element, from one stream of twice the length."""
    count: Dim = element_count(tuple(shape))
    words = random_bits(key, stream=stream, shape=(2, count))
    first = slice(words, starts=(0, 0), limits=(1, count), strides=(1, 1))
    second = slice(words, starts=(1, 0), limits=(2, count), strides=(1, 1))
    return reshape(first, shape=tuple(shape)), reshape(second, shape=tuple(shape))


@composite(
    shape=_distribution_shape("random_normal"),
    operands=(_KEY,),
    results=(FromAttribute("dtype", dtypes.FLOATING),),
    tolerance=Relative(64),
    samples=_distribution_samples,
    profiles=("random",),
    differentiable=False,
)
def random_normal(key: Operand, *, stream: int, shape: Shape, dtype: torch.dtype) -> Operand:
    """Standard normal by the Box-Muller transform (Box and Muller, 1958): sqrt(-2 ln u) cos(2 pi v), u in (0, 1].

    Computed in float32 (float64 for float64) and rounded once.
    """
    wide = dtypes.compute_dtype(dtype)
    shape = tuple(shape)

    def constant(value: float) -> Operand:
        return full(shape=shape, value=value, dtype=wide)

    first, second = _two_words(key, stream, shape)
    # u = (k + 1) / 2**24 lies in (0, 1], so that its logarithm is finite.
    u = add(_scaled_bits(first, 24, 2.0**-24, wide), constant(2.0**-24))
    v = _scaled_bits(second, 24, 2.0**-24, wide)
    radius = sqrt(mul(neg(log(u)), constant(2.0)))
    return convert(mul(radius, cos(mul(v, constant(2.0 * math.pi)))), dtype=dtype)
