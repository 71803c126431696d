"""A graph prints as text that a person can read, and runs as it prints."""

from __future__ import annotations

import random

import pytest
import torch

from backend_sdk import errors, prims
from backend_sdk.graph import GraphBuilder, Origin, format_graph, runnable, verify
from backend_sdk.spec import TensorType, building
from backend_sdk.spec.symbolic import symbol

VECTOR = TensorType((4,), torch.float32)
s0, s1 = symbol("s0"), symbol("s1")


def example():
    builder = GraphBuilder()
    x = builder.input("x", VECTOR)
    builder.origin = Origin("aten.sort.default", "model.py:3: sort(x)")
    with building(builder):
        values, indices = prims.sort(prims.exp(x), axis=0, descending=True)
        builder.origin = Origin("aten.add.Tensor", "model.py:4: y + 0.5")
        z = prims.add(values, prims.full(shape=(4,), value=0.5, dtype=torch.float32))
    z.node.meta["refusal"] = "it has no kernel for add"
    builder.graph.output((z.node, indices.node))
    return builder.graph


EXAMPLE = """\
example:
  x: float32[4]
  exp: float32[4] = exp(x)  # aten.sort.default
  sort: (float32[4], int64[4]) = sort(exp, axis=0, descending=True)  # aten.sort.default
  getitem: float32[4] = sort[0]  # aten.sort.default
  getitem_1: int64[4] = sort[1]  # aten.sort.default
  full: float32[4] = full(shape=(4,), value=0.5, dtype=torch.float32)  # aten.add.Tensor
  add: float32[4] = add(getitem, full)  # aten.add.Tensor; eager: it has no kernel for add
  return (add, getitem_1)"""


def test_printed_text():
    assert format_graph(example(), "example") == EXAMPLE
    assert format_graph(example(), "example") == EXAMPLE, "the text does not depend on what was printed before"


def test_symbolic_sizes_are_printed():
    builder = GraphBuilder()
    x = builder.input("x", TensorType((s0, s1), torch.float32))
    with building(builder):
        y = prims.reshape(x, shape=(s0 * s1,))
    builder.graph.output((y.node,))
    assert "reshape: float32[s0*s1] = reshape(x, shape=(s0*s1,))" in format_graph(builder.graph)


def test_what_prints_runs():
    x = torch.randn(4)
    total, indices = runnable(example())(x)
    values, expected = torch.sort(x.exp(), descending=True)
    torch.testing.assert_close(total, values + 0.5)
    assert torch.equal(indices, expected)


def test_dynamic_graphs_run():
    builder = GraphBuilder()
    x = builder.input("x", TensorType((s0, s1), torch.float32))
    with building(builder):
        half = prims.slice(x, starts=(0, 0), limits=(s0 // 2, s1), strides=(1, 1))
        flat = prims.reshape(half, shape=((s0 // 2) * s1,))
        ramp = prims.iota(length=(s0 // 2) * s1, dtype=torch.float32)
        result = prims.add(flat, ramp)
    builder.graph.output((result.node,))
    verify(builder.graph)
    module = runnable(builder.graph)
    assert "s0 = x.shape[0]" in module.code and "s1 = x.shape[1]" in module.code
    for shape in ((4, 3), (7, 2), (1, 5)):
        value = torch.randn(shape)
        expected = value[: shape[0] // 2].reshape(-1)
        torch.testing.assert_close(module(value)[0], expected + torch.arange(expected.numel()))


def test_sizes_can_be_inputs_of_their_own():
    builder = GraphBuilder()
    size = builder.graph.placeholder("size")
    size.meta["type"] = s0
    with building(builder):
        result = prims.full(shape=(s0 + 1,), value=2.0, dtype=torch.float32)
    builder.graph.output((result.node,))
    assert torch.equal(runnable(builder.graph)(3)[0], torch.full((4,), 2.0))


def test_a_symbol_that_nothing_binds_is_named():
    builder = GraphBuilder()
    x = builder.input("x", TensorType((s0 * s1,), torch.float32))
    with building(builder):
        y = prims.reshape(x, shape=(s0, s1))
    builder.graph.output((y.node,))
    with pytest.raises(errors.DialectError, match="no graph input binds the symbols s0, s1"):
        runnable(builder.graph)


def test_attributes_are_given():
    builder = GraphBuilder()
    constant = builder.graph.create_node("get_attr", "weight")
    constant.meta["type"] = VECTOR
    builder.graph.output((constant,))
    assert "weight: float32[4] = constant weight" in format_graph(builder.graph)
    assert torch.equal(runnable(builder.graph, {"weight": torch.ones(4)})()[0], torch.ones(4))


UNARY = (prims.exp, prims.sin, prims.neg, prims.tanh, prims.abs)


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs_verify_print_and_run(seed):
    generator = random.Random(seed)
    shape = (s0, 3) if seed % 2 else (2, 3)
    builder = GraphBuilder()
    x = builder.input("x", TensorType(shape, torch.float32))
    value = torch.randn(2, 3)
    pairs = [(x, value)]
    with building(builder):
        for _ in range(20):
            (a, av), (b, bv) = generator.choice(pairs), generator.choice(pairs)
            kind = generator.randrange(4)
            if kind == 0:
                op = generator.choice(UNARY)
                made = op(a), op.reference(av)
            elif kind == 1:
                made = prims.maximum(a, b), torch.maximum(av, bv)
            elif kind == 2:
                made = prims.select(prims.lt(a, b), a, b), torch.where(av < bv, av, bv)
            else:
                rank = len(a.shape)
                back = prims.permute(prims.permute(a, dims=(1, 0)), dims=(1, 0))
                assert rank == 2
                made = back, av
            pairs.append(made)
    builder.graph.output(tuple(graph_value.node for graph_value, _ in pairs))
    verify(builder.graph)
    builder.graph.lint()
    assert len(format_graph(builder.graph).splitlines()) == len(builder.graph.nodes) + 1
    for result, (_, expected) in zip(runnable(builder.graph)(value), pairs, strict=True):
        torch.testing.assert_close(result, expected, equal_nan=True)
