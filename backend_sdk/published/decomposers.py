"""Who needs an op: aten overloads that become it, and composites whose bodies use it.

What a rule of ours can call is read off its code; what torch's own decompositions lead to is what a proof has measured.

Does not: run a kernel of a backend's.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from backend_sdk.coverage.parts import parts as parts_of
from backend_sdk.coverage.verdict import Verdict, verdicts
from backend_sdk.decomp import all_rules
from backend_sdk.published.meaning import meaning_of
from backend_sdk.published.measured import measured
from backend_sdk.torch_compat.overloads import aten_overloads
from backend_sdk.torch_compat.taken_apart import Absence, absence


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


@dataclass(frozen=True)
class Reached:
    """How an aten overload reaches the contract, and the ops that it becomes: by our rule, or seen in a proof."""

    overload: str
    verdict: str
    how: str
    ops: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def reached(name: str) -> list[Reached]:
    """What the overload ``name``, or each of the op ``name`` (``aten.exp``), becomes; empty when torch has none.

    What writes into an argument becomes what the overload does that computes the same. What torch takes apart before a
    backend is asked is captured anew, from a few calls.
    """
    seen: Mapping[str, list[str]] = measured()["reductions"]["ops"]
    rules = rule_ops()
    found: list[Reached] = []
    parts = functools.cache(parts_of)
    for one in verdicts():
        if name not in (one.overload, one.overload.rpartition(".")[0]):
            continue
        functional = one.how.removeprefix("as ") if one.verdict == Verdict.FUNCTIONALIZED else one.overload
        ops = {*rules.get(functional, ()), *seen.get(functional, ())}
        how = one.how
        if not ops and absence(aten_overloads()[functional]) is Absence.IN_PARTS:
            held = parts(functional)
            ops = {op for of_part in held.values() for op in of_part}
            how += f"; a graph holds {', '.join(held)}" if held else ""
        found.append(Reached(one.overload, one.verdict.value, how, tuple(sorted(ops))))
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
