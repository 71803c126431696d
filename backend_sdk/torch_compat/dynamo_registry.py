"""Gives `torch.compile` a backend's name without an installed package, as an entry point would.

torch reads the entry-point group ``torch_dynamo_backends`` when it first meets a backend name that it does
not know. Until then a name is offered to it by Python's own way to extend that search, a distribution finder,
so that registering does not import ``torch._dynamo`` (1.3 s). Once torch has loaded its table, the name goes
into the table.

Does not: know what a backend is, or build the function that the entry point names.
"""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import Distribution, DistributionFinder, EntryPoint
from typing import Any

_GROUP = "torch_dynamo_backends"
_TABLE_MODULE = "torch._dynamo.backends.registry"

_LOCK = threading.Lock()
_LINES: dict[str, str] = {}
_REGISTRATIONS: Counter[str] = Counter()


def register(name: str, value: str) -> None:
    """Let ``torch.compile(model, backend=name)`` find the object that ``value`` ("module:attribute") names.

    Registering a name again makes torch load ``value`` again.
    """
    with _LOCK:
        _LINES[name] = value
        _REGISTRATIONS[name] += 1
        if _FINDER not in sys.meta_path:
            sys.meta_path.append(_FINDER)
    # Looked up after the finder is in place: torch either has not searched yet and will find the name, or is
    # here.
    if _TABLE_MODULE in sys.modules:
        _drop_from_table(name)
        _table()._BACKENDS[name] = EntryPoint(name, value, _GROUP)


def unregister(name: str) -> None:
    """Take back `register`. Nothing happens for a name that is not registered."""
    with _LOCK:
        _LINES.pop(name, None)
    if _TABLE_MODULE in sys.modules:
        _drop_from_table(name)


def registrations(name: str) -> int:
    """How often ``name`` was registered in this process.

    Dynamo reuses compiled code for equal backend functions, so what a name stands for must be another
    function after it was registered again.
    """
    return _REGISTRATIONS[name]


def _table() -> Any:
    # Waits for another thread that is importing it.
    from torch._dynamo.backends import registry

    return registry


def _drop_from_table(name: str) -> None:
    table = _table()
    # _BACKEND_TAGS exists from torch 2.14 on.
    for entries in (table._BACKENDS, table._COMPILER_FNS, getattr(table, "_BACKEND_TAGS", {})):
        entries.pop(name, None)


class _RegisteredLines(Distribution):
    """Stands for a package that declares the registered lines."""

    def read_text(self, filename: str) -> str | None:
        if filename == "METADATA":
            return f"Metadata-Version: 2.1\nName: {_DISTRIBUTION}\nVersion: 0\n"
        if filename == "entry_points.txt":
            with _LOCK:
                return "\n".join([f"[{_GROUP}]", *(f"{name} = {value}" for name, value in _LINES.items())])
        return None

    def locate_file(self, path: str | os.PathLike[str]) -> Any:
        return pathlib.Path(path)


_DISTRIBUTION = "backend-sdk-registered-in-this-process"


class _Finder(DistributionFinder):
    """Finds the registered lines when all of ``sys.path`` is searched, and never a module."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        return None

    def find_distributions(
        self,
        context: importlib.metadata.DistributionFinder.Context = DistributionFinder.Context(),  # noqa: B008
    ) -> Iterator[Distribution]:
        if _LINES and context.name in (None, _DISTRIBUTION) and "path" not in vars(context):
            yield _RegisteredLines()


_FINDER = _Finder()
