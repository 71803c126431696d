"""Rules for scaled dot-product attention, which torch keeps whole: on the CPU, and in graphs for other devices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from backend_sdk import dtypes, prims
from backend_sdk.decomp.promotion import spread
from backend_sdk.decomp.registry import Declined, decomposition
from backend_sdk.graph import Value
from backend_sdk.prims.shorthand import along, cast, constant, scaled, stretch
from backend_sdk.spec import SymExpr, TensorType
from backend_sdk.torch_compat.ops import aten


def _mask_4d(mask: Value | None) -> Value | None:
    if mask is None or mask.ndim == 4:
        return mask
    return prims.reshape(mask, shape=(*(1,) * (4 - mask.ndim), *mask.shape))  # type: ignore[no-any-return]


_SYMBOLIC_WIDTH = Declined(
    "its heads have a symbolic width, by whose root the scores are divided: give a scale, compile with dynamic=False, "
    "or mark other dims only as dynamic"
)


def _scale(scale: Any, width: Any) -> Any:
    if scale is not None:
        return scale
    return None if isinstance(width, SymExpr) else 1.0 / math.sqrt(width)


def _divided_by_root(query: Value, scale: float | None) -> tuple[Value, float, Value | None]:
    """The query and the number that scales its scores. Where the width of the heads, by whose root they are divided, is
    symbolic, it is the query that is divided: then 1, and what it was multiplied by.
    """
    factor = _scale(scale, query.shape[3])
    if factor is not None:
        return query, factor, None
    root = prims.rsqrt(constant(query, query.shape[3]))
    return prims.mul(query, root), 1.0, root


@decomposition(aten._scaled_dot_product_flash_attention_for_cpu.default)
def flash_attention(
    out: tuple[TensorType, TensorType],
    query: Value,
    key: Value,
    value: Value,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> Any:
    if dropout_p != 0.0:
        return NotImplemented
    query, factor, _ = _divided_by_root(query, scale)
    result, logsumexp = prims.attention(
        query,
        key,
        value,
        _mask_4d(attn_mask),
        causal=is_causal,
        scale=factor,
        statistics_dtype=out[1].dtype,
    )
    return result, prims.reshape(logsumexp, shape=out[1].shape)


@decomposition(aten._scaled_dot_product_flash_attention_for_cpu_backward.default)
def flash_attention_backward(
    out: tuple[TensorType, ...],
    grad: Value,
    query: Value,
    key: Value,
    value: Value,
    result: Value,
    logsumexp: Value,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> Any:
    if dropout_p != 0.0:
        return NotImplemented
    query, factor, root = _divided_by_root(query, scale)
    rows = prims.reshape(logsumexp, shape=result.shape[:3])
    of_query, of_key, of_value = prims.attention_grad(
        grad,
        query,
        key,
        value,
        _mask_4d(attn_mask),
        result,
        rows,
        causal=is_causal,
        scale=factor,
    )
    return (of_query if root is None else prims.mul(of_query, root)), of_key, of_value


# ---- kernels of other devices, in graphs that are captured for them


def _attended(query: Value, key: Value, value: Value, bias: Value | None, causal: bool, scale: float) -> Any:
    return prims.attention(
        query, key, value, _mask_4d(bias), causal=causal, scale=scale, statistics_dtype=torch.float32
    )


def _nothing(type: TensorType) -> Any:
    """For the state of a random generator that nothing is drawn from."""
    return prims.full(shape=type.shape, value=0, dtype=type.dtype)


@decomposition(aten._scaled_dot_product_efficient_attention.default)
def efficient_attention(
    out: tuple[TensorType, ...],
    query: Value,
    key: Value,
    value: Value,
    attn_bias: Value | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    """The log-sum-exp of a row that there is not, up to a multiple of 32 rows, is infinity."""
    factor = _scale(scale, query.shape[3])
    if factor is None:
        return _SYMBOLIC_WIDTH
    if dropout_p != 0.0:
        return NotImplemented
    result, rows = _attended(query, key, value, attn_bias, is_causal, factor)
    if compute_log_sumexp:
        high = (0, 0, out[1].shape[2] - rows.shape[2])
        rows = prims.pad(rows, low=(0, 0, 0), high=high, interior=(0, 0, 0), value=math.inf)
    else:
        rows = _nothing(out[1])
    return result, rows, *map(_nothing, out[2:])


def _attended_back(
    grad: Value,
    query: Value,
    key: Value,
    value: Value,
    bias: Value | None,
    result: Value,
    rows: Value,
    wanted: Sequence[bool],
    causal: bool,
    scale: float,
) -> Any:
    """Gradients of query, key, value and of the bias, which is added to the scores."""
    length = query.shape[2]
    rows = prims.slice(rows, starts=(0, 0, 0), limits=(*rows.shape[:2], length), strides=(1, 1, 1))
    mask = _mask_4d(bias)
    grads = prims.attention_grad(grad, query, key, value, mask, result, rows, causal=causal, scale=scale)
    if bias is None or not wanted[3]:
        return *grads, None
    return *grads, _bias_grad(grad, query, key, value, bias, result, rows, causal, scale)


def _bias_grad(
    grad: Value,
    query: Value,
    key: Value,
    value: Value,
    bias: Value,
    result: Value,
    rows: Value,
    causal: bool,
    scale: float,
) -> Any:
    """P * (dO V^T - rowsum(dO * O)), P = exp(scores - logsumexp), summed where the bias was stretched (Dao et al.,
    arXiv:2205.14135, appendix B.2).
    """
    wide = dtypes.compute_dtype(query.dtype)
    both = ((0, 1), (0, 1))
    raw = prims.dot_general(cast(query, wide), cast(key, wide), contract=((3,), (3,)), batch=both)
    scores = prims.add(scaled(raw, scale), spread(bias, raw.shape, wide))
    shape = scores.shape
    weights = prims.exp(prims.sub(scores, stretch(cast(rows, wide), (3,), shape)))
    if causal:
        row = along(prims.iota(length=shape[2], dtype=torch.int64), (2,), shape)
        column = along(prims.iota(length=shape[3], dtype=torch.int64), (3,), shape)
        weights = prims.select(prims.ge(row, column), weights, constant(weights, 0.0))
    upstream = cast(grad, wide)
    of_weights = prims.dot_general(upstream, cast(value, wide), contract=((3,), (3,)), batch=both)
    row_sum = prims.reduce_sum(prims.mul(upstream, cast(result, wide)), axes=(3,))
    total = prims.mul(weights, prims.sub(of_weights, stretch(row_sum, (3,), shape)))
    sizes = (*(1,) * (4 - bias.ndim), *bias.shape)
    stretched = tuple(axis for axis in range(4) if sizes[axis] == 1 and shape[axis] != 1)
    summed = prims.reduce_sum(total, axes=stretched) if stretched else total
    return cast(prims.reshape(summed, shape=bias.shape), bias.dtype)


@decomposition(aten._scaled_dot_product_efficient_attention_backward.default)
def efficient_attention_backward(
    out: tuple[TensorType | None, ...],
    grad: Value,
    query: Value,
    key: Value,
    value: Value,
    attn_bias: Value | None,
    result: Value,
    logsumexp: Value,
    philox_seed: Value,
    philox_offset: Value,
    dropout_p: float,
    grad_input_mask: Sequence[bool],
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    factor = _scale(scale, query.shape[3])
    if factor is None:
        return _SYMBOLIC_WIDTH
    if dropout_p != 0.0 or key.shape[1] != query.shape[1]:
        return NotImplemented
    return _attended_back(grad, query, key, value, attn_bias, result, logsumexp, grad_input_mask, is_causal, factor)


@decomposition(aten._scaled_dot_product_fused_attention_overrideable.default)
def fused_attention(
    out: tuple[Any, ...],
    query: Value,
    key: Value,
    value: Value,
    attn_bias: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    factor = _scale(scale, query.shape[-1])
    if factor is None:
        return _SYMBOLIC_WIDTH
    if dropout_p != 0.0 or query.ndim != 4:
        return NotImplemented
    result, rows = _attended(query, key, value, attn_bias, is_causal, factor)
    return tuple(
        (result, rows)[index] if index < 2 else _nothing(type) if isinstance(type, TensorType) else type
        for index, type in enumerate(out)
    )


@decomposition(aten._scaled_dot_product_fused_attention_overrideable_backward.default)
def fused_attention_backward(
    out: tuple[TensorType | None, ...],
    grad: Value,
    query: Value,
    key: Value,
    value: Value,
    attn_bias: Value | None,
    grad_input_mask: Sequence[bool],
    result: Value,
    logsumexp: Value,
    cum_seq_q: Value | None,
    cum_seq_k: Value | None,
    max_q: Any,
    max_k: Any,
    dropout_p: float,
    is_causal: bool,
    philox_seed: Value,
    philox_offset: Value,
    *,
    scale: float | None = None,
) -> Any:
    factor = _scale(scale, query.shape[-1])
    if factor is None:
        return _SYMBOLIC_WIDTH
    if dropout_p != 0.0 or query.ndim != 4 or key.shape[1] != query.shape[1]:
        return NotImplemented
    return _attended_back(grad, query, key, value, attn_bias, result, logsumexp, (True,) * 4, is_causal, factor)
