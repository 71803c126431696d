"""The journal of a proof: a header and one JSON line an item, appended as results come, so that a run can resume.

Does not: judge what it holds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backend_sdk.coverage.prove import Entry, Status
from backend_sdk.errors import OptionError

FORMAT = 1


class Journal:
    """Entries by key, the last one of a key counting.

    ``made_by`` says what a result depends on (versions, level, samples). A journal made by something else is
    refused with `OptionError`: its results say nothing about this run.
    """

    def __init__(self, path: Path, made_by: Mapping[str, Any]) -> None:
        self.path = path
        self._header = {"journal": FORMAT, **made_by}
        self.entries: dict[str, Entry] = {}
        if path.exists():
            self._read()
        if not path.exists() or not path.stat().st_size:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(self._header) + "\n")

    def add(self, entry: Entry) -> None:
        """Append an entry."""
        self.entries[entry.key] = entry
        with self.path.open("a") as file:
            file.write(json.dumps(entry.to_json()) + "\n")

    def forget_failures(self) -> None:
        """Drop what is not proven, to be proven again. The file keeps it until something newer is added."""
        self.entries = {key: entry for key, entry in self.entries.items() if entry.status == Status.PROVEN}

    def _read(self) -> None:
        text = self.path.read_text()
        whole, _, cut = text.rpartition("\n")
        if cut:
            # The run that wrote it was stopped within a line. What is appended must not continue it.
            self.path.write_text(whole + "\n" if whole else "")
        lines = whole.splitlines()
        if not lines:
            return
        header = _parsed(lines[0])
        if header != self._header:
            raise OptionError(
                f"the journal {self.path} was made by another run: {header}, not {self._header}",
                hint="name another file with --journal, or start anew with --fresh",
            )
        for number, line in enumerate(lines[1:], 2):
            data = _parsed(line)
            if data is None:
                raise OptionError(
                    f"line {number} of the journal {self.path} is not an entry", hint="start anew with --fresh"
                )
            entry = Entry.parse(data)
            self.entries[entry.key] = entry


def read(path: Path) -> tuple[dict[str, Any], list[Entry]]:
    """What a finished journal was made by, and its entries. Raises `OptionError` for a file that is no journal."""
    header = _parsed(path.read_text().partition("\n")[0]) if path.is_file() else None
    if header is None or header.pop("journal", None) != FORMAT:
        raise OptionError(f"{path} is no journal", hint="`backend-sdk coverage --prove --journal FILE` makes one")
    return header, list(Journal(path, header).entries.values())


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        data = json.loads(line)
    except ValueError:
        return None
    return data if isinstance(data, dict) else None
