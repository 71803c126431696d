"""The journal of a proof: a header and one JSON line an item, appended as results come, so that a run can resume.

Does not: judge what it holds.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TextIO

from backend_sdk.coverage.prove import Entry, Status
from backend_sdk.errors import OptionError

FORMAT = 1
_MARK = '{"journal"'
_MAKES_ONE = "`backend-sdk coverage --prove --journal FILE` makes one"
# What decides how a call is made and compared.
_PROOF = ("agreement", "arguments", "calls", "draws", "factors", "generated", "prove", "special")
# That, and what decides how a call reaches the contract: files of the package.
_RULES = (
    *(f"{folder}/*.py" for folder in ("decomp", "prims", "spec", "graph", "pipeline", "runtime", "torch_compat")),
    "backends/reference.py",
    "packed_sequences.py",
    "tracing.py",
    *(f"coverage/{name}.py" for name in _PROOF),
)


class Journal:
    """Entries by key, the last one of a key counting. Without a ``path`` they are kept in memory.

    ``made_by`` says what a result depends on (versions, level, samples). A journal made by something else is
    refused with `OptionError`: its results say nothing about this run. With ``fresh`` it is thrown away. A file that is
    no journal is refused in any case, and so is one that another process is writing.
    """

    def __init__(self, path: Path | None, made_by: Mapping[str, Any], *, fresh: bool = False) -> None:
        self.path = path
        self.entries: dict[str, Entry] = {}
        self._file: TextIO | None = None
        if path is None:
            return
        self._file = _locked(path)
        try:
            self._begin(path, self._file, made_by, fresh)
        except OptionError:
            self.close()
            raise

    def _begin(self, path: Path, file: TextIO, made_by: Mapping[str, Any], fresh: bool) -> None:
        header = json.dumps({"journal": FORMAT, **made_by})
        text = _text_of(path)
        found = _header_of(text)
        # Stopped within the first line, it is still one.
        is_begun = not text or (text.startswith(_MARK) and header.startswith(text))
        if not is_begun and found is None:
            raise OptionError(
                f"{path} is no journal of a proof, so nothing is written there", hint="name another file with --journal"
            )
        if found is None or is_begun or fresh:
            file.truncate(0)
            self._write(header)
            return
        _check_made_by(path, found, made_by)
        self.entries = _entries_of(path, text)
        if not text.endswith("\n"):
            # The run that wrote it was stopped within a line. What is appended must not continue it.
            file.truncate(len(text.rpartition("\n")[0].encode()) + 1)

    def add(self, entry: Entry) -> None:
        """Append an entry."""
        self.entries[entry.key] = entry
        self._write(json.dumps(entry.to_json()))

    def forget_failures(self) -> None:
        """Drop what is not proven, to be proven again. The file keeps it until something newer is added."""
        self.entries = {key: entry for key, entry in self.entries.items() if entry.status == Status.PROVEN}

    def close(self) -> None:
        """Let another process write to the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, line: str) -> None:
        if self._file is not None:
            self._file.write(line + "\n")
            self._file.flush()


def read(path: Path) -> tuple[dict[str, Any], list[Entry]]:
    """What a journal was made by, and its entries. Raises `OptionError` for a file that is no journal."""
    if not path.exists():
        raise OptionError(f"there is no journal {path}", hint=_MAKES_ONE)
    text = _text_of(path)
    header = _header_of(text)
    if header is None:
        raise OptionError(f"{path} is no journal", hint=_MAKES_ONE)
    return header, list(_entries_of(path, text).values())


def differences(made_by: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What of ``now`` a journal was made by otherwise: ``limit 2 (now 0)``. Empty: nothing."""
    found = []
    for name, value in now.items():
        if made_by.get(name) != value:
            plain = isinstance(value, int) or len(str(value)) < _LONG
            found.append(f"{name} {made_by.get(name)} (now {value})" if plain else f"other {name}")
    return ", ".join(found)


# A digest tells a reader nothing.
_LONG = 40


def _check_made_by(path: Path, found: Mapping[str, Any], made_by: Mapping[str, Any]) -> None:
    other = differences(found, made_by)
    if other:
        raise OptionError(
            f"the journal {path} was made by another run: {other}",
            hint="name another file with --journal, or start anew with --fresh",
        )


def _text_of(path: Path) -> str:
    _refuse_folder(path)
    try:
        return path.read_text()
    except UnicodeDecodeError:
        raise OptionError(f"{path} is no journal", hint=_MAKES_ONE) from None


def _refuse_folder(path: Path) -> None:
    if path.is_dir():
        raise OptionError(f"{path} is a folder, and a journal is a file", hint=_MAKES_ONE)


def _header_of(text: str) -> dict[str, Any] | None:
    """The first line, without the mark of a journal; None when it is none."""
    header = _parsed(text.partition("\n")[0])
    return header if header is not None and header.pop("journal", None) == FORMAT else None


def _entries_of(path: Path, text: str) -> dict[str, Entry]:
    entries = {}
    # What follows the last end of a line is a line that was cut.
    for number, line in enumerate(text.rpartition("\n")[0].splitlines()[1:], 2):
        try:
            entry = Entry.parse(json.loads(line))
            entries[entry.item.key] = entry
        except (ValueError, TypeError, KeyError):
            raise OptionError(
                f"line {number} of the journal {path} is not an entry", hint="prove again with --prove --fresh"
            ) from None
    return entries


def _locked(path: Path) -> TextIO:
    """The file to append to, which no other process may write. Before it is read: what another adds is read too."""
    _refuse_folder(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise OptionError(
            f"another process is writing to the journal {path}", hint="wait for it, or name another file with --journal"
        ) from None
    return file


def rules_digest(package: Path = Path(__file__).parents[1]) -> str:
    """SHA-256, in hexadecimal, of the sources of the rules, of the contract, and of what puts them to a call."""
    digest = hashlib.sha256()
    for pattern in _RULES:
        for path in sorted(package.glob(pattern)):
            source = path.read_bytes()
            digest.update(f"{path.relative_to(package).as_posix()} {len(source)}\n".encode() + source)
    return digest.hexdigest()


def backend_digest(modules: Iterable[str]) -> str:
    """SHA-256, in hexadecimal, of the Python sources of the packages that hold these imported modules: a backend is
    changed far more often than its version is.
    """
    digest = hashlib.sha256()
    for name in sorted({module.partition(".")[0] for module in modules}):
        found = sys.modules[name]
        paths = [path for folder in getattr(found, "__path__", ()) for path in Path(folder).rglob("*.py")]
        if not paths and getattr(found, "__file__", None):
            paths = [Path(str(found.__file__))]
        for path in sorted(paths):
            source = path.read_bytes()
            digest.update(f"{path} {len(source)}\n".encode() + source)
    return digest.hexdigest()


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        data = json.loads(line)
    except ValueError:
        return None
    return data if isinstance(data, dict) else None
