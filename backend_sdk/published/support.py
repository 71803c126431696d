"""Which installed backends have an op, by asking each about the op's samples.

Does not: run a kernel (`backend-sdk doctor --backend NAME` does).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from backend_sdk import dtypes
from backend_sdk.backend import Backend
from backend_sdk.contract import Node
from backend_sdk.errors import UnknownBackendError, nearest
from backend_sdk.plugins import get_backend, known_backends
from backend_sdk.plugins.probe import probe
from backend_sdk.published.export import distinct, types_of
from backend_sdk.selfcheck import sample_dtypes, samples_of
from backend_sdk.spec import Prim

# Kinds of calls of an op in one dtype that a backend is asked about, at most.
_MOST_CALLS = 8


@dataclass(frozen=True)
class Answer:
    """What a backend says about one op. ``refusals`` holds reasons by dtype, of dtypes it takes in no call."""

    takes: tuple[str, ...] = ()
    takes_some: tuple[str, ...] = ()
    refusals: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    """One backend. ``error`` says why it does not load; ``computes`` is false for one whose results hold no values."""

    name: str
    package: str
    version: str = ""
    computes: bool = True
    error: str = ""
    answers: dict[str, Answer] = field(default_factory=dict)


def ask(ops: Iterable[Prim], names: Sequence[str] | None = None) -> list[Asked]:
    """Ask the installed backends (or those of ``names``) about ``ops``. A plugin that does not load gets an entry, too.

    Raises `UnknownBackendError` for a name that no package provides.
    """
    known = {backend.name: backend for backend in known_backends()}
    for name in names or ():
        if name not in known:
            raise UnknownBackendError(f"no installed package provides the backend {name!r}: {nearest(name, known)}")
    chosen = sorted(known) if names is None else list(dict.fromkeys(names))
    asked = []
    chosen_ops = list(ops)
    for report in probe(chosen):
        package = known[report.name].distribution
        if not report.loads:
            asked.append(Asked(report.name, package, error=report.first_line))
            continue
        backend = get_backend(report.name)
        answers = {op.name: _answer(backend, op) for op in chosen_ops}
        asked.append(Asked(backend.name, package, backend.version, backend.capability.computes, "", answers))
    return asked


def _answer(backend: Backend, op: Prim) -> Answer:
    takes, some, refusals = [], [], {}
    for dtype in sample_dtypes(op):
        answers = [backend.supports(node) for node in _nodes(op, dtype)]
        if not answers:
            continue
        name = dtypes.name(dtype)
        if all(answers):
            takes.append(name)
        elif any(answers):
            some.append(name)
        else:
            refusals[name] = answers[0].reason
    return Answer(tuple(takes), tuple(some), refusals)


def _nodes(op: Prim, dtype: Any) -> Iterator[Node]:
    """Calls of different kinds, but those that the SDK leaves out of every graph."""
    asked = 0
    for sample in distinct(op, samples_of(op, dtype)):
        types, attributes = types_of(sample), dict(sample.attributes)
        if asked < _MOST_CALLS and not (op.identity is not None and op.identity(*types, **attributes)):
            asked += 1
            yield Node(op, types, op.infer(types, attributes), attributes)
