"""Rows that stand one after another, and the indices of sparse matrices: dense tensors, whatever they are made for.

What a user would lose: ops that their model calls on dense tensors run in eager, because their name speaks of nested or
sparse ones.
"""

from __future__ import annotations

import pytest
import torch

from backend_sdk.coverage.calls import COMPOSITES, Call, prove

aten = torch.ops.aten


def agrees(function, *args):
    return prove(Call(function, args), COMPOSITES) is not None


# Lists of rows of every kind: empty at the beginning, in the middle and at the end, full, and none at all.
OFFSETS = ([0, 2, 2, 7], [0, 0, 4], [0, 4, 4], [0, 0], [0, 3])


@pytest.mark.parametrize("offsets", OFFSETS)
@pytest.mark.parametrize("most", [1, 3, 6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_rows_of_different_lengths_are_padded(offsets, most, dtype):
    values = torch.arange(offsets[-1] * 2).reshape(offsets[-1], 2).to(dtype)
    assert agrees(
        lambda values, starts: aten._jagged_to_padded_dense_forward.default(values, [starts], [most], -1.0),
        values,
        torch.tensor(offsets),
    )


@pytest.mark.parametrize("offsets", OFFSETS)
@pytest.mark.parametrize("counted", [True, False])
def test_padding_is_taken_off(offsets, counted):
    starts = torch.tensor(offsets)
    most = int(starts.diff().max()) + 1
    dense = torch.rand(len(offsets) - 1, most, 2)
    total = offsets[-1] if counted else None
    assert agrees(
        lambda dense, starts: aten._padded_dense_to_jagged_forward.default(dense, [starts], total), dense, starts
    )


@pytest.mark.parametrize("int32", [True, False])
def test_the_rows_of_a_sparse_matrix_are_counted_and_listed(int32):
    rows = torch.tensor([0, 0, 2, 3, 3, 3])
    for given in (rows, rows.to(torch.int32), rows[:0]):
        assert agrees(
            lambda rows: aten._convert_indices_from_coo_to_csr.default(rows, 6, out_int32=int32),
            given,
        )
    starts, columns = torch.tensor([0, 2, 2, 5]), torch.tensor([1, 3, 0, 2, 3])
    for batch in ((), (2,), (2, 1)):
        for transpose in (True, False):
            assert agrees(
                lambda starts, columns, transpose=transpose: aten._convert_indices_from_csr_to_coo.default(
                    starts, columns, out_int32=int32, transpose=transpose
                ),
                starts.expand(*batch, 4).contiguous(),
                columns.expand(*batch, 5).contiguous(),
            )


@pytest.mark.parametrize("heads", [1, 3])
def test_one_product_is_split_into_queries_keys_and_values(heads):
    assert agrees(
        lambda qkv, bias: aten._transform_bias_rescale_qkv.default(qkv, bias, heads),
        torch.randn(2, 4, 3 * heads * 5),
        torch.randn(3 * heads * 5),
    )
