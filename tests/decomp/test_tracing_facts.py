"""Ops that tell tracing something: they cost no fallback, and what they stand beside is computed.

What a user would lose: an exported model that converts a dtype is refused under fallback="error", for an assertion that
torch has put there.
"""

from __future__ import annotations

import pytest
import torch

from backend_sdk.coverage.calls import PRIMS, Call, prove

aten = torch.ops.aten


@pytest.mark.parametrize(
    "tell",
    [
        lambda x: aten._assert_tensor_metadata.default(x, dtype=torch.float32, layout=torch.strided),
        lambda x: aten.sym_constrain_range.default(3, min=1, max=5),
        lambda x: aten.sym_constrain_range_for_size.default(3, min=1, max=5),
    ],
)
def test_what_is_told_is_computed_nowhere(tell):
    def run(x):
        tell(x)
        return x.exp()

    ran = prove(Call(run, (torch.rand(2, 3),)), PRIMS)
    assert [ops for ops in ran.reduced.values() if ops] == [["exp"]]


@pytest.mark.parametrize(
    "op", [aten._functional_sym_constrain_range.default, aten._functional_sym_constrain_range_for_size.default]
)
def test_a_token_is_handed_on(op):
    assert prove(Call(lambda token: op(3, 1, 5, token) + 1, (torch.zeros(2),)), PRIMS) is not None
