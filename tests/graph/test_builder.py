"""The graph that is built is the graph that was meant: equal calls merge, different constants never do."""

from __future__ import annotations

import math

import pytest
import torch

from backend_sdk import errors, prims
from backend_sdk.graph import GraphBuilder, Origin, runnable, verify
from backend_sdk.graph.builder import claim_prims_only
from backend_sdk.spec import Composite, TensorType, building
from backend_sdk.spec.symbolic import symbol

VECTOR = TensorType((4,), torch.float32)


def test_equal_calls_are_one_node():
    builder = GraphBuilder()
    x = builder.input("x", VECTOR)
    with building(builder):
        assert prims.exp(x).node is prims.exp(x).node
        assert prims.exp(prims.exp(x)).node is not prims.exp(x).node
        assert prims.add(x, prims.exp(x)).node is not prims.add(prims.exp(x), x).node
        one, other = prims.sort(x, axis=0, descending=False), prims.sort(x, axis=0, descending=False)
        assert one[0].node is other[0].node and one[1].node is other[1].node
        assert prims.sort(x, axis=0, descending=True)[0].node is not one[0].node


CONSTANTS = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, 1.5]


def test_constants_that_compare_equal_stay_apart():
    builder = GraphBuilder()
    with building(builder):
        nodes = [prims.full(shape=(), value=value, dtype=torch.float32).node for value in CONSTANTS]
        nodes += [prims.full(shape=(), value=value, dtype=torch.int64).node for value in (0, 1)]
        nodes += [prims.full(shape=(), value=value, dtype=torch.bool).node for value in (False, True)]
        nodes += [prims.full(shape=(1,), value=1.0, dtype=torch.float32).node]
        nodes += [prims.full(shape=(), value=1.0, dtype=torch.float64).node]
    assert len(set(nodes)) == len(nodes)
    builder.graph.output(tuple(nodes))
    verify(builder.graph)
    results = runnable(builder.graph)()
    for result, value in zip(results, CONSTANTS, strict=False):
        same = result.item() == value or (math.isnan(value) and math.isnan(result.item()))
        assert same and math.copysign(1, result.item()) == math.copysign(1, value)
    assert [result.dtype for result in results[7:]] == [torch.int64] * 2 + [torch.bool] * 2 + [
        torch.float32,
        torch.float64,
    ]


def test_ones_of_three_kinds_stay_apart():
    """1, 1.0 and True are equal and hash alike in Python; as constants they are three."""
    builder = GraphBuilder()
    with building(builder):
        nodes = {prims.full(shape=(), value=value, dtype=torch.float32).node for value in (1, 1.0, True)}
    assert len(nodes) == 3


def test_symbolic_sizes_merge_by_structure():
    builder = GraphBuilder()
    s0, s1 = symbol("s0"), symbol("s1")
    with building(builder):

        def full(*shape):
            return prims.full(shape=shape, value=0.0, dtype=torch.float32).node

        assert full(s0, 2 * s1) is full(s0, s1 + s1)
        assert full(s0) is not full(s1)


def test_a_composite_is_kept_or_replaced_by_its_body():
    for claims, kept in ((lambda *_: True, True), (claim_prims_only, False)):
        builder = GraphBuilder(claims)
        x = builder.input("x", VECTOR)
        with building(builder):
            result = prims.sigmoid(x)
        targets = [node.target for node in builder.graph.nodes if node.op == "call_function"]
        assert (targets == [prims.sigmoid]) == kept and len(targets) >= 1
        builder.graph.output((result.node,))
        verify(builder.graph)
        value = torch.randn(4)
        torch.testing.assert_close(runnable(builder.graph)(value)[0], torch.sigmoid(value))


def test_identity_ops_vanish():
    builder = GraphBuilder()
    x = builder.input("x", VECTOR)
    with building(builder):
        assert prims.reshape(x, shape=(4,)) is x
        assert prims.convert(x, dtype=torch.float32) is x


def test_inputs_come_before_calls_even_when_added_late():
    builder = GraphBuilder()
    x = builder.input("x", VECTOR)
    with building(builder):
        y = prims.exp(x)
    late = builder.input("late", VECTOR)
    with building(builder):
        z = prims.add(y, late)
    builder.graph.output((z.node,))
    builder.graph.lint()
    assert [node.op for node in builder.graph.nodes] == ["placeholder"] * 2 + ["call_function"] * 2 + ["output"]
    torch.testing.assert_close(runnable(builder.graph)(torch.zeros(4), torch.ones(4))[0], torch.full((4,), 2.0))


def test_nodes_know_where_they_come_from():
    builder = GraphBuilder()
    x = builder.input("x", VECTOR)
    builder.origin = Origin("aten.gelu.default", "model.py:3: gelu(x)")
    with building(builder):
        prims.sort(prims.exp(x), axis=0, descending=False)
    calls = [node for node in builder.graph.nodes if node.op == "call_function"]
    assert len(calls) == 4 and all(node.meta["origin"] == builder.origin for node in calls)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: prims.exp(1.0), "operand 1.0 is a float, not a value of the graph"),
        (lambda x: prims.add(x), "add takes 2 operands, got 1"),
        (lambda x: prims.reshape(x), "reshape takes the attributes"),
        (lambda x: prims.reshape(x, shape=(5,)), "reshape"),
        (
            lambda x: prims.add(x, prims.full(shape=(), value=1.0, dtype=torch.float32)),
            r"add\(float32\[4\], float32\[\]\)",
        ),
        (lambda x: prims.add(x, prims.convert(x, dtype=torch.float64)), "add"),
        (lambda x: prims.bitwise_and(x, x), "bitwise_and"),
        (lambda x: x + x if x else x, "no truth value"),
    ],
)
def test_calls_that_break_the_rules(call, message):
    builder = GraphBuilder()
    x = builder.input("x", VECTOR)
    with building(builder), pytest.raises(errors.DialectError, match=message):
        call(x)


def test_a_body_that_breaks_its_promise_is_named():
    good = prims.sigmoid

    def liar(x):
        """Not what its rules say."""
        return prims.convert(x, dtype=torch.float64)

    bad = Composite(
        liar,
        shape_rule=good.shape_rule,
        dtype_rule=good.dtype_rule,
        tolerance=good.tolerance,
        samples=good.samples,
        specials=good.specials,
        profiles=good.profiles,
    )
    builder = GraphBuilder(claim_prims_only)
    x = builder.input("x", VECTOR)
    with building(builder), pytest.raises(errors.DialectError) as caught:
        bad(x)
    assert "the body of composite liar gives [float64[4]], its rules say [float32[4]]" in str(caught.value)


def test_results_of_nested_tuples():
    builder = GraphBuilder()
    x = builder.input("x", VECTOR)
    node = builder.call_foreign(torch.sort, (x,), {})
    first, (second, third), nothing = builder.typed(node, (VECTOR, (VECTOR, VECTOR), None))
    assert nothing is None and first.type == second.type == third.type == VECTOR
    assert third.node.args[0].args == (node, 1) and third.node.args[1] == 1
