"""Rules for aten ops that make tensors or move elements: in the dialect a view is a value like any other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from backend_sdk import dtypes, prims
from backend_sdk.decomp.promotion import axis_of, filled
from backend_sdk.decomp.registry import Declined, Memory, decomposition
from backend_sdk.graph import Value, define, is_open
from backend_sdk.prims.shorthand import along, cast, constant, trailing
from backend_sdk.spec import Shape, SymExpr, TensorType
from backend_sdk.spec.symbolic import Dim, larger, smaller
from backend_sdk.torch_compat.ops import aten, prims_of_torch

# ---- reshaping


@decomposition(
    aten.view.default,
    aten.view_copy.default,
    aten._unsafe_view.default,
    aten.reshape.default,
    aten._reshape_copy.default,
    aten._reshape_alias.default,
    aten._reshape_alias_copy.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.unsqueeze.default,
    prims_of_torch.collapse_view.default,
    prims_of_torch.split_dim.default,
    prims_of_torch.squeeze.default,
)
def reshape(out: TensorType, x: Value, *_: Any) -> Any:
    return prims.reshape(x, shape=out.shape)


def _swapped(rank: int, first: int, second: int) -> tuple[int, ...]:
    dims = list(range(rank))
    if rank:
        a, b = axis_of(first, rank), axis_of(second, rank)
        dims[a], dims[b] = dims[b], dims[a]
    return tuple(dims)


@decomposition(aten.t.default)
def t(out: TensorType, x: Value) -> Any:
    return prims.permute(x, dims=tuple(reversed(range(x.ndim))))


@decomposition(aten.transpose.int)
def transpose(out: TensorType, x: Value, first: int, second: int) -> Any:
    return prims.permute(x, dims=_swapped(x.ndim, first, second))


@decomposition(aten.permute.default, prims_of_torch.transpose.default)
def permute(out: TensorType, x: Value, dims: Sequence[int]) -> Any:
    return prims.permute(x, dims=tuple(axis_of(dim, x.ndim) for dim in dims))


@decomposition(aten.native_channel_shuffle.default)
def channel_shuffle(out: TensorType, x: Value, groups: int) -> Any:
    """Channel j of group i becomes channel i of group j."""
    batch, channels, *rest = x.shape
    grouped = prims.reshape(x, shape=(batch, groups, channels // groups, *rest))
    return prims.reshape(prims.permute(grouped, dims=_swapped(grouped.ndim, 1, 2)), shape=out.shape)


@decomposition(aten.expand.default)
def expand(out: TensorType, x: Value, size: Any, *, implicit: bool = False) -> Any:
    return trailing(x, out.shape)


@decomposition(prims_of_torch.broadcast_in_dim.default)
def broadcast_in_dim(out: TensorType, x: Value, shape: Any, dims: Sequence[int]) -> Any:
    return prims.broadcast(x, shape=out.shape, dims=tuple(dims))


@decomposition(aten.repeat.default)
def repeat(out: TensorType, x: Value, repeats: Sequence[Dim]) -> Any:
    lead = len(repeats) - x.ndim
    shape: list[Dim] = list(repeats[:lead])
    kept = []
    for size, times in zip(x.shape, repeats[lead:], strict=True):
        shape += [times, size]
        kept.append(len(shape) - 1)
    return prims.reshape(prims.broadcast(x, shape=tuple(shape), dims=tuple(kept)), shape=out.shape)


@decomposition(aten.flip.default, prims_of_torch.rev.default)
def flip(out: TensorType, x: Value, dims: Sequence[int]) -> Any:
    return prims.reverse(x, dims=tuple(sorted(axis_of(dim, x.ndim) for dim in dims)))


@decomposition(aten.roll.default)
def roll(out: TensorType, x: Value, shifts: Any, dims: Any = ()) -> Any:
    shifts = (shifts,) if isinstance(shifts, (int, SymExpr)) else tuple(shifts)
    dims = (dims,) if isinstance(dims, int) else tuple(dims)
    if not dims:
        flat = prims.reshape(x, shape=(_count(x.shape),))
        return prims.reshape(_rolled(flat, shifts[0], 0), shape=out.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        x = _rolled(x, shift, axis_of(dim, x.ndim))
    return x


def _count(shape: Shape) -> Dim:
    count: Dim = 1
    for size in shape:
        count = count * size
    return count


def _rolled(x: Value, shift: Any, axis: int) -> Value:
    size: Any = x.shape[axis] if x.ndim else 1
    # torch guards that a symbolic size is not 0 before it rolls.
    cut = 0 if size == 0 else shift % size
    if cut == 0:
        return x
    head, tail = slice_axis(x, axis, size - cut, size), slice_axis(x, axis, 0, size - cut)
    return prims.concat(head, tail, axis=axis)  # type: ignore[no-any-return]


# ---- slicing


def slice_axis(x: Value, axis: int, start: Dim, limit: Dim, stride: int = 1) -> Value:
    """x limited to ``start <= i < limit`` along one axis."""
    starts: list[Dim] = [0] * x.ndim
    limits = list(x.shape)
    strides = [1] * x.ndim
    starts[axis], limits[axis], strides[axis] = start, limit, stride
    return prims.slice(x, starts=tuple(starts), limits=tuple(limits), strides=tuple(strides))  # type: ignore[no-any-return]


def clamped_start(start: Any, size: Dim, length: Dim, end: Any, step: int) -> Dim:
    """The first index of a Python slice, wrapped and clamped into ``[0, size]``.

    For a symbolic size the comparison is not known; the slice's length, which eager gave, then tells.
    """
    if start is None:
        return 0
    if isinstance(start, int) and isinstance(size, int):
        start = start + size if start < 0 else start
        return int(min(max(start, 0), size))
    if isinstance(start, int):
        if start < 0:
            return size + start
        # An empty slice may start past the end.
        return start if length != 0 else 0
    if isinstance(size, int) or length != 0:
        return start  # type: ignore[no-any-return]
    return 0


def _within(index: Dim, size: Dim) -> Dim:
    """An index of which nothing is known, neither its sign nor whether it is in range, as Python's slices take it."""
    if isinstance(index, int) and index >= 0:
        return smaller(index, size)
    return larger(smaller(_counted_from_start(index, size), size), 0)


def _counted_from_start(index: Dim, size: Dim) -> Dim:
    """An index of unknown sign, a negative one counted from the end."""
    return index + size * larger(smaller(-index, 1), 0)


@decomposition(aten.slice.Tensor, aten.slice_copy.Tensor, reads_memory=True)
def slice_tensor(
    out: TensorType, memory: Memory, x: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    axis = axis_of(dim, x.ndim)
    length = out.shape[axis]
    if is_open(length) or is_open(memory.results[0].offset):
        # The ends are numbers that only the data decide.
        size = x.shape[axis]
        first, last = (_within(0 if index is None else index, size) for index in (start, size if end is None else end))
        define(length, (larger(last - first, 0) + step - 1) // step)
        _define_offset(memory, axis, first)
        return slice_axis(x, axis, first, first + (length - 1) * step + 1, step)
    first = clamped_start(start, x.shape[axis], length, end, step)
    if length == x.shape[axis]:
        first = 0
    limit = first + length if step == 1 else first + (length - 1) * step + 1
    return slice_axis(x, axis, first, limit if length != 0 else first, step)


def _define_offset(memory: Memory, axis: int, first: Dim) -> None:
    """Where the part from ``first`` on begins: torch leaves that open when only the data decide it."""
    whole = memory.operands[0]
    define(memory.results[0].offset, whole.offset + first * whole.strides[axis])


@decomposition(aten.select.int, aten.select_copy.int, reads_memory=True)
def select(out: TensorType, memory: Memory, x: Value, dim: int, index: Any) -> Any:
    axis = axis_of(dim, x.ndim)
    if is_open(memory.results[0].offset):
        index = _counted_from_start(index, x.shape[axis])
        _define_offset(memory, axis, index)
    if isinstance(index, int) and index < 0:
        index = x.shape[axis] + index
    return prims.reshape(slice_axis(x, axis, index, index + 1), shape=out.shape)


@decomposition(aten.narrow.default, aten.narrow_copy.default)
def narrow(out: TensorType, x: Value, dim: int, start: Any, length: Any) -> Any:
    axis = axis_of(dim, x.ndim)
    if isinstance(start, int) and start < 0:
        start = x.shape[axis] + start
    return slice_axis(x, axis, start, start + out.shape[axis])


@decomposition(
    aten.split.Tensor,
    aten.split_with_sizes.default,
    aten.split_with_sizes_copy.default,
    aten.split_copy.Tensor,
    aten.unsafe_split.Tensor,
    aten.chunk.default,
)
def split(out: tuple[TensorType, ...], x: Value, sizes: Any, dim: int = 0) -> Any:
    axis = axis_of(dim, x.ndim)
    parts = []
    start: Dim = 0
    for part in out:
        limit = start + part.shape[axis]
        parts.append(slice_axis(x, axis, start, limit))
        start = limit
    return tuple(parts)


@decomposition(aten.unbind.int)
def unbind(out: tuple[TensorType, ...], x: Value, dim: int = 0) -> Any:
    axis = axis_of(dim, x.ndim)
    return tuple(
        prims.reshape(slice_axis(x, axis, index, index + 1), shape=part.shape) for index, part in enumerate(out)
    )


@decomposition(aten.unfold.default, aten.unfold_copy.default)
def unfold(out: TensorType, x: Value, dim: int, size: int, step: int) -> Any:
    """Windows of x along ``dim``: each start becomes a row, the elements of its window the last dim."""
    if x.ndim == 0:
        return prims.reshape(x, shape=out.shape)
    axis = axis_of(dim, x.ndim)
    shape = (out.shape[axis], size)
    starts = prims.iota(length=shape[0], dtype=torch.int64)
    starts = along(prims.mul(starts, constant(starts, step)), (0,), shape)
    places = prims.add(starts, along(prims.iota(length=size, dtype=torch.int64), (1,), shape))
    windows = prims.take(x, places, axis=axis)
    dims = [dim for dim in range(windows.ndim) if dim != axis + 1]
    return prims.permute(windows, dims=(*dims, axis + 1))


@decomposition(aten.diagonal.default, aten.diagonal_copy.default)
def diagonal(out: TensorType, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    first, second = axis_of(dim1, x.ndim), axis_of(dim2, x.ndim)
    others = tuple(dim for dim in range(x.ndim) if dim not in (first, second))
    matrix = prims.permute(x, dims=(*others, first, second))
    length = out.shape[-1]
    if length == 0:
        # The offset may lie beyond the edges.
        return prims.full(shape=out.shape, value=0, dtype=out.dtype)
    rank = matrix.ndim
    row, column = max(-offset, 0), max(offset, 0)
    matrix = slice_axis(matrix, rank - 2, row, row + length)
    matrix = slice_axis(matrix, rank - 1, column, column + length)
    places = prims.iota(length=length, dtype=torch.int64)
    index = prims.broadcast(places, shape=(*out.shape, 1), dims=(rank - 2,))
    return prims.reshape(prims.gather(matrix, index, axis=rank - 1), shape=out.shape)


@decomposition(aten.diagonal_scatter.default)
def diagonal_scatter(out: TensorType, x: Value, source: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    first, second = axis_of(dim1, x.ndim), axis_of(dim2, x.ndim)
    others = tuple(dim for dim in range(x.ndim) if dim not in (first, second))
    order = (*others, first, second)
    rank = x.ndim
    length = source.shape[-1]
    if length == 0:
        return x
    row, column = max(-offset, 0), max(offset, 0)
    # On the rows that the diagonal crosses, each element but its own is kept.
    matrix = prims.permute(x, dims=order)
    rows = prims.iota(length=length, dtype=torch.int64)
    places = prims.broadcast(_shifted(rows, column), shape=(*source.shape, 1), dims=(rank - 2,))
    crossed = prims.scatter(
        slice_axis(matrix, rank - 2, row, row + length),
        places,
        prims.reshape(cast(source, out.dtype), shape=(*source.shape, 1)),
        axis=rank - 1,
        mode="set",
    )
    written = slice_scatter(matrix.type, matrix, crossed, rank - 2, row, row + length)
    return prims.permute(written, dims=tuple(order.index(dim) for dim in range(rank)))


# ---- joining and padding


@decomposition(aten.cat.default)
def cat(out: TensorType, tensors: Sequence[Value], dim: int = 0) -> Any:
    # torch lets an empty 1-d tensor join tensors of any shape.
    parts = [cast(x, out.dtype) for x in tensors if x.shape != (0,) or len(out.shape) == 1]
    if not parts:
        return cast(tensors[0], out.dtype)
    return parts[0] if len(parts) == 1 else prims.concat(*parts, axis=axis_of(dim, len(out.shape)))


@decomposition(aten.stack.default, aten._stack.default)
def stack(out: TensorType, tensors: Sequence[Value], dim: int = 0) -> Any:
    axis = axis_of(dim, len(out.shape))
    shape = (*out.shape[:axis], 1, *out.shape[axis + 1 :])
    return prims.concat(*(prims.reshape(cast(x, out.dtype), shape=shape) for x in tensors), axis=axis)


@decomposition(aten.constant_pad_nd.default)
def constant_pad_nd(out: TensorType, x: Value, amounts: Sequence[Dim], value: Any = 0) -> Any:
    low: list[Dim] = [0] * x.ndim
    high: list[Dim] = [0] * x.ndim
    for position in range(len(amounts) // 2):
        axis = x.ndim - 1 - position
        low[axis], high[axis] = amounts[2 * position], amounts[2 * position + 1]
    return prims.pad(x, low=tuple(low), high=tuple(high), interior=(0,) * x.ndim, value=value)


@decomposition(aten.slice_backward.default)
def slice_backward(out: TensorType, grad: Value, sizes: Any, dim: int, start: Any, end: Any, step: int) -> Any:
    axis = axis_of(dim, len(out.shape))
    size, length = out.shape[axis], grad.shape[axis]
    if length == 0:
        return prims.full(shape=out.shape, value=0, dtype=out.dtype)
    first = _within(start, size) if isinstance(start, SymExpr) else clamped_start(start, size, length, end, step)
    if length == size:
        first = 0
    # Between the elements of nothing there is nothing.
    span = length if step == 1 else larger((length - 1) * step + 1, 0)
    return prims.reshape(_padded(grad, axis, first, size - first - span, step - 1), shape=out.shape)


def _padded(x: Value, axis: int, low: Dim, high: Dim, interior: int = 0) -> Any:
    def at(amount: Any) -> tuple[Any, ...]:
        return tuple(amount if dim == axis else 0 for dim in range(x.ndim))

    return prims.pad(x, low=at(low), high=at(high), interior=at(interior), value=0)


@decomposition(aten.select_backward.default)
def select_backward(out: TensorType, grad: Value, sizes: Any, dim: int, index: Any) -> Any:
    axis = axis_of(dim, len(out.shape))
    if isinstance(index, int) and index < 0:
        index = out.shape[axis] + index
    elif isinstance(index, SymExpr):
        index = _counted_from_start(index, out.shape[axis])
    row = prims.reshape(grad, shape=(*out.shape[:axis], 1, *out.shape[axis + 1 :]))
    return _padded(row, axis, index, out.shape[axis] - index - 1)


@decomposition(aten.slice_scatter.default)
def slice_scatter(
    out: TensorType,
    x: Value,
    source: Value,
    dim: int = 0,
    start: Any = None,
    end: Any = None,
    step: int = 1,
) -> Any:
    axis = axis_of(dim, x.ndim)
    size, length = x.shape[axis], source.shape[axis]
    if length == 0:
        return x
    if length == size:
        return cast(source, out.dtype)
    first = clamped_start(start, size, length, end, step)
    after = first + (length - 1) * step + 1
    if step == 1:
        parts = [slice_axis(x, axis, 0, first), cast(source, out.dtype), slice_axis(x, axis, after, size)]
        return prims.concat(*(part for part in parts if part.shape[axis] != 0), axis=axis)
    mask = _padded(constant(source, True, torch.bool), axis, first, size - after, step - 1)
    return prims.select(mask, _padded(cast(source, out.dtype), axis, first, size - after, step - 1), x)


@decomposition(aten.select_scatter.default)
def select_scatter(out: TensorType, x: Value, source: Value, dim: int, index: Any) -> Any:
    axis = axis_of(dim, x.ndim)
    if isinstance(index, int) and index < 0:
        index = x.shape[axis] + index
    row = prims.reshape(source, shape=(*x.shape[:axis], 1, *x.shape[axis + 1 :]))
    return slice_scatter(out, x, row, axis, index, index + 1)


# ---- making


@decomposition(
    aten.full.default,
    aten.full_like.default,
    aten.new_full.default,
)
def full(out: TensorType, like_or_size: Any, *rest: Any, fill_value: Any = None, **_: Any) -> Any:
    # full(size, fill), full_like(x, fill), new_full(x, size, fill): the fill comes last among the positional ones.
    value = fill_value if fill_value is not None else rest[-1]
    return filled(value, out.shape, out.dtype)


@decomposition(aten.ones.default, aten.ones_like.default, aten.new_ones.default)
def ones(out: TensorType, *_: Any, **__: Any) -> Any:
    return prims.full(shape=out.shape, value=1, dtype=out.dtype)


# What `empty` leaves undefined is zero here: a value must be something.
@decomposition(
    aten.zeros.default,
    aten.zeros_like.default,
    aten.new_zeros.default,
    aten.empty.memory_format,
    aten.empty_like.default,
    aten.new_empty.default,
    aten.empty_strided.default,
    aten.new_empty_strided.default,
    aten.empty_permuted.default,
    aten._make_dep_token.default,
    aten._new_zeros_with_same_feature_meta.default,
    aten.set.default,
    prims_of_torch.empty_strided.default,
)
def zeros(out: TensorType, *_: Any, **__: Any) -> Any:
    return prims.full(shape=out.shape, value=0, dtype=out.dtype)


@decomposition(aten.fill.Scalar, aten.fill.Tensor)
def fill(out: TensorType, x: Value, value: Any) -> Any:
    return filled(value, out.shape, out.dtype)


@decomposition(aten.scalar_tensor.default, prims_of_torch.scalar_tensor.default)
def scalar_tensor(out: TensorType, value: Any, **_: Any) -> Any:
    return filled(value, (), out.dtype)


def _ramp(out: TensorType, start: Any, step: Any) -> Any:
    """start + i * step in the result's dtype; 16-bit floats compute in float32."""
    wide = dtypes.compute_dtype(out.dtype)
    index = prims.iota(length=out.shape[0], dtype=torch.int64 if wide in dtypes.INTEGRAL else wide)
    if step != 1:
        index = prims.mul(index, constant(index, step))
    if start != 0:
        index = prims.add(index, constant(index, start))
    return cast(index, out.dtype)


@decomposition(aten.arange.default)
def arange(out: TensorType, end: Any, **_: Any) -> Any:
    return _ramp(out, 0, 1)


@decomposition(aten.arange.start)
def arange_start(out: TensorType, start: Any, end: Any, **_: Any) -> Any:
    return _ramp(out, start, 1)


@decomposition(aten.arange.start_step)
def arange_start_step(out: TensorType, start: Any, end: Any, step: Any = 1, **_: Any) -> Any:
    return _ramp(out, start, step)


@decomposition(aten.range.default, aten.range.step)
def range_with_its_end(out: TensorType, start: Any, end: Any, step: Any = 1, **_: Any) -> Any:
    """``torch.range``, which holds its end."""
    return _ramp(out, start, step)


@decomposition(
    aten.linspace.default, aten.linspace.Tensor_Scalar, aten.linspace.Scalar_Tensor, aten.linspace.Tensor_Tensor
)
def linspace(out: TensorType, start: Any, end: Any, steps: Any, **_: Any) -> Any:
    """Each half from its own end, so that both ends are met.

    The ends are converted to the dtype first, for integers too (4.3 counts as 4), whose steps are float64. 16-bit
    floats round the step, as eager does. Eager rounds the first element of each vector too, so that its numbers depend
    on the machine's vectors.
    """
    if not isinstance(steps, int):
        return Declined("the number of steps is symbolic: torch's own decomposition takes it")
    first, last = (filled(end, (), out.dtype) for end in (start, end))
    if steps == 1:
        return trailing(first, out.shape)
    wide = torch.float64 if out.dtype in dtypes.INTEGRAL | dtypes.BOOLEAN else out.dtype
    first, last = cast(first, wide), cast(last, wide)
    step = prims.div(prims.sub(last, first), constant(first, steps - 1))
    index = prims.iota(length=steps, dtype=torch.int64)
    ahead, back = cast(index, wide), cast(prims.sub(constant(index, steps - 1), index), wide)
    first, last, step = (trailing(part, out.shape) for part in (first, last, step))
    return cast(
        prims.select(
            prims.lt(index, constant(index, steps // 2)),
            prims.add(first, prims.mul(step, ahead)),
            prims.sub(last, prims.mul(step, back)),
        ),
        out.dtype,
    )


@decomposition(prims_of_torch.iota.default)
def iota(out: TensorType, length: Any, *, start: Any, step: Any, **_: Any) -> Any:
    return _ramp(out, start, step)


@decomposition(aten.eye.default, aten.eye.m)
def eye(out: TensorType, *_: Any, **__: Any) -> Any:
    return cast(prims.eq(*_rows_and_columns(out.shape)), out.dtype)


def _rows_and_columns(shape: Shape) -> tuple[Value, Value]:
    """The row index and the column index of each element of the last two dims."""
    rank = len(shape)
    rows = along(prims.iota(length=shape[-2], dtype=torch.int64), (rank - 2,), shape)
    columns = along(prims.iota(length=shape[-1], dtype=torch.int64), (rank - 1,), shape)
    return rows, columns


@decomposition(aten.tril.default)
def tril(out: TensorType, x: Value, diagonal: int = 0) -> Any:
    rows, columns = _rows_and_columns(x.shape)
    return prims.select(prims.le(columns, _shifted(rows, diagonal)), x, constant(x, 0))


@decomposition(aten.triu.default)
def triu(out: TensorType, x: Value, diagonal: int = 0) -> Any:
    rows, columns = _rows_and_columns(x.shape)
    return prims.select(prims.ge(columns, _shifted(rows, diagonal)), x, constant(x, 0))


def _shifted(x: Value, amount: Any) -> Value:
    return x if amount == 0 else prims.add(x, constant(x, amount))
