"""Backward graphs: every op with a gradient rule of its own gives autograd's gradients, and no op runs in eager.

What a user would lose: training that converges to something else.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

SAMPLES = 2

DIFFERENTIATED = {
    "add",
    "addmm",
    "amax",
    "bmm",
    "cat",
    "clamp",
    "cumsum",
    "div",
    "exp",
    "expand",
    "gather",
    "index_select",
    "log_softmax",
    "matmul",
    "max",
    "mean",
    "mul",
    "nn.functional.adaptive_avg_pool2d",
    "nn.functional.avg_pool2d",
    "nn.functional.conv1d",
    "nn.functional.conv2d",
    "nn.functional.conv3d",
    "nn.functional.conv_transpose2d",
    "nn.functional.cross_entropy",
    "nn.functional.embedding",
    "nn.functional.gelu",
    "nn.functional.group_norm",
    "nn.functional.hardswish",
    "nn.functional.hardtanh",
    "nn.functional.layer_norm",
    "nn.functional.leaky_relu",
    "nn.functional.linear",
    "nn.functional.max_pool2d",
    "nn.functional.mse_loss",
    "nn.functional.pad",
    "nn.functional.relu",
    "nn.functional.rms_norm",
    "nn.functional.silu",
    "permute",
    "pow",
    "repeat",
    "select",
    "sigmoid",
    "softmax",
    "sqrt",
    "std",
    "sum",
    "tanh",
    "tril",
    "var",
    "where",
}


def _require_gradients(arguments):
    def differentiable(leaf):
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
            return leaf.detach().clone().requires_grad_()
        return leaf

    return pytree.tree_map(differentiable, arguments)


def _gradients(results, arguments):
    inputs = [x for x in pytree.tree_leaves(arguments) if isinstance(x, torch.Tensor) and x.requires_grad]
    outputs = [y for y in results if isinstance(y, torch.Tensor) and y.requires_grad]
    torch.manual_seed(1)
    upstream = [torch.randn_like(y) for y in outputs]
    return torch.autograd.grad(outputs, inputs, upstream, allow_unused=True) if outputs else ()


@pytest.mark.parametrize("op", [pytest.param(op, id=op.formatted_name) for op in op_db if op.name in DIFFERENTIATED])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_gradients_are_eagers(op, compiled_call, assert_as_eager):
    for sample in itertools.islice(op.sample_inputs("cpu", torch.float32), SAMPLES):
        given = ((sample.input, *sample.args), sample.kwargs)
        args, kwargs = _require_gradients(given)
        eager = _gradients(pytree.tree_leaves(op.op(*args, **kwargs)), (args, kwargs))
        args, kwargs = _require_gradients(given)
        compiled = compiled_call(op.op, args, kwargs)
        actual = _gradients(compiled.leaves, (args, kwargs))
        assert not compiled.left_to_eager
        for ours, theirs in zip(actual, eager, strict=True):
            if theirs is None:
                assert ours is None or not ours.any()
            else:
                assert_as_eager(ours, theirs)


def test_every_op_is_in_the_catalogue():
    assert {op.name for op in op_db} >= DIFFERENTIATED
