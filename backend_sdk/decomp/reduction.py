"""Rules for reductions, scans, sorting."""

from __future__ import annotations

from typing import Any

import torch

from backend_sdk import dtypes, prims
from backend_sdk.decomp.promotion import axes_of, axis_of
from backend_sdk.decomp.registry import decomposition
from backend_sdk.decomp.shape import slice_axis
from backend_sdk.graph import Value
from backend_sdk.prims.shorthand import cast, constant, count, stretch
from backend_sdk.prims.shorthand import mean as mean_over
from backend_sdk.spec import Prim, SymExpr, TensorType
from backend_sdk.spec.symbolic import larger, may_be_empty
from backend_sdk.torch_compat.ops import aten, prims_of_torch


def _reduced(prim: Prim, out: TensorType, x: Value, dims: Any) -> Any:
    """A reduction over ``dims``, in eager's shape (kept dims included)."""
    return prims.reshape(prim(x, axes=axes_of(dims, x.ndim)), shape=out.shape)


@decomposition(aten.sum.default, aten.sum.dim_IntList)
def sum(out: TensorType, x: Value, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return _reduced(prims.reduce_sum, out, cast(x, out.dtype), dim)


@decomposition(prims_of_torch.sum.default)
def prims_sum(out: TensorType, x: Value, dims: Any, *, output_dtype: Any = None) -> Any:
    value = cast(x, out.dtype)
    return prims.reduce_sum(value, axes=tuple(dims)) if dims else value


@decomposition(aten.mean.default, aten.mean.dim)
def mean(out: TensorType, x: Value, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    # 16-bit floats divide before they round, and a wider operand is not rounded before it is added up.
    wide = cast(x, dtypes.compute_dtype(out.dtype))
    return prims.reshape(cast(mean_over(wide, axes_of(dim, x.ndim)), out.dtype), shape=out.shape)


def prod_over(out: TensorType, x: Value, dims: Any) -> Any:
    """The product over ``dims`` (None: all). Of truth values, which have no product, it is whether all are true."""
    if out.dtype == torch.bool:
        return _truth_reduced(prims.reduce_min, True, out, x, dims)
    return _reduced(prims.reduce_prod, out, cast(x, out.dtype), dims)


@decomposition(aten.prod.default)
def prod(out: TensorType, x: Value, *, dtype: Any = None) -> Any:
    return prod_over(out, x, None)


@decomposition(aten.prod.dim_int)
def prod_dim(out: TensorType, x: Value, dim: int, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return prod_over(out, x, dim)


@decomposition(aten._aminmax.default, aten._aminmax.dim)
def aminmax(out: tuple[TensorType, TensorType], x: Value, dim: int | None = None, keepdim: bool = False) -> Any:
    return tuple(
        _reduced(prim, type, x, dim) for prim, type in zip((prims.reduce_min, prims.reduce_max), out, strict=True)
    )


@decomposition(aten.amax.default, aten.max.default)
def amax(out: TensorType, x: Value, dim: Any = (), keepdim: bool = False) -> Any:
    return _reduced(prims.reduce_max, out, x, dim)


@decomposition(aten.amin.default, aten.min.default)
def amin(out: TensorType, x: Value, dim: Any = (), keepdim: bool = False) -> Any:
    return _reduced(prims.reduce_min, out, x, dim)


@decomposition(aten.any.default, aten.any.dim, aten.any.dims, aten._is_any_true.default)
def any_(out: TensorType, x: Value, dim: Any = None, keepdim: bool = False) -> Any:
    return _truth_reduced(prims.reduce_max, False, out, x, dim)


@decomposition(aten.all.default, aten.all.dim, aten.all.dims, aten._is_all_true.default)
def all_(out: TensorType, x: Value, dim: Any = None, keepdim: bool = False) -> Any:
    return _truth_reduced(prims.reduce_min, True, out, x, dim)


def _truth_reduced(prim: Prim, empty: bool, out: TensorType, x: Value, dim: Any) -> Any:
    if dim == [] or dim == ():
        # No dims are reduced, where other reductions take an empty list for all.
        return cast(cast(x, torch.bool), out.dtype)
    axes = axes_of(dim, x.ndim)
    if 0 in [x.shape[axis] for axis in axes]:
        return prims.full(shape=out.shape, value=empty, dtype=out.dtype)
    truth = cast(x, torch.bool)
    if may_be_empty(tuple(x.shape[axis] for axis in axes)):
        # Nothing has no maximum, and its sum is 0: is there one that decides?
        decides = prims.bitwise_not(truth) if empty else truth
        number = prims.reduce_sum(cast(decides, torch.int64), axes=axes)
        found = prims.eq(number, constant(number, 0)) if empty else prims.ne(number, constant(number, 0))
        return cast(prims.reshape(found, shape=out.shape), out.dtype)
    return cast(prims.reshape(prim(truth, axes=axes), shape=out.shape), out.dtype)


def _arg(prim: Prim, out: TensorType, x: Value, dim: int | None) -> Any:
    if x.ndim == 0:
        return prims.full(shape=out.shape, value=0, dtype=torch.int64)
    if dim is None:
        return prims.reshape(
            prim(prims.reshape(x, shape=(count(x.shape, tuple(range(x.ndim))),)), axis=0), shape=out.shape
        )
    return prims.reshape(prim(x, axis=axis_of(dim, x.ndim)), shape=out.shape)


@decomposition(aten.argmax.default)
def argmax(out: TensorType, x: Value, dim: int | None = None, keepdim: bool = False) -> Any:
    return _arg(prims.argmax, out, x, dim)


@decomposition(aten.argmin.default)
def argmin(out: TensorType, x: Value, dim: int | None = None, keepdim: bool = False) -> Any:
    return _arg(prims.argmin, out, x, dim)


def _with_index(reduce: Prim, arg: Prim, out: tuple[TensorType, TensorType], x: Value, dim: int) -> Any:
    values, indices = out
    ordered = cast(x, torch.uint8) if x.dtype == torch.bool else x
    return _reduced(reduce, values, x, dim), _arg(arg, indices, ordered, dim)


@decomposition(aten.max.dim)
def max_dim(out: tuple[TensorType, TensorType], x: Value, dim: int, keepdim: bool = False) -> Any:
    return _with_index(prims.reduce_max, prims.argmax, out, x, dim)


@decomposition(aten.min.dim)
def min_dim(out: tuple[TensorType, TensorType], x: Value, dim: int, keepdim: bool = False) -> Any:
    return _with_index(prims.reduce_min, prims.argmin, out, x, dim)


@decomposition(aten.var_mean.correction)
def var_mean(
    out: tuple[TensorType, TensorType],
    x: Value,
    dim: Any = None,
    *,
    correction: Any = None,
    keepdim: bool = False,
) -> Any:
    if x.dtype in dtypes.COMPLEX:
        return NotImplemented
    variance, center = _moments(x, axes_of(dim, x.ndim), 1 if correction is None else correction)
    return tuple(
        prims.reshape(cast(part, type.dtype), shape=type.shape)
        for part, type in zip((variance, center), out, strict=True)
    )


@decomposition(aten.var.correction)
def var(out: TensorType, x: Value, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    if x.dtype in dtypes.COMPLEX:
        return NotImplemented
    variance, _ = _moments(x, axes_of(dim, x.ndim), 1 if correction is None else correction)
    return prims.reshape(cast(variance, out.dtype), shape=out.shape)


@decomposition(aten.std.correction)
def std(out: TensorType, x: Value, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    if x.dtype in dtypes.COMPLEX:
        return NotImplemented
    variance, _ = _moments(x, axes_of(dim, x.ndim), 1 if correction is None else correction)
    return prims.reshape(cast(prims.sqrt(variance), out.dtype), shape=out.shape)


def _moments(x: Value, axes: tuple[int, ...], correction: Any) -> tuple[Value, Value]:
    """Variance with n - correction degrees of freedom (at least 0, as torch does), and mean; both reduced."""
    wide = cast(x, dtypes.compute_dtype(x.dtype))
    center = mean_over(wide, axes)
    deviation = prims.sub(wide, stretch(center, axes, x.shape))
    squares = prims.reduce_sum(prims.mul(deviation, deviation), axes=axes)
    number = count(x.shape, axes)
    freedom = larger(number - correction, 0) if isinstance(number, SymExpr) else max(float(number) - correction, 0.0)
    return prims.div(squares, constant(squares, freedom)), center


@decomposition(aten.cumsum.default)
def cumsum(out: TensorType, x: Value, dim: int, *, dtype: Any = None) -> Any:
    value = cast(x, out.dtype)
    return prims.cumsum(value, axis=axis_of(dim, x.ndim)) if x.ndim else value


@decomposition(aten.cumprod.default)
def cumprod(out: TensorType, x: Value, dim: int, *, dtype: Any = None) -> Any:
    value = cast(x, out.dtype)
    return prims.cumprod(value, axis=axis_of(dim, x.ndim)) if x.ndim else value


@decomposition(aten.sort.default, aten.sort.stable)
def sort(
    out: tuple[TensorType, TensorType],
    x: Value,
    dim: int = -1,
    descending: bool = False,
    *,
    stable: Any = None,
) -> Any:
    if x.ndim == 0:
        return x, prims.full(shape=(), value=0, dtype=torch.int64)
    return prims.sort(x, axis=axis_of(dim, x.ndim), descending=descending)


@decomposition(aten.topk.default)
def topk(
    out: tuple[TensorType, TensorType],
    x: Value,
    k: Any,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
) -> Any:
    if x.ndim == 0:
        return x, prims.full(shape=(), value=0, dtype=torch.int64)
    axis = axis_of(dim, x.ndim)
    ordered = prims.sort(x, axis=axis, descending=largest)
    return tuple(slice_axis(part, axis, 0, out[0].shape[axis]) for part in ordered)


# ---- softmaxes


def _along_axis(prim: Prim, single: float, out: TensorType, x: Value, dim: int) -> Any:
    """A softmax; ``single`` is its value for one element. No element, no maximum: an empty x stays empty."""
    if x.ndim == 0 or 0 in x.shape:
        return constant(x, single, out.dtype)
    return prim(cast(x, out.dtype), axis=axis_of(dim, x.ndim))


@decomposition(aten._softmax.default)
def softmax(out: TensorType, x: Value, dim: int, half_to_float: bool) -> Any:
    return _along_axis(prims.softmax, 1.0, out, x, dim)


@decomposition(aten._safe_softmax.default)
def safe_softmax(out: TensorType, x: Value, dim: int, dtype: Any = None) -> Any:
    return _along_axis(prims.safe_softmax, 1.0, out, x, dim) if x.ndim else NotImplemented


@decomposition(aten._log_softmax.default)
def log_softmax(out: TensorType, x: Value, dim: int, half_to_float: bool) -> Any:
    return _along_axis(prims.log_softmax, 0.0, out, x, dim)


@decomposition(aten._softmax_backward_data.default)
def softmax_backward(out: TensorType, grad: Value, result: Value, dim: int, dtype: Any) -> Any:
    wide = dtypes.compute_dtype(grad.dtype)
    axes = (axis_of(dim, result.ndim),) if result.ndim else ()
    upstream, weights = cast(grad, wide), cast(result, wide)
    product = prims.mul(upstream, weights)
    total = stretch(prims.reduce_sum(product, axes=axes), axes, product.shape)
    return cast(prims.sub(product, prims.mul(weights, total)), out.dtype)


@decomposition(aten._log_softmax_backward_data.default)
def log_softmax_backward(out: TensorType, grad: Value, result: Value, dim: int, dtype: Any) -> Any:
    wide = dtypes.compute_dtype(grad.dtype)
    axes = (axis_of(dim, result.ndim),) if result.ndim else ()
    upstream, logs = cast(grad, wide), cast(result, wide)
    total = stretch(prims.reduce_sum(upstream, axes=axes), axes, upstream.shape)
    return cast(prims.sub(upstream, prims.mul(prims.exp(logs), total)), out.dtype)
