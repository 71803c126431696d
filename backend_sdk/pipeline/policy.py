"""Policy: what ``fallback="error"`` means, checked when all that rewrites the graph has run.

Does not: place or run what falls back.
"""

from __future__ import annotations

from torch import fx

from backend_sdk.backend import Backend
from backend_sdk.contract import op_name
from backend_sdk.errors import UnsupportedOpError
from backend_sdk.pipeline.decompose import Dialect
from backend_sdk.pipeline.options import Options
from backend_sdk.spec import Prim
from backend_sdk.torch_compat.ops import is_overload


def hold_to_policy(dialect: Dialect, backend: Backend, options: Options) -> None:
    """Raise `UnsupportedOpError`, under ``fallback="error"``, when eager would run a call that nobody asked it to."""
    if options.fallback != "error":
        return
    refused = [node for node in dialect.graph.nodes if "refusal" in node.meta and "requested" not in node.meta]
    if refused:
        raise _unsupported(refused, backend)


def _unsupported(refused: list[fx.Node], backend: Backend) -> UnsupportedOpError:
    first = refused[0]
    call, origin, name = first.meta.get("call"), first.meta["origin"], op_name(first.target)
    what = str(call) if call is not None else f"{name} -> {first.meta['type']}"
    if origin.op not in ("", name):
        what += f" (out of {origin.op})"
    others = sorted({op_name(node.target) for node in refused} - {name})
    more = f"\n  also refused in this graph: {', '.join(others)}" if others else ""
    return UnsupportedOpError(
        f"backend {backend.name!r} cannot run {what}: {first.meta['refusal']}, and fallback is 'error'{more}",
        location=origin.location,
        hint=f"{_way(first, origin.op or name, backend)}, or compile with options={{'fallback': 'allow'}}",
    )


def _way(node: fx.Node, captured: str, backend: Backend) -> str:
    """What a vendor, or else the model's author, can do about a refused call."""
    if node.target in backend.implementations:
        return "give the model what the backend takes, or widen what its kernel and Capability take"
    if isinstance(node.target, Prim):
        return f"implement it (@implements(prims.{op_name(node.target)}))"
    if is_overload(node.target) and "opaque" not in node.meta:
        return f"claim it (@implements(torch.ops.{captured}))"
    return "keep it out of the compiled model"
