"""The journal of a proof: a header and one JSON line an item, appended as results come, so that a run can resume.

Does not: judge what it holds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backend_sdk.coverage.prove import Entry, Status
from backend_sdk.errors import OptionError

FORMAT = 1
_MAKES_ONE = "`backend-sdk coverage --prove --journal FILE` makes one"
# What decides how a call reaches the contract, and how it is made: files of the package.
_RULES = (
    "decomp/*.py",
    "prims/*.py",
    "pipeline/decompose.py",
    "torch_compat/decompositions.py",
    "torch_compat/kept_whole.py",
    *(f"coverage/{name}.py" for name in ("agreement", "arguments", "calls", "generated", "prove", "special")),
)


class Journal:
    """Entries by key, the last one of a key counting.

    ``made_by`` says what a result depends on (versions, level, samples). A journal made by something else is
    refused with `OptionError`: its results say nothing about this run. With ``read_only`` there must be one, and
    nothing is written.
    """

    def __init__(self, path: Path, made_by: Mapping[str, Any], *, read_only: bool = False) -> None:
        self.path = path
        self._header = {"journal": FORMAT, **made_by}
        self.entries: dict[str, Entry] = {}
        if read_only:
            if not path.is_file():
                raise OptionError(f"there is no journal {path}", hint=_MAKES_ONE)
            self._read(path.read_text())
            return
        if path.exists():
            text = path.read_text()
            whole, _, cut = text.rpartition("\n")
            if cut:
                # The run that wrote it was stopped within a line. What is appended must not continue it.
                path.write_text(whole + "\n" if whole else "")
            self._read(text)
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

    def _read(self, text: str) -> None:
        # What follows the last end of a line is a line that was cut.
        lines = text.rpartition("\n")[0].splitlines()
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


def rules_digest(package: Path = Path(__file__).parents[1]) -> str:
    """SHA-256, in hexadecimal, of the sources of the rules, of the contract, and of what puts them to a call."""
    digest = hashlib.sha256()
    for pattern in _RULES:
        for path in sorted(package.glob(pattern)):
            source = path.read_bytes()
            digest.update(f"{path.relative_to(package).as_posix()} {len(source)}\n".encode() + source)
    return digest.hexdigest()


def read(path: Path) -> tuple[dict[str, Any], list[Entry]]:
    """What a finished journal was made by, and its entries. Raises `OptionError` for a file that is no journal."""
    header = _parsed(path.read_text().partition("\n")[0]) if path.is_file() else None
    if header is None or header.pop("journal", None) != FORMAT:
        raise OptionError(f"{path} is no journal", hint=_MAKES_ONE)
    return header, list(Journal(path, header, read_only=True).entries.values())


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        data = json.loads(line)
    except ValueError:
        return None
    return data if isinstance(data, dict) else None
