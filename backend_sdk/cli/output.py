"""How commands print: tables for people, or JSON and nothing else.

Does not: know what is printed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# Where the output is not a terminal, nothing says how wide it may be; a table then should not be cut.
_WIDTH_WITHOUT_TERMINAL = 160


def console() -> Console:
    """A console on the standard output that prints text as it is: no markup, no highlighting."""
    from rich.console import Console

    made = Console(markup=False, highlight=False, emoji=False, soft_wrap=False)
    return (
        made if made.is_terminal else Console(markup=False, highlight=False, emoji=False, width=_WIDTH_WITHOUT_TERMINAL)
    )


def table(*columns: str) -> Table:
    """An empty table whose cells wrap instead of being cut."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD)
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


def print_json(data: Any) -> None:
    """Print ``data`` as JSON on the standard output."""
    print(json.dumps(data, indent=2, allow_nan=False))
