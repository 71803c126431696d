"""What one torch release has, as data: its overloads with all that a verdict rests on, and its OpInfos.

Each supported release has a file in ``baselines/``, written by `backend-sdk drift --write`.

Does not: compare two releases (`drift` does).
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from backend_sdk.coverage.generated import candidates
from backend_sdk.coverage.verdict import Covered
from backend_sdk.errors import OptionError, nearest
from backend_sdk.torch_compat import decompositions
from backend_sdk.torch_compat.ops import is_random
from backend_sdk.torch_compat.overloads import (
    aten_overloads,
    has_composite_kernel,
    has_list_rule,
    has_torch_rule,
    is_mutable,
    is_view,
    schema_text,
)
from backend_sdk.torch_compat.reach import reached

FORMAT = 1

FOLDER = Path(__file__).parent / "baselines"

# Guessed calls of an overload that torch's decomposition may refuse before its ops count as unknown. On torch 2.13 the
# tenth is the last that finds many: 489 of 572 overloads are seen, 502 with all guesses.
_MOST_GUESSES = 10

# By name, what an overload may be; each is a fact that a verdict rests on.
_TRAITS: Mapping[str, Callable[[Any], bool]] = {
    "writes": is_mutable,
    "view": is_view,
    "random": is_random,
    "composite kernel": has_composite_kernel,
    "torch rule": has_torch_rule,
    "list rule": has_list_rule,
}


@dataclass(frozen=True)
class Fact:
    """What a release says of one overload, and what the contract made of it when the file was written.

    ``source`` is a hash of the source of torch's own rule, empty where it has none in Python and for what writes into
    an argument (what it computes is another overload's). ``reaches`` are the ops that torch's decomposition ran on a
    call made from the schema: None where the verdict did not rest on it, or no call could be made.
    """

    schema: str
    traits: tuple[str, ...] = ()
    source: str = ""
    reaches: tuple[str, ...] | None = None
    verdict: str = ""

    def to_json(self) -> dict[str, Any]:
        """As plain data, without what is empty."""
        return {key: value for key, value in asdict(self).items() if value or (key == "reaches" and value is not None)}

    @staticmethod
    def parse(data: Mapping[str, Any]) -> Fact:
        """A fact out of plain data. Raises `TypeError` or `KeyError` for something else."""
        reaches = data.get("reaches")
        return Fact(
            schema=data["schema"],
            traits=tuple(data.get("traits", ())),
            source=data.get("source", ""),
            reaches=tuple(reaches) if reaches is not None else None,
            verdict=data.get("verdict", ""),
        )


@dataclass
class Baseline:
    """One torch release: ``overloads`` by name, and the names of its OpInfos; None when they could not be read."""

    torch: str
    overloads: dict[str, Fact] = field(default_factory=dict)
    op_infos: list[str] | None = None

    def text(self) -> str:
        """The file: JSON with one overload a line, so that two of them can be compared by eye."""
        facts = sorted(self.overloads.items())
        overloads = [f"  {json.dumps(name)}: {json.dumps(fact.to_json())}" for name, fact in facts]
        op_infos = [f"  {json.dumps(name)}" for name in sorted(self.op_infos or ())]
        header = json.dumps({"format": FORMAT, "torch": self.torch})[1:-1]
        return (
            f'{{{header},\n "op_infos": [\n'
            + ",\n".join(op_infos)
            + '\n ],\n "overloads": {\n'
            + ",\n".join(overloads)
            + "\n }\n}\n"
        )

    @staticmethod
    def read(path: Path) -> Baseline:
        """A baseline out of its file. Raises `OptionError` for a file that is none."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            if data["format"] != FORMAT:
                raise OptionError(
                    f"the baseline {path} has the format {data['format']!r}, this version of the SDK reads {FORMAT}",
                    hint="write it anew, under that torch release: backend-sdk drift --write FILE",
                )
            if not isinstance(data["torch"], str) or not _VERSION.fullmatch(data["torch"]):
                raise ValueError(f"{data['torch']!r} is no version")
            facts = {name: Fact.parse(fact) for name, fact in data["overloads"].items()}
            op_infos = [str(name) for name in data["op_infos"]]
        except OSError as error:
            raise OptionError(f"cannot read the baseline {path}: {error.strerror or error}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise OptionError(
                f"{path} is no baseline: {type(error).__name__}: {error}",
                hint="write one, under the torch release that it is to describe: backend-sdk drift --write FILE",
            ) from error
        return Baseline(data["torch"], facts, op_infos)


_VERSION = re.compile(r"\d+(\.\d+)+([a-z]+\d*)?(\.[a-z]+\d+)?")


def release(version: str) -> tuple[int, ...]:
    """The numbers of a version, to order by: ``(2, 14, 1)`` of ``2.14.1+cpu``."""
    return tuple(map(int, re.findall(r"\d+", version.split("+")[0])))


def installed_version() -> str:
    """The installed torch, without its build (``+cpu``): what a release has does not depend on that."""
    return str(torch.__version__).split("+")[0]


def committed() -> dict[str, Path]:
    """The files of the supported releases by version, oldest first."""
    found = {path.stem.removeprefix("torch-"): path for path in FOLDER.glob("torch-*.json")}
    return dict(sorted(found.items(), key=lambda item: release(item[0])))


def chosen(name: str | None) -> Baseline:
    """The baseline to compare the installed torch with.

    ``name`` is a version or a file; None is the newest release that is older than the installed one. Raises
    `OptionError` for one that is unknown, broken, or the installed one.
    """
    files, installed = committed(), installed_version()
    if name is None:
        older = [version for version in files if release(version) < release(installed)]
        if not older:
            what = (
                f"torch {installed} is the oldest release with a baseline: name another with --from"
                if installed in files
                else f"no release before the installed torch {installed} has a baseline: name one with --from"
            )
            newer = [version for version in files if release(version) > release(installed)]
            known = f"; newer ones are {', '.join(newer)}" if newer else ""
            raise OptionError(f"{what}{known}", hint="--from VERSION, or --from FILE")
        name = older[-1]
    path = files.get(name, Path(name))
    if name not in files and _VERSION.fullmatch(name) and not path.exists():
        raise OptionError(
            f"there is no baseline of torch {name}: {nearest(name, files)}",
            hint="write one, under that release: backend-sdk drift --write FILE",
        )
    found = Baseline.read(path)
    if found.torch == installed:
        raise OptionError(
            f"the baseline {path.name} is of torch {installed}, which is the installed one: nothing can have changed",
            hint="name another release: backend-sdk drift --from VERSION",
        )
    return found


def capture(
    covered: Sequence[Covered], op_infos: Callable[[], list[str] | None], to_compare_with: Baseline | None = None
) -> Baseline:
    """The baseline of the installed torch, with its verdicts; ``op_infos()`` gives the names of its OpInfos.

    What torch's decompositions reach is left out where ``to_compare_with`` does not know it either, which saves time.
    """
    known = to_compare_with.overloads if to_compare_with is not None else {}
    ops = aten_overloads()
    facts = {one.overload: _fact(ops[one.overload], one, known.get(one.overload)) for one in covered}
    return Baseline(installed_version(), facts, op_infos())


def _fact(op: Any, covered: Covered, known: Fact | None) -> Fact:
    source = None if is_mutable(op) else decompositions.source_of(op)
    schema = schema_text(op)
    is_known = known is None or known.reaches is not None or known.schema != schema
    return Fact(
        schema=schema,
        traits=tuple(trait for trait, holds in _TRAITS.items() if holds(op)),
        source=hashlib.sha256(source.encode()).hexdigest()[:12] if source is not None else "",
        reaches=_reaches(op) if covered.rests_on_torch and is_known else None,
        verdict=f"{covered.verdict.value}: {covered.reason or covered.how}",
    )


def _reaches(op: Any) -> tuple[str, ...] | None:
    for call in itertools.islice(candidates(str(op), ()), _MOST_GUESSES):
        try:
            return tuple(reached(op, call.args[0]))
        except Exception:
            # A guess that made no sense: another may.
            continue
    return None
