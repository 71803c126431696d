"""Rules for distances between points, and for products of three tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from backend_sdk import prims
from backend_sdk.decomp.promotion import spread
from backend_sdk.decomp.registry import decomposition
from backend_sdk.graph import Value
from backend_sdk.prims.matrices import product, transpose
from backend_sdk.prims.shorthand import cast, constant, scaled, stretch
from backend_sdk.spec import Shape, TensorType
from backend_sdk.spec.symbolic import Dim
from backend_sdk.torch_compat.ops import aten

# The codes of cdist's ``compute_mode`` (ATen/native/Distance.cpp), and the number of points from which eager computes
# the Euclidean distance by a matrix product when it may.
_PRODUCT_IF_MANY, _PRODUCT = 0, 1
_MANY = 25


def _lengths(difference: Value, p: float) -> Any:
    """The p-norm of vectors in the last dim."""
    axes = (difference.ndim - 1,)
    sizes = prims.abs(difference)
    if p == 0:
        apart = prims.ne(difference, constant(difference, 0.0))
        return prims.reduce_sum(cast(apart, difference.dtype), axes=axes)
    if p == 1:
        return prims.reduce_sum(sizes, axes=axes)
    if p == 2:
        return prims.sqrt(prims.reduce_sum(prims.mul(sizes, sizes), axes=axes))
    if math.isinf(p):
        return prims.reduce_max(sizes, axes=axes)
    total = prims.reduce_sum(prims.pow(sizes, constant(sizes, p)), axes=axes)
    return prims.pow(total, constant(total, 1.0 / p))


def _pulls(difference: Value, distance: Value, grad: Value, p: float) -> Any:
    """The gradient of ``grad * distance`` by the first of each pair of points; ``distance`` and ``grad`` lack the
    last dim. 0 where two points coincide (ATen/native/cpu/DistanceOpsKernel.cpp).
    """
    axes = (difference.ndim - 1,)
    shape = difference.shape
    length, upstream = stretch(distance, axes, shape), stretch(grad, axes, shape)
    zero = constant(difference, 0.0)
    if p == 0:
        return zero
    signed = prims.mul(upstream, prims.sign(difference))
    if p == 1:
        return signed
    sizes = prims.abs(difference)
    if math.isinf(p):
        return prims.select(prims.eq(sizes, length), signed, zero)
    coincide = prims.eq(length, zero)
    safe = prims.select(coincide, constant(length, 1.0), length)
    if p == 2:
        pull = prims.mul(upstream, prims.div(difference, safe))
    else:
        share = prims.div(sizes, safe)
        if p < 1:
            # A component of 0 has an infinite slope, which eager takes for 0.
            flat = prims.eq(sizes, zero)
            share = prims.select(flat, constant(share, 1.0), share)
            signed = prims.select(flat, zero, signed)
        pull = prims.mul(signed, prims.pow(share, constant(share, p - 1)))
    return prims.select(coincide, zero, pull)


def _between(x: Value, y: Value, batch: Shape) -> Any:
    """``x[.., i, :] - y[.., j, :]`` as ``[*batch, P, R, M]``."""
    (rows, width), (columns, _) = x.shape[-2:], y.shape[-2:]
    rank = len(batch)
    shape = (*batch, rows, columns, width)
    left = spread(x, (*batch, rows, width), x.dtype)
    right = spread(y, (*batch, columns, width), y.dtype)
    dims = tuple(range(rank))
    return prims.sub(
        prims.broadcast(left, shape=shape, dims=(*dims, rank, rank + 2)),
        prims.broadcast(right, shape=shape, dims=(*dims, rank + 1, rank + 2)),
    )


def _by_product(x: Value, y: Value, batch: Shape) -> Any:
    """Euclidean distances as the root of ``|x|^2 + |y|^2 - 2 x y``: fast, and inexact for points that are close."""

    def squares(points: Value) -> Any:
        axes = (points.ndim - 1,)
        return prims.reduce_sum(prims.mul(points, points), axes=axes)

    left = spread(x, (*batch, *x.shape[-2:]), x.dtype)
    right = spread(y, (*batch, *y.shape[-2:]), y.dtype)
    inner = product(left, transpose(right))
    by_row = stretch(squares(left), (inner.ndim - 1,), inner.shape)
    by_column = stretch(squares(right), (inner.ndim - 2,), inner.shape)
    rest = prims.sub(prims.add(by_row, by_column), scaled(inner, 2.0))
    return prims.sqrt(prims.maximum(rest, constant(rest, 0.0)))


@decomposition(aten._cdist_forward.default)
def cdist_forward(out: TensorType, x: Value, y: Value, p: float, compute_mode: int | None) -> Any:
    if x.shape[-1] == 0:
        return prims.full(shape=out.shape, value=0, dtype=out.dtype)
    batch = out.shape[:-2]
    mode = _PRODUCT_IF_MANY if compute_mode is None else compute_mode
    many = any(isinstance(size, int) and size > _MANY for size in out.shape[-2:])
    if p == 2 and (mode == _PRODUCT or (mode == _PRODUCT_IF_MANY and many)):
        return _by_product(x, y, batch)
    return _lengths(_between(x, y, batch), p)


@decomposition(aten._cdist_backward.default)
def cdist_backward(out: TensorType, grad: Value, x: Value, y: Value, p: float, cdist: Value) -> Any:
    if 0 in cdist.shape or x.shape[-1] == 0:
        return prims.full(shape=out.shape, value=0, dtype=out.dtype)
    pulls = _pulls(_between(x, y, cdist.shape[:-2]), cdist, grad, p)
    return prims.reduce_sum(pulls, axes=(pulls.ndim - 2,))


def _pairs(points: int) -> tuple[Any, Any]:
    """The row and the column of each element above the diagonal of a square, row by row: all pairs of points."""
    total = points * points
    index = prims.iota(length=total, dtype=torch.int64)
    size = constant(index, points)
    row, column = prims.floor_div(index, size), prims.fmod(index, size)
    # A stable sort brings the elements above the diagonal to the front, in their order.
    _, order = prims.sort(prims.ge(row, column), axis=0, descending=False)
    chosen = prims.slice(order, starts=(0,), limits=(points * (points - 1) // 2,), strides=(1,))
    return prims.take(row, chosen, axis=0), prims.take(column, chosen, axis=0)


def _apart(x: Value, first: Value, second: Value) -> Any:
    return prims.sub(prims.take(x, first, axis=0), prims.take(x, second, axis=0))


@decomposition(aten._pdist_forward.default)
def pdist_forward(out: TensorType, x: Value, p: float = 2) -> Any:
    points = x.shape[0]
    if not isinstance(points, int):
        return NotImplemented
    if points <= 1 or x.shape[1] == 0:
        return prims.full(shape=out.shape, value=0, dtype=out.dtype)
    return _lengths(_apart(x, *_pairs(points)), p)


@decomposition(aten._pdist_backward.default)
def pdist_backward(out: TensorType, grad: Value, x: Value, p: float, pdist: Value) -> Any:
    points = x.shape[0]
    if not isinstance(points, int):
        return NotImplemented
    start = prims.full(shape=out.shape, value=0, dtype=out.dtype)
    if points <= 1 or x.shape[1] == 0:
        return start
    first, second = _pairs(points)
    pulls = _pulls(_apart(x, first, second), pdist, grad, p)
    total = prims.scatter(start, stretch(first, (1,), pulls.shape), pulls, axis=0, mode="add")
    return prims.scatter(total, stretch(second, (1,), pulls.shape), prims.neg(pulls), axis=0, mode="add")


# ---- products of three tensors


class _Labelled:
    """A value whose dims are numbered dims of a common shape: one factor of a sum of products."""

    def __init__(self, value: Value, dims: tuple[int, ...]) -> None:
        self.value = value
        self.dims = dims

    def summed(self, over: set[int]) -> _Labelled:
        axes = tuple(axis for axis, dim in enumerate(self.dims) if dim in over)
        return _Labelled(prims.reduce_sum(self.value, axes=axes), tuple(d for d in self.dims if d not in over))

    def times(self, other: _Labelled, over: set[int]) -> _Labelled:
        """The product, summed over those of the common dims that are in ``over``."""
        common = [dim for dim in self.dims if dim in other.dims]
        contract = [dim for dim in common if dim in over]
        batch = [dim for dim in common if dim not in over]
        value = prims.dot_general(
            self.value,
            other.value,
            contract=(self._axes(contract), other._axes(contract)),
            batch=(self._axes(batch), other._axes(batch)),
        )
        own = [dim for dim in self.dims if dim not in common]
        return _Labelled(value, (*batch, *own, *(dim for dim in other.dims if dim not in common)))

    def _axes(self, dims: list[int]) -> tuple[int, ...]:
        return tuple(self.dims.index(dim) for dim in dims)


@decomposition(aten._trilinear.default)
def trilinear(
    out: TensorType,
    i1: Value,
    i2: Value,
    i3: Value,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Any:
    """The product of three tensors, each first given dims of size 1 at ``expand``, summed over ``sumdim``."""
    rank = i1.ndim + len(expand1)
    over = {dim % rank for dim in sumdim}
    factors = []
    for value, expand in ((i1, expand1), (i2, expand2), (i3, expand3)):
        added = {dim % rank for dim in expand}
        factors.append(_Labelled(value, tuple(dim for dim in range(rank) if dim not in added)))
    sizes: dict[int, Dim] = {}
    for factor in factors:
        for dim, size in zip(factor.dims, factor.value.shape, strict=True):
            if sizes.setdefault(dim, size) != size:
                # A size of 1 that stretches: torch's callers use ``expand`` for that.
                return NotImplemented
    if len(sizes) != rank:
        return NotImplemented
    # A dim that one factor alone has is summed before anything is multiplied.
    single = {dim for dim in over if sum(dim in factor.dims for factor in factors) == 1}
    x, y, z = (factor.summed(single) for factor in factors)
    result = x.times(y, over - set(z.dims)).times(z, over)
    rest = over & set(result.dims)
    result = result.summed(rest)
    kept = [dim for dim in range(rank) if dim not in over]
    return prims.permute(result.value, dims=tuple(result.dims.index(dim) for dim in kept))
