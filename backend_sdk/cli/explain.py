"""`backend-sdk explain`: what every `torch.compile(backend="sdk:...")` of a script did."""

from __future__ import annotations

import contextlib
import ctypes
import os
import runpy
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from backend_sdk.cli.exit_codes import CHECK_FAILED, FINE
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

    Under --json all that the script and its child processes print goes to the standard error.

    The report comes even when the script fails. Exit codes: that of the script when it ends with sys.exit, 1 when
    it raises (its traceback goes to the standard error) or compiled nothing for a backend of the SDK, else 0.
    """
    if not script.is_file():
        raise OptionError(f"there is no script {str(script)!r}")
    from backend_sdk.explanation import explaining

    with explaining() as explanation, _output_to_error() if as_json else contextlib.nullcontext():
        code = _run(script, context.args)
    if as_json:
        print_json(explanation.to_json())
    else:
        _print(explanation, show_all)
    if code == FINE and not explanation.graphs:
        code = CHECK_FAILED
    raise typer.Exit(code)


def _run(script: Path, arguments: list[str]) -> int:
    """Run a script as Python would; its exit code. What it raises is printed."""
    before, sys.argv = sys.argv, [str(script), *arguments]
    folder = str(script.parent.resolve())
    sys.path.insert(0, folder)
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or FINE
        print(stop.code, file=sys.stderr)
        return CHECK_FAILED
    except Exception as error:
        _print_traceback(error, script)
        return CHECK_FAILED
    finally:
        sys.argv = before
        if folder in sys.path:
            sys.path.remove(folder)
    return FINE


def _print_traceback(error: Exception, script: Path) -> None:
    """The traceback from the script on: our own frames above it say nothing to its author."""
    start = error.__traceback__
    while start is not None and start.tb_frame.f_code.co_filename != str(script):
        start = start.tb_next
    traceback.print_exception(error.with_traceback(start or error.__traceback__))


@contextlib.contextmanager
def _output_to_error() -> Iterator[None]:
    """Send to the standard error what this process, its extensions in C and its children write to the output."""
    _flush()
    output = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        _flush()
        os.dup2(output, 1)
        os.close(output)


def _flush() -> None:
    for stream in (sys.stdout, sys.__stdout__, sys.stderr):
        if stream is not None:
            stream.flush()
    if os.name == "posix":
        # What C code printed waits in a buffer that Python does not see.
        ctypes.CDLL(None).fflush(None)


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
    screen.print(f"  {graph.sizes}")
    for rule in graph.vendor_rules:
        screen.print(f"  rule: {rule}")
    nodes = graph.nodes if show_all else [node for node in graph.nodes if node.verdict == "fallback"]
    if not nodes:
        return
    shown = table("aten op", "run by", "contract ops", "why", "bytes crossing", "where")
    for node in nodes:
        crossing = node.bytes_crossing_symbolic if node.bytes_crossing is None else str(node.bytes_crossing)
        reasons = "\n".join(node.reasons)
        shown.add_row(node.op, node.verdict, ", ".join(node.ops), reasons, crossing, _place(node.location))
    screen.print(shown)


def _place(location: str | None) -> str:
    """``model.py:12`` out of a location: in a table the line's text would push the reasons aside."""
    if location is None:
        return ""
    place = location.partition(": ")[0]
    return place.rpartition("/")[2] if ":" in place else place
