"""Rules for scaled dot-product attention, which torch keeps whole on the CPU."""

from __future__ import annotations

import math
from typing import Any

from backend_sdk import prims
from backend_sdk.decomp.registry import decomposition
from backend_sdk.graph import Value
from backend_sdk.spec import SymExpr, TensorType
from backend_sdk.torch_compat.ops import aten


def _mask_4d(mask: Value | None) -> Value | None:
    if mask is None or mask.ndim == 4:
        return mask
    return prims.reshape(mask, shape=(*(1,) * (4 - mask.ndim), *mask.shape))  # type: ignore[no-any-return]


def _scale(scale: Any, width: Any) -> Any:
    if scale is not None:
        return scale
    return None if isinstance(width, SymExpr) else 1.0 / math.sqrt(width)


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
    factor = _scale(scale, query.shape[3])
    if dropout_p != 0.0 or factor is None:
        return NotImplemented
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
    factor = _scale(scale, query.shape[3])
    if dropout_p != 0.0 or factor is None:
        return NotImplemented
    rows = prims.reshape(logsumexp, shape=result.shape[:3])
    return prims.attention_grad(
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
