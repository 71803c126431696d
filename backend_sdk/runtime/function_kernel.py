"""Turns a region into a kernel when each of its ops is a plain function on tensors (the first way into the SDK).

Does not: choose the functions (the backend does).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from backend_sdk.contract import Kernel, Region, op_name
from backend_sdk.errors import KernelError, KernelOutputError, KernelRaisedError
from backend_sdk.graph.runnable import symbol_sources
from backend_sdk.runtime.device import Device
from backend_sdk.runtime.inspection import Operands
from backend_sdk.runtime.source import SourceWriter
from backend_sdk.spec import SymExpr, TensorType
from backend_sdk.spec.symbolic import concrete
from backend_sdk.torch_compat.ops import has_effect

Function = Callable[..., Any]
# Who is at fault, and the user's source line; called on failure.
Subject = Callable[[], tuple[str, str | None]]


def function_kernel(
    region: Region, functions: Mapping[fx.Node, Function], backend: str, device: Device | None = None
) -> Kernel:
    """A kernel that calls ``functions[node]`` for each call of the region, as one generated Python function.

    Each function is called like the op (operands by position, attributes by keyword) and returns the result,
    or a sequence of them, on ``device`` when one is given. It never writes into its operands.
    """

    def diagnose(inputs: Sequence[Any]) -> Sequence[torch.Tensor]:
        return _run_checked(region.graph, functions, inputs, backend, device)

    return Kernel(_generate(region.name, region.graph, functions), allocates_outputs=True, diagnose=diagnose)


def _generate(name: str, graph: fx.Graph, functions: Mapping[fx.Node, Function]) -> Function:
    writer = SourceWriter(name)
    last_use = _last_uses(graph)
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]

    def name_of(value: Any) -> str | None:
        return value.name if isinstance(value, fx.Node) else None

    writer.line("def run(inputs):", indent=0)
    if placeholders:
        writer.line(f"{', '.join(node.name for node in placeholders)}, = inputs")
    for symbol, source in symbol_sources(graph).items():
        writer.line(f"{symbol} = {source}")
    for node in graph.nodes:
        if node.op == "output":
            writer.line(f"return {writer.literal(tuple(node.args[0]), name_of)}")
        elif node.op == "call_function":
            writer.line(f"{node.name} = {_call(writer, node, functions, name_of)}")
        dead = last_use.get(node, ())
        if dead and node.op != "output":
            writer.line(f"del {', '.join(value.name for value in dead)}")
    return writer.compile("run")


def _call(
    writer: SourceWriter,
    node: fx.Node,
    functions: Mapping[fx.Node, Function],
    name_of: Callable[[Any], str | None],
) -> str:
    if node.target is operator.getitem:
        return f"{name_of(node.args[0])}[{node.args[1]}]"
    arguments = [writer.literal(argument, name_of) for argument in node.args]
    arguments += [f"{key}={writer.literal(value, name_of)}" for key, value in node.kwargs.items()]
    return f"{writer.bind(functions[node], 'kernel')}({', '.join(arguments)})"


def _last_uses(graph: fx.Graph) -> dict[fx.Node, list[fx.Node]]:
    """For each node, the values that nothing reads after it."""
    seen: set[fx.Node] = set()
    dead: dict[fx.Node, list[fx.Node]] = {}
    for node in reversed(graph.nodes):
        values = [*node.all_input_nodes, node] if node.op == "call_function" else node.all_input_nodes
        for value in values:
            if value not in seen:
                seen.add(value)
                dead.setdefault(node, []).append(value)
    return dead


def _run_checked(
    graph: fx.Graph,
    functions: Mapping[fx.Node, Function],
    inputs: Sequence[Any],
    backend: str,
    device: Device | None,
) -> Sequence[torch.Tensor]:
    """Run call by call and check what each function returns. Raises a `KernelError` that names the op."""
    values: dict[fx.Node, Any] = {}
    supplied = iter(inputs)
    for node in graph.nodes:
        if node.op == "placeholder":
            values[node] = next(supplied)
    symbols = {
        symbol: eval(source, {node.name: value for node, value in values.items()})
        for symbol, source in symbol_sources(graph).items()
    }
    for node in graph.nodes:
        if node.op == "output":
            return [values[value] for value in node.args[0]]
        if node.op != "call_function":
            continue
        if node.target is operator.getitem:
            values[node] = values[node.args[0]][node.args[1]]
            continue
        arguments = concrete(fx.node.map_arg(node.args, values.__getitem__), symbols)
        attributes = fx.node.map_arg(node.kwargs, values.__getitem__)
        attributes = {key: concrete(value, symbols) for key, value in attributes.items()}
        subject = functools.partial(_who, node, backend)
        operands = Operands(() if has_effect(node.target) else (*arguments, *attributes.values()))
        try:
            values[node] = functions[node](*arguments, **attributes)
            if device is not None and device.asynchronous:
                device.synchronize()
        except Exception as error:
            raise raised(node, backend, error) from error
        check_results(values[node], node.meta["type"], symbols, subject, device)
        check_operands(operands, subject)
    raise AssertionError("a region's graph ends in an output node")


def raised(node: fx.Node, backend: str, error: Exception) -> KernelError:
    """The error for a kernel function that raised."""
    return KernelRaisedError(
        f"{_subject(node, backend)} raised {type(error).__name__}: {error}",
        location=node_location(node),
        hint="the traceback above this error shows where in the kernel",
    )


def _subject(node: fx.Node, backend: str) -> str:
    operands = ", ".join(str(value.meta["type"]) if isinstance(value, fx.Node) else repr(value) for value in node.args)
    return f"backend {backend!r}: the kernel for {op_name(node.target)}({operands})"


def _who(node: fx.Node, backend: str) -> tuple[str, str | None]:
    return _subject(node, backend), node_location(node)


def region_ops(region: Region) -> list[str]:
    """Names of the ops that a region runs."""
    return [op_name(node.target) for node in region.graph.nodes if "call" in node.meta]


def region_location(region: Region) -> str | None:
    """The first line of the user's that a region runs."""
    return next(filter(None, map(node_location, region.graph.nodes)), None)


def region_subject(region: Region, backend: str) -> str:
    """Names the kernel of a region in a message."""
    return f"backend {backend!r}: the kernel of {region.name} ({', '.join(region_ops(region))})"


def node_location(node: fx.Node) -> str | None:
    """The user's line that a call comes from."""
    origin = node.meta.get("origin")
    return origin.location if origin is not None else None


def check_results(
    results: Any,
    expected: TensorType | tuple[TensorType, ...],
    symbols: Mapping[str, int | float],
    subject: Subject,
    device: Device | None = None,
) -> None:
    """Raise `KernelOutputError` unless ``results`` are tensors of the ``expected`` types, on ``device``.

    ``subject()`` is called on failure: who returned them, and the user's source line.
    """
    if isinstance(expected, TensorType):
        results, expected = (results,), (expected,)
    if not isinstance(results, (tuple, list)) or len(results) != len(expected):
        who, location = subject()
        raise KernelOutputError(
            f"{who} returned {_describe(results)}, expected {len(expected)} tensors",
            location=location,
            hint=f"return a tuple of {', '.join(map(str, expected))}",
        )
    for index, (result, type) in enumerate(zip(results, expected, strict=True)):
        which = f" as result {index}" if len(expected) > 1 else ""
        if not isinstance(result, torch.Tensor):
            who, location = subject()
            raise KernelOutputError(
                f"{who} returned {_describe(result)}{which}, not a tensor", location=location, hint=f"return {type}"
            )
        shape = tuple(dim.evaluate(symbols) if isinstance(dim, SymExpr) else dim for dim in type.shape)
        if tuple(result.shape) != shape or result.dtype != type.dtype:
            got = TensorType(tuple(result.shape), result.dtype)
            wanted = TensorType(shape, type.dtype)  # type: ignore[arg-type]
            who, location = subject()
            raise KernelOutputError(
                f"{who} returned {got}{which}, expected {wanted}", location=location, hint=f"return {wanted}"
            )
        if device is not None and not device.accepts(result.device):
            who, location = subject()
            raise KernelOutputError(
                f"{who} returned {type}{which} on {str(result.device)!r}, expected it on {device.type!r}",
                location=location,
                hint="return a tensor in memory of the backend's own device",
            )


def check_operands(operands: Operands, subject: Subject) -> None:
    """Raise `KernelOutputError` when a kernel wrote into what it was to read."""
    changed = operands.changed()
    if changed is not None:
        who, location = subject()
        raise KernelOutputError(
            f"{who} wrote into its operand {changed}",
            location=location,
            hint="compute into new memory: others read the operand too, and it may be the user's own tensor",
        )


def _describe(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"{len(value)} results"
    return "None" if value is None else f"a {type(value).__name__}"
