"""A plugin's decompositions and passes change what its own backends run, and nothing for anybody else."""

from __future__ import annotations

import pytest
import torch

import backend_sdk
from backend_sdk import errors, hookimpl, prims
from backend_sdk.backends.reference import ReferenceBackend
from backend_sdk.contract import Pass
from backend_sdk.pipeline.report import collecting

aten = torch.ops.aten


class Other(ReferenceBackend):
    """A backend of the same kind without a plugin of its own."""

    name = "other"


class Vendor(ReferenceBackend):
    name = "vendor"


@pytest.fixture
def registered():
    """Registers the two backends, the vendor's with the hooks that the test gives."""

    def register(hooks):
        backend_sdk.register_backend(Vendor(), hooks=hooks)
        backend_sdk.register_backend(Other())

    yield register
    for name in ("vendor", "other"):
        backend_sdk.unregister_backend(name)
    torch._dynamo.reset()


def compiled_ops(function, name, *inputs):
    torch._dynamo.reset()
    with collecting() as reports:
        result = torch.compile(function, backend=f"sdk:{name}")(*inputs)
    return result, [op for graph in reports for node in graph.nodes for op in node.ops]


def test_a_rule_of_the_vendor_wins_for_its_backend_only(registered):
    class Hooks:
        @hookimpl
        def sdk_decompositions(self):
            # Wrong on purpose, so that the result shows who decomposed.
            return {aten.sigmoid.default: lambda out, x: prims.neg(x)}

    registered(Hooks())
    x = torch.randn(3)
    vendors, ops = compiled_ops(torch.sigmoid, "vendor", x)
    torch.testing.assert_close(vendors, -x)
    assert ops == ["neg"]
    torch.testing.assert_close(compiled_ops(torch.sigmoid, "other", x)[0], torch.sigmoid(x))


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (lambda out, x: prims.reshape(x, shape=(1, *x.shape)), ["float32[1, 3]", "eager gives float32[3]"]),
        (lambda out, x: prims.convert(x, dtype=torch.float64), ["float64[3]"]),
        (lambda out, x: 1 / 0, ["ZeroDivisionError"]),
        (lambda out, x: prims.add(x, 1.0), ["operand 1.0 is a float"]),
        (lambda out, x: x if x else prims.neg(x), ["has no truth value"]),
    ],
)
def test_a_rule_that_breaks_its_promise_is_named(registered, rule, words):
    class Hooks:
        @hookimpl
        def sdk_decompositions(self):
            return {aten.sigmoid.default: rule}

    registered(Hooks())
    with pytest.raises(errors.DecompositionError) as caught:
        compiled_ops(torch.sigmoid, "vendor", torch.randn(3))
    for word in ["aten.sigmoid.default(float32[3])", *words]:
        assert word in str(caught.value)
    assert compiled_ops(torch.tanh, "vendor", torch.zeros(3))[0].sum() == 0


def tanh_to_sin(graph):
    for node in graph.nodes:
        if node.target is prims.tanh:
            with graph.inserting_before(node):
                new = graph.call_function(prims.sin, node.args)
            new.meta = {"type": node.meta["type"], "origin": node.meta["origin"]}
            node.replace_all_uses_with(new)
            graph.erase_node(node)


def tanh_to_cos(graph):
    tanh_to_sin(graph)
    for node in graph.nodes:
        if node.target is prims.sin:
            node.target = prims.cos


class Cosless(Vendor):
    """A vendor's backend without a cosine."""

    def supports(self, node):
        return backend_sdk.no("it has no cosine") if node.op is prims.cos else super().supports(node)


@pytest.fixture
def cosless():
    class Hooks:
        @hookimpl
        def sdk_passes(self):
            return [Pass("tanh to cos", "decomposed", tanh_to_cos)]

    backend_sdk.register_backend(Cosless(), hooks=Hooks())
    yield
    backend_sdk.unregister_backend("vendor")
    torch._dynamo.reset()


def test_what_a_pass_adds_is_under_the_fallback_policy(cosless):
    x = torch.randn(3)
    with collecting() as reports:
        torch.testing.assert_close(torch.compile(torch.tanh, backend="sdk:vendor")(x), torch.cos(x))
    (graph,) = reports
    assert graph.counts["fallback"] == 1 and graph.eager_steps == 1
    assert any("it has no cosine" in reason for node in graph.nodes for reason in node.reasons)
    torch._dynamo.reset()
    with pytest.raises(errors.UnsupportedOpError, match="it has no cosine"):
        torch.compile(torch.tanh, backend="sdk:vendor", options={"fallback": "error"})(x)


def test_a_pass_may_not_put_refused_calls_into_a_region(cosless):
    class Hooks:
        @hookimpl
        def sdk_passes(self):
            return [Pass("tanh to cos", "partitioned", tanh_to_cos)]

    backend_sdk.unregister_backend("vendor")
    backend_sdk.register_backend(Cosless(), hooks=Hooks())
    torch._dynamo.reset()
    with pytest.raises(errors.PluginError, match="it has no cosine"):
        torch.compile(torch.tanh, backend="sdk:vendor")(torch.randn(3))


@pytest.mark.parametrize("stage", ["decomposed", "partitioned"])
def test_a_pass_rewrites_its_backends_graphs_only(registered, stage):
    class Hooks:
        @hookimpl
        def sdk_passes(self):
            return [Pass("tanh to sin", stage, tanh_to_sin)]

    registered(Hooks())
    x = torch.randn(3)
    for function, rewritten in ((torch.tanh, torch.sin), (lambda x: torch.tanh(x) + 1, lambda x: torch.sin(x) + 1)):
        torch.testing.assert_close(compiled_ops(function, "vendor", x)[0], rewritten(x))
        torch.testing.assert_close(compiled_ops(function, "other", x)[0], function(x))


def breaks_a_type(graph):
    for node in graph.nodes:
        if node.target is prims.tanh:
            node.meta["type"] = node.meta["type"].with_dtype(torch.float64)


def raises(graph):
    raise ValueError("lost its way")


@pytest.mark.parametrize(
    ("run", "words"),
    [(breaks_a_type, ["tanh", "its type is float64[3]"]), (raises, ["ValueError: lost its way"])],
)
@pytest.mark.parametrize("stage", ["decomposed", "partitioned"])
def test_a_pass_that_breaks_the_dialect_is_named(registered, stage, run, words):
    class Hooks:
        @hookimpl
        def sdk_passes(self):
            return [Pass("clumsy", stage, run)]

    registered(Hooks())
    with pytest.raises(errors.PluginError) as caught:
        compiled_ops(torch.tanh, "vendor", torch.randn(3))
    for word in ["pass 'clumsy'", "backend 'vendor'", stage, *words]:
        assert word in str(caught.value)
