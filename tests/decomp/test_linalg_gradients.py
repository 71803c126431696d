"""Factorizations, solvers and Fourier transforms: values and gradients are eager's, and no part of them runs in eager.

What a user would lose: a training loop that fits a covariance, a filter or a normalizing flow would follow a wrong
gradient, or leave the device for every backward pass.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

# Samples for each op and dtype: what one core does in about two minutes. All pass with 4, in twice the time.
SAMPLES = 2

FAMILIES = ("linalg.", "fft.")

OTHERS = {
    "cdist",
    "cholesky",
    "cholesky_inverse",
    "cholesky_solve",
    "cross",
    "dist",
    "geqrf",
    "istft",
    "logdet",
    "lu",
    "lu_solve",
    "lu_unpack",
    "matrix_exp",
    "nn.functional.bilinear",
    "nn.functional.pdist",
    "norm",
    "ormqr",
    "pinverse",
    "qr",
    "stft",
    "svd",
    "trace",
    "triangular_solve",
}

# Not in a graph of torch's own making, with the reason.
NOT_CAPTURED = {"linalg.lstsq": "the size of the residuals depends on the data"}

# Gradients that torch's own formula refuses to be traced, with the reason.
NOT_TRACED = {
    ("svd", torch.complex128): "checks the phases of the gradient's data",
    ("linalg.svd", torch.complex128): "checks the phases of the gradient's data",
}

# Left to eager, by a name in a report, with the reason.
LEFT_TO_EAGER = {
    "aten.max.dim": "the maximum of truth values and where it is: the rule is not written",
}

DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)

pytestmark = [pytest.mark.filterwarnings("ignore::UserWarning"), pytest.mark.filterwarnings("ignore::FutureWarning")]


def _is_ours(op):
    return (op.name.startswith(FAMILIES) or op.name in OTHERS) and op.name not in NOT_CAPTURED


CASES = [
    pytest.param(op, dtype, id=f"{op.formatted_name}-{str(dtype).removeprefix('torch.')}")
    for op in op_db
    for dtype in DTYPES
    if _is_ours(op) and dtype in op.supported_dtypes("cpu")
]

GRADIENT_CASES = [
    pytest.param(op, dtype, id=f"{op.formatted_name}-{str(dtype).removeprefix('torch.')}")
    for op in op_db
    for dtype in (torch.float64, torch.complex128)
    if _is_ours(op)
    and op.supports_autograd
    and dtype in op.supported_backward_dtypes("cpu")
    and (op.name, dtype) not in NOT_TRACED
]


def _invariant(op, sample):
    """The op followed by what torch's own tests apply to results that are not unique: signs and phases drop out."""

    def run(*args, **kwargs):
        return sample.output_process_fn_grad(op.op(*args, **kwargs))

    return run


def _samples(op, dtype, requires_grad):
    torch.manual_seed(0)
    return itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=requires_grad), SAMPLES)


def _assert_near(actual, expected):
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    if not (expected.is_floating_point() or expected.is_complex()):
        assert torch.equal(actual, expected)
        return
    assert torch.equal(actual.isfinite(), expected.isfinite())
    # Two backward stable algorithms differ by the problem's condition number times the epsilon: the catalogue's samples
    # are conditioned so that half of the digits are left.
    room = torch.finfo(expected.dtype).eps ** 0.5
    finite = expected.isfinite()
    largest = expected[finite].abs().max() if finite.any() else 0.0
    torch.testing.assert_close(actual, expected, rtol=room, atol=float(room * largest), equal_nan=True)


def _unexpected(names):
    def draws(name):
        namespace, op, overload = name.split(".")
        return torch.Tag.nondeterministic_seeded in getattr(getattr(getattr(torch.ops, namespace), op), overload).tags

    return {name for name in names if name not in LEFT_TO_EAGER and not draws(name)}


@pytest.mark.parametrize(("op", "dtype"), CASES)
def test_values_are_eagers(op, dtype, compiled_call):
    for sample in _samples(op, dtype, requires_grad=False):
        function, args = _invariant(op, sample), (sample.input, *sample.args)
        torch.manual_seed(42)
        eager = pytree.tree_leaves(function(*args, **sample.kwargs))
        compiled = compiled_call(function, args, sample.kwargs, random="eager")
        assert not _unexpected(compiled.left_to_eager)
        for actual, expected in zip(compiled.leaves, eager, strict=True):
            if isinstance(expected, torch.Tensor):
                _assert_near(actual, expected)


@pytest.mark.parametrize(("op", "dtype"), GRADIENT_CASES)
def test_gradients_are_eagers(op, dtype, compiled_call):
    for sample in _samples(op, dtype, requires_grad=True):
        function, args = _invariant(op, sample), (sample.input, *sample.args)
        inputs = [
            leaf
            for leaf in pytree.tree_leaves((args, sample.kwargs))
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad
        ]
        torch.manual_seed(42)
        eager = _gradients(pytree.tree_leaves(function(*args, **sample.kwargs)), inputs)
        compiled = compiled_call(function, args, sample.kwargs, random="eager")
        ours = _gradients(compiled.leaves, inputs)
        assert not _unexpected(compiled.left_to_eager)
        for actual, expected in zip(ours, eager, strict=True):
            assert (actual is None) == (expected is None)
            if expected is not None:
                _assert_near(actual, expected)


def _gradients(results, inputs):
    """Gradients of a sum of the results in which each element has a weight of its own."""
    total = 0.0
    for result in results:
        if isinstance(result, torch.Tensor) and result.requires_grad:
            weights = torch.linspace(0.5, 1.5, result.numel(), dtype=result.dtype.to_real()).reshape(result.shape)
            total = total + (result.real + result.imag if result.is_complex() else result).mul(weights).sum()
    if not isinstance(total, torch.Tensor):
        return [None] * len(inputs)
    return torch.autograd.grad(total, inputs, allow_unused=True)


def test_the_lists_name_ops_of_the_catalogue():
    known = {op.name for op in op_db}
    assert known.issuperset(OTHERS | NOT_CAPTURED.keys() | {name for name, _ in NOT_TRACED})
