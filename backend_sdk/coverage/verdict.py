"""The verdict of each aten overload: how it reaches the contract, or why not.

Does not: run anything. Its word is what the tables say; `prove` finds out whether it is true.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from backend_sdk.coverage.scope import out_of_scope
from backend_sdk.decomp import all_rules
from backend_sdk.prims import CONTRACT
from backend_sdk.spec import Composite
from backend_sdk.torch_compat.ops import is_check
from backend_sdk.torch_compat.overloads import (
    aten_overloads,
    base_name,
    functional_base,
    functional_variant,
    has_composite_kernel,
    has_list_rule,
    has_torch_rule,
    is_mutable,
)
from backend_sdk.tracing import OVERLOADS


class Verdict(StrEnum):
    """How an overload reaches the contract."""

    PRIM = "prim"
    COMPOSITE = "composite"
    DECOMPOSED = "decomposed"
    FUNCTIONALIZED = "functionalized"
    VIEW = "view"
    HOST = "host"
    OUT_OF_SCOPE = "out of scope"
    NONE = "no verdict"


@dataclass(frozen=True)
class Covered:
    """The verdict of one overload. ``how`` says by what; ``reason`` is the class of an overload out of scope.

    ``rests_on_torch``: its way to the contract starts with torch's decomposition.
    """

    overload: str
    verdict: Verdict
    how: str
    reason: str = ""
    rests_on_torch: bool = False


def verdicts() -> list[Covered]:
    """A verdict for every aten overload of the installed torch, sorted by name."""
    overloads = aten_overloads()
    functional: dict[str, list[str]] = defaultdict(list)
    for name, op in overloads.items():
        if not is_mutable(op):
            functional[base_name(op)].append(name)
    rules = all_rules()
    found: dict[str, Covered] = {}
    # In-place and out= overloads come last: they share the fate of what they compute.
    for name, op in sorted(overloads.items(), key=lambda item: is_mutable(item[1])):
        found[name] = _of_mutable(name, op, found, functional) if is_mutable(op) else _of_functional(name, op, rules)
    return [found[name] for name in overloads]


def _of_functional(name: str, op: Any, rules: Mapping[Any, Any]) -> Covered:
    base = base_name(op)
    if is_check(op):
        return Covered(name, Verdict.HOST, "a check of the data: eager runs it, and it raises as eager does")
    if op in rules:
        how = f"by our rule {rules[op].__name__}"
        if op.is_view:
            return Covered(name, Verdict.VIEW, how)
        if base in _contract_names():
            return Covered(name, Verdict.COMPOSITE if isinstance(CONTRACT[base], Composite) else Verdict.PRIM, base)
        return Covered(name, Verdict.DECOMPOSED, how)
    if op in OVERLOADS:
        return Covered(name, Verdict.DECOMPOSED, f"within backend_sdk.traceable(), by {OVERLOADS[op].__name__}")
    outside = out_of_scope(name)
    if outside is not None:
        return Covered(name, Verdict.OUT_OF_SCOPE, outside.why, outside.reason.value)
    source = _source(op)
    if source is None:
        return Covered(
            name, Verdict.NONE, "no rule of ours or torch's, and no row of the table of what is out of scope"
        )
    return Covered(name, Verdict.VIEW if op.is_view else Verdict.DECOMPOSED, source, rests_on_torch=True)


def _of_mutable(name: str, op: Any, found: Mapping[str, Covered], functional: Mapping[str, list[str]]) -> Covered:
    counterparts = functional_counterparts(base_name(op), functional)
    outside = out_of_scope(name)
    if counterparts:
        counterpart = found[_nearest(op, counterparts)]
        if counterpart.verdict in (Verdict.OUT_OF_SCOPE, Verdict.NONE):
            return Covered(name, counterpart.verdict, counterpart.how, counterpart.reason)
        return Covered(name, Verdict.FUNCTIONALIZED, f"as {counterpart.overload}")
    if outside is not None:
        return Covered(name, Verdict.OUT_OF_SCOPE, outside.why, outside.reason.value)
    if has_composite_kernel(op) or has_torch_rule(op):
        how = "by torch's own kernel, made of functional ops"
        return Covered(name, Verdict.FUNCTIONALIZED, how, rests_on_torch=True)
    return Covered(name, Verdict.NONE, "writes into an argument, and no functional overload has its name")


@functools.cache
def _contract_names() -> frozenset[str]:
    return frozenset(op.name for op in CONTRACT)


def _source(op: Any) -> str | None:
    if has_torch_rule(op):
        return "by torch's decomposition"
    if has_composite_kernel(op):
        return "by torch's composite kernel"
    if has_list_rule(op):
        return "by its op on each tensor of the list"
    return None


def functional_counterparts(base: str, functional: Mapping[str, Iterable[str]]) -> list[str]:
    """Overloads that compute what a mutating op of this name writes: the same base, without the in-place ``_``."""
    stem = functional_base(base)
    candidates = [stem, f"{stem}_functional"]
    if stem.startswith("__i"):
        candidates.append(f"__{stem[3:]}")
    return [name for candidate in candidates for name in functional.get(candidate, ())]


def _nearest(op: Any, counterparts: list[str]) -> str:
    overload = functional_variant(op)
    return next((one for one in counterparts if one.rsplit(".", 1)[1] == overload), counterparts[0])
