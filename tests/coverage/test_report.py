"""The report: what is explained, what is not, and what no longer holds.

What a user would lose: a failure that hides behind a reason of something else.
"""

from __future__ import annotations

import pytest

from backend_sdk.coverage import report as reports
from backend_sdk.coverage.known import KNOWN, Known
from backend_sdk.coverage.prove import Entry, Item, Status
from backend_sdk.coverage.report import judge
from backend_sdk.coverage.scope import Reason
from backend_sdk.coverage.verdict import Covered, Verdict
from backend_sdk.coverage.workers import Task, prove_all
from backend_sdk.torch_compat import op_catalogue
from backend_sdk.torch_compat.overloads import aten_overloads

COVERED = [
    Covered("aten.add.Tensor", Verdict.PRIM, "add"),
    Covered("aten.mode.default", Verdict.OUT_OF_SCOPE, "needs a search", "not reducible yet"),
]


@pytest.fixture
def known(monkeypatch):
    monkeypatch.setattr(reports, "KNOWN", (Known("nonzero", Reason.DATA, "a size", ("forward",)),))


def refused(*ops):
    return Entry("forward/x/float32", Status.REFUSED, samples=1, failed=1, refused=list(ops))


def test_a_known_reason_explains_its_own_op_and_direction_only(known):
    entries = [Entry(f"{kind}/nonzero/float32", Status.RAISED, 1, 1) for kind in ("forward", "backward")]
    assert [one.unexplained for one in judge(COVERED, entries, whole=False).judged] == [False, True]


def test_a_known_reason_says_why_nothing_could_run(known):
    entries = [Entry(f"{kind}/nonzero/float32", Status.NOTHING) for kind in ("forward", "backward")]
    judged = judge(COVERED, entries, whole=False).judged
    assert [one.explanation for one in judged] == ["data-dependent size: a size", ""]
    assert not any(one.unexplained for one in judged)


@pytest.mark.parametrize("allowed", [False, True])
def test_a_reason_explains_other_numbers_only_where_it_says_so(allowed, monkeypatch):
    known = Known("nonzero", Reason.DATA, "a size", ("forward",), other_numbers=allowed)
    monkeypatch.setattr(reports, "KNOWN", (known,))
    (judged,) = judge(COVERED, [Entry("forward/nonzero/float32", Status.MISMATCH, 2, 2)], whole=False).judged
    assert judged.unexplained != allowed


def test_an_overload_out_of_scope_does_not_count_as_proven():
    entry = Entry("forward/add/float32", Status.PROVEN, 1, overloads=["aten.add.Tensor", "aten.mode.default"])
    assert judge(COVERED, [entry], whole=False).proven_overloads == {"aten.add.Tensor"}


def test_nothing_to_compare_without_a_reason_fails_a_whole_run_only(monkeypatch):
    monkeypatch.setattr(reports, "KNOWN", (Known("nonzero", Reason.DATA, "a size", ("forward",)),))
    explained, other = (Entry(f"forward/{name}/float32", Status.NOTHING) for name in ("nonzero", "other"))
    for entries, untested in (([explained], [False]), ([explained, other], [False, True])):
        for whole in (False, True):
            report = judge(COVERED, entries, whole=whole)
            assert [one.untested for one in report.judged] == untested
            assert report.failed == (whole and any(untested))


@pytest.mark.parametrize(
    ("ops", "explained"),
    [
        (["aten.mode.default"], True),
        (["aten.mode.default", "aten.add.Tensor"], False),
    ],
)
def test_refused_ops_explain_a_failure_when_each_has_a_reason(ops, explained, known):
    (judged,) = judge(COVERED, [refused(*ops)], whole=False).judged
    assert bool(judged.explanation) == explained
    assert judged.unexplained != explained


def test_a_wrong_number_is_never_explained_by_a_refused_op(known):
    entry = Entry("forward/x/float32", Status.MISMATCH, 2, 2, refused=["aten.mode.default"])
    assert judge(COVERED, [entry], whole=False).failed


def test_a_reason_that_no_longer_holds_is_stale(known):
    passing = Entry("forward/nonzero/float32", Status.PROVEN, samples=1)
    assert judge(COVERED, [passing], whole=False).stale
    assert len(judge(COVERED, [], whole=True).stale) == 1
    assert not judge(COVERED, [], whole=False).stale


def test_only_a_proven_call_counts_for_its_overloads():
    entry = Entry("forward/add/float32", Status.PROVEN, 1, overloads=["aten.add.Tensor"])
    assert judge(COVERED, [entry], whole=False).proven_overloads == {"aten.add.Tensor"}


def test_known_reasons_name_what_there_is():
    assert {known.op for known in KNOWN} <= op_catalogue.op_infos().keys() | aten_overloads().keys()


def test_a_process_that_dies_costs_its_item_only():
    tasks = [Task(Item("overload", "aten.no.such", "float32")), Task(Item("forward", "exp", "float32"))]
    entries = {entry.key: entry for entry in prove_all(tasks, "prims", 1, jobs=1)}
    assert entries["overload/aten.no.such/float32"].status == Status.DIED
    assert entries["forward/exp/float32"].status == Status.PROVEN
