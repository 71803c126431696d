"""Shifts, copies of views, sums of powers, matrix products of another dtype, at the edges of their arguments.

What a user would lose: a model whose only unusual op is one that nobody calls by name, run in eager or not at all.
"""

from __future__ import annotations

import math

import pytest
import torch

from backend_sdk.coverage.calls import COMPOSITES, Call, prove

aten = torch.ops.aten


def _agree(function, *args, backward=False):
    assert prove(Call(function, args, backward=backward), COMPOSITES) is not None


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8])
@pytest.mark.parametrize("op", [aten.__lshift__, aten.__rshift__])
def test_shifts(op, dtype):
    x = torch.arange(0, 120, 7).to(dtype)
    _agree(op.Scalar, x, 3)
    _agree(op.Scalar, x.reshape(3, 6).mT, 0)
    _agree(op.Scalar, x[0], 2)
    _agree(op.Scalar, x[:0], 2)
    _agree(op.Tensor, x.reshape(3, 6), torch.arange(6).to(dtype))
    _agree(lambda x: x.clone().__ilshift__(2), x)


def test_shifts_by_more_bits_than_there_are():
    x = torch.tensor([1, -1, 77, -128], dtype=torch.int8)
    for bits in (7, 8, 100, -1):
        _agree(aten.__rshift__.Scalar, x, bits)
        _agree(aten.__lshift__.Scalar, x, bits)


def test_copies_of_slices_and_selections():
    x = torch.arange(24.0).reshape(2, 3, 4)
    for dim, start, end, step in ((1, -2, None, 1), (-1, 0, 9, 3), (0, 2, None, 1), (2, 3, 1, 1)):
        _agree(lambda x, a=(dim, start, end, step): aten.slice_copy.Tensor(x, *a), x)
    for dim, index in ((0, 1), (-1, -4), (1, -1)):
        _agree(lambda x, a=(dim, index): aten.select_copy.int(x, *a), x)
    leaf = x.clone().requires_grad_()
    _agree(lambda x: aten.slice_copy.Tensor(x, 1, 1) * 2, leaf, backward=True)
    _agree(lambda x: aten.select_copy.int(x, -1, -2) * 2, leaf, backward=True)


def test_stack_without_checks():
    for dim in (0, 1, -1):
        _agree(lambda *x, d=dim: aten._stack.default(list(x), d), torch.ones(2, 3), torch.zeros(2, 3))
    _agree(lambda *x: aten._stack.default(list(x), -1), torch.tensor(1), torch.tensor(2))


@pytest.mark.parametrize("order", [0, 1, 2, 3, 0.5, -1, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64])
def test_power_sums(order, dtype):
    x = torch.tensor([[1.0, -2.0, 0.0], [3.0, math.nan, 0.5]]).to(dtype)
    _agree(lambda x: aten.linalg__powsum.default(x, order, [-1], True), x)
    _agree(lambda x: aten.linalg__powsum.default(x, order), x[:, :1])
    _agree(lambda x: aten.linalg__powsum.default(x, order), x[0, 1])
    _agree(lambda x, y: aten._foreach_powsum.Scalar([x, y], order), x, x[:, 0].clone())
    if order not in (-1, -math.inf):
        _agree(lambda x: aten.linalg__powsum.default(x, order, [1]), x[:, :0])


def test_power_sums_of_another_dtype():
    x = torch.tensor([300.0, 400.0], dtype=torch.float16)
    _agree(lambda x: aten.linalg__powsum.default(x, 2, dtype=torch.float32), x)
    _agree(lambda x: aten._foreach_powsum.Scalar([x], 2, torch.float64), x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_products_of_half_precision_in_float32(compiled_call, dtype):
    """Eager has no CPU kernel: the product of the converted operands is what it means."""
    torch.manual_seed(0)
    x, y = torch.randn(2, 4, 33).to(dtype), torch.randn(2, 33, 3).to(dtype)
    bias = torch.randn(3).to(dtype)
    calls = (
        (lambda x, y: aten.bmm.dtype(x, y, torch.float32), (x, y), x.float() @ y.float()),
        (lambda x, y: aten.mm.dtype(x, y, torch.float32), (x[0], y[0]), x[0].float() @ y[0].float()),
        (
            lambda b, x, y: aten.addmm.dtype(b, x, y, torch.float32, beta=0.5, alpha=2),
            (bias, x[0], y[0]),
            0.5 * bias.float() + 2 * (x[0].float() @ y[0].float()),
        ),
    )
    for function, args, expected in calls:
        result = compiled_call(function, args)
        assert not result.left_to_eager
        torch.testing.assert_close(result.leaves[0], expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
@pytest.mark.parametrize("transposed", [False, True])
def test_convolution_with_library_choices(dtype, transposed):
    torch.manual_seed(0)
    x = torch.randn(2, 4, 7, 6).mul(3).to(dtype)
    weight = torch.randn(4, 2, 3, 2).mul(3).to(dtype)
    bias = torch.ones(4).to(dtype)
    choices = (False, False, True, True)

    def convolve(x, weight, bias):
        return aten._convolution.default(
            x, weight, bias, [2, 1], [1, 1], [1, 2], transposed, [1 if transposed else 0, 0], 2, *choices
        )

    _agree(convolve, x, weight, bias)
    if dtype.is_floating_point:
        _agree(convolve, *(leaf.requires_grad_() for leaf in (x, weight, bias)), backward=True)
