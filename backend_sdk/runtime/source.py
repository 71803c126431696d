"""Writes straight-line Python functions and compiles them: the form in which plans and kernels run.

Generated Python costs nothing per call beyond the calls in it, can be printed, and shows up in a traceback.

Does not: know what the lines mean.
"""

from __future__ import annotations

import itertools
import linecache
import math
from collections.abc import Callable
from typing import Any

import torch

from backend_sdk.spec import SymExpr

_COUNTER = itertools.count()


class SourceWriter:
    """Collects lines and the objects they name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: list[str] = []
        self.globals: dict[str, Any] = {"torch": torch, "math": math}
        self._names: dict[int, str] = {}

    def line(self, text: str, indent: int = 1) -> None:
        self.lines.append("    " * indent + text)

    def bind(self, value: Any, prefix: str) -> str:
        """A global name for ``value``: ``prefix`` and a number in capitals, which no graph value's name is."""
        known = self._names.get(id(value))
        if known is None:
            known = self._names[id(value)] = self.bind_alone(value, prefix)
        return known

    def bind_alone(self, value: Any, prefix: str) -> str:
        """A global name that no other `bind` of the same ``value`` gets: it can be replaced by itself."""
        name = f"{prefix}_{len(self.globals)}".upper()
        self.globals[name] = value
        return name

    def literal(self, value: Any, name_of: Callable[[Any], str | None] = lambda value: None) -> str:
        """Source of an argument; ``name_of`` names the values that are local variables."""
        local = name_of(value)
        if local is not None:
            return local
        if isinstance(value, (tuple, list)):
            inner = ", ".join(self.literal(item, name_of) for item in value)
            if isinstance(value, list):
                return f"[{inner}]"
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        if isinstance(value, SymExpr):
            return value.source
        if value is None or isinstance(value, (bool, int, str, torch.dtype)):
            return repr(value)
        if isinstance(value, float) and math.isfinite(value):
            return repr(value)
        return self.bind(value, "constant")

    @property
    def source(self) -> str:
        return "\n".join(self.lines) + "\n"

    def compile(self, function: str, replaced: dict[str, Any] | None = None) -> Callable[..., Any]:
        """Compile the lines and return the function they define, with some globals ``replaced``."""
        filename = f"<backend_sdk {self.name} #{next(_COUNTER)}>"
        source = self.source
        # Tracebacks through generated code then show the generated line.
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        namespace = {**self.globals, **(replaced or {})}
        exec(compile(source, filename, "exec"), namespace)
        compiled: Callable[..., Any] = namespace[function]
        return compiled
