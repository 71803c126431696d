"""Masks, flat indices and views of memory: what the data chooses, in tensors whose sizes do not depend on it.

What a user would lose: a masked assignment that writes its values in another order, or reads one too many.
"""

from __future__ import annotations

import pytest
import torch

X = torch.arange(12.0).reshape(3, 4)
MASK = X % 3 == 1


def _check(compiled_call, function, *args):
    expected = function(*args)
    compiled = compiled_call(function, args)
    assert not compiled.left_to_eager
    torch.testing.assert_close(compiled.leaves[0], expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("mask", [MASK, MASK[0], torch.zeros(3, 4, dtype=torch.bool), torch.tensor(True)], ids=str)
def test_masked_scatter(compiled_call, mask):
    _check(compiled_call, torch.masked_scatter, X, mask, torch.arange(100.0, 120.0))


def test_masked_scatter_of_nothing(compiled_call):
    nothing = torch.zeros(3, 4, dtype=torch.bool)
    _check(compiled_call, torch.masked_scatter, X, nothing, torch.empty(0))
    _check(compiled_call, torch.masked_scatter, torch.empty(0, 2), torch.empty(0, 2, dtype=torch.bool), torch.ones(3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
@pytest.mark.parametrize("accumulate", [False, True])
def test_masked_assignment_of_several_values(compiled_call, dtype, accumulate):
    x, flags = X.to(dtype), torch.tensor([True, False, True])

    def put(values, *indices):
        _check(compiled_call, lambda x, v, *i: x.index_put(i, v, accumulate), x, values.to(dtype), *indices)

    put(torch.arange(1.0, 5.0), MASK)
    put(torch.tensor(3.0), MASK)
    put(torch.arange(8.0).reshape(2, 4), flags)
    put(torch.arange(4.0), flags)
    put(torch.arange(2.0).reshape(2, 1), flags)
    columns = torch.tensor([False, True, False, True])
    _check(
        compiled_call,
        lambda x, v, m: torch.ops.aten.index_put(x, [None, m], v, accumulate),
        x,
        torch.arange(6.0).reshape(3, 2).to(dtype),
        columns,
    )


@pytest.mark.parametrize("accumulate", [False, True])
def test_flat_indices_count_from_both_ends(compiled_call, accumulate):
    index = torch.tensor([[0, -1], [5, -12]])
    _check(compiled_call, torch.take, X, index)
    if accumulate:
        _check(compiled_call, lambda x, i, v: x.put(i, v, True), X, index, torch.ones(2, 2))
    else:
        _check(compiled_call, lambda x, i, v: x.put(i, v), X, index[:, 1], torch.ones(2))
    _check(compiled_call, lambda x, i, v: x.put(i, v), X, torch.empty(0, dtype=torch.int64), torch.empty(0))


@pytest.mark.parametrize("reduce", ["sum", "prod", "amax", "amin"])
@pytest.mark.parametrize("include_self", [False, True])
def test_truth_values_met_by_scatter(compiled_call, reduce, include_self):
    x = torch.tensor([True, True, False, False, True])
    index, source = torch.tensor([0, 0, 2, 2, 3]), torch.tensor([False, True, True, False, False])
    _check(
        compiled_call, lambda x, i, s: x.scatter_reduce(0, i, s, reduce, include_self=include_self), x, index, source
    )
    _check(compiled_call, lambda x, i, s: x.scatter_add(0, i, s), x, index, source)
    _check(compiled_call, lambda x, i, s: x.index_put((i,), s, accumulate=True), x, index, source)


@pytest.mark.parametrize(("size", "stride", "offset"), [((3, 4), (4, 1), 0), ((2, 2), (1, 2), 3), ((5, 3), (2, 1), 0)])
def test_views_of_memory(compiled_call, size, stride, offset):
    _check(compiled_call, lambda x: torch.as_strided(x, size, stride, offset).clone(), X)
    _check(compiled_call, lambda x: torch.as_strided(x, size, stride, offset) + 1, X)


def test_a_view_reads_memory_before_its_tensor(compiled_call):
    rows = X[1:]
    compiled = compiled_call(lambda x: torch.as_strided_copy(x, (2, 2), (1, 1), 0), (rows,))
    torch.testing.assert_close(compiled.leaves[0], torch.as_strided_copy(rows, (2, 2), (1, 1), 0))


def test_memory_written_through_a_view(compiled_call):
    _check(compiled_call, lambda x, s: torch.as_strided_scatter(x, s, (2, 2), (1, 2), 1), X, torch.full((2, 2), -1.0))
