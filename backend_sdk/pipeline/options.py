"""The options of one compilation: ``torch.compile(model, backend="sdk:acme", options={...})``.

Does not: hold anything that belongs to a backend.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from backend_sdk.errors import OptionError, nearest

_CHOICES = {
    "fallback": ("allow", "warn", "error"),
    "random": ("counter", "eager"),
    "check": ("first", "always", "never"),
}


@dataclass(frozen=True)
class Options:
    """Validated options.

    - ``fallback``: what happens to an op that the backend refuses. ``allow`` runs it in eager and logs one line a
      graph, ``warn`` warns for each, ``error`` raises `UnsupportedOpError`.
    - ``random``: ``counter`` draws random numbers by the contract's counter-based generator, seeded by
      ``torch.manual_seed``; ``eager`` runs random ops in eager and gives eager's exact numbers.
    - ``check``: when the result of every kernel function is checked op by op: on the ``first`` call of a graph,
      ``always``, or ``never``. Region results are always checked.
    - ``dump``: a directory into which each stage of each graph is printed.
    """

    fallback: str = "allow"
    random: str = "counter"
    check: str = "first"
    dump: Path | None = None

    @staticmethod
    def parse(given: Mapping[str, Any] | None) -> Options:
        """Options from the user's dict. Raises `OptionError` for an unknown name or value."""
        known = {field.name for field in fields(Options)}
        if given is not None and not isinstance(given, Mapping):
            raise OptionError(f"options are a dict, not {given!r}", hint="options={'fallback': 'error'}")
        values: dict[str, Any] = {}
        for name, value in (given or {}).items():
            if name not in known:
                raise OptionError(
                    f"unknown option {name!r}: {nearest(str(name), known)}", hint="docs/model-users.md describes each"
                )
            values[name] = _checked(name, value)
        return Options(**values)


def _checked(name: str, value: Any) -> Any:
    choices = _CHOICES.get(name)
    if choices is not None:
        if value not in choices:
            raise OptionError(
                f"option {name!r} cannot be {value!r}", hint=f"choose one of {', '.join(map(repr, choices))}"
            )
        return value
    if value is None or isinstance(value, (str, Path)):
        return None if value is None else Path(value)
    raise OptionError(f"option {name!r} takes a path, not {value!r}", hint=f"options={{{name!r}: 'some/folder'}}")
