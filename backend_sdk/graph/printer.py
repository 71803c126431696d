"""Prints a typed graph, one line a node: name, type, call, origin."""

from __future__ import annotations

import operator
from typing import Any

from torch import fx

from backend_sdk.contract import op_name


def format_graph(graph: fx.Graph, title: str = "graph") -> str:
    """The graph as text. Works on any stage of the pipeline."""
    lines = [f"{title}:"]
    for node in graph.nodes:
        if node.op == "output":
            lines.append(f"  return {_argument(node.args[0])}")
            continue
        type = _type(node.meta.get("type"))
        if node.op == "placeholder":
            lines.append(f"  {node.name}: {type}")
        else:
            lines.append(f"  {node.name}: {type} = {_call(node)}{_comment(node)}")
    return "\n".join(lines)


def _call(node: fx.Node) -> str:
    if node.op == "get_attr":
        return f"constant {node.target}"
    if node.target is operator.getitem:
        return f"{_argument(node.args[0])}[{node.args[1]}]"
    arguments = [_argument(argument) for argument in node.args]
    arguments += [f"{key}={_argument(value)}" for key, value in node.kwargs.items()]
    return f"{op_name(node.target)}({', '.join(arguments)})"


def _argument(value: Any) -> str:
    if isinstance(value, fx.Node):
        return value.name
    if isinstance(value, (tuple, list)):
        inner = ", ".join(map(_argument, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return repr(value)


def _type(type: Any) -> str:
    if isinstance(type, tuple):
        return f"({', '.join(map(str, type))})"
    return str(type)


def _comment(node: fx.Node) -> str:
    origin = node.meta.get("origin")
    placement = node.meta.get("refusal") or node.meta.get("host")
    parts = [origin.op if origin is not None and origin.op else "", f"eager: {placement}" if placement else ""]
    text = "; ".join(part for part in parts if part)
    return f"  # {text}" if text else ""
