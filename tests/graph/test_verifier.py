"""Each way to break the dialect is found, with the node named. A pass that breaks a graph must not get further."""

from __future__ import annotations

import operator

import pytest
import torch
from torch import fx

from backend_sdk import errors, prims
from backend_sdk.graph import GraphBuilder, Origin, verify
from backend_sdk.spec import Prim, TensorType, building

VECTOR = TensorType((4,), torch.float32)


def good():
    """exp, sort with both results, add: a graph that verifies."""
    builder = GraphBuilder()
    x = builder.input("x", VECTOR)
    builder.origin = Origin("aten.exp.default", "model.py:7: x.exp()")
    with building(builder):
        y = prims.exp(x)
        values, indices = prims.sort(y, axis=0, descending=False)
        z = prims.add(values, y)
    builder.graph.output((z.node, indices.node))
    return builder.graph


def node_of(graph, name):
    return next(node for node in graph.nodes if node.name == name)


def test_a_good_graph_verifies():
    verify(good())


def call_of(graph, target, *args, type=VECTOR):
    with graph.inserting_before(graph.output_node()):
        node = graph.call_function(target, args)
    if type is not None:
        node.meta["type"] = type
    return node


def lose_type(graph):
    del node_of(graph, "exp").meta["type"]
    return "exp", "it has no type"


def wrong_dtype(graph):
    node_of(graph, "exp").meta["type"] = VECTOR.with_dtype(torch.float64)
    return "exp", r"its type is float64\[4\], the rules of exp give \[float32\[4\]\]"


def wrong_shape(graph):
    node_of(graph, "exp").meta["type"] = VECTOR.with_shape((5,))
    return "exp", r"its type is float32\[5\]"


def foreign_op(graph):
    call_of(graph, torch.ops.aten.exp.default, node_of(graph, "x"))
    return "exp_default", "aten.exp.default is not an op of the contract"


def python_function(graph):
    call_of(graph, operator.add, node_of(graph, "x"), 1)
    return "add_1", "is not an op of the contract"


def implicit_constant(graph):
    call_of(graph, prims.add, node_of(graph, "x"), 1.0)
    return "add_1", "operand 1.0 is not a value"


def too_few_operands(graph):
    call_of(graph, prims.add, node_of(graph, "x"))
    return "add_1", "add takes 2 operands, got 1"


def missing_attribute(graph):
    call_of(graph, prims.reshape, node_of(graph, "x"))
    return "reshape", "reshape takes the attributes"


def tuple_as_operand(graph):
    call_of(graph, prims.exp, node_of(graph, "sort"))
    return "exp_1", "operand sort is not a value"


def wrong_result_picked(graph):
    node_of(graph, "getitem_1").args = (node_of(graph, "sort"), 0)
    return "getitem_1", "result 0 of sort has another type"


def result_that_is_not_there(graph):
    node_of(graph, "getitem_1").args = (node_of(graph, "sort"), 2)
    return "getitem_1", "sort has no result 2"


def result_of_a_single_value(graph):
    call_of(graph, operator.getitem, node_of(graph, "x"), 0)
    return "getitem_2", "x has no result 0"


def result_of_an_untyped_node(graph):
    del node_of(graph, "x").meta["type"]
    call_of(graph, operator.getitem, node_of(graph, "x"), 0)
    return "x", "it has no type"


def use_before_definition(graph):
    node_of(graph, "x").append(node_of(graph, "add"))
    return "add", "reads .* before it is computed"


def node_of_another_graph(graph):
    node_of(graph, "exp").args = (node_of(good(), "x"),)
    return "exp", "reads x, which is not in this graph"


def attribute_type(graph):
    node_of(graph, "exp").meta["type"] = "float32"
    return "exp", "its type is float32"


def placeholder_type(graph):
    node_of(graph, "x").meta["type"] = torch.float32
    return "x", "torch.float32 is not a type"


def method_call(graph):
    with graph.inserting_before(graph.output_node()):
        graph.call_method("exp", (node_of(graph, "x"),))
    return "exp_1", "a call_method node does not belong"


def module_call(graph):
    with graph.inserting_before(graph.output_node()):
        graph.call_module("layer", (node_of(graph, "x"),))
    return "layer", "a call_module node does not belong"


def two_outputs(graph):
    graph.create_node("output", "output", ((node_of(graph, "x"),),), name="again")
    return "output", "a graph has one output node"


def no_output(graph):
    graph.erase_node(graph.output_node())
    return "", "has no output"


def number_as_output(graph):
    graph.output_node().args = ((node_of(graph, "add"), 3),)
    return "output", "returns 3, which is not a value"


def tuple_as_output(graph):
    graph.output_node().args = ((node_of(graph, "sort"),),)
    return "output", "returns sort, which is not a value"


BROKEN = [
    lose_type,
    wrong_dtype,
    wrong_shape,
    foreign_op,
    python_function,
    implicit_constant,
    too_few_operands,
    missing_attribute,
    tuple_as_operand,
    wrong_result_picked,
    result_that_is_not_there,
    result_of_a_single_value,
    result_of_an_untyped_node,
    use_before_definition,
    node_of_another_graph,
    attribute_type,
    placeholder_type,
    method_call,
    module_call,
    two_outputs,
    no_output,
    number_as_output,
    tuple_as_output,
]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda function: function.__name__)
def test_broken_graphs_are_refused(broken):
    graph = good()
    name, message = broken(graph)
    with pytest.raises(errors.DialectError, match=message) as caught:
        verify(graph)
    if name:
        assert f"node {name} breaks the prims dialect" in str(caught.value)


def test_the_users_line_is_named():
    graph = good()
    wrong_dtype(graph)
    with pytest.raises(errors.DialectError, match=r"at model\.py:7: x\.exp\(\)"):
        verify(graph)


def test_an_op_that_only_has_the_name_of_a_registered_one():
    op = prims.exp

    def exp(x):
        """Not the contract's exp."""
        return x

    stranger = Prim(
        exp,
        shape_rule=op.shape_rule,
        dtype_rule=op.dtype_rule,
        tolerance=op.tolerance,
        samples=op.samples,
        specials=op.specials,
        profiles=op.profiles,
    )
    graph = good()
    call_of(graph, stranger, node_of(graph, "x"))
    with pytest.raises(errors.DialectError, match=r"node exp_1 .* exp is not registered in the contract"):
        verify(graph)


def test_foreign_ops_that_are_accounted_for():
    graph = good()
    foreign_op(graph)
    verify(graph, foreign=lambda node: node.name == "exp_default")
    lost = call_of(graph, torch.ops.aten.exp.default, node_of(graph, "x"), type=None)
    with pytest.raises(errors.DialectError, match=rf"node {lost.name} .* it has no type"):
        verify(graph, foreign=lambda node: True)


def test_an_empty_graph():
    graph = fx.Graph()
    graph.output(())
    verify(graph)
