"""Rules for pooling and its gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from backend_sdk import dtypes, prims
from backend_sdk.decomp import integer_windows
from backend_sdk.decomp.registry import decomposition
from backend_sdk.decomp.windows import adaptive_average, adaptive_average_grad
from backend_sdk.graph import Value
from backend_sdk.prims.shorthand import along, cast, constant, count, scaled
from backend_sdk.spec import SymExpr, TensorType
from backend_sdk.spec.symbolic import Dim
from backend_sdk.torch_compat.ops import aten


def _each(values: Any, spatial: int, default: tuple[int, ...] = ()) -> tuple[int, ...]:
    given: tuple[int, ...] = (values,) if isinstance(values, int) else tuple(values)
    if not given:
        return default
    return given if len(given) == spatial else given * spatial


def _reach(
    sizes: Sequence[Dim],
    produced: Sequence[Dim],
    window: tuple[int, ...],
    strides: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
) -> tuple[tuple[Dim, Dim], ...]:
    """(low, high) padding that gives exactly ``produced`` windows, whether eager rounded up or down."""
    return tuple(
        (low, (count_ - 1) * stride + (extent - 1) * spread + 1 - size - low)
        for size, count_, extent, stride, low, spread in zip(
            sizes, produced, window, strides, padding, dilation, strict=True
        )
    )


def _batched(x: Value, spatial: int) -> Value:
    """x as ``[N, C, *S]``; torch also takes ``[C, *S]``."""
    return x if x.ndim == spatial + 2 else prims.reshape(x, shape=(1, *x.shape))


def _max_pool(
    spatial: int,
    out: tuple[TensorType, TensorType],
    x: Value,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    window = _each(kernel, spatial)
    strides = _each(stride, spatial, window)
    low, spread = _each(padding, spatial), _each(dilation, spatial)
    image = _batched(x, spatial)
    if x.dtype not in dtypes.FLOATING:
        return integer_windows.max_pool(out, image, window, strides, low, spread)
    values, indices = prims.max_pool(
        image,
        window=window,
        strides=strides,
        padding=_reach(image.shape[2:], out[0].shape[-spatial:], window, strides, low, spread),
        dilation=spread,
    )
    return prims.reshape(values, shape=out[0].shape), prims.reshape(indices, shape=out[1].shape)


@decomposition(aten.max_pool2d_with_indices.default)
def max_pool2d(out: tuple[TensorType, TensorType], *args: Any, **kwargs: Any) -> Any:
    return _max_pool(2, out, *args, **kwargs)


@decomposition(aten.max_pool3d_with_indices.default)
def max_pool3d(out: tuple[TensorType, TensorType], *args: Any, **kwargs: Any) -> Any:
    return _max_pool(3, out, *args, **kwargs)


def _max_pool_grad(spatial: int, out: TensorType, grad: Value, indices: Value) -> Any:
    """Each gradient goes to the element that won its window."""
    planes = out.shape[:-spatial]
    area = count(out.shape, tuple(range(len(planes), len(out.shape))))
    windows = count(grad.shape, tuple(range(len(planes), grad.ndim)))
    rows = count(planes, tuple(range(len(planes))))
    wide = dtypes.compute_dtype(out.dtype)
    spread = prims.scatter(
        prims.full(shape=(rows, area), value=0, dtype=wide),
        prims.reshape(indices, shape=(rows, windows)),
        prims.reshape(cast(grad, wide), shape=(rows, windows)),
        axis=1,
        mode="add",
    )
    return cast(prims.reshape(spread, shape=out.shape), out.dtype)


@decomposition(aten.max_pool2d_with_indices_backward.default)
def max_pool2d_backward(
    out: TensorType,
    grad: Value,
    x: Value,
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    indices: Value,
) -> Any:
    return _max_pool_grad(2, out, grad, indices)


@decomposition(aten.max_pool3d_with_indices_backward.default)
def max_pool3d_backward(
    out: TensorType,
    grad: Value,
    x: Value,
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    indices: Value,
) -> Any:
    return _max_pool_grad(3, out, grad, indices)


def _uniform_divisor(
    window: tuple[int, ...],
    padding: tuple[int, ...],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> int | None:
    """The divisor when it is the same for every window, else None."""
    if divisor_override is not None:
        return divisor_override
    if not ceil_mode and (count_include_pad or not any(padding)):
        return math.prod(window)
    return None


def _avg_pool(
    spatial: int,
    out: TensorType,
    x: Value,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    window = _each(kernel, spatial)
    strides = _each(stride, spatial, window)
    low = _each(padding, spatial)
    divisor = _uniform_divisor(window, low, ceil_mode, count_include_pad, divisor_override)
    produced = out.shape[-spatial:]
    if x.dtype not in dtypes.FLOATING:
        return _integer_avg_pool(out, _batched(x, spatial), window, strides, low, divisor, count_include_pad)
    image = cast(_batched(x, spatial), dtypes.compute_dtype(x.dtype))
    total = _window_sums(image, produced, window, strides, low)
    if divisor is not None:
        average = scaled(total, 1.0 / divisor)
    else:
        counts = _window_sizes(image, produced, window, strides, low, count_include_pad)
        average = prims.div(total, along(counts, tuple(range(2, total.ndim)), total.shape))
    return prims.reshape(cast(average, out.dtype), shape=out.shape)


def _integer_avg_pool(
    out: TensorType,
    image: Value,
    window: tuple[int, ...],
    strides: tuple[int, ...],
    low: tuple[int, ...],
    divisor: int | None,
    count_include_pad: bool,
) -> Any:
    """The quotient rounded toward zero, as eager's integer division does."""
    produced = out.shape[-len(window) :]
    total = integer_windows.window_sums(image, produced, window, strides, low)
    if divisor is not None:
        number = constant(total, divisor)
    else:
        floats = prims.full(shape=(1, 1, *image.shape[2:]), value=0, dtype=torch.float64)
        sizes = _window_sizes(floats, produced, window, strides, low, count_include_pad)
        number = along(cast(sizes, total.dtype), tuple(range(2, total.ndim)), total.shape)
    return prims.reshape(integer_windows.truncated_quotient(total, number), shape=out.shape)


def _window_sums(
    image: Value, produced: Sequence[Dim], window: tuple[int, ...], strides: tuple[int, ...], low: tuple[int, ...]
) -> Value:
    ones = (1,) * len(window)
    return prims.sum_pool(  # type: ignore[no-any-return]
        image,
        window=window,
        strides=strides,
        padding=_reach(image.shape[2:], produced, window, strides, low, ones),
        dilation=ones,
    )


def _window_sizes(
    image: Value,
    produced: Sequence[Dim],
    window: tuple[int, ...],
    strides: tuple[int, ...],
    low: tuple[int, ...],
    count_include_pad: bool,
) -> Value:
    """How many elements each window averages. A window that was rounded up never counts what it reaches beyond."""
    edges = low if count_include_pad else (0,) * len(low)
    sizes = tuple(size + 2 * edge for size, edge in zip(image.shape[2:], edges, strict=True))
    ones = prims.full(shape=(1, 1, *sizes), value=1, dtype=image.dtype)
    start = tuple(amount - edge for amount, edge in zip(low, edges, strict=True))
    return prims.reshape(_window_sums(ones, produced, window, strides, start), shape=tuple(produced))  # type: ignore[no-any-return]


@decomposition(aten.avg_pool2d.default)
def avg_pool2d(out: TensorType, *args: Any, **kwargs: Any) -> Any:
    return _avg_pool(2, out, *args, **kwargs)


@decomposition(aten.avg_pool3d.default)
def avg_pool3d(out: TensorType, *args: Any, **kwargs: Any) -> Any:
    return _avg_pool(3, out, *args, **kwargs)


def _avg_pool_grad(
    spatial: int,
    out: TensorType,
    grad: Value,
    x: Value,
    kernel: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    """The gradient, spread by the strides and padded, summed over every window that holds an element."""
    window = _each(kernel, spatial)
    strides = _each(stride, spatial, window)
    low = _each(padding, spatial)
    divisor = _uniform_divisor(window, low, ceil_mode, count_include_pad, divisor_override)
    wide = dtypes.compute_dtype(out.dtype)
    upstream = cast(_batched(grad, spatial), wide)
    if divisor is not None:
        upstream = scaled(upstream, 1.0 / divisor)
    else:
        counts = _window_sizes(_batched(x, spatial), upstream.shape[2:], window, strides, low, count_include_pad)
        upstream = prims.div(upstream, along(cast(counts, wide), tuple(range(2, upstream.ndim)), upstream.shape))
    sizes = out.shape[-spatial:]
    before: list[Dim] = [0, 0]
    after: list[Dim] = [0, 0]
    for size, produced, extent, stride_, edge in zip(sizes, upstream.shape[2:], window, strides, low, strict=True):
        start = extent - 1 - edge
        before.append(start)
        after.append(size - start - ((produced - 1) * stride_ + 1) + extent - 1)
    spread = prims.pad(
        upstream,
        low=tuple(before),
        high=tuple(after),
        interior=(0, 0, *(stride_ - 1 for stride_ in strides)),
        value=0,
    )
    ones = (1,) * spatial
    total = prims.sum_pool(spread, window=window, strides=ones, padding=((0, 0),) * spatial, dilation=ones)
    return prims.reshape(cast(total, out.dtype), shape=out.shape)


@decomposition(aten.avg_pool2d_backward.default)
def avg_pool2d_backward(out: TensorType, grad: Value, x: Value, *args: Any, **kwargs: Any) -> Any:
    return _avg_pool_grad(2, out, grad, x, *args, **kwargs)


@decomposition(aten.avg_pool3d_backward.default)
def avg_pool3d_backward(out: TensorType, grad: Value, x: Value, *args: Any, **kwargs: Any) -> Any:
    return _avg_pool_grad(3, out, grad, x, *args, **kwargs)


def _even_windows(x: Value, out: TensorType, spatial: int) -> tuple[int, ...] | None:
    """The window of an adaptive pooling whose windows all have one size, else None."""
    pairs = list(zip(x.shape[-spatial:], out.shape[-spatial:], strict=True))
    if any(isinstance(n, SymExpr) for pair in pairs for n in pair) or any(i % o for i, o in pairs):
        return None
    return tuple(i // o for i, o in pairs)  # type: ignore[misc]


@decomposition(aten._adaptive_avg_pool2d.default)
def adaptive_avg_pool2d(out: TensorType, x: Value, output_size: Any) -> Any:
    window = _even_windows(x, out, 2) if 0 not in out.shape else None
    if window is None:
        return adaptive_average(2, out, x) if out.dtype in dtypes.FLOATING else NotImplemented
    return _avg_pool(2, out, x, window, window)


@decomposition(aten._adaptive_avg_pool2d_backward.default)
def adaptive_avg_pool2d_backward(out: TensorType, grad: Value, x: Value) -> Any:
    window = _even_windows(x, grad.type, 2) if 0 not in grad.shape else None
    if window is None:
        return adaptive_average_grad(2, out, grad)
    return _avg_pool_grad(2, out, grad, x, window, window, 0, False, True, None)
