"""`backend-sdk drift`: what a torch release changed, and what of that the contract does not cover.

What a user would lose: a new torch release that breaks their models op by op, in place of one list to work through.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import time

import pytest
import torch

from backend_sdk.coverage import baseline, drift, op_info_names
from backend_sdk.coverage.baseline import Baseline, Fact
from backend_sdk.coverage.drift import Kind, compare
from backend_sdk.coverage.op_info_names import OpInfoNames
from backend_sdk.coverage.verdict import Covered, Verdict, verdicts
from backend_sdk.decomp.registry import all_rules
from backend_sdk.errors import OptionError
from backend_sdk.torch_compat import op_catalogue
from backend_sdk.torch_compat.ops import AbsentOverload
from backend_sdk.torch_compat.overloads import aten_overloads

INSTALLED = baseline.installed_version()
OTHER = next(version for version in baseline.committed() if version != INSTALLED)
SUPPORTED = {version: Baseline.read(path).overloads for version, path in baseline.committed().items()}


@pytest.fixture(scope="module")
def covered():
    return verdicts()


@pytest.fixture(scope="module")
def installed(covered):
    return baseline.capture(covered, lambda: list(op_catalogue.op_infos()))


@pytest.fixture
def run(command):
    return functools.partial(command, "drift")


# ---- the committed baselines


def test_each_supported_release_has_a_baseline_that_this_torch_still_fits(installed):
    """A patch release may differ; of the very release that a file describes, all that is torch's must be in it."""
    files = baseline.committed()
    assert len(files) == 2
    for version, path in files.items():
        read = Baseline.read(path)
        assert read.torch == version
        assert read.text() == path.read_text(encoding="utf-8")
        assert len(read.overloads) > 3000 and len(read.op_infos) > 600
    if INSTALLED in files:
        written = Baseline.read(files[INSTALLED])
        facts = [
            {name: (fact.schema, fact.traits, fact.source) for name, fact in one.overloads.items()}
            for one in (written, installed)
        ]
        assert facts[0] == facts[1]
        assert sorted(written.op_infos) == sorted(installed.op_infos)


def test_each_rule_is_for_an_overload_of_a_supported_release():
    known = {name for path in baseline.committed().values() for name in Baseline.read(path).overloads}
    absent = [str(op) for op in all_rules() if isinstance(op, AbsentOverload)]
    assert [name for name in absent if name not in known] == []


def test_torchs_decompositions_are_seen(installed):
    assert sum(fact.reaches is not None for fact in installed.overloads.values()) > 400


# ---- real releases


@pytest.fixture(scope="module")
def since_the_other():
    return drift.drift_since(baseline.chosen(OTHER), lambda: list(op_catalogue.op_infos()))


def test_from_the_other_release_everything_is_covered(run, since_the_other, monkeypatch):
    monkeypatch.setattr(drift, "drift_since", lambda before, op_infos: since_the_other)
    code, out, err = run("--from", OTHER, "--json")
    found = json.loads(out)
    assert [change for change in found["changes"] if not change["covered"]] == []
    assert (code, found["uncovered"], err) == (0, 0, "")
    assert (found["from"], found["to"]) == (OTHER, INSTALLED)
    counts = found["counts"]
    names = {change["name"]: change for change in found["changes"]}
    only_older = [name for name, change in names.items() if change["kind"] == "removed overload"]
    only_newer = [name for name, change in names.items() if change["kind"] == "new overload"]
    if OTHER > INSTALLED:
        only_older, only_newer = only_newer, only_older
    assert "aten.cholesky.default" in only_older and "aten.linalg_polar.default" in only_newer
    assert "grad_output" in names["aten._cdist_backward.default"]["what"]
    assert counts["changed decomposition"] > 5 and counts["new OpInfo"] > 0 and counts["removed OpInfo"] > 0


def test_the_text_names_each_change_and_ends_with_the_sum(run, since_the_other, monkeypatch):
    monkeypatch.setattr(drift, "drift_since", lambda before, op_infos: since_the_other)
    code, out, _ = run("--from", OTHER)
    assert code == 0
    for part in ("new overload (", "changed decomposition (", "aten.celu.default", "not compared: ", f"to {INSTALLED}"):
        assert part in out
    assert out.rstrip().endswith("the contract covers all of it")


# ---- synthetic changes: the older release is the installed one, changed backwards


@pytest.fixture
def changed(installed, covered):
    """``changed(edit)`` compares a copy of the installed release, edited, with the installed one."""

    def run(edit=None, verdict=None, rules=None, after=None):
        before = Baseline("1.0.0", dict(installed.overloads), list(installed.op_infos))
        if edit is not None:
            edit(before)
        own = {**{one.overload: one for one in covered}, **(verdict or {})}
        later = dataclasses.replace(installed, overloads={**installed.overloads, **(after or {})})
        releases = {"1.0.0": before.overloads, **SUPPORTED}
        return compare(before, later, own.values(), {**all_rules(), **(rules or {})}, releases)

    return run


def edited(name, **fields):
    def edit(before):
        before.overloads[name] = dataclasses.replace(before.overloads[name], **fields)

    return edit


def only(found):
    (change,) = found.changes
    return change


def test_nothing_has_changed_where_nothing_has(changed):
    assert changed().changes == []


def test_a_new_overload_is_covered_by_its_verdict(changed):
    change = only(changed(lambda before: before.overloads.pop("aten.exp.default")))
    assert (change.kind, change.name, change.covered) == (Kind.NEW, "aten.exp.default", True)
    assert change.what == "(Tensor self) -> Tensor" and change.why == "prim: exp"


@pytest.mark.parametrize("is_new", [True, False])
def test_an_overload_without_a_verdict_fails(changed, is_new):
    none = {"aten.exp.default": Covered("aten.exp.default", Verdict.NONE, "nobody has decided")}
    change = only(changed((lambda before: before.overloads.pop("aten.exp.default")) if is_new else None, none))
    assert change.kind == (Kind.NEW if is_new else Kind.NO_VERDICT)
    assert not change.covered
    assert "nobody has decided" in change.why and "scope.py" in change.why


def test_a_removed_overload_says_what_it_was_and_keeps_its_rule(changed):
    gone, kept = Fact("(Tensor self) -> Tensor", verdict="view: by our rule gone"), AbsentOverload("aten.gone.default")

    def gone_rule(out, x):
        return x

    def edit(before):
        before.overloads["aten.gone.default"] = gone

    change = only(changed(edit, rules={kept: gone_rule}))
    assert (change.kind, change.covered) == (Kind.REMOVED, True)
    assert "was view: by our rule gone" in change.why and "gone_rule" in change.why and "torch 1.0.0" in change.why


def test_a_rule_for_an_overload_of_no_release_fails(changed):
    def gone_rule(out, x):
        return x

    change = only(changed(rules={AbsentOverload("aten.gone.default"): gone_rule}))
    assert (change.kind, change.name, change.covered) == (Kind.RULE, "aten.gone.default", False)
    assert "gone_rule" in change.why and "1.0.0" in change.what


@pytest.mark.parametrize(
    ("schema", "what"),
    [
        ("(Tensor self, Tensor other) -> Tensor", "gained (*, Scalar alpha=1)"),
        ("(Tensor self, Tensor other, *, Scalar alpha=2) -> Tensor", "(Scalar alpha=2) became (Scalar alpha=1)"),
        ("(Tensor x, Tensor other, *, Scalar alpha=1) -> Tensor", "(Tensor x) became (Tensor self)"),
        ("(Tensor self, Tensor other, *, Scalar alpha=1, int[2] dims=[0, 1]) -> Tensor", "lost (int[2] dims=[0, 1])"),
        (
            "(Tensor self, Tensor other, *, Scalar alpha=1) -> (Tensor, Tensor)",
            "its result (Tensor, Tensor) became",
        ),
    ],
    ids=["gained", "default", "renamed", "lost", "result"],
)
def test_a_changed_schema_is_shown_and_covered_while_our_rule_takes_it(changed, schema, what):
    change = only(changed(edited("aten.add.Tensor", schema=schema)))
    assert (change.kind, change.name, change.covered) == (Kind.CHANGED, "aten.add.Tensor", True)
    assert what in change.what


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (lambda out, x, y: x, ["it takes (out, x, y)", "(out, self, other, *, alpha=...)"]),
        (lambda out, x, y, **_: x, ["it would ignore the new alpha", "name it"]),
        (lambda out, *_: x, ["alpha"]),  # noqa: F821 - never called
    ],
    ids=["cannot take it", "takes anything", "takes any operand"],
)
def test_a_new_argument_that_our_rule_cannot_take_fails(changed, rule, words):
    edit = edited("aten.add.Tensor", schema="(Tensor self, Tensor other) -> Tensor")
    change = only(changed(edit, rules={torch.ops.aten.add.Tensor: rule}))
    assert not change.covered
    for word in ["our rule <lambda>", *words]:
        assert word in change.why


def test_an_argument_that_a_rule_has_always_ignored_is_no_drift(changed):
    edit = edited("aten.add.Tensor", schema="(Tensor first, Tensor second, *, Scalar alpha=2) -> Tensor")
    assert only(changed(edit, rules={torch.ops.aten.add.Tensor: lambda out, *args, **kwargs: args[0]})).covered


@pytest.mark.parametrize(
    ("traits", "what"),
    [
        ((), "now: torch rule"),
        (("view", "torch rule"), "no longer: view"),
        (("random", "torch rule"), "no longer: random"),
    ],
)
def test_a_changed_trait_is_shown(changed, traits, what):
    change = only(changed(edited("aten.celu.default", traits=traits)))
    assert change.kind == Kind.CHANGED and what in change.what


def test_a_decomposition_whose_source_changed_is_shown_where_a_verdict_rests_on_it(changed):
    assert changed(edited("aten.native_layer_norm.default", source="0" * 12)).changes == []
    change = only(changed(edited("aten.celu.default", source="0" * 12)))
    assert (change.kind, change.name, change.covered) == (Kind.DECOMPOSITION, "aten.celu.default", True)
    assert change.what == "its Python source changed"
    assert "moved between" in only(changed(edited("aten.celu.default", source=""))).what


def test_a_decomposition_that_calls_other_ops_is_shown(changed):
    change = only(changed(edited("aten.celu.default", reaches=("aten.exp.default",))))
    assert change.kind == Kind.DECOMPOSITION and change.covered
    assert "no longer calls aten.exp.default" in change.what and "calls aten.expm1.default" in change.what


LEAVES = {
    "aten.exp.default": (True, "prim: exp"),
    "aten._sparse_mm.default": (False, "out of scope: sparse layout"),
    "prims.exp.default": (True, "by our rule exp"),
    "prims.no_such_op.default": (False, "no rule of ours"),
    "custom.op.default": (False, "no rule of ours"),
}


@pytest.mark.parametrize("op", LEAVES)
def test_a_new_leaf_op_is_covered_by_its_verdict_or_fails(changed, installed, op):
    def edit(before):
        # Nothing reached the op before.
        for name, fact in before.overloads.items():
            if op in (fact.reaches or ()):
                before.overloads[name] = dataclasses.replace(fact, reaches=())

    celu = installed.overloads["aten.celu.default"]
    found = changed(edit, after={"aten.celu.default": dataclasses.replace(celu, reaches=(*celu.reaches, op))})
    leaf = next(change for change in found.changes if change.kind == Kind.LEAF and change.name == op)
    decomposition = next(change for change in found.changes if change.name == "aten.celu.default")
    is_covered, why = LEAVES[op]
    assert leaf.covered == decomposition.covered == is_covered
    assert "aten.celu.default" in leaf.what and why in leaf.why
    assert f"calls {op}" in decomposition.what
    assert is_covered or f"it now reaches {op}" in decomposition.why


def test_a_known_op_in_a_new_place_is_no_new_leaf_and_fails_where_it_is_out_of_scope(changed, installed):
    fact = installed.overloads["aten.celu.default"]
    found = changed(
        edited("aten.elu.default", reaches=("aten._sparse_mm.default",)),
        after={"aten.celu.default": dataclasses.replace(fact, reaches=("aten._sparse_mm.default",))},
    )
    assert [change.name for change in found.uncovered] == ["aten.celu.default"]
    assert [change.kind for change in found.changes if change.kind == Kind.LEAF] == []


def test_op_infos_come_and_go(changed):
    def edit(before):
        before.op_infos.remove("exp")
        before.op_infos.append("nothing.like_it")

    new, removed = changed(edit).changes
    assert (new.kind, new.name, new.covered) == (Kind.NEW_OP_INFO, "exp", True)
    assert "prim: exp" in new.why and "--prove --op exp" in new.why
    assert (removed.kind, removed.name) == (Kind.REMOVED_OP_INFO, "nothing.like_it")


def test_what_cannot_be_compared_is_said(changed, installed):
    found = changed(edited("aten.celu.default", reaches=None))
    assert any("aten.celu.default" in line for line in found.skipped)
    no_names = dataclasses.replace(installed, op_infos=None)
    found = compare(dataclasses.replace(installed, torch="1.0.0"), no_names, verdicts(), all_rules(), {})
    assert any("backend-sdk[test]" in line for line in found.skipped)


def test_the_command_fails_for_what_is_not_covered(run, tmp_path, installed, monkeypatch):
    path = tmp_path / "torch-1.0.0.json"
    before = Baseline("1.0.0", dict(installed.overloads), installed.op_infos)
    edited("aten.add.Tensor", schema="(Tensor self) -> Tensor")(before)
    path.write_text(before.text())
    monkeypatch.setattr(drift, "capture", lambda covered, op_infos, before: installed)
    monkeypatch.setitem(drift.all_rules(), torch.ops.aten.add.Tensor, lambda out, x: x)
    code, out, _ = run("--from", str(path))
    assert code == 1
    last = out.rstrip().splitlines()[-1]
    assert last.startswith("not covered: changed overload aten.add.Tensor: our rule <lambda>")


# ---- the file, and bad input


def test_write_makes_the_same_file_each_time_in_little_time(run, tmp_path, installed):
    path = tmp_path / "new" / "torch.json"
    start = time.process_time()
    code, out, _ = run("--write", str(path))
    assert code == 0
    # Ten seconds for the whole command, of which importing torch takes two.
    assert time.process_time() - start < 8
    assert f"torch {INSTALLED}: {len(aten_overloads())} overloads" in out
    assert path.read_text() == installed.text()
    assert Baseline.read(path).overloads == installed.overloads


def test_write_needs_the_catalogue(run, tmp_path, monkeypatch):
    monkeypatch.setattr(OpInfoNames, "result", lambda self: None)
    code, _, err = run("--write", str(tmp_path / "x.json"))
    assert code == 2 and "backend-sdk[test]" in err
    assert not (tmp_path / "x.json").exists()


def test_write_says_where_it_cannot(run, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = run("--write", str(tmp_path / "file" / "x.json"))
    assert code == 2 and "cannot write" in err


def test_op_infos_are_read_in_a_process_that_may_fail(monkeypatch):
    with OpInfoNames() as names:
        assert names.result() == list(op_catalogue.op_infos())
    monkeypatch.setattr(op_info_names, "_CHILD", "raise SystemExit('out of memory')")
    with OpInfoNames() as names, pytest.raises(OptionError, match="cannot be read: out of memory"):
        names.result()
    monkeypatch.setattr(op_info_names, "_CHILD", "import time; time.sleep(600)")
    with OpInfoNames() as names:
        child = names._child
    assert child.returncode is not None


BROKEN = {
    "no JSON": "{",
    "other JSON": "[]",
    "no format": "{}",
    "other format": '{"format": 99}',
    "no version": '{"format": 1, "torch": 2, "op_infos": [], "overloads": {}}',
    "odd version": '{"format": 1, "torch": "new", "op_infos": [], "overloads": {}}',
    "no overloads": '{"format": 1, "torch": "1.0.0", "op_infos": []}',
    "odd overload": '{"format": 1, "torch": "1.0.0", "op_infos": [], "overloads": {"aten.exp.default": 7}}',
    "no schema": '{"format": 1, "torch": "1.0.0", "op_infos": [], "overloads": {"aten.exp.default": {}}}',
    "binary": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_named(run, tmp_path, case):
    path = tmp_path / "broken.json"
    content = BROKEN[case]
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    code, out, err = run("--from", str(path))
    assert code == 2 and out == ""
    assert str(path) in err and "drift --write FILE" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--from", "1.13.0"), ["no baseline of torch 1.13.0", "known: 2.13.0, 2.14.1"]),
        (("--from", "2.14.0"), ["did you mean '2.14.1'"]),
        (("--from", "no/such/file.json"), ["cannot read the baseline no/such/file.json"]),
        (("--from", INSTALLED), [f"is of torch {INSTALLED}, which is the installed one"]),
        (("--from", OTHER, "--write", "x.json"), ["--write and --from exclude each other"]),
    ],
    ids=["unknown", "near", "no file", "installed", "both"],
)
def test_bad_input_is_refused(run, arguments, words):
    code, _, err = run(*arguments)
    assert code == 2
    for word in words:
        assert word in err


@pytest.mark.parametrize(
    ("installed_release", "expected"),
    [("2.15.0", "2.14.1"), ("2.14.2", "2.14.1"), ("2.14.1", "2.13.0"), ("2.14.0", "2.13.0"), ("2.15.0.dev1", "2.14.1")],
)
def test_the_newest_older_release_is_compared_with(monkeypatch, installed_release, expected):
    monkeypatch.setattr(torch, "__version__", installed_release + "+cpu")
    assert baseline.chosen(None).torch == expected


def test_without_an_older_release_it_says_what_there_is(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.13.0")
    with pytest.raises(
        OptionError,
        match=r"torch 2\.13\.0 is the oldest release .*: name another with --from; newer ones are 2\.14\.1",
    ):
        baseline.chosen(None)
