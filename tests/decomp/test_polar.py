"""Polar factors and square roots of Hermitian matrices, which torch has since 2.14.

What a user would lose: these two ops, on the one of the two supported torch releases that has them.
"""

from __future__ import annotations

import pytest
import torch

pytestmark = pytest.mark.skipif(not hasattr(torch.linalg, "polar"), reason="torch 2.13 has neither op")

DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))


def _matrix(shape, dtype):
    return torch.randn(*shape[:-2], shape[-1], shape[-2], generator=torch.Generator().manual_seed(0), dtype=dtype).mT


def _positive(size, dtype):
    x = _matrix((2, size, size), dtype)
    return x @ x.mH + torch.eye(size, dtype=dtype)


@pytest.fixture
def run(compiled_call):
    def call(function, *args):
        compiled = compiled_call(function, args, fallback="error")
        assert not compiled.left_to_eager
        return compiled.leaves

    return call


def _near(actual, expected):
    atol = 200 * torch.finfo(actual.dtype).eps * max(1.0, expected.abs().max().item() if expected.numel() else 0.0)
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


@dtypes
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (2, 4, 3), (1, 1), (3, 0), (0, 3, 2), (0, 0)], ids=str)
def test_polar_factors(run, shape, dtype):
    x = _matrix(shape, dtype)
    for actual, eager in zip(run(torch.linalg.polar, x), torch.linalg.polar(x), strict=True):
        _near(actual, eager)


@dtypes
def test_the_square_root_squares_to_the_matrix_and_reads_the_lower_triangle(run, dtype):
    x = _positive(4, dtype)
    (root,) = run(torch.linalg.matrix_sqrth, x)
    _near(root @ root, x)
    _near(run(torch.linalg.matrix_sqrth, x.tril() + 7 * x.triu(1))[0], root)


@pytest.mark.parametrize("values", [[-1.0, 4.0], [0.0, 0.0], [float("nan"), 1.0]], ids=str)
def test_the_square_root_of_what_is_not_positive_is_eagers(run, values):
    x = torch.diag(torch.tensor(values))
    torch.testing.assert_close(run(torch.linalg.matrix_sqrth, x)[0], torch.linalg.matrix_sqrth(x), equal_nan=True)


@pytest.mark.parametrize("name", ["polar", "matrix_sqrth"])
def test_gradients(run, name):
    function = getattr(torch.linalg, name)

    def gradient(x):
        x = x.detach().requires_grad_()
        results = function(x)
        results = results if isinstance(results, tuple) else (results,)
        weighted = [r.mul(torch.linspace(0.5, 1.5, r.numel(), dtype=r.dtype).reshape(r.shape)).sum() for r in results]
        return torch.autograd.grad(sum(weighted), x)[0]

    x = _positive(3, torch.float64)
    _near(run(gradient, x)[0], gradient(x))
