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
# because it moves no data in the dialect.
NATIVE, DECOMPOSED, FALLBACK, FREE = "native", "decomposed", "fallback", "free"


@dataclass
class NodeReport:
    """One node of the captured graph. ``reasons`` say why the backend refused it or what it descended from."""

    name: str
    op: str
    verdict: str
    ops: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    location: str | None = None


@dataclass
class GraphReport:
    """One compiled graph. Byte counts are of static shapes; symbolic ones count as their text."""

    backend: str
    kind: str
    nodes: list[NodeReport] = field(default_factory=list)
    regions: int = 0
    kernels: int = 0
    eager_steps: int = 0
    bytes_crossing: int | str = 0
    arena_bytes: int | str = 0
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """Number of nodes by verdict."""
        counted = Counter(node.verdict for node in self.nodes)
        return {verdict: counted.get(verdict, 0) for verdict in (NATIVE, DECOMPOSED, FALLBACK, FREE)}

    def to_json(self) -> dict[str, Any]:
        """The report as plain data."""
        return {**asdict(self), "counts": self.counts}


class _Collectors(threading.local):
    def __init__(self) -> None:
        self.stack: list[list[GraphReport]] = []


_COLLECTORS = _Collectors()
_LOCK = threading.Lock()
_FALLBACKS: Counter[tuple[str, str]] = Counter()


@contextlib.contextmanager
def collecting() -> Iterator[list[GraphReport]]:
    """Collects the report of every graph that this thread compiles within the context."""
    reports: list[GraphReport] = []
    _COLLECTORS.stack.append(reports)
    try:
        yield reports
    finally:
        _COLLECTORS.stack.remove(reports)


def current_collectors() -> list[list[GraphReport]]:
    """The collectors of this thread. A backward graph compiles in another thread and hands these on."""
    return list(_COLLECTORS.stack)


def publish(report: GraphReport, collectors: list[list[GraphReport]]) -> None:
    """Give a finished report to the collectors and count its fallbacks."""
    for reports in collectors:
        reports.append(report)
    with _LOCK:
        for node in report.nodes:
            if node.verdict == FALLBACK:
                _FALLBACKS[report.backend, node.op] += 1


def fallback_counts() -> dict[tuple[str, str], int]:
    """Fallback nodes compiled in this process, by (backend, aten op)."""
    with _LOCK:
        return dict(_FALLBACKS)
