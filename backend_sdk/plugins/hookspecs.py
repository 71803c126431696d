"""The hooks that a plugin can implement. A hook is a signature and a docstring.

A plugin is the module (or object) that an entry point of the group ``backend_sdk`` names. A function in it
implements the hook of its own name once it is marked:

    from backend_sdk import hookimpl

    @hookimpl
    def sdk_backends():
        return [AcmeBackend]

An implementation may leave out arguments that it does not need. Names that start with ``sdk_`` are reserved
for hooks, so that a misspelled one is an error and not silence.

Does not: load plugins (`backend_sdk.plugins.manager`) or import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    import typer

    from backend_sdk.backend import Backend
    from backend_sdk.contract import Pass
    from backend_sdk.spec import Sample

PROJECT = "backend_sdk"
HOOK_PREFIX = "sdk_"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@dataclass(frozen=True)
class ConformanceCase:
    """One call that a vendor wants checked beside the contract's own samples.

    ``op`` names a contract op, ``sample`` holds the operands (host tensors) and attributes of the call.
    ``name`` appears in reports.
    """

    op: str
    sample: Sample
    name: str = ""


@hookspec
def sdk_backends() -> Sequence[Backend | type[Backend]]:
    """The backends of this plugin, as instances or as classes that need no arguments.

    One of them has the entry point's name. Only that one is instantiated.
    """
    raise NotImplementedError


@hookspec
def sdk_decompositions() -> Mapping[Any, Callable[..., Any]]:
    """Rules from aten overloads to contract ops, in the form that `backend_sdk.decomp` describes.

    They apply to the backends of this plugin, where they come before the SDK's own rules, and to no other.
    """
    raise NotImplementedError


@hookspec
def sdk_passes() -> Sequence[Pass]:
    """Graph rewrites for the backends of this plugin, in the order in which they run within a stage."""
    raise NotImplementedError


@hookspec
def sdk_conformance_cases() -> Sequence[ConformanceCase]:
    """Calls to check beside the contract's own samples, such as the shapes of a model that once failed."""
    raise NotImplementedError


@hookspec
def sdk_commands(app: typer.Typer) -> None:
    """Add commands to ``app``: they run as ``backend-sdk plugin NAME COMMAND``."""
