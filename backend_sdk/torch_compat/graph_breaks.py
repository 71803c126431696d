"""Where Dynamo gave up capturing, and why: read off its graph-break log, the one place that has the user's line.

Does not: prevent or count graph breaks otherwise.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass

import torch

_PLACE = "Graph break in user code at "
_REASON = "Graph Break Reason: "


@dataclass(frozen=True)
class GraphBreak:
    """One break: the first line of Dynamo's reason, and ``file:line`` when Dynamo told it."""

    reason: str
    location: str | None


class _Recorder(logging.Handler):
    def __init__(self, found: list[GraphBreak]) -> None:
        super().__init__(logging.DEBUG)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        place = message.partition(_PLACE)[2].partition("\n")[0].partition(" ")[0].strip()
        text = message.partition(_REASON)[2].strip().splitlines() or [message.splitlines()[0]]
        # A break inside a call says so first and the reason itself after a blank line.
        reason = next((line for line in text[1:] if line.strip()), text[0]) if text[0].endswith(":") else text[0]
        entry = GraphBreak(reason.strip(), place or None)
        if entry not in self._found:
            self._found.append(entry)


@contextlib.contextmanager
def recorded_graph_breaks() -> Iterator[list[GraphBreak]]:
    """Collects the graph breaks of everything that Dynamo captures within the context."""
    from torch._dynamo import convert_frame, symbolic_convert

    found: list[GraphBreak] = []
    recorder = _Recorder(found)
    loggers = (symbolic_convert.graph_break_log, convert_frame.graph_break_log)
    before = [(logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(recorder)
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
    try:
        yield found
    finally:
        for logger, (level, propagate) in zip(loggers, before, strict=True):
            logger.removeHandler(recorder)
            logger.setLevel(level)
            logger.propagate = propagate


def forget_compiled_code() -> None:
    """Make Dynamo capture anew what it has compiled before."""
    torch.compiler.reset()
