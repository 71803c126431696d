"""`backend-sdk explain`: what every `torch.compile(backend="sdk:...")` of a script did."""

from __future__ import annotations

import contextlib
import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from backend_sdk.cli.exit_codes import CHECK_FAILED
from backend_sdk.cli.output import console, print_json, table
from backend_sdk.errors import OptionError

if TYPE_CHECKING:
    from backend_sdk.explanation import Explanation
    from backend_sdk.pipeline.report import GraphReport

# What follows the script's name belongs to the script.
SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}


def command(
    context: typer.Context,
    script: Annotated[Path, typer.Argument(help="A Python script that compiles and runs a model.")],
    show_all: Annotated[bool, typer.Option("--all", help="Show every node, not only fallbacks.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Run a script and show, for each graph it compiled, who runs each node and why.

    The script's own output goes to the standard error under --json. Exits with 1 when the script compiled
    nothing for a backend of the SDK.
    """
    if not script.is_file():
        raise OptionError(f"there is no script {str(script)!r}")
    from backend_sdk.explanation import explaining

    redirected = contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()
    arguments, sys.argv = sys.argv, [str(script), *context.args]
    sys.path.insert(0, str(script.parent.resolve()))
    try:
        with explaining() as explanation, redirected:
            runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.argv = arguments
        sys.path.pop(0)
    if as_json:
        print_json(explanation.to_json())
    else:
        _print(explanation, show_all)
    if not explanation.graphs:
        raise typer.Exit(CHECK_FAILED)


def _print(explanation: Explanation, show_all: bool) -> None:
    screen = console()
    for graph in explanation.graphs:
        _print_graph(graph, show_all)
    for item in explanation.graph_breaks:
        screen.print(f"graph break at {item.location or 'an unknown place'}: {item.reason}")
    counts = ", ".join(f"{number} {verdict}" for verdict, number in explanation.counts.items())
    screen.print(
        f"in all: {len(explanation.graphs)} graphs, {len(explanation.graph_breaks)} graph breaks, nodes: {counts}"
        if explanation.graphs
        else 'the script compiled nothing with torch.compile(..., backend="sdk:NAME")'
    )


def _print_graph(graph: GraphReport, show_all: bool) -> None:
    screen = console()
    counts = ", ".join(f"{number} {verdict}" for verdict, number in graph.counts.items())
    screen.print(f"{graph.kind} graph on sdk:{graph.backend}: {len(graph.nodes)} nodes ({counts})")
    screen.print(
        f"  {graph.regions} regions, {graph.eager_steps} eager steps, {graph.bytes_crossing} bytes crossing, "
        f"arena {graph.arena_bytes} bytes"
    )
    nodes = graph.nodes if show_all else [node for node in graph.nodes if node.verdict == "fallback"]
    if not nodes:
        return
    shown = table("aten op", "run by", "contract ops", "why", "where")
    for node in nodes:
        shown.add_row(node.op, node.verdict, ", ".join(node.ops), "\n".join(node.reasons), _place(node.location))
    screen.print(shown)


def _place(location: str | None) -> str:
    """``model.py:12`` out of a location: in a table the line's text would push the reasons aside."""
    if location is None:
        return ""
    place = location.partition(": ")[0]
    return place.rpartition("/")[2] if ":" in place else place
