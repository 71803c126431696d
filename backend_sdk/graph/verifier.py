"""Verifies that a graph is in the prims dialect: known ops, operands in range, and the types its rules give.

Does not: allow for foreign ops, except those named in ``foreign``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from torch import fx

from backend_sdk.errors import DialectError
from backend_sdk.prims import CONTRACT
from backend_sdk.spec import Prim, SymExpr, TensorType


def verify(graph: fx.Graph, *, foreign: Callable[[fx.Node], bool] = lambda node: False) -> None:
    """Raise `DialectError`, naming node, op and types, at the first node that breaks the dialect.

    ``foreign(node)`` says which calls of other ops may stand in the graph (claimed aten overloads, fallbacks);
    they must be typed, but no rule of the contract says how.
    """
    outputs = [node for node in graph.nodes if node.op == "output"]
    if not outputs:
        raise DialectError(
            "the graph has no output node and so breaks the prims dialect", hint="end it with graph.output(...)"
        )
    known: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op not in ("placeholder", "get_attr", "call_function", "output"):
            raise _error(node, f"a {node.op} node does not belong into the dialect")
        if node.op == "output" and node is not outputs[-1]:
            raise _error(node, "a graph has one output node, at its end")
        for source in node.all_input_nodes:
            if source not in known:
                where = "before it is computed" if source.graph is graph else "which is not in this graph"
                raise _error(node, f"it reads {source}{', ' if source.graph is not graph else ' '}{where}")
        known.add(node)
        if node.op == "output":
            _verify_output(node)
            continue
        if "type" not in node.meta:
            raise _error(node, "it has no type")
        if node.op == "placeholder" and not isinstance(node.meta["type"], _INPUT_TYPES):
            raise _error(node, f"{node.meta['type']} is not a type")
        if node.op == "call_function":
            _verify_call(node, foreign)


# A graph input is a tensor, a size, or a number that torch has specialized.
_INPUT_TYPES = (TensorType, SymExpr, int, float, type(None))


def _verify_output(node: fx.Node) -> None:
    returned = node.args[0]
    for value in returned if isinstance(returned, (tuple, list)) else (returned,):
        # What a call outside the contract returned may be a token, which has no type.
        if not isinstance(value, fx.Node) or isinstance(value.meta.get("type"), tuple):
            raise _error(node, f"it returns {value}, which is not a value")


def _verify_call(node: fx.Node, foreign: Callable[[fx.Node], bool]) -> None:
    if node.target is operator.getitem:
        source, index = node.args
        types = source.meta["type"] if isinstance(source, fx.Node) else None
        if not isinstance(types, tuple) or not isinstance(index, int) or not 0 <= index < len(types):
            raise _error(node, f"{source} has no result {index}")
        if types[index] != node.meta["type"]:
            raise _error(node, f"result {index} of {source} has another type")
        return
    if not isinstance(node.target, Prim):
        if not foreign(node):
            raise _error(node, f"{node.target} is not an op of the contract")
        return
    if node.target.name not in CONTRACT or CONTRACT[node.target.name] is not node.target:
        raise _error(node, f"{node.target.name} is not registered in the contract")
    operands = tuple(_operand_type(node, argument) for argument in node.args)
    try:
        expected = node.target.infer(operands, dict(node.kwargs))
    except DialectError as error:
        raise _error(node, error.message, error.hint) from error
    found = node.meta["type"]
    if (found if isinstance(found, tuple) else (found,)) != expected:
        raise _error(node, f"its type is {found}, the rules of {node.target.name} give {list(expected)}")


def _operand_type(node: fx.Node, argument: Any) -> TensorType | None:
    if argument is None:
        return None
    type = argument.meta.get("type") if isinstance(argument, fx.Node) else None
    if not isinstance(type, TensorType):
        raise _error(node, f"operand {argument!r} is not a value: the dialect has no implicit constants")
    return type


def _error(node: fx.Node, reason: str, hint: str | None = None) -> DialectError:
    origin = node.meta.get("origin")
    return DialectError(
        f"node {node.name} breaks the prims dialect: {reason}",
        location=origin.location if origin is not None else None,
        hint=hint or "whatever added the node must mend it: a rule, a body, or a pass of the backend's plugin",
    )
