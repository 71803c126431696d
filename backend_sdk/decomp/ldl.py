"""Rules for LDL factorizations of Hermitian and symmetric matrices, and for solving with them.

LAPACK's packed form leaves each column of L in the row order that held when it was made. The solve first brings all
columns into the final order, in log2 N steps that do not wait on data, and is then two triangular solves around one
with blocks of one and two rows.
"""

from __future__ import annotations

from typing import Any

import torch

from backend_sdk import dtypes, prims
from backend_sdk.decomp.linalg import SYMBOLIC, exchanges, first_place, has_known_rank, is_static, raise_for
from backend_sdk.decomp.registry import Check, decomposition
from backend_sdk.graph import Value
from backend_sdk.prims import matrices as m
from backend_sdk.prims.shorthand import along, cast, constant, stretch
from backend_sdk.spec import TensorType
from backend_sdk.torch_compat.ops import aten


@decomposition(aten.linalg_ldl_factor_ex.default, checks=True)
def linalg_ldl_factor_ex(
    out: tuple[TensorType, TensorType, TensorType],
    check: Check,
    x: Value,
    *,
    hermitian: bool = False,
    check_errors: bool = False,
) -> Any:
    if not has_known_rank(x):
        return SYMBOLIC
    if 0 in x.shape:
        return tuple(prims.full(shape=type.shape, value=0, dtype=type.dtype) for type in out)
    packed, pivots = prims.ldl(x, hermitian=hermitian or x.dtype not in dtypes.COMPLEX)
    values = m.diagonal(packed, x.shape[-1])
    alone = prims.gt(pivots, constant(pivots, 0))
    zero = prims.eq(values, constant(values, 0))
    info = first_place(prims.bitwise_and(alone, zero))
    if check_errors:
        raise_for(info, check, "torch.linalg.ldl_factor_ex", x)
    return packed, m.as_int32(pivots), info


def _moved_up(x: Value, axis: int, steps: int, value: Any = 0) -> Any:
    """Element i + steps in place i along ``axis``, and ``value`` at the end (a negative ``steps`` moves down)."""
    low, high = [0] * x.ndim, [0] * x.ndim
    low[axis], high[axis] = -steps, steps
    return prims.pad(x, low=tuple(low), high=tuple(high), interior=(0,) * x.ndim, value=value)


def _orders_after(pivots: Value, starts: Value) -> tuple[Any, Any]:
    """Row orders to which the exchanges lead: of all of them ``[*, N]``, and for each column of L of those after it was
    made, ``[*, N, N]`` with a column per column.
    """
    size = pivots.shape[-1]
    assert isinstance(size, int)
    axis = pivots.ndim - 1
    shape = (*pivots.shape, size)
    own = along(prims.iota(length=size, dtype=torch.int64), (axis,), pivots.shape)
    row = prims.sub(_absolute(pivots), constant(pivots, 1))
    # The exchange of a block of two is that of its second row.
    suffix = exchanges(prims.select(starts, own, row), shape)
    identity = m.column_indices(shape)
    places = m.row_indices(shape)

    def later(orders: Value, steps: int) -> Any:
        beyond = prims.ge(places, constant(places, size - steps))
        return prims.select(beyond, identity, _moved_up(orders, axis, steps))

    reach = 1
    while reach < size:
        suffix = prims.gather(suffix, later(suffix, reach), axis=axis + 1)
        reach *= 2
    total = prims.slice(
        suffix,
        starts=(0,) * len(shape),
        limits=(*shape[:-2], 1, size),
        strides=(1,) * len(shape),
    )
    after = prims.select(stretch(starts, (axis + 1,), shape), later(suffix, min(2, size)), later(suffix, 1))
    return prims.reshape(total, shape=pivots.shape), m.transpose(after)


def _absolute(x: Value) -> Any:
    return prims.select(prims.lt(x, constant(x, 0)), prims.neg(x), x)


@decomposition(aten.linalg_ldl_solve.default)
def linalg_ldl_solve(out: TensorType, packed: Value, pivots: Value, b: Value, *, hermitian: bool = False) -> Any:
    if not is_static(packed):
        return SYMBOLIC
    if 0 in out.shape:
        return prims.full(shape=out.shape, value=0, dtype=out.dtype)
    batch, size = out.shape[:-2], packed.shape[-1]
    packed, b = m.to_batch(packed, batch), m.to_batch(b, batch)
    steps = prims.broadcast(
        cast(pivots, torch.int64),
        shape=(*batch, size),
        dims=tuple(range(len(batch) + 1 - pivots.ndim, len(batch) + 1)),
    )
    axis = len(batch)
    paired = prims.lt(steps, constant(steps, 0))
    # Rows of blocks of two come in pairs: the odd ones among them start a block.
    number = prims.cumsum(cast(paired, torch.int64), axis=axis)
    odd = prims.eq(prims.fmod(number, constant(number, 2)), constant(number, 1))
    starts = prims.bitwise_and(paired, odd)
    order, after = _orders_after(steps, starts)

    # A block's element below the diagonal belongs to D.
    inside = prims.bitwise_and(
        stretch(starts, (axis,), packed.shape),
        prims.eq(m.row_indices(packed.shape), _next(m.column_indices(packed.shape))),
    )
    low = prims.gather(prims.select(inside, constant(packed, 0), m.lower(packed, -1)), after, axis=axis)

    rows = stretch(order, (axis + 1,), b.shape)
    y = prims.triangular_solve(low, prims.gather(b, rows, axis=axis), lower=True, unit_diagonal=True)
    z = _block_solved(packed, starts, paired, inside, y, hermitian)
    above = m.adjoint(low) if hermitian else m.transpose(low)
    x = prims.triangular_solve(above, z, lower=False, unit_diagonal=True)
    return prims.scatter(constant(x, 0), rows, x, axis=axis, mode="set")


def _next(index: Value) -> Any:
    return prims.add(index, constant(index, 1))


def _block_solved(packed: Value, starts: Value, paired: Value, inside: Value, y: Value, hermitian: bool) -> Any:
    """D^-1 y. A block of two is divided by its element below the diagonal first, as LAPACK's ``sytrs`` does, so that
    its determinant cannot overflow.
    """
    size = packed.shape[-1]
    axis = y.ndim - 2
    shape = y.shape
    one = constant(y, 1)

    def column(values: Value) -> Any:
        return stretch(values, (axis + 1,), shape)

    values = m.diagonal(packed, size)
    # For both rows of a block: e, the element below the diagonal, in the place of the first.
    e = prims.reduce_sum(prims.select(inside, packed, constant(packed, 0)), axes=(axis,))
    e = prims.select(starts, e, constant(e, 1))
    mirrored = m.conjugate(e) if hermitian else e
    first = prims.div(values, mirrored)
    second = prims.div(_moved_up(values, axis, 1), e)
    denominator = prims.sub(prims.mul(first, second), constant(first, 1))
    denominator = prims.select(starts, denominator, constant(denominator, 1))
    top = prims.div(y, column(mirrored))
    bottom = prims.div(_moved_up(y, axis, 1), column(e))
    solved = [
        prims.div(prims.sub(prims.mul(column(a), u), v), column(denominator))
        for a, u, v in ((second, top, bottom), (first, bottom, top))
    ]
    starting, in_pair = column(starts), column(paired)
    pair = prims.select(starting, solved[0], _moved_up(solved[1], axis, -1))
    alone = prims.div(y, prims.select(in_pair, one, column(values)))
    return prims.select(in_pair, pair, alone)
