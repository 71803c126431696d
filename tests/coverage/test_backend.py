"""A proof on a vendor's backend: its claims and rules are put to torch's own samples.

What a vendor would lose: the numbers of a claim or a rule would be checked by their own tests only.
"""

from __future__ import annotations

import json

import pytest
import torch

from backend_sdk import cli
from backend_sdk.coverage.calls import level_of
from backend_sdk.coverage.journal import backend_digest
from backend_sdk.coverage.prove import FORWARD, OVERLOAD, Item, Status, prove

SOURCE = """
import torch
from backend_sdk import Backend, hookimpl, implements, prims
from backend_sdk.backends.reference import ReferenceBackend

aten = torch.ops.aten

class Whole(ReferenceBackend):
    name = "acme"

class Partial(Backend):
    name = "partial"

    @implements(prims.exp, prims.neg)
    def exp(x):
        return torch.exp(x)

    @implements(aten.hardswish.default)
    def hardswish(x):
        return torch.relu(x)

def hasty_celu(out, x, alpha=1.0):
    return prims.maximum(x, prims.full(shape=x.shape, value=0, dtype=x.dtype))

@hookimpl
def sdk_backends():
    return [Whole, Partial]

@hookimpl
def sdk_decompositions():
    return {aten.celu.default: hasty_celu}
"""


@pytest.fixture
def acme(packages):
    packages.add("acme-backend", {name: packages.module("acme_sdk", SOURCE) for name in ("acme", "partial")})
    return packages


@pytest.fixture
def run(command):
    def run(*arguments):
        code, out, err = command("coverage", *arguments)
        return code, out, " ".join(err.split())

    return run


def test_a_wrong_rule_fails_and_the_contract_beside_it_is_proven(acme):
    entry = prove(Item(FORWARD, "nn.functional.celu", "float32"), level_of("acme"), 2, ())
    assert entry.status == Status.MISMATCH
    assert prove(Item(FORWARD, "nn.functional.celu", "float32"), "prims", 2, ()).status == Status.PROVEN
    assert prove(Item(FORWARD, "exp", "float32"), level_of("acme"), 2, ()).status == Status.PROVEN


def test_wrong_claims_of_an_op_and_of_an_overload_fail(acme):
    assert prove(Item(FORWARD, "neg", "float32"), level_of("partial"), 2, ()).status == Status.MISMATCH
    assert prove(Item(FORWARD, "exp", "float32"), level_of("partial"), 2, ()).status == Status.PROVEN
    entry = prove(Item(OVERLOAD, "aten.hardswish.default", "float32"), level_of("partial"), None, ())
    assert entry.status == Status.MISMATCH


def test_the_command_proves_on_the_backend_and_reports_what_it_refuses(acme, run):
    chosen = ("--op", "exp", "--op", "sin", "--op", "neg", "--only", "forward", "--limit", "1")
    code, out, _ = run("--prove", "--backend", "partial", *chosen, "--json")
    report = json.loads(out)
    assert code == 1 and report["backend"] == "partial"
    found = {item["name"]: item for item in report["items"]}
    assert {name: item["status"] for name, item in found.items()} == {
        "exp": "proven",
        "sin": "refused",
        "neg": "mismatch",
    }
    assert found["sin"]["message"] == "refused by the backend: aten.sin.default (sin: it has no kernel for sin)"
    code, out, _ = run("--prove", "--backend", "partial", *chosen[:4], *chosen[6:])
    assert code == 0, "what a backend refuses is no failure"
    assert "Proven on the backend partial" in out and "sin: it has no kernel for sin" in out
    code, out, _ = run("--prove", "--backend", "partial", *chosen[2:4], *chosen[6:])
    assert code == 1 and "nothing is proven" in out


def test_the_reference_backend_is_proven(run):
    code, out, err = run(
        "--prove", "--backend", "reference", "--op", "add", "--op", "nn.functional.gelu", "--limit", "2"
    )
    assert code == 0, out + err


def test_a_journal_is_of_one_backend_as_it_is(acme, run, tmp_path):
    path = tmp_path / "journal.jsonl"
    chosen = ("--prove", "--op", "exp", "--only", "forward", "--limit", "1", "--journal", str(path))
    assert run(*chosen, "--backend", "partial")[0] == 0
    header = json.loads(path.read_text().splitlines()[0])
    assert (header["backend"], header["version"]) == ("partial", "0 (acme-backend 1.0)")
    assert run(*chosen, "--backend", "partial")[0] == 0
    code, _, err = run(*chosen)
    assert code == 2 and "level backend (now prims)" in err
    code, _, err = run(*chosen, "--backend", "acme")
    assert code == 2 and "backend partial (now acme)" in err
    code, out, _ = run("--journal", str(path), "--json")
    assert code == 0 and json.loads(out)["backend"] == "partial"
    with pytest.raises(SystemExit):
        cli.main(("spec", "publish", "--journal", str(path)))
    acme.module("acme_sdk", SOURCE + "\n")
    code, _, err = run(*chosen, "--backend", "partial")
    assert code == 2 and "other sources" in err


def test_a_digest_is_of_all_files_of_a_package():
    assert backend_digest(["json.decoder"]) == backend_digest(["json"]) != backend_digest(["keyword"])


def test_a_backend_takes_the_place_of_a_level(acme, run):
    code, _, err = run("--prove", "--op", "exp", "--level", "prims", "--backend", "partial")
    assert code == 2 and "--level and --backend" in err and "leave out --level" in err
    code, _, err = run("--backend", "partial")
    assert code == 2 and "--backend: for --prove only" in err
    code, _, err = run("--prove", "--op", "exp", "--backend", "partiall")
    assert code == 2 and "did you mean 'partial'?" in err
    code, _, err = run("--prove", "--op", "exp", "--backend", "null")
    assert code == 2 and "computes nothing" in err


def test_a_backend_with_memory_of_its_own_is_refused(acme, run, monkeypatch):
    from backend_sdk.runtime.device import Device

    class Elsewhere(Device):
        type = "meta"

    monkeypatch.setattr("acme_sdk.Partial.device", Elsewhere(), raising=False)
    code, _, err = run("--prove", "--op", "exp", "--backend", "partial")
    assert code == 2 and "takes tensors on meta" in err
    assert not Elsewhere().accepts(torch.device("cpu"))
