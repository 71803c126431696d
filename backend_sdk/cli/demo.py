"""`backend-sdk demo`: a sentence-embedding model with real weights on every backend."""

from __future__ import annotations

from typing import Annotated

import typer

from backend_sdk.cli.exit_codes import CHECK_FAILED
from backend_sdk.cli.output import console, print_json, table


def command(
    backend: Annotated[list[str] | None, typer.Option(help="Only this backend; may be given more than once.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Embed sentences with all-MiniLM-L6-v2 on each backend and compare with eager.

    Needs the extra `demo`. Exits with 1 when a backend fails, runs nothing, or its embeddings differ from eager's; the
    other backends get their turn all the same.
    """
    from rich.progress import Progress

    from backend_sdk.demo import QUERY, run_demo
    from backend_sdk.plugins import get_backend, known_backends

    names = [get_backend(name).name for name in backend] if backend else [b.name for b in known_backends()]
    with Progress(transient=True, disable=as_json) as bar:
        task = bar.add_task("loading the model", total=len(names) + 1)

        def show(name: str) -> None:
            bar.update(task, description=f"sdk:{name}", advance=1)

        rows = run_demo(names, show)
    if as_json:
        print_json([row.to_json() for row in rows])
    else:
        shown = table(
            "backend", "largest error", "nearest sentence", "time / eager", "native", "decomposed", "fallback"
        )
        for row in rows:
            if row.failure is not None:
                shown.add_row(f"sdk:{row.backend}", "failed", row.failure)
                continue
            shown.add_row(
                f"sdk:{row.backend}",
                "computes nothing" if row.error is None else f"{row.error:.1e}",
                row.nearest or "-",
                f"{row.latency:.3g}",
                str(row.native),
                str(row.decomposed),
                str(row.fallback),
            )
        console().print(f"query: {QUERY}")
        console().print(shown)
    if not all(row.passed for row in rows):
        raise typer.Exit(CHECK_FAILED)
