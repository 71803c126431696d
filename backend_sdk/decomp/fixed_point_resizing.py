"""Resizing of bytes: weights in fixed point, and bytes again after each axis.

Does not: register rules (`resizing.py` comes here), or compute the weights of antialiasing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from backend_sdk import prims
from backend_sdk.decomp.shape import slice_axis
from backend_sdk.decomp.windows import Taps, table, weigh, within
from backend_sdk.graph import Value
from backend_sdk.prims.shorthand import along, cast, constant
from backend_sdk.spec.symbolic import Dim

# A weight is 16 bits wide with its sign, and has no more fraction than this.
_LIMIT = 2.0**15
_LONGEST_FRACTION = 22


@dataclass(frozen=True)
class WeightedTaps:
    """Taps with float64 weights, and the 0-d ``largest`` number that decides how many bits of fraction they keep."""

    taps: Taps
    largest: Value


def largest_of(taps: Taps) -> WeightedTaps:
    """Taps as they are, of which each weight stands for itself. The largest is at least 0."""
    largest = prims.reduce_max(taps.weights, axes=(0, 1))
    return WeightedTaps(taps, prims.maximum(largest, constant(largest, 0.0)))


def nearby_taps(center: Value, taps: int, size: Dim, weight: Callable[[Value], Value]) -> WeightedTaps:
    """The ``taps`` elements (an even number) around float64 positions ``center[outputs, taps]`` on an axis of ``size``,
    with the ``weight`` of a distance of at least 0.

    What lies beyond the axis counts for the element at its end, in one weight, which is rounded as one. Eager looks for
    the largest weight while it adds such weights up, so a sum on the way counts too: a cubic kernel's last weight is
    negative.
    """
    outputs = center.shape[0]
    # Eager rounds the position to float32 to find its element, and measures from there in float64.
    low = prims.floor(prims.convert(center, dtype=torch.float32))
    low = prims.minimum(prims.convert(low, dtype=torch.int64), constant(low, size - 1, torch.int64))
    rest = prims.sub(center, prims.convert(low, dtype=torch.float64))
    rest = prims.minimum(prims.maximum(rest, constant(rest, 0.0)), constant(rest, 1.0))
    _, tap = table(outputs, taps, torch.int64)
    offset = prims.sub(tap, constant(tap, taps // 2 - 1))
    places = within(prims.add(low, offset), size)
    weights = weight(prims.abs(prims.sub(cast(offset, torch.float64), rest)))
    sums = [_column(weights, 0)]
    for number in range(1, taps):
        before = prims.select(_same_place(places, number), sums[-1], constant(sums[-1], 0.0))
        sums.append(prims.add(before, _column(weights, number)))
    # The last tap at a place has the whole sum, the ones before it nothing.
    whole = [
        prims.select(_same_place(places, number), constant(total, 0.0), total)
        for number, total in enumerate(sums[:-1], start=1)
    ]
    largest = prims.reduce_max(prims.concat(*sums, axis=1), axes=(0, 1))
    merged = Taps(places, prims.concat(*whole, sums[-1], axis=1))
    return WeightedTaps(merged, prims.maximum(largest, constant(largest, 0.0)))


def _column(values: Value, number: int) -> Value:
    return slice_axis(values, 1, number, number + 1)


def _same_place(places: Value, number: int) -> Value:
    """Whether a column of the taps reads what the column before it reads."""
    return prims.eq(_column(places, number), _column(places, number - 1))  # type: ignore[no-any-return]


def weigh_bytes(x: Value, axis: int, weighted: WeightedTaps) -> Value:
    """uint8 ``x`` with the outputs in place of the axis, rounded to bytes: half up, and clamped to 0 .. 255.

    The formula is eager's, which has it from Pillow: the weights become int16, with as many bits of fraction (22 at
    most) as the largest of them leaves room for, rounded half away from 0; products and their sum are int32.
    """
    taps, bits = weighted.taps, _bits_of_fraction(weighted.largest)
    assert taps.weights is not None
    one = constant(bits, 1)
    weights = prims.mul(taps.weights, _everywhere(cast(prims.shift_left(one, bits), torch.float64), taps.weights))
    zero, half = constant(weights, 0.0), constant(weights, 0.5)
    weights = prims.add(weights, prims.select(prims.lt(weights, zero), prims.neg(half), half))
    whole = Taps(taps.places, prims.convert(weights, dtype=torch.int32), taps.valid)
    total = weigh(prims.convert(x, dtype=torch.int32), axis, whole)
    total = prims.add(total, _everywhere(prims.shift_left(one, prims.sub(bits, one)), total))
    total = prims.shift_right(total, _everywhere(bits, total))
    total = prims.minimum(prims.maximum(total, constant(total, 0)), constant(total, 255))
    return prims.convert(total, dtype=torch.uint8)  # type: ignore[no-any-return]


def _everywhere(value: Value, like: Value) -> Value:
    return along(value, (), like.shape)  # type: ignore[no-any-return]


def _bits_of_fraction(largest: Value) -> Value:
    """The first number of bits, of 0 .. 22, to which one more would make the largest weight too wide: int32, 0-d."""
    number = prims.iota(length=_LONGEST_FRACTION, dtype=torch.int32)
    more = prims.shift_left(constant(number, 1), prims.add(number, constant(number, 1)))
    next_largest = prims.mul(_everywhere(largest, more), cast(more, torch.float64))
    next_largest = prims.add(next_largest, constant(next_largest, 0.5))
    fits = prims.lt(next_largest, constant(next_largest, _LIMIT))
    return prims.reduce_sum(cast(fits, torch.int32), axes=(0,))  # type: ignore[no-any-return]
