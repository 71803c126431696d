"""How gradients reach the contract, and what aten becomes: the published measurements hold when they are run again.

What a vendor would lose: the list of prims that training an op needs, and it would not be the true one.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from backend_sdk.coverage.calls import PRIMS, quiet
from backend_sdk.coverage.prove import FORWARD, Entry, Item, Status, prove
from backend_sdk.errors import RegistryError
from backend_sdk.prims import CONTRACT
from backend_sdk.published import decomposers
from backend_sdk.published.export import body_prims, document
from backend_sdk.published.measured import gradients, measure, measured, torch_release
from backend_sdk.published.publish import PACKAGE, REGENERATE, publish
from backend_sdk.published.version import VERSION
from backend_sdk.spec import Prim


@pytest.fixture(autouse=True, scope="module")
def _quiet():
    threads = torch.get_num_threads()
    quiet()
    yield
    torch.set_num_threads(threads)


def test_each_differentiable_op_has_a_measured_gradient_and_no_other():
    expected = {op.name for op in CONTRACT if op.differentiable}
    assert set(gradients()) == expected, f"measure again: `{REGENERATE}`"
    assert set(measured()["gradients"]) == expected, f"measure again: `{REGENERATE}`"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_measured_gradient_is_what_running_it_shows(differentiable_op):
    """The proof within compares the numbers with eager's and refuses anything but prims."""
    found = measure(differentiable_op)
    assert all(CONTRACT[name].kind == "prim" for name in found["prims"])
    if measured()["torch"] == torch_release():
        expected = measured()["gradients"][differentiable_op.name]["path"]
        assert found == expected, f"a decomposition has changed: `{REGENERATE} --everything`"


def test_an_op_that_torch_cannot_differentiate_must_not_say_that_it_is():
    def rounded(x):
        """x."""
        return torch.geqrf(x)[0]

    op = CONTRACT["householder_qr"]
    parts = {"dtype_rule": op.dtype_rule, "tolerance": op.tolerance, "specials": op.specials}
    claims = Prim(rounded, shape_rule=op.shape_rule, samples=op.samples, profiles=("linalg",), **parts)
    with pytest.raises(RegistryError, match="'rounded' is declared differentiable, but torch has no derivative"):
        measure(claims)


def test_only_some_operands_of_an_op_may_have_a_gradient():
    paths = gradients()
    assert paths["incomplete_gamma"]["operands"] == ["x"]
    assert "exp" in paths["incomplete_gamma"]["prims"]
    assert paths["dot_general"]["operands"] == list(CONTRACT["dot_general"].operand_names)
    assert paths["exp"]["aten"]["aten.mul.Tensor"] == ["mul"]
    assert paths["add"]["aten"] == {}


def test_publishing_an_unchanged_contract_writes_the_same_files(tmp_path):
    written = publish(tmp_path)
    assert [path.relative_to(tmp_path) for path in written] == [Path("measured.json"), Path(f"versions/{VERSION}.json")]
    if measured()["torch"] == torch_release():
        for path in written:
            assert path.read_text() == (PACKAGE / path.relative_to(tmp_path)).read_text()


def test_publishing_takes_reductions_from_proofs_and_measures_what_changed(tmp_path, monkeypatch):
    kept = {**measured(), "torch": torch_release(), "gradients": {**measured()["gradients"]}}
    kept["gradients"]["exp"] = {"reference": "0" * 64, "path": {"prims": ["stale"]}}
    monkeypatch.setattr("backend_sdk.published.measured._kept", lambda: kept)
    entry = Entry(
        "forward/exp/float32", Status.PROVEN, reduced={"aten.exp.default": ["exp"], "aten.detach.default": []}
    )
    numbers, _ = publish(tmp_path, proofs=[({"torch": "9.9", "level": "prims"}, [entry])])
    made = json.loads(numbers.read_text())
    assert made["gradients"]["exp"]["path"]["prims"] == ["mul"]
    expected = {"made_by": [{"torch": "9.9", "level": "prims"}], "items": 1, "ops": {"aten.exp.default": ["exp"]}}
    assert made["reductions"] == expected


# ---- who decomposes to an op


@pytest.mark.parametrize(
    "name", ["abs", "addmm", "cumsum", "gather", "nn.functional.gelu", "nn.functional.layer_norm", "softmax", "var"]
)
def test_the_measured_reductions_are_what_running_them_shows(name):
    table = measured()["reductions"]["ops"]
    entry = prove(Item(FORWARD, name, "float32"), PRIMS, 1, [])
    assert entry.status == Status.PROVEN
    assert any(entry.reduced.values())
    for overload, ops in entry.reduced.items():
        assert set(ops) <= set(table.get(overload, [])), f"{overload}: `{REGENERATE} --journal JOURNAL`"


def test_a_measured_reduction_by_our_rule_names_no_op_that_the_rule_does_not_reach():
    """The two sources agree: what a call became is among what the code of its rule names, or what bodies become."""
    rules = decomposers.rule_ops()
    within = {name: {name} for name in (op.name for op in CONTRACT)}
    for op in CONTRACT:
        if op.kind == "composite":
            within[op.name] |= body_prims(op)
    strays = {}
    for overload, ops in measured()["reductions"]["ops"].items():
        if overload in rules:
            reach = set().union(*(within[name] for name in rules[overload]))
            strays.update({overload: sorted(set(ops) - reach)} if set(ops) - reach else {})
    assert not strays


def test_every_op_has_somebody_who_decomposes_to_it():
    reached = decomposers.origins().keys() | decomposers.users(document()).keys()
    assert {op.name for op in CONTRACT} - reached == set()
