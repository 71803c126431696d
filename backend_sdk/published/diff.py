"""What a new version of the contract asks of a vendor, out of two documents.

Each change is classified by a table (`RULES`): whether a vendor has to act, and how far the version has to move. A
version moves by what a backend that was right for the old contract would be under the new one without a change: wrong
or broken (major), right but without something that it may run (minor), the same (patch).

Does not: read documents (`backend_sdk.published.document`) or print.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any

from backend_sdk.errors import OptionError
from backend_sdk.published.document import parse_version


class Action(StrEnum):
    """What a vendor has to do about a change."""

    MUST = "must act"
    MAY = "may act"
    NOTHING = "nothing to do"


class Bump(IntEnum):
    """How far the version moves."""

    NONE = 0
    PATCH = 1
    MINOR = 2
    MAJOR = 3


@dataclass(frozen=True)
class Rule:
    """How a kind of change is classified, and what to do about it."""

    action: Action
    bump: Bump
    todo: str


_SIGNATURE = "change the kernel's signature"

RULES: Mapping[str, Rule] = {
    "prim added": Rule(Action.MUST, Bump.MINOR, "implement it to keep its profiles; until then eager runs it"),
    "composite added": Rule(Action.NOTHING, Bump.MINOR, "its body runs on the prims; claim it if a kernel pays"),
    "op removed": Rule(Action.MUST, Bump.MAJOR, "remove what implements, claims or limits it"),
    "prim became a composite": Rule(Action.NOTHING, Bump.MINOR, "a kernel stays valid; without one the body runs"),
    "composite became a prim": Rule(Action.MUST, Bump.MINOR, "implement it: no body takes its place any more"),
    "operands changed": Rule(Action.MUST, Bump.MAJOR, _SIGNATURE),
    "operands renamed": Rule(Action.NOTHING, Bump.PATCH, "operands go by position"),
    "operand may be absent": Rule(Action.MUST, Bump.MAJOR, "take None for it"),
    "operand is always given": Rule(Action.NOTHING, Bump.MINOR, "None does not come any more"),
    "attribute added": Rule(Action.MUST, Bump.MAJOR, _SIGNATURE),
    "attribute removed": Rule(Action.MUST, Bump.MAJOR, _SIGNATURE),
    "attribute has another type": Rule(Action.MUST, Bump.MAJOR, _SIGNATURE),
    "attribute takes more": Rule(Action.MUST, Bump.MAJOR, "support it, or refuse it in supports()"),
    "attribute takes less": Rule(Action.MAY, Bump.MINOR, "what does not come any more may go"),
    "results changed": Rule(Action.MUST, Bump.MAJOR, "return the new results"),
    "dtypes widened": Rule(Action.MUST, Bump.MAJOR, "support them, or refuse them in supports()"),
    "dtypes narrowed": Rule(Action.MAY, Bump.MINOR, "kernels for them may go"),
    "tolerance tightened": Rule(Action.MUST, Bump.MAJOR, "check the kernel: `backend-sdk doctor --backend NAME`"),
    "tolerance changed": Rule(Action.MUST, Bump.MAJOR, "check the kernel: `backend-sdk doctor --backend NAME`"),
    "tolerance loosened": Rule(Action.MAY, Bump.MINOR, "a faster kernel may do"),
    "special values added": Rule(Action.MAY, Bump.MINOR, "check the kernel on them; one that follows the spec passes"),
    "special values removed": Rule(Action.NOTHING, Bump.MINOR, "less is checked"),
    "prim joined a profile": Rule(Action.MUST, Bump.MINOR, "implement it to keep that profile"),
    "composite joined a profile": Rule(Action.NOTHING, Bump.MINOR, "its body runs on the prims"),
    "op left a profile": Rule(Action.NOTHING, Bump.MINOR, "the profile asks for less"),
    "profile added": Rule(Action.NOTHING, Bump.MINOR, "certify it if you wish"),
    "profile removed": Rule(Action.MUST, Bump.MAJOR, "certificates cannot name it any more"),
    "became differentiable": Rule(Action.NOTHING, Bump.MINOR, "its gradient is made of other ops"),
    "is not differentiable any more": Rule(Action.MAY, Bump.MINOR, "models do not train through it"),
    "structural flag changed": Rule(Action.NOTHING, Bump.PATCH, "only reports count it otherwise"),
    "reference rewritten": Rule(
        Action.MAY, Bump.PATCH, "check the kernel again; a new result asks for a major version"
    ),
    "body rewritten": Rule(Action.MAY, Bump.PATCH, "check a kernel of its own again, if there is one"),
    "shape rule rewritten": Rule(
        Action.MAY, Bump.PATCH, "check the kernel again; a new shape asks for a major version"
    ),
    "judgement rewritten": Rule(Action.MAY, Bump.PATCH, "check the kernel again: the tolerance's own code changed"),
    "changed otherwise": Rule(Action.MAY, Bump.PATCH, "compare the two documents"),
    "text changed": Rule(Action.NOTHING, Bump.NONE, "read it"),
}


@dataclass(frozen=True)
class Change:
    """One change. ``op`` is empty for one of the contract as a whole; ``kind`` is a row of `RULES`.

    ``if_claimed`` says that it concerns only a backend that claims the op: for another its body runs.
    """

    op: str
    kind: str
    detail: str = ""
    profiles: tuple[str, ...] = ()
    if_claimed: bool = False

    @property
    def rule(self) -> Rule:
        """How the change is classified."""
        return RULES[self.kind]

    def to_json(self) -> dict[str, Any]:
        """The change as plain data."""
        return {
            "op": self.op,
            "change": self.kind,
            "detail": self.detail,
            "profiles": list(self.profiles),
            "if_claimed": self.if_claimed,
            "action": self.rule.action.value,
            "bump": self.rule.bump.name.lower(),
            "todo": self.rule.todo,
        }


@dataclass(frozen=True)
class Diff:
    """The changes from one document to another, those that ask for most first."""

    old: str
    new: str
    changes: tuple[Change, ...]

    @property
    def required(self) -> Bump:
        """How far the version has to move."""
        return max((change.rule.bump for change in self.changes), default=Bump.NONE)

    @property
    def given(self) -> Bump:
        """How far the version moved."""
        old, new = parse_version(self.old), parse_version(self.new)
        for bump, before, after in zip((Bump.MAJOR, Bump.MINOR, Bump.PATCH), old, new, strict=True):
            if before != after:
                return bump
        return Bump.NONE

    @property
    def fits(self) -> bool:
        """Whether the version moved far enough for the changes."""
        return self.given >= self.required

    @property
    def least_version(self) -> str:
        """The lowest version that fits the changes."""
        major, minor, patch = parse_version(self.old)
        return {
            Bump.NONE: self.old,
            Bump.PATCH: f"{major}.{minor}.{patch + 1}",
            Bump.MINOR: f"{major}.{minor + 1}.0",
            Bump.MAJOR: f"{major + 1}.0.0",
        }[self.required]

    def of(self, action: Action) -> list[Change]:
        """The changes of one class."""
        return [change for change in self.changes if change.rule.action == action]

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain data."""
        return {
            "old": self.old,
            "new": self.new,
            "required_bump": self.required.name.lower(),
            "given_bump": self.given.name.lower(),
            "least_version": self.least_version,
            "fits": self.fits,
            "changes": [change.to_json() for change in self.changes],
        }


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> Diff:
    """The changes from the document ``old`` to ``new``. Raises `OptionError` when ``new`` has the lower version."""
    if parse_version(new["version"]) < parse_version(old["version"]):
        raise OptionError(
            f"version {old['version']} is newer than {new['version']}", hint="name the older document first"
        )
    before = {op["name"]: op for op in old["ops"]}
    after = {op["name"]: op for op in new["ops"]}
    changes = [*_profiles(old, new)]
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            changes.append(_change(before[name], "op removed"))
        elif name not in before:
            changes.append(_change(after[name], f"{after[name]['kind']} added"))
        else:
            changes += _of_op(before[name], after[name])
    order = list(Action)
    changes.sort(key=lambda change: (order.index(change.rule.action), -change.rule.bump))
    return Diff(old["version"], new["version"], tuple(changes))


def _change(op: Mapping[str, Any], kind: str, detail: str = "", profiles: Iterable[str] | None = None) -> Change:
    shown = tuple(op["profiles"] if profiles is None else profiles)
    concerns_claims = op["kind"] == "composite" and RULES[kind].action != Action.NOTHING
    return Change(op["name"], kind, detail, shown, concerns_claims)


def _profiles(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    before, after = ({profile["name"] for profile in spec["profiles"]} for spec in (old, new))
    yield from (Change("", "profile added", name, (name,)) for name in sorted(after - before))
    yield from (Change("", "profile removed", name, (name,)) for name in sorted(before - after))


def _of_op(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    """The changes of an op that both have: never none where the hashes differ."""
    changes = list(_kinds_of_change(old, new))
    if old["hash"] != new["hash"] and not any(change.rule.bump for change in changes):
        changes.append(_change(new, "changed otherwise"))
    return changes


def _kinds_of_change(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    if old["kind"] != new["kind"]:
        yield _change(new, f"{old['kind']} became a {new['kind']}")
    yield from _operands(old, new)
    yield from _attributes(old, new)
    if _sources(old, "results") != _sources(new, "results"):
        yield _change(new, "results changed", f"was {old['dtype_rule']}, is {new['dtype_rule']}")
    yield from _dtypes(old, new)
    yield from _tolerance(old, new)
    yield from _specials(old, new)
    joined, left = (sorted(set(a["profiles"]) - set(b["profiles"])) for a, b in ((new, old), (old, new)))
    if joined:
        yield _change(new, f"{new['kind']} joined a profile", ", ".join(joined), joined)
    if left:
        yield _change(new, "op left a profile", ", ".join(left), left)
    if old["differentiable"] != new["differentiable"]:
        yield _change(new, "became differentiable" if new["differentiable"] else "is not differentiable any more")
    if old["structural"] != new["structural"]:
        yield _change(new, "structural flag changed")
    reference = "body rewritten" if new["kind"] == "composite" else "reference rewritten"
    for part, kind in (("reference", reference), ("shape_rule", "shape rule rewritten")):
        if old["definition"][part] != new["definition"][part]:
            yield _change(new, kind)
    # Numbers of a tolerance that are data show above.
    if old["definition"]["tolerance"] != new["definition"]["tolerance"] and old["tolerance"] == new["tolerance"]:
        yield _change(new, "judgement rewritten")
    if old["doc"] != new["doc"]:
        yield _change(new, "text changed")


def _operands(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    before, after = old["operands"], new["operands"]
    shape = [[operand["variadic"] for operand in operands] for operands in (before, after)]
    if shape[0] != shape[1] or _sources(old, "operands") != _sources(new, "operands"):
        yield _change(new, "operands changed", f"was {old['signature']}, is {new['signature']}; {new['dtype_rule']}")
        return
    names = [[operand["name"] for operand in operands] for operands in (before, after)]
    if names[0] != names[1]:
        yield _change(new, "operands renamed", f"{', '.join(names[0])} to {', '.join(names[1])}")
    for was, now in zip(before, after, strict=True):
        if was["optional"] != now["optional"]:
            yield _change(new, "operand may be absent" if now["optional"] else "operand is always given", now["name"])


def _sources(op: Mapping[str, Any], part: str) -> list[Any]:
    """Where dtypes come from, with variables by their order: their names mean nothing."""
    variables: dict[str, int] = {}
    for operand in op["operands"]:
        if operand["dtype"]["from"] == "variable":
            variables.setdefault(operand["dtype"]["name"], len(variables))
    slots = [operand["dtype"] for operand in op["operands"]] if part == "operands" else op[part]
    named_by_variable = ("variable", "real part of", "complex of")
    return [
        [slot["from"], variables.get(slot["name"]) if slot["from"] in named_by_variable else slot["name"]]
        for slot in slots
    ]


def _attributes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    before = {attribute["name"]: attribute for attribute in old["attributes"]}
    after = {attribute["name"]: attribute for attribute in new["attributes"]}
    for name in sorted(before.keys() | after.keys()):
        if name not in before:
            yield _change(new, "attribute added", f"{name}: {after[name]['type']}")
        elif name not in after:
            yield _change(new, "attribute removed", name)
        elif before[name]["type"] != after[name]["type"]:
            yield _change(
                new, "attribute has another type", f"{name}: was {before[name]['type']}, is {after[name]['type']}"
            )
        else:
            for part in ("values", "dtypes"):
                more, less = _gone_and_come(before[name].get(part, []), after[name].get(part, []))
                if more:
                    yield _change(new, "attribute takes more", f"{name}: {', '.join(more)}")
                if less:
                    yield _change(new, "attribute takes less", f"{name}: {', '.join(less)}")


def _gone_and_come(old: Sequence[str], new: Sequence[str]) -> tuple[list[str], list[str]]:
    """What is new, and what is gone."""
    return [item for item in new if item not in old], [item for item in old if item not in new]


def _dtypes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    if _sources(old, "operands") != _sources(new, "operands"):
        return
    before, after = _domains(old), _domains(new)
    for (_, was), (name, now) in zip(before, after, strict=True):
        more, less = _gone_and_come(was, now)
        if more:
            yield _change(new, "dtypes widened", f"{name}: {', '.join(more)}")
        if less:
            yield _change(new, "dtypes narrowed", f"{name}: {', '.join(less)}")


def _domains(op: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """The variables and their dtypes, in the order in which operands use them."""
    used = dict.fromkeys(o["dtype"]["name"] for o in op["operands"] if o["dtype"]["from"] == "variable")
    return [(name, op["dtype_variables"][name]) for name in used]


def _tolerance(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    found: dict[str, list[str]] = {}
    for dtype, now in new["tolerance"].items():
        was = old["tolerance"].get(dtype)
        if was is not None and was != now:
            found.setdefault(_direction(was, now), []).append(f"{dtype}: was {in_words(was)}, is {in_words(now)}")
    for kind, details in found.items():
        yield _change(new, kind, "; ".join(details))


def _direction(was: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    if "exact" in (was["kind"], now["kind"]):
        return "tolerance tightened" if now["kind"] == "exact" else "tolerance loosened"
    numbers = ("ulp", "floor_epsilons", "units_per_block", "epsilons", "epsilons_per_size")
    if {**was, **dict.fromkeys(numbers)} != {**now, **dict.fromkeys(numbers)}:
        return "tolerance changed"
    pairs = [(was[name], now[name]) for name in numbers if name in was]
    if all(new <= old for old, new in pairs):
        return "tolerance tightened"
    return "tolerance loosened" if all(new >= old for old, new in pairs) else "tolerance changed"


def in_words(bound: Mapping[str, Any]) -> str:
    """A bound of a document in words."""
    if bound["kind"] == "exact":
        return "exact"
    if bound["kind"] == "ulp":
        floor = f", or {bound['floor_epsilons']:g} epsilons absolute" if bound["floor_epsilons"] else ""
        of = f" of the magnitude times {bound['magnitude_factor']:.4g}" if "magnitude_factor" in bound else ""
        return f"{bound['ulp']:g} ULP{of}{floor}"
    if bound["kind"] == "relative":
        return f"{bound['epsilons']:g} epsilons of the largest magnitude"
    if bound["kind"] == "residual":
        return f"{bound['equation']} within {bound['epsilons_per_size']:g} N epsilons, N the largest dimension"
    return (
        f"{bound['units_per_block']:g} units a block of accumulated terms, {bound['fraction_bits']} fraction bits, "
        f"accumulator of {bound['accumulator_bits']}"
    )


def _specials(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    found: dict[str, list[str]] = {}
    for dtype, now in new["special_values"].items():
        if dtype in old["special_values"]:
            # As text: 0.0 and -0.0 are equal numbers.
            was = old["special_values"][dtype]
            more, less = _gone_and_come(*([json.dumps(value) for value in values] for values in (was, now)))
            for kind, values in (("special values added", more), ("special values removed", less)):
                if values:
                    found.setdefault(kind, []).append(f"{dtype}: {', '.join(values)}")
    for kind, details in found.items():
        yield _change(new, kind, "; ".join(details))
