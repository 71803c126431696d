"""What a compilation did, node by node: the data behind `explain`, the fallback log line and the tests.

Does not: print tables (the command line does).
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

# Who runs an aten node: the backend as one op, the backend as several ops, eager (in part or whole), or nobody,
# because it moves no data in the dialect. The host runs what computes nothing: it reads a number, or checks the data.
NATIVE, DECOMPOSED, FALLBACK, FREE, HOST = "native", "decomposed", "fallback", "free", "host"


@dataclass
class NodeReport:
    """One node of the captured graph. ``reasons`` say why the backend refused it or what it descended from,
    ``vendor_rules`` which rules of its plugin decomposed it, and which of ours they stand in for.

    ``bytes_crossing`` is what its eager parts read from regions and regions read from them: None when that depends
    on symbolic sizes, and then ``bytes_crossing_symbolic`` is the expression.
    """

    name: str
    op: str
    verdict: str
    ops: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    location: str | None = None
    bytes_crossing: int | None = 0
    bytes_crossing_symbolic: str | None = None
    vendor_rules: list[str] = field(default_factory=list)


@dataclass
class GraphReport:
    """One compiled graph.

    ``bytes_crossing`` is the sum over its nodes: a value that eager reads from a region counts once, at the first
    reader, and one that regions read from eager counts once for each region. Graph inputs and results do not count.
    It is None when it depends on symbolic sizes, and then ``bytes_crossing_symbolic`` is the expression.
    ``arena_bytes`` is None when the arena's size is dynamic.
    """

    backend: str
    kind: str
    nodes: list[NodeReport] = field(default_factory=list)
    regions: int = 0
    kernels: int = 0
    eager_steps: int = 0
    bytes_crossing: int | None = 0
    bytes_crossing_symbolic: str | None = None
    arena_bytes: int | None = 0
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """Number of nodes by verdict; `HOST` where there is such a node."""
        counted = Counter(node.verdict for node in self.nodes)
        shown = (NATIVE, DECOMPOSED, FALLBACK, FREE, *((HOST,) if HOST in counted else ()))
        return {verdict: counted.get(verdict, 0) for verdict in shown}

    @property
    def vendor_rules(self) -> list[str]:
        """Which rules of the backend's plugin took part, each once."""
        return list(dict.fromkeys(rule for node in self.nodes for rule in node.vendor_rules))

    @property
    def sizes(self) -> str:
        """The numbers of steps and bytes, in words."""
        crossing = self.bytes_crossing_symbolic if self.bytes_crossing is None else self.bytes_crossing
        arena = "of dynamic size" if self.arena_bytes is None else f"{self.arena_bytes} bytes"
        return f"{self.regions} regions, {self.eager_steps} eager steps, {crossing} bytes crossing, arena {arena}"

    def to_json(self) -> dict[str, Any]:
        """The report as plain data."""
        return {**asdict(self), "counts": self.counts}


@dataclass(frozen=True)
class Listeners:
    """Who wants the reports of a compilation. ``quiet``: one of them tells the user of fallbacks itself."""

    lists: tuple[list[GraphReport], ...] = ()
    quiet: bool = False


class _Current(threading.local):
    def __init__(self) -> None:
        self.listeners = Listeners()


_CURRENT = _Current()
_LOCK = threading.Lock()
_FALLBACKS: Counter[tuple[str, str]] = Counter()


@contextlib.contextmanager
def collecting(*, quiet: bool = False) -> Iterator[list[GraphReport]]:
    """Collects the report of every graph that this thread compiles within the context.

    ``quiet`` keeps the log line about fallbacks back: the caller shows them.
    """
    reports: list[GraphReport] = []
    outer = _CURRENT.listeners
    _CURRENT.listeners = Listeners((*outer.lists, reports), outer.quiet or quiet)
    try:
        yield reports
    finally:
        _CURRENT.listeners = outer


def current_listeners() -> Listeners:
    """The listeners of this thread. A backward graph compiles in another thread and hands these on."""
    return _CURRENT.listeners


def publish(report: GraphReport, listeners: Listeners) -> None:
    """Give a finished report to the listeners and count its fallbacks."""
    for reports in listeners.lists:
        reports.append(report)
    with _LOCK:
        for node in report.nodes:
            if node.verdict == FALLBACK:
                _FALLBACKS[report.backend, node.op] += 1


def fallback_counts() -> dict[tuple[str, str], int]:
    """Fallback nodes compiled in this process, by (backend, aten op)."""
    with _LOCK:
        return dict(_FALLBACKS)
