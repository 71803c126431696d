"""NaN, infinities, signed zeros and the edges of integers behave as the docstrings say.

What a vendor would lose: the promise to their users about what happens at the edges.
"""

from __future__ import annotations

import math

import pytest
import torch

from backend_sdk import dtypes, prims
from backend_sdk.spec import Call

INF, NAN = math.inf, math.nan
LOW = torch.iinfo(torch.int32).min

# op, operands, what its docstring promises
PROMISES = [
    (prims.sign, [[NAN, -0.0, -INF]], [0.0, 0.0, -1.0]),
    (prims.round, [[0.5, 1.5, 2.5, -0.5, NAN, INF]], [0.0, 2.0, 2.0, -0.0, NAN, INF]),
    (prims.trunc, [[1.7, -1.7, INF]], [1.0, -1.0, INF]),
    (prims.floor, [[-1.5, 1.5]], [-2.0, 1.0]),
    (prims.ceil, [[-1.5, 1.5]], [-1.0, 2.0]),
    (prims.sqrt, [[-1.0, 0.0, INF]], [NAN, 0.0, INF]),
    (prims.rsqrt, [[0.0, INF]], [INF, 0.0]),
    (prims.log, [[0.0, -1.0, INF]], [-INF, NAN, INF]),
    (prims.log2, [[8.0, 0.25, 0.0]], [3.0, -2.0, -INF]),
    (prims.log1p, [[-1.0, -2.0]], [-INF, NAN]),
    (prims.exp, [[-INF, INF, 1e9]], [0.0, INF, INF]),
    (prims.asin, [[2.0, -2.0]], [NAN, NAN]),
    (prims.acos, [[2.0, 1.0]], [NAN, 0.0]),
    (prims.acosh, [[0.5, 1.0]], [NAN, 0.0]),
    (prims.atanh, [[1.0, -1.0]], [INF, -INF]),
    (prims.erfinv, [[1.0, -1.0, 2.0]], [INF, -INF, NAN]),
    (prims.maximum, [[1.0, NAN, 1.0], [NAN, 1.0, 2.0]], [NAN, NAN, 2.0]),
    (prims.minimum, [[1.0, NAN, 1.0], [NAN, 1.0, 2.0]], [NAN, NAN, 1.0]),
    (prims.fmod, [[5.0, -5.0, 5.0], [3.0, 3.0, -3.0]], [2.0, -2.0, 2.0]),
    (prims.div, [[1.0, -1.0, 0.0], [0.0, 0.0, 0.0]], [INF, -INF, NAN]),
    (prims.eq, [[NAN, 0.0], [NAN, -0.0]], [False, True]),
    (prims.ne, [[NAN, 0.0], [NAN, -0.0]], [True, False]),
    (prims.lt, [[NAN, 1.0], [1.0, INF]], [False, True]),
    (prims.le, [[NAN, 1.0], [1.0, 1.0]], [False, True]),
    (prims.gt, [[NAN, INF], [1.0, 1.0]], [False, True]),
    (prims.ge, [[NAN, 1.0], [1.0, 1.0]], [False, True]),
    (prims.is_finite, [[NAN, INF, -INF, 1.0]], [False, False, False, True]),
    (prims.relu, [[NAN, -1.0, INF]], [NAN, 0.0, INF]),
    (prims.sigmoid, [[-INF, INF, -1e9]], [0.0, 1.0, 0.0]),
]

INTEGER_PROMISES = [
    (prims.neg, [[LOW, 3]], [LOW, -3]),
    (prims.abs, [[LOW, -3]], [LOW, 3]),
    (prims.add, [[-LOW - 1], [1]], [LOW]),
    (prims.sub, [[LOW], [1]], [-LOW - 1]),
    (prims.mul, [[-LOW - 1], [2]], [-2]),
    (prims.floor_div, [[-7, 7, -7, 7], [2, 2, -2, -2]], [-4, 3, 3, -4]),
    (prims.fmod, [[-7, 7, -7, 7], [2, 2, -2, -2]], [-1, 1, -1, 1]),
    (prims.shift_right, [[-8, 8], [1, 1]], [-4, 4]),
    (prims.shift_left, [[1, 3], [4, 1]], [16, 6]),
    (prims.bitwise_not, [[0, -1]], [-1, 0]),
]


@pytest.mark.parametrize(
    ("called", "operands", "expected", "dtype"),
    [pytest.param(*case, torch.float32, id=case[0].name) for case in PROMISES]
    + [pytest.param(*case, torch.int32, id=f"{case[0].name}-int") for case in INTEGER_PROMISES],
)
def test_promises_of_the_docstrings(called, operands, expected, dtype):
    actual = called(*(torch.tensor(operand, dtype=dtype) for operand in operands))
    assert torch.equal(actual.isnan(), torch.tensor([value != value for value in expected]))
    wanted = torch.tensor(expected, dtype=actual.dtype)
    torch.testing.assert_close(actual, wanted, rtol=0, atol=0, equal_nan=True)


def _elementwise(op):
    """Whether an op maps values of one dtype, without attributes, to values."""
    if "linalg" in op.profiles or op.attribute_names or not op.operand_names:
        return False
    return len(set(map(str, op.dtype_rule.operands))) == 1


def test_special_values_are_as_near_to_float64_as_others(op, dtype):
    """The tolerance holds for every special value, and for every pair of them.

    But for the smallest magnitudes: torch's vectorized kernels flush some of what they make on the way, and what
    a backend does with denormals is its declared policy.
    """
    if not _elementwise(op) or op is prims.linear or op is prims.concat or dtype not in dtypes.FLOATING:
        return
    values = torch.tensor(op.specials(dtype), dtype=dtype)
    values = values[~((values != 0) & (values.abs() < 2 * torch.finfo(dtype).tiny))]
    operands = torch.cartesian_prod(*[values] * len(op.operand_names)).reshape(-1, len(op.operand_names)).unbind(1)
    wide = tuple(operand.double() for operand in operands)
    call = Call(wide, {}, op.reference)
    assert op.tolerance.share(op.reference(*operands), op.reference(*wide), call) <= 1.0


def test_reductions_of_nan_and_of_nothing():
    row = torch.tensor([[1.0, NAN, 3.0, NAN]])
    assert prims.reduce_max(row, axes=(1,)).isnan().all()
    assert prims.reduce_min(row, axes=(1,)).isnan().all()
    assert prims.argmax(row, axis=1).tolist() == [1]
    assert prims.argmin(row, axis=1).tolist() == [1]
    assert prims.argmax(torch.tensor([2.0, 5.0, 5.0]), axis=0).item() == 1
    values, indices = prims.sort(torch.tensor([2.0, NAN, 1.0]), axis=0, descending=False)
    assert values[:2].tolist() == [1.0, 2.0]
    assert indices.tolist() == [2, 0, 1]
    assert prims.reduce_sum(torch.ones(0, 2), axes=(0,)).tolist() == [0.0, 0.0]
    assert prims.reduce_prod(torch.ones(0, 2), axes=(0,)).tolist() == [1.0, 1.0]


def test_softmaxes_of_rows_that_are_all_minus_infinity():
    row = torch.tensor([[-INF, -INF], [0.0, -INF]])
    assert prims.softmax(row, axis=1)[0].isnan().all()
    assert prims.safe_softmax(row, axis=1).tolist() == [[0.0, 0.0], [1.0, 0.0]]


def test_selection_takes_no_effect_from_what_it_does_not_choose():
    chosen = prims.select(torch.tensor([True, False]), torch.tensor([1.0, NAN]), torch.tensor([NAN, 2.0]))
    assert chosen.tolist() == [1.0, 2.0]


def test_conversions():
    assert prims.convert(torch.tensor([1.9, -1.9]), dtype=torch.int64).tolist() == [1, -1]
    assert prims.convert(torch.tensor([0.0, -0.0, 0.1, NAN]), dtype=torch.bool).tolist() == [False, False, True, True]
    assert prims.convert(torch.tensor([1.0 + 2.0**-8]), dtype=torch.bfloat16).item() == 1.0
    assert prims.convert(torch.tensor([2.0 + 3.0j]), dtype=torch.float32).item() == 2.0


@pytest.mark.parametrize(("dtype", "lowest", "highest"), [(torch.int8, -8, 127), (torch.int32, LOW, -LOW - 1)])
def test_quantization_saturates_and_rounds_ties_to_even(dtype, lowest, highest):
    x = torch.tensor([0.5, 1.5, -2.5, INF, -INF, NAN, 3e9])
    one, none = torch.tensor(1.0), torch.tensor(0, dtype=torch.int32)
    q = prims.quantize(x, one, none, axis=None, lowest=lowest, highest=highest, dtype=dtype)
    assert q.tolist() == [0, 2, -2, highest, lowest, lowest, highest]
    far = torch.tensor([lowest], dtype=dtype)
    back = prims.dequantize(far, one, torch.tensor(highest, dtype=torch.int32), axis=None, dtype=torch.float64)
    assert back.item() == float(lowest - highest)


def test_pooling_padding_never_wins_and_nan_does():
    attributes = {"window": (2,), "strides": (2,), "padding": ((1, 1),), "dilation": (1,)}
    values, indices = prims.max_pool(torch.tensor([[[-5.0, NAN, 3.0, -7.0]]]), **attributes)
    assert values[0, 0, 0].item() == -5.0
    assert values[0, 0, 1].isnan()
    assert values[0, 0, 2].item() == -7.0
    assert indices.tolist() == [[[0, 1, 3]]]


def test_a_query_that_sees_no_key_gives_zeros():
    query = torch.ones(1, 1, 2, 4)
    mask = torch.tensor([[0.0, -INF], [-INF, -INF]]).reshape(1, 1, 2, 2)
    result, logsumexp = prims.attention(
        query, query, query, mask, causal=False, scale=1.0, statistics_dtype=torch.float32
    )
    assert result[0, 0].tolist() == [[1.0] * 4, [0.0] * 4]
    assert logsumexp[0, 0, 1].item() == -INF
