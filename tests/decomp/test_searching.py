"""Order statistics, running extremes, searches and histograms at their edges: ties, NaN, nothing at all.

What a user would lose: a loss or a metric that picks another element than eager, or a NaN that disappears.
"""

from __future__ import annotations

import math

import pytest
import torch

NAN, INF = math.nan, math.inf


def _check(compiled_call, function, *args, **kwargs):
    expected = function(*args, **kwargs)
    compiled = compiled_call(function, args, kwargs)
    assert not compiled.left_to_eager
    expected = expected if isinstance(expected, (tuple, list)) else (expected,)
    for actual, wanted in zip(compiled.leaves, expected, strict=True):
        assert (actual.dtype, actual.shape) == (wanted.dtype, wanted.shape)
        torch.testing.assert_close(actual, wanted, equal_nan=True)


ROWS = torch.tensor([[3.0, NAN, 1.0, 2.0, 1.0], [INF, -INF, 0.0, -0.0, 5.0], [NAN, NAN, NAN, NAN, NAN]])


@pytest.mark.parametrize("function", [torch.median, torch.nanmedian, torch.mode, torch.cummax, torch.cummin])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_nan_in_rows(compiled_call, function, dtype):
    _check(compiled_call, lambda x: function(x, -1)[0], ROWS.to(dtype))


@pytest.mark.parametrize("function", [torch.median, torch.nanmedian, torch.mode, torch.cummax, torch.cummin])
def test_of_a_number(compiled_call, function):
    _check(compiled_call, function, torch.tensor(4.0), 0)


@pytest.mark.parametrize("x", [ROWS, torch.tensor([]), torch.tensor(2.0), torch.tensor([2, 1, 4, 3])], ids=str)
@pytest.mark.parametrize("function", [torch.median, torch.nanmedian])
def test_median_of_all(compiled_call, function, x):
    _check(compiled_call, function, x)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.uint8, torch.bool, torch.float32])
@pytest.mark.parametrize("function", [torch.cummax, torch.cummin, torch.mode])
def test_ties_go_to_the_last(compiled_call, function, dtype):
    x = torch.tensor([[2, 2, 0, 2, 3, 3, 0, 0], [0, 0, 0, 0, 1, 1, 1, 1]]).to(dtype)
    _check(compiled_call, function, x, 1)


def test_lowest_integers_have_a_running_minimum(compiled_call):
    _check(compiled_call, torch.cummin, torch.tensor([0, 127, -128, 5], dtype=torch.int8), 0)


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3)])
@pytest.mark.parametrize("function", [torch.cummax, torch.cummin])
def test_running_extremes_of_nothing(compiled_call, function, shape):
    _check(compiled_call, function, torch.zeros(shape), 0)


def test_a_term_counts_however_far_below_the_largest(compiled_call):
    x = torch.tensor([-1000.0, -1000.0, 0.0, 1000.0, -INF])
    _check(compiled_call, torch.logcumsumexp, x, 0)
    _check(compiled_call, torch.logcumsumexp, torch.tensor([-INF, -INF, 1.0, INF, NAN, 2.0]), 0)


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("int32", [False, True])
def test_search(compiled_call, right, int32):
    sequence = torch.tensor([-INF, 1.0, 1.0, 2.0, INF])
    values = torch.tensor([[1.0, NAN, INF], [-INF, 0.0, 2.5]])
    _check(compiled_call, torch.searchsorted, sequence, values, right=right, out_int32=int32)
    _check(compiled_call, torch.bucketize, values, sequence, right=right, out_int32=int32)
    _check(compiled_call, torch.searchsorted, torch.empty(0), values, right=right)
    _check(compiled_call, torch.searchsorted, sequence, torch.empty(0), right=right)
    _check(compiled_call, torch.searchsorted, sequence, 1, right=right)


def test_search_of_unsorted_rows_through_their_order(compiled_call):
    rows = torch.tensor([[3, 1, 2], [9, 7, 8]])
    _check(
        compiled_call, torch.searchsorted, rows, torch.tensor([[2, 4], [8, 0]]), sorter=rows.argsort(1), side="right"
    )


@pytest.mark.parametrize("size", [0, 2, 9])
def test_static_count_of_nonzeros(compiled_call, size):
    x = torch.tensor([[0, 1, 2], [0, 0, 3]])
    _check(compiled_call, torch.nonzero_static, x, size=size, fill_value=-7)
    _check(compiled_call, torch.nonzero_static, torch.zeros(0, 2), size=size)
    _check(compiled_call, torch.nonzero_static, torch.tensor(True), size=size)


DATA = torch.tensor([0.0, 1.0, 1.0, 2.5, 4.0, -3.0, 9.0, 3.999])


@pytest.mark.parametrize("ends", [(0, 4), (0, 0), (1, 1)])
def test_histogram_of_numbers_on_edges(compiled_call, ends):
    _check(compiled_call, torch.histc, DATA, 4, *ends)
    _check(compiled_call, torch.histc, torch.full((3,), 2.0), 4, *ends)
    _check(compiled_call, torch.histc, torch.empty(0), 4, *ends)


def test_histc_skips_nan(compiled_call):
    _check(compiled_call, torch.histc, torch.tensor([NAN, 1.0, 2.0]), 4, 0, 4)


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_histogram(compiled_call, density, weighted):
    weight = torch.arange(1.0, 9.0) if weighted else None
    _check(compiled_call, torch.histogram, DATA, 5, weight=weight, density=density)
    _check(compiled_call, torch.histogram, DATA, 5, range=(0.0, 4.0), weight=weight, density=density)
    edges = torch.tensor([0.0, 1.0, 1.5, 4.0])
    _check(compiled_call, torch.histogram, DATA, edges, weight=weight, density=density)


def test_histogram_of_nothing_and_of_one_number(compiled_call):
    _check(compiled_call, torch.histogram, torch.empty(0), 3)
    _check(compiled_call, torch.histogram, torch.full((4,), 2.0), 3)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
@pytest.mark.parametrize("initial", [None, 2.0])
def test_empty_segments(compiled_call, reduce, initial):
    data = torch.tensor([[1.0, 0.0], [0.0, NAN], [3.0, 2.0], [3.0, 5.0]])
    lengths = torch.tensor([2, 0, 2])
    _check(compiled_call, torch.segment_reduce, data, reduce, lengths=lengths, initial=initial)
    offsets = torch.tensor([0, 2, 2, 4])
    _check(compiled_call, torch.segment_reduce, data, reduce, offsets=offsets, initial=initial)


@pytest.mark.parametrize("density", [False, True])
def test_histogram_of_points(compiled_call, density):
    points = torch.tensor([[0.0, 1.0], [0.5, 2.0], [0.5, 2.0], [1.0, -1.0], [0.25, 1.5]])
    for bins in ([2, 3], 4, [torch.tensor([0.0, 0.5, 1.0]), torch.tensor([-1.0, 1.5, 2.0])]):
        expected = torch.histogramdd(points, bins, density=density)
        compiled = compiled_call(torch.histogramdd, (points, bins), {"density": density})
        assert not compiled.left_to_eager
        wanted = (expected.hist, *expected.bin_edges)
        for actual, one in zip(compiled.leaves, wanted, strict=True):
            torch.testing.assert_close(actual, one)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float32, torch.bfloat16])
def test_smallest_and_largest_together(compiled_call, dtype):
    x = torch.tensor([[2.0, 0.0, 1.0], [1.0, 1.0, NAN]])
    x = x.to(dtype) if dtype.is_floating_point else x.nan_to_num(1.0).to(dtype)
    _check(compiled_call, torch.ops.aten._aminmax.default, x)
    _check(compiled_call, torch.ops.aten._aminmax.dim, x, 1)
    _check(compiled_call, torch.ops.aten._aminmax.dim, x, 0, True)
    _check(compiled_call, torch.ops.aten._aminmax.dim, x[0, 0], 0)


@pytest.mark.filterwarnings("ignore:torch.range is deprecated")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, None])
@pytest.mark.parametrize("ends", [(0, 5), (0, 5, 2), (5, 0, -2), (0.5, 4.2, 1.7), (1, 1)])
def test_range_with_its_end(compiled_call, dtype, ends):
    _check(compiled_call, lambda x: torch.range(*ends, dtype=dtype) + x, torch.zeros(1, dtype=torch.int64))
