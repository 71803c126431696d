"""Backend SDK: plug an accelerator into PyTorch 2.

A vendor subclasses `Backend`, registers it as a plugin, and ``torch.compile(model, backend="sdk:NAME")`` runs
models on it. `prims` is the contract that a backend implements.
"""

from backend_sdk import errors, prims
from backend_sdk.backend import Backend, implements
from backend_sdk.contract import YES, Capability, Kernel, Limitation, Node, Pass, Region, Support, no
from backend_sdk.plugins import get_backend, hookimpl, known_backends, register_backend, unregister_backend
from backend_sdk.runtime.device import Device
from backend_sdk.spec import BoundaryType, SymExpr, TensorType

__version__ = "0.1.0"

__all__ = [
    "YES",
    "Backend",
    "BoundaryType",
    "Capability",
    "Device",
    "Kernel",
    "Limitation",
    "Node",
    "Pass",
    "Region",
    "Support",
    "SymExpr",
    "TensorType",
    "__version__",
    "errors",
    "get_backend",
    "hookimpl",
    "implements",
    "known_backends",
    "no",
    "prims",
    "register_backend",
    "unregister_backend",
]
