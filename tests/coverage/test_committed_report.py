"""The committed report of the whole proof holds what the contract promises of torch 2.13.

What a user would lose: a page of numbers that a later change has made untrue, or that never was enough.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "docs" / "coverage-torch-2.13.0.json"

# Of the 702 OpInfos of torch 2.13 at level prims in float32, and of its 3,110 aten overloads.
LEAST_FORWARD = 690
LEAST_SHARE_BACKWARD = 0.98
LEAST_OVERLOADS = 2000


def wrong_with(report):
    """What a report lacks, in words."""
    found = []
    if report["torch"] != "2.13.0" or "level prims" not in report["made_on"] or "float32" not in report["made_on"]:
        found.append("of what it is")
    forward, backward = report["opinfos"]["forward"], report["opinfos"]["backward"]
    if forward["proven"] < LEAST_FORWARD:
        found.append("forward")
    if backward["proven"] < LEAST_SHARE_BACKWARD * backward["all"]:
        found.append("backward")
    if len(set(report["proven"])) < LEAST_OVERLOADS or len(set(report["proven"])) != report["proven_overloads"]:
        found.append("overloads")
    if report["verdicts"]["no verdict"]:
        found.append("verdicts")
    if not all(one["explanation"] for one in report["not_proven"]):
        found.append("unexplained")
    # What is not proven is listed, one by one.
    for kind, counts in report["opinfos"].items():
        if counts["all"] - counts["proven"] != sum(one["kind"] == kind for one in report["not_proven"]):
            found.append(f"list of {kind}")
    return found


@pytest.fixture
def report():
    return json.loads(PATH.read_text())


def test_the_report_holds_the_numbers(report):
    assert wrong_with(report) == []
    assert report["opinfos"]["forward"]["all"] == 702
    assert report["opinfos"]["backward"]["all"] > 500
    assert sum(report["verdicts"].values()) == 3110


DOCTORED = {
    "of what it is": lambda report: report.update(torch="2.12.0"),
    "forward": lambda report: report["opinfos"]["forward"].update(proven=LEAST_FORWARD - 1),
    "backward": lambda report: report["opinfos"]["backward"].update(proven=530),
    "overloads": lambda report: report["proven"].__delitem__(slice(LEAST_OVERLOADS - 1, None)),
    "verdicts": lambda report: report["verdicts"].update({"no verdict": 1}),
    "unexplained": lambda report: report["not_proven"][0].update(explanation=""),
    "list of forward": lambda report: report["opinfos"]["forward"].update(all=703),
    "list of backward": lambda report: report["not_proven"].remove(
        next(one for one in report["not_proven"] if one["kind"] == "backward")
    ),
}


@pytest.mark.parametrize("wrong", DOCTORED)
def test_a_doctored_report_does_not_pass(wrong, report):
    doctored = copy.deepcopy(report)
    DOCTORED[wrong](doctored)
    assert wrong in wrong_with(doctored)
