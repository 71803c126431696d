"""Partition: cuts the graph into convex regions that the backend runs and calls that eager runs.

Every node gets a stage: the largest number of switches between backend and eager on any path to it. Backend
nodes of one stage form one region: a path that left and came back would have raised the stage, so a region is
convex by construction, and the pass is linear in nodes and edges.

Does not: lower anything.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import fx

from backend_sdk.backend import Backend
from backend_sdk.contract import Region, op_name
from backend_sdk.graph.runnable import symbols_of
from backend_sdk.pipeline.decompose import STRUCTURAL, Dialect
from backend_sdk.spec import BoundaryType, SymExpr, TensorType
from backend_sdk.spec.symbolic import symbol
from backend_sdk.torch_compat.ops import has_effect, is_random


@dataclass(frozen=True)
class RegionStep:
    """A region, with the graph nodes that feed it and those it yields."""

    region: Region
    inputs: tuple[fx.Node | SymExpr, ...]
    outputs: tuple[fx.Node, ...]


@dataclass(frozen=True)
class EagerStep:
    """One call that eager runs: a refused prim by its reference, any other op as it is."""

    node: fx.Node


Step = RegionStep | EagerStep


def partition(dialect: Dialect, backend: Backend, *, may_demote: bool) -> list[Step]:
    """Steps in an order that respects all dependencies and the order of calls with effects.

    ``may_demote`` lets a region with fewer computing nodes than the backend's ``minimum_region`` go to eager.
    """
    nodes = [node for node in dialect.graph.nodes if node.op == "call_function"]
    native = _native(nodes)
    stages = _stages(nodes, native)
    if may_demote and backend.capability.minimum_region > 1 and len(native) < len(nodes):
        if _demote_small(native, stages, backend.capability.minimum_region):
            native = _native(nodes)
            stages = _stages(nodes, native)
    last = max(stages.values(), default=0)
    regions: list[list[fx.Node]] = [[] for _ in range(last + 1)]
    eager: list[list[fx.Node]] = [[] for _ in range(last + 1)]
    for node in nodes:
        if node in native:
            regions[stages[node]].append(node)
        elif node.target is not operator.getitem:
            eager[stages[node]].append(node)
    needed = {node for node in dialect.graph.output_node().all_input_nodes}
    steps: list[Step] = []
    for stage in range(last + 1):
        # Stages alternate: a switch raises the stage, so a stage holds either a region or eager calls.
        if regions[stage]:
            steps.append(_region(regions[stage], needed, f"region_{len(steps)}"))
        steps += [EagerStep(node) for node in eager[stage]]
    return steps


def _stages(nodes: Iterable[fx.Node], native: set[fx.Node]) -> dict[fx.Node, int]:
    """Even stages are the backend's, odd ones eager's; an effect follows the effect before it."""
    stages: dict[fx.Node, int] = {}
    binders: dict[str, fx.Node] = {}
    last_effect = 1
    for node in nodes:
        parity = 0 if node in native else 1
        stage = parity
        for source in (*node.all_input_nodes, *_binders_of(node, binders)):
            known = stages.get(source)
            if known is not None:
                stage = max(stage, known if known % 2 == parity else known + 1)
        if parity == 1 and (has_effect(node.target) or is_random(node.target)):
            last_effect = stage = max(stage, last_effect)
        stages[node] = stage
        binders |= dict.fromkeys(node.meta.get("binds", ()), node)
    return stages


def _binders_of(node: fx.Node, binders: dict[str, fx.Node]) -> list[fx.Node]:
    """The calls whose data decide sizes that ``node`` computes with."""
    if not binders:
        return []
    used = symbols_of(node.meta["type"]) | symbols_of(node.args) | symbols_of(node.kwargs)
    return [binders[symbol] for symbol in used & binders.keys()]


def _native(nodes: list[fx.Node]) -> set[fx.Node]:
    """The nodes that the backend runs. Picking a result out of a tuple goes with the call that made it."""
    native: set[fx.Node] = set()
    for node in nodes:
        if node.args[0] in native if node.target is operator.getitem else "refusal" not in node.meta:
            native.add(node)
    return native


def _demote_small(native: set[fx.Node], stages: dict[fx.Node, int], minimum: int) -> bool:
    work: dict[int, int] = {}
    for node in native:
        if node.target is not operator.getitem and op_name(node.target) not in STRUCTURAL:
            work[stages[node]] = work.get(stages[node], 0) + 1
    small = [node for node in native if work.get(stages[node], 0) < minimum]
    for node in small:
        if node.target is not operator.getitem:
            node.meta["refusal"] = f"its region has fewer than {minimum} computing nodes"
    return bool(small)


def _region(members: list[fx.Node], needed: set[fx.Node], name: str) -> RegionStep:
    inside = set(members)
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    sources: list[fx.Node] = []
    for node in members:
        for source in node.all_input_nodes:
            if source not in inside and source not in copies:
                copies[source] = _input(graph, source.name, source.meta["type"])
                sources.append(source)
    wanted: set[str] = set()
    bound: set[str] = set()
    for source in sources:
        bound |= {dim.source for dim in source.meta["type"].shape if isinstance(dim, SymExpr) and dim.is_symbol}
    for node in members:
        wanted |= symbols_of(node.meta["type"]) | symbols_of(node.args) | symbols_of(node.kwargs)
    sizes = [symbol(name) for name in sorted(wanted - bound)]
    for size in sizes:
        _input(graph, f"size_{size}", size)
    for node in members:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    outputs = [
        node
        for node in members
        if isinstance(node.meta["type"], TensorType)
        and (node in needed or any(user not in inside and user.op == "call_function" for user in node.users))
    ]
    graph.output(tuple(copies[node] for node in outputs))
    region = Region(
        name,
        graph,
        (*(source.meta.get("boundary") or BoundaryType(source.meta["type"]) for source in sources), *sizes),
        tuple(BoundaryType(node.meta["type"]) for node in outputs),
    )
    return RegionStep(region, (*sources, *sizes), tuple(outputs))


def _input(graph: fx.Graph, name: str, type: Any) -> fx.Node:
    node = graph.placeholder(name)
    node.meta["type"] = type
    return node
