"""Rules for rows that stand one after another in one dense tensor, with the places where each run of them begins: rows
of different lengths, and the compressed rows of a sparse matrix.

Does not: take nested or sparse tensors, of which the dialect has none; here are the dense ones that they are made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from backend_sdk import prims
from backend_sdk.decomp.places import never_empty
from backend_sdk.decomp.registry import Declined, decomposition
from backend_sdk.decomp.searching import flat, positions
from backend_sdk.decomp.shape import slice_axis
from backend_sdk.graph import Value, read
from backend_sdk.prims.shorthand import along, cast, constant
from backend_sdk.spec import TensorType
from backend_sdk.torch_compat.ops import aten

_ONE_LIST = Declined("rows of rows: it takes the offsets of one list")


def _run_of(starts: Value, number: Any) -> Value:
    """For each of ``number`` places, in which run it stands: int64[..., number]. ``starts[..., n + 1]`` ascend."""
    places = along(prims.iota(length=number, dtype=torch.int64), (starts.ndim - 1,), (*starts.shape[:-1], number))
    found = prims.searchsorted(cast(starts, torch.int64), places, right=True)
    return prims.sub(found, constant(found, 1))  # type: ignore[no-any-return]


@decomposition(aten._jagged_to_padded_dense_forward.default)
def jagged_to_padded_dense(
    out: TensorType, values: Value, offsets: Sequence[Value], max_lengths: Any, padding_value: float = 0.0
) -> Any:
    """``values[n, ...]`` as ``[batch, most, ...]``: row l of list b is ``values[offsets[b] + l]``, or padding."""
    if len(offsets) != 1:
        return _ONE_LIST
    if 0 in out.shape:
        return prims.full(shape=out.shape, value=0, dtype=out.dtype)
    batch, most = out.shape[:2]
    starts = cast(offsets[0], torch.int64)
    begin, end = (along(slice_axis(starts, 0, at, batch + at), (0,), (batch, most)) for at in (0, 1))
    place = prims.add(begin, positions((batch, most), 1))
    inside = prims.lt(place, end)
    supply = values if 0 not in values.shape else prims.full(shape=(1, *values.shape[1:]), value=0, dtype=values.dtype)
    supply = never_empty(supply, 0)
    taken = prims.take(supply, flat(prims.select(inside, place, constant(place, 0))), axis=0)
    taken = prims.reshape(taken, shape=out.shape)
    return prims.select(along(inside, (0, 1), out.shape), taken, constant(taken, padding_value))


@decomposition(aten._padded_dense_to_jagged_forward.default)
def padded_dense_to_jagged(out: TensorType, dense: Value, offsets: Sequence[Value], total_L: Any = None) -> Any:
    """``dense[batch, most, ...]`` without its padding: ``[total, ...]``. How many rows these are, the last offset says,
    unless the caller does.
    """
    if len(offsets) != 1:
        return _ONE_LIST
    starts = cast(offsets[0], torch.int64)
    batch, most = dense.shape[:2]
    total = out.shape[0]
    if total_L is None:
        read(prims.reshape(slice_axis(starts, 0, batch, batch + 1), shape=()), total)
    if 0 in out.shape or 0 in dense.shape:
        return prims.full(shape=out.shape, value=0, dtype=out.dtype)
    run = _run_of(starts, total)
    # Behind the last list stands what the caller has asked for too much.
    run = prims.minimum(run, constant(run, batch - 1))
    row = prims.sub(prims.iota(length=total, dtype=torch.int64), prims.take(starts, run, axis=0))
    inside = prims.lt(row, constant(row, most))
    place = prims.add(prims.mul(run, constant(run, most)), prims.select(inside, row, constant(row, 0)))
    rows = prims.reshape(dense, shape=(batch * most, *dense.shape[2:]))
    taken = prims.take(rows, place, axis=0)
    return prims.select(along(inside, (0,), out.shape), taken, constant(taken, 0))


@decomposition(aten._convert_indices_from_coo_to_csr.default)
def convert_indices_from_coo_to_csr(out: TensorType, rows: Value, size: Any, *, out_int32: bool = False) -> Any:
    """Where each of ``size`` rows begins in ``rows``, which ascend, and where the last one ends."""
    starts = prims.iota(length=out.shape[0], dtype=torch.int64)
    return cast(prims.searchsorted(cast(rows, torch.int64), starts, right=False), out.dtype)


@decomposition(aten._convert_indices_from_csr_to_coo.default)
def convert_indices_from_csr_to_coo(
    out: TensorType, starts: Value, columns: Value, *, out_int32: bool = False, transpose: bool = False
) -> Any:
    """The row and the column of each element, below the indices of its batch: ``[batch dims + 2, elements]``."""
    if 0 in out.shape:
        return prims.full(shape=out.shape, value=0, dtype=out.dtype)
    shape = columns.shape
    last = [_run_of(starts, shape[-1]), cast(columns, torch.int64)]
    if transpose:
        last.reverse()
    found = [positions(shape, axis) for axis in range(len(shape) - 1)] + last
    lines = [prims.reshape(one, shape=(1, out.shape[1])) for one in found]
    return cast(prims.concat(*lines, axis=0), out.dtype)
