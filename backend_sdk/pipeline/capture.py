"""Capture: from a Dynamo graph to functional aten graphs, and from torch's values to the SDK's types.

Does not: choose or change ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from backend_sdk.errors import DeviceError
from backend_sdk.runtime.device import Device
from backend_sdk.spec import BoundaryType, SymExpr, TensorType
from backend_sdk.torch_compat import symbolic
from backend_sdk.torch_compat.aot import compile_ahead_of_time

INFERENCE, FORWARD, BACKWARD = "inference", "forward", "backward"


@dataclass(frozen=True)
class Captured:
    """A functional aten graph. ``visible`` leading outputs reach the user, the others are saved for backward."""

    graph: fx.GraphModule
    kind: str
    visible: int


def capture(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    compile_graph: Callable[[Captured], Callable[[list[Any]], Sequence[Any]]],
) -> Callable[..., Any]:
    """Differentiate and partition a Dynamo graph; ``compile_graph`` gets each graph that comes out."""

    def compiler(kind: str) -> Any:
        return lambda graph, example, visible: compile_graph(Captured(graph, kind, visible))

    return compile_ahead_of_time(
        module,
        inputs,
        forward=compiler(FORWARD),
        backward=compiler(BACKWARD),
        inference=compiler(INFERENCE),
    )


def dim_of(size: Any) -> Any:
    """An int as it is, a symbolic number of torch as a `SymExpr` (or as a number, when it is constant)."""
    if isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return SymExpr.of(symbolic.expression(size))
    return size


def tensor_type(value: torch.Tensor) -> TensorType:
    """The type of a fake tensor."""
    return TensorType(tuple([dim_of(size) for size in value.shape]), value.dtype)


def boundary_type(value: torch.Tensor) -> BoundaryType:
    """The type and layout of a fake tensor."""
    if value.layout != torch.strided:
        return BoundaryType(tensor_type(value))
    strides = tuple([dim_of(stride) for stride in value.stride()])
    return BoundaryType(tensor_type(value), strides)


def check_device(value: torch.Tensor, name: str, device: Device, backend: str) -> None:
    """Raise `DeviceError` when a graph input lives where the backend cannot read it."""
    if not device.accepts(value.device):
        raise DeviceError(
            f"backend {backend!r} takes tensors on {device.type!r}, but graph input {name} "
            f"({tensor_type(value)}) is on {str(value.device)!r}",
            hint=f"move model and inputs with .to({device.type!r}), or choose a backend for that device",
        )


def check_devices(module: fx.GraphModule, inputs: Sequence[Any], device: Device, backend: str) -> None:
    """`check_device` for each input of a Dynamo graph, under the name that the user's code gives it."""
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    for node, value in zip(placeholders, inputs, strict=True):
        if isinstance(value, torch.Tensor):
            # Dynamo writes L['x'] as L_x_.
            check_device(value, str(node.target).removeprefix("L_").rstrip("_"), device, backend)


def user_location(node: fx.Node) -> str | None:
    """The user's source line of a node: ``"model.py:12: x = foo(x)"``; the path of its module when all frames are
    torch's own, as in ``nn.Sequential``; None when torch recorded neither.
    """
    lines = [line.strip() for line in (node.meta.get("stack_trace") or "").strip().splitlines()]
    for position in range(len(lines) - 1, -1, -1):
        if lines[position].startswith('File "'):
            path = lines[position].split('"')[1]
            number = lines[position].split("line ")[1].split(",")[0]
            code = lines[position + 1] if position + 1 < len(lines) else ""
            return f"{path}:{number}: {code}" if code else f"{path}:{number}"
    modules = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    if modules:
        path, kind = list(modules.values())[-1]
        return f"module {path} ({getattr(kind, '__name__', kind)})"
    return None
