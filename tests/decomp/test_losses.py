"""Losses and gradients of losses that torch's tables leave out are eager's, in every reduction and at the kinks.

What a user would lose: training with another gradient than the loss has.
"""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

aten = torch.ops.aten


def _check(compiled_call, function, *args):
    expected = function(*args)
    compiled = compiled_call(function, args)
    assert not compiled.left_to_eager
    expected = expected if isinstance(expected, (tuple, list)) else (expected,)
    for actual, wanted in zip(compiled.leaves, expected, strict=True):
        assert (actual.dtype, actual.shape) == (wanted.dtype, wanted.shape)
        torch.testing.assert_close(actual, wanted, equal_nan=True)


def _check_gradient(compiled_call, function, *args):
    """Values, and gradients of a weighted sum, of the arguments that ask for one."""
    inputs = [x for x in args if isinstance(x, torch.Tensor) and x.requires_grad]
    gradients = []
    for run in (function, lambda *given: compiled_call(function, given).leaves[0]):
        result = run(*args)
        weights = torch.linspace(0.5, 1.5, result.numel(), dtype=result.dtype).reshape(result.shape)
        gradients.append([result.detach(), *torch.autograd.grad((result * weights).sum(), inputs)])
    assert not compiled_call(function, args).left_to_eager
    for wanted, actual in zip(*gradients, strict=True):
        assert (actual.dtype, actual.shape) == (wanted.dtype, wanted.shape)
        # Eager rounds each step to 16 bits.
        bound = {"rtol": 5e-2, "atol": 5e-2} if wanted.dtype.itemsize == 2 else {}
        torch.testing.assert_close(actual, wanted, equal_nan=True, **bound)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("function", [aten.hardshrink_backward.default, aten.softshrink_backward.default])
@pytest.mark.parametrize("bound", [0.5, 0])
def test_shrinkage(compiled_call, function, dtype, bound):
    x = torch.tensor([-0.75, -0.5, -0.25, 0.0, 0.5, 0.625, math.inf, -math.inf], dtype=dtype)
    _check(compiled_call, function, torch.arange(1.0, 9.0).to(dtype), x, bound)
    _check(compiled_call, function, x[:0], x[:0], bound)
    _check(compiled_call, function, x[0], x[1], bound)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_margin(compiled_call, p, weighted, reduction, dtype):
    # Slacks of exactly 0 among them.
    x = torch.tensor([[0.0, 1.0, 0.5], [2.0, 1.0, 0.0], [0.25, 0.5, -3.0], [1.0, 1.0, 1.0]], dtype=dtype)
    target = torch.tensor([0, 1, 2, 2])
    weight = torch.tensor([0.5, 2.0, 3.0], dtype=dtype) if weighted else None

    def loss(x, target):
        return F.multi_margin_loss(x, target, p=p, margin=0.5, weight=weight, reduction=reduction)

    def weighted_loss(x, target, weight):
        return F.multi_margin_loss(x, target, p=p, margin=0.5, weight=weight, reduction=reduction)

    # torch gives one row without a reduction another shape when it traces than when it runs.
    for rows, goal in ((x, target), (x[0], target[0]))[: 1 if reduction == "none" else 2]:
        given = rows.clone().requires_grad_()
        if weighted:
            _check_gradient(compiled_call, weighted_loss, given, goal, weight)
        else:
            _check_gradient(compiled_call, loss, given, goal)


@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_margin_of_several_labels(compiled_call, reduction, dtype):
    """The gradient alone: what torch traces the loss to counts the entries behind the end of a list."""
    x = torch.tensor([[0.0, 1.0, 0.5], [2.0, 1.0, 0.0], [0.25, 0.5, -3.0], [1.0, 1.0, 1.0]], dtype=dtype)
    target = torch.tensor([[0, 2, -1], [-1, 0, 1], [2, 1, 0], [1, -1, 2]])
    for rows, goal in ((x, target), (x[0], target[0])):
        loss, is_target = aten.multilabel_margin_loss_forward(rows, goal, reduction)
        grad = torch.arange(1.0, 1.0 + loss.numel(), dtype=dtype).reshape(loss.shape)
        _check(
            compiled_call,
            lambda *given: aten.multilabel_margin_loss_backward(*given[:3], reduction, given[3]),
            *(grad, rows, goal, is_target),
        )


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize(("weighted", "bias", "ignored"), [(False, False, -100), (True, True, 1), (True, False, -100)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_linear_cross_entropy(compiled_call, reduction, weighted, bias, ignored, dtype):
    generator = torch.Generator().manual_seed(0)
    x, layer, shift = (torch.randn(shape, generator=generator).to(dtype) for shape in ((6, 8), (5, 8), (5,)))
    target = torch.tensor([0, 1, 4, 1, ignored, 2])
    weight = torch.tensor([0.5, 2.0, 3.0, 1.0, 0.25]).to(dtype)
    tensors = {"linear_bias": shift.requires_grad_()} if bias else {}
    tensors |= {"weight": weight} if weighted else {}

    def loss(x, layer, target, *others):
        named = dict(zip(tensors, others, strict=True))
        return F.linear_cross_entropy(x, layer, target, reduction=reduction, ignore_index=ignored, **named)

    args = (x.requires_grad_(), layer.requires_grad_(), target, *tensors.values())
    _check_gradient(compiled_call, loss, *args)
    # Gradients of the layer that nobody asks for.
    frozen = [arg.detach() for arg in args]
    bonus = torch.zeros((), dtype=dtype, requires_grad=True)
    _check_gradient(compiled_call, lambda bonus, *given: loss(*given) + bonus, bonus, *frozen)


def test_linear_cross_entropy_of_nothing_that_counts(compiled_call):
    x, layer = torch.randn(3, 4, requires_grad=True), torch.randn(5, 4)
    target = torch.full((3,), -100)
    _check_gradient(compiled_call, F.linear_cross_entropy, x, layer, target)
