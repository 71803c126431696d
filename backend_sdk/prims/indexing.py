"""Prims that read and write at positions given by tensors of indices.

Indices are int64 and in range, 0 <= index < size: a decomposition wraps negative ones. Out of range is the
caller's fault and a backend need not detect it.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from backend_sdk import dtypes
from backend_sdk.prims.define import Operand, prim
from backend_sdk.prims.samples import indices as sample_indices
from backend_sdk.prims.samples import tensor
from backend_sdk.spec import Accumulated, Call, DtypeVar, Exact, Sample, Shape, TensorType, differ, refuse

_T = DtypeVar("T", dtypes.ANY)
_EXACT = Exact()

SCATTER_MODES = ("set", "add", "multiply", "maximum", "minimum")
_TORCH_REDUCE = {"add": "sum", "multiply": "prod", "maximum": "amax", "minimum": "amin"}


def _take_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    yield Sample((tensor((5, 3), dtype, generator), sample_indices((2, 4), 5, generator)), {"axis": 0})
    yield Sample((tensor((2, 6), dtype, generator), sample_indices((3,), 6, generator)), {"axis": 1})
    yield Sample((tensor((4,), dtype, generator), sample_indices((), 4, generator)), {"axis": 0})
    yield Sample((tensor((4, 2), dtype, generator), sample_indices((0,), 4, generator)), {"axis": 0})


def _take_shape(x: TensorType, indices: TensorType, *, axis: int) -> Shape:
    if not 0 <= axis < x.rank:
        raise refuse("take", f"axis {axis} is not a dim of the operand", x, indices)
    return (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])


@prim(
    shape=_take_shape,
    operands=(_T, torch.int64),
    results=(_T,),
    tolerance=_EXACT,
    samples=_take_samples,
)
def take(x: Operand, indices: Operand, *, axis: int) -> Operand:
    """Slices of x along ``axis``, 0 <= axis < rank: that dimension is replaced by all dimensions of ``indices``.

    Indices are in range, 0 <= index < size: decompositions wrap negative ones. One out of range is the caller's
    fault, and a backend need not detect it.
    """
    flat = torch.index_select(x, axis, indices.reshape(-1))
    return torch.reshape(flat, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))


def _along_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    yield Sample((tensor((5, 3), dtype, generator), sample_indices((2, 3), 5, generator)), {"axis": 0})
    yield Sample((tensor((2, 6), dtype, generator), sample_indices((2, 9), 6, generator)), {"axis": 1})
    yield Sample((tensor((5, 3), dtype, generator), sample_indices((0, 3), 5, generator)), {"axis": 0})


def _along(op: str, x: TensorType, indices: TensorType, axis: int, *others: TensorType) -> None:
    if not 0 <= axis < x.rank or indices.rank != x.rank:
        raise refuse(op, f"operand and indices need one rank with a dim {axis}", x, indices, *others)


def _gather_shape(x: TensorType, indices: TensorType, *, axis: int) -> Shape:
    _along("gather", x, indices, axis)
    return indices.shape


@prim(
    shape=_gather_shape,
    operands=(_T, torch.int64),
    results=(_T,),
    tolerance=_EXACT,
    samples=_along_samples,
)
def gather(x: Operand, indices: Operand, *, axis: int) -> Operand:
    """Element ``[.., i, ..]`` of the result is ``x[.., indices[.., i, ..], ..]``, the index taken along ``axis``.

    The result has the shape of ``indices``, which has the rank of x, 0 <= axis < rank: of any size along ``axis``,
    and no larger than x in the other dimensions. Indices are in range, 0 <= index < size: decompositions wrap
    negative ones. One out of range is the caller's fault, and a backend need not detect it.
    """
    return torch.gather(x, axis, indices)


def _scatter_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    for mode in SCATTER_MODES:
        if mode != "set" and dtype in dtypes.BOOLEAN | dtypes.COMPLEX:
            continue
        distinct = torch.stack([torch.randperm(5, generator=generator)[:4] for _ in range(3)], dim=1)
        repeated = sample_indices((4, 3), 5, generator)
        yield Sample(
            (
                tensor((5, 3), dtype, generator),
                distinct if mode == "set" else repeated,
                tensor((4, 3), dtype, generator),
            ),
            {"axis": 0, "mode": mode},
        )
        nothing = sample_indices((0, 3), 5, generator), tensor((0, 3), dtype, generator)
        yield Sample((tensor((5, 3), dtype, generator), *nothing), {"axis": 0, "mode": mode})


def _scatter_shape(x: TensorType, indices: TensorType, updates: TensorType, *, axis: int, mode: str) -> Shape:
    _along("scatter", x, indices, axis, updates)
    if differ(updates.shape, indices.shape):
        raise refuse("scatter", "updates and indices must have one shape", x, indices, updates)
    if mode not in SCATTER_MODES:
        raise refuse("scatter", f"mode {mode!r} is none of {SCATTER_MODES}", x, indices, updates)
    return x.shape


def _terms_of_scatter(call: Call) -> int:
    return int(call.operands[1].shape[call.attributes["axis"]]) + 1


@prim(
    shape=_scatter_shape,
    operands=(_T, torch.int64, _T),
    results=(_T,),
    tolerance=Accumulated(_terms_of_scatter),
    samples=_scatter_samples,
)
def scatter(x: Operand, indices: Operand, updates: Operand, *, axis: int, mode: str) -> Operand:
    """x with ``updates[.., i, ..]`` combined into ``x[.., indices[.., i, ..], ..]`` along ``axis``, 0 <= axis <
    rank.

    The result has the shape of x. ``indices`` and ``updates`` have one shape, of the rank of x: of any size along
    ``axis``, and no larger than x in the other dimensions. ``mode`` is ``set``, ``add``, ``multiply``, ``maximum``
    or ``minimum``. The order of several updates of one element is unspecified; with ``set`` one of them wins.
    Indices are in range, 0 <= index < size: decompositions wrap negative ones. One out of range is the caller's
    fault, and a backend need not detect it.
    """
    if mode == "set":
        return torch.scatter(x, axis, indices, updates)
    if mode == "add":
        return torch.scatter_add(x, axis, indices, updates)
    return torch.scatter_reduce(x, axis, indices, updates, reduce=_TORCH_REDUCE[mode])
