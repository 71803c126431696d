"""What eager runs for a backend: higher-order ops, custom ops, whatever depends on strides. Right, and reported.

Without this a model with one exotic op cannot run, or runs wrong.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from backend_sdk import errors, prims
from backend_sdk.pipeline import report

BACKENDS = ("sdk:reference", "sdk:writing", "sdk:gappy")


@pytest.fixture(autouse=True)
def backends(make_backend, make_writing):
    make_writing()
    make_backend("gappy", without=("exp", "permute", "mul", "add"))


@pytest.fixture(scope="module", autouse=True)
def custom_ops():
    with torch.library._scoped_library("sdk_tests", "FRAGMENT"):

        @torch.library.custom_op("sdk_tests::double_rows", mutates_args=())
        def double_rows(x: torch.Tensor) -> torch.Tensor:
            return (x * 2).t().contiguous().t()

        @double_rows.register_fake
        def _(x):
            return torch.empty_like(x.t().contiguous()).t()

        double_rows.register_autograd(lambda context, grad: grad * 2)

        @torch.library.custom_op("sdk_tests::count_up", mutates_args=("counter",))
        def count_up(x: torch.Tensor, counter: torch.Tensor) -> torch.Tensor:
            counter.add_(x.shape[0])
            return x + counter

        @count_up.register_fake
        def _(x, counter):
            return torch.empty_like(x)

        @torch.library.custom_op("sdk_tests::two", mutates_args=())
        def two(x: torch.Tensor, n: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
            return x + n, [x.clone() for _ in range(n)]

        @two.register_fake
        def _(x, n):
            return torch.empty_like(x), [torch.empty_like(x) for _ in range(n)]

        yield


def same(got, expected):
    got, _ = torch.utils._pytree.tree_flatten(got)
    expected, _ = torch.utils._pytree.tree_flatten(expected)
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def fallen(reports):
    return {node.op for graph in reports for node in graph.nodes if node.verdict == report.FALLBACK}


@pytest.mark.parametrize("backend", BACKENDS)
def test_cond(backend, collected):
    def f(x):
        return torch.cond(x.sum() > 0, lambda x: x.sin() * 2, lambda x: x.cos() - 1, (x + 1,)) + x.exp()

    compiled = torch.compile(f, backend=backend, fullgraph=True)
    for x in (torch.ones(3), -3 * torch.ones(3)):
        same(compiled(x), f(x))
    assert "cond" in fallen(collected)
    assert len(collected) == 1


def test_cond_under_the_error_policy():
    with pytest.raises(errors.UnsupportedOpError, match="cond") as caught:
        torch.compile(
            lambda x: torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,)),
            backend="sdk:reference",
            options={"fallback": "error"},
        )(torch.ones(3))
    assert "higher-order op" in str(caught.value) and "test_fallback.py" in str(caught.value)
    assert "'fallback': 'allow'" in str(caught.value)


@pytest.mark.parametrize("backend", BACKENDS)
def test_checkpoint(backend):
    w = torch.randn(4, 4, requires_grad=True)

    def f(x):
        return checkpoint(lambda x: F.gelu(x @ w).exp().sum(), x, use_reentrant=False)

    compiled = torch.compile(f, backend=backend, fullgraph=True)
    x = torch.randn(3, 4, requires_grad=True)
    same(torch.autograd.grad(compiled(x), [x, w]), torch.autograd.grad(f(x), [x, w]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_functional_custom_op(backend, collected):
    def f(x):
        y = torch.ops.sdk_tests.double_rows(x.exp())
        return y.view(3, 2, 2) if y.is_contiguous() else y + 1, y.sum(0)

    x = torch.randn(3, 4)
    compiled = torch.compile(f, backend=backend, fullgraph=True)
    got, expected = compiled(x), f(x)
    same(got, expected)
    assert [one.stride() for one in got] == [other.stride() for other in expected]
    assert "sdk_tests.double_rows.default" in fallen(collected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_custom_op_in_training(backend, collected):
    def f(x):
        return (torch.ops.sdk_tests.double_rows(x.sin()) * x).sum()

    x = torch.randn(3, 4, requires_grad=True)
    same(torch.autograd.grad(torch.compile(f, backend=backend)(x), x), torch.autograd.grad(f(x), x))
    assert [graph.kind for graph in collected] == ["forward", "backward"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_mutating_custom_op(backend):
    def f(x, counter):
        y = torch.ops.sdk_tests.count_up(x.exp(), counter)
        z = torch.ops.sdk_tests.count_up(y * 2, counter)
        return y, z + counter

    compiled = torch.compile(f, backend=backend, fullgraph=True)
    counter, mine = torch.zeros(()), torch.zeros(())
    for _ in range(2):
        x = torch.randn(3)
        same(compiled(x, mine), f(x, counter))
        same(mine, counter)


@pytest.mark.parametrize("backend", BACKENDS)
def test_custom_op_with_a_list_of_results_and_sizes(backend):
    def f(x):
        y, copies = torch.ops.sdk_tests.two(x.exp(), 2)
        return y * copies[0], copies[1] + x.shape[0]

    compiled = torch.compile(f, backend=backend, dynamic=True, fullgraph=True)
    for n in (3, 5):
        x = torch.randn(n)
        same(compiled(x), f(x))


def test_custom_op_that_raises_is_named():
    def f(x):
        return torch.ops.sdk_tests.picky(x + 1)

    @torch.library.custom_op("sdk_tests::picky", mutates_args=())
    def picky(x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 100:
            raise ValueError("too much")
        return x.clone()

    picky.register_fake(torch.empty_like)
    compiled = torch.compile(f, backend="sdk:reference")
    same(compiled(torch.ones(2)), torch.ones(2) + 1)
    with pytest.raises(errors.KernelRaisedError) as caught:
        compiled(torch.ones(2) * 100)
    text = str(caught.value)
    for part in (
        "sdk_tests.picky.default(float32[2])",
        "for backend 'reference'",
        "ValueError: too much",
        "test_fallback.py",
    ):
        assert part in text
    same(compiled(torch.ones(2)), torch.ones(2) + 1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_autocast(backend):
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4))
    compiled = torch.compile(model, backend=backend)
    x = torch.randn(5, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected, got = model(x), compiled(x)
    assert got.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(got, expected, atol=2e-2, rtol=2e-2)
    expected.float().sum().backward()
    grads = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    got.float().sum().backward()
    for one, parameter in zip(grads, model.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, one, atol=5e-2, rtol=5e-2)


def test_autocast_inside_the_model():
    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x.t()
        return y, y.float() + 1

    x = torch.randn(4, 4)
    got, expected = torch.compile(f, backend="sdk:reference", fullgraph=True)(x), f(x)
    assert [one.dtype for one in got] == [torch.bfloat16, torch.float32]
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, atol=5e-2, rtol=5e-2)


# ---- ops that look at strides

STRIDED = {
    "view of a transposed chain": lambda x: x.t().exp().t().view(-1) * 2,
    "view after fallbacks": lambda x: ((x.t() * 2).exp() + 1).t().view(2, 6).exp(),
    "as_strided": lambda x: (x + 1).exp().as_strided((2, 2), (1, 4), 3),
    "as_strided of a transposed": lambda x: x.t().exp().as_strided((3, 2), (2, 1)),
    "unfold": lambda x: x.exp().unfold(1, 2, 1).sum(-1),
    "linalg after transpose": lambda x: torch.linalg.svdvals(x.t().exp()),
    "fft": lambda x: torch.fft.rfft(x.t().exp()).abs(),
    "complex views": lambda x: torch.view_as_real(torch.view_as_complex(x.exp().view(3, 2, 2)) * 2),
    "dtype view": lambda x: x.exp().view(torch.int32) + 1,
    "sort of a transposed": lambda x: torch.sort(x.t().exp(), dim=0),
    "median": lambda x: x.exp().t().median(0),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", STRIDED)
def test_ops_that_depend_on_strides(name, backend):
    function = STRIDED[name]
    x = torch.randn(3, 4)
    expected = torch.compile(function, backend="aot_eager", dynamic=False)(x)
    torch._dynamo.reset()
    same(torch.compile(function, backend=backend, dynamic=False)(x), expected)


def test_every_op_of_a_model_refused_one_by_one(make_backend):
    """Whatever is refused, the result is right."""

    def f(x, w):
        y = F.layer_norm(F.gelu(x @ w), (6,))
        y = y.t().softmax(-1).t()
        return y.reshape(-1, 3), torch.cat([y, y * 2], 1).cumsum(0), y.argmax(1)

    x, w = torch.randn(4, 5), torch.randn(5, 6)
    expected = f(x, w)
    names = [op.name for op in prims.CONTRACT if op.kind == "prim"]
    for index, refused in enumerate(
        ("dot_general", "reduce_sum", "permute", "reshape", "broadcast", "full", "mul", "div")
    ):
        assert refused in names
        torch._dynamo.reset()
        backend = make_backend(f"part_{index}", without=(refused,))
        same(torch.compile(f, backend=backend, dynamic=False)(x, w), expected)


def test_checkpoint_of_a_random_op_uses_one_mask(collected):
    """torch saves the random state of the forward pass and draws again from it in the backward pass."""

    def dropped(x):
        return torch.utils.checkpoint.checkpoint(
            lambda t: torch.nn.functional.dropout(t.sin(), 0.5, True) * 2, x, use_reentrant=False
        )

    x = torch.ones(1000, requires_grad=True)
    result = torch.compile(dropped, backend="sdk:reference")(x)
    result.sum().backward()
    assert torch.equal(result != 0, x.grad != 0)
    assert 300 < int((result != 0).sum()) < 700
    fallen = [node.op for graph in collected for node in graph.nodes if node.verdict == report.FALLBACK]
    assert fallen == ["run_and_save_rng_state", "run_with_rng_state"]


def test_tensors_made_or_moved_elsewhere_stay_there(collected):
    """A device named inside the model is none of the backend's business: such calls run in eager."""

    def elsewhere(x):
        return x.to("meta"), torch.zeros(2, device="meta"), torch.empty_like(x, device="meta") + 1, x + 1

    x = torch.ones(3)
    got = torch.compile(elsewhere, backend="sdk:reference")(x)
    assert [part.device.type for part in got] == ["meta", "meta", "meta", "cpu"]
    torch.testing.assert_close(got[3], x + 1)
    reasons = [reason for graph in collected for node in graph.nodes for reason in node.reasons]
    assert any("does not take tensors on 'meta'" in reason for reason in reasons)
    with pytest.raises(errors.UnsupportedOpError, match="does not take tensors on 'meta'"):
        torch.compile(lambda x: x.to("meta"), backend="sdk:reference", options={"fallback": "error"})(x)


def test_a_decomposition_of_equal_operands_serves_no_others():
    """torch's decompositions are remembered by their arguments; op(x, x) is another call than op(x, y)."""
    x, y = torch.rand(5) + 0.5, torch.rand(5) + 0.5

    def both(x, y):
        return torch.special.xlogy(x, x), torch.special.xlogy(x, y)

    torch.testing.assert_close(torch.compile(both, backend="sdk:reference")(x, y), both(x, y))
