"""The tables of the special values name what there is, and their limits leave enough to compare.

What a user would lose: an excuse that has outlived its fault, and hides the next one.
"""

from __future__ import annotations

import pytest
import torch

from backend_sdk.coverage import special
from backend_sdk.coverage.generated import stem
from backend_sdk.torch_compat.overloads import aten_overloads, base_name, is_elementwise

NAMES = special.special_names()
STEMS = {stem(name) for name in NAMES}


def test_the_list_of_the_untagged_is_as_short_as_torch_allows():
    tagged = {base_name(op) for op in aten_overloads().values() if is_elementwise(op)}
    known = {base_name(op) for op in aten_overloads().values()}
    assert known >= special._UNTAGGED
    assert not special._UNTAGGED & tagged


@pytest.mark.parametrize("table", [special.LIMITS, special.ZERO_OF_EITHER_SIGN, special.CANCELS])
def test_each_entry_is_of_an_elementwise_op(table):
    assert set(table) <= STEMS


@pytest.mark.parametrize("name", [name for name in NAMES if stem(name) in special.LIMITS])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_a_limit_leaves_rows_to_compare(name, dtype):
    call = next(special.special_calls(name, dtype, ()), None)
    if call is not None:
        rows = [value for value in call.args[0].values() if isinstance(value, torch.Tensor)]
        assert rows[0].numel() >= 3
