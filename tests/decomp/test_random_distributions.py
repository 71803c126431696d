"""Gamma, Dirichlet, Poisson and binomial numbers, and random integers of any range, have their distributions.

What a user would lose: a variational model that trains on samples of another distribution than the one it names.
"""

from __future__ import annotations

import math

import pytest
import torch

COUNT = 20000
# Of binomial numbers, each of which takes the memory of many.
FEWER = 5000
# A right sampler fails a test with this chance, once and for all: the seed is fixed.
ALPHA = 1e-6


def _draw(compiled_call, function, *args):
    compiled = compiled_call(function, args)
    assert not compiled.left_to_eager
    return compiled.leaves[0]


def _assert_follows(drawn, distribution):
    """The Kolmogorov-Smirnov test against a continuous distribution function."""
    drawn = drawn.double().flatten().sort().values
    number = drawn.numel()
    level = distribution(drawn)
    steps = torch.arange(number + 1, dtype=torch.float64) / number
    distance = torch.maximum((level - steps[:-1]).max(), (steps[1:] - level).max())
    # The tail of Kolmogorov's distribution, by its first term.
    assert distance.item() * math.sqrt(number) < math.sqrt(-math.log(ALPHA / 2) / 2)


def _assert_counts(drawn, chances):
    """The chi-square test: ``chances`` of 0, 1, 2, ...; values of an expected count below 10 are taken together."""
    drawn = drawn.double().flatten()
    assert torch.equal(drawn, drawn.round())
    assert drawn.min() >= 0
    expected = chances.double() * drawn.numel()
    found = torch.bincount(drawn.clamp(max=len(chances) - 1).long(), minlength=len(chances)).double()
    often = expected >= 10
    rest = torch.stack([part[~often].sum() for part in (found, expected)])
    found, expected = (torch.cat([part[often], one[None]]) for part, one in zip((found, expected), rest, strict=True))
    if expected[-1] < 10:
        found, expected = (torch.cat([part[:-2], part[-2:].sum()[None]]) for part in (found, expected))
    freedom = len(expected) - 1
    assert freedom > 0
    distance = ((found - expected) ** 2 / expected).sum()
    assert torch.special.gammaincc(torch.tensor(freedom / 2.0).double(), distance / 2).item() > ALPHA


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("concentration", [0.05, 1.0, 1.7, 1e4])
def test_gamma(compiled_call, concentration, dtype):
    drawn = _draw(compiled_call, torch._standard_gamma, torch.full((COUNT,), concentration, dtype=dtype))
    assert drawn.dtype == dtype
    _assert_follows(drawn, lambda x: torch.special.gammainc(torch.tensor(concentration).double(), x))
    assert (drawn > 0).all()


def test_gamma_at_the_edges(compiled_call):
    drawn = _draw(compiled_call, torch._standard_gamma, torch.tensor([0.0, 1e-30, math.nan]))
    assert (drawn[:2] == torch.finfo(torch.float32).tiny).all()
    assert drawn[2].isnan()
    assert _draw(compiled_call, torch._standard_gamma, torch.ones(0, 3)).shape == (0, 3)
    assert _draw(compiled_call, torch._standard_gamma, torch.tensor(2.0, dtype=torch.bfloat16)).shape == ()


def test_gamma_gradient_is_the_implicit_one(compiled_call):
    """By the definition: the concentration and the sample move together so that the distribution function stays."""
    a = torch.tensor([0.05, 0.3, 0.9, 1.5, 4.0, 30.0, 200.0, 3000.0], dtype=torch.float64)[:, None]
    level = torch.tensor([0.02, 0.2, 0.5, 0.8, 0.99], dtype=torch.float64)

    def quantile(a):
        low, high = torch.full_like(a * level, -800.0), torch.full_like(a * level, 12.0)
        for _ in range(80):
            middle = (low + high) / 2
            below = torch.special.gammainc(a.expand_as(middle), middle.exp()) < level
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return low.exp()

    step = 1e-5 * torch.minimum(a, a.sqrt())
    truth = (quantile(a + step) - quantile(a - step)) / (2 * step)
    x = quantile(a)
    actual = _draw(compiled_call, torch.ops.aten._standard_gamma_grad, a.expand_as(x), x)
    torch.testing.assert_close(actual, truth, rtol=3e-7, atol=0)
    eager = torch.ops.aten._standard_gamma_grad(a.expand_as(x).contiguous(), x)
    torch.testing.assert_close(actual, eager, rtol=1e-3, atol=0)


def test_gamma_gradient_through_autograd(compiled_call):
    concentration = torch.tensor([0.5, 3.0, 40.0], requires_grad=True)
    compiled = compiled_call(torch._standard_gamma, (concentration,))
    compiled.leaves[0].sum().backward()
    # d x / d concentration averages to 1, since the mean is the concentration.
    assert (concentration.grad > 0).all()


def test_dirichlet(compiled_call):
    concentration = torch.tensor([0.3, 2.0, 5.0])
    drawn = _draw(compiled_call, lambda a: torch._sample_dirichlet(a.expand(COUNT, 3)), concentration)
    torch.testing.assert_close(drawn.sum(-1), torch.ones(COUNT))
    _, _, total = concentration.cumsum(0)
    mean = concentration / total
    deviation = (mean * (1 - mean) / (total + 1)).sqrt()
    assert ((drawn.mean(0) - mean).abs() < 6 * deviation / math.sqrt(COUNT)).all()
    torch.testing.assert_close(drawn.std(0), deviation, rtol=0.05, atol=0)
    # Two coordinates: the first has a beta distribution, here of (1 / 2, 1 / 2), the arcsine law.
    halves = _draw(compiled_call, lambda a: torch._sample_dirichlet(a.expand(COUNT, 2)), torch.full((2,), 0.5))
    _assert_follows(halves[:, 0], lambda x: 2 / math.pi * x.clamp(0, 1).sqrt().asin())


def test_dirichlet_of_small_concentrations_has_no_nan(compiled_call):
    drawn = _draw(compiled_call, torch._sample_dirichlet, torch.full((500, 4), 1e-4))
    torch.testing.assert_close(drawn.sum(-1), torch.ones(500))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rate", [0.01, 0.7, 10.0, 1500.0])
def test_poisson(compiled_call, rate, dtype):
    drawn = _draw(compiled_call, torch.poisson, torch.full((COUNT,), rate, dtype=dtype))
    assert drawn.dtype == dtype
    k = torch.arange(int(rate + 12 * math.sqrt(rate) + 30), dtype=torch.float64)
    _assert_counts(drawn, (k * math.log(rate) - rate - torch.lgamma(k + 1)).exp())


@pytest.mark.parametrize("rate", [1e6, 3e9])
def test_poisson_of_large_rates_is_nearly_normal(compiled_call, rate):
    drawn = _draw(compiled_call, torch.poisson, torch.full((COUNT,), rate, dtype=torch.float64))
    _assert_follows((drawn + 0.5 - rate) / math.sqrt(rate), lambda x: torch.special.ndtr(x))


def test_poisson_at_the_edges(compiled_call):
    drawn = _draw(compiled_call, torch.poisson, torch.tensor([0.0, 1e-30, 1e-7]))
    assert drawn.tolist() == [0.0, 0.0, 0.0]
    assert _draw(compiled_call, torch.poisson, torch.ones(0, 3)).shape == (0, 3)
    assert _draw(compiled_call, torch.poisson, torch.tensor(3.0)).shape == ()
    large = _draw(compiled_call, torch.poisson, torch.full((100,), 1e8))
    assert ((large - 1e8).abs() < 6e4).all()


@pytest.mark.parametrize("chance", [0.1, 0.5, 0.99])
@pytest.mark.parametrize("trials", [1, 20, 100, 3000])
def test_binomial(compiled_call, trials, chance):
    count, p = torch.full((FEWER,), float(trials)), torch.full((FEWER,), chance)
    drawn = _draw(compiled_call, torch.binomial, count, p)
    assert drawn.dtype == torch.float32
    assert drawn.max() <= trials
    k = torch.arange(trials + 1, dtype=torch.float64)
    n = torch.tensor(float(trials)).double()
    p = torch.tensor(chance).double()
    ways = torch.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)
    _assert_counts(drawn, (ways + k * p.log() + (n - k) * torch.log1p(-p)).exp())


@pytest.mark.parametrize("trials", [1e6, 1e9])
def test_binomial_of_many_trials(compiled_call, trials):
    count = torch.full((FEWER,), trials, dtype=torch.float64)
    drawn = _draw(compiled_call, torch.binomial, count, torch.full_like(count, 0.3))
    deviation = math.sqrt(trials * 0.3 * 0.7)
    _assert_follows((drawn + 0.5 - 0.3 * trials) / deviation, lambda x: torch.special.ndtr(x))
    rare = _draw(compiled_call, torch.binomial, count, torch.full_like(count, 3.0 / trials))
    k = torch.arange(40, dtype=torch.float64)
    _assert_counts(rare, (k * math.log(3.0) - 3.0 - torch.lgamma(k + 1)).exp())


def test_binomial_at_the_edges(compiled_call):
    count = torch.tensor([0.0, 5.0, 5.0, 100.0, 100.0, 3.0])
    chance = torch.tensor([0.5, 0.0, 1.0, 0.0, 1.0, math.nan])
    drawn = _draw(compiled_call, torch.binomial, count, chance)
    assert drawn[:5].tolist() == [0.0, 0.0, 5.0, 0.0, 100.0]
    assert drawn[5].isnan()
    assert _draw(compiled_call, torch.binomial, torch.ones(0), torch.ones(0)).shape == (0,)


@pytest.mark.parametrize(
    "function",
    [
        torch._standard_gamma,
        torch._sample_dirichlet,
        torch.poisson,
        lambda x: torch.binomial(10 * x, 0.5 / x),
    ],
    ids=["gamma", "dirichlet", "poisson", "binomial"],
)
def test_a_seed_fixes_the_numbers_and_calls_are_independent(compiled_call, function):
    x = torch.full((1000, 5), 3.0)
    compiled = compiled_call(lambda x: (function(x), function(x)), (x,))
    first, second = compiled.leaves
    again = compiled_call(lambda x: (function(x), function(x)), (x,)).leaves
    assert torch.equal(first, again[0])
    assert torch.equal(second, again[1])
    # Two calls, and two elements next to each other.
    for one, other in ((first, second), (first[:-1], first[1:])):
        correlation = torch.corrcoef(torch.stack([one.flatten(), other.flatten()]))[0, 1].item()
        assert abs(correlation) < 6 / math.sqrt(one.numel())


def test_bernoulli_of_a_tensor(compiled_call):
    p = torch.tensor([0.0, 0.25, 1.0]).expand(COUNT, 3)
    drawn = _draw(compiled_call, lambda p: torch.ops.aten.bernoulli.Tensor(torch.empty(COUNT, 3), p), p)
    share = drawn.mean(0)
    assert share[0] == 0
    assert share[2] == 1
    assert abs(share[1].item() - 0.25) < 6 * math.sqrt(0.25 * 0.75 / COUNT)


INTEGERS = torch.iinfo(torch.int64)
RANGES = [
    (0, 10),
    (-5, 6),
    (0, 1 << 40),
    (0, (1 << 62) - 1),
    (0, INTEGERS.max),
    (INTEGERS.min, 0),
    (-(1 << 62), 1 << 62),
]


@pytest.mark.parametrize(("low", "high"), RANGES)
def test_integers_of_any_range(compiled_call, low, high):
    drawn = _draw(compiled_call, lambda x: torch.randint(low, high, (COUNT,)), torch.zeros(1))
    assert drawn.min() >= low
    assert drawn.max() < high
    if high - low < 100:
        _assert_counts(drawn - low, torch.full((high - low,), 1 / (high - low)))
    elif high - low <= 1 << 40:
        _assert_follows(drawn.double(), lambda x: (x - low) / (high - low))
    else:
        # A remainder favours its lower numbers in a range this large, in eager too.
        assert ((drawn.double() - low) / (float(high) - low)).mean().item() == pytest.approx(0.5, abs=0.13)


@pytest.mark.parametrize(
    ("dtype", "end"),
    [
        (torch.bool, 1),
        (torch.uint8, 255),
        (torch.int8, 127),
        (torch.int32, 2**31 - 1),
        (torch.int64, 2**63 - 1),
        (torch.float32, 2**24),
        (torch.float16, 2**11),
        (torch.bfloat16, 2**8),
        (torch.float64, 2**53),
    ],
)
def test_integers_without_a_range(compiled_call, dtype, end):
    drawn = _draw(compiled_call, lambda x: x.random_(), torch.zeros(COUNT, dtype=dtype))
    assert drawn.dtype == dtype
    if end == 1:
        _assert_counts(drawn, torch.tensor([0.5, 0.5]))
        return
    eager = torch.zeros(COUNT, dtype=dtype).random_()
    assert drawn.double().max() <= end
    assert drawn.double().mean().item() == pytest.approx(eager.double().mean().item(), rel=0.05)


def test_other_random_integers(compiled_call):
    drawn = _draw(compiled_call, torch.ops.aten.randint_like.Tensor, torch.zeros(COUNT), torch.tensor(4))
    assert drawn.dtype == torch.float32
    _assert_counts(drawn, torch.full((4,), 0.25))
    drawn = _draw(compiled_call, lambda x: torch.ops.aten.random.to(x, 7), torch.zeros(COUNT, dtype=torch.int32))
    _assert_counts(drawn, torch.full((7,), 1 / 7))


def test_a_generator_of_its_own_gives_its_own_numbers(compiled_call):
    generator = torch.Generator().manual_seed(5)

    def draws(x):
        order = torch.randperm(20, generator=generator)
        return torch.rand(3, generator=generator), x.clone().uniform_(generator=generator), order

    compiled = torch.compile(draws, backend="sdk:reference")
    generator.manual_seed(5)
    actual = compiled(torch.zeros(4))
    generator.manual_seed(5)
    for ours, theirs in zip(actual, draws(torch.zeros(4)), strict=True):
        assert torch.equal(ours, theirs)
    none = _draw(compiled_call, lambda x: torch.ops.aten.rand.generator([COUNT], generator=None) + x, torch.zeros(1))
    _assert_follows(none, lambda x: x)
