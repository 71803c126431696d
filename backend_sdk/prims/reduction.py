"""Reductions, arg-reductions and scans. Reduced axes disappear from the shape.

Does not: define means or variances (`normalization.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from backend_sdk import dtypes
from backend_sdk.prims.define import FLOATING_OR_COMPLEX, Operand, prim
from backend_sdk.prims.samples import tensor
from backend_sdk.spec import Accumulated, Call, DtypeVar, Exact, Relative, Sample, Shape, TensorType, refuse
from backend_sdk.spec.prim import ShapeRule

_NUMBER = DtypeVar("T", dtypes.NUMERIC)
_ORDERED = DtypeVar("T", dtypes.REAL | dtypes.BOOLEAN)
_EXACT = Exact()


def _reduction_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    for shape, axes in (
        ((7,), (0,)),
        ((3, 5), (1,)),
        ((2, 3, 4), (0, 2)),
        ((3, 5), (0, 1)),
        ((64, 3), (0,)),
        ((), ()),
        ((3, 0), (0,)),
    ):
        yield Sample((tensor(shape, dtype, generator, -2.0, 2.0),), {"axes": axes})


def _total_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    """Of what has a value for no elements, too."""
    yield from _reduction_samples(dtype, generator)
    yield Sample((tensor((0, 3), dtype, generator),), {"axes": (0,)})


def _axis_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    for shape, axis in (((7,), 0), ((3, 5), 1), ((3, 5), 0), ((2, 3, 4), 1), ((3, 0), 0)):
        yield Sample((tensor(shape, dtype, generator, -2.0, 2.0),), {"axis": axis})


def _reduced(op: str, x: TensorType, axes: tuple[int, ...]) -> Shape:
    if len(set(axes)) != len(axes) or any(not 0 <= axis < x.rank for axis in axes):
        raise refuse(op, f"axes {axes} are not distinct dims of the operand", x)
    return tuple(size for dim, size in enumerate(x.shape) if dim not in axes)


def _reduce_shape(op: str) -> ShapeRule:
    def shape(x: TensorType, *, axes: tuple[int, ...]) -> Shape:
        return _reduced(op, x, axes)

    return shape


def _choice_shape(op: str) -> ShapeRule:
    """Of nothing there is no largest element."""

    def shape(x: TensorType, *, axes: tuple[int, ...]) -> Shape:
        result = _reduced(op, x, axes)
        if 0 in [x.shape[axis] for axis in axes]:
            raise refuse(op, f"the size of axes {axes} is 0", x)
        return result

    return shape


def _arg_shape(op: str) -> ShapeRule:
    choose = _choice_shape(op)

    def shape(x: TensorType, *, axis: int) -> Any:
        return choose(x, axes=(axis,))

    return shape


def _scan_shape(op: str) -> ShapeRule:
    def shape(x: TensorType, *, axis: int) -> Shape:
        if not 0 <= axis < x.rank:
            raise refuse(op, f"axis {axis} is not a dim of the operand", x)
        return x.shape

    return shape


def _no_axes(x: TensorType, *, axes: tuple[int, ...]) -> bool:
    return not axes


def _terms_of_reduction(call: Call) -> int:
    (x,) = call.operands
    return math.prod(x.shape[axis] for axis in call.attributes["axes"])


def _terms_of_scan(call: Call) -> int:
    return int(call.operands[0].shape[call.attributes["axis"]])


@prim(
    shape=_reduce_shape("reduce_sum"),
    operands=(_NUMBER,),
    results=(_NUMBER,),
    tolerance=Accumulated(_terms_of_reduction),
    samples=_total_samples,
    identity=_no_axes,
)
def reduce_sum(x: Operand, *, axes: tuple[int, ...]) -> Operand:
    """Sum over ``axes``, in the operand's dtype; 16-bit floats accumulate in float32, integers wrap. Empty: 0."""
    return torch.sum(x, dim=axes, dtype=x.dtype) if axes else x


@prim(
    shape=_reduce_shape("reduce_prod"),
    operands=(_NUMBER,),
    results=(_NUMBER,),
    tolerance=Relative(64),
    samples=_total_samples,
    identity=_no_axes,
)
def reduce_prod(x: Operand, *, axes: tuple[int, ...]) -> Operand:
    """Product over ``axes``, in the operand's dtype. Empty: 1."""
    for axis in sorted(axes, reverse=True):
        x = torch.prod(x, dim=axis, dtype=x.dtype)
    return x


@prim(
    shape=_choice_shape("reduce_max"),
    operands=(_ORDERED,),
    results=(_ORDERED,),
    tolerance=_EXACT,
    samples=_reduction_samples,
    identity=_no_axes,
)
def reduce_max(x: Operand, *, axes: tuple[int, ...]) -> Operand:
    """Largest element over ``axes``; NaN if any is NaN; logical or for bool. The reduced size is not 0."""
    return torch.amax(x, dim=axes) if axes else x


@prim(
    shape=_choice_shape("reduce_min"),
    operands=(_ORDERED,),
    results=(_ORDERED,),
    tolerance=_EXACT,
    samples=_reduction_samples,
    identity=_no_axes,
)
def reduce_min(x: Operand, *, axes: tuple[int, ...]) -> Operand:
    """Smallest element over ``axes``; NaN if any is NaN; logical and for bool. The reduced size is not 0."""
    return torch.amin(x, dim=axes) if axes else x


@prim(
    shape=_arg_shape("argmax"),
    operands=(DtypeVar("T", dtypes.REAL),),
    results=(torch.int64,),
    tolerance=_EXACT,
    samples=_axis_samples,
    differentiable=False,
)
def argmax(x: Operand, *, axis: int) -> Operand:
    """Index of the first largest element along ``axis``; the first NaN if there is one."""
    return torch.argmax(x, dim=axis)


@prim(
    shape=_arg_shape("argmin"),
    operands=(DtypeVar("T", dtypes.REAL),),
    results=(torch.int64,),
    tolerance=_EXACT,
    samples=_axis_samples,
    differentiable=False,
)
def argmin(x: Operand, *, axis: int) -> Operand:
    """Index of the first smallest element along ``axis``; the first NaN if there is one."""
    return torch.argmin(x, dim=axis)


@prim(
    shape=_scan_shape("cumsum"),
    operands=(_NUMBER,),
    results=(_NUMBER,),
    tolerance=Accumulated(_terms_of_scan),
    samples=_axis_samples,
)
def cumsum(x: Operand, *, axis: int) -> Operand:
    """Inclusive running sum along ``axis``; 16-bit floats accumulate in float32."""
    return torch.cumsum(x, dim=axis, dtype=x.dtype)


@prim(
    shape=_scan_shape("cumprod"),
    operands=(DtypeVar("T", FLOATING_OR_COMPLEX | dtypes.INTEGRAL),),
    results=(DtypeVar("T", FLOATING_OR_COMPLEX | dtypes.INTEGRAL),),
    tolerance=Relative(64),
    samples=_axis_samples,
)
def cumprod(x: Operand, *, axis: int) -> Operand:
    """Inclusive running product along ``axis``; 16-bit floats accumulate in float32, integers wrap."""
    return torch.cumprod(x, dim=axis, dtype=x.dtype)


def _sort_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    for descending in (False, True):
        yield Sample((tensor((4, 9), dtype, generator),), {"axis": 1, "descending": descending})
    for length in (5, 0):
        yield Sample((tensor((length,), dtype, generator),), {"axis": 0, "descending": False})


def _sort_shape(x: TensorType, *, axis: int, descending: bool) -> list[Shape]:
    return [_scan_shape("sort")(x, axis=axis)] * 2


@prim(
    shape=_sort_shape,
    operands=(_ORDERED,),
    results=(_ORDERED, torch.int64),
    tolerance=_EXACT,
    samples=_sort_samples,
)
def sort(x: Operand, *, axis: int, descending: bool) -> Operand:
    """Stable sort along ``axis``: the sorted values and the index each came from. NaN counts as largest."""
    return tuple(torch.sort(x, dim=axis, descending=descending, stable=True))
