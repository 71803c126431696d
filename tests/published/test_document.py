"""The document says what the contract is, and its hash changes exactly when that does.

What a vendor would lose: a certificate names a version and a hash, and nobody could tell which contract that was.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import subprocess
import sys

import jsonschema
import pytest

from backend_sdk import dtypes
from backend_sdk.errors import OptionError, RegistryError
from backend_sdk.prims import CONTRACT
from backend_sdk.published import export
from backend_sdk.published.document import checked, load, parse_version, published_text, schema, text_of
from backend_sdk.published.export import INFORMATIVE, decoded, encoded, hash_of, is_elementwise, op_data, op_hash
from backend_sdk.published.publish import check_release, complaint
from backend_sdk.published.version import RELEASES, VERSION, Release
from backend_sdk.spec import Composite, Exact, Prim, Ulp
from backend_sdk.spec.prim import PROFILES


def test_what_is_published_is_what_the_contract_is(made):
    """Fails when the contract has changed; the message says what to run."""
    try:
        published = load(VERSION)
    except OptionError:
        published = None
    assert not complaint(published, made), complaint(published, made)


def test_the_document_keeps_to_its_schema(made):
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.validate(made, schema(), jsonschema.Draft202012Validator)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda op: op.pop("tolerance"),
        lambda op: op["tolerance"].clear(),
        lambda op: op["tolerance"]["float32"].update(kind="about"),
        lambda op: op["tolerance"]["float32"].update(ulp=-1),
        lambda op: op.update(surprise=1),
        lambda op: op["operands"][0]["dtype"].update({"from": "fixed"}),
        lambda op: op["special_values"]["float32"].append("infinity"),
        lambda op: op["special_values"]["complex64"].append([1.0, 2.0, 3.0]),
        lambda op: op.update(prims=["mul"]),
        lambda op: op.update(differentiable=False),
        lambda op: op["profiles"].append("fancy"),
        lambda op: op.update(hash="sha256:0"),
    ],
)
def test_the_schema_refuses_what_is_no_op(made, spoil):
    spec = copy.deepcopy(made)
    spoil(next(op for op in spec["ops"] if op["name"] == "exp"))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(spec, schema(), jsonschema.Draft202012Validator)


def test_the_document_holds_every_op_and_what_each_says_of_itself(made):
    ops = {op["name"]: op for op in made["ops"]}
    assert list(ops) == sorted(op.name for op in CONTRACT)
    for op in CONTRACT:
        data = ops[op.name]
        assert (data["kind"], data["doc"], data["differentiable"]) == (op.kind, op.doc, op.differentiable)
        assert [operand["name"] for operand in data["operands"]] == list(op.operand_names)
        assert [attribute["name"] for attribute in data["attributes"]] == list(op.attribute_names)
        assert len(data["results"]) == op.result_count
        assert set(data["tolerance"]) == {dtypes.name(dtype) for dtype in op.dtype_rule.result_dtypes}
        for dtype, values in data["special_values"].items():
            expected = op.specials(dtypes.by_name(dtype))
            assert [repr(decoded(value)) for value in values] == [repr(value) for value in expected]
    for profile in made["profiles"]:
        assert profile["ops"] == sorted(op.name for op in CONTRACT if profile["name"] in op.profiles)
    assert [profile["name"] for profile in made["profiles"]] == list(PROFILES)


def test_the_bounds_of_the_document_are_those_that_judge():
    ulp = Ulp(3, 1, floor=2)
    import torch

    assert ulp.bound_of(torch.float32) == {"kind": "ulp", "ulp": 3.0, "floor_epsilons": 2.0}
    assert ulp.bound_of(torch.bfloat16)["ulp"] == 1.0
    assert ulp.bound_of(torch.complex64)["magnitude_factor"] == pytest.approx(2 * math.sqrt(5))
    assert ulp.bound_of(torch.int64) == Exact().bound_of(torch.int64) == {"kind": "exact"}
    assert CONTRACT["dot_general"].tolerance.bound_of(torch.float32)["units_per_block"] == 6.0
    half = CONTRACT["dot_general"].tolerance.bound_of(torch.float16)
    assert (half["units_per_block"], half["fraction_bits"], half["accumulator_bits"]) == (2.0, 10, 23)


def test_a_body_becomes_prims_and_a_prim_has_none(made):
    for data in made["ops"]:
        op = CONTRACT[data["name"]]
        assert all(CONTRACT[name].kind == "prim" for name in data["prims"])
        assert bool(data["prims"]) == isinstance(op, Composite)
        assert op.name not in data["uses"]
        assert data["source"].startswith(f"def {op.name}(")
        assert '"""' not in data["source"]


def test_the_names_that_an_attribute_takes_are_all_that_it_takes(made):
    from backend_sdk.errors import DialectError

    with_names = [(op, a) for op in made["ops"] for a in op["attributes"] if a["type"] == "name"]
    assert with_names
    for data, attribute in with_names:
        op = CONTRACT[data["name"]]
        sample = export._examples(op)[0]
        with pytest.raises(DialectError):
            op.infer(export.types_of(sample), {**sample.attributes, attribute["name"]: "no such name"})


def test_elementwise_ops_map_each_element_by_itself():
    """What the shape rule suggests, the reference keeps: results of a permuted operand are the permuted results."""
    import torch

    ops = [op for op in CONTRACT if is_elementwise(op)]
    assert len(ops) > 50 and CONTRACT["gelu"] in ops and CONTRACT["cumsum"] not in ops and CONTRACT["qr"] not in ops
    for op in ops:
        sample = next(s for s in export._examples(op) if max(x.numel() for x in s.operands) > 1)
        order = torch.randperm(sample.operands[0].numel(), generator=torch.Generator().manual_seed(1))
        flat = [x.reshape(-1) for x in sample.operands]
        straight = op.reference(*flat, **sample.attributes)[order]
        shuffled = op.reference(*(x[order] for x in flat), **sample.attributes)
        assert torch.allclose(straight, shuffled, rtol=1e-5, atol=1e-6, equal_nan=True), op.name


@pytest.mark.parametrize(
    "value", [0.0, -0.0, 1.5, math.inf, -math.inf, math.nan, 2**63 - 1, True, complex(-0.0, math.nan)]
)
def test_numbers_survive_json(value):
    text = json.dumps(encoded(value), allow_nan=False)
    assert repr(decoded(json.loads(text))) == repr(value)


# ---- the hash


def _leaves(data, path=()):
    if isinstance(data, dict) and data:
        for key, value in data.items():
            yield from _leaves(value, (*path, key))
    elif isinstance(data, list) and data:
        for index, value in enumerate(data):
            yield from _leaves(value, (*path, index))
    else:
        yield path


def _spoiled(value):
    if isinstance(value, bool):
        return not value
    return value / 2 + 17.5 if isinstance(value, (int, float)) else [value, "x"] if value in ({}, []) else f"{value}x"


@pytest.mark.parametrize("name", ["exp", "layer_norm", "scatter", "svd", "full"])
def test_the_hash_covers_every_leaf_but_the_informative(made, name):
    op = next(op for op in made["ops"] if op["name"] == name)
    for path in _leaves(op):
        spoiled = copy.deepcopy(op)
        place = spoiled
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = _spoiled(place[path[-1]])
        assert (op_hash(spoiled) != op["hash"]) == (path[0] not in INFORMATIVE), path


def test_the_hash_of_the_whole_covers_ops_and_profiles(made, changed):
    assert hash_of(made) == made["hash"]
    for edit in (
        lambda ops, spec: ops["exp"]["special_values"]["float32"].pop(),
        lambda ops, spec: spec["ops"].pop(),
        lambda ops, spec: spec["profiles"].pop(),
    ):
        assert changed(edit)["hash"] != made["hash"]
    assert changed(lambda ops, spec: ops["exp"].update(doc="Another text."), "2.0.0")["hash"] == made["hash"]
    assert changed(lambda ops, spec: spec["ops"].reverse())["hash"] == made["hash"]


def test_the_hash_can_be_computed_without_the_sdk(made):
    """By the recipe of the schema: anybody can check a document."""

    def canonical(data):
        text = json.dumps(data, sort_keys=True, separators=(",", ":"))
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()

    left_out = ["hash", "signature", "doc", "dtype_rule", "elementwise", "source", "uses", "prims"]
    left_out += ["examples", "edge_cases", "gradient"]
    described = schema()["$defs"]["op"]["properties"]["hash"]["description"]
    assert set(left_out) == INFORMATIVE and all(word in described for word in left_out)
    read = json.loads(text_of(made))
    hashes = {op["name"]: canonical({k: v for k, v in op.items() if k not in left_out}) for op in read["ops"]}
    assert hashes == {op["name"]: op["hash"] for op in read["ops"]}
    profiles = sorted(profile["name"] for profile in read["profiles"])
    assert canonical({"format": read["format"], "profiles": profiles, "ops": hashes}) == read["hash"]


@pytest.mark.parametrize("seed", ["0", "4711"])
def test_another_process_makes_the_same_hash(made, seed):
    import os

    code = "from backend_sdk.published.export import document; print(document()['hash'])"
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert found.stdout.strip() == made["hash"]


# ---- definitions that cannot be published


def test_an_attribute_of_an_unknown_type_is_named():
    def odd(x, *, table: dict):
        """x."""
        return x

    op = CONTRACT["exp"]
    parts = {"dtype_rule": op.dtype_rule, "tolerance": op.tolerance, "samples": op.samples, "specials": op.specials}
    odd.__annotations__["table"] = "dict[str, int]"
    made = Prim(odd, shape_rule=lambda x, *, table: x.shape, profiles=("base",), **parts)
    with pytest.raises(RegistryError, match=r"prim 'odd': attribute table is annotated 'dict\[str, int\]'"):
        op_data(made)


# ---- versions


def test_the_releases_are_in_order_and_each_has_its_document():
    versions = [parse_version(release.version) for release in RELEASES]
    assert versions == sorted(set(versions), reverse=True)
    for release in RELEASES:
        assert load(release.version)["version"] == release.version
        assert text_of(json.loads(published_text(release.version))) == published_text(release.version)
    assert all(release.date for release in RELEASES[1:]), "only the newest version may be without a date"


def test_a_released_version_is_not_published_with_another_meaning(made, changed, tmp_path):
    path = tmp_path / "1.0.0.json"
    path.write_text(text_of(made))
    released = (Release("1.0.0", "2026-01-01", "First."),)
    tighter = changed(lambda ops, spec: ops["exp"]["tolerance"]["float32"].update(ulp=1.0))
    check_release(path, made, released)
    check_release(path, tighter, (Release("1.0.0", "", "Not yet."),))
    with pytest.raises(OptionError, match=r"1\.0\.0 of the contract was released on 2026-01-01") as caught:
        check_release(path, tighter, released)
    assert "2.0.0 or higher" in str(caught.value) and "backend-sdk spec publish" in str(caught.value)


def test_the_complaint_says_what_changed_and_what_to_run(made, changed):
    tighter = changed(lambda ops, spec: ops["exp"]["tolerance"]["float32"].update(ulp=1.0))
    released, open_ = ((Release(VERSION, date, ""),) for date in ("2026-01-01", ""))
    assert complaint(made, made, released) == ""
    assert "has no document: run `backend-sdk spec publish`" in complaint(None, made, open_)
    said = complaint(made, tighter, released)
    assert "exp: tolerance tightened float32: was 3 ULP, is 1 ULP" in said and "2.0.0 or higher" in said
    assert "is not released yet: run `backend-sdk spec publish`" in complaint(made, tighter, open_)
    other_text = changed(lambda ops, spec: ops["exp"].update(doc="Another."))
    assert "is stale (its meaning is the same)" in complaint(made, other_text, released)


# ---- documents that are none


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("[]", "is no document of the contract"),
        ('{"format": 1}', "is no document of the contract"),
        ('{"spec": "backend-sdk contract", "format": 2}', "has the format 2, and this release of the SDK reads 1"),
        ('{"spec": "backend-sdk contract", "format": 1}', "lacks parts of a document"),
        ('{"spec": "backend-sdk contract", "format": 1, "ops": 7, "profiles": []}', "lacks parts of a document"),
        ('{"spec": "backend-sdk contract", "format": 1, "profile": "base", "ops": []}', "holds the profile base alone"),
    ],
)
def test_what_is_no_document_is_refused(text, said):
    with pytest.raises(OptionError, match=said):
        checked(text, "FILE")


def test_a_document_that_was_changed_by_hand_is_refused(made):
    for edit in (
        lambda spec: spec["ops"][3].update(structural=not spec["ops"][3]["structural"]),
        lambda spec: spec["ops"].pop(),
        lambda spec: spec.update(hash="sha256:" + "0" * 64),
        lambda spec: spec["ops"][3].update(hash="sha256:" + "0" * 64),
    ):
        spec = copy.deepcopy(made)
        edit(spec)
        with pytest.raises(OptionError, match="is not what its hash says"):
            checked(json.dumps(spec), "FILE")
    with pytest.raises(OptionError, match="lacks parts of a document"):
        checked(json.dumps({**made, "version": "1.0"}), "FILE")


def test_a_source_that_names_nothing_is_refused(tmp_path):
    with pytest.raises(OptionError, match=r"no version '9\.9\.9' of the contract was published.*1\.0\.0"):
        load("9.9.9")
    with pytest.raises(OptionError, match="is no published version and no file: did you mean 'installed'"):
        load("instaled")
    binary = tmp_path / "spec.json"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(OptionError, match="cannot be read as text"):
        load(str(binary))


def test_text_is_json_of_short_lines():
    data = {"a": [1, "x"], "b": {"c": [{"d": i} for i in range(40)]}, "e": ["word"] * 60, "f": [], "g": {}}
    text = text_of(data)
    assert json.loads(text) == data
    assert max(map(len, text.splitlines())) <= 120
