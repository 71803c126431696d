"""Rules for factorizations, solvers and what is computed from them.

An error code (``info``) is read off the values of a failed factorization: the first NaN on Cholesky's diagonal, the
first 0 on U's. An op that raises for a code other than 0 calls ``aten._linalg_check_errors`` on it, as eager does: the
host runs that call, and it raises what eager raises.

Does not: pivot-free LU, which torch has on CUDA only.
"""

from __future__ import annotations

from typing import Any

import torch

from backend_sdk import dtypes, prims
from backend_sdk.decomp.promotion import spread
from backend_sdk.decomp.registry import Check, Declined, Memory, decomposition
from backend_sdk.graph import Value
from backend_sdk.prims import matrices as m
from backend_sdk.prims.linalg import block_reflector
from backend_sdk.prims.shorthand import along, cast, constant, keepdim, stretch
from backend_sdk.spec import Shape, TensorType
from backend_sdk.spec.symbolic import Dim
from backend_sdk.torch_compat.ops import aten


def is_static(x: Value) -> bool:
    """Whether rows and columns are known."""
    return all(isinstance(size, int) for size in x.shape[-2:])


def has_known_rank(x: Value) -> bool:
    """Whether it is known which of rows and columns are fewer, by which a factorization's shapes are decided."""
    return is_static(x) or x.shape[-2] == x.shape[-1]


SYMBOLIC = Declined(
    "its matrices have a symbolic number of rows or columns, which decides shapes and steps: compile with "
    "dynamic=False, or mark other dims only as dynamic"
)


def raise_for(info: Value, check: Check, name: str, x: Value) -> None:
    """Raise as torch's function ``name`` does where an error code is not 0; x is what it factorized."""
    check(aten._linalg_check_errors.default, info, name, is_matrix=x.ndim == 2)


def _nothing(type: TensorType) -> Any:
    """The empty result that torch gives where a part was not asked for."""
    return prims.full(shape=type.shape, value=0, dtype=type.dtype)


def _one_based(indices: Value) -> Any:
    """LAPACK's row numbers, counted from 1, as int32."""
    return m.as_int32(prims.add(indices, constant(indices, 1)))


def _zero_based(pivots: Value) -> Any:
    wide = cast(pivots, torch.int64)
    return prims.sub(wide, constant(wide, 1))


def first_place(condition: Value) -> Any:
    """The position, counted from 1, of the first of ``[*, N]`` truth values that holds; 0 where none does. int32."""
    axis = condition.ndim - 1
    if condition.shape[axis] == 0:
        return prims.full(shape=condition.shape[:-1], value=0, dtype=torch.int32)
    wide = cast(condition, torch.int64)
    found = prims.reduce_max(wide, axes=(axis,))
    return m.as_int32(prims.mul(found, prims.add(prims.argmax(wide, axis=axis), constant(found, 1))))


# ---- Cholesky


def _cholesky(x: Value, upper: bool) -> tuple[Any, Any]:
    """The factor, lower or upper, and the order of the first minor that is not positive definite (0: none)."""
    # Of an upper triangle the adjoint is the lower one, and the factor's adjoint is the upper factor.
    factor = prims.cholesky(m.adjoint(x) if upper else x)
    pivots = m.diagonal(factor, x.shape[-1])
    pivots = prims.real(pivots) if pivots.dtype in dtypes.COMPLEX else pivots
    info = first_place(prims.ne(pivots, pivots))
    return m.adjoint(factor) if upper else factor, info


@decomposition(aten.linalg_cholesky_ex.default, checks=True)
def linalg_cholesky_ex(
    out: tuple[TensorType, TensorType],
    check: Check,
    x: Value,
    *,
    upper: bool = False,
    check_errors: bool = False,
) -> Any:
    if not has_known_rank(x):
        return SYMBOLIC
    factor, info = _cholesky(x, upper)
    if check_errors:
        raise_for(info, check, "linalg.cholesky_ex", x)
    return factor, info


@decomposition(aten.cholesky.default, checks=True)
def cholesky(out: TensorType, check: Check, x: Value, upper: bool = False) -> Any:
    if not has_known_rank(x):
        return SYMBOLIC
    factor, info = _cholesky(x, upper)
    raise_for(info, check, "cholesky", x)
    return factor


@decomposition(aten.cholesky_inverse.default)
def cholesky_inverse(out: TensorType, factor: Value, upper: bool = False) -> Any:
    low = m.adjoint(factor) if upper else factor
    inverse = prims.triangular_solve(low, m.identity_like(low, low.shape), lower=True, unit_diagonal=False)
    return m.product(m.adjoint(inverse), inverse)


@decomposition(aten.cholesky_solve.default, aten._cholesky_solve_helper.default)
def cholesky_solve(out: TensorType, b: Value, factor: Value, upper: bool = False) -> Any:
    batch = out.shape[:-2]
    low = m.to_batch(m.adjoint(factor) if upper else factor, batch)
    y = prims.triangular_solve(low, m.to_batch(b, batch), lower=True, unit_diagonal=False)
    return prims.triangular_solve(m.adjoint(low), y, lower=False, unit_diagonal=False)


# ---- LU


def _first_zero_pivot(packed: Value, count: Dim) -> Any:
    pivots = m.diagonal(packed, count)
    return first_place(prims.eq(pivots, constant(pivots, 0)))


@decomposition(aten.linalg_lu_factor_ex.default, checks=True)
def linalg_lu_factor_ex(
    out: tuple[TensorType, TensorType, TensorType],
    check: Check,
    x: Value,
    *,
    pivot: bool = True,
    check_errors: bool = False,
) -> Any:
    if not pivot:
        return NotImplemented
    if not has_known_rank(x):
        return SYMBOLIC
    packed, pivots, _ = prims.lu(x)
    info = _first_zero_pivot(packed, pivots.shape[-1])
    if check_errors:
        raise_for(info, check, "torch.linalg.lu_factor_ex", x)
    return packed, _one_based(pivots), info


def _permutation_matrix(type: TensorType, permutation: Value) -> Any:
    """P with ``A = P L U``, from the order of rows with ``A[permutation] = L U``."""
    origin = stretch(permutation, (type.rank - 2,), type.shape)
    one = prims.full(shape=type.shape, value=1, dtype=type.dtype)
    return prims.select(prims.eq(m.row_indices(type.shape), origin), one, constant(one, 0))


def _unpacked(low: TensorType, up: TensorType, packed: Value) -> tuple[Any, Any]:
    return (
        m.unit_lower(m.leading(packed, *low.shape[-2:])),
        m.upper(m.leading(packed, *up.shape[-2:])),
    )


@decomposition(aten.linalg_lu.default)
def linalg_lu(out: tuple[TensorType, TensorType, TensorType], x: Value, *, pivot: bool = True) -> Any:
    if not pivot:
        return NotImplemented
    if not has_known_rank(x):
        return SYMBOLIC
    packed, _, permutation = prims.lu(x)
    return _permutation_matrix(out[0], permutation), *_unpacked(out[1], out[2], packed)


@decomposition(aten.lu_unpack.default)
def lu_unpack(
    out: tuple[TensorType, TensorType, TensorType],
    packed: Value,
    pivots: Value,
    unpack_data: bool = True,
    unpack_pivots: bool = True,
) -> Any:
    if not is_static(packed):
        return SYMBOLIC
    if unpack_pivots:
        rows = packed.shape[-2]
        order = order_from(_zero_based(pivots), rows)
        permutation = _permutation_matrix(out[0], order)
    else:
        permutation = _nothing(out[0])
    if unpack_data:
        return permutation, *_unpacked(out[1], out[2], packed)
    return permutation, _nothing(out[1]), _nothing(out[2])


def exchanges(pivots: Value, shape: Shape) -> Any:
    """Each exchange as an order of rows, ``[*, K, rows]``: row i and row ``pivots[.., i]`` have changed places."""
    own, step = m.column_indices(shape), m.row_indices(shape)
    target = stretch(pivots, (len(shape) - 1,), shape)
    swapped = prims.select(prims.eq(own, target), step, own)
    return prims.select(prims.eq(own, step), target, swapped)


def order_from(pivots: Value, rows: Any) -> Any:
    """The order of ``rows`` rows to which exchanging row i with row ``pivots[.., i]``, for each i in turn, leads.

    Composing exchanges is associative. Combined in pairs, K of them take log2 K steps, none of which waits on data.
    """
    *batch, count = pivots.shape
    assert isinstance(count, int)
    axis = len(batch)
    shape = (*batch, count, rows)
    orders = exchanges(pivots, shape)
    if count == 0:
        return along(prims.iota(length=rows, dtype=torch.int64), (axis,), (*batch, rows))
    while count > 1:
        even = count // 2 * 2
        first, second = (_rows(orders, axis, start, even, 2) for start in (0, 1))
        combined = prims.gather(first, second, axis=axis + 1)
        last = _rows(orders, axis, even, count, 1)
        orders = prims.concat(combined, last, axis=axis) if even < count else combined
        count -= even // 2
    return prims.reshape(orders, shape=(*batch, rows))


def _rows(x: Value, axis: int, start: int, limit: int, stride: int) -> Any:
    starts, limits, strides = [0] * x.ndim, list(x.shape), [1] * x.ndim
    starts[axis], limits[axis], strides[axis] = start, limit, stride
    return prims.slice(x, starts=tuple(starts), limits=tuple(limits), strides=tuple(strides))


def _solved(packed: Value, order: Value, b: Value, left: bool, adjoint: bool) -> Any:
    """X with ``A X = B`` or (not ``left``) ``X A = B``; ``adjoint`` puts A's adjoint in its place."""
    if left:
        return prims.lu_solve(packed, order, b, adjoint=adjoint)
    # X A = B is A^H X^H = B^H.
    return m.adjoint(prims.lu_solve(packed, order, m.adjoint(b), adjoint=not adjoint))


@decomposition(aten.linalg_lu_solve.default)
def linalg_lu_solve(
    out: TensorType, packed: Value, pivots: Value, b: Value, *, left: bool = True, adjoint: bool = False
) -> Any:
    if not is_static(packed):
        return SYMBOLIC
    batch = out.shape[:-2]
    order = order_from(_zero_based(pivots), packed.shape[-1])
    order = spread(order, (*batch, packed.shape[-1]), torch.int64)
    return _solved(m.to_batch(packed, batch), order, m.to_batch(b, batch), left, adjoint)


@decomposition(aten._linalg_solve_ex.default, checks=True)
def linalg_solve_ex(
    out: tuple[TensorType, ...], check: Check, a: Value, b: Value, *, left: bool = True, check_errors: bool = False
) -> Any:
    if not has_known_rank(a):
        return SYMBOLIC
    packed, pivots, order = prims.lu(a)
    # torch takes b for a batch of vectors where its shape is that of a without the last dim, or it has one dim.
    vectors = b.ndim == 1 or (a.ndim - 1 == b.ndim and tuple(b.shape) == tuple(a.shape[:-1]))
    columns = prims.reshape(b, shape=(*b.shape, 1)) if vectors else b
    batch = out[0].shape[:-1] if vectors else out[0].shape[:-2]
    solution = _solved(
        m.to_batch(packed, batch),
        spread(order, (*batch, a.shape[-1]), torch.int64),
        m.to_batch(columns, batch),
        left or vectors,
        False,
    )
    info = _first_zero_pivot(packed, a.shape[-1])
    if check_errors:
        raise_for(info, check, "torch.linalg.solve_ex", a)
    return prims.reshape(solution, shape=out[0].shape), packed, _one_based(pivots), info


@decomposition(aten.linalg_inv_ex.default, checks=True)
def linalg_inv_ex(out: tuple[TensorType, TensorType], check: Check, a: Value, *, check_errors: bool = False) -> Any:
    if not has_known_rank(a):
        return SYMBOLIC
    packed, _, order = prims.lu(a)
    inverse = prims.lu_solve(packed, order, m.identity_like(a, a.shape), adjoint=False)
    info = _first_zero_pivot(packed, a.shape[-1])
    if check_errors:
        raise_for(info, check, "linalg.inv_ex", a)
    return inverse, info


def _exchanges_are_odd(pivots: Value) -> Any:
    """Whether an odd number of rows changed places, the sign of the permutation's determinant."""
    steps = along(prims.iota(length=pivots.shape[-1], dtype=torch.int64), (pivots.ndim - 1,), pivots.shape)
    moved = prims.reduce_sum(cast(prims.ne(pivots, steps), torch.int64), axes=(pivots.ndim - 1,))
    return prims.eq(prims.fmod(moved, constant(moved, 2)), constant(moved, 1))


def _signed(odd: Value, x: Value) -> Any:
    return prims.select(odd, prims.neg(x), x)


def _factored(a: Value, contiguous: bool) -> Any:
    """The `lu` of which torch's determinants hand out the parts: of the transpose, for a contiguous real matrix.

    Their gradient is a solve with these parts, and it is traced for the one or the other (FunctionsManual.cpp,
    linalg_det_backward).
    """
    return prims.lu(m.transpose(a) if contiguous and a.dtype not in dtypes.COMPLEX else a)


@decomposition(aten._linalg_det.default, reads_memory=True)
def linalg_det(out: tuple[TensorType, ...], memory: Memory, a: Value) -> Any:
    if not has_known_rank(a):
        return SYMBOLIC
    packed, pivots, _ = _factored(a, memory.operands[0].contiguous)
    values = m.diagonal(packed, a.shape[-1])
    determinant = prims.reduce_prod(values, axes=(values.ndim - 1,))
    return _signed(_exchanges_are_odd(pivots), determinant), packed, _one_based(pivots)


@decomposition(aten._linalg_slogdet.default, reads_memory=True)
def linalg_slogdet(out: tuple[TensorType, ...], memory: Memory, a: Value) -> Any:
    if not has_known_rank(a):
        return SYMBOLIC
    packed, pivots, _ = _factored(a, memory.operands[0].contiguous)
    values = m.diagonal(packed, a.shape[-1])
    axes = (values.ndim - 1,)
    sizes = m.magnitude(values)
    logarithm = prims.reduce_sum(prims.log(sizes), axes=axes)
    if values.dtype in dtypes.COMPLEX:
        zero = prims.eq(sizes, constant(sizes, 0.0))
        lengths = m.with_dtype(prims.select(zero, constant(sizes, 1.0), sizes), values.dtype)
        signs = prims.div(values, lengths)
    else:
        signs = prims.sign(values)
    sign = prims.reduce_prod(signs, axes=axes)
    return _signed(_exchanges_are_odd(pivots), sign), logarithm, packed, _one_based(pivots)


# ---- triangular systems


def _triangular(a: Value, b: Value, upper: bool, left: bool, unit: bool) -> Any:
    if left:
        return prims.triangular_solve(a, b, lower=not upper, unit_diagonal=unit)
    # X A = B is A^T X^T = B^T.
    x = prims.triangular_solve(m.transpose(a), m.transpose(b), lower=upper, unit_diagonal=unit)
    return m.transpose(x)


@decomposition(aten.linalg_solve_triangular.default)
def linalg_solve_triangular(
    out: TensorType, a: Value, b: Value, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Any:
    batch = out.shape[:-2]
    return _triangular(m.to_batch(a, batch), m.to_batch(b, batch), upper, left, unitriangular)


@decomposition(aten.triangular_solve.default)
def triangular_solve(
    out: tuple[TensorType, TensorType],
    b: Value,
    a: Value,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> Any:
    batch = out[0].shape[:-2]
    matrix = m.to_batch(a, batch)
    system = m.transpose(matrix) if transpose else matrix
    solution = _triangular(system, m.to_batch(b, batch), upper != transpose, True, unitriangular)
    return solution, matrix


# ---- QR


@decomposition(aten.geqrf.default)
def geqrf(out: tuple[TensorType, TensorType], x: Value) -> Any:
    return prims.householder_qr(x) if has_known_rank(x) else SYMBOLIC


@decomposition(aten.linalg_qr.default)
def linalg_qr(out: tuple[TensorType, TensorType], x: Value, mode: str = "reduced") -> Any:
    if not has_known_rank(x):
        return SYMBOLIC
    if mode == "r":
        packed, _ = prims.householder_qr(x)
        return _nothing(out[0]), m.upper(m.leading(packed, *out[1].shape[-2:]))
    return prims.qr(x, complete=mode == "complete")


@decomposition(aten.linalg_householder_product.default)
def linalg_householder_product(out: TensorType, packed: Value, tau: Value) -> Any:
    if not has_known_rank(packed):
        return SYMBOLIC
    return prims.householder_product(packed, tau, columns=out.shape[-1])


@decomposition(aten.ormqr.default)
def ormqr(out: TensorType, packed: Value, tau: Value, other: Value, left: bool = True, transpose: bool = False) -> Any:
    if not has_known_rank(packed):
        return SYMBOLIC
    v, t = block_reflector(packed, tau)
    t = m.adjoint(t) if transpose else t
    if left:
        moved = m.product(v, m.product(t, m.product(m.adjoint(v), other)))
    else:
        moved = m.product(m.product(m.product(other, v), t), m.adjoint(v))
    return prims.sub(other, moved)


# ---- eigenvalues and singular values


@decomposition(aten._linalg_eigh.default)
def linalg_eigh(out: tuple[TensorType, TensorType], x: Value, UPLO: str = "L", compute_v: bool = True) -> Any:
    values, vectors = prims.eigh(m.adjoint(x) if UPLO.upper() == "U" else x)
    return values, vectors if compute_v else _nothing(out[1])


@decomposition(aten.linalg_eig.default)
def linalg_eig(out: tuple[TensorType, TensorType], x: Value) -> Any:
    return prims.eig(x)


@decomposition(aten._linalg_eigvals.default)
def linalg_eigvals(out: TensorType, x: Value) -> Any:
    return prims.eig(x)[0]


@decomposition(aten._linalg_svd.default)
def linalg_svd(
    out: tuple[TensorType, TensorType, TensorType],
    x: Value,
    full_matrices: bool = False,
    compute_uv: bool = True,
    *,
    driver: Any = None,
) -> Any:
    if not has_known_rank(x):
        return SYMBOLIC
    u, values, vh = prims.svd(x, full=full_matrices and compute_uv)
    return (u, values, vh) if compute_uv else (_nothing(out[0]), values, _nothing(out[2]))


@decomposition(aten.linalg_pinv.atol_rtol_tensor)
def linalg_pinv(
    out: TensorType, x: Value, *, atol: Value | None = None, rtol: Value | None = None, hermitian: bool = False
) -> Any:
    if not has_known_rank(x):
        return SYMBOLIC
    if 0 in x.shape:
        return _nothing(out)
    # A matrix for each limit, where there are more of these.
    x = spread(x, (*out.shape[:-2], *x.shape[-2:]), x.dtype)
    if hermitian:
        values, u = prims.eigh(x)
        vh, sizes = m.adjoint(u), prims.abs(values)
    else:
        u, values, vh = prims.svd(x, full=False)
        sizes = values
    axis = values.ndim - 1
    largest = keepdim(prims.reduce_max(sizes, axes=(axis,)), (axis,))
    cutoff = _cutoff(x, largest, atol, rtol)
    kept = prims.gt(sizes, spread(cutoff, sizes.shape, sizes.dtype))
    one = constant(values, 1.0)
    inverse = prims.select(kept, prims.div(one, prims.select(kept, values, one)), constant(values, 0.0))
    scaled_columns = m.scale_columns(m.adjoint(vh), m.with_dtype(inverse, x.dtype))
    return m.product(scaled_columns, m.adjoint(u))


def _cutoff(x: Value, largest: Value, atol: Value | None, rtol: Value | None) -> Any:
    """Up to which size a singular value counts as 0: the larger of ``atol`` and ``rtol`` times the largest of them.

    Without ``rtol`` it is max(M, N) epsilons, but 0 where an ``atol`` above 0 is given (torch.linalg.matrix_rank).
    """
    real = x.dtype.to_real()
    rows, columns = x.shape[-2:]
    larger: Any = rows if rows == columns else max(rows, columns)  # type: ignore[type-var]
    default = larger * torch.finfo(real).eps

    def column(limit: Value) -> Any:
        """A limit for each matrix of the batch, as ``[*, 1]``."""
        return spread(prims.reshape(limit, shape=(*limit.shape, 1)), largest.shape, real)

    absolute = constant(largest, 0.0) if atol is None else column(atol)
    if rtol is not None:
        relative = column(rtol)
    elif atol is None:
        relative = constant(largest, default)
    else:
        given = prims.gt(absolute, constant(absolute, 0.0))
        relative = prims.select(given, constant(largest, 0.0), constant(largest, default))
    return prims.maximum(absolute, prims.mul(relative, largest))


@decomposition(aten.linalg_matrix_exp.default)
def linalg_matrix_exp(out: TensorType, x: Value) -> Any:
    wide = dtypes.compute_dtype(x.dtype)
    if wide not in m.MATRIX_DTYPES:
        return NotImplemented
    return cast(prims.matrix_exp(cast(x, wide)), out.dtype)


@decomposition(aten.linalg_matrix_sqrth.default)
def linalg_matrix_sqrth(out: TensorType, x: Value) -> Any:
    values, vectors = prims.eigh(x)
    roots = prims.sqrt(prims.maximum(values, constant(values, 0.0)))
    return m.product(m.scale_columns(vectors, m.with_dtype(roots, x.dtype)), m.adjoint(vectors))


@decomposition(aten.linalg_polar.default)
def linalg_polar(out: tuple[TensorType, TensorType], x: Value) -> Any:
    """U H = (u vh) (vh* diag(s) vh), of the singular value decomposition u diag(s) vh."""
    if not is_static(x):
        return NotImplemented
    u, values, vh = prims.svd(x, full=False)
    scaled_rows = m.scale_rows(vh, m.with_dtype(values, x.dtype))
    return m.product(u, vh), m.product(m.adjoint(vh), scaled_rows)


# ---- diagonals
