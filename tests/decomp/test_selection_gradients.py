"""Gradients of what selects, searches, resamples or writes by index: eager's, and no part of them runs in eager.

What a user would lose: a model that trains on the device in its forward pass and leaves it for every backward pass.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

SAMPLES = 3

# Ops of torch's catalogue of sample calls.
DIFFERENTIATED = {
    "_segment_reduce",
    "_unsafe_masked_index",
    "_unsafe_masked_index_put_accumulate",
    "_upsample_bilinear2d_aa",
    "as_strided",
    "as_strided_copy",
    "as_strided_scatter",
    "cummax",
    "cummin",
    "grid_sampler_2d",
    "grid_sampler_3d",
    "index_add",
    "index_copy",
    "index_reduce",
    "kthvalue",
    "logcumsumexp",
    "masked.median",
    "masked_scatter",
    "median",
    "mode",
    "nanmedian",
    "nn.functional.adaptive_avg_pool1d",
    "nn.functional.adaptive_avg_pool3d",
    "nn.functional.adaptive_max_pool1d",
    "nn.functional.adaptive_max_pool2d",
    "nn.functional.adaptive_max_pool3d",
    "nn.functional.avg_pool1d",
    "nn.functional.avg_pool3d",
    "nn.functional.embedding_bag",
    "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d",
    "nn.functional.grid_sample",
    "nn.functional.interpolate",
    "nn.functional.unfold",
    "nn.functional.upsample_bilinear",
    "nn.functional.upsample_nearest",
    "put",
    "scatter",
    "scatter_add",
    "scatter_reduce",
    "take",
}

# What eager draws for both sides, so that they compare.
DRAWN_BY_EAGER = {"aten.rand.default"}

CASES = [pytest.param(op, id=op.formatted_name) for op in op_db if op.name in DIFFERENTIATED]

# Views of memory that reach beyond the elements of the tensor they are taken from.
BEYOND = {"as_strided_partial_views": {"aten.as_strided.default"}}


@pytest.mark.parametrize("op", CASES)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_gradients_are_eagers(op, compiled_call):
    torch.manual_seed(0)
    samples = list(itertools.islice(op.sample_inputs("cpu", torch.float64, requires_grad=True), SAMPLES))
    for sample in samples:
        args, kwargs = (sample.input, *sample.args), sample.kwargs
        inputs = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor) and x.requires_grad]
        torch.manual_seed(42)
        expected = _gradients(pytree.tree_leaves(op.op(*args, **kwargs)), inputs)
        compiled = compiled_call(op.op, args, kwargs, random="eager")
        actual = _gradients(compiled.leaves, inputs)
        assert compiled.left_to_eager <= DRAWN_BY_EAGER | BEYOND.get(op.formatted_name, set())
        for ours, theirs in zip(actual, expected, strict=True):
            assert (ours is None) == (theirs is None)
            if theirs is not None:
                torch.testing.assert_close(ours, theirs, equal_nan=True)


def _gradients(results, inputs):
    """Gradients of a sum of the results in which each element has a weight of its own."""
    outputs = [y for y in results if isinstance(y, torch.Tensor) and y.requires_grad]
    weights = [torch.linspace(0.5, 1.5, y.numel(), dtype=y.dtype).reshape(y.shape) for y in outputs]
    if not outputs:
        return [None] * len(inputs)
    return torch.autograd.grad(outputs, inputs, weights, allow_unused=True)


def test_every_op_is_in_the_catalogue():
    assert {op.name for op in op_db} >= DIFFERENTIATED
