"""A Python number outside an integer tensor's dtype: arithmetic and comparisons wrap it, what writes it refuses.

What a user would lose: ``mask == 300`` of a uint8 image, which eager answers, would end in an error of a kernel.
"""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from backend_sdk.errors import DecompositionError

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]

# aten makes a 0-d tensor of the number and converts it.
_COMPARED = ["eq", "ne", "lt", "le", "gt", "ge"]
_COMPUTED = ["add", "sub", "mul", "rsub", "div", "xlogy", "bitwise_and", "bitwise_or", "bitwise_xor"]
_SHIFTED = ["bitwise_left_shift", "bitwise_right_shift"]
WRAPPING = {
    **{name: (lambda x, s, name=name: getattr(torch, name)(x, s)) for name in _COMPARED + _COMPUTED + _SHIFTED},
    "floor_divide": lambda x, s: torch.floor_divide(x, s),
    "remainder": lambda x, s: torch.remainder(x, s),
    "fmod": lambda x, s: torch.fmod(x, s),
    "div_floor": lambda x, s: torch.div(x, s, rounding_mode="floor"),
    "div_trunc": lambda x, s: torch.div(x, s, rounding_mode="trunc"),
    "of_the_number_add": lambda x, s: s + x,
    "of_the_number_sub": lambda x, s: s - x,
    "of_the_number_pow": lambda x, s: torch.pow(s, x & 3),
    "of_the_number_shift": lambda x, s: torch.bitwise_left_shift(s, x & 3),
    "isin": lambda x, s: torch.isin(x, s),
    "search": lambda x, s: torch.searchsorted(x, s),
    "bucket": lambda x, s: torch.bucketize(s, x),
    "list": lambda x, s: torch._foreach_add([x], s)[0],
    "one_element": lambda x, s: x[0] < s,
    "nothing": lambda x, s: x[:0] * s,
}

# aten takes the number as one of the dtype.
TAKEN = {
    "clamp_max": lambda x, s: torch.clamp(x, max=s),
    "clamp_min": lambda x, s: torch.clamp(x, min=s),
    "masked_fill": lambda x, s: x.masked_fill(x > 3, s),
    "where": lambda x, s: torch.where(x > 3, x, s),
    "threshold": lambda x, s: F.threshold(x, s, 3),
    "threshold_value": lambda x, s: F.threshold(x, 3, s),
    "pow": lambda x, s: torch.pow(x, s),
    "add_alpha": lambda x, s: torch.add(x, x, alpha=s),
    "sub_alpha": lambda x, s: torch.sub(x, x, alpha=s),
    "rsub_alpha": lambda x, s: torch.rsub(x, x, alpha=s),
    "addcmul": lambda x, s: torch.addcmul(x, x, x, value=s),
    "index_fill": lambda x, s: x.index_fill(0, torch.tensor([0]), s),
    "index_add": lambda x, s: torch.index_add(x, 0, torch.tensor([0]), x[:1], alpha=s),
    "scatter": lambda x, s: x.scatter(0, torch.tensor([0]), s),
    "full": lambda x, s: torch.full((2,), s, dtype=x.dtype) + x[:1],
    "full_like": lambda x, s: torch.full_like(x, s),
    "new_full": lambda x, s: x.new_full((2,), s),
    "fill": lambda x, s: torch.fill(x, s),
    "list_clamp": lambda x, s: torch._foreach_clamp_max([x], s)[0],
}


def numbers(dtype):
    low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    return [s for s in (high + 1, high + 45, low - 45, low, -3, 2**40 + 7) if -(2**63) <= s <= 2**63]


def operand(dtype):
    # Without the lowest: eager's division of it by -1 ends the process.
    return torch.tensor([torch.iinfo(dtype).min + 1, 0, 1, 44, torch.iinfo(dtype).max], dtype=dtype)


def in_eager(function, x, number):
    try:
        return function(x, number)
    except RuntimeError as error:
        return error


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", WRAPPING)
def test_it_wraps_where_eager_does(compiled_call, dtype, name):
    answers = {number: in_eager(WRAPPING[name], operand(dtype), number) for number in numbers(dtype)}
    refused = [answer for answer in answers.values() if isinstance(answer, RuntimeError)]
    assert all("ZeroDivisionError" in str(answer) for answer in refused)
    answers = {number: answer for number, answer in answers.items() if not isinstance(answer, RuntimeError)}
    compiled = compiled_call(lambda x: [WRAPPING[name](x, number) for number in answers], (operand(dtype),))
    assert not compiled.left_to_eager
    for actual, expected in zip(compiled.leaves, answers.values(), strict=True):
        torch.testing.assert_close(actual, expected, equal_nan=True)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", TAKEN)
def test_it_is_refused_where_eager_refuses(compiled_call, dtype, name):
    for number in numbers(dtype):
        expected = in_eager(TAKEN[name], operand(dtype), number)

        def call(x, number=number):
            return TAKEN[name](x, number)

        if isinstance(expected, RuntimeError):
            with pytest.raises(DecompositionError, match=r"is not within|negative integer power"):
                compiled_call(call, (operand(dtype),))
        else:
            torch.testing.assert_close(compiled_call(call, (operand(dtype),)).leaves[0], expected)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 300.0, -1.0, -129.0])
def test_an_integer_dtype_has_no_such_float(compiled_call, value):
    for dtype in (torch.uint8, torch.int8):
        if isinstance(in_eager(torch.full_like, operand(dtype), value), RuntimeError):
            with pytest.raises(DecompositionError, match="is not within"):
                compiled_call(torch.full_like, (operand(dtype), value))
        else:
            torch.testing.assert_close(
                compiled_call(torch.full_like, (operand(dtype), value)).leaves[0],
                torch.full_like(operand(dtype), value),
            )
