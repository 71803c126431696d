"""`explain` tells who runs what and why; without it a vendor cannot see what falls back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import backend_sdk
from backend_sdk import errors

HERE = Path(__file__).name


@torch.library.custom_op("explain_test::opaque", mutates_args=())
def opaque(x: torch.Tensor) -> torch.Tensor:
    """An op of nobody's contract."""
    return x + 1


@opaque.register_fake
def _(x):
    return torch.empty_like(x)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        return opaque(self.layer(x))


def test_native_fallback_reason_line_and_crossing_bytes():
    with torch.no_grad():
        explanation = backend_sdk.explain(Net(), torch.rand(3, 4), backend="reference")
    (graph,) = explanation.graphs
    assert graph.kind == "inference"
    (fallen,) = explanation.fallbacks
    assert fallen.op == "explain_test.opaque.default"
    assert HERE in fallen.location and "opaque(self.layer(x))" in fallen.location
    assert "no decomposition reaches the contract" in fallen.reasons[0]
    assert explanation.counts["fallback"] == 1 and explanation.counts["decomposed"] == 1
    assert graph.bytes_crossing >= 3 * 4 * 4
    text = str(explanation)
    for part in ("inference graph on sdk:reference", "eager: explain_test.opaque.default", HERE, "bytes crossing"):
        assert part in text
    assert json.loads(json.dumps(explanation.to_json()))["counts"] == explanation.counts


def test_the_backward_graph_is_explained_and_gradients_are_left_alone():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    explanation = backend_sdk.explain(model, torch.randn(3, 4), backend="reference")
    assert [graph.kind for graph in explanation.graphs] == ["forward", "backward"]
    assert all(parameter.grad is None for parameter in model.parameters())
    # Every frame of nn.Sequential is torch's own: the module's path stands in for the line.
    assert "module L['fn'].0 (Linear)" in explanation.graphs[0].nodes[0].location


def test_graph_breaks_have_their_line_and_reason():
    def broken(x):
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    explanation = backend_sdk.explain(broken, torch.ones(3), backend="reference")
    assert len(explanation.graphs) == 2
    (found,) = explanation.graph_breaks
    assert HERE in found.location and "graph_break" in found.reason


def test_nothing_captured_is_an_error_with_the_reason():
    @torch.compiler.disable
    def inner(x):
        return x + 1

    def hidden(x):
        return inner(x)

    with pytest.raises(errors.CaptureError) as caught:
        backend_sdk.explain(hidden, torch.ones(3), backend="reference")
    assert "nothing of hidden was captured" in str(caught.value)
    assert "fullgraph=True" in str(caught.value)


def test_a_typo_in_the_backend_or_an_option_is_told_before_anything_runs():
    def never(x):
        raise AssertionError("it ran")

    with pytest.raises(errors.UnknownBackendError, match="did you mean 'reference'"):
        backend_sdk.explain(never, torch.ones(3), backend="refrence")
    with pytest.raises(errors.OptionError, match="did you mean 'fallback'"):
        backend_sdk.explain(never, torch.ones(3), backend="reference", options={"fallbak": "warn"})


def test_the_log_stays_quiet_where_the_explanation_tells(caplog):
    backend_sdk.explain(lambda x: opaque(x), torch.rand(3), backend="reference")
    assert not [record for record in caplog.records if record.name == "backend_sdk"]
