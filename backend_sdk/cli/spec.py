"""`backend-sdk spec`: the contract, as a table or op by op.

Does not: define anything; it prints what `backend_sdk.prims` defines.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from backend_sdk.cli.exit_codes import USAGE
from backend_sdk.cli.output import console, print_json, table

if TYPE_CHECKING:
    from backend_sdk.spec import Prim


def command(
    op: Annotated[str, typer.Argument(metavar="[OP]", help="Show this op in full.")] = "",
    json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
    profile: Annotated[
        str, typer.Option("--profile", metavar="P", help="Show only the ops that this profile needs.")
    ] = "",
) -> None:
    """Show the contract: all ops, or one with its signature, dtypes, tolerance and special values.

    Exit code 2: the contract has no such op or profile.
    """
    from backend_sdk.prims import CONTRACT
    from backend_sdk.spec.prim import PROFILES

    if profile and profile not in PROFILES:
        _unknown("profile", profile, PROFILES)
    if op:
        names = [known.name for known in CONTRACT]
        if op not in names:
            _unknown("op", op, names)
        _show_one(CONTRACT[op], json)
        return
    ops = [known for known in CONTRACT if not profile or profile in known.profiles]
    if json:
        print_json([_op_data(known) for known in ops])
    else:
        _show_all(ops, profile)


def _unknown(what: str, name: str, known: Any) -> None:
    close = difflib.get_close_matches(name, known, n=5)
    nearest = f"did you mean {', '.join(close)}?" if close else "nothing is spelled like it."
    listing = f"Profiles are {', '.join(known)}." if what == "profile" else "`backend-sdk spec` lists all ops."
    typer.echo(f"error: the contract has no {what} {name!r}: {nearest} {listing}", err=True)
    raise typer.Exit(USAGE)


def _show_all(ops: list[Prim], profile: str) -> None:
    shown = table("op", "kind", "dtypes", "tolerance", "profiles")
    for op in ops:
        shown.add_row(op.name, op.kind, str(op.dtype_rule), op.tolerance.describe(), ", ".join(op.profiles))
    prims = sum(op.kind == "prim" for op in ops)
    out = console()
    out.print(shown)
    of = f" of the profile {profile}" if profile else ""
    out.print(f"{len(ops)} ops{of}: {prims} prims and {len(ops) - prims} composites.")


def _show_one(op: Prim, json: bool) -> None:
    data = _op_data(op)
    if json:
        print_json(data)
        return
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
        ("tolerance", data["tolerance"]),
        ("profiles", ", ".join(op.profiles)),
        ("differentiable", "yes" if op.differentiable else "no"),
    ):
        shown.add_row(label, text)
    for dtype in ("float32", "int32", "bool"):
        if dtype in data["special_values"]:
            shown.add_row(f"special values, {dtype}", ", ".join(data["special_values"][dtype]))
    out.print(shown)


def _op_data(op: Prim) -> dict[str, Any]:
    from backend_sdk import dtypes

    domains = [op.dtype_rule.domain(position) for position in range(len(op.dtype_rule.operands))]
    taken = frozenset[Any]().union(*domains) or dtypes.ANY
    return {
        "name": op.name,
        "kind": op.kind,
        "signature": _signature(op),
        "operands": list(op.operand_names),
        "attributes": list(op.attribute_names),
        "results": op.result_count,
        "dtype_rule": str(op.dtype_rule),
        "tolerance": op.tolerance.describe(),
        "profiles": list(op.profiles),
        "differentiable": op.differentiable,
        "doc": op.__doc__ or "",
        # As text: JSON has no infinity and no NaN.
        "special_values": {
            dtypes.name(dtype): [str(value) for value in op.specials(dtype)] for dtype in sorted(taken, key=str)
        },
    }


def _signature(op: Prim) -> str:
    """The signature with the operands as tensors: ``(x: Tensor, weight: Tensor | None, *, rank: int)``."""
    parts = []
    for parameter in op.signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parts and not op.is_variadic:
            parts.append("*")
        annotation = str(parameter.annotation).replace("Operand", "Tensor").replace("torch.", "")
        star = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
        parts.append(f"{star}{parameter.name}: {annotation}")
    results = ", ".join(["Tensor"] * op.result_count)
    return f"({', '.join(parts)}) -> {results if op.result_count == 1 else f'({results})'}"
