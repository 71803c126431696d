"""`backend-sdk coverage`: the report, the proof of a few ops, and resuming it.

What a user would lose: a number that they cannot check on their own machine.
"""

from __future__ import annotations

import functools
import json
import sys

import pytest

from backend_sdk.torch_compat import op_catalogue


@pytest.fixture
def run(command):
    return functools.partial(command, "coverage")


def test_without_a_proof_it_counts_verdicts(run):
    code, out, _ = run("--json")
    report = json.loads(out)
    assert code == 0
    assert sum(report["verdicts"].values()) == len(report["overloads"])
    assert report["verdicts"]["no verdict"] == 0
    assert report["proven_overloads"] == 0
    assert sum(report["reasons"].values()) == report["verdicts"]["out of scope"]


def test_a_proof_is_kept_and_resumed(run, tmp_path):
    chosen = ("--prove", "--op", "exp", "--op", "aten.exp_.default", "--limit", "1")
    path = tmp_path / "journal.jsonl"
    code, out, err = run(*chosen, "--journal", str(path))
    assert code == 0, out + err
    lines = path.read_text().splitlines()
    assert [json.loads(line)["status"] for line in lines[1:]] == ["proven"] * 3
    assert "exp" in out or "forward" in out
    code, _, _ = run(*chosen, "--journal", str(path))
    assert (code, path.read_text().splitlines()) == (0, lines)
    path.write_text("\n".join(lines)[:-20])
    code, out, _ = run(*chosen, "--journal", str(path), "--json")
    report = json.loads(out)
    assert code == 0
    assert {(item["kind"], item["status"]) for item in report["items"]} == {
        ("forward", "proven"),
        ("backward", "proven"),
        ("overload", "proven"),
    }
    assert {one["name"] for one in report["overloads"] if one["proven"]} >= {"aten.exp.default", "aten.exp_.default"}


def test_an_unknown_name_is_said_so(run, tmp_path):
    journal = ("--journal", str(tmp_path / "journal.jsonl"))
    code, _, err = run("--prove", "--op", "no_such_op", *journal)
    assert code == 2 and "no_such_op" in err
    code, _, err = run("--prove", "--dtype", "float31", *journal)
    assert code == 2 and "float32" in err
    code, _, err = run("--level", "prim", *journal)
    assert code == 2 and "prims" in err


def test_each_unknown_name_is_said_so_with_the_nearest(run, tmp_path):
    path = tmp_path / "journal.jsonl"
    chosen = ("--op", "exp", "--op", "gelu", "--op", "cumsun", "--op", "aten.cumsum.defualt", "--op", "qqqqqq")
    code, _, err = run("--prove", *chosen, "--journal", str(path))
    assert code == 2 and not path.exists()
    for words in ("'gelu' (did you mean nn.functional.gelu", "'cumsun' (did you mean", "aten.cumsum.default"):
        assert words in err
    assert "'qqqqqq' (nothing" in err and "'exp'" not in err
    code, _, err = run("--prove", "--op", "exp", "--only", "overload", "--journal", str(path))
    assert code == 2 and "nothing to prove overload" in err


def test_without_a_proof_a_journal_is_only_read(run, tmp_path):
    path = tmp_path / "journal.jsonl"
    code, _, err = run("--journal", str(path))
    assert code == 2 and f"there is no journal {path}" in err.replace("\n", "")
    assert list(tmp_path.iterdir()) == []
    proof = ("--prove", "--op", "exp", "--only", "forward", "--limit", "1", "--journal", str(path))
    assert run(*proof)[0] == 0
    text = path.read_text()
    path.write_text(text + '{"key": "forw')
    code, out, _ = run("--journal", str(path), "--json")
    assert code == 0 and [item["status"] for item in json.loads(out)["items"]] == ["proven"]
    assert path.read_text() == text + '{"key": "forw'
    for option in (
        ("--fresh",),
        ("--retry",),
        ("--op", "exp"),
        ("--dtype", "bool"),
        ("--only", "forward"),
        ("--limit", "1"),
    ):
        code, _, err = run("--journal", str(path), *option)
        assert code == 2 and option[0] in err and path.exists()
        code, _, err = run(*option)
        assert code == 2 and option[0] in err
    code, _, err = run(*proof, "--fresh", "--retry")
    assert code == 2 and "nothing to try again" in err
    path.write_text(text)
    header, _, rest = text.partition("\n")
    path.write_text(json.dumps({**json.loads(header), "rules": "0" * 64}) + "\n" + rest)
    for arguments, what in ((proof, "made by another run"), (("--journal", str(path)), "what is installed")):
        code, _, err = run(*arguments)
        assert code == 2 and what in err.replace("\n", " ") and "other rules" in err


def test_a_file_is_not_thrown_away_for_nothing(run, tmp_path):
    path = tmp_path / "journal.jsonl"
    assert run("--prove", "--op", "exp", "--only", "forward", "--limit", "1", "--journal", str(path))[0] == 0
    text = path.read_text()
    # There is nothing to prove, which is known before the journal starts anew.
    code, _, err = run("--prove", "--op", "exp", "--only", "special", "--fresh", "--journal", str(path))
    assert code == 2 and "aten.add.Tensor" in err and path.read_text() == text
    other = tmp_path / "notes.md"
    other.write_text("# Notes")
    code, _, err = run("--prove", "--op", "exp", "--only", "forward", "--fresh", "--journal", str(other))
    assert code == 2 and "no journal" in err and other.read_text() == "# Notes"


def test_what_is_chosen_is_not_kept_unless_asked(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("exp", "sin"):
        code, out, _ = run("--prove", "--op", name, "--only", "forward", "--limit", "1", "--json")
        assert code == 0 and [item["name"] for item in json.loads(out)["items"]] == [name]
    assert list(tmp_path.iterdir()) == []


def test_a_reason_is_not_stale_because_the_failing_sample_is_left_out(run, tmp_path):
    code, out, _ = run("--prove", "--op", "tensor_split", "--only", "forward", "--limit", "1")
    assert code == 0 and "stale" not in out


def test_what_had_nothing_to_compare_is_named(run, tmp_path):
    path = tmp_path / "journal.jsonl"
    chosen = ("--prove", "--op", "exp", "--only", "forward", "--limit", "1", "--journal", str(path))
    run(*chosen)
    header = path.read_text().partition("\n")[0]
    entry = {"key": "forward/exp/float32", "status": "nothing", "samples": 0}
    path.write_text(header + "\n" + json.dumps(entry) + "\n")
    code, out, err = run(*chosen)
    assert code == 0, err
    assert "nothing to compare, unexplained" in out and "forward/exp/float32" in out


def test_without_the_extra_it_says_what_to_install(run, tmp_path, monkeypatch):
    op_catalogue.op_infos.cache_clear()
    monkeypatch.setitem(sys.modules, "torch.testing._internal.common_methods_invocations", None)
    code, _, err = run("--prove", "--op", "exp", "--journal", str(tmp_path / "journal.jsonl"))
    op_catalogue.op_infos.cache_clear()
    assert code == 2
    assert "backend-sdk[test]" in err


def test_in_another_dtype_no_overload_is_called_by_itself(run, tmp_path, monkeypatch):
    from backend_sdk.cli import coverage

    asked = []
    monkeypatch.setattr(coverage, "_planned", lambda names, covered, dtypes, kinds: asked.append(kinds) or ([], []))
    monkeypatch.setattr(coverage, "_prove", lambda *_: None)
    for number, (arguments, overloads) in enumerate(
        [(("float16",), False), (("float32",), True), (("float16", "--only", "overload"), True)]
    ):
        run("--prove", "--journal", str(tmp_path / f"{number}.jsonl"), "--dtype", *arguments)
        assert ("overload" in asked[-1]) is overloads
