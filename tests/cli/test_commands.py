"""The command line itself. Were it wrong, a script could not tell a broken plugin from a typing error."""

import json
import subprocess
import sys

import pytest

from backend_sdk import cli
from backend_sdk.prims import CONTRACT
from backend_sdk.published.document import published_text, schema
from backend_sdk.published.export import hash_of
from backend_sdk.published.version import VERSION
from backend_sdk.spec.prim import PROFILES

COMMANDS = """
from backend_sdk.backends.null import NullBackend
from backend_sdk.plugins import hookimpl

class Acme(NullBackend):
    name = "acme"

@hookimpl
def sdk_backends():
    return [Acme]

@hookimpl
def sdk_commands(app):
    @app.command()
    def flash(board: str, fast: bool = False):
        "Write the firmware."
        print(f"flashing {board}, fast={fast}")
"""


def words(text):
    return " ".join(text.split())


# ---- spec


def test_spec_counts_the_contract(run):
    code, output, _ = run("spec")
    assert code == 0
    composites = sum(op.kind == "composite" for op in CONTRACT)
    count = f"{len(CONTRACT)} ops: {len(CONTRACT) - composites} prims and {composites} composites."
    assert count in output and f"contract {VERSION}, sha256:" in output
    assert all(op.name in output for op in CONTRACT)


def test_spec_as_json_is_the_whole_contract_and_nothing_else(run):
    code, output, error = run("spec", "--json")
    assert (code, error) == (0, "")
    spec = json.loads(output)
    ops = {op["name"]: op for op in spec["ops"]}
    assert set(ops) == {op.name for op in CONTRACT}
    assert (spec["version"], spec["hash"]) == (VERSION, hash_of(spec))
    assert [operand["name"] for operand in ops["select"]["operands"]] == ["condition", "x", "y"]
    assert len(ops["layer_norm"]["results"]) == 3
    assert "nan" in ops["exp"]["special_values"]["float32"]
    assert run("spec", "show", "--json")[1] == output


def test_spec_of_one_op_as_json_is_its_part_of_the_document(run):
    (exp,) = (op for op in json.loads(run("spec", "--json")[1])["ops"] if op["name"] == "exp")
    code, output, error = run("spec", "exp", "--json")
    assert (code, error) == (0, "") and json.loads(output) == exp


def test_spec_prints_its_schema_and_published_versions(run):
    code, output, _ = run("spec", "--json-schema")
    assert code == 0 and json.loads(output) == schema()
    code, output, _ = run("spec", "--version", VERSION)
    assert code == 0 and output == published_text(VERSION)
    code, output, error = run("spec", "--version", "0.9")
    assert (code, output) == (2, "") and "no version '0.9' of the contract was published" in error
    code, _, error = run("spec", "exp", "--profile", "base")
    assert code == 2 and "OP and --profile do not go together" in words(error)


def test_spec_of_one_op_shows_all_there_is_to_know(run):
    code, output, _ = run("spec", "layer_norm")
    assert code == 0
    for part in (
        "layer_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, *, rank: int, epsilon: float",
        "-> (Tensor, Tensor, Tensor)",
        "composite",
        "T in floating",
        CONTRACT["layer_norm"].tolerance.describe(),
        "base",
        "arXiv:1607.06450",
        "special values, float32",
        "inf, -inf, nan",
        "of x, weight, bias, through the body: add, broadcast",
        "sha256:",
    ):
        assert part in words(output), part
    _, output, _ = run("spec", "concat")
    assert output.startswith("concat(*parts: Tensor, axis: int) -> Tensor")


@pytest.mark.parametrize("profile", PROFILES)
def test_spec_shows_the_ops_of_a_profile_only(run, profile):
    code, output, _ = run("spec", "--profile", profile, "--json")
    assert code == 0
    spec = json.loads(output)
    assert spec["profile"] == profile
    assert [op["name"] for op in spec["ops"]] == sorted(op.name for op in CONTRACT if profile in op.profiles)


def test_an_op_may_be_named_as_in_python_or_as_torch_does(run):
    assert run("spec", "prims.exp") == run("spec", "exp")
    code, output, _ = run("spec", "aten.exp", "--json")
    assert code == 0
    found = {one["overload"]: one for one in json.loads(output)}
    assert "exp" in found["aten.exp.default"]["ops"] and "exp" in found["aten.exp.out"]["ops"]
    assert run("spec", "torch.ops.aten.exp", "--json")[1] == run("spec", "aten::exp", "--json")[1] == output
    code, output, _ = run("spec", "aten.linear.default", "--json")
    (linear,) = json.loads(output)
    assert code == 0 and {"linear", "dot_general"} <= set(linear["ops"]) and "aten.addmm.default" in linear["how"]
    code, output, _ = run("spec", "aten.exp_")
    assert code == 0 and "as aten.exp.default" in words(output)
    code, output, error = run("spec", "aten.expp")
    assert (code, output) == (2, "") and "did you mean aten.exp" in error


def test_one_op_of_a_published_version_is_shown(run):
    code, output, _ = run("spec", "exp", "--version", VERSION)
    (exp,) = (op for op in json.loads(published_text(VERSION))["ops"] if op["name"] == "exp")
    assert code == 0 and json.loads(output) == exp
    code, _, error = run("spec", "expp", "--version", VERSION)
    assert code == 2 and f"no op 'expp' in version {VERSION}: did you mean exp" in error
    code, _, error = run("spec", "aten.exp", "--version", VERSION)
    assert code == 2 and "aten.exp is torch's" in words(error)


def test_an_unknown_op_or_profile_gets_the_nearest_names_and_code_2(run):
    code, output, error = run("spec", "layernorm", "--json")
    assert (code, output) == (2, "")
    assert "no op 'layernorm': did you mean layer_norm" in error
    code, _, error = run("spec", "--profile", "trainig")
    assert code == 2 and "did you mean training?" in error and "Profiles are base" in error


def test_no_op_is_hidden_by_a_command_of_spec(run):
    from backend_sdk.cli import spec

    commands = {command.callback.__name__ for command in spec.group().registered_commands}
    assert {"show", "diff", "pages", "publish"} == commands
    assert not commands & {op.name for op in CONTRACT}
    code, output, _ = run("spec", "--help")
    assert code == 0 and all(name in output for name in commands)


# ---- plugin


def test_a_plugins_commands_run_under_its_name(packages, run):
    packages.add("acme-backend", {"acme": packages.module("acme_sdk", COMMANDS)})
    packages.add("bad", {"bad": packages.module("bad_sdk", "raise SystemExit('loaded though not named')")})
    code, output, _ = run("plugin", "acme", "flash", "board7", "--fast")
    assert (code, output) == (0, "flashing board7, fast=True\n")
    code, output, _ = run("plugin", "acme", "--help")
    assert code == 0 and "flash" in output and "Write the firmware." in output
    code, _, error = run("plugin", "acme", "flush")
    assert code == 2 and "flush" in error


def test_plugin_without_commands_or_without_a_plugin(packages, run):
    code, _, error = run("plugin", "null", "flash")
    assert code == 2 and "plugin 'null'" in error and "adds no commands" in error
    code, _, error = run("plugin", "nul")
    assert code == 2 and "did you mean 'null'?" in error


# ---- errors and codes


def test_an_error_of_the_sdk_is_a_message_and_a_traceback_only_on_request(packages, run):
    packages.add("bad", {"bad": packages.module("bad_sdk", "raise OSError('no driver')")})
    code, output, error = run("plugin", "bad")
    assert (code, output) == (3, "")
    assert error.startswith("error: plugin 'bad' (module bad_sdk, bad 1.0)") and "OSError: no driver" in error
    assert "Traceback" not in error and "backend-sdk --traceback" in error
    code, _, error = run("--traceback", "plugin", "bad")
    assert code == 3
    assert "Traceback" in error and "bad_sdk.py" in error and "BrokenPluginError" in error


def test_a_fault_of_ours_keeps_its_traceback_and_is_no_failed_check(run, monkeypatch):
    from backend_sdk.cli import spec

    monkeypatch.setattr(spec, "_show_all", lambda ops, profile: 1 / 0)
    code, _, error = run("spec")
    assert code == 3 and "ZeroDivisionError" in error and "Traceback" in error


def test_the_help_names_the_commands_and_the_exit_codes(run):
    code, output, _ = run("--help")
    assert code == 0
    for name in cli.COMMANDS:
        assert name in output
    for part in ("0 fine", "1 a check failed", "2 wrong usage", "3 a broken plugin"):
        assert part in words(output)
    assert run("lst")[0] == 2


def test_the_version_is_printed(run):
    code, output, _ = run("--version")
    assert code == 0 and output.startswith("backend-sdk 0.")
    assert f"contract {VERSION}" in output and "torch 2." in output


def test_the_help_imports_neither_torch_nor_a_plugin():
    code = (
        "import sys\nfrom backend_sdk.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = ('torch', 'backend_sdk.prims', 'backend_sdk.backends.null')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1] == "[]"
