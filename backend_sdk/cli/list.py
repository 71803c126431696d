"""`backend-sdk list`: the backends that are installed, and whether each loads.

Does not: explain what is wrong with one (`doctor` does).
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from backend_sdk.cli.output import console, print_json, table


def command(
    json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """List the installed backends: package, version, whether it loads and torch.compile finds it."""
    from backend_sdk.plugins import known_backends
    from backend_sdk.plugins.diagnosis import has_dynamo_line
    from backend_sdk.plugins.probe import probe

    known = known_backends()
    reports = {report.name: report for report in probe(sorted({backend.name for backend in known}))}
    rows: list[dict[str, Any]] = [
        {
            "name": backend.name,
            "distribution": backend.distribution,
            "version": backend.version,
            "module": backend.module,
            "loads": reports[backend.name].loads,
            "error": reports[backend.name].first_line,
            "torch_compile": has_dynamo_line(backend.name),
        }
        for backend in known
    ]
    if json:
        print_json(rows)
        return
    if not rows:
        console().print("No backend is installed.")
        return
    shown = table("backend", "package", "version", "module", "loads", "torch.compile")
    for row in rows:
        shown.add_row(
            row["name"],
            row["distribution"],
            row["version"],
            row["module"],
            "yes" if row["loads"] else f"no: {row['error']}",
            f"sdk:{row['name']}" if row["torch_compile"] else "no line (see `backend-sdk doctor`)",
        )
    console().print(shown)
