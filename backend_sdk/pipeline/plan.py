"""Plan: names every value, decides who allocates it, and lays the intermediates out in an arena.

Does not: run (``backend_sdk.runtime.runner`` does).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from backend_sdk.backend import Backend
from backend_sdk.contract import Kernel
from backend_sdk.graph.runnable import bound_symbols, symbols_of
from backend_sdk.pipeline.capture import boundary_type, dim_of
from backend_sdk.pipeline.decompose import Dialect
from backend_sdk.pipeline.partition import EagerStep, RegionStep, Step
from backend_sdk.runtime.eager import EagerCall
from backend_sdk.runtime.plan import Buffer, EagerAction, KernelAction, Output, Plan, View
from backend_sdk.spec import SymExpr
from backend_sdk.torch_compat.ops import has_effect
from backend_sdk.torch_compat.storage import memory_key


def make_plan(dialect: Dialect, steps: Sequence[Step], kernels: Sequence[Kernel | None], backend: Backend) -> Plan:
    """The plan of ``steps``; ``kernels[i]`` is the kernel of step i when it is a region."""
    graph = dialect.graph
    constants = {node.name: dialect.attributes[str(node.target)] for node in graph.nodes if node.op == "get_attr"}
    outputs = _outputs(dialect)
    bases = {output.view.base for output in outputs if output.view is not None}
    returned = {item for item in dialect.outputs if isinstance(item, fx.Node)}
    returned |= {node for node in graph.nodes if node.name in bases}
    last_read = _last_reads(steps, kernels, returned)
    placeholders = [node for node in graph.nodes if node.op == "placeholder" and node is not dialect.key]
    known = bound_symbols((node.name, node.meta["type"]) for node in placeholders).keys()
    actions: list[KernelAction | EagerAction] = []
    buffers: list[Buffer] = []
    picks: dict[fx.Node, list[fx.Node]] = {}
    for step in steps:
        if isinstance(step, EagerStep):
            picks[step.node] = _picks(step.node)
    for index, (step, kernel) in enumerate(zip(steps, kernels, strict=True)):
        if isinstance(step, RegionStep):
            assert kernel is not None
            if not kernel.allocates_outputs:
                for node in step.outputs:
                    # The arena is laid out when a call enters: sizes that its data decide come later.
                    arena = node not in returned and symbols_of(node.meta["type"]) <= known
                    buffers.append(Buffer(node.name, node.meta["type"], index, last_read.get(node, index), arena))
            actions.append(
                KernelAction(
                    kernel,
                    step.region,
                    tuple(_name(item) for item in step.inputs),
                    tuple(node.name for node in step.outputs),
                )
            )
        else:
            actions.append(_eager_action(step, picks[step.node], backend))
    return Plan(
        name=f"{backend.name} {dialect.captured.kind}",
        backend=backend.name,
        device=backend.device,
        inputs=tuple((node.name, node.meta["type"]) for node in placeholders),
        key=dialect.key.name if dialect.key is not None else None,
        constants=constants,
        actions=tuple(actions),
        buffers=tuple(buffers),
        outputs=outputs,
        frees=_frees(steps, last_read, returned),
        computes=backend.capability.computes,
    )


def _name(item: fx.Node | SymExpr) -> str:
    return item.source if isinstance(item, SymExpr) else item.name


def _reads(step: Step) -> list[fx.Node]:
    if isinstance(step, RegionStep):
        return [item for item in step.inputs if isinstance(item, fx.Node)]
    return step.node.all_input_nodes


def _last_reads(steps: Sequence[Step], kernels: Sequence[Kernel | None], returned: set[fx.Node]) -> dict[fx.Node, int]:
    """The last step that reads each value. A value that a later alias may show lives as long as the alias:
    what eager, or a kernel that allocates, returns can be a view of what it was given."""
    last: dict[fx.Node, int] = {}
    for index, step in enumerate(steps):
        for node in _reads(step):
            last[node] = index
    for index in range(len(steps) - 1, -1, -1):
        step, kernel = steps[index], kernels[index]
        if kernel is not None and not kernel.allocates_outputs:
            continue
        if isinstance(step, RegionStep):
            results: Sequence[fx.Node] = step.outputs
        else:
            results = [step.node, *_picks(step.node)]
        reach = max((last.get(node, index) for node in results), default=index)
        if any(node in returned for node in results):
            reach = len(steps)
        for node in _reads(step):
            last[node] = max(last[node], reach)
    return last


def _picks(node: Any) -> list[Any]:
    """The nodes that pick results out of a call's tuple, or out of a tuple in it, in order."""
    picks = [user for user in node.users if user.target is operator.getitem]
    for pick in picks:
        picks += [user for user in pick.users if user.target is operator.getitem]
    return picks


def _frees(steps: Sequence[Step], last_read: dict[fx.Node, int], returned: set[fx.Node]) -> tuple[tuple[str, ...], ...]:
    """Names that each step is the last to need."""
    frees: list[list[str]] = [[] for _ in steps]
    for node, index in last_read.items():
        if node not in returned and index < len(steps) and node.op != "get_attr":
            frees[index].append(node.name)
    return tuple(tuple(names) for names in frees)


def _eager_action(step: EagerStep, picks: list[Any], backend: Backend) -> EagerAction:
    node = step.node
    call = EagerCall(
        node.target,
        node.args,
        node.kwargs,
        node.meta.get("layouts"),
        backend.name,
        node.meta["origin"],
        raises_as_eager="host" in node.meta,
    )
    return EagerAction(
        call,
        result=node.name,
        type=node.meta["type"],
        picks=tuple((pick.name, pick.args[0].name, int(pick.args[1]), pick.meta["type"]) for pick in picks),
        has_effect=has_effect(node.target),
    )


def _outputs(dialect: Dialect) -> tuple[Output, ...]:
    """What the plan returns. Results share memory with inputs and with each other where eager's do, and nowhere else:
    the user may change one in place."""
    captured: Any = dialect.captured.graph.graph.output_node().args[0]
    visible = dialect.captured.visible
    views = _views(dialect, captured[:visible])
    owners: dict[Any, Any] = {}
    outputs = []
    for index, (item, origin) in enumerate(zip(dialect.outputs, captured, strict=True)):
        if not isinstance(item, fx.Node):
            outputs.append(Output(None, item, None, index < visible, False))
            continue
        value = origin.meta.get("val")
        layout = boundary_type(value).strides if isinstance(value, torch.Tensor) else None
        is_input = origin.op == "placeholder"
        owner, owner_visible = owners.setdefault(item, (origin, index < visible))
        # A saved value that the user's change of a result would reach is copied as well.
        shared = (owner is not origin and owner_visible) or (item.op == "placeholder" and not is_input)
        constant = item.op == "get_attr" and index < visible
        outputs.append(Output(item.name, None, layout, index < visible, shared or constant, is_input, views.get(index)))
    return tuple(outputs)


def _views(dialect: Dialect, results: Sequence[Any]) -> dict[int, View]:
    """The results that eager shows as views, by their index: of an input, or of memory that several of them share."""
    captured = dialect.captured.graph.graph.find_nodes(op="placeholder")
    own = [node for node in dialect.graph.nodes if node.op == "placeholder" and node is not dialect.key]
    inputs: dict[Any, tuple[str, Any]] = {}
    for node, mine in zip(captured, own, strict=True):
        given = node.meta.get("val")
        if isinstance(given, torch.Tensor) and memory_key(given) is not None:
            inputs.setdefault(memory_key(given), (mine.name, given))
    groups: dict[Any, list[int]] = {}
    views: dict[int, View] = {}
    for index, node in enumerate(results):
        value: Any = node.meta.get("val") if isinstance(node, fx.Node) and node.op != "placeholder" else None
        key = memory_key(value) if isinstance(value, torch.Tensor) else None
        if key in inputs:
            base, shown = inputs[key]
            views[index] = _view(base, 0, value, dim_of(value.storage_offset() - shown.storage_offset()))
        elif key is not None and not any(results[other] is node for other in groups.get(key, ())):
            groups.setdefault(key, []).append(index)
    for number, indices in enumerate(groups.values()):
        for index in indices if len(indices) > 1 else ():
            value = results[index].meta["val"]
            views[index] = _view(None, number, value, dim_of(value.storage_offset()))
    return views


def _view(base: str | None, group: int, value: Any, offset: Any) -> View:
    shape, strides = (tuple(map(dim_of, numbers)) for numbers in (value.shape, value.stride()))
    return View(base, group, shape, strides, offset)
