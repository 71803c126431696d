"""Shorthand on batches of matrices ``[*, M, N]``: products, transposes, triangles, diagonals, rows and columns.

Works on tensors and on graph values alike. Adds no op to the contract.
"""

from __future__ import annotations

import torch

from backend_sdk import dtypes
from backend_sdk.prims.complex import complex as complex_of
from backend_sdk.prims.complex import imag, real
from backend_sdk.prims.define import Operand
from backend_sdk.prims.elementwise import abs as abs_real
from backend_sdk.prims.elementwise import add, convert, div, eq, ge, maximum, mul, neg, select, sqrt
from backend_sdk.prims.indexing import gather
from backend_sdk.prims.linear import dot_general
from backend_sdk.prims.shape import broadcast, full, iota, permute, reshape
from backend_sdk.prims.shape import slice as slice_
from backend_sdk.prims.shorthand import along, cast, constant, stretch
from backend_sdk.spec import Shape
from backend_sdk.spec.symbolic import Dim, SymExpr

MATRIX_DTYPES = frozenset({torch.float32, torch.float64, torch.complex64, torch.complex128})


# ---- complex numbers


def conjugate(x: Operand) -> Operand:
    """The complex conjugate; a real x itself."""
    return complex_of(real(x), neg(imag(x))) if x.dtype in dtypes.COMPLEX else x


def magnitude(x: Operand) -> Operand:
    """|x|, real. Of a complex x without overflow in between, as C's hypot; NaN where a part is NaN."""
    if x.dtype not in dtypes.COMPLEX:
        return abs_real(x)
    a, b = abs_real(real(x)), abs_real(imag(x))
    large = maximum(a, b)
    scale = select(eq(large, constant(large, 0.0)), constant(large, 1.0), large)
    a, b = div(a, scale), div(b, scale)
    return mul(large, sqrt(add(mul(a, a), mul(b, b))))


def with_dtype(x: Operand, dtype: torch.dtype) -> Operand:
    """x as ``dtype``: a real x becomes complex with an imaginary part of 0."""
    if dtype in dtypes.COMPLEX and x.dtype not in dtypes.COMPLEX:
        part = cast(x, dtype.to_real())
        return complex_of(part, constant(part, 0.0))
    return cast(x, dtype)


# ---- products and transposes


def transpose(x: Operand) -> Operand:
    """The last two dims swapped."""
    rank = len(x.shape)
    return permute(x, dims=(*range(rank - 2), rank - 1, rank - 2))


def adjoint(x: Operand) -> Operand:
    """The conjugate transpose."""
    return conjugate(transpose(x))


def product(x: Operand, y: Operand) -> Operand:
    """``x @ y`` for ``[*, M, K]`` and ``[*, K, N]`` of one batch shape."""
    rank = len(x.shape)
    batch = tuple(range(rank - 2))
    return dot_general(x, y, contract=((rank - 1,), (rank - 2,)), batch=(batch, batch))


def to_batch(x: Operand, batch: Shape) -> Operand:
    """Matrices repeated to the batch shape ``batch``, by numpy's rule."""
    offset = len(batch) - (len(x.shape) - 2)
    dims = tuple(range(offset, len(batch) + 2))
    return broadcast(x, shape=(*batch, *x.shape[-2:]), dims=dims)


# ---- triangles and diagonals


def row_indices(shape: Shape) -> Operand:
    """The row of each element of matrices of ``shape``, int64."""
    rank = len(shape)
    return broadcast(iota(length=shape[-2], dtype=torch.int64), shape=tuple(shape), dims=(rank - 2,))


def column_indices(shape: Shape) -> Operand:
    """The column of each element of matrices of ``shape``, int64."""
    rank = len(shape)
    return broadcast(iota(length=shape[-1], dtype=torch.int64), shape=tuple(shape), dims=(rank - 1,))


def lower(x: Operand, offset: int = 0) -> Operand:
    """x with zeros above its diagonal number ``offset`` (1: the first above the main one)."""
    rows = row_indices(x.shape)
    kept = ge(add(rows, constant(rows, offset)), column_indices(x.shape))
    return select(kept, x, constant(x, 0))


def upper(x: Operand, offset: int = 0) -> Operand:
    """x with zeros below its diagonal number ``offset``."""
    rows = row_indices(x.shape)
    kept = ge(column_indices(x.shape), add(rows, constant(rows, offset)))
    return select(kept, x, constant(x, 0))


def on_diagonal(shape: Shape) -> Operand:
    """Whether an element of matrices of ``shape`` is on the main diagonal."""
    return eq(row_indices(shape), column_indices(shape))


def identity_like(x: Operand, shape: Shape) -> Operand:
    """Identity matrices of ``shape`` and the dtype of x, square or not."""
    one = full(shape=tuple(shape), value=1, dtype=x.dtype)
    return select(on_diagonal(shape), one, constant(one, 0))


def unit_lower(x: Operand) -> Operand:
    """The part of x below its diagonal, and ones on it."""
    below = lower(x, -1)
    return select(on_diagonal(x.shape), constant(x, 1), below)


def diagonal(x: Operand, length: Dim) -> Operand:
    """The main diagonals ``[*, length]`` of matrices, ``length`` being the smaller of M and N."""
    *batch, rows, columns = x.shape
    if rows != columns:
        x = leading(x, length, length)
    if isinstance(length, SymExpr):
        # A step of symbolic length is none: read each row at its number.
        index = along(iota(length=length, dtype=torch.int64), (len(batch),), (*batch, length, 1))
        return reshape(gather(x, index, axis=len(batch) + 1), shape=(*batch, length))
    flat = reshape(x, shape=(*batch, length * length))
    if length == 0:
        return flat
    rank = len(batch)
    return slice_(
        flat,
        starts=(0,) * (rank + 1),
        limits=tuple(flat.shape),
        strides=(1,) * rank + (length + 1,),
    )


def diagonal_matrix(values: Operand) -> Operand:
    """Square matrices with ``values [*, N]`` on the diagonal and zeros elsewhere."""
    shape = (*values.shape, values.shape[-1])
    spread = stretch(values, (len(shape) - 1,), shape)
    return select(on_diagonal(shape), spread, constant(spread, 0))


def scale_rows(x: Operand, factors: Operand) -> Operand:
    """Row i of x times ``factors[.., i]``."""
    return mul(x, stretch(factors, (len(x.shape) - 1,), x.shape))


def scale_columns(x: Operand, factors: Operand) -> Operand:
    """Column j of x times ``factors[.., j]``."""
    return mul(x, stretch(factors, (len(x.shape) - 2,), x.shape))


# ---- parts


def leading(x: Operand, rows: Dim, columns: Dim) -> Operand:
    """The first ``rows`` rows and ``columns`` columns."""
    batch = tuple(x.shape[:-2])
    rank = len(x.shape)
    return slice_(x, starts=(0,) * rank, limits=(*batch, rows, columns), strides=(1,) * rank)


def nonzero(x: Operand) -> Operand:
    """1 where x is not zero (NaN included), else 0, int64."""
    zero = eq(x, constant(x, 0))
    return select(zero, constant(zero, 0, torch.int64), constant(zero, 1, torch.int64))


def as_int32(x: Operand) -> Operand:
    """x as int32, the dtype of LAPACK's pivots and error codes in torch."""
    return convert(x, dtype=torch.int32)
