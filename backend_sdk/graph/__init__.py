"""The typed prims graph over ``torch.fx``: building, verifying, printing.

Does not: know backends or aten.
"""

from backend_sdk.graph.builder import GraphBuilder, Origin, Value
from backend_sdk.graph.host import define, is_open, memory_of, read, solve
from backend_sdk.graph.printer import format_graph
from backend_sdk.graph.runnable import runnable
from backend_sdk.graph.verifier import verify

__all__ = [
    "GraphBuilder",
    "Origin",
    "Value",
    "define",
    "format_graph",
    "is_open",
    "memory_of",
    "read",
    "runnable",
    "solve",
    "verify",
]
