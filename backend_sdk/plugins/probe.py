"""Loads one plugin in a process of its own, so that a plugin which crashes, exits or hangs harms nobody.

Does not: judge or print (`backend_sdk.plugins.diagnosis` and the command line do).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

# Importing torch and a vendor's driver takes seconds on a slow disk; beyond this a user takes it for hung.
TIMEOUT_SECONDS = 120.0

# The child searches what this process searches, and nothing in the current folder (-P) before it knows that.
_CHILD = """\
import json, sys
request = json.load(sys.stdin)
sys.path[:] = request["path"]
from backend_sdk.plugins.probe import answer
answer(request["name"])
"""


@dataclass(frozen=True)
class LoadReport:
    """How loading the plugin of a backend went.

    ``error`` is empty when it loaded; ``traceback`` holds the whole chain of exceptions. ``backend`` names
    the class, ``backend_version`` its version, ``contributes`` counts what the other hooks gave, ``replaces``
    says which of its rules come before one of the SDK's, ``unasked`` which claims and rules `torch.compile` never asks
    (the fields of `Unasked`), ``expired`` quotes the declared limitations whose day has passed.
    """

    name: str
    error_type: str = ""
    error: str = ""
    traceback: str = ""
    backend: str = ""
    backend_version: str = ""
    contributes: dict[str, int] = field(default_factory=dict)
    replaces: list[str] = field(default_factory=list)
    unasked: list[dict[str, str]] = field(default_factory=list)
    expired: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def loads(self) -> bool:
        return not self.error

    @property
    def first_line(self) -> str:
        """The first line of the error, empty when there is none."""
        return self.error.partition("\n")[0]


def probe(names: Sequence[str], timeout: float = TIMEOUT_SECONDS) -> list[LoadReport]:
    """Load the plugin of each backend in ``names``, each in a new process. A broken one raises nothing."""
    if not names:
        return []
    with ThreadPoolExecutor(max_workers=min(len(names), os.cpu_count() or 1)) as pool:
        return list(pool.map(lambda name: _probe(name, timeout), names))


def _probe(name: str, timeout: float) -> LoadReport:
    start = time.perf_counter()
    try:
        child = subprocess.run(
            [sys.executable, "-P", "-c", _CHILD],
            input=json.dumps({"name": name, "path": sys.path}),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return LoadReport(
            name,
            "TimeoutExpired",
            f"backend {name!r}: its plugin did not finish loading in {timeout:g} seconds",
            _text(error.stderr),
            seconds=time.perf_counter() - start,
        )
    try:
        return LoadReport(**json.loads(child.stdout))
    except (ValueError, TypeError):
        return LoadReport(
            name,
            "ProcessEnded",
            f"backend {name!r}: the process that loads its plugin ended with {_ending(child.returncode)}",
            child.stderr,
            seconds=time.perf_counter() - start,
        )


def answer(name: str) -> None:
    """The child's part: load, and write a report as JSON to the standard output it was started with."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # What a plugin prints must not get into the report.
    os.dup2(2, 1)
    report = _load(name)
    json.dump(asdict(report), channel)
    channel.close()


def _load(name: str) -> LoadReport:
    start = time.perf_counter()
    try:
        from backend_sdk.plugins import load_plugin

        plugin = load_plugin(name)
        contributes = {
            "decompositions": len(plugin.decompositions()),
            "passes": len(plugin.passes()),
            "cases": len(plugin.cases()),
            "commands": int(plugin.has_commands),
        }
        replaces = plugin.replaced_rules()
        unasked = [one.to_json() for one in plugin.unasked()]
        limitations = plugin.backend.limitations
    except Exception as error:
        return LoadReport(
            name,
            type(error).__name__,
            str(error),
            "".join(traceback.format_exception(error)),
            seconds=time.perf_counter() - start,
        )
    cls: Any = type(plugin.backend)
    return LoadReport(
        name,
        backend=f"{cls.__module__}.{cls.__qualname__}",
        backend_version=plugin.backend.version,
        contributes=contributes,
        replaces=replaces,
        unasked=unasked,
        expired=[f"{one.op}: {one.explanation}" for one in limitations if one.has_expired],
        seconds=time.perf_counter() - start,
    )


def _ending(returncode: int) -> str:
    if returncode < 0:
        try:
            return f"the signal {signal.Signals(-returncode).name}"
        except ValueError:
            return f"the signal {-returncode}"
    return f"exit code {returncode}"


def _text(output: str | bytes | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""
