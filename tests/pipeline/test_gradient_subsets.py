"""A layer is trained whatever part of it asks for a gradient: its input, its weight, its bias, or some of them."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

LAYERS = {
    "BatchNorm1d": (lambda: nn.BatchNorm1d(4), (3, 4)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(4), (2, 4, 5, 5)),
    "BatchNorm2d-eval": (lambda: nn.BatchNorm2d(4).eval(), (2, 4, 5, 5)),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(4, affine=True), (2, 4, 5, 5)),
    "LayerNorm": (lambda: nn.LayerNorm(4), (3, 4)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), (2, 4, 5)),
    "RMSNorm": (lambda: nn.RMSNorm(4), (3, 4)),
    "Linear": (lambda: nn.Linear(4, 3), (2, 4)),
    "Conv1d": (lambda: nn.Conv1d(4, 3, 3, padding=1), (2, 4, 6)),
    "Conv2d-grouped": (lambda: nn.Conv2d(4, 4, 3, stride=2, groups=2), (2, 4, 7, 7)),
    "ConvTranspose1d-padded": (
        lambda: nn.ConvTranspose1d(4, 3, 3, stride=2, dilation=4, output_padding=3),
        (2, 4, 5),
    ),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(4, 3, 3, stride=2), (2, 4, 4, 4)),
}


@pytest.mark.parametrize("layer", LAYERS)
def test_every_subset_of_gradients(layer):
    torch.manual_seed(0)
    make, shape = LAYERS[layer]
    module = make()
    x = torch.randn(shape)
    wanted = [x, *module.parameters()]
    for subset in itertools.product((False, True), repeat=len(wanted)):
        if not any(subset):
            continue
        for tensor, flag in zip(wanted, subset, strict=True):
            tensor.requires_grad_(flag)
        torch.compiler.reset()
        leaves = [tensor for tensor, flag in zip(wanted, subset, strict=True) if flag]
        compiled = torch.compile(module, backend="sdk:reference", options={"fallback": "error"})
        got = torch.autograd.grad(compiled(x).square().sum(), leaves)
        expected = torch.autograd.grad(module(x).square().sum(), leaves)
        for actual, gradient in zip(got, expected, strict=True):
            torch.testing.assert_close(actual, gradient, rtol=1e-4, atol=1e-4)
