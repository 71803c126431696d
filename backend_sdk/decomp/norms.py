"""Rules for sums of powers, and for weights with a norm of their own.

Does not: hold norms that torch itself makes of other ops (linalg_vector_norm, linalg_matrix_norm, ...).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from backend_sdk import dtypes, prims
from backend_sdk.decomp.promotion import axes_of, axis_of
from backend_sdk.decomp.registry import decomposition
from backend_sdk.graph import Value
from backend_sdk.prims.shorthand import cast, constant, keepdim
from backend_sdk.spec import TensorType
from backend_sdk.torch_compat.ops import aten


def _sizes(x: Value, dtype: torch.dtype) -> Value:
    """|x| in the dtype to compute a result of ``dtype`` in."""
    sizes = prims.hypot(prims.real(x), prims.imag(x)) if x.dtype in dtypes.COMPLEX else prims.abs(x)
    return cast(sizes, dtypes.compute_dtype(dtype))  # type: ignore[no-any-return]


def _powers(sizes: Value, order: Any) -> Value:
    if order == 1:
        return sizes
    if order == 2:
        return prims.mul(sizes, sizes)  # type: ignore[no-any-return]
    return prims.pow(sizes, constant(sizes, order))  # type: ignore[no-any-return]


@decomposition(aten.linalg__powsum.default)
def power_sum(
    out: TensorType, x: Value, order: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    """The sum of |x|^order."""
    if x.dtype not in dtypes.FLOATING | dtypes.COMPLEX or out.dtype not in dtypes.FLOATING:
        return NotImplemented
    powers = _powers(_sizes(x, out.dtype), order)
    total = prims.reduce_sum(powers, axes=axes_of(dim, x.ndim))
    return prims.reshape(cast(total, out.dtype), shape=out.shape)


@decomposition(aten._foreach_powsum.Scalar)
def power_sums(out: tuple[TensorType, ...], tensors: Sequence[Value], order: Any = 2, dtype: Any = None) -> Any:
    return tuple(power_sum(type, x, order) for type, x in zip(out, tensors, strict=True))


@decomposition(aten._weight_norm_interface_backward.default)
def weight_norm_backward(
    out: tuple[TensorType, TensorType], grad: Value, v: Value, g: Value, norms: Value, dim: int
) -> Any:
    """Of w = g v / |v| with the norms over all dims but ``dim``: dg = sum(dw v) / |v| and
    dv = g / |v| (dw - v sum(dw v) / |v|^2) (Salimans and Kingma, arXiv:1602.07868, equation 3).
    """
    wide = dtypes.compute_dtype(v.dtype)
    axis = axis_of(dim, v.ndim)
    axes = tuple(other for other in range(v.ndim) if other != axis)
    upstream, direction = cast(grad, wide), cast(v, wide)
    every = tuple(range(v.ndim))
    total = keepdim(prims.reduce_sum(prims.mul(upstream, direction), axes=axes), axes)
    length = prims.reshape(cast(norms, wide), shape=total.shape)
    magnitude = prims.reshape(cast(g, wide), shape=total.shape)

    def along_rows(x: Value) -> Any:
        return prims.broadcast(x, shape=v.shape, dims=every)

    share = prims.div(total, prims.mul(length, length))
    tangent = prims.sub(upstream, prims.mul(direction, along_rows(share)))
    of_v = prims.mul(along_rows(prims.div(magnitude, length)), tangent)
    of_g = prims.reshape(prims.div(total, length), shape=out[1].shape)
    return cast(of_v, out[0].dtype), cast(of_g, out[1].dtype)
