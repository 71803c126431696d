"""Random numbers of complex dtypes by the contract's generator: each part has the distribution that torch says.

What a user would lose: complex layers that are initialized, or perturbed, within a compiled graph.
"""

from __future__ import annotations

import math

import pytest
import torch

COUNT = 40_000


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize(
    "draw",
    [
        torch.randn_like,
        torch.rand_like,
        lambda x: torch.nn.init.uniform_(x.clone(), -1.0, 3.0),
        lambda x: torch.nn.init.normal_(x.clone(), 2.0, 3.0),
    ],
    ids=["randn", "rand", "uniform", "normal"],
)
def test_each_part_has_eagers_distribution(compiled_call, dtype, draw):
    like = torch.zeros(COUNT, dtype=dtype)
    (drawn,) = compiled_call(draw, (like,), random="counter", fallback="error").leaves
    assert drawn.dtype == dtype
    parts, eager = (torch.view_as_real(x.to(torch.complex128)) for x in (drawn, draw(like)))
    for part, expected in zip(parts.unbind(-1), eager.unbind(-1), strict=True):
        deviation = expected.std().item()
        assert part.std().item() == pytest.approx(deviation, rel=0.03)
        assert abs(part.mean() - expected.mean()) < 6 * deviation / math.sqrt(COUNT)
        # The quantiles say that it is the same distribution.
        at = torch.linspace(0.05, 0.95, 10, dtype=torch.float64)
        assert (part.quantile(at) - expected.quantile(at)).abs().max() < 0.05 * deviation
    assert abs(torch.corrcoef(parts.T)[0, 1].item()) < 5 / math.sqrt(COUNT)
