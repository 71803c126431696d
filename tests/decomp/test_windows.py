"""Windows that differ from place to place, resizing, sampling at given positions: edges and integers.

What a user would lose: an image model whose borders, or whose gradients at the borders, are not eager's.
"""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F


def _check(compiled_call, function, *tensors):
    """Values and gradients are eager's, and nothing is left to eager."""

    def run(call):
        inputs = [x.clone().requires_grad_(x.is_floating_point()) for x in tensors]
        results, left = call(inputs)
        outputs = [y for y in results if y.requires_grad]
        if not outputs:
            return results, [], left()
        upstream = [torch.linspace(0.5, 1.5, y.numel(), dtype=y.dtype).reshape(y.shape) for y in outputs]
        given = [x for x in inputs if x.requires_grad]
        return results, torch.autograd.grad(outputs, given, upstream, allow_unused=True), left()

    def eager(inputs):
        results = function(*inputs)
        return list(results) if isinstance(results, tuple) else [results], set

    def compiled(inputs):
        result = compiled_call(function, inputs)
        return result.leaves, lambda: result.left_to_eager

    values, gradients, _ = run(eager)
    ours, our_gradients, left = run(compiled)
    assert not left
    for actual, wanted in zip([*ours, *our_gradients], [*values, *gradients], strict=True):
        torch.testing.assert_close(actual, wanted, equal_nan=True)


@pytest.mark.parametrize("size", [(3, 5), (7, 9), (1, 1), (11, 2)])
@pytest.mark.parametrize("pool", [F.adaptive_avg_pool2d, lambda x, n: F.adaptive_max_pool2d(x, n, return_indices=True)])
def test_uneven_windows(compiled_call, pool, size):
    torch.manual_seed(0)
    _check(compiled_call, lambda x: pool(x, size), torch.randn(2, 3, 7, 9, dtype=torch.float64))


def test_infinity_stays_in_its_window(compiled_call):
    x = torch.zeros(1, 1, 5, 5)
    x[0, 0, 4, 4] = math.inf
    _check(compiled_call, lambda x: F.adaptive_avg_pool2d(x, (3, 3)), x)


def test_a_window_of_minus_infinity_has_its_first_element_for_maximum(compiled_call):
    x = torch.full((1, 1, 5, 5), -math.inf)
    _check(compiled_call, lambda x: F.adaptive_max_pool2d(x, (3, 3), return_indices=True), x)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.uint8])
@pytest.mark.parametrize("ceil", [False, True])
def test_pooling_of_integers(compiled_call, dtype, ceil):
    x = torch.arange(70).reshape(1, 2, 5, 7).sub(30 if dtype != torch.uint8 else 0).to(dtype)
    x[0, 0] = torch.iinfo(dtype).min
    _check(compiled_call, lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=ceil, return_indices=True), x)
    if dtype == torch.int64:
        for divisor in (None, 3, -2):
            _check(compiled_call, lambda x, d=divisor: F.avg_pool2d(x[:, 1:], 3, 2, 1, ceil, False, d), x)


@pytest.mark.parametrize("groups", [1, 2])
def test_convolution_of_integers(compiled_call, groups):
    x = torch.arange(2 * 4 * 6 * 5).reshape(2, 4, 6, 5) % 11 - 5
    weight = torch.arange(4 * (4 // groups) * 6).reshape(4, 4 // groups, 3, 2) % 7 - 3
    bias = torch.tensor([1, -2, 3, 4])
    _check(compiled_call, lambda x, w, b: F.conv2d(x, w, b, (2, 1), (1, 1), (1, 2), groups), x, weight, bias)
    _check(
        compiled_call, lambda x, w: F.conv_transpose2d(x, w, None, (2, 1), (1, 0), (1, 0), groups, (1, 2)), x, weight
    )


RESIZES = [
    ("nearest", {}, 1),
    ("nearest-exact", {}, 1),
    ("linear", {"align_corners": False}, 1),
    ("nearest", {}, 2),
    ("nearest-exact", {}, 2),
    ("bilinear", {"align_corners": False}, 2),
    ("bilinear", {"align_corners": True}, 2),
    ("bilinear", {"antialias": True}, 2),
    ("bilinear", {"antialias": True, "align_corners": True}, 2),
    ("bicubic", {"align_corners": False}, 2),
    ("bicubic", {"align_corners": True}, 2),
    ("bicubic", {"antialias": True}, 2),
    ("trilinear", {"align_corners": True}, 3),
    ("nearest", {}, 3),
]


@pytest.mark.parametrize(("mode", "options", "spatial"), RESIZES)
@pytest.mark.parametrize("size", [{"size": 3}, {"size": 11}, {"size": 1}, {"scale_factor": 1.7}, {"scale_factor": 0.6}])
def test_resizing(compiled_call, mode, options, spatial, size):
    torch.manual_seed(0)
    x = torch.randn(2, 2, *(6, 5, 4)[:spatial], dtype=torch.float64)
    _check(compiled_call, lambda x: F.interpolate(x, mode=mode, **size, **options), x)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("aligned", [False, True])
def test_sampling_far_outside_and_at_the_border(compiled_call, mode, padding, aligned):
    torch.manual_seed(0)
    x = torch.randn(2, 2, 4, 5, dtype=torch.float64)
    grid = torch.randn(2, 3, 4, 2, dtype=torch.float64) * 2
    grid[0, 0, 0] = torch.tensor([1.0, -1.0])
    grid[0, 0, 1] = torch.tensor([1e4, -37.3])
    _check(compiled_call, lambda x, g: F.grid_sample(x, g, mode, padding, aligned), x, grid)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_sampling_of_volumes(compiled_call, mode, padding):
    torch.manual_seed(0)
    x, grid = torch.randn(1, 2, 3, 4, 2, dtype=torch.float64), torch.randn(1, 2, 2, 3, 3, dtype=torch.float64)
    _check(compiled_call, lambda x, g: F.grid_sample(x, g, mode, padding, False), x, grid)


def test_sampling_at_nan_reads_within_the_image(compiled_call):
    grid = torch.full((1, 1, 2, 2), math.nan)
    for padding in ("zeros", "border", "reflection"):
        result = compiled_call(
            lambda x, g, p=padding: F.grid_sample(x, g, padding_mode=p), (torch.ones(1, 1, 3, 3), grid)
        )
        assert result.leaves[0].shape == (1, 1, 1, 2)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("amounts", [(2, 1), (0, 2), (1, 2, 2, 1), (1, 0, 0, 2, 1, 1)])
def test_padding_with_own_elements(compiled_call, mode, amounts):
    torch.manual_seed(0)
    x = torch.randn(2, 2, *(3, 4, 3)[: len(amounts) // 2], dtype=torch.float64)
    _check(compiled_call, lambda x: F.pad(x, amounts, mode=mode), x)


def test_fold_and_unfold(compiled_call):
    torch.manual_seed(0)
    options = {"kernel_size": (3, 2), "dilation": (1, 2), "padding": (1, 0), "stride": (2, 1)}
    x = torch.randn(2, 3, 6, 7, dtype=torch.float64)
    _check(compiled_call, lambda x: F.unfold(x, **options), x)
    _check(compiled_call, lambda x: F.fold(F.unfold(x, **options), (6, 7), **options), x)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 1])
@pytest.mark.parametrize("last", [False, True])
def test_bags_with_an_empty_one(compiled_call, mode, padding, last):
    torch.manual_seed(0)
    table = torch.randn(5, 3, dtype=torch.float64)
    indices, offsets = torch.tensor([1, 4, 4, 1, 0, 3]), torch.tensor([0, 2, 2, 3, 6][: 5 if last else 4])

    def bags(table, indices, offsets):
        return F.embedding_bag(
            indices,
            table,
            offsets,
            mode=mode,
            padding_idx=padding,
            include_last_offset=last,
        )

    def weighted(table, indices, offsets, weights):
        return F.embedding_bag(indices, table, offsets, mode=mode, per_sample_weights=weights, include_last_offset=last)

    _check(compiled_call, bags, table, indices, offsets)
    if mode == "sum":
        _check(compiled_call, weighted, table, indices, offsets, torch.randn(6, dtype=torch.float64))


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_a_bag_gradient_divided_by_how_often_its_row_was_asked_for(compiled_call, mode):
    """Not compared with eager, which on the CPU (torch 2.13) takes the count of another row once a row repeats."""
    indices, offsets = torch.tensor([1, 4, 4, 1, 0, 3]), torch.tensor([0, 2, 3])

    def gradient(by_frequency):
        table = torch.ones(5, 3, dtype=torch.float64, requires_grad=True)
        compiled = compiled_call(
            lambda t, i, o: torch.nn.functional.embedding_bag(i, t, o, mode=mode, scale_grad_by_freq=by_frequency),
            (table, indices, offsets),
        )
        result = torch.autograd.grad(compiled.leaves[0].sum(), table)[0]
        assert not compiled.left_to_eager
        return result

    times = torch.bincount(indices, minlength=5).clamp(min=1).unsqueeze(1)
    torch.testing.assert_close(gradient(True), gradient(False) / times)


def test_rows_that_are_asked_for_are_kept_short(compiled_call):
    for norm in (1.0, 2.0, float("inf")):
        compiled = compiled_call(
            lambda i, t, n=norm: F.embedding(i, t.clone(), max_norm=1.0, norm_type=n),
            (torch.tensor([0, 2, 2]), torch.arange(12.0).reshape(4, 3) / 4),
        )
        expected = F.embedding(
            torch.tensor([0, 2, 2]), torch.arange(12.0).reshape(4, 3) / 4, max_norm=1.0, norm_type=norm
        )
        assert not compiled.left_to_eager
        torch.testing.assert_close(compiled.leaves[0], expected)
