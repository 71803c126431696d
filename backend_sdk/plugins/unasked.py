"""Which claims and rules of a plugin are never asked under `torch.compile`, why, and what to claim instead.

Does not: run a graph, or know what torch makes of an op (`backend_sdk.coverage.parts` does).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from backend_sdk.backend import Backend


@dataclass(frozen=True)
class Unasked:
    """A claim or rule that no graph of `torch.compile` leads to. ``what`` says which, ``instead`` what to claim."""

    overload: str
    what: str
    why: str
    instead: str

    @property
    def sentence(self) -> str:
        """The whole of it but for what to do."""
        return f"{self.what} is never asked under torch.compile: {self.overload} {self.why}"

    def to_json(self) -> dict[str, str]:
        """As plain data."""
        return asdict(self)


def unasked_claims(backend: Backend) -> list[Unasked]:
    """The claims of aten overloads, by marked functions or in ``overloads``, that are never asked."""
    named = dict.fromkeys([*backend.implementations, *backend.overloads])
    return _unasked(named, lambda op: f"the claim of {op}")


def unasked_rules(rules: Mapping[Any, Callable[..., Any]]) -> list[Unasked]:
    """The decompositions that are never asked."""
    from backend_sdk.decomp.registry import rule_name

    return _unasked(rules, lambda op: f"the rule {rule_name(rules[op])} for {op}")


def _unasked(ops: Iterable[Any], what: Callable[[Any], str]) -> list[Unasked]:
    from backend_sdk.torch_compat.ops import is_overload
    from backend_sdk.torch_compat.taken_apart import absence

    found = []
    for op in ops:
        why = absence(op) if is_overload(op) else None
        if why is not None:
            found.append(Unasked(str(op), what(op), why.value, _instead(op)))
    return found


def _instead(op: Any) -> str:
    """The overload that a graph holds in place of one that writes, and the contract's op of that name."""
    from backend_sdk.prims import CONTRACT
    from backend_sdk.torch_compat.overloads import aten_overloads, base_name
    from backend_sdk.torch_compat.taken_apart import absence, functional_name

    functional = aten_overloads().get(functional_name(op))
    parts = []
    if functional is not None and absence(functional) is None:
        parts.append(f"torch.ops.{functional}")
    base = base_name(functional if functional is not None else op)
    if base in CONTRACT:
        parts.insert(0, f"prims.{base} (a {CONTRACT[base].kind} of the contract)")
    return " or ".join(parts)
