"""Backend SDK: plug an accelerator into PyTorch 2.

A vendor subclasses `Backend`, registers it as a plugin, and ``torch.compile(model, backend="sdk:NAME")`` runs
models on it. `prims` is the contract that a backend implements.
"""

from typing import TYPE_CHECKING, Any

from backend_sdk import errors, prims
from backend_sdk.backend import Backend, implements
from backend_sdk.contract import YES, Capability, Kernel, Limitation, Node, Pass, Region, Support, no
from backend_sdk.explanation import Explanation, explain
from backend_sdk.pipeline.report import fallback_counts
from backend_sdk.plugins import get_backend, hookimpl, known_backends, register_backend, unregister_backend
from backend_sdk.runtime.device import Device
from backend_sdk.spec import BoundaryType, SymExpr, TensorType

if TYPE_CHECKING:
    from backend_sdk.exported import CompiledProgram, compile_program

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
    "unregister_backend",
]


def __getattr__(name: str) -> Any:
    # torch.export takes as long to import as the rest of the SDK together; few processes need it.
    if name in ("CompiledProgram", "compile_program"):
        from backend_sdk import exported

        return getattr(exported, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
