"""Who needs an op: aten overloads that become it, and composites whose bodies use it.

What a rule of ours can call is read off its code; what torch's own decompositions lead to is what a proof has measured.

Does not: run anything.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backend_sdk.decomp import all_rules
from backend_sdk.published.meaning import meaning_of
from backend_sdk.published.measured import measured


@dataclass(frozen=True)
class Origin:
    """An aten overload that becomes an op: one of our rules can call it (``by_rule``), or a proof saw it."""

    overload: str
    by_rule: bool
    measured: bool


def origins() -> dict[str, list[Origin]]:
    """For each op of the contract, the overloads that become it, sorted by name."""
    seen: Mapping[str, list[str]] = measured()["reductions"]["ops"]
    rules = rule_ops()
    found: dict[str, list[Origin]] = {}
    for overload in sorted(rules.keys() | seen.keys()):
        by_rule, by_proof = rules.get(overload, ()), seen.get(overload, ())
        for op in sorted({*by_rule, *by_proof}):
            found.setdefault(op, []).append(Origin(overload, op in by_rule, op in by_proof))
    return found


@functools.cache
def rule_ops() -> dict[str, tuple[str, ...]]:
    """The ops that each of our rules names, itself or through what it calls. A call may need only some of them."""
    return {str(overload): meaning_of(rule).ops for overload, rule in all_rules().items()}


def users(spec: Mapping[str, Any]) -> dict[str, list[str]]:
    """For each op of a document, the composites whose bodies name it."""
    found: dict[str, list[str]] = {}
    for op in spec["ops"]:
        for used in op["uses"]:
            found.setdefault(used, []).append(op["name"])
    return found
