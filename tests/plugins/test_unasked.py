"""What torch takes apart before a backend is asked: were the list wrong, doctor would warn of claims that are asked."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import backend_sdk
from backend_sdk.torch_compat.taken_apart import Absence, absence, functional_name

aten = torch.ops.aten


def captured(function, *args):
    torch._dynamo.reset()
    graphs = backend_sdk.explain(function, *args, backend="reference").graphs
    return {node.op for graph in graphs for node in graph.nodes}


X = torch.rand(1, 2, 4, 4)
# Of each kind: kernels of C++, Python kernels under autograd, those that are kept whole, ops of their own, writes.
CALLS = [
    (aten.linear.default, lambda x: aten.linear.default(x, x[0, 0])),
    (aten.softmax.int, lambda x: aten.softmax.int(x, -1)),
    (aten.matmul.default, lambda x: aten.matmul.default(x, x)),
    (aten.upsample_bilinear2d.vec, lambda x: aten.upsample_bilinear2d.vec(x, [8, 8], False, None)),
    (aten.hardshrink.default, lambda x: aten.hardshrink.default(x)),
    (aten.softshrink.default, lambda x: aten.softshrink.default(x)),
    (aten.native_batch_norm.default, lambda x: aten.native_batch_norm.default(x, *[None] * 4, True, 0.1, 1e-5)[0]),
    (aten.upsample_bilinear2d.default, lambda x: aten.upsample_bilinear2d.default(x, [8, 8], False)),
    (aten._softmax.default, lambda x: aten._softmax.default(x, -1, False)),
    (aten.hardswish.default, lambda x: F.hardswish(x)),
    (aten.gelu.default, lambda x: F.gelu(x)),
    (aten.exp_.default, lambda x: aten.exp_.default(x.clone())),
    (aten.exp.default, lambda x: aten.exp.default(x)),
]


@pytest.mark.parametrize(("op", "call"), CALLS, ids=[str(op) for op, _ in CALLS])
@pytest.mark.parametrize("training", [False, True])
def test_the_dispatcher_is_asked_rightly(op, call, training):
    held = str(op) in captured(call, X.clone().requires_grad_(training))
    assert held == (absence(op) is None)


def test_a_writing_overload_leads_to_the_one_that_a_graph_holds():
    assert absence(aten.exp_.default) is Absence.FUNCTIONALIZED
    assert functional_name(aten.exp_.default) == functional_name(aten.exp.out) == "aten.exp.default"
    assert functional_name(aten.add.out) == "aten.add.default"
    assert functional_name(aten.__ior__.Tensor) == "aten.__ior__.Tensor"
