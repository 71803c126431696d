"""Backend SDK: plug an accelerator into PyTorch 2.

A vendor subclasses `Backend`, registers it as a plugin, and ``torch.compile(model, backend="sdk:NAME")`` runs
models on it. `prims` is the contract that a backend implements.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from backend_sdk import errors, prims
    from backend_sdk.backend import Backend, implements
    from backend_sdk.contract import YES, Capability, Kernel, Limitation, Node, Pass, Region, Support, no
    from backend_sdk.explanation import Explanation, explain
    from backend_sdk.exported import CompiledProgram, compile_program
    from backend_sdk.pipeline.report import fallback_counts
    from backend_sdk.plugins import (
        get_backend,
        hookimpl,
        known_backends,
        register_backend,
        unregister_backend,
    )
    from backend_sdk.runtime.device import Device
    from backend_sdk.spec import BoundaryType, SymExpr, TensorType
    from backend_sdk.tracing import traceable

__version__ = "0.1.0"

__all__ = [
    "YES",
    "Backend",
    "BoundaryType",
    "Capability",
    "CompiledProgram",
    "Device",
    "Explanation",
    "Kernel",
    "Limitation",
    "Node",
    "Pass",
    "Region",
    "Support",
    "SymExpr",
    "TensorType",
    "__version__",
    "compile_program",
    "errors",
    "explain",
    "fallback_counts",
    "get_backend",
    "hookimpl",
    "implements",
    "known_backends",
    "no",
    "prims",
    "register_backend",
    "traceable",
    "unregister_backend",
]

# Where each public name lives. Nothing is imported before it is used: the command line's help, and the module
# that torch asks for a backend, must not pay for the rest. (The imports above tell type checkers the same.)
_HOMES = {
    name: module
    for module, names in {
        "backend_sdk.backend": ("Backend", "implements"),
        "backend_sdk.contract": (
            "YES",
            "Capability",
            "Kernel",
            "Limitation",
            "Node",
            "Pass",
            "Region",
            "Support",
            "no",
        ),
        "backend_sdk.explanation": ("Explanation", "explain"),
        "backend_sdk.exported": ("CompiledProgram", "compile_program"),
        "backend_sdk.pipeline.report": ("fallback_counts",),
        "backend_sdk.plugins": (
            "get_backend",
            "hookimpl",
            "known_backends",
            "register_backend",
            "unregister_backend",
        ),
        "backend_sdk.runtime.device": ("Device",),
        "backend_sdk.spec": ("BoundaryType", "SymExpr", "TensorType"),
        "backend_sdk.tracing": ("traceable",),
    }.items()
    for name in names
}
_MODULES = ("errors", "prims")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"backend_sdk.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
