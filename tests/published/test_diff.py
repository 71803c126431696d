"""What a new version asks of a vendor is said in full, and a version that moves too little is refused.

What a vendor would lose: an upgrade that breaks a kernel under a version number that promised it would not.
"""

from __future__ import annotations

import copy
import json

import pytest

from backend_sdk import cli
from backend_sdk.errors import OptionError
from backend_sdk.published.diff import RULES, Action, Bump, Change, Diff, compare, in_words
from backend_sdk.published.document import text_of
from backend_sdk.published.export import INFORMATIVE


def _remove(name):
    def edit(ops, spec):
        spec["ops"] = [op for op in spec["ops"] if op["name"] != name]

    return edit


def _add(name, like):
    def edit(ops, spec):
        spec["ops"].append({**copy.deepcopy(ops[like]), "name": name})

    return edit


def _set(name, /, **fields):
    return lambda ops, spec: ops[name].update(fields)


def _operand(name, index, /, **fields):
    return lambda ops, spec: ops[name]["operands"][index].update(fields)


def _attribute(name, index, /, **fields):
    return lambda ops, spec: ops[name]["attributes"][index].update(fields)


def _bound(name, dtype, /, **fields):
    return lambda ops, spec: ops[name]["tolerance"][dtype].update(fields)


def _replace_bound(name, dtype, bound):
    return lambda ops, spec: ops[name]["tolerance"].update({dtype: bound})


# What is edited, and the changes that must be seen: (op, kind) pairs.
CASES = [
    (_add("exp3", "exp"), [("exp3", "prim added")]),
    (_add("gelu2", "gelu"), [("gelu2", "composite added")]),
    (_remove("exp"), [("exp", "op removed")]),
    (_set("exp", kind="composite"), [("exp", "prim became a composite")]),
    (_set("gelu", kind="prim", prims=[]), [("gelu", "composite became a prim")]),
    (lambda ops, spec: ops["exp"]["operands"].append(ops["exp"]["operands"][0]), [("exp", "operands changed")]),
    (_operand("take", 1, dtype={"from": "fixed", "name": "int32"}), [("take", "operands changed")]),
    (_operand("exp", 0, variadic=True), [("exp", "operands changed")]),
    (_operand("exp", 0, name="value"), [("exp", "operands renamed")]),
    (_operand("exp", 0, optional=True), [("exp", "operand may be absent")]),
    (_operand("linear", 2, optional=False), [("linear", "operand is always given")]),
    (
        lambda ops, spec: ops["exp"]["attributes"].append({"name": "base", "type": "float"}),
        [("exp", "attribute added")],
    ),
    (lambda ops, spec: ops["take"]["attributes"].pop(), [("take", "attribute removed")]),
    (_attribute("take", 0, type="ints"), [("take", "attribute has another type")]),
    (_attribute("gelu", 0, values=["none", "tanh", "sigmoid"]), [("gelu", "attribute takes more")]),
    (_attribute("gelu", 0, values=["none"]), [("gelu", "attribute takes less")]),
    (
        lambda ops, spec: ops["exp"]["results"].append({"from": "fixed", "name": "bool"}),
        [("exp", "results changed")],
    ),
    (lambda ops, spec: ops["exp"]["dtype_variables"]["T"].append("int32"), [("exp", "dtypes widened")]),
    (lambda ops, spec: ops["exp"]["dtype_variables"]["T"].pop(), [("exp", "dtypes narrowed")]),
    (_bound("exp", "float32", ulp=2.0), [("exp", "tolerance tightened")]),
    (_bound("exp", "float32", ulp=4.0), [("exp", "tolerance loosened")]),
    (_bound("exp", "float32", ulp=2.0, floor_epsilons=1.0), [("exp", "tolerance changed")]),
    (_bound("dot_general", "float16", accumulator_bits=10), [("dot_general", "tolerance changed")]),
    (_replace_bound("exp", "float32", {"kind": "exact"}), [("exp", "tolerance tightened")]),
    (_replace_bound("neg", "int32", {"kind": "relative", "epsilons": 4.0}), [("neg", "tolerance loosened")]),
    (_replace_bound("exp", "float32", {"kind": "relative", "epsilons": 4.0}), [("exp", "tolerance changed")]),
    (
        lambda ops, spec: ops["exp"]["special_values"]["float32"].append(88.72284),
        [("exp", "special values added")],
    ),
    # 0.0 and -0.0 are two values.
    (lambda ops, spec: ops["exp"]["special_values"]["float32"].remove(0.0), [("exp", "special values removed")]),
    (_set("exp", profiles=["base", "training"]), [("exp", "prim joined a profile")]),
    (_set("gelu", profiles=["base", "training"]), [("gelu", "composite joined a profile")]),
    (
        _set("random_bits", profiles=["base"]),
        [("random_bits", "prim joined a profile"), ("random_bits", "op left a profile")],
    ),
    (lambda ops, spec: spec["profiles"].append({"name": "sparse", "ops": []}), [("", "profile added")]),
    (lambda ops, spec: spec["profiles"].pop(), [("", "profile removed")]),
    (_set("floor", differentiable=True), [("floor", "became differentiable")]),
    (_set("exp", differentiable=False), [("exp", "is not differentiable any more")]),
    (_set("exp", structural=True), [("exp", "structural flag changed")]),
    (lambda ops, spec: ops["exp"]["definition"].update(reference="0" * 64), [("exp", "reference rewritten")]),
    (lambda ops, spec: ops["gelu"]["definition"].update(reference="0" * 64), [("gelu", "body rewritten")]),
    (lambda ops, spec: ops["exp"]["definition"].update(shape_rule="0" * 64), [("exp", "shape rule rewritten")]),
    (lambda ops, spec: ops["exp"]["definition"].update(tolerance="0" * 64), [("exp", "judgement rewritten")]),
    (lambda ops, spec: ops["convolution"]["attributes"].reverse(), [("convolution", "changed otherwise")]),
    (_set("exp", doc="Another text."), [("exp", "text changed")]),
]


@pytest.mark.parametrize(("edit", "expected"), CASES, ids=[case[1][0][1] for case in CASES])
def test_each_kind_of_change_is_seen_as_what_it_is(made, changed, edit, expected):
    found = compare(made, changed(edit, "9.0.0"))
    assert sorted((change.op, change.kind) for change in found.changes) == sorted(expected)


def test_every_row_of_the_table_is_reached_and_asks_for_something():
    assert {kind for _, expected in CASES for _, kind in expected} == set(RULES)
    for rule in RULES.values():
        assert rule.todo
        # Who must act must be told by more than a patch; what breaks a kernel is nothing to do for nobody.
        assert rule.bump >= Bump.MINOR if rule.action == Action.MUST else rule.bump < Bump.MAJOR


def test_no_change_of_a_binding_field_goes_unseen(made, changed):
    for name in ("exp", "layer_norm", "scatter", "svd", "concat"):
        op = next(op for op in made["ops"] if op["name"] == name)
        for field in op.keys() - INFORMATIVE - {"name"}:

            def edit(ops, spec, name=name, field=field):
                value = ops[name][field]
                if isinstance(value, bool):
                    ops[name][field] = not value
                elif isinstance(value, dict):
                    ops[name][field] = dict(list(value.items())[:-1]) if field == "special_values" else value
                    if field == "definition":
                        ops[name][field] = {**value, "reference": "1" * 64}
                    if field == "tolerance":
                        ops[name][field] = {dtype: {"kind": "relative", "epsilons": 0.25} for dtype in value}
                    if field == "dtype_variables":
                        ops[name][field] = {key: list(reversed(domain)) for key, domain in value.items()}
                elif isinstance(value, list):
                    ops[name][field] = value[:-1] if value else [{"name": "n", "type": "int"}]
                else:
                    ops[name][field] = "composite" if value == "prim" else "prim"

            spec = changed(edit, "9.0.0")
            found = compare(made, spec)
            assert (spec["hash"] != made["hash"]) == bool(found.required), (name, field)
            assert {change.op for change in found.changes} <= {name}


def test_a_change_of_a_composite_concerns_only_who_claims_it(made, changed):
    def edit(ops, spec):
        for name in ("gelu", "exp"):
            ops[name]["tolerance"]["float32"]["ulp"] = 0.5

    by_op = {change.op: change for change in compare(made, changed(edit, "2.0.0")).changes}
    assert by_op["gelu"].if_claimed and not by_op["exp"].if_claimed
    assert by_op["gelu"].rule.action == by_op["exp"].rule.action == Action.MUST


def test_a_renamed_dtype_variable_is_no_new_rule(made, changed):
    def edit(ops, spec):
        op = ops["exp"]
        op["dtype_variables"] = {"F": op["dtype_variables"]["T"]}
        op["operands"][0]["dtype"]["name"] = op["results"][0]["name"] = "F"

    (change,) = compare(made, changed(edit, "1.0.1")).changes
    assert change.kind == "changed otherwise"


def test_what_asks_for_most_comes_first_with_its_profiles(made, changed):
    def edit(ops, spec):
        _add("exp3", "exp")(ops, spec)
        _set("log", doc="Another.")(ops, spec)
        _bound("svd", "float32", epsilons_per_size=10.0)(ops, spec)

    found = compare(made, changed(edit, "2.0.0"))
    assert [(change.op, change.profiles) for change in found.changes] == [
        ("svd", ("linalg",)),
        ("exp3", ("base",)),
        ("log", ("base",)),
    ]
    assert found.changes[0].detail == (
        "float32: was U S V^H = A, U^H U = V^H V = 1 within 30 N epsilons, N the largest dimension, is "
        "U S V^H = A, U^H U = V^H V = 1 within 10 N epsilons, N the largest dimension"
    )


@pytest.mark.parametrize(
    ("kind", "old", "new", "fits", "least"),
    [
        ("tolerance tightened", "1.2.3", "2.0.0", True, "2.0.0"),
        ("tolerance tightened", "1.2.3", "1.3.0", False, "2.0.0"),
        ("prim added", "1.2.3", "1.3.0", True, "1.3.0"),
        ("prim added", "1.2.3", "2.0.0", True, "1.3.0"),
        ("prim added", "1.2.3", "1.2.4", False, "1.3.0"),
        ("body rewritten", "1.2.3", "1.2.4", True, "1.2.4"),
        ("body rewritten", "1.2.3", "1.2.3", False, "1.2.4"),
        ("text changed", "1.2.3", "1.2.3", True, "1.2.3"),
    ],
)
def test_a_version_has_to_move_as_far_as_its_changes(kind, old, new, fits, least):
    found = Diff(old, new, (Change("exp", "text changed"), Change("exp", kind)))
    assert (found.fits, found.least_version) == (fits, least)
    assert found.to_json()["fits"] == fits


def test_the_older_document_comes_first(made, changed):
    with pytest.raises(OptionError, match=r"version 1\.1\.0 is newer than 1\.0\.0"):
        compare(changed(lambda ops, spec: None, "1.1.0"), made)


def test_every_bound_has_words(made):
    words = {in_words(bound) for op in made["ops"] for bound in op["tolerance"].values()}
    assert "exact" in words and len(words) > 10


# ---- the command


@pytest.fixture
def run(capsys):
    def run(*arguments):
        code = 0
        try:
            cli.main(["spec", "diff", *map(str, arguments)])
        except SystemExit as stop:
            code = stop.code or 0
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def tighter(changed, tmp_path):
    """A file with a contract in which exp must be more exact and a prim is new, under the version asked for."""

    def write(version):
        def edit(ops, spec):
            _bound("exp", "float32", ulp=1.0)(ops, spec)
            _add("exp3", "exp")(ops, spec)
            _add("gelu2", "gelu")(ops, spec)

        path = tmp_path / f"{version}.json"
        path.write_text(text_of(changed(edit, version)))
        return path

    return write


def test_diff_says_what_a_vendor_must_do(run, tighter):
    code, output, error = run("1.0.0", tighter("2.0.0"))
    assert (code, error) == (0, "")
    must, nothing = output.split("nothing to do (1)")
    assert "must act (2)" in must and "tolerance tightened: float32: was 3 ULP, is 1 ULP" in must
    assert "exp3" in must and "implement it to keep its profiles" in must
    assert "gelu2" in nothing and "its body runs on the prims" in nothing
    assert "1.0.0 to 2.0.0: the changes ask for a major step, the version makes a major step." in nothing


def test_diff_refuses_a_version_that_moves_too_little(run, tighter):
    code, output, _ = run("1.0.0", tighter("1.1.0"))
    assert code == 1
    assert "FAILED: 1.0.0 to 1.1.0: the changes ask for a major step, the version makes a minor step" in output
    assert "call it 2.0.0 or higher" in output
    code, output, error = run("1.0.0", tighter("1.1.0"), "--json")
    assert (code, error) == (1, "")
    data = json.loads(output)
    assert (data["required_bump"], data["given_bump"], data["fits"]) == ("major", "minor", False)
    assert {change["action"] for change in data["changes"]} == {"must act", "nothing to do"}
    assert next(c for c in data["changes"] if c["op"] == "exp3")["profiles"] == ["base"]


def test_diff_of_equal_contracts_is_empty(run):
    code, output, _ = run("1.0.0", "installed")
    assert code == 0 and "1.0.0 and 1.0.0: no change." in output
    code, output, _ = run("1.0.0", "--json")
    assert code == 0 and json.loads(output)["changes"] == []


def test_diff_answers_bad_input_with_code_2(run, tmp_path, tighter):
    bad = tmp_path / "bad.json"
    bad.write_text("{")
    for arguments, said in (
        (("3.0.0", "installed"), "no version '3.0.0'"),
        (("1.0.0", bad), "is not JSON"),
        (("1.0.0", tmp_path / "none.json"), "is no published version and no file"),
        ((tighter("2.0.0"), "installed"), "name the older document first"),
        (("1.0.0", tmp_path), "is no published version and no file"),
        ((), "Missing argument"),
    ):
        code, output, error = run(*arguments)
        assert (code, output) == (2, ""), arguments
        assert said in error and "Traceback" not in error
