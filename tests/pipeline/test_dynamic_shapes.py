"""One compilation serves all sizes, and sizes that only the data decides run right.

Without this a server compiles anew for each request's length.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

BACKENDS = ("sdk:reference", "sdk:writing", "sdk:gappy")


@pytest.fixture(autouse=True)
def backends(make_backend, make_writing):
    make_writing()
    make_backend("gappy", without=("exp", "permute", "mul", "add"))


def same(got, expected):
    got, _ = torch.utils._pytree.tree_flatten(got)
    expected, _ = torch.utils._pytree.tree_flatten(expected)
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


FUNCTIONS = {
    "elementwise": lambda x: x.exp() + 1,
    "reshape": lambda x: x.reshape(x.shape[0] * x.shape[1]),
    "reshape by product": lambda x: (x + 1).view(-1, 2).sum(0),
    "split heads": lambda x: x.reshape(x.shape[0], x.shape[1] // 2, 2).transpose(0, 1),
    "cat": lambda x: torch.cat([x, x[:, :1], x * 2], 1),
    "slice": lambda x: x[1:, : x.shape[1] // 2] + 1,
    "slice from the end": lambda x: x[:, -2:].exp(),
    "arange": lambda x: torch.arange(x.shape[1]) + torch.arange(x.shape[0])[:, None],
    "arange as mask": lambda x: x.masked_fill(torch.arange(x.shape[1]) > x.shape[1] - 2, 0),
    "expand": lambda x: x[:, None].expand(x.shape[0], 3, x.shape[1]).exp(),
    "new sizes": lambda x: torch.ones(x.shape[0] + 1, 2 * x.shape[1] - 1),
    "size as a number": lambda x: x * x.shape[0] / x.shape[1],
    "size returned": lambda x: (x.exp(), x.shape[0], x.shape[0] * x.shape[1]),
    "view of the input": lambda x: (x[1], x.view(-1)),
    "views of a result": lambda x: (lambda y: (y, y[0], y.t()))(x.exp()),
    "softmax": lambda x: F.softmax(x, -1),
    "layer norm": lambda x: F.layer_norm(x, (x.shape[1],)),
    "matmul": lambda x: x @ x.t(),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True),
    "pad": lambda x: F.pad(x, (1, 2, 0, x.shape[0])),
    "triangle": lambda x: (x @ x.t()).tril(),
    "mean and variance": lambda x: (x.mean(0), x.var(1)),
    "cumsum": lambda x: x.cumsum(1),
    "mutation": lambda x: x.add_(1) * 2,
    "reuse of memory": lambda x: ((x.exp() * 2).exp() * 0.5).exp().sum(),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_compilation_for_all_sizes(name, backend, collected):
    function = FUNCTIONS[name]
    compiled = torch.compile(function, backend=backend, dynamic=True)
    for rows, columns in ((3, 4), (5, 8), (4, 6), (7, 10)):
        x = torch.randn(rows, columns) / 4
        same(compiled(x.clone()), function(x.clone()))
    assert len(collected) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_dynamic_after_the_second_size(backend, collected):
    compiled = torch.compile(lambda x: x.exp().sum(0) + x.shape[0], backend=backend)
    for n in (3, 5, 7, 9, 11):
        x = torch.randn(n, 4)
        same(compiled(x), x.exp().sum(0) + n)
    assert len(collected) == 2


def test_mark_dynamic(collected):
    compiled = torch.compile(lambda x: x.reshape(-1) * 2, backend="sdk:reference")
    for n in (3, 5, 7):
        x = torch.randn(n, 4)
        torch._dynamo.mark_dynamic(x, 0)
        same(compiled(x), x.reshape(-1) * 2)
    assert len(collected) == 1


def test_numbers_become_dynamic(collected):
    compiled = torch.compile(lambda x, n, p: x[:n] * n * p, backend="sdk:reference")
    x = torch.randn(20)
    for n, p in ((3, 0.5), (5, 0.25), (7, 1.5), (8, 2.5)):
        same(compiled(x, n, p), x[:n] * n * p)
    assert len(collected) <= 3


@pytest.mark.parametrize("backend", BACKENDS)
def test_strided_inputs_of_any_size(backend, collected):
    compiled = torch.compile(lambda x: x.exp() + x, backend=backend, dynamic=True)
    for rows, columns in ((3, 4), (5, 8), (6, 7)):
        x = torch.randn(columns, rows).t()
        same(compiled(x), x.exp() + x)
        assert compiled(x).stride() == (x.exp() + x).stride()
    assert len(collected) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_inputs_at_any_offset(backend):
    """Torch does not guard the offset: the compiled code must not remember it."""

    def f(x):
        return x.exp(), x[1], x.view(-1)[2:]

    compiled = torch.compile(f, backend=backend, dynamic=False)
    base = torch.arange(30.0) / 10
    for start in (0, 4, 12):
        x = base[start : start + 12].view(3, 4)
        same(compiled(x), f(x))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("training", ["tanh", "linear", "norm", "reshape", "attention"])
def test_gradients_with_dynamic_shapes(backend, training, collected):
    weight = torch.randn(4, 4, requires_grad=True)
    function = {
        "tanh": lambda x: (x.tanh() * weight[0]).sum(),
        "linear": lambda x: F.gelu(F.linear(x, weight)).square().sum(),
        "norm": lambda x: (F.layer_norm(x, (4,)) @ weight).exp().mean(),
        "reshape": lambda x: ((x @ weight).reshape(-1, 2, 2).transpose(0, 1).exp() * x.shape[0]).sum(),
        "attention": lambda x: F.scaled_dot_product_attention(x[None] @ weight, x[None], x[None]).square().sum(),
    }[training]
    compiled = torch.compile(function, backend=backend, dynamic=True)
    for n in (3, 5, 8):
        x = torch.randn(n, 4, requires_grad=True)
        got = torch.autograd.grad(compiled(x), [x, weight])
        expected = torch.autograd.grad(function(x), [x, weight])
        for one, other in zip(got, expected, strict=True):
            torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
    assert [graph.kind for graph in collected] == ["forward", "backward"]


def test_product_only_sizes_in_the_backward_graph():
    """Only s0*s1 is visible of the saved tensor."""

    def f(x, w):
        y = x.reshape(-1)
        return (y.exp() * w.reshape(-1)).sum()

    compiled = torch.compile(f, backend="sdk:reference", dynamic=True)
    for shape in ((3, 4), (5, 6)):
        x, w = torch.randn(shape, requires_grad=True), torch.randn(shape, requires_grad=True)
        for one, other in zip(
            torch.autograd.grad(compiled(x, w), [x, w]), torch.autograd.grad(f(x, w), [x, w]), strict=True
        ):
            torch.testing.assert_close(one, other)


def zeros_of_a_count(x):
    """Nothing of the new tensor depends on a tensor but its size."""
    n = (x > 0).nonzero().shape[0]
    return torch.zeros(n) + 1, x.exp()


UNBACKED = {
    "nonzero": lambda x: (x > 0).nonzero() * 2,
    "nonzero twice": lambda x: (lambda n, m: (n + 1, m * 2, n.float().exp()))((x > 0).nonzero(), (x < 0).nonzero()),
    "masked": lambda x: x[x > 0].exp() + 1,
    "size of nonzero": zeros_of_a_count,
    "size only": lambda x: x * (x > 0).nonzero().shape[0],
    "unique": lambda x: torch.unique(x.round()) + 1,
    "unique counts": lambda x: torch.unique(x.round(), return_counts=True)[1] * 2,
    "chain of native ops": lambda x: ((x[x > 0] * 2).exp() + 1).tanh().sum(),
    "repeat_interleave": lambda x: x.repeat_interleave((x > 0).long() + 1).exp(),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", UNBACKED)
def test_sizes_that_only_the_data_decides(name, backend, collected):
    function = UNBACKED[name]
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(function, backend=backend, fullgraph=True)
        for seed in range(4):
            torch.manual_seed(seed)
            x = torch.randn(12)
            same(compiled(x), function(x))
    assert len(collected) == 1
    if backend != "sdk:gappy":
        assert collected[0].counts["fallback"] == 0


def item_as_size(x, n):
    size = n.item()
    torch._check(size >= 2)
    torch._check(size <= 100)
    return torch.zeros(size) + x.sum(), torch.arange(size) * 2


ITEMS = {
    "number": (lambda x, n: x * n.item(), True),
    "size": (item_as_size, False),
    "float": (lambda x, n: x + (n * 0.5).item(), True),
    "slice": (lambda x, n: x.exp() * n.item() + n.item(), True),
    "bool": (lambda x, n: x * (n > 3).item(), True),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ITEMS)
def test_numbers_that_only_the_data_decides(name, backend):
    function, _ = ITEMS[name]
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        compiled = torch.compile(function, backend=backend, fullgraph=True)
        for n in (3, 5, 2):
            x = torch.randn(4)
            same(compiled(x, torch.tensor(n)), function(x, torch.tensor(n)))


MANY = {
    "mask of rows": lambda x: x[x[:, 0] > 0] * 2,
    "two masks": lambda x: x[x[:, 0] > 0][:, x[0] > 0],
    "mask and index": lambda x: x[torch.tensor([0, 1])][:, x[0] > 0],
    "argwhere": lambda x: torch.argwhere(x > 0) + 1,
    "where": lambda x: torch.where(x > 0),
    "masked_select": lambda x: torch.masked_select(x, x[0] > 0).exp(),
    "rows": lambda x: torch.unique((x > 0).float(), dim=0, return_inverse=True, return_counts=True),
    "columns": lambda x: torch.unique((x * 2).round(), dim=1, return_inverse=True, return_counts=True),
    "runs": lambda x: torch.unique_consecutive((x > 0).float(), return_inverse=True, return_counts=True),
    "runs of rows": lambda x: torch.unique_consecutive((x > 0).float(), dim=0, return_counts=True),
    "counts of nothing": lambda x: torch.bincount(x[x > 99].long(), minlength=3),
    "counts": lambda x: torch.bincount((x.flatten() * 3).abs().long()),
    "weights": lambda x: torch.bincount((x.flatten() * 3).abs().long(), weights=x.flatten(), minlength=4),
    "repeats": lambda x: torch.repeat_interleave(x, (x[:, 0] > 0).long() * 2, dim=0),
    "slice": lambda x: x.exp()[: (x > 0).sum().item() % 3],
    "gradient": lambda x: torch.autograd.grad(x[x > 0].square().sum(), x)[0] if x.requires_grad else x,
    "nothing is true": lambda x: (x[x > 99], torch.nonzero(x > 99), torch.unique(x[x > 99])),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", MANY)
def test_bounded_forms_of_what_the_data_decide(name, dynamic, collected):
    """One compilation, no fallback, whatever the data."""
    function = MANY[name]
    flags = {"capture_dynamic_output_shape_ops": True, "capture_scalar_outputs": True}
    with torch._dynamo.config.patch(**flags):
        compiled = torch.compile(
            function, backend="sdk:reference", fullgraph=True, dynamic=dynamic, options={"fallback": "error"}
        )
        for seed in range(3):
            torch.manual_seed(seed)
            x = torch.randn(4, 5)
            same(compiled(x), function(x))
    assert all(graph.counts["fallback"] == 0 for graph in collected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.uint8, torch.bool])
def test_unique_of_each_dtype_and_of_nothing(dtype):
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(
            lambda x: torch.unique(x, return_inverse=True, return_counts=True),
            backend="sdk:reference",
            options={"fallback": "error"},
        )
        for shape in ((7,), (2, 3), (), (0,)):
            x = (torch.rand(shape) * 3).to(dtype)
            same(compiled(x), torch.unique(x, return_inverse=True, return_counts=True))


def pairs_of_masks(x):
    y = x[x > 0]
    return y.exp()[y > 0.5], y[y > 0.5] * 2


TWICE = {
    "product": lambda x: x[x > 0].exp() * x[x > 0],
    "mask of a mask": lambda x: x[x > 0].exp()[x[x > 0] > 0.5].sum(),
    "pairs": pairs_of_masks,
    "no equation": lambda x: (x[x > 0].exp(), x[x > 0].neg()),
    "sizes": lambda x: x[x > 0].exp() * (x[x > 0].shape[0] + 2) + x[x > 0].shape[0],
    "reshaped": lambda x: torch.stack([x[x > 0], x[x > 0].tanh()]).reshape(-1) * 3,
}


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", TWICE)
def test_the_same_selection_twice(name, backend, gradient):
    """torch merges the two calls, and goes on to speak of two sizes."""
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(TWICE[name], backend=backend, fullgraph=True)
        for seed in range(3):
            torch.manual_seed(seed)
            x, other = (torch.randn(12).requires_grad_(gradient) for _ in range(2))
            other.data.copy_(x.data)
            results = [torch.utils._pytree.tree_leaves(run(one)) for run, one in ((compiled, x), (TWICE[name], other))]
            same(*results)
            if gradient:
                got, expected = (
                    torch.autograd.grad(sum(part.sum() for part in parts), one)
                    for parts, one in zip(results, (x, other), strict=True)
                )
                same(got, expected)
