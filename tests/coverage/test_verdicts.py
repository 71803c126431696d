"""Every aten overload has a verdict, and the table of what is out of scope says no more than is true.

What a user would lose: an op that nobody has decided about fails on their model, in place of being listed.
"""

from __future__ import annotations

import time

import pytest
import torch

from backend_sdk.coverage.baseline import Baseline, committed
from backend_sdk.coverage.scope import OUT_OF_SCOPE, matches
from backend_sdk.coverage.verdict import Verdict, verdicts
from backend_sdk.decomp import all_rules


@pytest.fixture(scope="module")
def covered():
    return {one.overload: one for one in verdicts()}


def test_every_overload_of_torch_has_a_verdict(covered):
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]
    assert len(covered) == len(names)
    assert [name for name, one in covered.items() if one.verdict == Verdict.NONE] == []
    assert all(one.how for one in covered.values())
    assert all(bool(one.reason) == (one.verdict == Verdict.OUT_OF_SCOPE) for one in covered.values())


@pytest.mark.parametrize("row", OUT_OF_SCOPE, ids=lambda row: f"{row.reason}-{row.patterns[0]}")
def test_each_pattern_decides_about_an_overload(row, covered):
    outside = [name for name, one in covered.items() if one.verdict == Verdict.OUT_OF_SCOPE]
    # Overloads that only another supported release has.
    for path in committed().values():
        facts = Baseline.read(path).overloads.items()
        outside += [name for name, fact in facts if name not in covered and fact.verdict.startswith("out of scope")]
    idle = [pattern for pattern in row.patterns if not any(matches(name, pattern) for name in outside)]
    assert idle == [], "these overloads have a rule by now: drop the patterns"


def test_an_overload_with_a_rule_is_in_scope(covered):
    with_rule = {str(overload) for overload in all_rules()} & covered.keys()
    assert [name for name in with_rule if covered[name].verdict == Verdict.OUT_OF_SCOPE] == []


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("aten.exp.default", Verdict.PRIM),
        ("aten.silu.default", Verdict.COMPOSITE),
        ("aten.addcmul.default", Verdict.DECOMPOSED),
        ("aten.add_.Tensor", Verdict.FUNCTIONALIZED),
        ("aten.add.out", Verdict.FUNCTIONALIZED),
        ("aten.__iand__.Tensor", Verdict.FUNCTIONALIZED),
        ("aten._foreach_add_.List", Verdict.FUNCTIONALIZED),
        ("aten._foreach_add.List", Verdict.DECOMPOSED),
        ("aten.transpose.int", Verdict.VIEW),
        ("aten._sparse_mm.default", Verdict.OUT_OF_SCOPE),
        ("aten.nonzero.out", Verdict.FUNCTIONALIZED),
    ],
)
def test_verdicts_of_known_overloads(name, verdict, covered):
    assert covered[name].verdict == verdict, covered[name]


def test_the_report_without_a_proof_is_quick():
    verdicts()
    start = time.perf_counter()
    verdicts()
    # The whole command is to take ten seconds at most, of which importing torch takes most.
    assert time.perf_counter() - start < 3
