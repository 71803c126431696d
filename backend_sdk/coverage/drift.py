"""What changed between a torch release and the installed one, and whether the contract covers it.

Does not: read or write baselines (`baseline` does), or run anything: a proof by execution is `prove`'s.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from difflib import SequenceMatcher
from enum import StrEnum
from typing import Any

from backend_sdk.coverage.baseline import Baseline, Fact, capture, committed
from backend_sdk.coverage.verdict import Covered, Verdict, verdicts
from backend_sdk.decomp.registry import Rule, all_rules, rule_name, signature_fault, unnamed_arguments
from backend_sdk.torch_compat.ops import AbsentOverload, schema_arguments
from backend_sdk.torch_compat.overloads import aten_overloads


class Kind(StrEnum):
    """What may change."""

    NEW = "new overload"
    REMOVED = "removed overload"
    CHANGED = "changed overload"
    DECOMPOSITION = "changed decomposition"
    LEAF = "new leaf op"
    NO_VERDICT = "no verdict"
    RULE = "rule without an overload"
    NEW_OP_INFO = "new OpInfo"
    REMOVED_OP_INFO = "removed OpInfo"


@dataclass(frozen=True)
class Change:
    """One thing that changed. ``what`` shows it, ``why`` says by what the contract covers it, or what it lacks."""

    kind: Kind
    name: str
    what: str
    covered: bool
    why: str


@dataclass
class Drift:
    """All changes from one release to another. ``skipped`` says what could not be compared, and why."""

    before: str
    after: str
    changes: list[Change] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    @property
    def uncovered(self) -> list[Change]:
        """What the contract has to say something about."""
        return [change for change in self.changes if not change.covered]

    @property
    def counts(self) -> dict[str, int]:
        """Number of changes by kind."""
        return {kind.value: sum(change.kind == kind for change in self.changes) for kind in Kind}

    def to_json(self) -> dict[str, Any]:
        """The changes as plain data."""
        return {
            "from": self.before,
            "to": self.after,
            "counts": self.counts,
            "uncovered": len(self.uncovered),
            "changes": [asdict(change) for change in self.changes],
            "skipped": self.skipped,
        }


def drift_since(before: Baseline, op_infos: Callable[[], list[str] | None]) -> Drift:
    """The changes from a release to the installed torch, the names of whose OpInfos ``op_infos()`` gives."""
    supported = {version: Baseline.read(path).overloads for version, path in committed().items()}
    covered = verdicts()
    return compare(before, capture(covered, op_infos, before), covered, all_rules(), supported)


def compare(
    before: Baseline,
    after: Baseline,
    covered: Iterable[Covered],
    rules: Mapping[Any, Rule],
    supported: Mapping[str, Iterable[str]],
) -> Drift:
    """The changes from ``before`` to ``after``, the installed torch.

    ``covered`` and ``rules`` are our verdicts and rules under the installed torch; ``supported`` are the names of the
    overloads of each supported release.
    """
    comparison = _Comparison(before, after, {one.overload: one for one in covered}, rules)
    drift = Drift(before.torch, after.torch)
    drift.changes += comparison.overloads()
    drift.changes += comparison.decompositions()
    drift.changes += comparison.rules_of_no_release(supported)
    if before.op_infos is not None and after.op_infos is not None:
        drift.changes += comparison.op_infos(before.op_infos, after.op_infos)
    else:
        drift.skipped.append("OpInfos: torch's catalogue cannot be imported; pip install 'backend-sdk[test]'")
    unknown = comparison.unseen()
    if unknown:
        drift.skipped.append(
            f"what torch's decomposition runs, for {len(unknown)} overloads of which no call could be made from the "
            f"schema: {', '.join(unknown)}"
        )
    return drift


class _Comparison:
    def __init__(
        self, before: Baseline, after: Baseline, covered: Mapping[str, Covered], rules: Mapping[Any, Rule]
    ) -> None:
        self._before = before.overloads
        self._after = after.overloads
        self._covered = covered
        self._release = before.torch
        self._rules = {str(overload): rule for overload, rule in rules.items()}
        self._absent = [str(overload) for overload in rules if isinstance(overload, AbsentOverload)]

    # ---- overloads

    def overloads(self) -> Iterable[Change]:
        """New, removed and changed overloads, and old ones without a verdict."""
        for name in sorted(self._after.keys() | self._before.keys()):
            before, after = self._before.get(name), self._after.get(name)
            if after is None:
                assert before is not None
                yield self._removed(name, before)
            elif before is None:
                yield self._judged(Kind.NEW, name, after.schema)
            elif shown := _difference(before, after):
                yield self._changed(name, before, shown)
            elif self._covered[name].verdict == Verdict.NONE:
                yield self._judged(Kind.NO_VERDICT, name, f"as in {self._release}: {after.schema}")

    def _judged(self, kind: Kind, name: str, what: str) -> Change:
        one = self._covered[name]
        if one.verdict == Verdict.NONE:
            why = f"{one.how}: write a rule (backend_sdk/decomp) or a row of backend_sdk/coverage/scope.py"
            return Change(kind, name, what, False, why)
        return Change(kind, name, what, True, _said(one))

    def _removed(self, name: str, before: Fact) -> Change:
        why = f"was {before.verdict}"
        if name in self._rules:
            why += f"; the rule {rule_name(self._rules[name])} stays for torch {self._release}"
        return Change(Kind.REMOVED, name, before.schema, True, why)

    def _changed(self, name: str, before: Fact, shown: str) -> Change:
        rule = self._rules.get(name)
        if rule is not None:
            op = aten_overloads()[name]
            fault = signature_fault(op, rule) or _ignored(op, rule, before)
            if fault is not None:
                return Change(Kind.CHANGED, name, shown, False, f"our rule {rule_name(rule)}: {fault}")
        return self._judged(Kind.CHANGED, name, shown)

    # ---- torch's decompositions

    def decompositions(self) -> Iterable[Change]:
        """Changed decompositions of torch's on which a verdict rests, and the ops that only now are reached."""
        reached_by: dict[str, list[str]] = defaultdict(list)
        for name, after in self._after.items():
            before = self._before.get(name)
            if not self._covered[name].rests_on_torch:
                continue
            known = before.reaches if before is not None and before.reaches is not None else ()
            new = [op for op in after.reaches or () if op not in known]
            # An op of an overload that is new, or that torch decomposes only now, is as new as one in a known place.
            for op in new:
                reached_by[op].append(name)
            if before is not None and (before.source != after.source or _reach_differs(before, after)):
                lacking = [op for op in new if not self._reaches_contract(op)]
                why = f"it now reaches {', '.join(lacking)}" if lacking else _said(self._covered[name])
                yield Change(Kind.DECOMPOSITION, name, _decomposition_difference(before, after), not lacking, why)
        formerly = {op for fact in self._before.values() for op in fact.reaches or ()}
        for op, names in sorted(reached_by.items()):
            if op not in formerly:
                shown = f"reached by {', '.join(names)}"
                yield Change(Kind.LEAF, op, shown, self._reaches_contract(op), self._how(op))

    def unseen(self) -> list[str]:
        """Overloads whose verdict rests on torch's decomposition, and whose ops are not known in both releases."""
        return [
            name
            for name, after in self._after.items()
            if self._covered[name].rests_on_torch
            and name in self._before
            and (after.reaches is None or self._before[name].reaches is None)
        ]

    def _reaches_contract(self, op: str) -> bool:
        if op in self._covered:
            return self._covered[op].verdict not in (Verdict.NONE, Verdict.OUT_OF_SCOPE)
        return op in self._rules

    def _how(self, op: str) -> str:
        if op in self._covered:
            one = self._covered[op]
            return _said(one) if one.verdict != Verdict.NONE else f"no verdict: {one.how}"
        if op in self._rules:
            return f"by our rule {rule_name(self._rules[op])}"
        return "no rule of ours, and no aten overload: write a rule (backend_sdk/decomp)"

    # ---- our tables

    def rules_of_no_release(self, supported: Mapping[str, Iterable[str]]) -> Iterable[Change]:
        """Rules for overloads that neither the installed torch nor any supported release has."""
        known = {name for names in supported.values() for name in names} | self._after.keys() | self._before.keys()
        for name in self._absent:
            # Only aten's overloads are listed in baselines.
            if name not in known and name.startswith("aten."):
                why = f"our rule {rule_name(self._rules[name])} is for no release: correct the name or drop it"
                yield Change(Kind.RULE, name, f"in none of torch {', '.join(supported)}", False, why)

    # ---- the catalogue

    def op_infos(self, before: Iterable[str], after: Iterable[str]) -> Iterable[Change]:
        """New and removed OpInfos. Only a proof says whether the contract covers what a new one calls."""
        old, new = set(before), set(after)
        for name in sorted(new - old):
            base = name.rsplit("torch.ops.aten.", 1)[-1].replace(".", "_")
            named = [one for key, one in self._covered.items() if key.split(".")[1] == base]
            lacking = [one.overload for one in named if one.verdict == Verdict.NONE]
            said = "; ".join(dict.fromkeys(f"{one.overload}: {_said(one)}" for one in named[:2]))
            why = f"{said or 'calls several ops'} (prove it: backend-sdk coverage --prove --op {name})"
            yield Change(Kind.NEW_OP_INFO, name, "", not lacking, why)
        for name in sorted(old - new):
            yield Change(Kind.REMOVED_OP_INFO, name, "", True, "only the older release proves it")


def _said(one: Covered) -> str:
    return f"{one.verdict.value}: {one.reason or one.how}"


def _difference(before: Fact, after: Fact) -> str:
    """What differs between two facts of one overload beside its decomposition; empty when nothing does."""
    parts = list(_schema_difference(before.schema, after.schema))
    parts += [f"no longer: {trait}" for trait in before.traits if trait not in after.traits]
    parts += [f"now: {trait}" for trait in after.traits if trait not in before.traits]
    return "; ".join(parts)


def _reach_differs(before: Fact, after: Fact) -> bool:
    return before.reaches is not None and after.reaches is not None and before.reaches != after.reaches


def _decomposition_difference(before: Fact, after: Fact) -> str:
    parts = []
    if before.source != after.source:
        parts.append(
            "its Python source changed" if before.source and after.source else "it moved between C++ and Python"
        )
    if _reach_differs(before, after):
        old, new = before.reaches or (), after.reaches or ()
        parts += [f"no longer calls {op}" for op in old if op not in new]
        parts += [f"calls {op}" for op in new if op not in old]
    return "; ".join(parts)


def _ignored(op: Any, rule: Rule, before: Fact) -> str | None:
    """What is wrong when a rule takes an argument that is new only because it takes anything (``*args, **kwargs``)."""
    positional, keywords = _argument_names(before.schema)
    # A positional argument may change its name.
    known = {*keywords, *[one.name for one in schema_arguments(op) if not one.keyword_only][: len(positional)]}
    names = [name for name in unnamed_arguments(op, rule) if name not in known]
    return f"it would ignore the new {', '.join(names)}: name it in the rule's signature" if names else None


def _argument_names(schema: str) -> tuple[list[str], list[str]]:
    """The names of a schema's arguments that go by position, and of those that go by keyword only."""
    names = [part.split("=")[0].split()[-1] for part in _arguments(schema)]
    star = names.index("*") if "*" in names else len(names)
    return names[:star], names[star + 1 :]


def _arguments(schema: str) -> list[str]:
    """The arguments of a schema as it writes them: ``["Tensor self", "*", "Scalar alpha=1"]``."""
    inner, depth, parts = schema[1 : schema.index(") -> ")], 0, [""]
    for letter in inner:
        depth += (letter in "[(") - (letter in "])")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def _schema_difference(before: str, after: str) -> Iterable[str]:
    old, new = _arguments(before), _arguments(after)
    for action, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        lost, gained = ", ".join(old[i:j]), ", ".join(new[k:m])
        if action == "replace":
            yield f"({lost}) became ({gained})"
        elif action == "delete":
            yield f"lost ({lost})"
        elif action == "insert":
            yield f"gained ({gained})"
    results = [schema.partition(") -> ")[2] for schema in (before, after)]
    if results[0] != results[1]:
        yield f"its result {results[0]} became {results[1]}"
