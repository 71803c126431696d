"""`backend-sdk drift`: what changed between a torch release and the installed one, and what the contract must say.

Does not: compare anything itself (`backend_sdk.coverage.drift` does).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from backend_sdk.cli.exit_codes import CHECK_FAILED, FINE
from backend_sdk.cli.output import console, print_json, table

if TYPE_CHECKING:
    from backend_sdk.coverage.drift import Drift
    from backend_sdk.coverage.op_info_names import OpInfoNames


def command(
    since: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="VERSION|FILE", help="What to compare with; the newest older release if not given."
        ),
    ] = None,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="FILE", help="Write the baseline of the installed torch instead.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Say what changed in aten since a torch release, and fail for what the contract does not cover.

    Compares the installed torch with the baseline of a supported release: overloads, their schemas, torch's own
    decompositions that a verdict rests on, the ops that these reach, and OpInfos (with the extra `test`).

    Exit code 1: something new has no verdict, a changed overload does not fit our rule for it, or torch's
    decomposition now reaches an op that the contract does not take.
    """
    from backend_sdk.errors import OptionError

    if write is not None and since is not None:
        raise OptionError("--write and --from exclude each other: --write compares nothing")
    # torch warns of deprecated ops, in C++, as their kernels are looked at. Read when torch is imported.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from backend_sdk.coverage.op_info_names import OpInfoNames

    # Started before torch is imported here: each takes seconds.
    with OpInfoNames() as names:
        if write is not None:
            _write(write, names)
            return
        from backend_sdk.coverage.baseline import chosen
        from backend_sdk.coverage.drift import drift_since

        drift = drift_since(chosen(since), names.result)
    if json:
        print_json(drift.to_json())
    else:
        _print(drift)
    raise typer.Exit(CHECK_FAILED if drift.uncovered else FINE)


def _write(path: Path, names: OpInfoNames) -> None:
    from backend_sdk.coverage import baseline
    from backend_sdk.coverage.verdict import verdicts
    from backend_sdk.errors import OptionError

    try:
        # Capturing takes seconds: not before it is clear that there is a place for it.
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"cannot write {path}: {error.strerror}") from error
    made = baseline.capture(verdicts(), names.result)
    if made.op_infos is None:
        raise OptionError(
            "a baseline names torch's OpInfos, and torch's catalogue of them cannot be imported",
            hint="pip install 'backend-sdk[test]'",
        )
    try:
        path.write_text(made.text(), encoding="utf-8")
    except OSError as error:
        raise OptionError(f"cannot write {path}: {error.strerror}") from error
    console().print(f"torch {made.torch}: {len(made.overloads)} overloads and {len(made.op_infos)} OpInfos in {path}")


def _print(drift: Drift) -> None:
    from backend_sdk.coverage.drift import Kind

    out = console()
    for kind in Kind:
        changes = [change for change in drift.changes if change.kind == kind]
        if changes:
            shown = table(f"{kind.value} ({len(changes)})", "what", "contract")
            for change in changes:
                shown.add_row(change.name, change.what, change.why if change.covered else f"NOT COVERED: {change.why}")
            out.print(shown)
    for line in drift.skipped:
        out.print(f"not compared: {line}", soft_wrap=True)
    counts = ", ".join(f"{count} {kind}" for kind, count in drift.counts.items() if count)
    out.print(f"from torch {drift.before} to {drift.after}: {counts or 'nothing changed'}", soft_wrap=True)
    for change in drift.uncovered:
        out.print(f"not covered: {change.kind.value} {change.name}: {change.why}", soft_wrap=True)
    if not drift.uncovered:
        out.print("the contract covers all of it")
