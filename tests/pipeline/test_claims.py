"""Claim or descend, as the backend answers; and the report says why.

Without this a vendor's fast kernel is not used, or is used for what it cannot do.
"""

from __future__ import annotations

import datetime

import pytest
import torch
import torch.nn.functional as F

import backend_sdk
from backend_sdk import Capability, Limitation, errors, implements, no, prims
from backend_sdk.pipeline import report
from backend_sdk.spec import Composite


@pytest.fixture
def calls():
    """Names of the vendor functions that ran."""
    return []


def ops_of(reports):
    return [op for graph in reports for node in graph.nodes for op in node.ops]


def reasons_of(reports):
    return [reason for graph in reports for node in graph.nodes for reason in node.reasons]


def run(function, backend, *inputs, **options):
    torch._dynamo.reset()
    result = torch.compile(function, backend=backend, dynamic=False, **options)(*inputs)
    torch.testing.assert_close(
        result, function(*inputs), atol=2e-2 if inputs[0].dtype == torch.bfloat16 else 1e-5, rtol=1e-2
    )


def test_composite_is_claimed_by_dtype_and_shape_else_descends(make_backend, calls, collected):
    @implements(
        prims.gelu,
        dtypes=[torch.float32],
        when=lambda node: backend_sdk.YES if node.operands[0].shape[-1] % 4 == 0 else no("rows are not in fours"),
    )
    def fast_gelu(x, **attributes):
        calls.append(tuple(x.shape))
        return prims.gelu.reference(x, **attributes)

    backend = make_backend("acme", fast_gelu=staticmethod(fast_gelu))
    run(F.gelu, backend, torch.randn(2, 8))
    assert calls == [(2, 8)] and ops_of(collected) == ["gelu"]
    assert collected[-1].nodes[0].verdict == report.NATIVE

    run(F.gelu, backend, torch.randn(2, 6))
    run(F.gelu, backend, torch.randn(2, 8).bfloat16())
    assert calls == [(2, 8)]
    assert [graph.nodes[0].verdict for graph in collected[1:]] == [report.DECOMPOSED] * 2
    assert "gelu: rows are not in fours" in reasons_of(collected)
    assert "gelu: its kernel for gelu takes float32, not bfloat16" in reasons_of(collected)
    assert "erf" in ops_of(collected[1:])


def test_a_composite_without_kernel_descends_quietly_or_is_kept_whole(make_backend, collected):
    backend = make_backend("acme")
    run(lambda x: F.softmax(x, -1), backend, torch.randn(3, 4), options={"fallback": "error"})
    assert "softmax: it has no kernel for softmax" in reasons_of(collected)
    assert {"reduce_max", "exp", "reduce_sum"} <= set(ops_of(collected))


def test_aten_overload_is_claimed_directly(make_backend, calls, collected):
    @implements(torch.ops.aten.gelu.default, dtypes=[torch.float32])
    def aten_gelu(x, approximate="none"):
        calls.append(approximate)
        return F.gelu(x, approximate=approximate)

    backend = make_backend("acme", aten_gelu=staticmethod(aten_gelu))
    run(lambda x: F.gelu(x, approximate="tanh") + 1, backend, torch.randn(3), options={"fallback": "error"})
    assert calls == ["tanh"]
    assert collected[-1].nodes[0].ops == ["aten.gelu.default"]
    assert collected[-1].nodes[0].verdict == report.NATIVE
    run(F.gelu, backend, torch.randn(3).bfloat16(), options={"fallback": "error"})
    assert calls == ["tanh"]
    assert any("takes float32, not bfloat16" in reason for reason in reasons_of(collected))


def test_claimed_overload_with_tensor_keywords_and_several_results(make_backend, calls):
    aten = torch.ops.aten

    @implements(aten.clamp.Tensor)
    def clamp(x, min=None, max=None):
        calls.append("clamp")
        return torch.clamp(x, min, max)

    @implements(aten.topk.default)
    def topk(x, k, dim=-1, largest=True, sorted=True):
        calls.append("topk")
        return tuple(torch.topk(x, k, dim, largest, sorted))

    @implements(aten.split.Tensor)
    def split(x, size, dim=0):
        calls.append("split")
        return list(torch.split(x, size, dim))

    functions = {name: staticmethod(value) for name, value in locals().items() if name in ("clamp", "topk", "split")}
    backend = make_backend("acme", **functions)

    def f(x, low):
        y = torch.clamp(x, max=low + 2, min=low)
        return (*torch.topk(y, 2), *torch.split(y, 2))

    run(f, backend, torch.randn(5, 4), torch.zeros(5, 4), options={"check": "always", "fallback": "error"})
    assert calls == ["clamp", "topk", "split"]


def test_several_implementations_the_first_that_accepts_runs(make_backend, calls):
    def kernel(name, **conditions):
        @implements(prims.exp, **conditions)
        def exp(x):
            calls.append(name)
            return torch.exp(x)

        return staticmethod(exp)

    backend = make_backend(
        "acme",
        without=("exp",),
        small=kernel("small", when=lambda node: backend_sdk.YES if node.results[0].shape[0] < 4 else no("large")),
        half=kernel("half", dtypes=[torch.bfloat16]),
        other=kernel("other"),
    )
    for shape, dtype, expected in (
        (2, torch.float32, "small"),
        (8, torch.bfloat16, "half"),
        (8, torch.float32, "other"),
    ):
        run(torch.exp, backend, torch.randn(shape, 2).to(dtype), options={"fallback": "error"})
        assert calls[-1] == expected


def test_limitation_is_honoured(make_backend, collected):
    backend = make_backend(
        "acme",
        limitations=(Limitation("exp", "its table is for float32", dtypes=frozenset({torch.float64})),),
    )
    run(torch.exp, backend, torch.randn(3), options={"fallback": "error"})
    run(torch.exp, backend, torch.randn(3, dtype=torch.float64))
    assert collected[-1].counts["fallback"] == 1
    assert reasons_of(collected) == ["exp: declared limitation: its table is for float32"]


@pytest.mark.parametrize(
    ("capability", "x", "reason"),
    [
        (
            Capability(dtypes=frozenset({torch.float32})),
            torch.ones(2, dtype=torch.float64),
            "float64 is not among its dtypes",
        ),
        (Capability(max_rank=3), torch.ones(1, 2, 3, 4), "rank 4 is above its maximum of 3"),
    ],
)
def test_capability_is_honoured(make_backend, collected, capability, x, reason):
    backend = make_backend("acme", capability=capability)
    run(torch.exp, backend, x)
    assert collected[-1].eager_steps == 1 and collected[-1].regions == 0
    assert f"exp: {reason}" in reasons_of(collected)
    with pytest.raises(errors.UnsupportedOpError, match=reason):
        run(torch.exp, backend, x, options={"fallback": "error"})
    run(torch.exp, backend, torch.ones(3, 2), options={"fallback": "error"})


def test_static_shapes_only(make_backend, collected):
    backend = make_backend("acme", capability=Capability(dynamic_shapes=False))
    x = torch.randn(5)
    torch.testing.assert_close(torch.compile(torch.exp, backend=backend, dynamic=True)(x), x.exp())
    assert "exp: it takes static shapes only" in reasons_of(collected)
    run(torch.exp, backend, x, options={"fallback": "error"})


def test_a_backend_that_does_not_train_runs_the_forward_only(make_backend, collected):
    backend = make_backend("acme", capability=Capability(training=False))
    x = torch.randn(3, requires_grad=True)
    torch.compile(torch.tanh, backend=backend)(x).sum().backward()
    torch.testing.assert_close(x.grad, 1 - torch.tanh(x.detach()) ** 2)
    forward, backward = collected
    assert (forward.kind, backward.kind) == ("forward", "backward")
    assert forward.eager_steps == 0 and backward.regions == 0
    assert any("it does not train" in reason for reason in reasons_of([backward]))


def test_a_region_too_small_to_be_worth_it_stays_in_eager(make_backend, collected):
    backend = make_backend("acme", without=("sin",), capability=Capability(minimum_region=2))

    def f(x):
        y = torch.sin(x.exp())
        return torch.tanh(y) * y

    x = torch.randn(3)
    run(f, backend, x)
    (graph,) = collected
    assert graph.regions == 1
    verdicts = {node.op: node.verdict for node in graph.nodes}
    assert verdicts["aten.exp.default"] == "fallback" and verdicts["aten.tanh.default"] == "native"
    assert "exp: its region has fewer than 2 computing nodes" in reasons_of(collected)
    # Alone in its graph it is worth it: there is no crossing to save.
    run(torch.exp, backend, x)
    assert collected[-1].regions == 1
    # And what the user forbids does not happen by choice.
    run(lambda x: torch.exp(x), backend, x, options={"fallback": "error"})


def test_not_an_op():
    for thing in (torch.exp, "exp", torch.ops.aten.exp, 3):
        with pytest.raises(errors.RegistryError, match="not an op") as caught:
            implements(thing)(lambda x: x)
        assert "prims.exp" in str(caught.value) and "torch.ops.aten.exp.default" in str(caught.value)
    with pytest.raises(errors.RegistryError, match="names no op"):
        implements()


@pytest.mark.parametrize(
    ("op", "function"),
    [
        (prims.exp, lambda x, y: x),
        (prims.add, lambda x: x),
        (prims.reshape, lambda x: x),
        (prims.reshape, lambda x, shape_: x),
        (prims.concat, lambda x, *, dim: x),
    ],
)
def test_function_that_cannot_be_called_like_the_op(op, function):
    with pytest.raises(errors.RegistryError) as caught:
        implements(op)(function)
    text = str(caught.value)
    assert f"@implements(prims.{op.name})" in text and "cannot be called like" in text
    assert f"to fix: def {op.name}(" in text and all(name in text for name in op.attribute_names)


def test_a_backend_without_a_name():
    with pytest.raises(errors.RegistryError, match="give it a Python identifier"):
        type("Nameless", (backend_sdk.Backend,), {})()


def test_composites_of_the_contract_run_whole_as_their_body(register):
    """A backend that keeps all composites gives what one gives that has none."""
    from backend_sdk.backends.reference import ReferenceBackend

    class Whole(ReferenceBackend):
        name = "whole"
        composites = True

    backend = register(Whole())
    assert any(isinstance(op, Composite) for op in prims.CONTRACT)

    def f(x, w):
        x = F.layer_norm(F.gelu(F.linear(x, w)), (6,))
        return F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True).softmax(-1)

    run(f, backend, torch.randn(5, 4), torch.randn(6, 4), options={"fallback": "error"})


def test_dtypes_limit_operands_not_what_follows_from_them(make_backend, calls, collected):
    """The result of a comparison is bool whatever is compared; ``iota`` has nothing but its result."""

    @implements(prims.gt, dtypes={torch.float32})
    def gt(x, y):
        calls.append("gt")
        return x > y

    @implements(prims.iota, dtypes={torch.int64})
    def iota(**attributes):
        calls.append("iota")
        return prims.iota.reference(**attributes)

    backend = make_backend("acme", without=("gt", "iota"), gt=staticmethod(gt), iota=staticmethod(iota))
    run(lambda x, y: x > y, backend, torch.randn(3), torch.randn(3), options={"fallback": "error"})
    run(lambda x: x + torch.arange(3), backend, torch.randn(3), options={"fallback": "error"})
    assert set(calls) == {"gt", "iota"}
    run(lambda x, y: x > y, backend, torch.randn(3).double(), torch.randn(3).double())
    assert "gt: its kernel for gt takes float32, not float64" in reasons_of(collected)
    node = backend_sdk.Node(prims.iota, (), (backend_sdk.TensorType((3,), torch.int32),), {})
    assert backend_sdk.get_backend("acme").supports(node) == no("its kernel for iota takes int64, not int32")


@pytest.mark.parametrize(
    ("field", "value", "choices"),
    [
        ("denormals", "flsuh", "did you mean 'flush'? known: flush, preserve"),
        ("denormals", None, "known: flush, preserve"),
        ("minimum_region", -3, "from 0 on"),
        ("minimum_region", True, "from 0 on"),
        ("max_rank", -1, "None for no limit"),
        ("max_rank", 2.5, "None for no limit"),
        ("dtypes", frozenset({"float32"}), "torch.float32"),
        ("dtypes", torch.float32, "frozenset"),
        ("accumulation_dtype", torch.int32, "torch.float32"),
    ],
)
def test_capability_that_means_nothing(field, value, choices):
    with pytest.raises(errors.RegistryError) as caught:
        Capability(**{field: value})
    assert f"Capability({field}={value!r})" in str(caught.value) and choices in str(caught.value)


@pytest.mark.parametrize("op", ["softmx", "aten.exp.default", "prims.exp", ""])
def test_limitation_that_covers_nothing(make_backend, op):
    with pytest.raises(errors.RegistryError) as caught:
        make_backend("acme", limitations=(Limitation(op, "too slow"),))
    text = str(caught.value)
    assert f"backend 'acme': its Limitation({op!r}, 'too slow') covers nothing" in text
    assert "'*'" in text
    if op == "softmx":
        assert "did you mean 'softmax'?" in text


def test_limitation_of_a_claimed_overload(make_backend, collected):
    @implements(torch.ops.aten.hardswish.default)
    def hardswish(x):
        raise AssertionError("it has a limitation")

    backend = make_backend(
        "acme", hardswish=staticmethod(hardswish), limitations=(Limitation("aten.hardswish.default", "errata 7"),)
    )
    run(F.hardswish, backend, torch.randn(3))
    assert "aten.hardswish.default: declared limitation: errata 7" in reasons_of(collected)


@pytest.mark.parametrize(("expires", "said"), [((2020, 1, 2), " (expired on 2020-01-02)"), ((9000, 1, 1), "")])
def test_limitation_that_expired_covers_and_says_so(make_backend, collected, expires, said):
    backend = make_backend("acme", limitations=(Limitation("exp", "errata 7", expires=datetime.date(*expires)),))
    run(torch.exp, backend, torch.randn(3))
    assert reasons_of(collected) == [f"exp: declared limitation: errata 7{said}"]


def test_op_that_the_contract_lacks_has_near_names():
    with pytest.raises(AttributeError, match=r"backend_sdk.prims' has no attribute 'softmx': did you mean 'softmax'\?"):
        _ = prims.softmx
    assert not hasattr(prims, "__no_such_dunder__")
    with pytest.raises(ImportError):
        from backend_sdk.prims import softmx  # noqa: F401


@pytest.mark.parametrize(
    ("op", "function", "hint"),
    [
        (torch.ops.aten.exp.default, lambda a, b, c: a, "def exp(self):"),
        (torch.ops.aten.exp.default, lambda: None, "def exp(self):"),
        (torch.ops.aten.gelu.default, lambda x: x, "def gelu(self, *, approximate=...):"),
        (torch.ops.aten.gelu.default, lambda x, *, approximate: x, "def gelu(self, *, approximate=...):"),
        (torch.ops.aten.topk.default, lambda x, k, dim, largest, sorted: x, "def topk(self, k, dim=..., "),
    ],
)
def test_function_that_cannot_be_called_like_the_overload(op, function, hint):
    with pytest.raises(errors.RegistryError) as caught:
        implements(op)(function)
    text = str(caught.value)
    assert f"@implements(torch.ops.{op}): <lambda>() cannot be called like the op: " in text
    assert f"to fix: {hint}" in text


def test_op_that_is_accepted_without_a_function(register):
    class Eager(backend_sdk.Backend):
        name = "eager_yes"

        def supports(self, node):
            return backend_sdk.YES

    def f(x):
        return torch.exp(x)

    with pytest.raises(errors.LoweringError) as caught:
        torch.compile(f, backend=register(Eager()))(torch.ones(3))
    text = str(caught.value)
    assert "backend 'eager_yes': supports() accepted exp(float32[3]), but no function implements it\n" in text
    assert "@implements(prims.exp)" in text and "lower()" in text
    assert "return torch.exp(x)" in text


def test_op_that_is_accepted_for_a_dtype_that_no_function_takes(register):
    class Hasty(backend_sdk.Backend):
        name = "hasty"

        @implements(prims.exp, dtypes={torch.float32})
        def exp(x):
            return torch.exp(x)

        def supports(self, node):
            return backend_sdk.YES

    with pytest.raises(errors.LoweringError, match="its kernel for exp takes float32, not float64"):
        torch.compile(torch.exp, backend=register(Hasty()))(torch.ones(3, dtype=torch.float64))


@pytest.mark.parametrize("name", ["_x", "__x", "__init__", "a-b", "2x", None])
def test_name_that_nobody_can_write(name):
    with pytest.raises(errors.RegistryError, match="identifier without a leading underscore"):
        type("Odd", (backend_sdk.Backend,), {"name": name})()


def test_name_that_the_constructor_sets_afterwards():
    class Late(backend_sdk.Backend):
        name = "late"

        def __init__(self):
            super().__init__()
            self.name = "__x"

    with pytest.raises(errors.RegistryError, match="identifier without a leading underscore"):
        backend_sdk.register_backend(Late())
