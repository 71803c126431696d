"""Extra passes of a plugin: runs one and holds it to the dialect.

Does not: order passes (compile does).
"""

from __future__ import annotations

from torch import fx

from backend_sdk.backend import Backend
from backend_sdk.contract import Pass
from backend_sdk.errors import PluginError, SdkError
from backend_sdk.graph import verify
from backend_sdk.pipeline.claim import Claims, ask_about


def run_pass(extra: Pass, graph: fx.Graph, backend: Backend, kind: str) -> None:
    """Run a plugin's pass in place on a graph of ``kind`` (forward, backward, inference), verify what it leaves and
    ask the backend about new calls.

    Raises `PluginError` when the pass raises, breaks the dialect, or (in a region) adds a call that the backend
    refuses.
    """
    subject = f"pass {extra.name!r} of backend {backend.name!r}"
    try:
        extra.run(graph)
        graph.lint()
        verify(graph, foreign=is_placed)
    except Exception as error:
        detail = error.message if isinstance(error, SdkError) else f"{type(error).__name__}: {error}"
        raise PluginError(
            f"{subject}, stage {extra.stage!r}, failed: {detail}",
            hint="new nodes need meta['type']; build them with backend_sdk.graph or copy an old node's type",
        ) from error
    ask_about(graph.nodes, Claims(backend, kind))
    refused = [node for node in graph.nodes if "refusal" in node.meta]
    if extra.stage == "partitioned" and refused:
        raise PluginError(
            f"{subject} put {refused[0].meta['call']} into a region: {refused[0].meta['refusal']}",
            hint="a pass at stage 'partitioned' may only use ops that the backend supports",
        )


def is_placed(node: fx.Node) -> bool:
    """Whether a call of an op outside the contract is claimed, or left to eager or the host with a reason."""
    return not node.meta.keys().isdisjoint(("call", "refusal", "host"))
