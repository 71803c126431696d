"""Rules for the fused layers that torch's transformer modules call in inference: multi-head attention, an encoder
layer, and the masked softmax within.

Does not: hold scaled dot-product attention (`attention.py`).
"""

from __future__ import annotations

import math
from typing import Any

import torch

from backend_sdk import dtypes, prims
from backend_sdk.decomp.promotion import axis_of
from backend_sdk.decomp.registry import decomposition
from backend_sdk.decomp.shape import slice_axis
from backend_sdk.graph import Value
from backend_sdk.prims.shorthand import along, cast, constant, mean, scaled, stretch, trailing
from backend_sdk.spec import Shape, SymExpr, TensorType
from backend_sdk.spec.symbolic import is_symbolic
from backend_sdk.torch_compat.ops import aten

# torch's numbers for what a mask says: pairs of places, padded keys, or each score.
_PAIRS, _KEYS, _EACH = 0, 1, 2


def _hidden(mask: Value, shape: Shape, mask_type: int | None) -> Value:
    """Which scores, in their shape, a mask hides: all but 0 of it, and so -inf of an additive one."""
    hides = cast(mask, torch.bool)
    if mask_type == _KEYS and mask.ndim == 2:
        return along(hides, (0, len(shape) - 1), shape)  # type: ignore[no-any-return]
    return trailing(hides, shape)  # type: ignore[no-any-return]


def _masked(scores: Value, mask: Value, mask_type: int | None) -> Value:
    return prims.select(_hidden(mask, scores.shape, mask_type), constant(scores, -math.inf), scores)  # type: ignore[no-any-return]


@decomposition(aten._masked_softmax.default)
def masked_softmax(out: TensorType, x: Value, mask: Value, dim: int | None = None, mask_type: int | None = None) -> Any:
    """What the mask hides gets 0; NaN where it hides all."""
    if x.ndim == 0:
        return NotImplemented
    return prims.softmax(_masked(x, mask, mask_type), axis=axis_of(-1 if dim is None else dim, x.ndim))


@decomposition(aten._masked_softmax_backward.default)
def masked_softmax_backward(out: TensorType, grad: Value, result: Value, mask: Value, dim: int | None = None) -> Any:
    if result.ndim == 0:
        return NotImplemented
    axis = axis_of(-1 if dim is None else dim, result.ndim)
    wide = dtypes.compute_dtype(grad.dtype)
    upstream, weights = cast(grad, wide), cast(result, wide)
    hides = _hidden(mask, result.shape, _EACH)
    zero = constant(weights, 0.0)
    product = prims.select(hides, zero, prims.mul(upstream, weights))
    total = stretch(prims.reduce_sum(product, axes=(axis,)), (axis,), product.shape)
    slope = prims.sub(product, prims.mul(weights, total))
    return cast(prims.select(hides, zero, slope), out.dtype)


def _heads(x: Value, number: int) -> Value:
    """``[B, T, H * D]`` as ``[B, H, T, D]``."""
    batch, length, width = x.shape
    split = prims.reshape(x, shape=(batch, length, number, width // number))
    return prims.permute(split, dims=(0, 2, 1, 3))  # type: ignore[no-any-return]


def _joined(x: Value) -> Value:
    batch, heads, length, width = x.shape
    return prims.reshape(prims.permute(x, dims=(0, 2, 1, 3)), shape=(batch, length, heads * width))  # type: ignore[no-any-return]


def _part(x: Value, index: int, size: int) -> Value:
    """Rows ``index * size`` and the ``size - 1`` after it."""
    rest = tuple(0 for _ in x.shape[1:])
    start = index * size
    return prims.slice(  # type: ignore[no-any-return]
        x, starts=(start, *rest), limits=(start + size, *x.shape[1:]), strides=(1,) * x.ndim
    )


def _attended(
    inputs: tuple[Value, Value, Value],
    heads: int,
    weight: Value,
    bias: Value,
    mask: Value | None,
    mask_type: int | None,
    wanted: bool,
) -> tuple[Value, Value | None]:
    """The heads' results side by side, ``[B, T, H * D]``, and, if ``wanted``, the weights ``[B, H, T, T]``.

    ``weight`` and ``bias`` project to queries, keys and values, in this order.
    """
    width: Any = weight.shape[0] // 3
    query, key, value = (
        _heads(prims.linear(x, _part(weight, index, width), _part(bias, index, width)), heads)
        for index, x in enumerate(inputs)
    )
    scale = 1.0 / math.sqrt(width // heads)
    wide = dtypes.compute_dtype(query.dtype)
    if mask is None and not wanted:
        # Not with a mask: a query from which it hides all keys gives NaN, and zeros with `attention`.
        result, _ = prims.attention(query, key, value, None, causal=False, scale=scale, statistics_dtype=wide)
        return _joined(result), None
    both = ((0, 1), (0, 1))
    scores = prims.dot_general(scaled(query, scale), key, contract=((3,), (3,)), batch=both)
    if mask is not None:
        scores = _masked(scores, mask, mask_type)
    weights = prims.softmax(scores, axis=3)
    return _joined(prims.dot_general(weights, value, contract=((3,), (2,)), batch=both)), weights


def _is_covered(query: Value, weight: Value) -> bool:
    return query.ndim == 3 and 0 not in query.shape and not is_symbolic(weight.shape)


@decomposition(aten._native_multi_head_attention.default)
def native_multi_head_attention(
    out: tuple[TensorType, TensorType],
    query: Value,
    key: Value,
    value: Value,
    embed_dim: int,
    num_head: int,
    qkv_weight: Value,
    qkv_bias: Value,
    proj_weight: Value,
    proj_bias: Value,
    mask: Value | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> Any:
    if not _is_covered(query, qkv_weight) or key.shape != query.shape or value.shape != query.shape:
        return NotImplemented
    joined, weights = _attended((query, key, value), num_head, qkv_weight, qkv_bias, mask, mask_type, need_weights)
    result = prims.linear(joined, proj_weight, proj_bias)
    if not need_weights or weights is None:
        return result, prims.full(shape=out[1].shape, value=0, dtype=out[1].dtype)
    if average_attn_weights:
        weights = cast(mean(cast(weights, dtypes.compute_dtype(weights.dtype)), (1,)), weights.dtype)
    return result, weights


@decomposition(aten._transformer_encoder_layer_fwd.default)
def transformer_encoder_layer(
    out: TensorType,
    x: Value,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Value,
    qkv_bias: Value,
    proj_weight: Value,
    proj_bias: Value,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Value,
    norm_bias_1: Value,
    norm_weight_2: Value,
    norm_bias_2: Value,
    ffn_weight_1: Value,
    ffn_bias_1: Value,
    ffn_weight_2: Value,
    ffn_bias_2: Value,
    mask: Value | None = None,
    mask_type: int | None = None,
) -> Any:
    """Attention and a feed-forward network, each added to its input and normalized before (``norm_first``) or after
    (Vaswani et al., arXiv:1706.03762; Xiong et al., arXiv:2002.04745).
    """
    if not _is_covered(x, qkv_weight):
        return NotImplemented
    wide = dtypes.compute_dtype(x.dtype)

    def normalized(x: Value, weight: Value, bias: Value) -> Value:
        return prims.layer_norm(x, weight, bias, rank=1, epsilon=eps, statistics_dtype=wide)[0]  # type: ignore[no-any-return]

    def attended(x: Value) -> Value:
        joined, _ = _attended((x, x, x), num_heads, qkv_weight, qkv_bias, mask, mask_type, False)
        return prims.linear(joined, proj_weight, proj_bias)  # type: ignore[no-any-return]

    def transformed(x: Value) -> Value:
        hidden = prims.linear(x, ffn_weight_1, ffn_bias_1)
        active = prims.gelu(hidden, approximate="none") if use_gelu else prims.relu(hidden)
        return prims.linear(active, ffn_weight_2, ffn_bias_2)  # type: ignore[no-any-return]

    first, second = (norm_weight_1, norm_bias_1), (norm_weight_2, norm_bias_2)
    if norm_first:
        x = prims.add(x, attended(normalized(x, *first)))
        return prims.add(x, transformed(normalized(x, *second)))
    x = normalized(prims.add(x, attended(x)), *first)
    return normalized(prims.add(x, transformed(x)), *second)


@decomposition(aten._transform_bias_rescale_qkv.default)
def transform_bias_rescale_qkv(out: tuple[TensorType, ...], qkv: Value, qkv_bias: Value, num_heads: int) -> Any:
    """``qkv[batch, time, 3 * dim]`` and its bias as query, key and value ``[batch, head, time, width]``, the query
    divided by the square root of ``width``.
    """
    batch, heads, time, width = out[0].shape
    if isinstance(width, SymExpr):
        return NotImplemented
    biased = prims.add(qkv, trailing(cast(qkv_bias, qkv.dtype), qkv.shape))
    parts = prims.permute(prims.reshape(biased, shape=(batch, time, 3, heads, width)), dims=(2, 0, 3, 1, 4))
    query, key, value = (prims.reshape(slice_axis(parts, 0, at, at + 1), shape=out[at].shape) for at in range(3))
    return scaled(query, 1 / math.sqrt(width)), key, value
