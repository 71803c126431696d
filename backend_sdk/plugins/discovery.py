"""What installed packages declare: entry points, read once, nothing imported.

A package that provides the backend ``acme`` declares two lines:

    [project.entry-points.backend_sdk]
    acme = "acme.sdk"

    [project.entry-points.torch_dynamo_backends]
    "sdk:acme" = "backend_sdk.dynamo:acme"

Does not: load anything that an entry point names (`backend_sdk.plugins.manager`).
"""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass

BACKEND_GROUP = "backend_sdk"
DYNAMO_GROUP = "torch_dynamo_backends"
DYNAMO_PREFIX = "sdk:"


@dataclass(frozen=True)
class Declaration:
    """One entry point: its name, the object it names, and the distribution that declares it."""

    name: str
    value: str
    distribution: str
    version: str
    entry_point: importlib.metadata.EntryPoint

    @property
    def module(self) -> str:
        """The module part of ``value``."""
        return self.value.partition(":")[0].strip()

    @property
    def package(self) -> str:
        """``"acme-backend 1.0"``, for messages."""
        return f"{self.distribution} {self.version}"

    @property
    def target(self) -> str:
        """``value`` without the blanks that the entry-point format allows."""
        return re.sub(r"\s+", "", self.value)


@dataclass(frozen=True)
class Installed:
    """Declarations by name: of backends, and of ``sdk:`` lines for `torch.compile`.

    More than one declaration under a name means that different distributions claim it.
    """

    backends: dict[str, tuple[Declaration, ...]]
    dynamo_lines: dict[str, tuple[Declaration, ...]]


def dynamo_line(name: str) -> tuple[str, str]:
    """Name and value of the entry point by which `torch.compile` finds the backend ``name``."""
    return DYNAMO_PREFIX + name, f"backend_sdk.dynamo:{name}"


_LOCK = threading.Lock()
_CACHE: list[Installed] = []


def installed() -> Installed:
    """What is declared on ``sys.path``. Reads it once, so a process has one view of it."""
    with _LOCK:
        if not _CACHE:
            found = importlib.metadata.entry_points()
            lines = (point for point in found.select(group=DYNAMO_GROUP) if point.name.startswith(DYNAMO_PREFIX))
            _CACHE.append(Installed(_by_name(found.select(group=BACKEND_GROUP)), _by_name(lines)))
        return _CACHE[0]


def forget() -> None:
    """Read again at the next question: ``sys.path`` or what is installed has changed."""
    importlib.invalidate_caches()
    with _LOCK:
        _CACHE.clear()


def _by_name(points: Iterable[importlib.metadata.EntryPoint]) -> dict[str, tuple[Declaration, ...]]:
    found: dict[str, dict[str, Declaration]] = {}
    for point in points:
        distribution = point.dist
        name = distribution.name if distribution is not None else "(unknown distribution)"
        version = distribution.version if distribution is not None else ""
        # An editable install beside its own egg-info is one distribution seen twice. The first one is
        # imported.
        found.setdefault(point.name, {}).setdefault(
            _normalized(name), Declaration(point.name, point.value, name, version, point)
        )
    return {name: tuple(declarations.values()) for name, declarations in found.items()}


def _normalized(distribution: str) -> str:
    """Distribution names that are equal by the packaging specification ("Names and normalization")."""
    return re.sub(r"[-_.]+", "-", distribution).lower()
