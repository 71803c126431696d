"""Factorizations and solvers against float64: what holds of every right answer, whatever its signs and phases.

What a user would lose: the solution of a system, a determinant or a spectrum, for the one shape, memory layout, dtype
or singular matrix that nobody tried.
"""

from __future__ import annotations

import math

import pytest
import torch

from backend_sdk import prims
from backend_sdk.spec import Call
from backend_sdk.spec.residual_tolerance import Residual, largest_share

DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)
SHAPES = ((4, 4), (5, 3), (3, 5), (1, 1), (2, 3, 4, 4), (2, 6, 2), (0, 3), (3, 0), (0, 2, 2), (0, 0))
SQUARES = tuple(shape for shape in SHAPES if shape[-1] == shape[-2])

dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)
squares = pytest.mark.parametrize("shape", SQUARES, ids=str)


def _matrix(shape, dtype, seed=0):
    """Of memory order columns first, so that a rule that trusts strides would show."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(*shape[:-2], shape[-1], shape[-2], generator=generator, dtype=dtype)
    return x.mT


def _positive(shape, dtype):
    x = _matrix(shape, dtype)
    return x @ x.mH + torch.eye(shape[-1], dtype=dtype)


def _near(actual, expected):
    """Equal up to 200 epsilons of the largest magnitude."""
    wide = torch.complex128 if actual.is_complex() else torch.float64
    eps = torch.finfo(actual.dtype).eps
    expected = expected.to(wide)
    room = 200 * eps * (expected.abs().max().item() if expected.numel() else 0.0)
    torch.testing.assert_close(actual.to(wide), expected, rtol=0, atol=room, equal_nan=True)


@pytest.fixture
def run(compiled_call):
    """The result of a compiled call, which may leave nothing to eager."""

    def call(function, *args):
        compiled = compiled_call(function, args)
        assert not compiled.left_to_eager
        return compiled.leaves

    return call


def _eye(n, dtype):
    return torch.eye(n, dtype=dtype)


# ---- what factorizations mean


@dtypes
@squares
@pytest.mark.parametrize("upper", [False, True])
def test_cholesky_factor_times_its_adjoint(run, shape, dtype, upper):
    a = _positive(shape, dtype)
    factor, info = run(lambda x: torch.linalg.cholesky_ex(x, upper=upper), a)
    _near(factor.mH @ factor if upper else factor @ factor.mH, a)
    assert info.dtype == torch.int32 and not info.any()
    assert torch.equal(factor, factor.triu() if upper else factor.tril())


@dtypes
@shapes
def test_lu_parts_give_the_matrix_back(run, shape, dtype):
    a = _matrix(shape, dtype)
    p, low, up = run(torch.linalg.lu, a)
    _near(p @ low @ up, a)
    packed, pivots, info = run(torch.linalg.lu_factor_ex, a)
    assert pivots.dtype == info.dtype == torch.int32
    for mine, theirs in zip(run(torch.lu_unpack, packed, pivots), (p, low, up), strict=True):
        _near(mine, theirs)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 8, 13])
def test_row_exchanges_are_combined_in_their_order(run, count):
    # Any pivots, not only those of a factorization: lu_unpack takes what it is given.
    generator = torch.Generator().manual_seed(count)
    columns = [torch.randint(i + 1, 15, (3, 1), generator=generator) for i in range(count)]
    pivots = torch.cat([torch.empty(3, 0, dtype=torch.int64), *columns], -1)
    packed = torch.zeros(3, 14, count, dtype=torch.float64)
    expected = torch.lu_unpack(packed, pivots.int())[0]
    assert torch.equal(run(torch.lu_unpack, packed, pivots.int())[0], expected)


@dtypes
@shapes
@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
def test_qr_is_orthonormal_times_triangular(run, shape, dtype, mode):
    a = _matrix(shape, dtype)
    q, r = run(lambda x: torch.linalg.qr(x, mode=mode), a)
    assert torch.equal(r, r.triu())
    if mode == "r":
        _near(r.mH @ r, a.mH @ a)
        return
    _near(q @ r, a)
    _near(q.mH @ q, _eye(q.shape[-1], dtype).expand(q.mH.shape[:-1] + q.shape[-1:]))


@dtypes
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (2, 6, 2), (4, 0)], ids=str)
@pytest.mark.parametrize("transpose", [False, True])
def test_reflections_from_either_side(run, shape, dtype, transpose):
    packed, tau = torch.geqrf(_matrix(shape, dtype))
    square = torch.cat([packed, packed.new_zeros(*shape[:-1], shape[-2] - shape[-1])], -1)
    q = torch.linalg.householder_product(square, tau)
    q = q.mH if transpose else q
    other = _matrix((*shape[:-1], 3), dtype, seed=1)
    _near(run(lambda *x: torch.ormqr(*x, True, transpose), packed, tau, other)[0], q @ other)
    _near(run(lambda *x: torch.ormqr(*x, False, transpose), packed, tau, other.mT)[0], other.mT @ q)


def test_a_reflection_may_be_none(run):
    # A tau of 0 leaves everything in place, and must not divide anything.
    packed, tau = torch.randn(4, 3, dtype=torch.float64), torch.tensor([0.5, 0.0, 0.25], dtype=torch.float64)
    _near(run(torch.linalg.householder_product, packed, tau)[0], torch.linalg.householder_product(packed, tau))


@dtypes
@squares
@pytest.mark.parametrize("uplo", ["L", "U"])
def test_hermitian_eigenvectors(run, shape, dtype, uplo):
    a = _matrix(shape, dtype)
    a = a + a.mH
    # The other triangle is not read.
    given = a.tril() if uplo == "L" else a.triu()
    values, vectors = run(lambda x: torch.linalg.eigh(x, uplo), given)
    assert not values.is_complex() and bool((values.diff(dim=-1) >= 0).all())
    _near(a @ vectors, vectors * values[..., None, :].to(dtype))
    _near(vectors.mH @ vectors, _eye(shape[-1], dtype).expand(shape))
    _near(run(lambda x: torch.linalg.eigvalsh(x, uplo), given)[0], values)


@dtypes
@squares
def test_general_eigenvectors(run, shape, dtype):
    a = _matrix(shape, dtype)
    values, vectors = run(torch.linalg.eig, a)
    assert values.is_complex() and vectors.is_complex()
    _near(a.to(values.dtype) @ vectors, vectors * values[..., None, :])
    _near(values.sum(-1), a.diagonal(0, -2, -1).sum(-1).to(values.dtype))


def test_real_eigenvalues_of_a_real_matrix_have_no_imaginary_part(run):
    values = run(torch.linalg.eigvals, torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [0.0, 0.0, -1.0]]))[0]
    assert not values.imag.any()


@dtypes
@shapes
@pytest.mark.parametrize("full", [False, True])
def test_singular_vectors(run, shape, dtype, full):
    a = _matrix(shape, dtype)
    u, s, vh = run(lambda x: torch.linalg.svd(x, full_matrices=full), a)
    count = s.shape[-1]
    _near((u[..., :count] * s[..., None, :].to(dtype)) @ vh[..., :count, :], a)
    assert bool((s >= 0).all()) and bool((s.diff(dim=-1) <= 0).all())
    for q in (u, vh.mH):
        _near(q.mH @ q, _eye(q.shape[-1], dtype).expand(q.mH.shape[:-1] + q.shape[-1:]))
    _near(run(torch.linalg.svdvals, a)[0], s)


# ---- what is computed from them, against float64


def _wide(x):
    return x.to(torch.complex128 if x.is_complex() else torch.float64)


@dtypes
@squares
@pytest.mark.parametrize("left", [True, False])
def test_solutions_solve(run, shape, dtype, left):
    a = _matrix(shape, dtype) + 3 * _eye(shape[-1], dtype)
    b = _matrix((*shape[:-1], 2), dtype, seed=1)
    b = b if left else b.mT
    x = run(lambda a, b: torch.linalg.solve_ex(a, b, left=left)[0], a, b)[0]
    _near(a @ x if left else x @ a, b)
    packed, pivots = torch.linalg.lu_factor(a)
    for adjoint in (False, True):
        x = run(lambda *x: torch.linalg.lu_solve(*x, left=left, adjoint=adjoint), packed, pivots, b)[0]  # noqa: B023
        system = a.mH if adjoint else a
        _near(system @ x if left else x @ system, b)


def test_the_batches_of_a_system_and_its_right_side_broadcast(run):
    a, b = torch.randn(3, 1, 4, 4) + 4 * torch.eye(4), torch.randn(5, 4, 2)
    x = run(lambda a, b: torch.linalg.solve_ex(a, b)[0], a, b)[0]
    _near(a @ x, b.expand(3, 5, 4, 2))
    x = run(lambda a, b: torch.linalg.solve_triangular(a, b, upper=True), a, b)[0]
    _near(a.triu() @ x, b.expand(3, 5, 4, 2))


def test_vectors_on_the_right_side(run):
    a, b = torch.randn(3, 4, 4, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)
    x = run(lambda a, b: torch.linalg.solve_ex(a, b)[0], a, b)[0]
    torch.testing.assert_close((a @ x[..., None])[..., 0], b)


@dtypes
@squares
def test_determinants_and_inverses(run, shape, dtype):
    a = _matrix(shape, dtype) + 2 * _eye(shape[-1], dtype)
    for given in (a, a.contiguous()):
        _near(run(torch.linalg.det, given)[0], torch.linalg.det(_wide(a)))
        sign, logarithm = run(torch.linalg.slogdet, given)
        _near(sign * logarithm.exp().to(dtype), torch.linalg.det(_wide(a)))
        _near(run(lambda x: torch.linalg.inv_ex(x)[0], given)[0], torch.linalg.inv(_wide(a)))


@dtypes
@pytest.mark.parametrize("contiguous", [False, True])
def test_the_gradient_of_a_determinant_in_either_memory_order(compiled_call, dtype, contiguous):
    # torch traces the gradient for a factorization of the matrix or of its transpose, as its strides say.
    a = _matrix((4, 4), dtype)
    a = (a.contiguous() if contiguous else a).detach().requires_grad_()
    for function in (torch.linalg.det, lambda x: torch.linalg.slogdet(x)[1]):
        (result,) = compiled_call(function, (a,)).leaves
        (ours,) = torch.autograd.grad(result.real, a)
        (eagers,) = torch.autograd.grad(function(a).real, a)
        _near(ours, eagers)


@dtypes
@shapes
@pytest.mark.parametrize("hermitian", [False, True])
def test_the_pseudoinverse_is_one(run, shape, dtype, hermitian):
    a = _matrix(shape, dtype)
    if hermitian:
        if shape[-1] != shape[-2]:
            return
        a = a + a.mH
    p = run(lambda x: torch.linalg.pinv(x, hermitian=hermitian), a)[0]
    _near(a @ p @ a, a)
    _near(p @ a @ p, p)


def test_the_pseudoinverse_drops_small_singular_values(run):
    a = torch.diag(torch.tensor([2.0, 1e-9, 0.0]))
    assert run(torch.linalg.pinv, a)[0].tolist() == [[0.5, 0, 0], [0, 0, 0], [0, 0, 0]]
    kept = run(lambda x: torch.linalg.pinv(x, atol=1e-10, rtol=0.0), a)[0]
    _near(kept, torch.diag(torch.tensor([0.5, 1e9, 0.0])))


@dtypes
@pytest.mark.parametrize("scale", [1e-6, 0.1, 1.0, 20.0])
def test_the_exponential_of_a_matrix(run, dtype, scale):
    # Skew-Hermitian: its exponential is unitary at any scale, so that no digit is the argument's own.
    a = _matrix((2, 5, 5), dtype)
    a = scale * (a - a.mH)
    result = run(torch.linalg.matrix_exp, a)[0]
    expected = torch.linalg.matrix_exp(_wide(a))
    room = 64 * torch.finfo(dtype).eps * max(1.0, torch.linalg.matrix_norm(a, 1).max().item())
    torch.testing.assert_close(_wide(result), expected, rtol=0, atol=room)


def test_the_exponential_beyond_what_squaring_reaches_is_nan(run):
    batch = torch.stack([torch.zeros(2, 2), torch.full((2, 2), -1e12)])
    result = run(torch.linalg.matrix_exp, batch)[0]
    assert torch.equal(result[0], torch.eye(2)) and result[1].isnan().all()


@dtypes
@pytest.mark.parametrize("hermitian", [True, False])
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (3, 3), (2, 7, 7), (20, 8, 8), (0, 2, 2), (0, 0)], ids=str)
def test_solving_with_blocks_of_one_and_two(run, shape, dtype, hermitian):
    a = _matrix(shape, dtype)
    a = a + (a.mH if hermitian else a.mT)
    # Without large diagonal elements most blocks are of two.
    a = a - 0.9 * torch.diag_embed(a.diagonal(0, -2, -1))
    factor, pivots, info = run(lambda x: torch.linalg.ldl_factor_ex(x, hermitian=hermitian), a)
    assert pivots.dtype == info.dtype == torch.int32 and not info.any()
    if len(shape) == 3 and shape[0] == 20:
        assert (pivots < 0).any() and (pivots > 0).any()
    b = _matrix((*shape[:-1], 2), dtype, seed=1)
    x = run(lambda *x: torch.linalg.ldl_solve(*x, hermitian=hermitian), factor, pivots, b)[0]
    exact = torch.linalg.ldl_factor(_wide(a), hermitian=hermitian)
    expected = torch.linalg.ldl_solve(*exact, _wide(b), hermitian=hermitian)
    room = 100 * torch.finfo(dtype).eps * (torch.linalg.cond(_wide(a)).max().item() if a.numel() else 0)
    torch.testing.assert_close(_wide(x), expected, rtol=room, atol=room)


def test_a_singular_symmetric_matrix(run):
    batch = torch.stack([torch.zeros(3, 3), torch.eye(3), torch.diag(torch.tensor([2.0, 0.0, 1.0]))])
    info = run(torch.linalg.ldl_factor_ex, batch)[2]
    assert info.tolist() == torch.linalg.ldl_factor_ex(batch).info.tolist()
    assert info[0] and not info[1] and info[2]


# ---- failures


def test_cholesky_says_which_minor_is_not_positive(run):
    fine = torch.eye(4)
    third = torch.diag(torch.tensor([1.0, 1.0, -1.0, 1.0]))
    zero = torch.zeros(4, 4)
    batch = torch.stack([fine, third, zero])
    factor, info = run(torch.linalg.cholesky_ex, batch)
    assert info.tolist() == torch.linalg.cholesky_ex(batch)[1].tolist() == [0, 3, 1]
    assert torch.equal(factor[0], fine)
    # What is factored before the failure stays, the rest is NaN.
    assert torch.equal(factor[1].isnan(), torch.ones(4, 4).tril().bool() & (torch.arange(4) >= 2))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_singular_matrices(run, dtype):
    batch = torch.stack(
        [
            torch.tensor([[1.0, 2.0], [2.0, 4.0]]),
            torch.tensor([[0.0, 0.0], [0.0, 1.0]]),
            torch.tensor([[0.0, 1.0], [1.0, 0.0]]),
        ]
    ).to(dtype)

    def solve(x):
        return torch.linalg.solve_ex(x, torch.ones_like(x[..., :1]))

    for function in (torch.linalg.lu_factor_ex, torch.linalg.inv_ex, solve):
        info = run(function, batch)[-1]
        assert info.tolist() == function(batch)[-1].tolist()
    assert info[0] and info[1] and not info[2]
    solution, _ = run(solve, batch)
    assert not solution[0].isfinite().all() and not solution[1].isfinite().all()
    assert torch.equal(solution[2], torch.ones(2, 1, dtype=dtype))
    _near(run(torch.linalg.det, batch)[0], torch.tensor([0.0, 0.0, -1.0], dtype=dtype))
    sign, logarithm = run(torch.linalg.slogdet, batch)
    assert sign.tolist() == [0, 0, -1] and logarithm.tolist() == [-math.inf, -math.inf, 0.0]


RAISING = {
    "cholesky": torch.linalg.cholesky,
    "inv": torch.linalg.inv,
    "solve": lambda x: torch.linalg.solve(x, x),
}


@pytest.mark.parametrize("function", RAISING.values(), ids=RAISING)
def test_what_raises_in_eager_raises(function):
    compiled = torch.compile(function, backend="sdk:reference")
    torch.testing.assert_close(compiled(torch.eye(2)), function(torch.eye(2)))
    with pytest.raises(Exception, match=r"could not be completed|singular"):
        compiled(torch.zeros(2, 2))
    torch._dynamo.reset()


# ---- sizes that are known only when the graph runs

DYNAMIC = {
    "solve": lambda a: torch.linalg.solve_ex(a, a[..., :1])[0],
    "det": torch.linalg.det,
    "pinv": torch.linalg.pinv,
    "matrix_exp": torch.linalg.matrix_exp,
    "eigvalsh": torch.linalg.eigvalsh,
    "lu": lambda a: torch.linalg.lu(a)[2],
}


@pytest.mark.parametrize("function", DYNAMIC.values(), ids=DYNAMIC)
@pytest.mark.parametrize("dim", [0, "matrix"])
def test_dynamic_sizes(function, dim):
    # A dynamic batch takes the rules. Of dynamic matrices, rules that need the size leave the call to eager.
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="sdk:reference")
    for size in (2, 3, 5):
        shape = (size, 4, 4) if dim == 0 else (2, size, size)
        a = _positive(shape, torch.float64).contiguous()
        for axis in (0,) if dim == 0 else (1, 2):
            torch._dynamo.mark_dynamic(a, axis)
        torch.testing.assert_close(compiled(a), function(a))
    torch._dynamo.reset()


# ---- the tolerance


def _spin(call):
    """A right answer with other signs."""
    u, s, vh = call
    flip = torch.tensor([-1.0, 1.0, -1.0])
    return u * flip, s, flip[:, None] * vh


def test_other_signs_are_within_tolerance_and_other_vectors_are_not():
    a = torch.randn(3, 3, generator=torch.Generator().manual_seed(0))
    wide = a.double()
    call = Call((wide,), {"full": False}, prims.svd.reference)
    truth = prims.svd.reference(wide, full=False)
    ours = prims.svd.reference(a, full=False)
    assert isinstance(prims.svd.tolerance, Residual)
    assert largest_share(prims.svd.tolerance, ours, truth, call) <= 1
    assert largest_share(prims.svd.tolerance, _spin(ours), truth, call) <= 1
    u, s, vh = ours
    assert largest_share(prims.svd.tolerance, (-u, s, vh), truth, call) > 1
    assert largest_share(prims.svd.tolerance, (u, s.flip(-1), vh), truth, call) > 1
    assert largest_share(prims.svd.tolerance, (u * torch.nan, s, vh), truth, call) == math.inf


def test_an_eigenvalue_may_not_stand_for_another():
    a = torch.diag(torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64))
    call = Call((a,), {}, prims.eig.reference)
    truth = prims.eig.reference(a)
    values, vectors = truth
    twice = torch.tensor([0, 0, 2])
    assert largest_share(prims.eig.tolerance, (values[twice], vectors[:, twice]), truth, call) > 1


def test_every_right_answer_is_within_tolerance_and_a_spoiled_one_is_not():
    def spoiled(x):
        return x + 1 if not (x.is_floating_point() or x.is_complex()) else x + x.abs().clamp(min=1) / 4

    for op in (prims.cholesky, prims.ldl, prims.lu, prims.householder_qr, prims.eigh, prims.eig, prims.svd, prims.qr):
        for dtype in DTYPES:
            for sample in op.samples(dtype, torch.Generator().manual_seed(3)):
                (x,) = sample.operands
                wide = _wide(x)
                results = _tuple(op.reference(x, **sample.attributes))
                truth = _tuple(op.reference(wide, **sample.attributes))
                call = Call((wide,), dict(sample.attributes), op.reference)
                assert largest_share(op.tolerance, results, truth, call) <= 1
                for place, result in enumerate(results):
                    if result.numel() and x.numel():
                        wrong = [*results[:place], spoiled(result), *results[place + 1 :]]
                        assert not largest_share(op.tolerance, wrong, truth, call) <= 1


def _tuple(results):
    return tuple(results) if isinstance(results, (tuple, list)) else (results,)
