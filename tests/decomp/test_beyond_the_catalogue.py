"""Calls that none of the catalogue's samples makes, and that were wrong once.

What a user would lose: the answers of ordinary calls. Each is compared with eager.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from backend_sdk import dtypes
from backend_sdk.coverage.calls import COMPOSITES, Call, prove


def agrees(function, *args, backward=False):
    return prove(Call(function, args, backward=backward), COMPOSITES) is not None


LISTS = ([[3, 0, -1, 1]], [[-1, 0, 1, 2]], [[0, 1, 2, 3]], [[2, 2, -1, -1]])


@pytest.mark.parametrize("target", LISTS)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("backward", [False, True])
def test_a_list_of_targets_ends_at_the_first_negative_one(target, reduction, backward):
    x = torch.tensor([[0.1, 0.2, 0.4, 0.8]]).repeat(2, 1).requires_grad_(backward)
    y = torch.tensor(target).repeat(2, 1)
    assert agrees(lambda x, y: F.multilabel_margin_loss(x, y, reduction=reduction), x, y, backward=backward)
    if reduction != "none":
        # torch's own meta kernel gives the loss of one sample a dim, which eager does not.
        assert agrees(lambda x, y: F.multilabel_margin_loss(x[0], y[0], reduction=reduction), x, y, backward=backward)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("source", [torch.float32, torch.float64, torch.int64])
def test_a_mean_in_a_narrower_dtype_rounds_once(dtype, source):
    x = torch.tensor([100000, -99996, 3, 1]).to(source)
    assert agrees(lambda x: x.mean(dtype=dtype), x)
    assert agrees(lambda x: x.reshape(2, 2).mean(0, dtype=dtype), x)


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("backward", [False, True])
def test_padding_never_wins_a_window(spatial, padding, dilation, backward):
    x = torch.full((1, 2, *(6,) * spatial), -math.inf)
    x.flatten()[::7] = 1.0
    pool = getattr(F, f"max_pool{spatial}d")
    x.requires_grad_(backward)
    for ceil_mode in (False, True):

        def pooled(x, ceil_mode=ceil_mode):
            values, places = pool(x, 2, 2, padding, dilation, ceil_mode, return_indices=True)
            return (values.exp(), places) if not backward else values.exp()

        assert agrees(pooled, x, backward=backward)


@pytest.mark.parametrize("op", [torch.addcmul, torch.addcdiv])
@pytest.mark.parametrize("count", [1, 3, 16, 33])
def test_the_factor_is_multiplied_first(op, count):
    first, second = (torch.full((count,), value) for value in (1e20, 1e20 if op is torch.addcmul else 1e-20))
    assert agrees(lambda x, a, b: op(x, a, b, value=1e-30), torch.zeros(count), first, second)


def test_the_convolution_of_an_empty_batch_has_gradients():
    layer = torch.nn.Conv2d(2, 3, 3)
    x = torch.randn(0, 2, 6, 6, requires_grad=True)
    weight = layer.weight.detach().requires_grad_()
    assert agrees(lambda x, weight: F.conv2d(x, weight, padding=1), x, weight, backward=True)


def test_symbolic_channels_and_heads(compiled_dynamic):
    norm = torch.nn.GroupNorm(2, 4)
    x = torch.randn(3, 4, 5)
    torch.testing.assert_close(compiled_dynamic(lambda x: F.group_norm(x, 2, norm.weight, norm.bias))(x), norm(x))
    q = torch.randn(1, 2, 5, 8, requires_grad=True)
    k, v = torch.randn(2, 1, 2, 5, 8)
    results = []
    for function in (F.scaled_dot_product_attention, compiled_dynamic(F.scaled_dot_product_attention)):
        result = function(q, k, v)
        results.append((result, *torch.autograd.grad(result.sin().sum(), q)))
    torch.testing.assert_close(*results)


@pytest.fixture
def compiled_dynamic():
    torch._dynamo.reset()
    yield lambda function: torch.compile(function, backend="sdk:reference", dynamic=True)
    torch._dynamo.reset()


@pytest.mark.parametrize("dtype", [*dtypes.FLOAT_DTYPES, *dtypes.INTEGER_DTYPES, torch.complex64])
@pytest.mark.parametrize(("start", "end"), [(4.3, -3), (0, 7), (4.7, 50.2), (-1.5, 1.5), (3, 3)])
@pytest.mark.parametrize("steps", [0, 1, 2, 13])
def test_linspace_converts_its_ends_first(dtype, start, end, steps):
    if dtype == torch.uint8:
        start, end = abs(start), abs(end)
    assert agrees(lambda x: x + torch.linspace(start, end, steps, dtype=dtype), torch.zeros(steps, dtype=dtype))
    ends = torch.tensor(start), torch.tensor(end)
    assert agrees(lambda *ends: torch.linspace(*ends, steps, dtype=dtype), *ends)


@pytest.mark.parametrize("alpha", [False, True])
@pytest.mark.parametrize("other", [True, torch.tensor([True, False, True, False])])
def test_a_sum_of_booleans_heeds_its_factor(alpha, other):
    x = torch.tensor([True, True, False, False])
    assert agrees(lambda x, y: torch.add(x, y, alpha=alpha), x, other)
    assert agrees(lambda x, y: x.clone().add_(y, alpha=alpha), x, other)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_exponential_of_a_matrix_of_16_bits(compiled_call, dtype):
    """It is the rounded one of float32. Eager's own kernel of these dtypes gives infinities and NaN."""
    x = torch.tensor([[0.5, -0.25], [0.125, 1.0]], dtype=dtype)
    found = compiled_call(torch.linalg.matrix_exp, [x], fallback="error").leaves[0]
    assert torch.equal(found, torch.linalg.matrix_exp(x.float()).to(dtype))


HALVES = [
    torch.mul,
    torch.div,
    torch.floor_divide,
    lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    lambda x, y: torch.div(x, y, rounding_mode="floor"),
    torch.add,
    torch.sub,
    torch.remainder,
    torch.fmod,
    torch.pow,
    torch.eq,
]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("function", HALVES)
@pytest.mark.parametrize("scalar", [0.1, 0.3, -1.7])
def test_beside_16_bits_a_number_keeps_its_precision_where_eager_keeps_it(function, dtype, scalar):
    x = (torch.arange(1, 400) / 16).to(dtype)
    assert prove(Call(lambda x: function(x, scalar), (x,), agree=equal), COMPOSITES)
    assert prove(Call(function, (x, torch.tensor(scalar, dtype=torch.float64)), agree=equal), COMPOSITES)


def equal(actual, expected, _):
    for ours, theirs in zip(actual, expected, strict=True):
        assert torch.equal(ours.nan_to_num(7), theirs.nan_to_num(7))


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize(
    "sequence", [torch.tensor([1, 2, 3]), torch.tensor([0.1, 0.2]), torch.tensor([1.0, 2.0]).half()]
)
@pytest.mark.parametrize(
    "value", [2.5, 2, 0.1, torch.tensor(0.1, dtype=torch.float64), torch.tensor(2.5), torch.tensor(2)]
)
def test_a_number_is_searched_for_in_the_promoted_dtype(sequence, value, right):
    assert agrees(lambda s, v: torch.searchsorted(s, v, right=right), sequence, value)
    assert agrees(lambda s, v: torch.bucketize(v, s, right=right), sequence, value)


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.uint8])
@pytest.mark.parametrize("keepdim", [False, True])
def test_no_dims_reduce_no_truth(dtype, keepdim):
    x = torch.tensor([[0, 1, 2], [0, 0, 0]]).to(dtype)
    assert agrees(lambda x: (x.any((), keepdim), torch.all(x, dim=[], keepdim=keepdim)), x)


@pytest.mark.parametrize("offset", [-7, -2, -1, 0, 2, 3, 10])
@pytest.mark.parametrize("backward", [False, True])
def test_a_diagonal_beyond_the_edge_is_empty(offset, backward):
    x = torch.arange(6.0).reshape(2, 3).requires_grad_(backward)
    assert agrees(lambda x: torch.diagonal(x, offset) * 2, x, backward=backward)


@pytest.mark.parametrize("shift", [1, -2, 7])
def test_a_roll_by_a_number_of_symbolic_sizes(shift):
    compiled = torch.compile(
        lambda x: x.roll(1, 0) + x.roll(-2, 1), backend="sdk:reference", options={"fallback": "error"}
    )
    for rows in (3, 5, 2):
        x = torch.rand(rows, 4 + abs(shift))
        assert torch.equal(compiled(x), x.roll(1, 0) + x.roll(-2, 1))
