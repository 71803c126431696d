"""Rules for ops whose result has a size that only the data decide.

Each computes the size as a value, lets the host read it, and then computes in that size, or cuts what it has computed
in the largest size that the result can have.

Does not: index by masks (`indexing` does).
"""

from __future__ import annotations

from typing import Any

import torch

from backend_sdk import prims
from backend_sdk.decomp.indexing import broadcast_shapes
from backend_sdk.decomp.places import is_true, true_coordinates, true_places
from backend_sdk.decomp.promotion import axis_of
from backend_sdk.decomp.registry import Check, decomposition
from backend_sdk.decomp.searching import flat
from backend_sdk.decomp.shape import slice_axis
from backend_sdk.graph import Value, read
from backend_sdk.prims.shorthand import cast, constant, count, stretch, trailing
from backend_sdk.spec import TensorType
from backend_sdk.spec.symbolic import may_be_empty
from backend_sdk.torch_compat.ops import aten


@decomposition(aten._local_scalar_dense.default, aten.item.default)
def local_scalar_dense(out: Any, x: Value) -> Any:
    read(x, out)
    return out


def _zero() -> Value:
    return prims.full(shape=(), value=0, dtype=torch.int64)  # type: ignore[no-any-return]


# ---- what is not 0


@decomposition(aten.nonzero.default)
def nonzero(out: TensorType, x: Value) -> Any:
    number, rank = out.shape
    if rank == 0:
        read(cast(is_true(x), torch.int64), number)
        return prims.full(shape=out.shape, value=0, dtype=torch.int64)
    columns = [prims.reshape(column, shape=(number, 1)) for column in true_coordinates(x, number)]
    return prims.concat(*columns, axis=1)


@decomposition(aten.nonzero_numpy.default)
def nonzero_numpy(out: tuple[TensorType, ...], x: Value) -> Any:
    x = x if x.ndim else prims.reshape(x, shape=(1,))
    return tuple(true_coordinates(x, out[0].shape[0]))


@decomposition(aten.masked_select.default)
def masked_select(out: TensorType, x: Value, mask: Value) -> Any:
    shape = broadcast_shapes((x.shape, mask.shape))
    places = true_places(flat(trailing(is_true(mask), shape)), out.shape[0])
    return prims.take(flat(trailing(x, shape)), places, axis=0)


# ---- counting


@decomposition(aten.bincount.default)
def bincount(out: TensorType, x: Value, weights: Value | None = None, minlength: Any = 0) -> Any:
    places = cast(x, torch.int64)
    number = out.shape[0]
    least = prims.full(shape=(), value=minlength, dtype=torch.int64)
    read(prims.maximum(_one_more_than_largest(places), least), number)
    start = prims.full(shape=out.shape, value=0, dtype=out.dtype)
    updates = constant(places, 1, out.dtype) if weights is None else cast(weights, out.dtype)
    return prims.scatter(start, places, updates, axis=0, mode="add")


@decomposition(aten.repeat_interleave.Tensor)
def repeat_interleave(out: TensorType, repeats: Value, *, output_size: Any = None) -> Any:
    """Index i, ``repeats[i]`` times: at each place, how many of the runs have ended before."""
    times = cast(repeats, torch.int64)
    number = out.shape[0]
    read(prims.reduce_sum(times, axes=(0,)), number)
    ends = prims.cumsum(times, axis=0)
    ended = prims.full(shape=(number + 1,), value=0, dtype=torch.int64)
    ended = prims.scatter(ended, ends, constant(ends, 1), axis=0, mode="add")
    return cast(slice_axis(prims.cumsum(ended, axis=0), 0, 0, number), out.dtype)


# ---- what is unequal


def _differs_from_previous(x: Value) -> Value:
    """Along axis 0 of ``x[n, m]``: whether an element differs from the one before; the first one does not."""
    size = x.shape[0]
    before = slice_axis(prims.pad(x, low=(1, 0), high=(0, 0), interior=(0, 0), value=0), 0, 0, size)
    follows = stretch(prims.iota(length=size, dtype=torch.int64), (1,), x.shape)
    return prims.bitwise_and(prims.ne(x, before), prims.gt(follows, constant(follows, 0)))  # type: ignore[no-any-return]


def _ranks(x: Value) -> Value:
    """In each column of ``x[n, m]``: how many different elements of it are less. A NaN equals nothing."""
    ordered, source = prims.sort(x, axis=0, descending=False)
    steps = prims.cumsum(cast(_differs_from_previous(ordered), torch.int64), axis=0)
    return prims.scatter(constant(steps, 0), source, steps, axis=0, mode="set")  # type: ignore[no-any-return]


# Columns that `_row_ranks` can compare when it is not told how many there are: their ranks alone are eight bytes each.
_MOST_HALVINGS = 40


def _row_ranks(x: Value) -> Value:
    """`_ranks` of the rows of ``x[n, width]``, compared column by column: int64[n].

    Two neighbouring columns of ranks make one, of the ranks of their pairs, so that log2(width) sorts are enough. Of a
    symbolic width there are as many as 2**40 columns need. Halves of it are halves of 1 soon, which cost one sort of
    ``n`` each and leave the ranks as they are.
    """
    rows, width = x.shape
    ranks = _ranks(cast(x, torch.uint8) if x.dtype == torch.bool else x)
    halvings = (width - 1).bit_length() if isinstance(width, int) else _MOST_HALVINGS
    for done in range(1, halvings + 1):
        columns = (width + 2**done - 1) // 2**done
        # An odd last column is paired with one of zeros, which decide nothing.
        ranks = slice_axis(prims.pad(ranks, low=(0, 0), high=(0, 1), interior=(0, 0), value=0), 1, 0, 2 * columns)
        pairs = prims.reshape(ranks, shape=(rows, columns, 2))
        left, right = (prims.reshape(slice_axis(pairs, 2, side, side + 1), shape=(rows, columns)) for side in (0, 1))
        # Ranks are less than the number of rows: the pair as a number of two digits.
        ranks = _ranks(prims.add(prims.mul(left, constant(left, rows)), right))
    return prims.reshape(slice_axis(ranks, 1, 0, 1), shape=(rows,))  # type: ignore[no-any-return]


_EMPTY = (0,)


def _grouped(out: tuple[TensorType, ...], x: Value, axis: int, group: Value) -> Any:
    """The first member along ``axis`` of each group, each member's group, and the sizes of the groups.

    ``group`` numbers them from 0 on without a gap. What eager leaves empty, because nobody asked for it, is empty.
    """
    number = out[0].shape[axis]
    read(_one_more_than_largest(group), number)
    size = group.shape[0]
    places = prims.iota(length=size, dtype=torch.int64)
    first = prims.scatter(constant(places, size), group, places, axis=0, mode="minimum")
    members = prims.take(x, slice_axis(first, 0, 0, number), axis=axis)
    sizes = prims.scatter(constant(places, 0), group, constant(places, 1), axis=0, mode="add")
    rest = (group, slice_axis(sizes, 0, 0, number))
    return members, *(
        prims.full(shape=_EMPTY, value=0, dtype=type.dtype)
        if type.shape == _EMPTY
        else prims.reshape(value, shape=type.shape)
        for type, value in zip(out[1:], rest, strict=False)
    )


def _one_more_than_largest(x: Value) -> Value:
    """Of nothing: 0. Whether there is anything may be known only later."""
    largest = prims.reduce_max(prims.pad(x, low=(1,), high=(0,), interior=(0,), value=-1), axes=(0,))
    return prims.add(largest, constant(largest, 1))  # type: ignore[no-any-return]


def _of_nothing(out: tuple[TensorType, ...], axis: int) -> Any:
    read(_zero(), out[0].shape[axis])
    return tuple(prims.full(shape=type.shape, value=0, dtype=type.dtype) for type in out)


def _unique_flat(out: tuple[TensorType, ...], x: Value, consecutive: bool) -> Any:
    if 0 in x.shape:
        return _of_nothing(out, 0)
    row = flat(x)
    column = prims.reshape(row, shape=(row.shape[0], 1))
    group = _run_numbers(column) if consecutive else _row_ranks(column)
    return _grouped(out, row, 0, group)


_NOTHING_TO_COMPARE = "unique: a dim other than the chosen one has the size 0, so there is nothing to compare"


def _unique_along(out: tuple[TensorType, ...], check: Check, x: Value, dim: int, consecutive: bool) -> Any:
    axis = axis_of(dim, x.ndim)
    if 0 in x.shape:
        return _of_nothing(out, axis)
    rest = tuple(other for other in range(x.ndim) if other != axis)
    size, width = x.shape[axis], count(x.shape, rest)
    rows = prims.reshape(prims.permute(x, dims=(axis, *rest)), shape=(size, width))
    if may_be_empty((width,)):
        # Eager raises of nothing to compare. What is computed until the host asks must have a column all the same.
        wide = prims.full(shape=(), value=width, dtype=torch.int64)
        check(aten._assert_async.msg, prims.gt(wide, constant(wide, 0)), _NOTHING_TO_COMPARE)
        rows = prims.pad(rows, low=(0, 0), high=(0, 1), interior=(0, 0), value=0)
    group = _run_numbers(rows) if consecutive else _row_ranks(rows)
    return _grouped(out, x, axis, group)


def _run_numbers(rows: Value) -> Value:
    """For each of ``rows[n, m]``, how many runs of equal rows have ended before it: int64[n]."""
    changed = prims.reduce_max(cast(_differs_from_previous(rows), torch.uint8), axes=(1,))
    return prims.cumsum(cast(changed, torch.int64), axis=0)  # type: ignore[no-any-return]


@decomposition(aten._unique2.default)
def unique2(
    out: tuple[TensorType, ...],
    x: Value,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Any:
    return _unique_flat(out, x, False)


@decomposition(aten._unique.default)
def unique(out: tuple[TensorType, ...], x: Value, sorted: bool = True, return_inverse: bool = False) -> Any:
    return _unique_flat(out, x, False)


@decomposition(aten.unique_dim.default, checks=True)
def unique_dim(
    out: tuple[TensorType, ...],
    check: Check,
    x: Value,
    dim: int,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Any:
    return _unique_along(out, check, x, dim, False)


@decomposition(aten.unique_dim_consecutive.default, checks=True)
def unique_dim_consecutive(
    out: tuple[TensorType, ...],
    check: Check,
    x: Value,
    dim: int,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Any:
    return _unique_along(out, check, x, dim, True)


@decomposition(aten.unique_consecutive.default, checks=True)
def unique_consecutive(
    out: tuple[TensorType, ...],
    check: Check,
    x: Value,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    if dim is None:
        return _unique_flat(out, x, True)
    return _unique_along(out, check, x, dim, True)
