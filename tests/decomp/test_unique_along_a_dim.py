"""Unequal rows and columns when it is not known how many elements are compared: one graph, no fallback.

What a user would lose: a model that removes duplicates of rows under dynamic shapes would leave the backend there.
"""

from __future__ import annotations

import pytest
import torch

from backend_sdk.coverage.calls import COMPOSITES, Call, prove
from backend_sdk.pipeline.report import collecting

FUNCTIONS = {
    "unique": lambda x, dim: torch.unique(x, dim=dim, return_inverse=True, return_counts=True),
    "values alone": lambda x, dim: torch.unique(x, dim=dim),
    "runs": lambda x, dim: torch.unique_consecutive(x, dim=dim, return_inverse=True, return_counts=True),
}
WIDTHS = (2, 3, 4, 5, 7, 8, 9, 31, 64, 65)


def rows(width, dtype=torch.float32, dim=0):
    """[9, width]: some rows equal, some equal but for the last or the first element."""
    x = (torch.rand((9, width), generator=torch.Generator().manual_seed(width)) * 3).floor()
    x[2:5] = x[0]
    x[6], x[7] = x[0], x[0]
    x[6, -1] += 1
    x[7, 0] += 1
    return x.transpose(0, dim).to(dtype)


@pytest.fixture(autouse=True)
def capturing():
    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        yield
    torch._dynamo.reset()


def compiled(function):
    return torch.compile(function, backend="sdk:reference", fullgraph=True, options={"fallback": "error"})


def equal(actual, expected):
    actual, expected = ((part,) if isinstance(part, torch.Tensor) else part for part in (actual, expected))
    assert len(actual) == len(expected) and all(map(torch.equal, actual, expected))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("size", [False, True], ids=["known rows", "any rows"])
def test_of_any_width(name, dim, size):
    """One graph for all widths, and all numbers of rows."""
    function = FUNCTIONS[name]
    ours = compiled(lambda x: function(x, dim))
    with collecting() as graphs:
        for width in WIDTHS:
            x = rows(width, dim=dim)
            if size:
                x = x.narrow(dim, 0, 4 + width % 5)
                torch._dynamo.mark_dynamic(x, dim)
            torch._dynamo.mark_dynamic(x, 1 - dim)
            equal(ours(x), function(x, dim))
    assert len(graphs) == 1


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float16])
def test_of_a_width_that_the_data_decide(name, dtype):
    function = FUNCTIONS[name]

    def picked(x, mask):
        return function(x[:, mask], 0)

    ours = compiled(picked)
    for width in (1, 2, 5, 8):
        mask = torch.arange(8) >= 8 - width
        equal(ours(rows(8, dtype), mask), picked(rows(8, dtype), mask))
    with pytest.raises(RuntimeError, match="nothing to compare"):
        ours(rows(8, dtype), torch.zeros(8, dtype=torch.bool))


def test_of_a_volume():
    """The compared elements lie in two dims, both unknown."""
    ours = compiled(lambda x: torch.unique(x, dim=1, return_inverse=True))
    for shape in ((3, 6, 2), (2, 6, 5), (4, 6, 4)):
        x = (torch.rand(shape, generator=torch.Generator().manual_seed(0)) > 0.9).int()
        for dim in (0, 2):
            torch._dynamo.mark_dynamic(x, dim)
        equal(ours(x), torch.unique(x, dim=1, return_inverse=True))


@pytest.mark.parametrize("width", [1, *WIDTHS])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_of_a_known_width(name, width):
    assert prove(Call(FUNCTIONS[name], (rows(width), 0)), COMPOSITES) is not None
