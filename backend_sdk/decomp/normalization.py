"""Rules for normalizations, their gradients and running statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from backend_sdk import dtypes, prims
from backend_sdk.decomp.registry import Declined, decomposition
from backend_sdk.graph import Value
from backend_sdk.prims.shorthand import along, cast, constant, count, mean, scaled, stretch
from backend_sdk.spec import SymExpr, TensorType
from backend_sdk.torch_compat.ops import aten


@decomposition(aten.native_layer_norm.default)
def native_layer_norm(
    out: tuple[TensorType, ...],
    x: Value,
    normalized_shape: Sequence[Any],
    weight: Value | None,
    bias: Value | None,
    eps: float,
) -> Any:
    if 0 in x.shape:
        return NotImplemented
    return prims.layer_norm(
        x,
        None if weight is None else cast(weight, x.dtype),
        None if bias is None else cast(bias, x.dtype),
        rank=len(normalized_shape),
        epsilon=eps,
        statistics_dtype=out[1].dtype,
    )


@decomposition(aten.native_layer_norm_backward.default)
def native_layer_norm_backward(
    out: tuple[TensorType | None, ...],
    grad: Value,
    x: Value,
    normalized_shape: Sequence[Any],
    mean_: Value,
    rstd: Value,
    weight: Value | None,
    bias: Value | None,
    output_mask: Sequence[bool],
) -> Any:
    """dx = (g - mean(g) - n mean(g n)) / sigma over the normalized dims, g = grad * weight, n = (x - mean) / sigma."""
    wide = dtypes.compute_dtype(x.dtype)
    rank = len(normalized_shape)
    inner, outer = tuple(range(x.ndim - rank, x.ndim)), tuple(range(x.ndim - rank))
    every = tuple(range(x.ndim))

    def statistic(value: Value) -> Value:
        return prims.broadcast(cast(value, wide), shape=x.shape, dims=every)  # type: ignore[no-any-return]

    upstream = cast(grad, wide)
    inverse = statistic(rstd)
    normal = prims.mul(prims.sub(cast(x, wide), statistic(mean_)), inverse)
    input_grad = weight_grad = bias_grad = None
    if output_mask[0]:
        scaled_grad = upstream
        if weight is not None:
            scaled_grad = prims.mul(upstream, along(cast(weight, wide), inner, x.shape))
        shift = stretch(mean(scaled_grad, inner), inner, x.shape)
        tilt = stretch(mean(prims.mul(scaled_grad, normal), inner), inner, x.shape)
        centered = prims.sub(prims.sub(scaled_grad, shift), prims.mul(normal, tilt))
        input_grad = cast(prims.mul(centered, inverse), x.dtype)
    if output_mask[1] and weight is not None:
        weight_grad = cast(prims.reduce_sum(prims.mul(upstream, normal), axes=outer), weight.dtype)
    if output_mask[2] and bias is not None:
        bias_grad = cast(prims.reduce_sum(upstream, axes=outer), bias.dtype)
    return input_grad, weight_grad, bias_grad


@decomposition(aten._fused_rms_norm.default)
def fused_rms_norm(
    out: tuple[TensorType, ...],
    x: Value,
    normalized_shape: Sequence[Any],
    weight: Value | None,
    eps: float | None,
) -> Any:
    return prims.rms_norm(
        x,
        None if weight is None else cast(weight, x.dtype),
        rank=len(normalized_shape),
        epsilon=torch.finfo(x.dtype).eps if eps is None else eps,
        statistics_dtype=out[1].dtype,
    )


@decomposition(aten.native_group_norm.default)
def native_group_norm(
    out: tuple[TensorType, ...],
    x: Value,
    weight: Value | None,
    bias: Value | None,
    n: Any,
    c: Any,
    hxw: Any,
    group: int,
    eps: float,
) -> Any:
    if 0 in x.shape:
        return NotImplemented
    return prims.group_norm(
        x,
        None if weight is None else cast(weight, x.dtype),
        None if bias is None else cast(bias, x.dtype),
        groups=group,
        epsilon=eps,
        statistics_dtype=out[1].dtype,
    )


# ---- batch normalization


@decomposition(aten._native_batch_norm_legit_no_training.default)
def batch_norm_inference(
    out: tuple[TensorType, ...],
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    momentum: float,
    eps: float,
) -> Any:
    y = prims.batch_norm_inference(x, weight, bias, running_mean, running_var, epsilon=eps)
    saved = [prims.full(shape=type.shape, value=0, dtype=type.dtype) for type in out[1:]]
    return (y, *saved)


@decomposition(aten._native_batch_norm_legit_functional.default)
def batch_norm_functional(
    out: tuple[TensorType, ...],
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    if not training:
        y = prims.batch_norm_inference(x, weight, bias, running_mean, running_var, epsilon=eps)
        saved = [prims.full(shape=type.shape, value=0, dtype=type.dtype) for type in out[1:3]]
        return (y, *saved, cast(running_mean, out[3].dtype), cast(running_var, out[4].dtype))
    y, center, variance, inverse = _train(out, x, weight, bias, eps)
    old = cast(running_mean, out[3].dtype), cast(running_var, out[4].dtype)
    number = count(x.shape, tuple(dim for dim in range(x.ndim) if dim != 1))
    correction = number / (number - 1) if not isinstance(number, SymExpr) and number > 1 else None
    if correction is None:
        unbiased = _unbiased(variance, number)
    else:
        unbiased = scaled(variance, correction)
    return (
        y,
        center,
        inverse,
        _running(old[0], center, momentum),
        _running(old[1], unbiased, momentum),
    )


@decomposition(aten._native_batch_norm_legit.no_stats)
def batch_norm_without_statistics(
    out: tuple[TensorType, ...],
    x: Value,
    weight: Value | None,
    bias: Value | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    y, center, _, inverse = _train(out, x, weight, bias, eps)
    return y, center, inverse


def _train(
    out: tuple[TensorType, ...], x: Value, weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, Value, Value, Value]:
    y, center, variance = prims.batch_norm_training(x, weight, bias, epsilon=eps, statistics_dtype=out[1].dtype)
    inverse = prims.rsqrt(prims.add(variance, constant(variance, eps)))
    return y, center, variance, inverse


def _unbiased(variance: Value, number: Any) -> Value:
    """variance * n / (n - 1), with n known when the graph runs; NaN for n = 1, as in eager."""
    factor = prims.div(constant(variance, number), constant(variance, number - 1))
    return prims.mul(variance, factor)  # type: ignore[no-any-return]


def _running(old: Value, new: Value, momentum: float) -> Value:
    """(1 - momentum) * old + momentum * new, in the running statistic's dtype."""
    return prims.add(scaled(old, 1.0 - momentum), scaled(cast(new, old.dtype), momentum))  # type: ignore[no-any-return]


@decomposition(aten.native_batch_norm_backward.default)
def native_batch_norm_backward(
    out: tuple[TensorType | None, ...],
    grad: Value,
    x: Value,
    weight: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    save_mean: Value | None,
    save_invstd: Value | None,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> Any:
    """With statistics of the batch: dx = (g - mean(g) - n mean(g n)) * weight / sigma, n = (x - mean) / sigma; with
    running statistics: dx = g * weight / sigma.
    """
    wide = dtypes.compute_dtype(x.dtype)
    axes = tuple(dim for dim in range(x.ndim) if dim != 1)
    if train:
        if save_mean is None or save_invstd is None:
            return NotImplemented
        center, inverse = cast(save_mean, wide), cast(save_invstd, wide)
    else:
        if running_mean is None or running_var is None:
            return NotImplemented
        center, variance = cast(running_mean, wide), cast(running_var, wide)
        inverse = prims.rsqrt(prims.add(variance, constant(variance, eps)))

    def per_channel(value: Value) -> Value:
        return along(value, (1,), x.shape)  # type: ignore[no-any-return]

    upstream = cast(grad, wide)
    normal = prims.mul(prims.sub(cast(x, wide), per_channel(center)), per_channel(inverse))
    total = prims.reduce_sum(upstream, axes=axes)
    projection = prims.reduce_sum(prims.mul(upstream, normal), axes=axes)
    input_grad = weight_grad = bias_grad = None
    if output_mask[0]:
        factor = inverse if weight is None else prims.mul(inverse, cast(weight, wide))
        centered = upstream
        if train:
            number = count(x.shape, axes)
            share = constant(total, number if isinstance(number, SymExpr) else float(number))
            shift, tilt = per_channel(prims.div(total, share)), per_channel(prims.div(projection, share))
            centered = prims.sub(prims.sub(upstream, shift), prims.mul(normal, tilt))
        input_grad = cast(prims.mul(centered, per_channel(factor)), x.dtype)
    parameter = weight.dtype if weight is not None else x.dtype
    if output_mask[1]:
        weight_grad = cast(projection, parameter)
    if output_mask[2]:
        bias_grad = cast(total, parameter)
    return input_grad, weight_grad, bias_grad


@decomposition(aten.batch_norm_update_stats.default)
def batch_norm_update_stats(
    out: tuple[TensorType, TensorType], x: Value, running_mean: Value | None, running_var: Value | None, momentum: float
) -> Any:
    """Mean and variance (divided by the count) of each channel. Running statistics it would write into, of which its
    schema says nothing.
    """
    if running_mean is not None or running_var is not None:
        return Declined("it writes into running statistics, of which its schema says nothing")
    if 0 in x.shape:
        return NotImplemented
    wide = cast(x, dtypes.compute_dtype(x.dtype))
    axes = tuple(dim for dim in range(x.ndim) if dim != 1)
    center = mean(wide, axes)
    distance = prims.sub(wide, stretch(center, axes, x.shape))
    return cast(center, out[0].dtype), cast(mean(prims.mul(distance, distance), axes), out[1].dtype)
