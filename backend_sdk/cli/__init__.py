"""The command `backend-sdk`: one module a command.

Does not: import torch, rich's tables or a plugin until a command needs them, so that ``--help`` is quick.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from backend_sdk.cli.exit_codes import BROKEN, EXPLANATION, USAGE
from backend_sdk.errors import OptionError, SdkError, UnknownBackendError

# Each names a module of this package with a function `command`, or with a function `group` that gives a typer app of
# several; SETTINGS there are passed on to typer.
COMMANDS = (
    "list",
    "doctor",
    "coverage",
    "drift",
    "spec",
    "explain",
    "demo",
    "plugin",
)


@dataclass
class _Invocation:
    """What the options before the command ask for."""

    traceback: bool = False


def build_app(invocation: _Invocation | None = None) -> typer.Typer:
    """The command line as a typer app."""
    asked = invocation if invocation is not None else _Invocation()
    app = typer.Typer(
        name="backend-sdk",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
        epilog=EXPLANATION,
    )

    @app.callback()
    def options(
        show_traceback: Annotated[
            bool, typer.Option("--traceback", help="Show where an error of the SDK comes from.")
        ] = False,
        version: Annotated[
            bool,
            typer.Option("--version", is_eager=True, callback=_version, help="Print the versions and exit."),
        ] = False,
    ) -> None:
        """Look after the backends of `torch.compile(model, backend="sdk:NAME")`."""
        asked.traceback = show_traceback

    for name in COMMANDS:
        module = importlib.import_module(f"backend_sdk.cli.{name}")
        if hasattr(module, "group"):
            app.add_typer(module.group(), name=name)
            continue
        app.command(name, context_settings=getattr(module, "SETTINGS", None))(module.command)
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit the process with one of the documented codes."""
    invocation = _Invocation()
    try:
        # Not list(arguments): once the command of that name is imported, `list` here is its module.
        build_app(invocation)(args=None if arguments is None else [*arguments], prog_name="backend-sdk")
    except SdkError as error:
        code = USAGE if isinstance(error, (UnknownBackendError, OptionError)) else BROKEN
        if invocation.traceback:
            traceback.print_exception(error)
        else:
            print(f"error: {error}", file=sys.stderr)
            if code == BROKEN:
                print("  (backend-sdk --traceback ... shows where it comes from)", file=sys.stderr)
        sys.exit(code)
    except Exception as error:
        # Not an error that we foresaw: nothing to shorten.
        traceback.print_exception(error)
        sys.exit(BROKEN)


def _version(asked: bool) -> None:
    if asked:
        from importlib import metadata

        from backend_sdk.published.version import VERSION

        sdk, torch = (metadata.version(name) for name in ("backend-sdk", "torch"))
        typer.echo(f"backend-sdk {sdk}, contract {VERSION}, torch {torch}")
        raise typer.Exit
