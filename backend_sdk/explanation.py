"""`explain`: who runs each node of a model, why the backend refused one, what crosses, where the graph breaks.

Does not: print tables with colour (the command line does).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from backend_sdk.errors import CaptureError, OptionError
from backend_sdk.pipeline.options import Options
from backend_sdk.pipeline.report import DECOMPOSED, FALLBACK, FREE, NATIVE, GraphReport, NodeReport, collecting
from backend_sdk.plugins import get_backend
from backend_sdk.torch_compat import gradients, trees
from backend_sdk.torch_compat.graph_breaks import GraphBreak, forget_compiled_code, recorded_graph_breaks


@dataclass
class Explanation:
    """What compiling did: a report for each graph, and the places where Dynamo broke the graph.

    ``str()`` is a readable summary, `to_json` the whole.
    """

    graphs: list[GraphReport] = field(default_factory=list)
    graph_breaks: list[GraphBreak] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        """Nodes by verdict, over all graphs."""
        total = dict.fromkeys((NATIVE, DECOMPOSED, FALLBACK, FREE), 0)
        for graph in self.graphs:
            for verdict, number in graph.counts.items():
                total[verdict] = total.get(verdict, 0) + number
        return total

    @property
    def fallbacks(self) -> list[NodeReport]:
        """The nodes that eager runs, in part or whole."""
        return [node for graph in self.graphs for node in graph.nodes if node.verdict == FALLBACK]

    @property
    def totals(self) -> dict[str, Any]:
        """Numbers over all graphs. ``bytes_crossing`` is None when some graph's depends on symbolic sizes, and then
        ``bytes_crossing_symbolic`` is the sum of their expressions, each in its graph's own symbols.
        """
        symbolic = [graph.bytes_crossing_symbolic for graph in self.graphs if graph.bytes_crossing_symbolic is not None]
        known = sum(graph.bytes_crossing or 0 for graph in self.graphs)
        return {
            "graphs": len(self.graphs),
            "graph_breaks": len(self.graph_breaks),
            "nodes": sum(len(graph.nodes) for graph in self.graphs),
            **self.counts,
            "regions": sum(graph.regions for graph in self.graphs),
            "kernels": sum(graph.kernels for graph in self.graphs),
            "eager_steps": sum(graph.eager_steps for graph in self.graphs),
            "bytes_crossing": None if symbolic else known,
            "bytes_crossing_symbolic": " + ".join([*symbolic, *([str(known)] if known else [])]) if symbolic else None,
        }

    def to_json(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "totals": self.totals,
            "counts": self.counts,
            "graphs": [graph.to_json() for graph in self.graphs],
            "graph_breaks": [{"reason": item.reason, "location": item.location} for item in self.graph_breaks],
        }

    def __str__(self) -> str:
        lines = []
        for graph in self.graphs:
            counts = ", ".join(f"{number} {verdict}" for verdict, number in graph.counts.items())
            lines.append(f"{graph.kind} graph on sdk:{graph.backend}: {len(graph.nodes)} nodes ({counts})")
            lines.append(f"  {graph.sizes}")
            lines += [f"  rule: {rule}" for rule in graph.vendor_rules]
            for node in graph.nodes:
                if node.verdict == FALLBACK:
                    lines.append(f"  eager: {node.op}" + (f" at {node.location}" if node.location else ""))
                    lines += [f"    {reason}" for reason in node.reasons]
        lines += [
            f"graph break{f' at {item.location}' if item.location else ''}: {item.reason}" for item in self.graph_breaks
        ]
        return "\n".join(lines)


def explain(
    model: Callable[..., Any],
    *args: Any,
    backend: str,
    options: Mapping[str, Any] | None = None,
    dynamic: bool | None = None,
    **kwargs: Any,
) -> Explanation:
    """Compile ``model(*args, **kwargs)`` for ``backend`` (its name, without ``sdk:``) and say what happened.

    Runs the model once. When gradients are on and a result needs one, the backward graph is compiled too: with
    respect to every tensor that needs a gradient, be it an argument, a parameter or in a closure. Their ``.grad``
    is left alone. Functions that this process has compiled are compiled anew at their next call.

    ``backend``, ``options`` and ``dynamic`` are those of ``torch.compile``. For a model with keyword arguments of these
    names, explain ``lambda *args: model(*args, options=...)``.

    Raises `UnknownBackendError`, `OptionError`, what compiling raises, and `CaptureError` when Dynamo captured nothing
    at all.
    """
    own = (
        ("backend", isinstance(backend, str), "the name of a backend", backend),
        ("options", options is None or isinstance(options, Mapping), "a dict", options),
        ("dynamic", dynamic is None or isinstance(dynamic, bool), "True, False or None", dynamic),
    )
    for name, fits, kind, value in own:
        if not fits:
            raise OptionError(
                f"explain's own argument {name!r} takes {kind}, not {value!r}",
                hint=f"if the model takes an argument {name!r}: explain(lambda *args: model(*args, {name}=...), ...)",
            )
    get_backend(backend)
    Options.parse(options)
    forget_compiled_code()
    start = gradients.moment()
    with explaining() as explanation:
        compiled = torch.compile(model, backend=f"sdk:{backend}", options=dict(options or {}), dynamic=dynamic)
        results = trees.leaves(compiled(*args, **kwargs))
        outputs = [leaf for leaf in results if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        if outputs and torch.is_grad_enabled():
            gradients.differentiate(outputs, start)
    if not explanation.graphs:
        raise CaptureError(
            f"nothing of {_name(model)} was captured for backend {backend!r}"
            + "".join(f"\n  graph break at {item.location}: {item.reason}" for item in explanation.graph_breaks),
            hint="torch.compile(..., fullgraph=True) shows what Dynamo cannot trace",
        )
    return explanation


@contextlib.contextmanager
def explaining() -> Iterator[Explanation]:
    """Explains everything that this thread compiles within the context."""
    with collecting(quiet=True) as graphs, recorded_graph_breaks() as breaks:
        yield Explanation(graphs, breaks)


def _name(model: Callable[..., Any]) -> str:
    return type(model).__name__ if isinstance(model, torch.nn.Module) else getattr(model, "__name__", repr(model))
