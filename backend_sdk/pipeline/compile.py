"""The driver: runs the passes in order over each captured graph and returns what torch calls.

Does not: do any pass's work.
"""

from __future__ import annotations

import functools
import logging
import operator
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import fx

from backend_sdk.backend import Backend
from backend_sdk.decomp import all_rules
from backend_sdk.errors import FallbackWarning, SdkError
from backend_sdk.graph import format_graph, verify
from backend_sdk.pipeline import report as reports
from backend_sdk.pipeline.capture import Captured, capture, check_devices
from backend_sdk.pipeline.decompose import Dialect, decompose
from backend_sdk.pipeline.extra import is_placed, run_pass
from backend_sdk.pipeline.fuse import fuse
from backend_sdk.pipeline.lower import lower
from backend_sdk.pipeline.options import Options
from backend_sdk.pipeline.partition import EagerStep, RegionStep, Step, partition
from backend_sdk.pipeline.plan import make_plan
from backend_sdk.pipeline.policy import hold_to_policy
from backend_sdk.pipeline.report import FALLBACK, GraphReport, Listeners
from backend_sdk.plugins import get_backend, plugin_of
from backend_sdk.runtime.runner import Runner
from backend_sdk.spec import SymExpr, TensorType
from backend_sdk.torch_compat.dynamo_errors import through_dynamo

log = logging.getLogger("backend_sdk")


def compile_for_dynamo(
    name: str, module: fx.GraphModule, inputs: Sequence[Any], options: Mapping[str, Any] | None
) -> Callable[..., Any]:
    """What ``torch.compile(backend="sdk:NAME")`` calls with each Dynamo graph.

    Raises errors of the SDK's tree as themselves, not wrapped by Dynamo.
    """
    try:
        return compile_module(module, inputs, get_backend(name), Options.parse(options))
    except SdkError as error:
        raise through_dynamo(error) from error.__cause__


def compile_module(
    module: fx.GraphModule, inputs: Sequence[Any], backend: Backend, options: Options
) -> Callable[..., Any]:
    """Compile a Dynamo graph, with its gradient when an input needs one."""
    if isinstance(module, fx.GraphModule):
        check_devices(module, inputs, backend.device, backend.name)
    listeners = reports.current_listeners()

    def compile_graph(captured: Captured) -> Callable[[list[Any]], Sequence[Any]]:
        try:
            return compile_captured(captured, backend, options, listeners)
        except (SdkError, FallbackWarning) as error:
            raise through_dynamo(error) from error.__cause__

    return capture(module, inputs, compile_graph)


def compile_captured(
    captured: Captured,
    backend: Backend,
    options: Options,
    listeners: Listeners,
) -> Runner:
    """Run all passes over one functional aten graph."""
    stages = _Stages(captured, backend, options)
    plugin = plugin_of(backend.name)
    if plugin is not None and plugin.backend is not backend:
        plugin = None  # An object of the same name that some caller made by hand brings no plugin with it.
    passes = plugin.passes() if plugin is not None else ()
    vendor_rules = plugin.decompositions() if plugin is not None else {}
    dialect = stages.run("decompose", lambda: decompose(captured, backend, all_rules(), options, vendor_rules))
    stages.run("verify", lambda: verify(dialect.graph, foreign=is_placed))
    for extra in passes:
        if extra.stage == "decomposed":
            run_pass(extra, dialect.graph, backend, captured.kind)
            dialect.reread_outputs()
    dialect.adopt_new_nodes()
    hold_to_policy(dialect, backend, options)
    stages.dump("dialect", lambda: format_graph(dialect.graph))
    steps = stages.run("partition", lambda: partition(dialect, backend, may_demote=options.fallback != "error"))
    steps = stages.run("fuse", lambda: fuse(steps))
    for step in steps:
        for extra in passes:
            if extra.stage == "partitioned" and isinstance(step, RegionStep):
                run_pass(extra, step.region.graph, backend, captured.kind)
    for region in [step.region for step in steps if isinstance(step, RegionStep)]:
        stages.dump(region.name, functools.partial(format_graph, region.graph, region.name))
    kernels = stages.run(
        "lower",
        lambda: [lower(step.region, backend) if isinstance(step, RegionStep) else None for step in steps],
    )
    plan = stages.run("plan", lambda: make_plan(dialect, steps, kernels, backend))
    stages.dump("plan", lambda: str(plan))
    runner: Runner = stages.run("run", lambda: Runner(plan, options.check))
    stages.dump("run", lambda: runner.source)
    report = _report(dialect, steps, runner, backend, stages.seconds)
    reports.publish(report, listeners)
    _announce(report, options, quiet=listeners.quiet)
    return runner


class _Stages:
    """Times the passes and prints what they made, when asked to."""

    _count = 0

    def __init__(self, captured: Captured, backend: Backend, options: Options) -> None:
        self.seconds: dict[str, float] = {}
        self._folder = options.dump
        if self._folder is not None:
            self._folder = self._folder / f"{backend.name}-{_Stages._count:03d}-{captured.kind}"
            self._folder.mkdir(parents=True, exist_ok=True)
            _Stages._count += 1
        self.dump("aten", lambda: captured.graph.print_readable(print_output=False))

    def run(self, stage: str, work: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        result = work()
        self.seconds[stage] = time.perf_counter() - start
        return result

    def dump(self, stage: str, text: Callable[[], str]) -> None:
        if self._folder is not None:
            (self._folder / f"{stage}.txt").write_text(text() + "\n")


def _report(
    dialect: Dialect, steps: Sequence[Step], runner: Runner, backend: Backend, seconds: dict[str, float]
) -> GraphReport:
    regions = [step for step in steps if isinstance(step, RegionStep)]
    crossing = _bytes_crossing(steps)
    nodes = dialect.judged()
    for node, (_, living) in zip(nodes, dialect.work, strict=True):
        total = sum((crossing[part] for part in living if part in crossing), start=0)
        node.bytes_crossing, node.bytes_crossing_symbolic = _static_or_symbolic(total)
    static_bytes, symbolic_bytes = _static_or_symbolic(sum(crossing.values(), start=0))
    static = not runner.arena.symbols
    return GraphReport(
        backend=backend.name,
        kind=dialect.captured.kind,
        nodes=nodes,
        regions=len(regions),
        kernels=len(regions),
        eager_steps=len(steps) - len(regions),
        bytes_crossing=static_bytes,
        bytes_crossing_symbolic=symbolic_bytes,
        arena_bytes=runner.arena.nbytes(()) if static else None,
        seconds=seconds,
    )


def _bytes_crossing(steps: Sequence[Step]) -> dict[fx.Node, Any]:
    """Bytes between each call that eager runs and the regions: what it reads from them, unless an earlier call has
    read it, and what it gives, once for each region that reads it.
    """
    crossing: dict[fx.Node, Any] = {step.node: 0 for step in steps if isinstance(step, EagerStep)}
    made_by_regions = {node for step in steps if isinstance(step, RegionStep) for node in step.outputs}
    read: set[fx.Node] = set()
    for step in steps:
        if isinstance(step, EagerStep):
            for source in step.node.all_input_nodes:
                if source in made_by_regions and source not in read:
                    read.add(source)
                    crossing[step.node] = crossing[step.node] + source.meta["type"].nbytes
            continue
        for item in step.inputs:
            maker: Any = item
            while isinstance(maker, fx.Node) and maker.target is operator.getitem:
                maker = maker.args[0]
            if maker in crossing and isinstance(type := item.meta["type"], TensorType):  # type: ignore[union-attr]
                crossing[maker] = crossing[maker] + type.nbytes
    return crossing


def _static_or_symbolic(nbytes: Any) -> tuple[int | None, str | None]:
    return (None, str(nbytes)) if isinstance(nbytes, SymExpr) else (nbytes, None)


def _announce(report: GraphReport, options: Options, *, quiet: bool) -> None:
    """A fallback is never silent: one log line a graph (not when ``quiet``: a listener tells), or a warning an op."""
    fallen = [node for node in report.nodes if node.verdict == FALLBACK]
    if not fallen:
        return
    if options.fallback == "warn":
        for node in fallen:
            at = f" at {node.location}" if node.location else ""
            reason = "; ".join(node.reasons)
            warnings.warn(f"sdk:{report.backend}: {node.op} runs in eager{at}: {reason}", FallbackWarning, stacklevel=2)
        return
    if quiet:
        return
    names = sorted({node.op for node in fallen})
    shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    log.warning(
        "sdk:%s: %d of %d nodes of the %s graph run in eager (%s); backend_sdk.explain() says why",
        report.backend,
        len(fallen),
        len(report.nodes),
        report.kind,
        shown,
    )
