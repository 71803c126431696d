"""The report: verdicts, what execution has proven, and which failures no table explains.

Does not: print.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backend_sdk.coverage.known import KNOWN, Known
from backend_sdk.coverage.prove import BACKWARD, FORWARD, OVERLOAD, SPECIAL, Entry, Status
from backend_sdk.coverage.verdict import Covered, Verdict


@dataclass(frozen=True)
class Judged:
    """One entry with what explains that it failed, or that nothing could run, if something does.

    ``may_refuse``: it ran on a vendor's backend, which need not take everything.
    """

    entry: Entry
    explanation: str = ""
    may_refuse: bool = False

    @property
    def proven(self) -> bool:
        """Whether every sample agreed with eager."""
        return self.entry.status == Status.PROVEN

    @property
    def untested(self) -> bool:
        """Whether nothing could be compared, and no table says why."""
        return self.entry.status == Status.NOTHING and not self.explanation

    @property
    def refused(self) -> bool:
        """Whether a vendor's backend does not take it, which is no fault."""
        return self.may_refuse and self.entry.status == Status.REFUSED and not self.explanation

    @property
    def unexplained(self) -> bool:
        """Whether it failed, and no table says why."""
        failed = self.entry.status not in (Status.PROVEN, Status.NOTHING)
        return failed and not self.explanation and not self.refused


@dataclass
class Report:
    """Verdicts of all overloads and judged entries of one journal, ``whole`` if it is of everything there is.

    ``backend`` names the vendor's backend on which they ran, if it was one.
    """

    covered: list[Covered]
    judged: list[Judged] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    whole: bool = False
    backend: str = ""

    @property
    def verdicts(self) -> dict[str, int]:
        """Number of overloads by verdict."""
        counted = Counter(one.verdict for one in self.covered)
        return {verdict.value: counted.get(verdict, 0) for verdict in Verdict}

    @property
    def reasons(self) -> dict[str, int]:
        """Number of overloads out of scope by class of reason."""
        return dict(Counter(one.reason for one in self.covered if one.reason).most_common())

    @property
    def proven_overloads(self) -> set[str]:
        """Overloads in scope that ran, in eager, within a call on which the contract agreed, but for those whose own
        calls failed.
        """
        found: set[str] = set()
        for one in self.judged:
            found.update(one.entry.overloads)
        failed = {
            one.entry.item.name
            for one in self.judged
            if one.entry.item.kind == OVERLOAD and one.entry.status not in (Status.PROVEN, Status.NOTHING)
        }
        return found - failed - {one.overload for one in self.covered if one.verdict == Verdict.OUT_OF_SCOPE}

    def counts(self, kind: str, dtype: str) -> dict[str, int]:
        """Number of items of a kind and dtype by status, and of those that failed unexplained."""
        chosen = [one for one in self.judged if one.entry.item.kind == kind and one.entry.item.dtype == dtype]
        counted = Counter(one.entry.status for one in chosen)
        return {
            "items": len(chosen),
            **{status.value: counted.get(status, 0) for status in Status},
            "unexplained": sum(one.unexplained for one in chosen),
            "refused by the backend": sum(one.refused for one in chosen),
        }

    @property
    def failed(self) -> bool:
        """Whether something is without a verdict, unexplained or stale; of a whole run, also without a comparison.

        A proof on a vendor's backend in which nothing is proven has failed, too: it shows nothing.
        """
        if self.backend and self.judged and not any(one.proven for one in self.judged):
            return True
        return bool(
            self.verdicts[Verdict.NONE.value]
            or self.stale
            or any(one.unexplained or (self.whole and one.untested) for one in self.judged)
        )

    def to_json(self) -> dict[str, Any]:
        """The report as plain data."""
        proven = self.proven_overloads
        reduced = reductions(one.entry for one in self.judged)
        return {
            "verdicts": self.verdicts,
            "reasons": self.reasons,
            "backend": self.backend,
            "proven_overloads": len(proven),
            "overloads": [
                {
                    "name": one.overload,
                    "verdict": one.verdict.value,
                    "how": one.how,
                    "reason": one.reason,
                    "proven": one.overload in proven,
                    "ops": reduced.get(one.overload, []),
                }
                for one in self.covered
            ],
            "items": [
                {
                    "kind": one.entry.item.kind,
                    "name": one.entry.item.name,
                    "dtype": one.entry.item.dtype,
                    "status": one.entry.status.value,
                    "samples": one.entry.samples,
                    "failed": one.entry.failed,
                    "message": one.entry.message,
                    "explanation": one.explanation,
                }
                for one in self.judged
            ],
            "stale": self.stale,
        }


def reductions(entries: Iterable[Entry]) -> Mapping[str, list[str]]:
    """The contract's ops that each captured overload became, over all calls."""
    found: dict[str, set[str]] = {}
    for entry in entries:
        for name, ops in entry.reduced.items():
            found.setdefault(name, set()).update(ops)
    return {name: sorted(ops) for name, ops in found.items()}


def judge(
    covered: list[Covered], entries: Sequence[Entry], *, whole: bool, limited: bool = False, backend: str = ""
) -> Report:
    """The report of a journal.

    In a ``whole`` run each known reason must have something to explain, and nothing lack a comparison for no reason.
    Of a run ``limited`` to some samples no reason is called stale: the sample that fails may be another. Nor is one
    of a run on a vendor's ``backend``, which may have mended what fails on the contract alone.
    """
    by_op: dict[str, list[Known]] = {}
    for known in KNOWN:
        by_op.setdefault(known.op, []).append(known)
    outside = {one.overload: one for one in covered if one.verdict == Verdict.OUT_OF_SCOPE}
    judged = [Judged(entry, _explanation(entry, by_op, outside), bool(backend)) for entry in entries]
    return Report(covered, judged, [] if limited or backend else _stale(entries, whole), whole, backend)


def _explanation(entry: Entry, by_op: Mapping[str, list[Known]], outside: Mapping[str, Covered]) -> str:
    if entry.status == Status.PROVEN:
        return ""
    for known in by_op.get(entry.item.name, ()):
        if _fits(known, entry) and (known.other_numbers or entry.status != Status.MISMATCH):
            return f"{known.reason.value}: {known.why}"
    if entry.status == Status.REFUSED:
        reasons = []
        for name in entry.refused:
            if name in outside:
                reasons.append(f"{outside[name].reason}: {name}: {outside[name].how}")
            else:
                return ""
        return "; ".join(reasons)
    return ""


def _fits(known: Known, entry: Entry) -> bool:
    """Whether an entry is of what a known reason is about."""
    item = entry.item
    return item.name == known.op and item.kind in known.kinds and (not known.dtypes or item.dtype in known.dtypes)


def _stale(entries: Sequence[Entry], whole: bool) -> list[str]:
    """Known reasons without anything to explain."""
    found = []
    for known in KNOWN:
        mine = [entry for entry in entries if _fits(known, entry)]
        if mine and all(entry.status == Status.PROVEN for entry in mine):
            found.append(f"{known.op} ({', '.join(known.kinds)}) is said to fail ({known.why}) and passes")
        elif whole and not mine and not known.dtypes:
            found.append(
                f"{known.op} ({', '.join(known.kinds)}) is said to fail ({known.why}) and is not in the catalogue"
            )
    return found


KINDS = (FORWARD, BACKWARD, OVERLOAD, SPECIAL)
