"""Factorizations and solvers with symbolic sizes: batch dims, and the sizes of square matrices.

What a user would lose: a compiled solver that recompiles, or falls back, for each size of its batch.
"""

from __future__ import annotations

import pytest
import torch

from backend_sdk import errors

STRICT = {"fallback": "error"}

FUNCTIONS = {
    "inv": torch.linalg.inv,
    "det": torch.linalg.det,
    "slogdet": torch.linalg.slogdet,
    "solve": lambda x: torch.linalg.solve(x, x.mT),
    "cholesky": torch.linalg.cholesky,
    "lu": torch.linalg.lu,
    "lu_factor": torch.linalg.lu_factor,
    "ldl_factor": torch.linalg.ldl_factor,
    "qr": torch.linalg.qr,
    "geqrf": torch.geqrf,
    "ormqr": lambda x: torch.ormqr(x, x[..., 0], x.mT),
    "householder_product": lambda x: torch.linalg.householder_product(x, x[..., 0]),
    "svdvals": torch.linalg.svdvals,
    "pinv": torch.linalg.pinv,
    "matrix_rank": torch.linalg.matrix_rank,
    "eigh": torch.linalg.eigh,
    "eigvals": torch.linalg.eigvals,
    "matrix_exp": torch.linalg.matrix_exp,
    "solve_triangular": lambda x: torch.linalg.solve_triangular(x, x.mT, upper=True),
    "cholesky_inverse": torch.cholesky_inverse,
    "cholesky_solve": lambda x: torch.cholesky_solve(x.mT, x),
}

# What needs the number of exchanges of rows.
OF_EXCHANGES = {
    "lu_unpack": lambda x: torch.lu_unpack(x, torch.ones(x.shape[:-1], dtype=torch.int32)),
    "lu_solve": lambda x: torch.linalg.lu_solve(x, torch.ones(x.shape[:-1], dtype=torch.int32), x),
}


def _matrix(*shape, dtype=torch.float64):
    """Symmetric, positive definite, with distinct eigenvalues."""
    size = shape[-1]
    rows = torch.arange(size, dtype=dtype.to_real())
    matrix = torch.diag(rows + 3) + 0.1 / (1 + (rows[:, None] - rows).abs())
    return matrix.to(dtype).expand(shape).contiguous()


def _agree(compiled, function, inputs):
    """Signs and phases, which the choice of an algorithm decides, are left out."""
    for x in inputs:
        actual, expected = compiled(x), function(x)
        pairs = zip(actual, expected, strict=True) if isinstance(actual, tuple) else [(actual, expected)]
        for ours, wanted in pairs:
            torch.testing.assert_close(ours.abs(), wanted.abs())


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64])
@pytest.mark.parametrize("name", [*FUNCTIONS, *OF_EXCHANGES])
def test_symbolic_batch(name, dtype):
    function = (FUNCTIONS | OF_EXCHANGES)[name]
    torch._dynamo.reset()
    inputs = [_matrix(size, 3, 3, dtype=dtype) for size in (2, 5)]
    for x in inputs:
        torch._dynamo.mark_dynamic(x, 0)
    _agree(torch.compile(function, backend="sdk:reference", options=STRICT), function, inputs)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_square_matrices_of_symbolic_size(name):
    function = FUNCTIONS[name]
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="sdk:reference", options=STRICT, dynamic=True)
    _agree(compiled, function, [_matrix(size, size) for size in (3, 6)])


@pytest.mark.parametrize(
    "function", [torch.linalg.qr, torch.linalg.svdvals, torch.linalg.pinv, OF_EXCHANGES["lu_unpack"]]
)
def test_what_needs_to_know_the_sizes_says_so(function):
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="sdk:reference", options=STRICT, dynamic=True)
    x = torch.rand(5, 3) if function is not OF_EXCHANGES["lu_unpack"] else torch.rand(4, 4)
    with pytest.raises(errors.UnsupportedOpError, match="symbolic number of rows or columns"):
        compiled(x)
    _agree(torch.compile(function, backend="sdk:reference", dynamic=True), function, [x])
