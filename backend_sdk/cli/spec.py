"""`backend-sdk spec`: the contract as a table, as data, as pages, and what a new version of it asks.

Does not: define, measure or compare anything: it prints what `backend_sdk.prims` and `backend_sdk.published` say.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from backend_sdk.cli.exit_codes import CHECK_FAILED, USAGE
from backend_sdk.cli.output import console, print_json, table

if TYPE_CHECKING:
    from backend_sdk.published.diff import Diff
    from backend_sdk.spec import Prim

_DEFAULT = "show"


class _ShowsByDefault(TyperGroup):
    """A group in which what is no command is an op, or an option, of `show`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = [_DEFAULT, *args]
        return super().parse_args(ctx, args)


def group() -> typer.Typer:
    """`spec` and its commands."""
    app = typer.Typer(
        cls=_ShowsByDefault,
        help="The contract: its ops, its document, its pages, and what a new version asks. "
        "`spec [OP]` is short for `spec show [OP]`.",
    )
    for command in (show, diff, pages, publish):
        app.command(command.__name__)(command)
    return app


def show(
    op: Annotated[
        str,
        typer.Argument(
            metavar="[OP]", help="Show this op in full; of an aten op (aten.exp), the contract's ops it reaches."
        ),
    ] = "",
    json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
    json_schema: Annotated[
        bool, typer.Option("--json-schema", help="Print the JSON Schema of what --json prints.")
    ] = False,
    profile: Annotated[
        str, typer.Option("--profile", metavar="P", help="Show only the ops that this profile needs.")
    ] = "",
    version: Annotated[
        str,
        typer.Option(
            "--version", metavar="V", help="Print the document of this published version (of OP its entry), as JSON."
        ),
    ] = "",
) -> None:
    """Show the contract: all ops, or one with its signature, dtypes, tolerance and special values.

    An op goes by its name (exp, prims.exp). Of an aten op (aten.exp, aten.exp.default) each overload is shown, with the
    contract's ops that it reaches.

    Exit code 2: there is no such op, profile or version.
    """
    from backend_sdk.published.document import published_text, schema

    _check_together({"OP": op, "--profile": profile, "--version": version, "--json-schema": json_schema})
    op = op.removeprefix("backend_sdk.").removeprefix("prims.")
    if op.removeprefix("torch.ops.").startswith(("aten.", "aten::")):
        if version:
            raise typer.BadParameter(f"{op} is torch's, and a version is of the contract: leave out --version")
        _show_aten(op.removeprefix("torch.ops.").replace("::", "."), json)
        return
    if json_schema:
        print_json(schema())
        return
    if version:
        _show_version(published_text(version), op, version)
        return
    from backend_sdk.prims import CONTRACT
    from backend_sdk.published.document import text_of
    from backend_sdk.published.export import document
    from backend_sdk.published.measured import gradients
    from backend_sdk.spec.prim import PROFILES

    if profile and profile not in PROFILES:
        _unknown("profile", profile, PROFILES)
    names = [known.name for known in CONTRACT]
    if op and op not in names:
        _unknown("op", op, names)
    if json:
        made = document(gradients=gradients())
        if op:
            (made,) = (known for known in made["ops"] if known["name"] == op)
        elif profile:
            chosen = [known for known in made["ops"] if profile in known["profiles"]]
            made = {**made, "profile": profile, "ops": chosen}
        typer.echo(text_of(made), nl=False)
    elif op:
        _show_one(CONTRACT[op])
    else:
        _show_all([known for known in CONTRACT if not profile or profile in known.profiles], profile)


def diff(
    old: Annotated[str, typer.Argument(metavar="OLD", help="A published version, a JSON file, or `installed`.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="As OLD.")] = "installed",
    json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Say what the step from one version of the contract to another asks of a vendor.

    Exit code 1: the version moved less than the changes demand. 2: OLD or NEW is no document of the contract, or OLD is
    the newer one.
    """
    from backend_sdk.published.diff import compare
    from backend_sdk.published.document import load

    found = compare(load(old), load(new))
    if json:
        print_json(found.to_json())
    else:
        _print_diff(found)
    raise typer.Exit(0 if found.fits else CHECK_FAILED)


def pages(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where the pages go; made if it does not exist.")],
    op: Annotated[list[str] | None, typer.Option("--op", metavar="NAME", help="Only this op; may be repeated.")] = None,
    backend: Annotated[
        list[str] | None, typer.Option("--backend", metavar="NAME", help="Ask this backend; default: all installed.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite files that this command has not written, or that were changed.")
    ] = False,
) -> None:
    """Write the contract as web pages: an index, a page an op, and one that says what the version asks.

    Exit code 2: there is no such op or backend, DIR is no folder, or a file is in the way (see --force).
    """
    from backend_sdk.errors import OptionError
    from backend_sdk.prims import CONTRACT
    from backend_sdk.published.site import write_site

    names = sorted(known.name for known in CONTRACT)
    op = [name.removeprefix("prims.") for name in op or ()]
    for name in op:
        if name not in names:
            _unknown("op", name, names)
    if folder.exists() and not folder.is_dir():
        raise OptionError(f"{folder} is a file, not a folder")
    written = write_site(folder, sorted(set(op)) if op else names, backend, force=force)
    console().print(f"{len(written)} files in {folder}; start at {folder / 'index.html'}", soft_wrap=True)


def publish(
    journal: Annotated[
        list[Path] | None,
        typer.Option("--journal", help="Take reductions from this journal of a coverage proof; may be repeated."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--everything", help="Measure all gradients anew, not only those of changed ops.")
    ] = False,
) -> None:
    """For maintainers: write the document of the present version, and what is measured, into this package.

    Exit code 2: the version is released, and the contract now means something else.
    """
    from backend_sdk.coverage.calls import quiet
    from backend_sdk.coverage.journal import read
    from backend_sdk.errors import OptionError
    from backend_sdk.published.publish import publish as write

    quiet()
    proofs = [read(path) for path in journal or ()]
    for path, (made_by, _) in zip(journal or (), proofs, strict=True):
        if "backend" in made_by:
            raise OptionError(
                f"the journal {path} is of a proof on the backend {made_by['backend']!r}, whose own rules it shows",
                hint="publish a proof of the contract: backend-sdk coverage --prove --journal FILE",
            )
    for path in write(proofs=proofs, everything=everything):
        console().print(f"wrote {path}", soft_wrap=True)


def _check_together(given: dict[str, Any]) -> None:
    named = [name for name, value in given.items() if value]
    if len(named) > 1 and named != ["OP", "--version"]:
        raise typer.BadParameter(f"{' and '.join(named)} do not go together: give one of them (OP goes with --version)")


def _show_version(text: str, op: str, version: str) -> None:
    import json

    from backend_sdk.published.document import text_of

    if op:
        ops = {known["name"]: known for known in json.loads(text)["ops"]}
        if op not in ops:
            _unknown("op", op, list(ops), f" in version {version}")
        text = text_of(ops[op])
    typer.echo(text, nl=False)


def _show_aten(name: str, json: bool) -> None:
    from backend_sdk.published.decomposers import reached
    from backend_sdk.torch_compat.overloads import aten_overloads

    found = reached(name)
    if not found:
        names = [*aten_overloads(), *dict.fromkeys(known.rpartition(".")[0] for known in aten_overloads())]
        _not_there(f"torch has no overload {name!r}", name, names, "`backend-sdk coverage --json` lists all of them.")
    if json:
        print_json([one.to_json() for one in found])
        return
    shown = table("overload", "verdict", "how", "the contract's ops that it reaches")
    for one in found:
        shown.add_row(one.overload, one.verdict, one.how, ", ".join(one.ops) or "none seen")
    out = console()
    out.print(shown)
    out.print(
        "`backend-sdk spec OP` shows an op of the contract. Which of them a call reaches depends on its arguments:"
    )
    out.print("`backend-sdk explain` shows it for a model.")


def _unknown(what: str, name: str, known: Any, where: str = "") -> NoReturn:
    listing = f"Profiles are {', '.join(known)}." if what == "profile" else "`backend-sdk spec` lists all ops."
    _not_there(f"the contract has no {what} {name!r}{where}", name, known, listing)


def _not_there(said: str, name: str, known: Any, listing: str) -> NoReturn:
    close = difflib.get_close_matches(name, known, n=5)
    nearest = f"did you mean {', '.join(close)}?" if close else "nothing is spelled like it."
    typer.echo(f"error: {said}: {nearest} {listing}", err=True)
    raise typer.Exit(USAGE)


def _show_all(ops: list[Prim], profile: str) -> None:
    from backend_sdk.published.export import document

    shown = table("op", "kind", "dtypes", "tolerance", "profiles")
    for op in ops:
        shown.add_row(op.name, op.kind, str(op.dtype_rule), op.tolerance.describe(), ", ".join(op.profiles))
    prims = sum(op.kind == "prim" for op in ops)
    out = console()
    out.print(shown)
    of = f" of the profile {profile}" if profile else ""
    out.print(f"{len(ops)} ops{of}: {prims} prims and {len(ops) - prims} composites.")
    made = document()
    out.print(f"contract {made['version']}, {made['hash']}", soft_wrap=True)


def _show_one(op: Prim) -> None:
    from backend_sdk.published.export import op_data
    from backend_sdk.published.measured import gradients

    data = op_data(op, gradients([op]).get(op.name))
    out = console()
    out.print(f"{op.name}{data['signature']}", soft_wrap=True)
    out.print()
    out.print(data["doc"], soft_wrap=True)
    out.print()
    shown = table("", "")
    shown.show_header = False
    for label, text in (
        ("kind", op.kind),
        ("dtypes", data["dtype_rule"]),
        ("tolerance", op.tolerance.describe()),
        ("profiles", ", ".join(data["profiles"])),
        ("gradient", _gradient(data)),
        ("body is made of", ", ".join(data["prims"])),
        ("hash", data["hash"]),
    ):
        if text:
            shown.add_row(label, text)
    for dtype in ("float32", "int32", "bool"):
        if dtype in data["special_values"]:
            shown.add_row(f"special values, {dtype}", ", ".join(map(str, data["special_values"][dtype])))
    out.print(shown)


def _gradient(data: dict[str, Any]) -> str:
    if not data["differentiable"]:
        return "none"
    path = data["gradient"]
    if path is None:
        return "yes; not measured since the op changed (`backend-sdk spec publish`)"
    return f"of {', '.join(path['operands'])}, through {path['through']}: {', '.join(path['prims']) or 'no op'}"


def _print_diff(found: Diff) -> None:
    from backend_sdk.published.diff import Action

    out = console()
    if not found.changes:
        out.print(f"{found.old} and {found.new}: no change.")
        return
    for action in Action:
        changes = found.of(action)
        if not changes:
            continue
        shown = table(f"{action} ({len(changes)})", "change", "what to do", "profiles", "version")
        for change in changes:
            only = "only if the backend claims it: " if change.if_claimed else ""
            shown.add_row(
                change.op or "the contract",
                f"{change.kind}: {change.detail}" if change.detail else change.kind,
                only + change.rule.todo,
                ", ".join(change.profiles),
                change.rule.bump.name.lower(),
            )
        out.print(shown)
    need, got = found.required.name.lower(), found.given.name.lower()
    verdict = f"{found.old} to {found.new}: the changes ask for a {need} step, the version makes a {got} step"
    if found.required == 0:
        verdict = f"{found.old} to {found.new}: nothing that a version has to tell"
    out.print(f"{verdict}." if found.fits else f"FAILED: {verdict}: call it {found.least_version} or higher.")
