"""What a checked run sees of a kernel: bytes that it changed, elements that it left.

Without this a kernel that skips the tail of its output returns old memory, which mostly holds the right values.
"""

from __future__ import annotations

import pytest
import torch

from backend_sdk import dtypes
from backend_sdk.runtime.inspection import Operands, untouched

ALL = sorted(dtypes.ANY, key=str)


@pytest.mark.parametrize("dtype", ALL, ids=dtypes.name)
@pytest.mark.parametrize("left", [0, 1, 6])
def test_elements_left_unwritten_are_counted(dtype, left):
    output = torch.zeros(2, 3, dtype=dtype)

    def run():
        output.view(-1)[: 6 - left] = 1

    found = untouched(run, (torch.zeros(0), output))
    assert found == ((1, left) if left else None)


@pytest.mark.parametrize("dtype", ALL, ids=dtypes.name)
def test_a_result_that_holds_the_poison_itself_is_written(dtype):
    """NaN with all bits set, the largest integer, True: a right result may hold each, and keeps it."""
    output = torch.zeros(3, dtype=dtype)
    if dtype == torch.bool:
        result = torch.ones(3, dtype=dtype)
    elif dtype in dtypes.INTEGRAL:
        result = torch.full((3,), torch.iinfo(dtype).max, dtype=dtype)
    else:
        result = torch.full((3 * dtype.itemsize,), 255, dtype=torch.uint8).view(dtype)

    def run():
        output.view(torch.uint8).copy_(result.view(torch.uint8))

    assert untouched(run, (output,)) is None
    assert torch.equal(output.view(torch.uint8), result.view(torch.uint8))


@pytest.mark.parametrize(
    "operand",
    [
        torch.randn(2, 3),
        torch.tensor([torch.nan, 1.0]),
        torch.randn(4, 6)[::2, 1::2],
        torch.randn(3, dtype=torch.complex64).conj(),
        torch.tensor(2),
        torch.ones(2, dtype=torch.bool),
        torch.ones(0),
    ],
    ids=lambda operand: f"{dtypes.name(operand.dtype)}{tuple(operand.shape)}",
)
def test_changed_operands_are_found_and_restored(operand):
    before = operand.clone()
    operands = Operands((3, None, [operand]))
    assert operands.changed() is None
    operand.zero_()
    if operand.numel():
        assert operands.changed() == 2
        torch.testing.assert_close(operand, before, equal_nan=True)


def test_negative_zero_is_a_change():
    operand = torch.zeros(2)
    operands = Operands((operand,))
    operand.neg_()
    assert operands.changed() == 0


@pytest.mark.parametrize("dtype", [torch.complex128, torch.complex64, torch.float32, torch.bool])
def test_one_element_of_any_stride_is_looked_at(dtype):
    stretched = torch.ones((), dtype=dtype).expand(1)
    assert Operands([stretched]).changed() is None
