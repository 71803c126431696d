"""Pooling and convolution of integers, for which the contract's windowed prims, which are for floats, do not serve.

Each window becomes a row of taken elements. Integers are exact and wrap, so no order of summation matters.

Does not: register rules (`pooling.py` and `linear.py` come here).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from backend_sdk import prims
from backend_sdk.decomp.windows import Taps, largest, read
from backend_sdk.graph import Value
from backend_sdk.prims.shorthand import along, constant
from backend_sdk.spec import TensorType
from backend_sdk.spec.symbolic import Dim, element_count


def _regular(size: Dim, outputs: Dim, extent: int, stride: int, dilation: int, low: Dim) -> Taps:
    """Windows at a stride, whose taps in the padding are invalid. Places are not clamped."""
    shape = (outputs, extent)
    number = along(prims.iota(length=outputs, dtype=torch.int64), (0,), shape)
    tap = along(prims.iota(length=extent, dtype=torch.int64), (1,), shape)
    place = prims.add(prims.mul(number, constant(number, stride)), prims.mul(tap, constant(tap, dilation)))
    place = prims.sub(place, constant(place, low))
    valid = prims.bitwise_and(prims.ge(place, constant(place, 0)), prims.lt(place, constant(place, size)))
    return Taps(prims.select(valid, place, constant(place, 0)), valid=valid)


def _windows(
    x: Value,
    outputs: Sequence[Dim],
    window: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
    low: Sequence[Dim],
    fill: int,
) -> tuple[Value, list[Taps]]:
    """x ``[N, C, *S]`` as ``[N, C, *outputs, *window]``, padding filled, and the taps of each axis."""
    spatial = len(window)
    tables = [_regular(*axis) for axis in zip(x.shape[2:], outputs, window, strides, dilation, low, strict=True)]
    for position, taps in enumerate(tables):
        x = read(x, 2 + 2 * position, taps, fill)
    order = (0, 1, *range(2, 2 + 2 * spatial, 2), *range(3, 3 + 2 * spatial, 2))
    return prims.permute(x, dims=order), tables


def max_pool(
    out: tuple[TensorType, TensorType],
    x: Value,
    window: Sequence[int],
    strides: Sequence[int],
    low: Sequence[int],
    dilation: Sequence[int],
) -> Any:
    """The largest element of each window of ``[N, C, *S]`` and its index in the plane; the first of equal ones."""
    spatial = len(window)
    outputs = out[0].shape[-spatial:]
    lowest = torch.iinfo(x.dtype).min
    windows, tables = _windows(x, outputs, window, strides, dilation, low, lowest)
    shape = (*x.shape[:2], *outputs, math.prod(window))
    plane = windows.shape[2:]
    place: Value | None = None
    valid: Value | None = None
    for axis, (taps, size) in enumerate(zip(tables, x.shape[2:], strict=True)):
        part, inside = (along(table, (axis, axis + spatial), plane) for table in (taps.places, taps.valid))
        place = part if place is None else prims.add(prims.mul(place, constant(place, size)), part)
        valid = inside if valid is None else prims.bitwise_and(valid, inside)
    assert place is not None and valid is not None
    dims = tuple(range(2, 2 + spatial + 1))
    rows = (*outputs, math.prod(window))
    places = along(prims.reshape(place, shape=rows), dims, shape)
    inside = along(prims.reshape(valid, shape=rows), dims, shape)
    values = prims.reshape(windows, shape=shape)
    first = prims.argmax(_winners(values, inside), axis=len(shape) - 1)
    return largest(values, places, out, first)


def _winners(values: Value, inside: Value) -> Value:
    """1 for the largest elements of the last dim. Padding does not win where all of them are the lowest number."""
    best = prims.reduce_max(values, axes=(values.ndim - 1,))
    best = along(best, tuple(range(values.ndim - 1)), values.shape)
    wins = prims.bitwise_and(prims.eq(values, best), inside)
    return prims.convert(wins, dtype=torch.uint8)  # type: ignore[no-any-return]


def window_sums(
    x: Value, outputs: Sequence[Dim], window: Sequence[int], strides: Sequence[int], low: Sequence[int]
) -> Value:
    """The sum of each window of ``[N, C, *S]``."""
    windows, _ = _windows(x, outputs, window, strides, (1,) * len(window), low, 0)
    return prims.reduce_sum(windows, axes=tuple(range(2 + len(window), windows.ndim)))  # type: ignore[no-any-return]


def truncated_quotient(x: Value, divisor: Value) -> Value:
    """x / divisor rounded toward zero."""
    magnitude = prims.floor_div(prims.abs(x), prims.abs(divisor))
    zero = constant(x, 0)
    negative = prims.bitwise_xor(prims.lt(x, zero), prims.lt(divisor, zero))
    return prims.select(negative, prims.neg(magnitude), magnitude)  # type: ignore[no-any-return]


def convolution(
    out: TensorType,
    x: Value,
    weight: Value,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Value:
    """``[N, C, *S]`` with weights ``[C_out, C / groups, *kernel]``."""
    kernel: tuple[int, ...] = weight.shape[2:]  # type: ignore[assignment]
    outputs = out.shape[2:]
    windows, _ = _windows(x, outputs, kernel, strides, dilation, padding, 0)
    channels = weight.shape[1]
    depth = channels * math.prod(kernel)
    spots = element_count(outputs)
    # [N, C, *outputs, *kernel] to [groups, N, spots, depth]
    rows = prims.reshape(windows, shape=(x.shape[0], groups, channels, spots, math.prod(kernel)))
    rows = prims.reshape(prims.permute(rows, dims=(1, 0, 3, 2, 4)), shape=(groups, x.shape[0], spots, depth))
    matrices = prims.reshape(weight, shape=(groups, weight.shape[0] // groups, depth))
    product = prims.dot_general(rows, matrices, contract=((3,), (2,)), batch=((0,), (0,)))
    return prims.reshape(prims.permute(product, dims=(1, 0, 3, 2)), shape=out.shape)  # type: ignore[no-any-return]


def transposed_convolution(
    out: TensorType,
    x: Value,
    weight: Value,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Value:
    """The convolution of x, spread by the strides, with the turned weights ``[C, C_out / groups, *kernel]``."""
    spatial = len(strides)
    none = (0,) * x.ndim
    spread = prims.pad(x, low=none, high=none, interior=(0, 0, *(stride - 1 for stride in strides)), value=0)
    kernel: tuple[int, ...] = weight.shape[2:]  # type: ignore[assignment]
    inner, outer = weight.shape[0] // groups, weight.shape[1]
    turned = prims.reshape(weight, shape=(groups, inner, outer, *kernel))
    turned = prims.permute(turned, dims=(0, 2, 1, *range(3, 3 + spatial)))
    turned = prims.reshape(turned, shape=(groups * outer, inner, *kernel))
    turned = prims.reverse(turned, dims=tuple(range(2, 2 + spatial)))
    edges = [reach * (extent - 1) - edge for reach, extent, edge in zip(dilation, kernel, padding, strict=True)]
    return convolution(out, spread, turned, (1,) * spatial, edges, dilation, groups)
