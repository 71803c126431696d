"""A proof that is interrupted resumes, and one made by something else is not mistaken for it.

What a user would lose: twenty minutes of work, or the truth about what is proven.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import backend_sdk
from backend_sdk.coverage.journal import Journal, read, rules_digest
from backend_sdk.coverage.prove import Entry, Status
from backend_sdk.errors import OptionError

MADE_BY = {"torch": "2.13.0", "level": "prims"}


def filled(path):
    journal = Journal(path, MADE_BY)
    journal.add(Entry("forward/add/float32", Status.PROVEN, samples=3, overloads=["aten.add.Tensor"]))
    journal.add(Entry("forward/mul/float32", Status.MISMATCH, samples=3, failed=1, message="off by one"))
    return journal


def test_entries_come_back(tmp_path):
    path = tmp_path / "sub" / "journal.jsonl"
    written = filled(path)
    written.close()
    assert Journal(path, MADE_BY).entries == written.entries


def test_the_last_entry_of_an_item_counts(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal = filled(path)
    journal.add(Entry("forward/mul/float32", Status.PROVEN, samples=3))
    journal.close()
    assert Journal(path, MADE_BY).entries["forward/mul/float32"].status == Status.PROVEN


@pytest.mark.parametrize("kept", [1, 10, 60])
def test_a_last_line_that_is_cut_is_forgotten_and_can_be_written_again(tmp_path, kept):
    path = tmp_path / "journal.jsonl"
    written = filled(path)
    written.close()
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:2]) + lines[2][:kept])
    resumed = Journal(path, MADE_BY)
    assert list(resumed.entries) == ["forward/add/float32"]
    resumed.add(written.entries["forward/mul/float32"])
    resumed.close()
    assert Journal(path, MADE_BY).entries == written.entries


def test_a_journal_cut_within_its_header_starts_anew(tmp_path):
    path = tmp_path / "journal.jsonl"
    filled(path).close()
    path.write_text(path.read_text()[:12])
    begun = Journal(path, MADE_BY)
    assert begun.entries == {}
    begun.close()
    assert read(path) == (MADE_BY, [])


def test_a_line_broken_elsewhere_is_refused(tmp_path):
    path = tmp_path / "journal.jsonl"
    filled(path).close()
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1][:20], lines[2]]) + "\n")
    with pytest.raises(OptionError, match="line 2"):
        Journal(path, MADE_BY)


def test_a_journal_of_another_run_is_refused(tmp_path):
    path = tmp_path / "journal.jsonl"
    filled(path).close()
    with pytest.raises(OptionError, match=r"level prims \(now composites\)") as raised:
        Journal(path, {**MADE_BY, "level": "composites"})
    assert "--fresh" in str(raised.value.hint)


@pytest.mark.parametrize("text", ['{"a": 1}', '{"a": 1}\n', "one\ntwo", "{", "\n\n", '{"journal": 99}\n'])
@pytest.mark.parametrize("fresh", [False, True])
def test_a_file_that_is_no_journal_is_left_alone(tmp_path, text, fresh):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(OptionError, match="no journal"):
        Journal(path, MADE_BY, fresh=fresh)
    assert path.read_text() == text


def test_a_file_that_is_no_text_and_a_folder_are_refused(tmp_path):
    path = tmp_path / "picture.png"
    path.write_bytes(b"\x89PNG\xff\xfe")
    for wrong, what in ((path, "no journal"), (tmp_path, "folder")):
        for act in (lambda wrong=wrong: Journal(wrong, MADE_BY), lambda wrong=wrong: read(wrong)):
            with pytest.raises(OptionError, match=what):
                act()
    assert path.read_bytes() == b"\x89PNG\xff\xfe"


def test_fresh_starts_anew(tmp_path):
    path = tmp_path / "journal.jsonl"
    filled(path).close()
    Journal(path, {**MADE_BY, "level": "composites"}, fresh=True).close()
    assert read(path) == ({**MADE_BY, "level": "composites"}, [])


def test_two_proofs_do_not_write_to_one_journal(tmp_path):
    path = tmp_path / "journal.jsonl"
    first = filled(path)
    text = path.read_text()
    for fresh in (False, True):
        with pytest.raises(OptionError, match="another process"):
            Journal(path, MADE_BY, fresh=fresh)
    assert path.read_text() == text
    first.close()
    Journal(path, MADE_BY).close()


def test_without_a_file_entries_are_kept_in_memory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    journal = Journal(None, MADE_BY)
    journal.add(Entry("forward/add/float32", Status.PROVEN))
    assert list(journal.entries) == ["forward/add/float32"] and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "line", ["[]", "{}", '{"key": "forward/add/float32", "status": "great"}', '{"key": "add", "status": "proven"}', "{"]
)
def test_a_line_that_is_no_entry_is_named(tmp_path, line):
    path = tmp_path / "journal.jsonl"
    filled(path).close()
    path.write_text(path.read_text() + line + "\n")
    for act in (lambda: Journal(path, MADE_BY), lambda: read(path)):
        with pytest.raises(OptionError, match="line 4 of the journal"):
            act()


def test_a_journal_is_read_with_what_it_was_made_by(tmp_path):
    path = tmp_path / "proof.jsonl"
    written = Journal(path, MADE_BY)
    written.add(Entry("forward/add/float32", Status.PROVEN, reduced={"aten.add.Tensor": ["add"]}))
    made_by, entries = read(path)
    assert made_by == MADE_BY and entries == list(written.entries.values())


@pytest.mark.parametrize("text", [None, "", "{", '{"journal": 99}', "[]"])
def test_what_is_no_journal_is_not_read(tmp_path, text):
    path = tmp_path / "proof.jsonl"
    if text is not None:
        path.write_text(text)
    with pytest.raises(OptionError, match="no journal"):
        read(path)


def test_reading_writes_nothing(tmp_path):
    path = tmp_path / "proof.jsonl"
    written = filled(path)
    text = path.read_text()[:-5]
    path.write_text(text)
    assert len(read(path)[1]) == len(written.entries) - 1
    assert path.read_text() == text
    with pytest.raises(OptionError, match="no journal"):
        read(tmp_path / "sub" / "other.jsonl")
    assert [one.name for one in tmp_path.iterdir()] == ["proof.jsonl"]


def test_the_digest_of_the_rules_follows_their_sources(tmp_path):
    package = tmp_path / "backend_sdk"
    shutil.copytree(Path(backend_sdk.__file__).parent, package, ignore=shutil.ignore_patterns("*.json", "*.so"))
    before = rules_digest(package)
    assert before == rules_digest()
    digests = {before}
    for name in ("decomp", "prims"):
        path = sorted((package / name).glob("*.py"))[-1]
        path.write_text(path.read_text() + "\n")
        digests.add(rules_digest(package))
    for name in ("pipeline/decompose.py", "coverage/calls.py"):
        path = package / name
        path.write_text(path.read_text() + "\n")
        digests.add(rules_digest(package))
    assert len(digests) == 5
    # Whether a failure is explained is judged anew whenever a journal is read.
    path = package / "coverage" / "known.py"
    path.write_text(path.read_text() + "\n")
    assert rules_digest(package) in digests
