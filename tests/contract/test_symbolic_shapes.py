"""Meta functions work on symbolic sizes, and refuse only what cannot be equal.

What a user would lose: one compilation for all batch sizes, or a right model that is refused because torch knows
two equal sizes by two names.
"""

from __future__ import annotations

import pytest
import torch

from backend_sdk import prims
from backend_sdk.errors import DialectError
from backend_sdk.spec import TensorType, differ
from backend_sdk.spec.symbolic import symbol

B, S = symbol("s0"), symbol("s1")
# A size that torch may have guarded to be equal to B * S.
OTHER = symbol("s2") * symbol("s3")

_NORM = {"epsilon": 1e-5, "statistics_dtype": torch.float32}


def f32(*shape):
    return TensorType(shape, torch.float32)


def i64(*shape):
    return TensorType(shape, torch.int64)


SHAPES = [
    (prims.exp, (f32(B, 4),), {}, [(B, 4)]),
    (prims.add, (f32(B, S), f32(B, S)), {}, [(B, S)]),
    (prims.add, (f32(B * S), f32(OTHER)), {}, [(B * S,)]),
    (prims.convert, (f32(B),), {"dtype": torch.int64}, [(B,)]),
    (prims.full, (), {"shape": (B, 3), "value": 0, "dtype": torch.float32}, [(B, 3)]),
    (prims.iota, (), {"length": S, "dtype": torch.int64}, [(S,)]),
    (prims.reshape, (f32(B, S, 8),), {"shape": (B * S, 8)}, [(B * S, 8)]),
    (prims.permute, (f32(B, S, 8),), {"dims": (2, 0, 1)}, [(8, B, S)]),
    (prims.broadcast, (f32(8),), {"shape": (B, 8), "dims": (1,)}, [(B, 8)]),
    (prims.broadcast, (f32(OTHER, 1),), {"shape": (B * S, 8), "dims": (0, 1)}, [(B * S, 8)]),
    (prims.slice, (f32(B, S),), {"starts": (0, 1), "limits": (B, S), "strides": (1, 1)}, [(B, S - 1)]),
    (prims.slice, (f32(S),), {"starts": (0,), "limits": (S,), "strides": (2,)}, [((S + 1) // 2,)]),
    (prims.pad, (f32(S),), {"low": (1,), "high": (2,), "interior": (0,), "value": 0}, [(S + 3,)]),
    (prims.concat, (f32(B, 3), f32(B, S)), {"axis": 1}, [(B, S + 3)]),
    (prims.reverse, (f32(B, S),), {"dims": (1,)}, [(B, S)]),
    (prims.reduce_sum, (f32(B, S, 8),), {"axes": (1,)}, [(B, 8)]),
    (prims.reduce_max, (f32(B, S),), {"axes": (1,)}, [(B,)]),
    (prims.argmax, (f32(B, S),), {"axis": 1}, [(B,)]),
    (prims.cumsum, (f32(B, S),), {"axis": 1}, [(B, S)]),
    (prims.sort, (f32(B, S),), {"axis": 1, "descending": True}, [(B, S), (B, S)]),
    (prims.take, (f32(100, 8), i64(B, S)), {"axis": 0}, [(B, S, 8)]),
    (prims.gather, (f32(B, 9), i64(B, S)), {"axis": 1}, [(B, S)]),
    (prims.scatter, (f32(B, 9), i64(B, S), f32(B, S)), {"axis": 1, "mode": "add"}, [(B, 9)]),
    (prims.dot_general, (f32(B, S, 8), f32(B, 8, S)), {"contract": ((2,), (1,)), "batch": ((0,), (0,))}, [(B, S, S)]),
    (prims.linear, (f32(B, S, 8), f32(4, 8), f32(4)), {}, [(B, S, 4)]),
    (
        prims.convolution,
        (f32(B, 3, S, S), f32(4, 3, 3, 3)),
        {
            "strides": (1, 1),
            "padding": ((1, 1), (1, 1)),
            "input_dilation": (1, 1),
            "kernel_dilation": (1, 1),
            "groups": 1,
        },
        [(B, 4, S, S)],
    ),
    (
        prims.max_pool,
        (f32(B, 3, S),),
        {"window": (3,), "strides": (1,), "padding": ((1, 1),), "dilation": (1,)},
        [(B, 3, S), (B, 3, S)],
    ),
    (prims.softmax, (f32(B, S),), {"axis": 1}, [(B, S)]),
    (prims.layer_norm, (f32(B, S, 8), f32(8), f32(8)), {**_NORM, "rank": 1}, [(B, S, 8), (B, S, 1), (B, S, 1)]),
    (prims.group_norm, (f32(B, 4, S), None, None), {**_NORM, "groups": 2}, [(B, 4, S), (B, 2), (B, 2)]),
    (prims.batch_norm_training, (f32(B, 3, S), None, None), _NORM, [(B, 3, S), (3,), (3,)]),
    (
        prims.attention,
        (f32(B, 4, S, 8), f32(B, 2, B * S, 8), f32(B, 2, OTHER, 8), None),
        {"causal": False, "scale": 0.5, "statistics_dtype": torch.float32},
        [(B, 4, S, 8), (B, 4, S)],
    ),
    (prims.random_uniform, (i64(1),), {"stream": 1, "shape": (B, S), "dtype": torch.float32}, [(B, S)]),
]


@pytest.mark.parametrize(
    ("called", "operands", "attributes", "expected"),
    [pytest.param(*case, id=f"{case[0].name}-{index}") for index, case in enumerate(SHAPES)],
)
def test_shapes_of_symbols(called, operands, attributes, expected):
    assert [result.shape for result in called.infer(operands, dict(attributes))] == expected


@pytest.mark.parametrize(
    ("called", "operands", "attributes"),
    [
        (prims.add, (f32(B), f32(B + 1)), {}),
        (prims.add, (f32(B, 3), f32(B, 4)), {}),
        (prims.add, (f32(B), f32(B, 1)), {}),
        (prims.concat, (f32(B), f32(B, S)), {"axis": 0}),
        (prims.broadcast, (f32(B),), {"shape": (B + 2,), "dims": (0,)}),
        (prims.dot_general, (f32(B, S), f32(S - 1, B)), {"contract": ((1,), (0,)), "batch": ((), ())}),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_what_cannot_be_equal_is_refused(called, operands, attributes):
    with pytest.raises(DialectError, match=rf"\b{called.name}\b"):
        called.infer(operands, attributes)


def test_differ():
    assert differ((1,), (1, 1))
    assert differ((2, B), (3, B))
    assert differ((B,), (B - 1,))
    assert not differ((B, S), (B, S))
    assert not differ((B * S,), (OTHER,))
    assert not differ((B,), (4,))
