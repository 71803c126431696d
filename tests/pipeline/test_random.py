"""Random numbers: fixed by the seed, fresh at each call, eager's own when asked for.

Without this a training run cannot be repeated, or its dropout masks do not fit its gradients.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

DRAWS = {
    "rand": lambda x: torch.rand(64, 64),
    "randn": lambda x: torch.randn(64, 64),
    "rand_like": lambda x: torch.rand_like(x),
    "dropout": lambda x: F.dropout(x + 1, 0.5, training=True),
    "bernoulli": lambda x: torch.bernoulli(torch.full_like(x, 0.3)),
    "randint": lambda x: torch.randint(0, 1000, (64, 64)),
    "randperm": lambda x: torch.randperm(1000),
    "uniform_": lambda x: torch.empty(64, 64).uniform_(-1, 1),
    "normal_": lambda x: torch.empty(64, 64).normal_(2, 3),
    "multinomial": lambda x: torch.multinomial(torch.ones(500), 100),
    "exponential_": lambda x: torch.empty(64, 64).exponential_(),
}


@pytest.mark.parametrize("options", [{}, {"random": "eager", "fallback": "error"}], ids=["counter", "eager"])
@pytest.mark.parametrize("name", DRAWS)
def test_the_seed_fixes_the_numbers(name, options):
    function = DRAWS[name]
    if options and name in ("multinomial", "randperm", "randint", "exponential_"):
        options = {"random": "eager"}
    compiled = torch.compile(function, backend="sdk:reference", options=options)
    x = torch.zeros(64, 64)
    compiled(x)
    torch.manual_seed(5)
    first, second = compiled(x), compiled(x)
    assert not torch.equal(first, second)
    torch.manual_seed(5)
    assert torch.equal(compiled(x), first) and torch.equal(compiled(x), second)
    torch.manual_seed(6)
    assert not torch.equal(compiled(x), first)
    if options:
        torch.manual_seed(5)
        assert torch.equal(function(x), first) and torch.equal(function(x), second)


def test_eager_numbers_in_order_beside_native_ops():
    def f(x):
        a = torch.rand(3)
        b = torch.randn(3) * x.exp()
        c = F.dropout(b, 0.5)
        return a, b, c, torch.randint(0, 9, (4,))

    x = torch.randn(3)
    compiled = torch.compile(f, backend="sdk:reference", options={"random": "eager"})
    compiled(x)
    for seed in (1, 2):
        torch.manual_seed(seed)
        expected = f(x)
        torch.manual_seed(seed)
        for one, other in zip(compiled(x), expected, strict=True):
            torch.testing.assert_close(one, other)


def test_eager_numbers_are_allowed_under_the_error_policy():
    """The user asked for them: that is no fallback to be refused."""

    def f(x):
        return torch.rand(8) + F.dropout(x, 0.3)

    x = torch.ones(8)
    compiled = torch.compile(f, backend="sdk:reference", options={"random": "eager", "fallback": "error"})
    torch.manual_seed(3)
    result = compiled(x)
    torch.manual_seed(3)
    assert torch.equal(result, f(x))


def test_numbers_have_the_right_distribution():
    n = 200_000

    def f(x):
        return torch.rand(n), torch.randn(n), torch.bernoulli(torch.full((n,), 0.3)), F.dropout(torch.ones(n), 0.25)

    uniform, normal, coin, dropped = torch.compile(f, backend="sdk:reference")(torch.zeros(1))
    # Five standard errors of the mean and of the variance (uniform: kurtosis 9/5, normal: 3).
    assert abs(uniform.mean() - 1 / 2) < 5 * (1 / 12 / n) ** 0.5
    assert abs(uniform.var() - 1 / 12) < 5 * (0.8 / n) ** 0.5 / 12
    assert uniform.min() >= 0 and uniform.max() < 1
    assert abs(normal.mean()) < 5 / n**0.5 and abs(normal.var() - 1) < 5 * (2 / n) ** 0.5
    assert abs(coin.mean() - 0.3) < 5 * (0.21 / n) ** 0.5 and set(coin.unique().tolist()) == {0.0, 1.0}
    assert abs((dropped == 0).float().mean() - 0.25) < 5 * (0.1875 / n) ** 0.5
    torch.testing.assert_close(dropped.max(), torch.tensor(1 / 0.75))


def test_equal_calls_of_one_graph_differ():
    a, b = torch.compile(lambda x: (torch.rand(50), torch.rand(50)), backend="sdk:reference")(torch.zeros(1))
    assert not torch.equal(a, b)


@pytest.mark.parametrize("random", ["counter", "eager"])
def test_dropout_masks_of_forward_and_backward_are_one(random):
    x = torch.randn(100, requires_grad=True)
    compiled = torch.compile(lambda x: F.dropout(x.sin(), 0.5) * 2, backend="sdk:reference", options={"random": random})
    for _ in range(2):
        x.grad = None
        result = compiled(x)
        result.sum().backward()
        assert torch.equal(x.grad == 0, result == 0)
        kept = result != 0
        torch.testing.assert_close(x.grad[kept], 4 * x.detach().cos()[kept])


def test_dynamic_shapes_keep_the_seed():
    compiled = torch.compile(lambda x: F.dropout(x, 0.5), backend="sdk:reference", dynamic=True)
    for n in (10, 20):
        torch.manual_seed(1)
        first = compiled(torch.ones(n))
        torch.manual_seed(1)
        assert torch.equal(compiled(torch.ones(n)), first)
        assert 0 < (first == 0).sum() < n


def compiled_draw(function):
    compiled = torch.compile(function, backend="sdk:reference", options={"fallback": "error"})
    torch.manual_seed(11)
    return compiled(torch.zeros(1))


def test_integers_are_uniform_over_their_range():
    drawn = compiled_draw(lambda x: torch.randint(-3, 7, (20000,)) + x.to(torch.int64))
    counts = torch.bincount(drawn + 3, minlength=10)
    assert len(counts) == 10
    # Chi-square with 9 degrees of freedom: 50 is exceeded with a chance of 1e-7.
    assert float(((counts - 2000.0) ** 2 / 2000.0).sum()) < 50
    wide = compiled_draw(lambda x: torch.randint(2**40, (4000,)) + x.to(torch.int64))
    assert int(wide.min()) >= 0 and 0.4 < float(wide.double().mean() / 2**40) < 0.6


def test_a_permutation_holds_each_number_once():
    drawn = compiled_draw(lambda x: torch.randperm(1000) + x.to(torch.int64))
    assert torch.equal(drawn.sort().values, torch.arange(1000))
    assert not torch.equal(drawn, torch.arange(1000))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_exponential_numbers_have_their_mean(dtype):
    drawn = compiled_draw(lambda x: torch.empty(20000, dtype=dtype).exponential_(2.0) + x.to(dtype))
    assert drawn.dtype == dtype and float(drawn.min()) >= 0
    assert abs(float(drawn.double().mean()) - 0.5) < 0.02
    assert abs(float(drawn.double().std()) - 0.5) < 0.03
