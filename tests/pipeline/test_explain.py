"""`explain` tells who runs what and why; without it a vendor cannot see what falls back."""

from __future__ import annotations

import itertools
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
    # The layer's result enters eager; eager's result goes to the user.
    assert graph.bytes_crossing == fallen.bytes_crossing == 3 * 4 * 4
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


def kinds_of(model, *args, **kwargs):
    explanation = backend_sdk.explain(model, *args, backend="reference", **kwargs)
    return [graph.kind for graph in explanation.graphs]


def test_the_backward_graph_is_explained_whatever_needs_the_gradient():
    def leaf():
        return torch.ones(3, requires_grad=True)

    both = ["forward", "backward"]
    x, table, closed, inner = leaf(), {"a": [leaf()]}, leaf(), leaf()
    hidden = inner * 2
    module = torch.nn.GELU()
    assert kinds_of(module, x) == both
    assert kinds_of(lambda t: t["a"][0].sin(), table) == both
    assert kinds_of(lambda t, *, scale: t * scale, torch.ones(3), scale=x) == both
    assert kinds_of(lambda t: t * closed, torch.ones(3)) == both
    assert kinds_of(lambda t: {"y": (t * hidden).exp()}, torch.ones(3)) == both
    assert kinds_of(lambda t: t.exp(), x * 3) == both
    assert all(tensor.grad is None for tensor in (x, table["a"][0], closed, inner))
    # The graph that the caller had recorded is still there.
    hidden.sum().backward()
    assert inner.grad is not None


def test_the_backward_graphs_of_a_model_with_a_graph_break_are_explained():
    def broken(x):
        y = x.exp()
        torch._dynamo.graph_break()
        return y.sin()

    assert sorted(kinds_of(broken, torch.ones(3, requires_grad=True))) == ["backward", "backward", "forward", "forward"]


def test_without_gradients_there_is_no_backward_graph():
    x = torch.ones(3, requires_grad=True)
    with torch.no_grad():
        assert kinds_of(torch.sin, x) == ["inference"]
    assert kinds_of(lambda t: (t * 2).long(), torch.ones(3)) == ["inference"]


@pytest.mark.parametrize("clash", [{"options": 2}, {"dynamic": "yes"}, {"backend": 3}])
def test_a_model_argument_that_is_named_like_an_own_one_is_told(clash):
    ((name, value),) = clash.items()
    arguments = {"backend": "reference", **clash}
    with pytest.raises(errors.OptionError) as caught:
        backend_sdk.explain(torch.sin, torch.ones(3), **arguments)
    assert f"own argument {name!r}" in str(caught.value) and repr(value) in str(caught.value)
    assert f"lambda *args: model(*args, {name}=...)" in str(caught.value)


# ---- bytes crossing


def crossing(backend, model, *args, **kwargs):
    with torch.no_grad():
        (graph,) = backend_sdk.explain(model, *args, backend=backend, **kwargs).graphs
    assert graph.bytes_crossing == sum(node.bytes_crossing for node in graph.nodes)
    return graph.bytes_crossing, {node.op: node.bytes_crossing for node in graph.nodes if node.bytes_crossing}


@pytest.fixture
def refusing(make_backend):
    """``refusing("cos")`` registers a backend that runs all prims but these; returns its name."""

    numbers = itertools.count()

    def make(*names):
        return make_backend(f"refusing{next(numbers)}", without=names).removeprefix("sdk:")

    return make


def test_a_result_picked_from_an_eager_call_crosses_into_a_region(refusing):
    name = refusing("topk", "sort")
    total, nodes = crossing(name, lambda t: torch.topk(t, 3)[0] + 1, torch.rand(8))
    # Eager sorts; the region takes the sorted values, not the indices, which nobody reads.
    assert total == 8 * 4 and list(nodes) == ["aten.topk.default"]


def test_a_model_input_that_a_region_and_eager_share_does_not_cross(refusing):
    assert crossing(refusing("cos"), lambda t: (t.sin(), t.cos()), torch.rand(16)) == (0, {})


def test_results_of_the_model_do_not_cross(refusing):
    assert crossing(refusing("cos"), lambda t: t.sin().cos(), torch.rand(16)) == (64, {"aten.cos.default": 64})
    assert crossing(refusing("cos"), lambda t: t.cos().sin(), torch.rand(16)) == (64, {"aten.cos.default": 64})


def test_a_value_crosses_into_eager_once_and_into_each_region_once(refusing):
    def fan(t):
        y = t.exp()
        return y.cos() + y.sin()

    # exp to eager (64, at the first reader), both results into the region of the sum (128).
    total, nodes = crossing(refusing("cos", "sin"), fan, torch.rand(16))
    assert total == 3 * 64 and sorted(nodes.values()) == [64, 128]

    def regions(t):
        y = t.cos()
        return (y.exp().cos() + y, 1)

    # cos to two regions (128), exp to eager (64), eager's second result to a region (64).
    total, _ = crossing(refusing("cos"), regions, torch.rand(16))
    assert total == 4 * 64


def test_eager_calls_among_themselves_cross_nothing(refusing):
    assert crossing(refusing("cos", "sin"), lambda t: t.cos().sin(), torch.rand(16)) == (0, {})


def test_symbolic_bytes_have_a_key_of_their_own(refusing):
    name = refusing("cos")
    with torch.no_grad():
        explanation = backend_sdk.explain(lambda t: t.sin().cos().exp(), torch.rand(5, 4), backend=name, dynamic=True)
    (graph,) = explanation.graphs
    (fallen,) = explanation.fallbacks
    data = json.loads(json.dumps(explanation.to_json()))
    for found in (data["totals"], data["graphs"][0], data["graphs"][0]["nodes"][1]):
        assert found["bytes_crossing"] is None
        assert "32*" in found["bytes_crossing_symbolic"] or "8*" in found["bytes_crossing_symbolic"]
    assert fallen.bytes_crossing_symbolic == graph.bytes_crossing_symbolic
    assert f"{graph.bytes_crossing_symbolic} bytes crossing" in str(explanation)
    assert data["graphs"][0]["arena_bytes"] is None or isinstance(data["graphs"][0]["arena_bytes"], int)


def test_totals_are_over_all_graphs(refusing):
    def broken(x):
        y = x.sin().cos()
        torch._dynamo.graph_break()
        return y.sin().cos()

    with torch.no_grad():
        data = backend_sdk.explain(broken, torch.ones(4), backend=refusing("cos")).to_json()
    assert data["totals"] == {
        "graphs": 2,
        "graph_breaks": 1,
        "nodes": 4,
        "native": 2,
        "decomposed": 0,
        "fallback": 2,
        "free": 0,
        "regions": 2,
        "kernels": 2,
        "eager_steps": 2,
        "bytes_crossing": 32,
        "bytes_crossing_symbolic": None,
    }
