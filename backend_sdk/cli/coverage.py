"""`backend-sdk coverage`: how every aten overload of the installed torch reaches the contract, and the proof.

Does not: prove anything itself (`backend_sdk.coverage` does).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from backend_sdk.cli.exit_codes import CHECK_FAILED, FINE
from backend_sdk.cli.output import console, print_json, table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backend_sdk.coverage.journal import Journal
    from backend_sdk.coverage.prove import Entry
    from backend_sdk.coverage.report import Report
    from backend_sdk.coverage.verdict import Covered
    from backend_sdk.coverage.workers import Task


def command(
    prove: Annotated[
        bool, typer.Option("--prove", help="Run the catalogue's samples and calls of each overload.")
    ] = False,
    level: Annotated[
        str | None,
        typer.Option("--level", help="`prims` (default): nothing but prims; `composites`: they stay whole."),
    ] = None,
    backend: Annotated[
        str,
        typer.Option(
            "--backend", metavar="NAME", help="Prove on this backend, with its claims and rules, in place of a level."
        ),
    ] = "",
    dtype: Annotated[list[str] | None, typer.Option("--dtype", help="A dtype to prove in; may be repeated.")] = None,
    op: Annotated[
        list[str] | None, typer.Option("--op", metavar="NAME", help="Prove this OpInfo or overload only.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Samples of an OpInfo; 0 is all.")] = 0,
    jobs: Annotated[int, typer.Option("-j", "--jobs", min=1, help="Worker processes.")] = 1,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Kinds to prove: forward, backward, overload, special; may be repeated."),
    ] = None,
    journal: Annotated[
        Path | None, typer.Option("--journal", help="Where results are kept; a run that was interrupted goes on.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start the journal anew.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Prove again what failed in the journal.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Say how each aten overload reaches the contract; with --prove, run it and compare with eager.

    A proof goes through the whole pipeline on a backend that has the contract and nothing else, without fallback.
    With --backend it goes through on a vendor's backend instead, still without fallback: what that refuses is reported
    as refused, and is no failure. It needs the extra `test`. Without --prove, --journal shows the results of an earlier
    proof.

    Exit code 1: a failure that no table explains, a known reason that no longer holds, or no verdict; in a proof of
    everything also an item without anything to compare, for which no table has a reason; on a backend also when nothing
    at all is proven. 2: no backend has that name.
    """
    from backend_sdk.coverage.report import judge
    from backend_sdk.coverage.verdict import verdicts
    from backend_sdk.errors import OptionError, nearest

    if level not in (None, "prims", "composites"):
        raise OptionError(f"unknown level {level!r}: {nearest(level, ('prims', 'composites'))}")
    if backend and level is not None:
        raise OptionError(
            "--level and --backend: a level is proven on the SDK's own backend, which has nothing but the contract",
            hint=f"leave out --level to prove on {backend!r}, or --backend to prove the level {level}",
        )
    _check_options(
        prove,
        {
            "--backend": backend,
            "--fresh": fresh,
            "--retry": retry,
            "--op": op,
            "--dtype": dtype,
            "--only": only,
            "--limit": limit,
        },
    )
    covered = verdicts()
    if prove:
        from backend_sdk.coverage.calls import level_of
        from backend_sdk.coverage.prove import DEFAULT, DTYPES
        from backend_sdk.coverage.report import KINDS

        dtypes = _chosen(dtype, DTYPES, "dtype", [DEFAULT])
        kinds = _chosen(only, KINDS, "kind", list(KINDS))
        if DEFAULT not in dtypes and not op and not only:
            # An overload by itself is called with arguments of the default dtype.
            kinds.remove("overload")
        # Before a journal is begun, or another thrown away.
        samples, specials = _planned(op or [], covered, dtypes, kinds)
        where = {"level": level or "prims"} if not backend else _identity(backend)
        kept = _journal(journal, where, limit, fresh, everything=not op)
        on = level_of(backend) if backend else where["level"]
        if retry:
            kept.forget_failures()
        try:
            _prove(kept, covered, op or [], samples, specials, "overload" in kinds, on, limit or None, jobs, json)
        finally:
            kept.close()
        whole = not op and not limit and kinds == list(KINDS) and DEFAULT in dtypes
        report = judge(covered, list(kept.entries.values()), whole=whole, limited=bool(limit), backend=backend)
    elif journal is not None:
        made_by, entries = _read(journal)
        limited = bool(made_by.get("limit"))
        report = judge(covered, entries, whole=False, limited=limited, backend=made_by.get("backend", ""))
    else:
        report = judge(covered, [], whole=False)
    if json:
        print_json(report.to_json())
    else:
        _print(report)
    raise typer.Exit(CHECK_FAILED if report.failed else FINE)


def _chosen(given: list[str] | None, known: Any, what: str, default: list[str]) -> list[str]:
    from backend_sdk.errors import OptionError, nearest

    for name in given or ():
        if name not in known:
            raise OptionError(f"unknown {what} {name!r}: {nearest(name, known)}")
    return [name for name in known if name in given] if given else default


def _check_options(prove: bool, given: Mapping[str, Any]) -> None:
    from backend_sdk.errors import OptionError

    named = [name for name, value in given.items() if value]
    if named and not prove:
        raise OptionError(f"{', '.join(named)}: for --prove only; without it a journal is read, and nothing is chosen")
    if given["--fresh"] and given["--retry"]:
        raise OptionError("--fresh and --retry: a journal that starts anew has nothing to try again")


def _made_by() -> dict[str, Any]:
    """What every result depends on."""
    from importlib import metadata

    from backend_sdk.coverage.journal import rules_digest

    return {"sdk": metadata.version("backend-sdk"), "torch": metadata.version("torch"), "rules": rules_digest()}


def _identity(name: str) -> dict[str, str]:
    """What the results of a proof on a backend depend on. Loads its plugin, and raises what that raises.

    Raises `OptionError` for a backend whose results cannot be compared with eager's on the CPU.
    """
    import torch

    from backend_sdk.coverage.journal import backend_digest
    from backend_sdk.errors import OptionError
    from backend_sdk.plugins import load_plugin

    plugin = load_plugin(name)
    backend = plugin.backend
    if not backend.capability.computes:
        raise OptionError(f"backend {name!r} computes nothing (Capability.computes): there is nothing to compare")
    if not backend.device.accepts(torch.device("cpu")):
        raise OptionError(
            f"backend {name!r} takes tensors on {backend.device.type}, and a proof has its samples on the CPU",
            hint="prove on a device of the host's memory, such as a simulator",
        )
    rules = {getattr(rule, "__module__", None) for rule in plugin.decompositions().values()} - {None}
    package = f"{plugin.source.distribution} {plugin.source.version}".strip()
    return {
        "level": "backend",
        "backend": name,
        "version": f"{backend.version} ({package})" if package else backend.version,
        "sources": backend_digest([plugin.source.module, type(backend).__module__, *map(str, rules)]),
    }


def _journal(path: Path | None, where: Mapping[str, str], limit: int, fresh: bool, everything: bool) -> Journal:
    """The journal of a proof: the file named, or for a proof of everything one in this folder, or none."""
    from backend_sdk.coverage.journal import Journal

    made_by = {**_made_by(), **where, "limit": limit}
    if path is None and everything:
        name = where.get("backend", where["level"])
        path = Path(f"coverage-torch{made_by['torch'].split('+')[0]}-{name}.jsonl")
        typer.echo(f"results are kept in {path}", err=True)
    try:
        return Journal(path, made_by, fresh=fresh)
    except OSError as error:
        from backend_sdk.errors import OptionError

        raise OptionError(
            f"the journal {path} cannot be written: {error.strerror}", hint="name a file elsewhere with --journal"
        ) from None


def _read(path: Path) -> tuple[dict[str, Any], list[Entry]]:
    """A journal of the rules as they are. Its level and limit are its own."""
    from backend_sdk.coverage.journal import differences, read
    from backend_sdk.errors import OptionError

    made_by, entries = read(path)
    other = differences(made_by, _made_by())
    if other:
        raise OptionError(
            f"the journal {path} says nothing about what is installed: {other}",
            hint="prove again: backend-sdk coverage --prove --fresh --journal FILE",
        )
    return made_by, entries


def _check_names(names: list[str], covered: list[Covered]) -> None:
    import difflib

    from backend_sdk.errors import OptionError
    from backend_sdk.torch_compat import op_catalogue

    if not names:
        return
    known = {one.overload for one in covered}
    for full_name, op in op_catalogue.op_infos().items():
        known |= {full_name, op.name}
    wrong = []
    for name in dict.fromkeys(names):
        if name not in known:
            # OpInfos before overloads.
            within = [one for one in known if one.endswith(f".{name}") or one.startswith(f"aten.{name}.")]
            within.sort(key=lambda one: (one.startswith("aten."), one))
            near = list(dict.fromkeys([*within, *difflib.get_close_matches(name, sorted(known), n=3)]))[:5]
            wrong.append(
                f"{name!r} ({'did you mean ' + ', '.join(near) + '?' if near else 'nothing is spelled like it'})"
            )
    if wrong:
        raise OptionError(f"no OpInfo or aten overload is called {'; '.join(wrong)}")


def _planned(
    names: list[str], covered: list[Covered], dtypes: list[str], kinds: list[str]
) -> tuple[list[Task], list[Task]]:
    """What to prove but for the overloads, which depend on what the samples reach. Raises `OptionError` for nothing."""
    from backend_sdk.coverage.plan import op_info_tasks, overload_tasks, special_tasks
    from backend_sdk.errors import OptionError

    _check_names(names, covered)
    samples = op_info_tasks(names, dtypes, kinds)
    specials = special_tasks(names, covered, dtypes) if "special" in kinds else []
    if names and not (samples or specials) and not ("overload" in kinds and overload_tasks(names, covered, [])):
        raise OptionError(
            f"{', '.join(names)}: there is nothing to prove {' or '.join(kinds)} in {', '.join(dtypes)}",
            hint="an OpInfo (add) is proven forward and backward, an overload (aten.add.Tensor) overload and special, "
            "in dtypes that eager takes: name another with --dtype, or leave --only out",
        )
    return samples, specials


def _prove(
    journal: Journal,
    covered: list[Covered],
    names: list[str],
    samples: list[Task],
    specials: list[Task],
    overloads: bool,
    level: str,
    limit: int | None,
    jobs: int,
    quiet: bool,
) -> None:
    from backend_sdk.coverage.plan import overload_tasks

    _run("samples", samples, journal, level, limit, jobs, quiet)
    if overloads:
        left = overload_tasks(names, covered, list(journal.entries.values()))
        _run("overloads", left, journal, level, limit, jobs, quiet)
    if specials:
        _run("special values", specials, journal, level, limit, jobs, quiet)


def _run(what: str, tasks: list[Task], journal: Journal, level: str, limit: int | None, jobs: int, quiet: bool) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from backend_sdk.coverage.workers import prove_all

    todo = [task for task in tasks if task.item.key not in journal.entries]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # The standard output is the report's.
    with Progress(*columns, TextColumn("{task.fields[last]}"), console=Console(stderr=True), disable=quiet) as progress:
        bar = progress.add_task(what, total=len(tasks), completed=len(tasks) - len(todo), last="")
        for entry in prove_all(todo, level, limit, jobs):
            journal.add(entry)
            progress.update(bar, advance=1, last=entry.key)


def _print(report: Report) -> None:
    from backend_sdk.coverage.prove import DTYPES
    from backend_sdk.coverage.report import KINDS

    out = console()
    shown = table("verdict", "overloads", "proven by execution")
    proven = report.proven_overloads
    for verdict, count in report.verdicts.items():
        shown.add_row(
            verdict, str(count), str(sum(one.verdict == verdict and one.overload in proven for one in report.covered))
        )
    total = len(report.covered)
    shown.add_row("all", str(total), str(sum(one.overload in proven for one in report.covered)))
    out.print(shown)
    shown = table("out of scope", "overloads")
    for reason, count in report.reasons.items():
        shown.add_row(reason, str(count))
    out.print(shown)
    if report.backend:
        out.print(f"Proven on the backend {report.backend}, with its claims and rules, without fallback:")
    if not report.judged:
        out.print("Nothing is proven yet: --prove runs it.")
        return
    refusals = ["refused"] if report.backend else []
    shown = table(
        "kind", "dtype", "items", "proven", *refusals, "nothing to compare", "failed, explained", "unexplained"
    )
    for kind in KINDS:
        for dtype in DTYPES:
            counts = report.counts(kind, dtype)
            if counts["items"]:
                refused = counts["refused by the backend"]
                failed = counts["items"] - counts["proven"] - counts["nothing"] - refused
                shown.add_row(
                    kind,
                    dtype,
                    str(counts["items"]),
                    str(counts["proven"]),
                    *([str(refused)] if report.backend else []),
                    str(counts["nothing"]),
                    str(failed - counts["unexplained"]),
                    str(counts["unexplained"]),
                )
    out.print(shown)
    for kind in ("forward", "backward"):
        names = {one.entry.item.name for one in report.judged if one.entry.item.kind == kind}
        failing = {one.entry.item.name for one in report.judged if one.entry.item.kind == kind and not one.proven}
        out.print(f"OpInfos proven {kind}: {len(names - failing)} of {len(names)}")
    _print_failures(report)


def _print_failures(report: Report) -> None:
    out = console()
    explained = table("explained", "reason")
    unexplained = table("unexplained", "samples", "what happened")
    for one in report.judged:
        if one.unexplained:
            failed = f"{one.entry.failed} of {one.entry.samples}"
            unexplained.add_row(one.entry.key, failed, f"{one.entry.status}: {one.entry.message}")
        elif one.explanation:
            explained.add_row(one.entry.key, one.explanation)
    untested = table("nothing to compare, unexplained", "what happened")
    for one in report.judged:
        if one.untested:
            untested.add_row(one.entry.key, one.entry.message or "no sample has a result to compare")
    refused = table(f"refused by {report.backend}", "why")
    for one in report.judged:
        if one.refused:
            refused.add_row(one.entry.key, one.entry.message.removeprefix("refused by the backend: "))
    for shown in (explained, untested, refused, unexplained):
        if shown.row_count:
            out.print(shown)
    if report.backend and not any(one.proven for one in report.judged):
        out.print("FAILED: nothing is proven.")
    for line in report.stale:
        out.print(f"stale: {line}")
