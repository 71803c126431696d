"""The gradient composites give what autograd gives, in float64.

What a user would lose: training that converges to something else, for one stride or mask out of many.
"""

from __future__ import annotations

import math

import pytest
import torch

from backend_sdk import prims

CONVOLUTIONS = [
    # x, weight, stride, padding, dilation, groups
    ((2, 3, 9), (4, 3, 3), (1,), (0,), (1,), 1),
    ((2, 3, 9), (4, 3, 3), (2,), (1,), (1,), 1),
    ((2, 4, 10), (6, 2, 3), (3,), (2,), (2,), 2),
    ((1, 4, 7, 8), (4, 1, 3, 3), (1, 1), (1, 1), (1, 1), 4),
    ((2, 4, 7, 8), (8, 1, 3, 2), (2, 3), (1, 0), (1, 2), 4),
    ((1, 2, 8, 8), (3, 2, 1, 1), (2, 2), (0, 0), (1, 1), 1),
    ((1, 2, 6, 7), (3, 2, 5, 4), (1, 2), (3, 2), (1, 1), 1),
    ((1, 2, 5, 6, 4), (4, 1, 2, 3, 2), (2, 1, 1), (1, 1, 0), (1, 2, 1), 2),
]


@pytest.mark.parametrize(("shape", "kernel", "stride", "padding", "dilation", "groups"), CONVOLUTIONS)
def test_convolution_gradients(shape, kernel, stride, padding, dilation, groups):
    torch.manual_seed(0)
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(kernel, dtype=torch.float64, requires_grad=True)
    function = {1: torch.conv1d, 2: torch.conv2d, 3: torch.conv3d}[len(stride)]
    y = function(x, weight, None, stride, padding, dilation, groups)
    upstream = torch.randn_like(y)
    expected = torch.autograd.grad(y, (x, weight), upstream)
    common = {"strides": stride, "padding": padding, "dilation": dilation, "groups": groups}
    with torch.no_grad():
        of_input = prims.convolution_input_grad(upstream, weight, input_sizes=shape[2:], **common)
        of_weight = prims.convolution_weight_grad(upstream, x, kernel_sizes=kernel[2:], **common)
    torch.testing.assert_close(of_input, expected[0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(of_weight, expected[1], rtol=1e-12, atol=1e-12)


def _mask(kind, length, keys):
    if kind == "none":
        return None
    mask = torch.zeros(1, 1, length, keys, dtype=torch.float64)
    if kind == "additive":
        return torch.randn(2, 1, length, keys, dtype=torch.float64)
    mask[..., keys // 2 :] = -math.inf
    if kind == "blind row":
        mask[..., 0, :] = -math.inf
    return mask


@pytest.mark.parametrize("mask", ["none", "additive", "half", "blind row"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("heads", "groups", "length", "keys"), [(2, 2, 5, 5), (4, 2, 5, 5), (4, 1, 3, 7)])
def test_attention_gradient(mask, causal, heads, groups, length, keys):
    torch.manual_seed(0)

    def make(*shape):
        return torch.randn(*shape, dtype=torch.float64, requires_grad=True)

    query, key, value = make(2, heads, length, 8), make(2, groups, keys, 8), make(2, groups, keys, 6)
    added = _mask(mask, length, keys)
    expected = _attention(query, key, value, added, causal)
    upstream = torch.randn_like(expected)
    gradients = torch.autograd.grad(expected, (query, key, value), upstream)
    attributes = {"causal": causal, "scale": 0.4}
    with torch.no_grad():
        result, logsumexp = prims.attention(query, key, value, added, **attributes, statistics_dtype=torch.float64)
        actual = prims.attention_grad(upstream, query, key, value, added, result, logsumexp, **attributes)
    torch.testing.assert_close(result, expected, rtol=1e-12, atol=1e-12)
    for ours, theirs in zip(actual, gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)


def _attention(query, key, value, mask, causal):
    """The definition, by matrix products; a row that sees nothing gives zeros."""
    heads, length, keys = query.shape[1], query.shape[2], key.shape[2]
    key, value = (x.repeat_interleave(heads // x.shape[1], dim=1) for x in (key, value))
    scores = 0.4 * query @ key.transpose(-1, -2)
    if mask is not None:
        scores = scores + mask
    if causal:
        scores = scores.masked_fill(~torch.ones(length, keys, dtype=torch.bool).tril(), -math.inf)
    blind = (scores == -math.inf).all(-1, keepdim=True)
    weights = torch.softmax(scores.masked_fill(blind, 0.0), dim=-1).masked_fill(blind, 0.0)
    return weights @ value
