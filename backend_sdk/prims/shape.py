"""Prims that make tensors or move elements without computing: reshape, permute, broadcast, slice, pad, ...

All are values: no aliasing, whatever a reference returns.

Does not: index with tensors (`indexing.py`).
"""

from __future__ import annotations

import builtins
import itertools
from collections.abc import Iterator

import torch

from backend_sdk import dtypes
from backend_sdk.prims.define import Operand, prim
from backend_sdk.prims.samples import tensor
from backend_sdk.spec import DtypeVar, Exact, FromAttribute, Sample, Scalar, Shape, SymExpr, TensorType, differ, refuse
from backend_sdk.spec.symbolic import Dim, element_count, larger

_T = DtypeVar("T", dtypes.STORED)
_EXACT = Exact()
_INTEGERS = dtypes.INTEGRAL | dtypes.UNSIGNED
_BITS_OF_WIDTH = {dtype.itemsize: dtype for dtype in dtypes.SIGNED_DTYPES}


def _full_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    for shape in ((), (3,), (2, 0)):
        yield Sample((), {"shape": shape, "value": 1, "dtype": dtype})


def _full_shape(*, shape: Shape, value: Scalar, dtype: torch.dtype) -> Shape:
    if any(isinstance(size, int) and size < 0 for size in shape):
        raise refuse("full", f"no tensor has the shape {shape}")
    if dtype in _INTEGERS and isinstance(value, (int, float)):
        low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
        # torch's rule: of an unsigned dtype a negative integer stands for the one that it wraps to.
        within = (low or -high) <= value <= high if isinstance(value, int) else low <= value <= float(high)
        if not within:
            raise refuse("full", f"{value} is not within {dtypes.name(dtype)} ({low} to {high})")
    return shape


@prim(
    structural=True,
    shape=_full_shape,
    operands=(),
    results=(FromAttribute("dtype", dtypes.STORED),),
    tolerance=_EXACT,
    samples=_full_samples,
    differentiable=False,
)
def full(*, shape: Shape, value: Scalar, dtype: torch.dtype) -> Operand:
    """A tensor of ``shape`` whose every element is ``value`` rounded to ``dtype``. An integer dtype has no NaN and no
    infinity, and no number beyond its limits, but an unsigned one takes -1 for its largest, and so on.
    """
    return torch.full((), value, dtype=dtype).expand(shape)  # type: ignore[arg-type]


def _iota_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    if dtype in dtypes.REAL:
        for length in (0, 1, 7):
            yield Sample((), {"length": length, "dtype": dtype})


def _iota_shape(*, length: Dim, dtype: torch.dtype) -> Shape:
    if isinstance(length, int) and length < 0:
        raise refuse("iota", f"no tensor has the length {length}")
    return (length,)


@prim(
    structural=True,
    shape=_iota_shape,
    operands=(),
    results=(FromAttribute("dtype", dtypes.REAL),),
    tolerance=_EXACT,
    samples=_iota_samples,
    differentiable=False,
)
def iota(*, length: Dim, dtype: torch.dtype) -> Operand:
    """0, 1, 2, ... ``length - 1`` in one dimension, ``[length]``, in ``dtype``."""
    return torch.arange(length, dtype=dtype)  # type: ignore[arg-type]


def _reshape_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    for source, target in (((2, 6), (3, 4)), ((), (1, 1)), ((4,), (2, 1, 2)), ((0, 3), (3, 0))):
        yield Sample((tensor(source, dtype, generator),), {"shape": target})
    yield Sample((tensor((3, 4), dtype, generator).T,), {"shape": (12,)})


def _reshape_shape(x: TensorType, *, shape: Shape) -> Shape:
    counts = element_count(x.shape), element_count(shape)
    if counts[0] != counts[1] and not any(isinstance(count, SymExpr) for count in counts):
        raise refuse("reshape", f"{counts[0]} elements cannot take the shape {shape}", x)
    return shape


@prim(
    structural=True,
    shape=_reshape_shape,
    operands=(_T,),
    results=(_T,),
    tolerance=_EXACT,
    samples=_reshape_samples,
    identity=lambda x, *, shape: x.shape == tuple(shape),
)
def reshape(x: Operand, *, shape: Shape) -> Operand:
    """The same elements, in row-major order, in another shape of equal element count."""
    return torch.reshape(x, shape)  # type: ignore[arg-type]


def _permute_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    for shape, dims in (((2, 3), (1, 0)), ((2, 3, 4), (2, 0, 1)), ((), ()), ((0, 2), (1, 0))):
        yield Sample((tensor(shape, dtype, generator),), {"dims": dims})


def _permute_shape(x: TensorType, *, dims: tuple[int, ...]) -> Shape:
    if sorted(dims) != list(range(x.rank)):
        raise refuse("permute", f"{dims} is not a permutation of its dims", x)
    return tuple(x.shape[dim] for dim in dims)


@prim(
    structural=True,
    shape=_permute_shape,
    operands=(_T,),
    results=(_T,),
    tolerance=_EXACT,
    samples=_permute_samples,
    identity=lambda x, *, dims: tuple(dims) == tuple(range(x.rank)),
)
def permute(x: Operand, *, dims: tuple[int, ...]) -> Operand:
    """Dimension ``i`` of the result is dimension ``dims[i]`` of x."""
    return torch.permute(x, dims)


def _broadcast_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    for source, target, dims in (
        ((3,), (2, 3), (1,)),
        ((2, 1), (2, 4), (0, 1)),
        ((), (2, 2), ()),
        ((3,), (3, 0), (0,)),
    ):
        yield Sample((tensor(source, dtype, generator),), {"shape": target, "dims": dims})


def _broadcast_shape(x: TensorType, *, shape: Shape, dims: tuple[int, ...]) -> Shape:
    increasing = all(a < b for a, b in itertools.pairwise(dims))
    if len(dims) != x.rank or not increasing or (dims and dims[-1] >= len(shape)):
        raise refuse("broadcast", f"dims {dims} do not map its dims into {shape} in order", x)
    for size, dim in zip(x.shape, dims, strict=True):
        if size != 1 and differ((size,), (shape[dim],)):
            raise refuse("broadcast", f"size {size} does not stretch to {shape[dim]} at dim {dim} of {shape}", x)
    return shape


@prim(
    structural=True,
    shape=_broadcast_shape,
    operands=(_T,),
    results=(_T,),
    tolerance=_EXACT,
    samples=_broadcast_samples,
    identity=lambda x, *, shape, dims: x.shape == tuple(shape),
)
def broadcast(x: Operand, *, shape: Shape, dims: tuple[int, ...]) -> Operand:
    """x stretched to ``shape``: its dimension ``i`` becomes dimension ``dims[i]`` (same size, or 1 repeated),
    all other dimensions repeat it.
    """
    sizes: list[Dim] = [1] * len(shape)
    for size, dim in zip(x.shape, dims, strict=True):
        sizes[dim] = size
    return torch.reshape(x, sizes).expand(shape)  # type: ignore[arg-type]


def _slice_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    x = tensor((5, 6), dtype, generator)
    yield Sample((x,), {"starts": (1, 0), "limits": (4, 6), "strides": (1, 2)})
    yield Sample((x,), {"starts": (0, 3), "limits": (5, 3), "strides": (2, 1)})
    yield Sample((tensor((), dtype, generator),), {"starts": (), "limits": (), "strides": ()})
    yield Sample((tensor((0, 3), dtype, generator),), {"starts": (0, 1), "limits": (0, 3), "strides": (1, 1)})


def _slice_shape(x: TensorType, *, starts: Shape, limits: Shape, strides: tuple[int, ...]) -> Shape:
    if not len(starts) == len(limits) == len(strides) == x.rank:
        raise refuse("slice", "starts, limits and strides need one entry per dim", x)
    for bounds in zip((0,) * x.rank, starts, limits, x.shape, strict=True):
        known = [bound for bound in bounds if isinstance(bound, int)]
        if known != sorted(known):
            raise refuse("slice", f"starts {starts} and limits {limits} are not in order within its dims", x)
    return tuple(
        (limit - start + stride - 1) // stride if stride != 1 else limit - start
        for start, limit, stride in zip(starts, limits, strides, strict=True)
    )


@prim(
    shape=_slice_shape,
    operands=(_T,),
    results=(_T,),
    tolerance=_EXACT,
    samples=_slice_samples,
    identity=lambda x, *, starts, limits, strides: (
        tuple(limits) == x.shape and not any(starts) and all(step == 1 for step in strides)
        if all(isinstance(start, int) for start in starts)
        else False
    ),
)
def slice(x: Operand, *, starts: Shape, limits: Shape, strides: tuple[int, ...]) -> Operand:
    """Elements ``starts[i] + k * strides[i] < limits[i]`` of each dimension; 0 <= start <= limit <= size."""
    return x[tuple(map(builtins.slice, starts, limits, strides))]


def _pad_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    x = tensor((3, 4), dtype, generator)
    yield Sample((x,), {"low": (1, 0), "high": (0, 2), "interior": (0, 0), "value": 1})
    yield Sample((x,), {"low": (0, -1), "high": (2, 1), "interior": (1, 2), "value": 0})
    yield Sample((tensor((), dtype, generator),), {"low": (), "high": (), "interior": (), "value": 0})
    yield Sample((tensor((0, 2), dtype, generator),), {"low": (2, 0), "high": (1, 0), "interior": (1, 0), "value": 1})


def _pad_shape(x: TensorType, *, low: Shape, high: Shape, interior: tuple[int, ...], value: Scalar) -> Shape:
    if not len(low) == len(high) == len(interior) == x.rank:
        raise refuse("pad", "low, high and interior need one entry per dim", x)
    return tuple(
        size + before + after + larger(size - 1, 0) * inner if inner else size + before + after
        for size, before, after, inner in zip(x.shape, low, high, interior, strict=True)
    )


@prim(
    shape=_pad_shape,
    operands=(_T,),
    results=(_T,),
    tolerance=_EXACT,
    samples=_pad_samples,
    identity=lambda x, *, low, high, interior, value: all(p == 0 for p in (*low, *high, *interior)),
)
def pad(x: Operand, *, low: Shape, high: Shape, interior: tuple[int, ...], value: Scalar) -> Operand:
    """x with ``interior[i]`` copies of ``value`` between its elements, then ``low[i]`` before and ``high[i]``
    after them along each dimension; a negative ``low`` or ``high`` cuts elements off.
    """
    if any(interior):
        spread = [size + max(size - 1, 0) * inner for size, inner in zip(x.shape, interior, strict=True)]
        wide = torch.full(spread, value, dtype=x.dtype)  # type: ignore[arg-type]
        wide[tuple(builtins.slice(None, None, inner + 1) for inner in interior)] = x
        x = wide
    amounts = [amount for pair in zip(reversed(low), reversed(high), strict=True) for amount in pair]
    # Not `torch.nn.functional.pad`: it takes the value as a float, which rounds large integers.
    return torch.constant_pad_nd(x, amounts, value)  # type: ignore[arg-type]


def _concat_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    parts = tuple(tensor((2, n), dtype, generator) for n in (3, 0, 1))
    yield Sample(parts, {"axis": 1})
    yield Sample(parts[:1], {"axis": 0})


def _concat_shape(*parts: TensorType, axis: int) -> Shape:
    first = parts[0]
    total: Dim = 0
    for part in parts:
        if part.rank != first.rank or not 0 <= axis < first.rank:
            raise refuse("concat", f"operands must have one rank with a dim {axis}", *parts)
        if any(differ((a,), (b,)) for d, (a, b) in enumerate(zip(part.shape, first.shape, strict=True)) if d != axis):
            raise refuse("concat", f"operands must agree in every dim but {axis}", *parts)
        total = total + part.shape[axis]
    return (*first.shape[:axis], total, *first.shape[axis + 1 :])


@prim(
    shape=_concat_shape,
    operands=(_T,),
    results=(_T,),
    variadic=True,
    tolerance=_EXACT,
    samples=_concat_samples,
)
def concat(*parts: Operand, axis: int) -> Operand:
    """The operands one after the other along ``axis``; their other dimensions agree."""
    return torch.cat(parts, dim=axis)


def _reverse_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    yield Sample((tensor((3, 4), dtype, generator),), {"dims": (0,)})
    yield Sample((tensor((2, 0, 3), dtype, generator),), {"dims": (0, 2)})
    yield Sample((tensor((), dtype, generator),), {"dims": ()})


def _reverse_shape(x: TensorType, *, dims: tuple[int, ...]) -> Shape:
    if any(not 0 <= dim < x.rank for dim in dims):
        raise refuse("reverse", f"dims {dims} are not all dims of the operand", x)
    return x.shape


@prim(
    shape=_reverse_shape,
    operands=(_T,),
    results=(_T,),
    tolerance=_EXACT,
    samples=_reverse_samples,
    identity=lambda x, *, dims: not dims,
)
def reverse(x: Operand, *, dims: tuple[int, ...]) -> Operand:
    """x with the order of its elements reversed along each of ``dims``."""
    if x.dtype in dtypes.STORAGE:
        # torch's kernel takes few of them: their bits move as well.
        return torch.flip(x.view(_BITS_OF_WIDTH[x.dtype.itemsize]), dims).view(x.dtype)
    return torch.flip(x, dims)
