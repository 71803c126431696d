"""Complex values: parts, conjugates and magnitudes, forward and backward, and the bits that eager keeps lazy.

What a user would lose: a spectral loss whose gradient is not conjugated, or a conjugate that a kernel reads as if it
had been computed.
"""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

from backend_sdk import prims

INF, NAN = math.inf, math.nan


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_parts_keep_every_bit(dtype):
    edges = torch.tensor([0.0, -0.0, 1.0, INF, -INF, NAN], dtype=dtype.to_real())
    real, imag = torch.cartesian_prod(edges, edges).unbind(1)
    joined = prims.complex(real, imag)
    assert joined.dtype == dtype
    for part, expected in ((prims.real(joined), real), (prims.imag(joined), imag)):
        torch.testing.assert_close(part, expected, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(part.signbit(), expected.signbit())


@pytest.mark.parametrize("lazy", [torch.conj, torch._neg_view, lambda x: torch.conj(x).imag])
def test_an_input_with_a_lazy_bit_is_its_value(lazy, compiled_call):
    x = lazy(torch.randn(3, 4, dtype=torch.complex64))
    assert x.is_conj() or x.is_neg()
    compiled = compiled_call(lambda x: (x + 1, x.sum()), (x,))
    assert not compiled.left_to_eager
    for actual, expected in zip(compiled.leaves, (x + 1, x.sum()), strict=True):
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.conj(),
        lambda x: x.conj().imag,
        lambda x: x.mH @ x,
        lambda x: torch.view_as_real(x.conj().resolve_conj()),
        lambda x: x.clone().imag.mul_(2.0),
        lambda x: torch.view_as_complex(torch.view_as_real(x) * 2.0),
    ],
    ids=["conj", "imaginary part", "adjoint", "pairs", "in place", "from pairs"],
)
def test_a_lazy_bit_inside_a_graph_is_computed(function, compiled_call):
    x = torch.randn(4, 4, dtype=torch.complex64)
    compiled = compiled_call(function, (x,))
    assert not compiled.left_to_eager
    torch.testing.assert_close(compiled.leaves[0], function(x))


def test_magnitudes_survive_extremes(compiled_call):
    huge, tiny = 3e38, 1e-38
    x = torch.tensor([complex(huge, huge / 4), complex(tiny, tiny), 0, complex(INF, NAN), complex(1, -INF)])
    torch.testing.assert_close(compiled_call(torch.abs, (x,)).leaves[0], torch.abs(x))
    (sign,) = compiled_call(torch.sgn, (x[:3],)).leaves
    torch.testing.assert_close(sign.abs(), torch.tensor([1.0, 1.0, 0.0]))


# Ops whose complex rule differs from the real one, or that see complex values as pairs.
OPS = set(
    """H abs angle complex conj conj_physical dist imag isclose isfinite isinf isreal lerp linalg.vecdot log10 logaddexp
    logsumexp mH masked.std masked.var nn.functional.normalize nn.functional.silu nn.functional.softsign polar real
    reciprocal renorm sgn sigmoid std std_mean tanh var var_mean vdot view_as_complex view_as_real""".split()  # noqa: SIM905
)


def _cases(dtypes_of):
    return [
        pytest.param(op, dtype, id=f"{op.formatted_name}-{str(dtype).removeprefix('torch.')}")
        for op in op_db
        if op.name in OPS
        for dtype in (torch.complex64, torch.complex128, torch.float32)
        if dtype in dtypes_of(op)
    ]


@pytest.mark.parametrize(("op", "dtype"), _cases(lambda op: op.supported_dtypes("cpu")))
def test_samples(op, dtype, compiled_call, assert_as_eager):
    for sample in itertools.islice(op.sample_inputs("cpu", dtype), 2):
        args = (sample.input, *sample.args)
        compiled = compiled_call(op.op, args, sample.kwargs)
        assert not compiled.left_to_eager
        eager = pytree.tree_leaves(op.op(*args, **sample.kwargs))
        for actual, expected in zip(compiled.leaves, eager, strict=True):
            assert_as_eager(actual, expected)


@pytest.mark.parametrize(
    ("op", "dtype"), _cases(lambda op: op.supported_backward_dtypes("cpu") if op.supports_autograd else ())
)
def test_gradients_of_samples(op, dtype, compiled_call, assert_as_eager):
    for sample in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=True), 2):
        args = (sample.input, *sample.args)
        inputs = [
            x for x in pytree.tree_leaves((args, sample.kwargs)) if isinstance(x, torch.Tensor) and x.requires_grad
        ]
        compiled = compiled_call(op.op, args, sample.kwargs)
        ours = _gradients(compiled.leaves, inputs)
        assert not compiled.left_to_eager
        for actual, expected in zip(
            ours, _gradients(pytree.tree_leaves(op.op(*args, **sample.kwargs)), inputs), strict=True
        ):
            assert_as_eager(actual, expected)


def _gradients(results, inputs):
    """For a sum of all results, each element with a complex weight of its own."""
    results = [x for x in results if isinstance(x, torch.Tensor) and x.requires_grad]
    if not results:
        return []
    weights = []
    for x in results:
        real = torch.linspace(0.5, 1.5, x.numel(), dtype=x.dtype.to_real()).reshape(x.shape)
        weights.append(torch.complex(real, 1.0 - real) if x.is_complex() else real)
    return list(torch.autograd.grad(results, inputs, weights, allow_unused=True, materialize_grads=True))
