"""Random integers, permutations and draws by weight have the distribution that eager's have.

What a user would lose: a shuffle that favours an order, a token that is drawn although its weight is 0.
"""

from __future__ import annotations

import math

import pytest
import torch

COUNT = 20000

# Draws, with the mean and the standard deviation of their distribution.
DRAWS = {
    "randint": (lambda x: torch.randint(-5, 6, (COUNT,)), 0.0, math.sqrt(10.0)),
    "randint_like": (lambda x: torch.randint_like(x, 2, 5), 3.0, math.sqrt(2.0 / 3.0)),
    "exponential": (lambda x: torch.empty(COUNT).exponential_(2.0), 0.5, 0.5),
    "geometric": (lambda x: torch.empty(COUNT).geometric_(0.25), 4.0, math.sqrt(12.0)),
    "log_normal": (
        lambda x: torch.empty(COUNT).log_normal_(0.0, 0.5),
        math.exp(0.125),
        math.exp(0.125) * math.sqrt(math.expm1(0.25)),
    ),
    "normal": (lambda x: torch.normal(x + 3.0, 2.0), 3.0, 2.0),
}


@pytest.mark.parametrize("name", DRAWS)
def test_mean_and_deviation(compiled_call, name):
    function, mean, deviation = DRAWS[name]
    compiled = compiled_call(function, (torch.zeros(COUNT),))
    assert not compiled.left_to_eager
    drawn = compiled.leaves[0].double()
    # Six standard errors: one failure in 10^9 seeds, and the seed is fixed.
    assert abs(drawn.mean().item() - mean) < 6.0 * deviation / math.sqrt(COUNT)
    assert drawn.std().item() == pytest.approx(deviation, rel=0.1)


def test_cauchy_has_its_quartiles(compiled_call):
    drawn = compiled_call(lambda x: torch.empty(COUNT).cauchy_(1.0, 2.0), (torch.zeros(1),)).leaves[0]
    quartiles = drawn.quantile(torch.tensor([0.25, 0.5, 0.75]))
    torch.testing.assert_close(quartiles, torch.tensor([-1.0, 1.0, 3.0]), rtol=0, atol=0.15)


def test_a_permutation_holds_each_index_once(compiled_call):
    compiled = compiled_call(lambda x: torch.stack([torch.randperm(50) for _ in range(20)]), (torch.zeros(1),))
    assert not compiled.left_to_eager
    orders = compiled.leaves[0]
    assert torch.equal(orders.sort(dim=1).values, torch.arange(50).expand(20, 50))
    assert len({tuple(order.tolist()) for order in orders}) == 20


WEIGHTS = torch.tensor([0.0, 1.0, 2.0, 0.0, 7.0, 0.0])


@pytest.mark.parametrize("replacement", [False, True])
def test_draws_by_weight(compiled_call, replacement):
    rows, number = (COUNT, 1) if not replacement else (2, COUNT // 2)
    compiled = compiled_call(
        lambda w: torch.multinomial(w.expand(rows, 6), number, replacement=replacement), (WEIGHTS,)
    )
    assert not compiled.left_to_eager
    share = torch.bincount(compiled.leaves[0].flatten(), minlength=6) / COUNT
    torch.testing.assert_close(share, WEIGHTS / 10.0, rtol=0, atol=0.03)
    assert (share[WEIGHTS == 0] == 0).all()


def test_without_replacement_all_weighted_elements_come_once(compiled_call):
    drawn = compiled_call(lambda w: torch.multinomial(w.expand(100, 6), 3), (WEIGHTS,)).leaves[0]
    assert torch.equal(drawn.sort(dim=1).values, torch.tensor([1, 2, 4]).expand(100, 3))
