"""Factorizations of batched matrices ``[*, M, N]``, triangular systems, and the composites built on them.

The operands are finite: for NaN and infinities a backend may give anything of the right type, or raise. A result
that is not unique (a sign, a phase, a basis of a repeated eigenvalue) is judged by its residual.

Does not: report failures as error codes. A failed factorization shows in its values (`cholesky`, `lu`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from backend_sdk import dtypes
from backend_sdk.prims import matrices as m
from backend_sdk.prims.define import Operand, composite, prim
from backend_sdk.prims.elementwise import add, gt, mul, select, sub
from backend_sdk.prims.indexing import gather, scatter
from backend_sdk.prims.reduction import reduce_max, reduce_sum
from backend_sdk.prims.samples import special_values, tensor
from backend_sdk.prims.shorthand import constant, scaled, stretch
from backend_sdk.spec import Call, ComplexOf, DtypeVar, RealOf, Relative, Sample, Shape, TensorType, refuse
from backend_sdk.spec.residual_tolerance import Residual, Results
from backend_sdk.spec.symbolic import Dim, SymExpr

_T = DtypeVar("T", m.MATRIX_DTYPES)

_Pair = tuple[torch.Tensor, torch.Tensor]


# ---- what the definitions share


def _matrix(op: str, x: TensorType, *others: TensorType) -> None:
    if x.rank < 2:
        raise refuse(op, "the operand needs two dims or more", x, *others)


def _square(op: str, x: TensorType, *others: TensorType) -> None:
    if x.rank < 2 or x.shape[-1] != x.shape[-2]:
        raise refuse(op, "the last two dims of the operand must be equal", x, *others)


def _smaller(a: Dim, b: Dim) -> Dim:
    """The smaller of two dims. Which of two symbolic ones is smaller is not known while a graph is built."""
    if a == b:
        return a
    if isinstance(a, SymExpr) or isinstance(b, SymExpr):
        raise refuse("factorization", f"the smaller of {a} and {b} is not known")
    return min(a, b)


def _factors(x: TensorType) -> Dim:
    return _smaller(x.shape[-2], x.shape[-1])


def _specials(dtype: torch.dtype) -> list[Any]:
    """Finite values only: see the module's docstring."""
    if not (dtype.is_floating_point or dtype.is_complex):
        return special_values(dtype)
    tiny = torch.finfo(dtype).tiny
    values = [0.0, 1.0, -1.0, tiny, torch.finfo(dtype).eps]
    return [complex(v, -v) for v in values] if dtype in dtypes.COMPLEX else values


_SQUARE = ((3, 3), (2, 4, 4), (1, 1), (2, 1, 5, 5), (0, 0), (0, 3, 3), (17, 17))
_ANY = (*_SQUARE, (5, 3), (2, 3, 5), (4, 1), (1, 4), (3, 0))


def _hermitian(x: torch.Tensor) -> torch.Tensor:
    return (x + x.mH) / 2


def _positive_definite(x: torch.Tensor) -> torch.Tensor:
    return x @ x.mH + torch.eye(x.shape[-1], dtype=x.dtype)


def _matrices(
    shapes: tuple[tuple[int, ...], ...],
    prepare: Callable[[torch.Tensor], torch.Tensor] = lambda x: x,
    **attributes: Any,
) -> Callable[[torch.dtype, torch.Generator], Iterator[Sample]]:
    """One matrix, or batch of them, as the only operand."""

    def generate(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
        for shape in shapes:
            yield Sample((prepare(tensor(shape, dtype, generator, -1.0, 1.0)),), attributes)

    return generate


def _largest_dim(call: Call) -> int:
    return int(max(call.operands[0].shape[-2:]))


def _norm(x: torch.Tensor) -> torch.Tensor:
    """Frobenius norm of each matrix."""
    norms: torch.Tensor = torch.linalg.matrix_norm(x)
    return norms


def _judged(error: torch.Tensor, scale: torch.Tensor) -> _Pair:
    """A matrix with a result that is not finite has no residual: where results are finite is checked before."""
    known = error.isfinite() & scale.isfinite()
    return torch.where(known, error, 0.0), torch.where(known, scale, 1.0)


def _orthonormal_columns(q: torch.Tensor) -> _Pair:
    gap = q.mH @ q - torch.eye(q.shape[-1], dtype=q.dtype)
    return _judged(_norm(gap), torch.ones_like(_norm(gap)))


def _ascending(values: torch.Tensor, scale: torch.Tensor) -> _Pair:
    fall = (values[..., :-1] - values[..., 1:]).clamp(min=0).sum(-1)
    return fall, 0 * scale


# ---- Cholesky


def _cholesky_residuals(actual: Results, reference: Results, call: Call) -> Iterator[_Pair]:
    (factor,) = actual
    a = call.operands[0].tril()
    a = a + a.tril(-1).mH
    yield _judged(_norm(factor @ factor.mH - a), _norm(a))
    yield _judged(_norm(factor.triu(1)), 0 * _norm(a))


def _cholesky_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    yield from _matrices(_SQUARE, _positive_definite)(dtype, generator)
    # Only the lower triangle counts; the second minor of the last sample is not positive.
    x = _positive_definite(tensor((4, 4), dtype, generator, -1.0, 1.0))
    yield Sample((x.tril(),))
    spoiled = x.clone()
    spoiled[1, 1] = -1.0
    yield Sample((torch.stack([x, spoiled]),))


def _cholesky_shape(x: TensorType) -> Shape:
    _square("cholesky", x)
    return x.shape


@prim(
    shape=_cholesky_shape,
    operands=(_T,),
    results=(_T,),
    tolerance=Residual("L L^H = A", _cholesky_residuals, _largest_dim),
    samples=_cholesky_samples,
    specials=_specials,
    profiles=("linalg",),
)
def cholesky(x: Operand) -> Operand:
    """The lower triangular L with positive diagonal and ``L L^H = A``, of Hermitian positive definite A ``[*, N, N]``.

    Only the lower triangle of x is read, of a complex diagonal the real part; above the diagonal L is 0. Where the
    leading minor of order k is the first that is not positive definite, columns k - 1 and later of that matrix are
    NaN on and below the diagonal: what the algorithm gives by itself (Golub and Van Loan, "Matrix Computations",
    4th edition, 4.2.5), a square root of a number that is not positive, made definite for 0.
    """
    factor, info = torch.linalg.cholesky_ex(x)
    column = torch.arange(x.shape[-1])
    failed = (info > 0)[..., None] & (column >= info[..., None] - 1)
    spoiled = failed[..., None, :] & (column[:, None] >= column)
    return torch.where(spoiled, torch.full((), torch.nan, dtype=x.dtype), factor)


# ---- LDL


def _ldl_parts(packed: torch.Tensor, pivots: torch.Tensor, hermitian: bool) -> tuple[torch.Tensor, ...]:
    """Row order, L and D of one matrix, with ``A[order][:, order] = L D L^T`` (``L^H``)."""
    size = packed.shape[-1]
    low, middle, order = torch.eye(size, dtype=packed.dtype), torch.zeros_like(packed), torch.arange(size)
    k = 0
    while k < size:
        width = 1 if pivots[k] > 0 else 2
        last, other = k + width - 1, abs(int(pivots[k])) - 1
        swap = torch.tensor([other, last])
        low[[last, other], :k] = low[swap, :k]
        order[[last, other]] = order[swap]
        block = packed[k : k + width, k : k + width].tril()
        below = block.tril(-1)
        middle[k : k + width, k : k + width] = block + (below.mH if hermitian else below.mT)
        low[k + width :, k : k + width] = packed[k + width :, k : k + width]
        k += width
    return order, low, middle


def _ldl_residuals(actual: Results, reference: Results, call: Call) -> Iterator[_Pair]:
    packed, pivots = actual
    hermitian = call.attributes["hermitian"]
    yield _judged(_norm(packed.triu(1)), torch.zeros(packed.shape[:-2], dtype=torch.float64))
    size = packed.shape[-1]
    a = call.operands[0].tril()
    below = a.tril(-1)
    a = a + (below.mH if hermitian else below.mT)
    for one, its_pivots, matrix in zip(
        packed.reshape(-1, size, size), pivots.reshape(-1, size), a.reshape(-1, size, size), strict=True
    ):
        if ((its_pivots == 0) | (its_pivots.abs() > size)).any():
            yield torch.tensor(torch.inf), torch.tensor(1.0)
            return
        order, low, middle = _ldl_parts(one, its_pivots, hermitian)
        product = low @ middle @ (low.mH if hermitian else low.mT)
        yield _judged(_norm(product - matrix[order][:, order]), _norm(matrix))


def _ldl_shape(x: TensorType, *, hermitian: bool) -> list[Shape]:
    _square("ldl", x)
    return [x.shape, x.shape[:-1]]


def _ldl_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    shapes = tuple(shape for shape in _SQUARE if 0 not in shape)
    yield from _matrices(shapes, _hermitian, hermitian=True)(dtype, generator)
    yield from _matrices(shapes, lambda x: x + x.mT, hermitian=False)(dtype, generator)
    # A diagonal of 0 makes blocks of two.
    yield Sample((torch.ones(4, 4, dtype=dtype).tril(-1),), {"hermitian": True})


@prim(
    shape=_ldl_shape,
    operands=(_T,),
    results=(_T, torch.int64),
    tolerance=Residual("L D L^H = A[order][:, order]", _ldl_residuals, _largest_dim),
    samples=_ldl_samples,
    specials=_specials,
    profiles=("linalg",),
    differentiable=False,
)
def ldl(x: Operand, *, hermitian: bool) -> Operand:
    """LDL factorization of A ``[*, N, N]``, Hermitian or (not ``hermitian``) symmetric, with the diagonal pivoting of
    Bunch and Kaufman ("Some stable methods for calculating inertia and solving symmetric linear systems", 1977).

    Results: packed ``[*, N, N]`` and pivots ``[*, N]``, as LAPACK's ``sytrf`` and ``hetrf`` give them with uplo L. D
    has blocks of one and two rows on its diagonal; packed holds its lower triangle, and below the blocks the columns
    of L, whose diagonal of ones is not stored; above the diagonal packed is 0. ``pivots[k] > 0``: a block of one,
    before which row and column k and ``pivots[k] - 1`` were exchanged. ``pivots[k] == pivots[k + 1] < 0``: a block of
    two, before which row and column k + 1 and ``-pivots[k] - 1`` were exchanged. An exchange leaves the columns of L
    that are made already as they are. Only the lower triangle of x is read. A singular A has a 0 in a block of one.
    """
    factor = torch.linalg.ldl_factor_ex(x, hermitian=hermitian)
    return factor.LD.tril(), factor.pivots.to(torch.int64)


# ---- LU


def _lu_residuals(actual: Results, reference: Results, call: Call) -> Iterator[_Pair]:
    packed, pivots, permutation = actual
    a = call.operands[0]
    rows, count = a.shape[-2], pivots.shape[-1]
    outside = sum(((index < 0) | (index >= rows)).sum() for index in (pivots, permutation))
    if outside:
        yield torch.full((1,), torch.inf, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
        return
    low = packed[..., :count].tril(-1) + torch.eye(rows, count, dtype=packed.dtype)
    up = packed[..., :count, :].triu()
    permuted = a.gather(-2, permutation[..., None].expand(a.shape))
    yield _judged(_norm(low @ up - permuted), _norm(a))
    # Partial pivoting: LAPACK picks by |re| + |im|, so that |L| is at most sqrt(2) for complex matrices.
    allowed = 2**0.5 if a.is_complex() else 1.0
    yield (low.abs() - allowed - 1e-3).clamp(min=0).sum((-2, -1)), torch.zeros(a.shape[:-2], dtype=torch.float64)
    wrong = (_permutation_of(pivots, rows) != permutation).sum(-1).to(torch.float64)
    yield wrong, torch.zeros_like(wrong)


def _permutation_of(pivots: torch.Tensor, rows: int) -> torch.Tensor:
    """The row order that exchanging row i with row ``pivots[i]``, for each i in turn, leads to."""
    order = torch.arange(rows).expand(*pivots.shape[:-1], rows).clone()
    for i in range(pivots.shape[-1]):
        target = pivots[..., i : i + 1]
        other = order.gather(-1, target)
        here = order[..., i : i + 1].clone()
        order.scatter_(-1, target, here)
        order[..., i : i + 1] = other
    return order


def _lu_shape(x: TensorType) -> list[Shape]:
    _matrix("lu", x)
    batch = x.shape[:-2]
    return [x.shape, (*batch, _factors(x)), (*batch, x.shape[-2])]


def _lu_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    yield from _matrices(_ANY)(dtype, generator)
    yield Sample((torch.zeros(2, 2, dtype=dtype),))


@prim(
    shape=_lu_shape,
    operands=(_T,),
    results=(_T, torch.int64, torch.int64),
    tolerance=Residual("A[permutation] = L U", _lu_residuals, _largest_dim),
    samples=_lu_samples,
    specials=_specials,
    profiles=("linalg",),
)
def lu(x: Operand) -> Operand:
    """LU factorization with partial pivoting of A ``[*, M, N]``, K = min(M, N): ``A[permutation] = L U``.

    Results: L and U packed in ``[*, M, N]`` (U on and above the diagonal; L below it, with ones on its diagonal that
    are not stored), pivots ``[*, K]`` (step i exchanged row i with row ``pivots[i] >= i``, counted from 0), and
    permutation ``[*, M]``, the order of rows that the exchanges lead to. The pivot of a column has the largest
    magnitude (of a complex number |re| + |im| may stand for it). A column without a pivot, all 0, exchanges nothing,
    leaves its zeros, and the factorization goes on: a singular A has a 0 on U's diagonal. LAPACK's ``getrf``.
    """
    packed, pivots, _ = torch.linalg.lu_factor_ex(x)
    pivots = pivots.to(torch.int64) - 1
    return packed, pivots, _permutation_of(pivots, x.shape[-2])


def _lower_and_upper(packed: torch.Tensor) -> _Pair:
    return packed.tril(-1) + torch.eye(packed.shape[-1], dtype=packed.dtype), packed.triu()


def _lu_solve_residuals(actual: Results, reference: Results, call: Call) -> Iterator[_Pair]:
    (x,) = actual
    packed, permutation, b = call.operands
    low, up = _lower_and_upper(packed)
    a = torch.zeros_like(low).scatter(-2, permutation[..., None].expand(low.shape), low @ up)
    a = a.mH if call.attributes["adjoint"] else a
    yield _judged(_norm(a @ x - b), _norm(low) * _norm(up) * _norm(x))


def _lu_solve_shape(packed: TensorType, permutation: TensorType, b: TensorType, *, adjoint: bool) -> Shape:
    _square("lu_solve", packed, permutation, b)
    if permutation.shape != packed.shape[:-1] or b.shape[:-1] != packed.shape[:-1]:
        raise refuse("lu_solve", "permutation [*, N] and b [*, N, K] must fit packed [*, N, N]", packed, permutation, b)
    return b.shape


def _lu_solve_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    for shape in _SQUARE:
        packed, _, permutation = lu.reference(tensor(shape, dtype, generator, -1.0, 1.0))
        b = tensor((*shape[:-1], 2), dtype, generator)
        for adjoint in (False, True):
            yield Sample((packed, permutation, b), {"adjoint": adjoint})


@composite(
    shape=_lu_solve_shape,
    operands=(_T, torch.int64, _T),
    results=(_T,),
    tolerance=Residual("A X = B", _lu_solve_residuals, _largest_dim),
    samples=_lu_solve_samples,
    specials=_specials,
    profiles=("linalg",),
)
def lu_solve(packed: Operand, permutation: Operand, b: Operand, *, adjoint: bool) -> Operand:
    """X ``[*, N, K]`` with ``A X = B`` (``A^H X = B`` with ``adjoint``) from the `lu` of A ``[*, N, N]``.

    Of a singular A the result has infinities or NaN.
    """
    axis = len(b.shape) - 2
    if adjoint:
        above = m.adjoint(packed)
        y = triangular_solve(above, b, lower=True, unit_diagonal=False)
        y = triangular_solve(above, y, lower=False, unit_diagonal=True)
        # Row i of y is row permutation[i] of the result.
        return scatter(constant(y, 0), stretch(permutation, (axis + 1,), b.shape), y, axis=axis, mode="set")
    y = gather(b, stretch(permutation, (axis + 1,), b.shape), axis=axis)
    y = triangular_solve(packed, y, lower=True, unit_diagonal=True)
    return triangular_solve(packed, y, lower=False, unit_diagonal=False)


# ---- triangular systems


def _triangle(a: torch.Tensor, lower: bool, unit_diagonal: bool) -> torch.Tensor:
    part = a.tril() if lower else a.triu()
    if unit_diagonal:
        part = part - torch.diag_embed(part.diagonal(0, -2, -1)) + torch.eye(a.shape[-1], dtype=a.dtype)
    return part


def _triangular_residuals(actual: Results, reference: Results, call: Call) -> Iterator[_Pair]:
    (x,) = actual
    a, b = call.operands
    a = _triangle(a, **call.attributes)
    yield _judged(_norm(a @ x - b), _norm(a) * _norm(x))


def _triangular_shape(a: TensorType, b: TensorType, *, lower: bool, unit_diagonal: bool) -> Shape:
    _square("triangular_solve", a, b)
    if a.rank != b.rank or a.shape[:-1] != b.shape[:-1]:
        raise refuse("triangular_solve", "a [*, N, N] and b [*, N, K] must agree in all but the last dim", a, b)
    return b.shape


def _triangular_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    for shape in _SQUARE:
        # A dominant diagonal: random triangular matrices are hopelessly conditioned.
        a = tensor(shape, dtype, generator, -1.0, 1.0) + shape[-1] * torch.eye(shape[-1], dtype=dtype)
        b = tensor((*shape[:-1], 3), dtype, generator)
        for lower in (False, True):
            for unit_diagonal in (False, True):
                scale = shape[-1] if unit_diagonal and shape[-1] else 1
                yield Sample((a / scale, b), {"lower": lower, "unit_diagonal": unit_diagonal})


@prim(
    shape=_triangular_shape,
    operands=(_T, _T),
    results=(_T,),
    tolerance=Residual("A X = B", _triangular_residuals, _largest_dim),
    samples=_triangular_samples,
    specials=_specials,
    profiles=("linalg",),
)
def triangular_solve(a: Operand, b: Operand, *, lower: bool, unit_diagonal: bool) -> Operand:
    """X ``[*, N, K]`` with ``A X = B`` by substitution, A the lower or upper triangle of a ``[*, N, N]``.

    The other triangle is not read, and with ``unit_diagonal`` neither is the diagonal, which counts as ones. A 0 on
    the diagonal divides: the result has infinities or NaN.
    """
    return torch.linalg.solve_triangular(a, b, upper=not lower, unitriangular=unit_diagonal)


# ---- QR


def _reflectors(packed: torch.Tensor, tau: torch.Tensor, columns: int) -> torch.Tensor:
    """The first columns of the product of the reflectors, one after the other."""
    rows = packed.shape[-2]
    q = torch.eye(rows, columns, dtype=packed.dtype).expand(*packed.shape[:-2], rows, columns)
    for i in reversed(range(tau.shape[-1])):
        v = packed[..., i : i + 1].tril(-1 - i)
        v = v + torch.eye(rows, i + 1, dtype=v.dtype)[:, i:]
        q = q - tau[..., i, None, None] * (v @ (v.mH @ q))
    return q


def _householder_residuals(actual: Results, reference: Results, call: Call) -> Iterator[_Pair]:
    packed, tau = actual
    a = call.operands[0]
    q = _reflectors(packed, tau, tau.shape[-1])
    yield _judged(_norm(q @ packed[..., : tau.shape[-1], :].triu() - a), _norm(a))
    yield _orthonormal_columns(q)


def _householder_shape(x: TensorType) -> list[Shape]:
    _matrix("householder_qr", x)
    return [x.shape, (*x.shape[:-2], _factors(x))]


@prim(
    shape=_householder_shape,
    operands=(_T,),
    results=(_T, _T),
    tolerance=Residual("Q R = A, Q^H Q = 1", _householder_residuals, _largest_dim),
    samples=_matrices(_ANY),
    specials=_specials,
    profiles=("linalg",),
    differentiable=False,
)
def householder_qr(x: Operand) -> Operand:
    """QR factorization of A ``[*, M, N]`` by reflections, K = min(M, N): packed ``[*, M, N]`` and tau ``[*, K]``.

    packed has R on and above its diagonal and below it, in column i, the reflection's vector ``v_i``, whose elements
    before i are 0 and whose element i is 1. ``A = H_0 H_1 ... H_{K-1} R`` with ``H_i = 1 - tau_i v_i v_i^H``. The signs
    of R's diagonal are free, as is a phase for complex matrices. LAPACK's ``geqrf``, which reflects
    so that no subtraction cancels (Golub and Van Loan, "Matrix Computations", 4th edition, 5.2.2).
    """
    return tuple(torch.geqrf(x))


def _product_residuals(actual: Results, reference: Results, call: Call) -> Iterator[_Pair]:
    (q,) = actual
    yield _judged(_norm(q - reference[0]), _norm(reference[0]))


def _product_shape(packed: TensorType, tau: TensorType, *, columns: Dim) -> Shape:
    _matrix("householder_product", packed, tau)
    if tau.shape[:-1] != packed.shape[:-2]:
        raise refuse("householder_product", "packed [*, M, N] and tau [*, K] must have one batch", packed, tau)
    return (*packed.shape[:-1], columns)


def _product_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    for shape in _ANY:
        packed, tau = torch.geqrf(tensor(shape, dtype, generator, -1.0, 1.0))
        for columns in {shape[-2], tau.shape[-1]}:
            yield Sample((packed, tau), {"columns": columns})


def block_reflector(packed: Operand, tau: Operand) -> tuple[Operand, Operand]:
    """V ``[*, M, K]`` and upper triangular T ``[*, K, K]`` with ``H_0 ... H_{K-1} = 1 - V T V^H``.

    T solves ``(1 + D S) T = D`` with D the diagonal matrix of tau and S the part of ``V^H V`` above the diagonal: the
    recurrence for T's columns (Schreiber and Van Loan, "A storage-efficient WY representation for products of
    Householder transformations", 1989) as one system, which a tau of 0 leaves regular.
    """
    length = tau.shape[-1]
    v = m.unit_lower(m.leading(packed, packed.shape[-2], length))
    gram = m.product(m.adjoint(v), v)
    t = triangular_solve(m.scale_rows(gram, tau), m.diagonal_matrix(tau), lower=False, unit_diagonal=True)
    return v, t


@composite(
    shape=_product_shape,
    operands=(_T, _T),
    results=(_T,),
    tolerance=Residual("the product of the reflections", _product_residuals, _largest_dim),
    samples=_product_samples,
    specials=_specials,
    profiles=("linalg",),
)
def householder_product(packed: Operand, tau: Operand, *, columns: Dim) -> Operand:
    """The first ``columns <= M`` columns of ``H_0 H_1 ... H_{K-1}``, reflections as `householder_qr` gives them.

    LAPACK's ``orgqr`` and ``ungqr``.
    """
    v, t = block_reflector(packed, tau)
    back = m.leading(m.adjoint(v), tau.shape[-1], columns)
    moved = m.product(v, m.product(t, back))
    return sub(m.identity_like(moved, moved.shape), moved)


def _qr_residuals(actual: Results, reference: Results, call: Call) -> Iterator[_Pair]:
    q, r = actual
    a = call.operands[0]
    yield _judged(_norm(q @ r - a), _norm(a))
    yield _orthonormal_columns(q)
    yield _judged(_norm(r.tril(-1)), 0 * _norm(a))


def _qr_shape(x: TensorType, *, complete: bool) -> list[Shape]:
    _matrix("qr", x)
    *batch, rows, columns = x.shape
    length = rows if complete else _factors(x)
    return [(*batch, rows, length), (*batch, length, columns)]


def _qr_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    for complete in (False, True):
        yield from _matrices(_ANY, complete=complete)(dtype, generator)


@composite(
    shape=_qr_shape,
    operands=(_T,),
    results=(_T, _T),
    tolerance=Residual("Q R = A, Q^H Q = 1", _qr_residuals, _largest_dim),
    samples=_qr_samples,
    specials=_specials,
    profiles=("linalg",),
)
def qr(x: Operand, *, complete: bool) -> Operand:
    """Q and R with ``A = Q R``, Q's columns orthonormal and R upper triangular, for A ``[*, M, N]``, K = min(M, N).

    Q is ``[*, M, K]`` and R ``[*, K, N]``, with ``complete`` ``[*, M, M]`` and ``[*, M, N]``. The signs are free, as in
    `householder_qr`.
    """
    length = x.shape[-2] if complete else _factors(TensorType(tuple(x.shape), x.dtype))
    packed, tau = householder_qr(x)
    return householder_product(packed, tau, columns=length), m.upper(m.leading(packed, length, x.shape[-1]))


# ---- eigenvalues and singular values


def _eigh_residuals(actual: Results, reference: Results, call: Call) -> Iterator[_Pair]:
    values, vectors = actual
    a = call.operands[0].tril()
    a = a + a.tril(-1).mH
    scale = _norm(a)
    yield _judged(_norm(a @ vectors - vectors * values[..., None, :]), scale)
    yield _orthonormal_columns(vectors)
    yield _ascending(values, scale)


def _eigh_shape(x: TensorType) -> list[Shape]:
    _square("eigh", x)
    return [x.shape[:-1], x.shape]


def _eigh_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    yield from _matrices(_SQUARE, _hermitian)(dtype, generator)
    yield Sample((torch.eye(3, dtype=dtype),))
    yield Sample((torch.zeros(2, 2, dtype=dtype),))


@prim(
    shape=_eigh_shape,
    operands=(_T,),
    results=(RealOf(_T), _T),
    tolerance=Residual("A V = V D, V^H V = 1", _eigh_residuals, _largest_dim),
    samples=_eigh_samples,
    specials=_specials,
    profiles=("linalg",),
)
def eigh(x: Operand) -> Operand:
    """Eigenvalues ``[*, N]``, real and ascending, and orthonormal eigenvectors, the columns of V ``[*, N, N]``, of
    Hermitian A ``[*, N, N]``. Only the lower triangle of x is read, of a complex diagonal the real part.

    Each vector has a free sign or phase, those of a repeated eigenvalue a free basis. LAPACK's ``heevd``.
    """
    return tuple(torch.linalg.eigh(x))


def _eig_residuals(actual: Results, reference: Results, call: Call) -> Iterator[_Pair]:
    values, vectors = actual
    a = call.operands[0].to(values.dtype)
    scale = _norm(a)
    yield _judged(_norm(a @ vectors - vectors * values[..., None, :]), scale)
    lengths = (vectors.abs().square().sum(-2).sqrt() - 1).abs().sum(-1)
    yield lengths, torch.ones_like(lengths)
    # The first two power sums are traces: no eigenvalue may stand there twice in another's place.
    trace = a.diagonal(0, -2, -1).sum(-1)
    yield (values.sum(-1) - trace).abs(), scale
    trace = (a @ a).diagonal(0, -2, -1).sum(-1)
    yield (values.square().sum(-1) - trace).abs(), scale * scale


@prim(
    shape=_eigh_shape,
    operands=(_T,),
    results=(ComplexOf(_T), ComplexOf(_T)),
    tolerance=Residual("A V = V D, columns of length 1", _eig_residuals, _largest_dim),
    samples=_matrices(_SQUARE),
    specials=_specials,
    profiles=("linalg", "complex"),
)
def eig(x: Operand) -> Operand:
    """Eigenvalues ``[*, N]`` in any order and eigenvectors of length 1, the columns of V ``[*, N, N]``, of A
    ``[*, N, N]``. Both are complex for a real A, too, whose real eigenvalues have an imaginary part of exactly 0 and
    whose others come in conjugate pairs, one after the other. Each vector has a free phase. LAPACK's ``geev``.
    """
    return tuple(torch.linalg.eig(x))


def _svd_residuals(actual: Results, reference: Results, call: Call) -> Iterator[_Pair]:
    u, values, vh = actual
    a = call.operands[0]
    count = values.shape[-1]
    scale = _norm(a)
    yield _judged(_norm((u[..., :count] * values[..., None, :]) @ vh[..., :count, :] - a), scale)
    yield _orthonormal_columns(u)
    yield _orthonormal_columns(vh.mH)
    yield _ascending(values.flip(-1), scale)
    yield (-values).clamp(min=0).sum(-1), 0 * scale


def _svd_shape(x: TensorType, *, full: bool) -> list[Shape]:
    _matrix("svd", x)
    *batch, rows, columns = x.shape
    length = _factors(x)
    left, right = (rows, columns) if full else (length, length)
    return [(*batch, rows, left), (*batch, length), (*batch, right, columns)]


def _svd_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    for full in (False, True):
        yield from _matrices(_ANY, full=full)(dtype, generator)
        yield Sample((torch.ones(3, 4, dtype=dtype),), {"full": full})


@prim(
    shape=_svd_shape,
    operands=(_T,),
    results=(_T, RealOf(_T), _T),
    tolerance=Residual("U S V^H = A, U^H U = V^H V = 1", _svd_residuals, _largest_dim),
    samples=_svd_samples,
    specials=_specials,
    profiles=("linalg",),
)
def svd(x: Operand, *, full: bool) -> Operand:
    """U, S and V^H with ``A = U diag(S) V^H`` for A ``[*, M, N]``, K = min(M, N): S ``[*, K]`` is real, not negative
    and descending, the columns of U ``[*, M, K]`` and the rows of V^H ``[*, K, N]`` are orthonormal.

    With ``full`` U is ``[*, M, M]`` and V^H ``[*, N, N]``, filled up to orthonormal bases. Each pair of vectors has a
    free sign or phase, those of a repeated singular value a free basis. LAPACK's ``gesdd``.
    """
    return tuple(torch.linalg.svd(x, full_matrices=full))


# ---- the exponential

# Up to which 1-norm the Taylor polynomial of degree 16 has a backward error below the dtype's unit roundoff: the
# table's values for degree 15 (Al-Mohy and Higham, "Computing the action of the matrix exponential, with an
# application to exponential integrators", SIAM J. Sci. Comput. 33, 2011, table 3.1).
_TAYLOR_REACH = {torch.float32: 2.2, torch.float64: 0.64}

# How often the result may be squared. Beyond a norm of about 2^32 (2^64) a float32 (float64) has lost more digits to
# the argument's own rounding than it has.
_SQUARINGS = {torch.float32: 32, torch.float64: 64}

_DEGREE_OF_BLOCK = 4
_BLOCKS = 4


def _exp_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    yield from _matrices(_SQUARE)(dtype, generator)
    yield Sample((tensor((4, 4), dtype, generator, -1e-4, 1e-4),))
    x = tensor((2, 3, 3), dtype, generator, -4.0, 4.0)
    yield Sample((torch.stack([x - x.mH, 1e-3 * x]),))


@composite(
    shape=_cholesky_shape,
    operands=(_T,),
    results=(_T,),
    tolerance=Relative(256),
    samples=_exp_samples,
    specials=_specials,
    profiles=("linalg",),
)
def matrix_exp(x: Operand) -> Operand:
    """The matrix exponential of x ``[*, N, N]``, by scaling and squaring of a Taylor polynomial of degree 16.

    Each matrix is halved as often as its own 1-norm asks for and squared as often again, at most 32 times (float64:
    64), so that the amount of work does not depend on the data; NaN for a norm beyond 2^32 (2^64), which has
    no digit left. The polynomial is evaluated in blocks of four powers (Paterson and Stockmeyer, "On the number
    of nonscalar multiplications necessary to evaluate polynomials", 1973).
    """
    shape = tuple(x.shape)
    if shape[-1] == 0:
        # There is no largest column sum of no columns.
        return m.identity_like(x, shape)
    real = x.dtype.to_real()
    axis = len(shape) - 2
    # The 1-norm: the largest sum of magnitudes in a column.
    norm = reduce_max(reduce_sum(m.magnitude(x), axes=(axis,)), axes=(axis,))
    reach = _TAYLOR_REACH[real]
    halved = [gt(norm, constant(norm, reach * 2.0**i)) for i in range(_SQUARINGS[real])]
    factor = constant(norm, 1.0)
    for applies in halved:
        # Halving is exact, a power of two from a rounded logarithm would not be.
        factor = select(applies, scaled(factor, 0.5), factor)
    lost = gt(norm, constant(norm, reach * 2.0 ** _SQUARINGS[real]))
    factor = select(lost, constant(factor, torch.nan), factor)
    y = mul(x, stretch(m.with_dtype(factor, x.dtype), (axis, axis + 1), shape))
    result = _taylor(y)
    for applies in halved:
        result = select(stretch(applies, (axis, axis + 1), shape), m.product(result, result), result)
    return result


def _taylor(x: Operand) -> Operand:
    powers = [m.identity_like(x, x.shape), x]
    while len(powers) <= _DEGREE_OF_BLOCK:
        powers.append(m.product(powers[-1], x))
    total = None
    for block in reversed(range(_BLOCKS + 1)):
        degrees = range(_DEGREE_OF_BLOCK) if block < _BLOCKS else range(1)
        for degree in degrees:
            term = scaled(powers[degree], 1.0 / _factorial(block * _DEGREE_OF_BLOCK + degree))
            total = term if total is None else add(total, term)
        if block:
            total = m.product(total, powers[_DEGREE_OF_BLOCK])
    return total


def _factorial(n: int) -> int:
    return n * _factorial(n - 1) if n else 1
