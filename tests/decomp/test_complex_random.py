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
    ("draw", "mean", "deviation"),
    [
        (torch.randn_like, 0.0, math.sqrt(0.5)),
        (torch.rand_like, 0.5 + 0.5j, math.sqrt(1 / 12)),
        (lambda x: torch.nn.init.uniform_(x.clone(), -1.0, 3.0), 1.0 + 1.0j, 4 * math.sqrt(1 / 12)),
        (lambda x: torch.nn.init.normal_(x.clone(), 2.0, 3.0), 2.0, 3 * math.sqrt(0.5)),
    ],
    ids=["randn", "rand", "uniform", "normal"],
)
def test_each_part_has_its_distribution(compiled_call, dtype, draw, mean, deviation):
    (drawn,) = compiled_call(draw, (torch.zeros(COUNT, dtype=dtype),), random="counter", fallback="error").leaves
    assert drawn.dtype == dtype
    bound = 5 * deviation / math.sqrt(COUNT)
    parts = torch.view_as_real(drawn.to(torch.complex128))
    for part, center in zip(parts.unbind(-1), (complex(mean).real, complex(mean).imag), strict=True):
        assert abs(part.mean().item() - center) < bound
        assert part.std().item() == pytest.approx(deviation, rel=0.03)
    correlation = torch.corrcoef(parts.T)[0, 1].item()
    assert abs(correlation) < 5 / math.sqrt(COUNT)
