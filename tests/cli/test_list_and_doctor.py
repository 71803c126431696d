"""`list` and `doctor`. Were they wrong, a vendor would look for the fault in the wrong package."""

import json
import logging
import sys

import pytest

from backend_sdk.cli import environment
from backend_sdk.plugins import load_plugin
from backend_sdk.plugins.diagnosis import Status
from backend_sdk.plugins.probe import probe

HOOK = "from backend_sdk.plugins import hookimpl\n"


def statuses(output):
    return {check["name"]: check for check in json.loads(output)["checks"]}


@pytest.fixture
def quick(monkeypatch):
    """Loads plugins in this process: the tests of the processes of their own are below."""
    from backend_sdk.plugins import probe as module

    monkeypatch.setattr(module, "_probe", lambda name, timeout: module._load(name))


def test_list_shows_each_backend_its_package_and_whether_it_loads(packages, run, quick):
    packages.working("acme")
    packages.add("bad", {"bad": packages.module("bad_sdk", "raise OSError('no driver\\nat all')")}, version="0.3")
    code, output, _ = run("list", "--json")
    assert code == 0
    rows = {row["name"]: row for row in json.loads(output)}
    assert rows["acme"] == {
        "name": "acme",
        "distribution": "acme-backend",
        "version": "1.0",
        "module": "acme_sdk",
        "loads": True,
        "error": "",
        "torch_compile": True,
    }
    assert not rows["bad"]["loads"] and not rows["bad"]["torch_compile"]
    assert "OSError: no driver" in rows["bad"]["error"] and "at all" not in rows["bad"]["error"]
    assert rows["reference"]["loads"]
    code, output, _ = run("list")
    assert code == 0
    for part in ("acme-backend", "bad 0.3", "no driver", "sdk:acme", "no line"):
        assert part in " ".join(output.split())


def test_doctor_finds_each_fault_and_says_what_to_do(packages, run, quick):
    packages.working("acme")
    packages.working("lineless", line=False)
    packages.working("astray", line=False)
    packages.add("astray-lines", {}, dynamo_lines={"sdk:astray": "astray_sdk:compile", "sdk:orphan": "x:y"})
    packages.add("bad", {"bad": packages.module("bad_sdk", "import no_such_driver")})
    packages.add("one", {"both": "one_sdk"})
    packages.add("two", {"both": "two_sdk"}, version="2.0")
    code, output, _ = run("doctor", "--json")
    assert code == 3
    checks = statuses(output)
    assert checks["plugin acme"]["status"] == "ok"
    assert checks["torch.compile sdk:acme"]["status"] == "ok"
    bad = checks["plugin bad"]
    assert bad["status"] == "failed" and "bad 1.0" in bad["detail"]
    assert "import no_such_driver" in bad["traceback"] and "ModuleNotFoundError" in bad["traceback"]
    both = checks["collision both"]
    assert both["status"] == "failed"
    assert "one 1.0 (one_sdk)" in both["detail"] and "two 2.0 (two_sdk)" in both["detail"]
    lineless = checks["torch.compile sdk:lineless"]
    assert lineless["status"] == "failed" and "lineless-backend 1.0 lacks the line" in lineless["detail"]
    assert '"sdk:lineless" = "backend_sdk.dynamo:lineless"' in lineless["hint"]
    assert "[project.entry-points.torch_dynamo_backends] of lineless-backend" in lineless["hint"]
    astray = checks["torch.compile sdk:astray"]
    assert astray["status"] == "failed" and "'astray_sdk:compile'" in astray["detail"]
    assert "astray-lines 1.0" in astray["detail"]
    orphan = checks["torch.compile sdk:orphan"]
    assert orphan["status"] == "failed" and "no package has the backend 'orphan'" in orphan["detail"]


def test_doctor_prints_the_whole_traceback_of_a_broken_plugin(packages, run, quick):
    packages.add("bad", {"bad": packages.module("bad_sdk", "def load():\n    return 1 / 0\n\nload()\n")})
    code, output, _ = run("doctor", "--backend", "bad")
    assert code == 3
    assert "bad_sdk.py" in output and "return 1 / 0" in output and "ZeroDivisionError" in output
    assert "failed" in output


def test_a_forgotten_line_fails_the_check_but_breaks_no_plugin(packages, run, quick):
    packages.working("lineless", line=False)
    code, output, _ = run("doctor", "--json")
    assert code == 1
    assert statuses(output)["plugin lineless"]["status"] == "ok"


def test_doctor_of_one_backend_looks_at_that_one_only_and_checks_its_ops(packages, run, quick):
    packages.add("bad", {"bad": packages.module("bad_sdk", "raise OSError")})
    source = HOOK + (
        "import torch\n"
        "from backend_sdk import prims\n"
        "from backend_sdk.backend import Backend, implements\n"
        "@implements(prims.exp)\ndef exp(x):\n    return torch.exp(x)\n"
        "@implements(prims.log)\ndef log(x):\n    return torch.log2(x)\n"
        "class Acme(Backend):\n    name = 'acme'\n"
        "@hookimpl\ndef sdk_backends():\n    return [Acme]\n"
    )
    packages.add(
        "acme-backend",
        {"acme": packages.module("acme_sdk", source)},
        dynamo_lines={"sdk:acme": "backend_sdk.dynamo:acme"},
    )
    code, output, _ = run("doctor", "--backend", "acme", "--json")
    assert code == 1
    assert not any("bad" in name for name in statuses(output))
    verdicts = {(one["op"], one["dtype"]): one for one in json.loads(output)["ops"]}
    assert verdicts["exp", "float32"]["verdict"] == "pass"
    assert verdicts["log", "float32"]["verdict"] == "mismatch"
    assert "times its tolerance" in verdicts["log", "float32"]["reason"]
    assert verdicts["sin", "float32"]["verdict"] == "refused"
    code, output, _ = run("doctor", "--backend", "acme")
    assert code == 1
    assert "float32: mismatch: the error is" in output and "in log(float32[" in output
    (refusal,) = [line for line in output.splitlines() if "it has no kernel for" in line]
    assert "sin" in refusal and " exp," not in refusal


def test_doctor_of_a_good_backend_exits_with_0(packages, run, quick):
    source = HOOK + (
        "import torch\n"
        "from backend_sdk import prims\n"
        "from backend_sdk.backend import Backend, implements\n"
        "@implements(prims.exp)\ndef exp(x):\n    return torch.exp(x)\n"
        "class Acme(Backend):\n    name = 'acme'\n"
        "@hookimpl\ndef sdk_backends():\n    return [Acme]\n"
    )
    packages.add(
        "acme-backend",
        {"acme": packages.module("acme_sdk", source)},
        dynamo_lines={"sdk:acme": "backend_sdk.dynamo:acme"},
    )
    code, output, _ = run("doctor", "--backend", "acme")
    assert code == 0, output
    assert "0 failed" in output and "0 mismatch, 0 raised" in output


def test_doctor_of_an_unknown_backend_is_wrong_usage(packages, run):
    packages.working("acme")
    code, output, error = run("doctor", "--backend", "acne", "--json")
    assert (code, output) == (2, "")
    assert "did you mean 'acme'?" in error


def test_a_plugin_is_loaded_in_a_process_of_its_own(packages):
    packages.working("acme")
    packages.add("exits", {"exits": packages.module("exits_sdk", "import os; os._exit(5)")})
    packages.add(
        "dies", {"dies": packages.module("dies_sdk", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")}
    )
    packages.add("talks", {"talks": packages.module("talks_sdk", "print('{\"loads\": true}'); raise OSError('x')")})
    acme, exits, dies, talks = probe(["acme", "exits", "dies", "talks"])
    assert acme.loads and acme.backend == "acme_sdk.Acme" and acme.backend_version == "7"
    assert not exits.loads and "exit code 5" in exits.error
    assert not dies.loads and "SIGKILL" in dies.error
    assert not talks.loads and "OSError: x" in talks.error
    assert "acme_sdk" not in sys.modules


def test_a_plugin_that_hangs_is_given_up(packages):
    packages.add("hangs", {"hangs": packages.module("hangs_sdk", "import time; time.sleep(600)")})
    (report,) = probe(["hangs"], timeout=1.0)
    assert not report.loads and "did not finish loading in 1 seconds" in report.error


# ---- the machine


@pytest.mark.parametrize(
    ("version", "status"),
    [
        ("2.12.1", Status.FAILED),
        ("2.13.0+cpu", Status.OK),
        ("2.14.1", Status.OK),
        ("2.15.0.dev20260101", Status.FAILED),
        ("unknown", Status.FAILED),
    ],
)
def test_torch_is_judged_by_its_release(version, status):
    check = environment.check_torch(version)
    assert check.status == status
    assert version in check.detail
    assert (">=2.13,<2.15" in check.hint) == (status == Status.FAILED)


def test_python_is_judged_by_its_release():
    assert environment.check_python((3, 13)).status == Status.OK
    assert environment.check_python((3, 14)).status == Status.FAILED
    assert "3.11 to 3.13" in environment.check_python((3, 10)).hint


def test_the_tested_ranges_are_those_of_the_package():
    from importlib import metadata

    requires = metadata.requires("backend-sdk")
    assert f"torch{'<2.15,>=2.13'}" in [one.replace(" ", "") for one in requires]
    assert environment._torch_range() == ">=2.13,<2.15"
    oldest, newest = environment.OLDEST_PYTHON, environment.NEWEST_PYTHON
    assert metadata.metadata("backend-sdk")["Requires-Python"].replace(" ", "") in (
        f"<{newest[0]}.{newest[1] + 1},>={oldest[0]}.{oldest[1]}",
        f">={oldest[0]}.{oldest[1]},<{newest[0]}.{newest[1] + 1}",
    )


def test_a_missing_compiler_is_a_warning_that_names_what_was_searched(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    check = environment.check_compiler()
    assert check.status == Status.WARNING and "no c++, g++, clang++ or cl" in check.detail
    monkeypatch.setenv("CXX", "icpx -O2")
    assert "CXX=icpx is not a command" in environment.check_compiler().detail
    monkeypatch.setenv("CXX", sys.executable)
    assert environment.check_compiler().status == Status.OK


def test_a_native_module_that_does_not_load_is_a_failure(monkeypatch):
    assert environment.check_native().status == Status.OK
    monkeypatch.setitem(sys.modules, "backend_sdk._native", None)
    check = environment.check_native()
    assert check.status == Status.FAILED and "backend_sdk._native does not load" in check.detail


UNASKED = (
    HOOK
    + """
import datetime
import torch
from backend_sdk import Limitation, prims
from backend_sdk.backend import Backend, implements

aten = torch.ops.aten

@implements(aten.linear.default)
def linear(x, weight, bias=None):
    return torch.nn.functional.linear(x, weight, bias)

@implements(aten.hardswish.default)
def hardswish(x):
    return torch.nn.functional.hardswish(x)

def in_place(out, x):
    return prims.exp(x)

def shrink(out, x, lambd=0.5):
    return NotImplemented

def whole(out, x, alpha=1, scale=1, input_scale=1):
    return NotImplemented

class Acme(Backend):
    name = "acme"
    overloads = (aten.softmax.int, aten.upsample_bilinear2d.default)
    limitations = (
        Limitation("exp", "slow before firmware 2", expires=datetime.date(2020, 1, 31)),
        Limitation("log", "slow before firmware 9", expires=datetime.date(9999, 1, 31)),
    )

@hookimpl
def sdk_backends():
    return [Acme]

@hookimpl
def sdk_decompositions():
    return {aten.exp_.default: in_place, aten.hardshrink.default: shrink, aten.elu.default: whole}
"""
)


@pytest.fixture
def unasked(packages):
    packages.add(
        "acme-backend",
        {"acme": packages.module("acme_sdk", UNASKED)},
        dynamo_lines={"sdk:acme": "backend_sdk.dynamo:acme"},
    )


def test_doctor_warns_of_each_claim_and_rule_that_torch_compile_never_asks(unasked, run, quick):
    code, output, _ = run("doctor", "--backend", "acme", "--json")
    assert code == 0
    found = {
        name.removeprefix("plugin acme: "): check
        for name, check in statuses(output).items()
        if name.startswith("plugin acme: aten.")
    }
    assert sorted(found) == ["aten.exp_.default", "aten.hardshrink.default", "aten.linear.default", "aten.softmax.int"]
    assert all(check["status"] == "warning" for check in found.values())
    linear = found["aten.linear.default"]
    assert "the claim of aten.linear.default is never asked under torch.compile" in linear["detail"]
    assert "prims.linear (a composite of the contract)" in linear["hint"]
    assert "aten.addmm.default (contract: linear)" in linear["hint"] and "aten.mm.default" in linear["hint"]
    assert "prims.softmax" in found["aten.softmax.int"]["hint"] and "aten._softmax" in found["aten.softmax.int"]["hint"]
    in_place = found["aten.exp_.default"]
    assert "the rule in_place (acme_sdk.py:" in in_place["detail"] and "writes into an argument" in in_place["detail"]
    assert "prims.exp (a prim of the contract) or torch.ops.aten.exp.default" in in_place["hint"]
    assert "aten.where.self (contract: " in found["aten.hardshrink.default"]["hint"]


def test_loading_such_a_plugin_warns(unasked, caplog):
    with caplog.at_level(logging.WARNING, logger="backend_sdk"):
        load_plugin("acme").decompositions()
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warned) == 4
    assert any("aten.linear.default is taken apart" in one and "claim prims.linear" in one for one in warned)


def test_doctor_warns_of_limitations_that_have_expired(unasked, run, quick):
    _, output, _ = run("doctor", "--backend", "acme", "--json")
    (check,) = [one for name, one in statuses(output).items() if name == "plugin acme: limitation"]
    assert check["status"] == "warning" and "exp: slow before firmware 2 (expired on 2020-01-31)" in check["detail"]


def test_the_private_names_are_of_no_backend(run):
    code, output, error = run("doctor", "--private-api", "--backend", "reference")
    assert (code, output) == (2, "") and "leave out --backend" in error


def test_the_private_names_are_printed(run):
    code, output, _ = run("doctor", "--private-api", "--json")
    assert code == 0
    names = json.loads(output)
    assert names and all(set(one) == {"name", "where", "why", "breaks"} for one in names)
    assert any(one["name"].startswith("torch._dynamo") for one in names)
    code, output, _ = run("doctor", "--private-api")
    assert code == 0 and "torch._dynamo" in output
