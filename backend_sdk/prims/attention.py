"""Scaled dot-product attention and its gradient, as composites."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from backend_sdk import dtypes
from backend_sdk.prims.define import Operand, composite
from backend_sdk.prims.elementwise import add, div, eq, exp, ge, log, mul, select, sub
from backend_sdk.prims.linear import dot_general
from backend_sdk.prims.reduction import reduce_sum
from backend_sdk.prims.samples import tensor
from backend_sdk.prims.shape import broadcast, iota, reshape
from backend_sdk.prims.shorthand import along, cast, constant, largest_along, scaled, stretch
from backend_sdk.spec import DtypeVar, FromAttribute, Relative, Sample, Scalar, Shape, TensorType, differ, refuse
from backend_sdk.spec.symbolic import Dim

_FLOAT = DtypeVar("T", dtypes.FLOATING)
_MASK = DtypeVar("M", dtypes.FLOATING)
_WIDE = FromAttribute("statistics_dtype", dtypes.FLOATING)


def _attention_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    def make(*shape: int) -> torch.Tensor:
        return tensor(shape, dtype, generator, -1.0, 1.0)

    for size, heads, key_heads, length, keys, masked, causal in (
        (2, 2, 2, 5, 5, False, True),
        (2, 4, 2, 3, 7, False, False),
        (2, 2, 1, 4, 6, True, False),
        (2, 1, 1, 1, 9, False, False),
        (0, 2, 2, 5, 5, False, False),
    ):
        mask = make(1, 1, length, keys) if masked else None
        yield Sample(
            (make(size, heads, length, 8), make(size, key_heads, keys, 8), make(size, key_heads, keys, 8), mask),
            {"causal": causal, "scale": 0.3, "statistics_dtype": dtypes.compute_dtype(dtype)},
        )


def _attention_shape(
    query: TensorType,
    key: TensorType,
    value: TensorType,
    mask: TensorType | None,
    *,
    causal: bool,
    scale: Scalar,
    statistics_dtype: torch.dtype,
) -> list[Shape]:
    def wrong(reason: str) -> Exception:
        return refuse("attention", reason, query, key, value, mask)

    if any(x.rank != 4 for x in (query, key, value)):
        raise wrong("operands must be [batch, heads, length, width]")
    if not _divides(key.shape[1], query.shape[1]) or differ(key.shape[:3], value.shape[:3]):
        raise wrong("query heads must be a multiple of key heads, and keys and values must pair up")
    batch, heads, length, width = query.shape
    if differ((key.shape[0], key.shape[3]), (batch, width)):
        raise wrong("query and key must agree in batch and width")
    scores = (batch, heads, length, key.shape[2])
    if mask is not None and (
        mask.rank != 4 or any(m != 1 and differ((m,), (s,)) for m, s in zip(mask.shape, scores, strict=True))
    ):
        raise wrong(f"mask must be [batch or 1, heads or 1, length or 1, keys or 1], for scores {scores}")
    return [(batch, heads, length, value.shape[3]), (batch, heads, length)]


def _divides(groups: Dim, heads: Dim) -> bool:
    return heads % groups == 0 if isinstance(heads, int) and isinstance(groups, int) else groups == heads


def _repeat_heads(x: Operand, heads: int) -> Operand:
    """Key or value heads repeated so that each group of query heads has its own."""
    batch, own, length, width = x.shape
    if own == heads:
        return x
    shape = (batch, own, heads // own, length, width)
    return reshape(broadcast(x, shape=shape, dims=(0, 1, 3, 4)), shape=(batch, heads, length, width))


def _scores(query: Operand, key: Operand, mask: Operand | None, causal: bool, scale: Scalar) -> Operand:
    """scale * q k^T + mask, -inf where a causal query may not look; float32 or wider."""
    wide = dtypes.compute_dtype(query.dtype)
    raw = dot_general(cast(query, wide), cast(key, wide), contract=((3,), (3,)), batch=((0, 1), (0, 1)))
    scores = scaled(raw, scale)
    shape = tuple(scores.shape)
    if mask is not None:
        scores = add(scores, broadcast(cast(mask, wide), shape=shape, dims=(0, 1, 2, 3)))
    if causal:
        rows = along(iota(length=shape[2], dtype=torch.int64), (2,), shape)
        columns = along(iota(length=shape[3], dtype=torch.int64), (3,), shape)
        scores = select(ge(rows, columns), scores, constant(scores, -math.inf))
    return scores


@composite(
    shape=_attention_shape,
    operands=(_FLOAT, _FLOAT, _FLOAT, _MASK),
    results=(_FLOAT, _WIDE),
    tolerance=Relative(64),
    samples=_attention_samples,
    profiles=("inference",),
)
def attention(
    query: Operand,
    key: Operand,
    value: Operand,
    mask: Operand | None,
    *,
    causal: bool,
    scale: Scalar,
    statistics_dtype: torch.dtype,
) -> Operand:
    """softmax(scale * q k^T + mask) v, and the log-sum-exp of each row (Vaswani et al., arXiv:1706.03762).

    query ``[B, H, L, E]``, key ``[B, G, S, E]``, value ``[B, G, S, F]`` with G dividing H (grouped heads), mask
    additive and stretched over dims of size 1; ``causal`` lets query i see keys 0..i. Results ``[B, H, L, F]`` and
    ``[B, H, L]``. A query that may see no key gives zeros.
    """
    heads = query.shape[1]
    wide = dtypes.compute_dtype(query.dtype)
    scores = _scores(query, _repeat_heads(key, heads), mask, causal, scale)
    shape = tuple(scores.shape)
    largest = largest_along(scores, 3)
    blind = eq(largest, constant(largest, -math.inf))
    shift = select(blind, constant(largest, 0.0), largest)
    weights = exp(sub(scores, stretch(shift, (3,), shape)))
    total = reduce_sum(weights, axes=(3,))
    divisor = select(blind, constant(total, 1.0), total)
    from_values = dot_general(
        weights, cast(_repeat_heads(value, heads), wide), contract=((3,), (2,)), batch=((0, 1), (0, 1))
    )
    result = div(from_values, stretch(divisor, (3,), tuple(from_values.shape)))
    return cast(result, query.dtype), cast(add(shift, log(total)), statistics_dtype)


def _attention_grad_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    for sample in _attention_samples(dtype, generator):
        query, key, value, mask = sample.operands
        out, logsumexp = attention.reference(query, key, value, mask, **sample.attributes)
        grad = tensor(tuple(out.shape), dtype, generator, -1.0, 1.0)
        attributes = {name: sample.attributes[name] for name in ("causal", "scale")}
        yield Sample((grad, query, key, value, mask, out, logsumexp), attributes)


def _attention_grad_shape(
    grad: TensorType,
    query: TensorType,
    key: TensorType,
    value: TensorType,
    mask: TensorType | None,
    out: TensorType,
    logsumexp: TensorType,
    *,
    causal: bool,
    scale: Scalar,
) -> list[Shape]:
    if differ(grad.shape, out.shape) or differ(logsumexp.shape, out.shape[:3]):
        raise refuse("attention_grad", "grad and out must have one shape", grad, query, key, value, mask, out)
    return [query.shape, key.shape, value.shape]


_STATISTICS = DtypeVar("S", dtypes.FLOATING)


@composite(
    shape=_attention_grad_shape,
    operands=(_FLOAT, _FLOAT, _FLOAT, _FLOAT, _MASK, _FLOAT, _STATISTICS),
    results=(_FLOAT, _FLOAT, _FLOAT),
    tolerance=Relative(128),
    samples=_attention_grad_samples,
    profiles=("training",),
)
def attention_grad(
    grad: Operand,
    query: Operand,
    key: Operand,
    value: Operand,
    mask: Operand | None,
    out: Operand,
    logsumexp: Operand,
    *,
    causal: bool,
    scale: Scalar,
) -> Operand:
    """Gradients of `attention` with respect to query, key and value, from its results.

    With P = exp(scores - logsumexp), dV = P^T dO, dS = P * (dO V^T - rowsum(dO * O)), dQ = scale dS K,
    dK = scale dS^T Q (Dao et al., arXiv:2205.14135, appendix B.2); grouped heads are summed.
    """
    heads, groups = query.shape[1], key.shape[1]
    wide = dtypes.compute_dtype(query.dtype)
    keys, values = _repeat_heads(key, heads), _repeat_heads(value, heads)
    scores = _scores(query, keys, mask, causal, scale)
    shape = tuple(scores.shape)
    rows = cast(logsumexp, wide)
    # A blind query has logsumexp -inf and no gradient; 0 keeps exp(-inf - 0) = 0 where -inf - -inf is NaN.
    rows = select(eq(rows, constant(rows, -math.inf)), constant(rows, 0.0), rows)
    weights = exp(sub(scores, stretch(rows, (3,), shape)))
    upstream = cast(grad, wide)
    both = ((0, 1), (0, 1))
    value_grad = dot_general(weights, upstream, contract=((2,), (2,)), batch=both)
    weight_grad = dot_general(upstream, cast(values, wide), contract=((3,), (3,)), batch=both)
    row_sum = reduce_sum(mul(upstream, cast(out, wide)), axes=(3,))
    score_grad = scaled(mul(weights, sub(weight_grad, stretch(row_sum, (3,), shape))), scale)
    query_grad = dot_general(score_grad, cast(keys, wide), contract=((3,), (2,)), batch=both)
    key_grad = dot_general(score_grad, cast(query, wide), contract=((2,), (2,)), batch=both)
    return (
        cast(query_grad, query.dtype),
        cast(_sum_groups(key_grad, groups), key.dtype),
        cast(_sum_groups(value_grad, groups), value.dtype),
    )


def _sum_groups(x: Operand, groups: int) -> Operand:
    """Gradients of repeated heads, summed over the query heads that shared each."""
    batch, heads, length, width = x.shape
    if heads == groups:
        return x
    return reduce_sum(reshape(x, shape=(batch, groups, heads // groups, length, width)), axes=(2,))
