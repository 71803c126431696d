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
from backend_sdk.contract import Region
from backend_sdk.graph.host import HostStep
from backend_sdk.graph.runnable import symbols_of
from backend_sdk.pipeline.decompose import Dialect, is_structural
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
    needed = set(dialect.graph.output_node().all_input_nodes)
    minimum = backend.capability.minimum_region
    placement = _place(nodes, needed)
    if may_demote and minimum > 1 and len(placement.native) < len(nodes):
        # Demoted calls read constants, which then make a region of their own: look again.
        for _ in range(3):
            if not _demote_small(placement, minimum):
                break
            placement = _place(nodes, needed)
    regions: dict[int, list[fx.Node]] = {}
    eager: dict[int, list[fx.Node]] = {}
    for node in nodes:
        if node in placement.native:
            if node in placement.stages:
                regions.setdefault(placement.stages[node], []).append(node)
        elif node.target is not operator.getitem:
            eager.setdefault(placement.stages[node], []).append(node)
    order = {node: index for index, node in enumerate(nodes)}
    steps: list[Step] = []
    for stage in sorted(regions.keys() | eager.keys()):
        # Stages alternate: a switch raises the stage, so a stage holds either a region or eager calls.
        if stage in regions:
            members = sorted(_with_constants(regions[stage], placement.constants), key=order.__getitem__)
            outputs = [node for node in regions[stage] if _leaves(node, stage, placement, needed)]
            steps.append(_region(members, outputs, f"region_{len(steps)}"))
        steps += [EagerStep(node) for node in eager.get(stage, ())]
    return steps


@dataclass(frozen=True)
class _Placement:
    """Who runs each call, and at which stage. A constant that only regions read has no stage: each makes its own."""

    native: set[fx.Node]
    constants: set[fx.Node]
    stages: dict[fx.Node, int]


def _place(nodes: list[fx.Node], needed: set[fx.Node]) -> _Placement:
    native = _native(nodes)
    constants = _constants(nodes, native)
    homeless = {
        node
        for node in constants
        if node not in needed and all(user in native or user.op != "call_function" for user in node.users)
    }

    def regions(stages: dict[fx.Node, int]) -> int:
        return len({stages[node] for node in native if node in stages})

    # Whoever begins, the order is right; the better one has fewer regions.
    choices = [_stages(nodes, native, homeless, first) for first in (0, 1)]
    return _Placement(native, constants, min(choices, key=regions))


def _constants(nodes: list[fx.Node], native: set[fx.Node]) -> set[fx.Node]:
    """The native nodes that no input reaches and that move data at most: cheaper made again than passed on."""
    constants: set[fx.Node] = set()
    late = {symbol for node in nodes for symbol in node.meta.get("binds", ())}
    for node in nodes:
        if node not in native or node.target is operator.getitem or not is_structural(node.target):
            continue
        made_of_constants = all(source in constants for source in node.all_input_nodes)
        if made_of_constants and not (late and late & symbols_of((node.meta["type"], node.args, node.kwargs))):
            constants.add(node)
    return constants


def _with_constants(members: list[fx.Node], constants: set[fx.Node]) -> set[fx.Node]:
    """``members`` and the constants that they read, directly or through other constants."""
    found = set(members)
    pending = list(members)
    while pending:
        for source in pending.pop().all_input_nodes:
            if source in constants and source not in found:
                found.add(source)
                pending.append(source)
    return found


def _leaves(node: fx.Node, stage: int, placement: _Placement, needed: set[fx.Node]) -> bool:
    """Whether somebody outside the node's region reads it."""
    if not isinstance(node.meta["type"], TensorType):
        return False
    users = [user for user in node.users if user.op == "call_function"]
    if node in placement.constants:
        return node in needed or any(user not in placement.native for user in users)
    return node in needed or any(placement.stages.get(user) != stage for user in users)


def _stages(nodes: Iterable[fx.Node], native: set[fx.Node], homeless: set[fx.Node], first: int) -> dict[fx.Node, int]:
    """The backend's stages have the parity of ``first``, eager's the other; an effect follows the effect before it."""
    stages: dict[fx.Node, int] = {}
    binders: dict[str, fx.Node] = {}
    last_effect = 0
    for node in nodes:
        if node in homeless:
            continue
        parity = first if node in native else 1 - first
        stage = parity
        for source in (*node.all_input_nodes, *_binders_of(node, binders)):
            known = stages.get(source)
            if known is not None:
                stage = max(stage, known if known % 2 == parity else known + 1)
        if node not in native and (has_effect(node.target) or is_random(node.target)):
            last_effect = stage = max(stage, last_effect)
        stages[node] = stage
        binders |= dict.fromkeys(node.meta.get("binds", ()), node)
    return stages


def _binders_of(node: fx.Node, binders: dict[str, fx.Node]) -> list[fx.Node]:
    """The calls whose data decide sizes that ``node`` computes with."""
    if not binders:
        return []
    used = symbols_of(node.meta["type"]) | symbols_of(node.args) | symbols_of(node.kwargs)
    if not isinstance(node.target, HostStep):
        # A region wants every symbol in the types that it reads; a host step may be what binds them.
        used |= symbols_of(tuple(source.meta["type"] for source in node.all_input_nodes))
    return [binders[symbol] for symbol in used & binders.keys()]


def is_native(node: fx.Node) -> bool:
    """Whether the backend runs a call: it was not refused, and it is no host step."""
    return "refusal" not in node.meta and "host" not in node.meta


def _native(nodes: list[fx.Node]) -> set[fx.Node]:
    """The nodes that the backend runs. Picking a result out of a tuple goes with the call that made it."""
    native: set[fx.Node] = set()
    for node in nodes:
        if node.args[0] in native if node.target is operator.getitem else is_native(node):
            native.add(node)
    return native


def _demote_small(placement: _Placement, minimum: int) -> bool:
    work: dict[int, int] = {}
    placed = [node for node in placement.native if node in placement.stages]
    for node in placed:
        if node.target is not operator.getitem and not is_structural(node.target):
            work[placement.stages[node]] = work.get(placement.stages[node], 0) + 1
    small = [node for node in placed if work.get(placement.stages[node], 0) < minimum]
    for node in small:
        if node.target is not operator.getitem:
            node.meta["refusal"] = f"its region has fewer than {minimum} computing nodes"
    return bool(small)


def _region(members: list[fx.Node], outputs: list[fx.Node], name: str) -> RegionStep:
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
        wanted |= symbols_of(source.meta["type"])
        bound |= {dim.source for dim in source.meta["type"].shape if isinstance(dim, SymExpr) and dim.is_symbol}
    for node in members:
        wanted |= symbols_of(node.meta["type"]) | symbols_of(node.args) | symbols_of(node.kwargs)
    sizes = [symbol(name) for name in sorted(wanted - bound)]
    for size in sizes:
        _input(graph, f"size_{size}", size)
    for node in members:
        copies[node] = graph.node_copy(node, copies.__getitem__)
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
