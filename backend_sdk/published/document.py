"""Documents of the contract: their text, the published ones, and the check of one that comes from outside.

Does not: make a document (`backend_sdk.published.export`) or compare two (`backend_sdk.published.diff`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from backend_sdk.errors import OptionError, nearest
from backend_sdk.published.version import FORMAT, RELEASES

INSTALLED = "installed"

_PACKAGE = files("backend_sdk.published")
_LINE = 118


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a document."""
    found: dict[str, Any] = json.loads(_PACKAGE.joinpath("schema.json").read_text(encoding="utf-8"))
    return found


def published_versions() -> list[str]:
    """The versions that the package holds a document of, newest first."""
    return [release.version for release in RELEASES if _published(release.version).is_file()]


def published_text(version: str) -> str:
    """The document of a published version as it stands in the package. Raises `OptionError` for an unknown one."""
    if version not in published_versions():
        raise OptionError(
            f"no version {version!r} of the contract was published: {nearest(version, published_versions())}",
            hint="name a published version, the JSON file of a document, or `installed`",
        )
    text: str = _published(version).read_text(encoding="utf-8")
    return text


def _published(version: str) -> Any:
    return _PACKAGE.joinpath("versions", f"{version}.json")


def load(source: str) -> dict[str, Any]:
    """The document that ``source`` names: a published version, a JSON file, or ``installed``.

    Raises `OptionError` when there is none, or when the file is no document of the contract.
    """
    if source == INSTALLED:
        from backend_sdk.published.export import document
        from backend_sdk.published.measured import gradients

        return document(gradients=gradients())
    path = Path(source)
    if re.fullmatch(r"\d+(\.\d+)*", source) and not path.is_file():
        return checked(published_text(source), f"version {source}")
    if not path.is_file():
        raise OptionError(
            f"{source!r} is no published version and no file: {nearest(source, [*published_versions(), INSTALLED])}",
            hint="`backend-sdk spec --json > FILE` writes the document of the installed contract",
        )
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"{source} cannot be read as text: {error}") from error
    return checked(text, source)


def checked(text: str, where: str) -> dict[str, Any]:
    """A document out of its text. Raises `OptionError` for what is none, has a form unknown here, or was changed."""
    from backend_sdk.published.export import SPEC, hash_of, op_hash

    try:
        data = json.loads(text)
    except ValueError as error:
        raise OptionError(f"{where} is not JSON: {error}") from error
    hint = "a document comes from `backend-sdk spec --json`"
    if not isinstance(data, dict) or data.get("spec") != SPEC:
        raise OptionError(f"{where} is no document of the contract: its field spec is not {SPEC!r}", hint=hint)
    if data.get("format") != FORMAT:
        raise OptionError(
            f"{where} has the format {data.get('format')!r}, and this release of the SDK reads {FORMAT}",
            hint="read it with the release of backend-sdk that wrote it, or a newer one",
        )
    if data.get("profile"):
        raise OptionError(
            f"{where} holds the profile {data['profile']} alone",
            hint="leave out --profile: a part of the contract has no version of its own",
        )
    try:
        sound = hash_of(data) == data["hash"] and all(op_hash(op) == op["hash"] for op in data["ops"])
        parse_version(data["version"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise OptionError(f"{where} lacks parts of a document: {type(error).__name__}: {error}", hint=hint) from error
    if not sound:
        raise OptionError(f"{where} is not what its hash says: it was changed after it was made", hint=hint)
    return data


def parse_version(text: str) -> tuple[int, int, int]:
    """``(1, 2, 3)`` for ``"1.2.3"``. Raises `ValueError` for anything else."""
    found = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", text)
    if found is None:
        raise ValueError(f"{text!r} is not of the form MAJOR.MINOR.PATCH")
    return int(found[1]), int(found[2]), int(found[3])


def text_of(data: Any) -> str:
    """Data as JSON for people and for `git diff`: what fits into a line stands in one."""
    return _text(data, 0) + "\n"


def _text(data: Any, depth: int) -> str:
    line = json.dumps(data, allow_nan=False, ensure_ascii=False)
    if len(line) + depth <= _LINE or not isinstance(data, (Mapping, list)) or not data:
        return line
    inner = " " * (depth + 1)
    if isinstance(data, Mapping):
        rows = [f"{inner}{json.dumps(key)}: {_text(value, depth + 1)}" for key, value in data.items()]
        return "{\n" + ",\n".join(rows) + f"\n{' ' * depth}}}"
    if not any(isinstance(item, (Mapping, list)) for item in data):
        return (
            f"[\n{inner}"
            + _wrapped([json.dumps(item, ensure_ascii=False) for item in data], inner)
            + f"\n{' ' * depth}]"
        )
    return "[\n" + ",\n".join(inner + _text(item, depth + 1) for item in data) + f"\n{' ' * depth}]"


def _wrapped(items: list[str], inner: str) -> str:
    lines = [""]
    for item in items:
        if lines[-1] and len(inner) + len(lines[-1]) + len(item) > _LINE:
            lines.append("")
        lines[-1] += f"{item}, "
    return f"\n{inner}".join(line.rstrip() for line in lines).rstrip(",")
