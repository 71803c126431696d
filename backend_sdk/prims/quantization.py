"""Affine quantization: integers that stand for floats, by a scale and a zero point, of the tensor or of each channel.

A real number is (q - zero_point) * scale (Jacob et al., "Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference", arXiv:1712.05877). Scales are float32 and zero points int32.

Does not: choose scales and zero points (the decomposition of an observer does).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from backend_sdk import dtypes
from backend_sdk.prims.define import Operand, composite
from backend_sdk.prims.elementwise import add, convert, maximum, minimum, mul, ne, round, select, sub
from backend_sdk.prims.samples import tensor
from backend_sdk.prims.shorthand import along, cast, constant
from backend_sdk.spec import DtypeVar, Exact, FromAttribute, Sample, Shape, TensorType, Ulp, differ, refuse

_STORED = frozenset({torch.int8, torch.uint8, torch.int16, torch.int32})
_FLOAT = DtypeVar("T", dtypes.FLOATING)
_INTEGER = DtypeVar("Q", _STORED)

# Integers up to this magnitude are exact in float32.
_EXACT_IN_FLOAT32 = 1 << 24


def _parameters(shape: tuple[int, ...], axis: int | None, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    of = () if axis is None else (shape[axis],)
    return tensor(of, torch.float32, generator, 0.01, 0.5), tensor(of, torch.int32, generator, -5, 6)


_CASES: tuple[tuple[tuple[int, ...], int | None], ...] = (
    ((), None),
    ((7,), None),
    ((0, 3), None),
    ((3, 5), 0),
    ((2, 3, 4), 1),
    ((2, 0), 1),
)


def _quantize_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    for target in sorted(_STORED, key=str):
        limits = torch.iinfo(target)
        for shape, axis in _CASES:
            scale, zero_point = _parameters(shape, axis, generator)
            x = tensor(shape, dtype, generator, -40.0, 40.0)
            attributes = {"axis": axis, "lowest": limits.min, "highest": limits.max, "dtype": target}
            yield Sample((x, scale.reciprocal(), zero_point), attributes)


def _check(op: str, x: TensorType, factor: TensorType, zero_point: TensorType, axis: int | None) -> Shape:
    if axis is not None and not 0 <= axis < x.rank:
        raise refuse(op, f"axis {axis} is not a dim of the operand", x, factor, zero_point)
    wanted: Shape = () if axis is None else (x.shape[axis],)
    if differ(factor.shape, wanted) or differ(zero_point.shape, wanted):
        raise refuse(op, f"scale and zero point must have the shape {wanted}", x, factor, zero_point)
    return x.shape


def _quantize_shape(
    x: TensorType,
    multiplier: TensorType,
    zero_point: TensorType,
    *,
    axis: int | None,
    lowest: int,
    highest: int,
    dtype: torch.dtype,
) -> Shape:
    shape = _check("quantize", x, multiplier, zero_point, axis)
    if dtype in _STORED and not torch.iinfo(dtype).min <= lowest <= highest <= torch.iinfo(dtype).max:
        reason = f"{lowest} to {highest} is no range of {dtypes.name(dtype)}"
        raise refuse("quantize", reason, x, multiplier, zero_point)
    return shape


def _axes(axis: int | None) -> tuple[int, ...]:
    return () if axis is None else (axis,)


@composite(
    shape=_quantize_shape,
    operands=(_FLOAT, torch.float32, torch.int32),
    results=(FromAttribute("dtype", _STORED),),
    tolerance=Exact(),
    samples=_quantize_samples,
    profiles=("quantized",),
    differentiable=False,
)
def quantize(
    x: Operand,
    multiplier: Operand,
    zero_point: Operand,
    *,
    axis: int | None,
    lowest: int,
    highest: int,
    dtype: torch.dtype,
) -> Operand:
    """round(x * multiplier) + zero_point, no less than ``lowest`` and no more than ``highest``, as ``dtype``.

    ``multiplier`` is 1 / scale: a product is rounded in one way only, so that ties fall alike everywhere. It and the
    zero point are 0-d, or hold an element for each index of ``axis``. Ties round to even; 16-bit floats compute in
    float32; NaN gives ``lowest``.
    """
    shape = tuple(x.shape)
    wide = cast(x, dtypes.compute_dtype(x.dtype))
    factor, zero = (along(cast(part, wide.dtype), _axes(axis), shape) for part in (multiplier, zero_point))
    value = add(round(mul(wide, factor)), zero)
    low, high = constant(value, float(lowest)), constant(value, float(highest))
    value = select(ne(value, value), low, minimum(maximum(value, low), high))
    if lowest >= -_EXACT_IN_FLOAT32 and highest <= _EXACT_IN_FLOAT32:
        return cast(convert(value, dtype=torch.int32), dtype)
    # A bound that float32 rounds may lie outside of int32.
    found = convert(value, dtype=torch.int64)
    return convert(minimum(maximum(found, constant(found, lowest)), constant(found, highest)), dtype=dtype)


def _dequantize_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    for target in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        for shape, axis in _CASES:
            scale, zero_point = _parameters(shape, axis, generator)
            yield Sample(
                (tensor(shape, dtype, generator, -100, 100), scale, zero_point), {"axis": axis, "dtype": target}
            )


def _dequantize_shape(
    q: TensorType, scale: TensorType, zero_point: TensorType, *, axis: int | None, dtype: torch.dtype
) -> Shape:
    return _check("dequantize", q, scale, zero_point, axis)


@composite(
    shape=_dequantize_shape,
    operands=(_INTEGER, torch.float32, torch.int32),
    results=(FromAttribute("dtype", dtypes.FLOATING),),
    tolerance=Ulp(1.5, 1),
    samples=_dequantize_samples,
    profiles=("quantized",),
)
def dequantize(q: Operand, scale: Operand, zero_point: Operand, *, axis: int | None, dtype: torch.dtype) -> Operand:
    """(q - zero_point) * scale in ``dtype``.

    The scale and the zero point are 0-d, or hold an element for each index of ``axis``. The difference is exact; 16-bit
    floats compute in float32.
    """
    shape = tuple(q.shape)
    wide = dtypes.compute_dtype(dtype)
    integer = torch.int64 if q.dtype == torch.int32 else torch.int32
    zero = along(cast(zero_point, integer), _axes(axis), shape)
    distance = convert(sub(cast(q, integer), zero), dtype=wide)
    return cast(mul(distance, along(cast(scale, wide), _axes(axis), shape)), dtype)
