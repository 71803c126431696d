"""`backend-sdk plugin NAME ...`: the commands that a vendor's plugin adds.

Does not: load any plugin but the one that is named.
"""

from __future__ import annotations

from typing import Annotated

import typer

# What follows NAME, options too, is the plugin's.
SETTINGS = {"allow_extra_args": True, "allow_interspersed_args": False}


def command(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The backend whose plugin has the command.")],
) -> None:
    """Run a command of the plugin NAME: `backend-sdk plugin NAME --help` lists them."""
    from backend_sdk.errors import OptionError
    from backend_sdk.plugins import load_plugin

    plugin = load_plugin(name)
    if not plugin.has_commands:
        raise OptionError(
            f"the {plugin.source} adds no commands", hint="a plugin adds them in the hook sdk_commands(app)"
        )
    app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)

    @app.callback()
    def group() -> None:
        """A group even with one command, so that the command's name always has to be given."""

    group.__doc__ = f"Commands of the backend {name!r} ({plugin.source.distribution or plugin.source.module})."
    plugin.add_commands(app)
    app(args=list(context.args), prog_name=f"backend-sdk plugin {name}")
