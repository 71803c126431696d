"""Sizes that turn out empty, counts below one and indices of any sign, when only a run tells them.

Without this a batch from which a mask leaves nothing stops a server, or trains on a wrong number.
"""

from __future__ import annotations

import pytest
import torch

FLAGS = {"capture_dynamic_output_shape_ops": True, "capture_scalar_outputs": True}


def compiled(function, **options):
    torch._dynamo.reset()
    return torch.compile(function, backend="sdk:reference", fullgraph=True, options={"fallback": "error"}, **options)


SPREADS = {
    "var": lambda x: x.var(correction=9),
    "std": lambda x: x.std(correction=9),
    "var of rows": lambda x: x.var(1, correction=9),
    "var_mean": lambda x: torch.var_mean(x, 0, correction=9),
    "std_mean": lambda x: torch.std_mean(x, correction=2.5),
}


@pytest.mark.parametrize("name", SPREADS)
def test_no_degree_of_freedom(name):
    run = compiled(SPREADS[name], dynamic=True)
    for shape in ((5, 1), (3, 2), (12, 13)):
        x = torch.randn(shape)
        torch.testing.assert_close(run(x), SPREADS[name](x), equal_nan=True)


TRUTHS = {
    "any": lambda x: (x[x > 0] > 2).any(),
    "all": lambda x: (x[x > 0] > 2).all(),
    "any of numbers": lambda x: x[x > 0].any(),
    "any of columns": lambda x: x[x[:, 0] > 0].any(0),
    "all of columns": lambda x: (x[x[:, 0] > 0] > 2).all(0, keepdim=True),
    "all of rows": lambda x: (x[x[:, 0] > 0] > 2).all(1),
}


@pytest.mark.parametrize("name", TRUTHS)
def test_truth_of_nothing(name):
    with torch._dynamo.config.patch(**FLAGS):
        run = compiled(TRUTHS[name])
        for x in (torch.randn(4, 3), -torch.ones(4, 3), torch.full((4, 3), 3.0), torch.eye(4, 3) * 3):
            torch.testing.assert_close(run(x), TRUTHS[name](x))


def attended(x):
    rows = x[x[:, 0] > 0][None]
    return torch.nn.functional.scaled_dot_product_attention(rows, rows, rows)


WEIGHTS = {
    "softmax": lambda x: torch.softmax(x[x[:, 0] > 0], 0),
    "log_softmax": lambda x: torch.log_softmax(x[x[:, 0] > 0], 0),
    "softmax of rows": lambda x: torch.softmax(x[x[:, 0] > 0], 1),
    "attention": attended,
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_of_nothing(name):
    with torch._dynamo.config.patch(**FLAGS):
        run = compiled(WEIGHTS[name])
        for values in (torch.eye(4, 3), -torch.ones(4, 3), torch.ones(4, 3)):
            x, other = (values.clone().requires_grad_() for _ in range(2))
            got, expected = run(x), WEIGHTS[name](other)
            torch.testing.assert_close(got, expected)
            got.square().sum().backward()
            expected.square().sum().backward()
            torch.testing.assert_close(x.grad, other.grad)


PARTS = {
    "from": lambda x, a, b: x[a.item() :].exp(),
    "from, every second": lambda x, a, b: x[a.item() :: 2].exp(),
    "from, every third": lambda x, a, b: x[a.item() :: 3].exp(),
    "to": lambda x, a, b: x[: b.item()].exp(),
    "between": lambda x, a, b: x[a.item() : b.item()].exp(),
    "of columns": lambda x, a, b: x[:, a.item() :].exp(),
}
ENDS = ((1, 4), (-5, -1), (4, 1), (9, 2), (-9, 9), (0, 0), (3, -9))


@pytest.mark.parametrize("name", PARTS)
def test_gradients_of_slices_between_any_ends(name):
    with torch._dynamo.config.patch(**FLAGS):
        run = compiled(PARTS[name])
        for ends in ENDS:
            first, last = map(torch.tensor, ends)
            x, other = (torch.arange(30.0).reshape(6, 5).div(9).requires_grad_() for _ in range(2))
            got, expected = run(x, first, last), PARTS[name](other, first, last)
            torch.testing.assert_close(got, expected)
            got.sum().backward()
            expected.sum().backward()
            torch.testing.assert_close(x.grad, other.grad)


@pytest.mark.parametrize("index", [0, 3, -1, -6])
def test_gradients_of_one_row(index):
    def row(x, index):
        return x[index.item()].exp()

    with torch._dynamo.config.patch(**FLAGS):
        x, other = (torch.arange(30.0).reshape(6, 5).div(9).requires_grad_() for _ in range(2))
        compiled(row)(x, torch.tensor(index)).sum().backward()
        row(other, torch.tensor(index)).sum().backward()
        torch.testing.assert_close(x.grad, other.grad)
