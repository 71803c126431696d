"""A call that breaks an op's rules is refused by an error that names the op.

What a vendor would lose: a kernel that is asked for what the contract rules out, and crashes far from the cause.
"""

from __future__ import annotations

import pytest
import torch

from backend_sdk import prims
from backend_sdk.errors import DialectError
from backend_sdk.prims import CONTRACT
from backend_sdk.spec import TensorType

# A dtype that torch has and the contract has not.
FOREIGN = torch.quint8


def f32(*shape):
    return TensorType(shape, torch.float32)


def i64(*shape):
    return TensorType(shape, torch.int64)


KEY = TensorType((1,), torch.int64)
_POOL = {"window": (2,), "strides": (1,), "padding": ((0, 0),), "dilation": (1,)}
_CONVOLUTION = {
    "strides": (1,),
    "padding": ((0, 0),),
    "input_dilation": (1,),
    "kernel_dilation": (1,),
    "groups": 1,
}
_GRADIENT = {"strides": (1,), "padding": (0,), "dilation": (1,), "groups": 1}
_ATTENTION = {"causal": False, "scale": 1.0}
_NORM = {"epsilon": 1e-5, "statistics_dtype": torch.float32}

# Calls whose shapes or attributes do not fit, by op: at least one for each op whose operands must have a relation.
WRONG_CALLS = {
    prims.argmax: [((f32(3),), {"axis": 1}), ((f32(),), {"axis": 0})],
    prims.argmin: [((f32(3),), {"axis": 1}), ((f32(3),), {"axis": -1})],
    prims.attention: [
        ((f32(2, 3, 4), f32(2, 3, 4), f32(2, 3, 4), None), {**_ATTENTION, "statistics_dtype": torch.float32}),
        (
            (f32(2, 3, 5, 8), f32(2, 2, 5, 8), f32(2, 2, 5, 8), None),
            {**_ATTENTION, "statistics_dtype": torch.float32},
        ),
        (
            (f32(2, 2, 5, 8), f32(2, 2, 5, 8), f32(2, 2, 5, 8), f32(1, 1, 5, 4)),
            {**_ATTENTION, "statistics_dtype": torch.float32},
        ),
        (
            (f32(2, 2, 5, 8), f32(2, 2, 5, 7), f32(2, 2, 5, 8), None),
            {**_ATTENTION, "statistics_dtype": torch.float32},
        ),
    ],
    prims.attention_grad: [
        ((f32(1, 1, 2, 8), *(f32(1, 1, 3, 8),) * 3, None, f32(1, 1, 3, 8), f32(1, 1, 3)), _ATTENTION),
        ((*(f32(1, 1, 3, 8),) * 4, None, f32(1, 1, 3, 8), f32(1, 1, 2)), _ATTENTION),
    ],
    prims.batch_norm_inference: [
        ((f32(2, 3), f32(3), f32(3), f32(3), f32(2)), {"epsilon": 1e-5}),
        ((f32(3), None, None, f32(3), f32(3)), {"epsilon": 1e-5}),
    ],
    prims.batch_norm_training: [((f32(2, 3), f32(2), None), _NORM), ((f32(3), None, None), _NORM)],
    prims.broadcast: [
        ((f32(3),), {"shape": (2, 4), "dims": (1,)}),
        ((f32(3),), {"shape": (2, 3), "dims": (2,)}),
        ((f32(3, 2),), {"shape": (2, 3), "dims": (1, 0)}),
        ((f32(3),), {"shape": (2, 3), "dims": ()}),
    ],
    prims.concat: [
        ((f32(2, 3), f32(3, 3)), {"axis": 1}),
        ((f32(2, 3), f32(2)), {"axis": 0}),
        ((f32(2), f32(2)), {"axis": 1}),
    ],
    prims.convolution: [
        ((f32(1, 2, 5), f32(3, 4, 3)), _CONVOLUTION),
        ((f32(1, 2, 5), f32(3, 2, 3, 3)), _CONVOLUTION),
        ((f32(1, 2, 5), f32(3, 2, 3)), {**_CONVOLUTION, "strides": (1, 1)}),
        ((f32(1, 2, 5), f32(3, 1, 3)), {**_CONVOLUTION, "groups": 2}),
    ],
    prims.convolution_input_grad: [((f32(1, 2, 5), f32(3, 2, 3)), {**_GRADIENT, "input_sizes": (7,)})],
    prims.convolution_weight_grad: [((f32(1, 2, 5), f32(3, 2, 7)), {**_GRADIENT, "kernel_sizes": (3,)})],
    prims.cumprod: [((f32(3),), {"axis": 1})],
    prims.cummax: [((f32(),), {"axis": 0}), ((f32(3),), {"axis": 1})],
    prims.cummin: [((f32(),), {"axis": 0}), ((f32(3),), {"axis": 1})],
    prims.cumsum: [((f32(),), {"axis": 0})],
    prims.dot_general: [
        ((f32(2, 3), f32(4, 5)), {"contract": ((1,), (0,)), "batch": ((), ())}),
        ((f32(2, 3), f32(3, 5)), {"contract": ((1,), (0, 1)), "batch": ((), ())}),
        ((f32(2, 3, 4), f32(3, 4, 5)), {"contract": ((2,), (1,)), "batch": ((0,), (0,))}),
        ((f32(2, 3), f32(3, 5)), {"contract": ((2,), (0,)), "batch": ((), ())}),
        ((f32(3, 3), f32(3, 5)), {"contract": ((1,), (0,)), "batch": ((1,), (0,))}),
    ],
    prims.full: [((), {"shape": (-1,), "value": 1, "dtype": torch.float32})],
    prims.gather: [((f32(3, 2), i64(3)), {"axis": 0}), ((f32(3), i64(3)), {"axis": 1})],
    prims.gelu: [((f32(3),), {"approximate": "erf"})],
    prims.group_norm: [
        ((f32(2, 5, 3), None, None), {**_NORM, "groups": 2}),
        ((f32(2, 4, 3), f32(3), None), {**_NORM, "groups": 2}),
    ],
    prims.iota: [((), {"length": -1, "dtype": torch.int64})],
    prims.layer_norm: [
        ((f32(2, 5), f32(4), None), {**_NORM, "rank": 1}),
        ((f32(2, 5), None, None), {**_NORM, "rank": 3}),
        ((f32(2, 5), None, None), {**_NORM, "rank": 0}),
    ],
    prims.linear: [
        ((f32(2, 5), f32(4, 6), None), {}),
        ((f32(2, 5), f32(4, 5), f32(5)), {}),
        ((f32(2, 5), f32(5), None), {}),
        ((f32(), f32(4, 5), None), {}),
    ],
    prims.log_softmax: [((f32(3),), {"axis": 1})],
    prims.max_pool: [((f32(1, 2, 5, 5),), _POOL), ((f32(5),), _POOL), ((f32(1, 1, 0),), _POOL)],
    prims.pad: [((f32(3),), {"low": (0, 0), "high": (0,), "interior": (0,), "value": 0})],
    prims.permute: [((f32(3, 2),), {"dims": (0, 0)}), ((f32(3, 2),), {"dims": (0,)})],
    prims.random_bits: [((i64(2),), {"stream": 0, "shape": (3,)})],
    prims.random_normal: [((i64(2),), {"stream": 0, "shape": (3,), "dtype": torch.float32})],
    prims.random_uniform: [((i64(),), {"stream": 0, "shape": (3,), "dtype": torch.float32})],
    prims.reduce_max: [((f32(3),), {"axes": (1,)}), ((f32(3, 0),), {"axes": (1,)})],
    prims.reduce_min: [
        ((f32(3, 3),), {"axes": (1, 1)}),
        (
            (
                f32(
                    0,
                ),
            ),
            {"axes": (0,)},
        ),
    ],
    prims.reduce_prod: [((f32(3),), {"axes": (-1,)})],
    prims.reduce_sum: [((f32(),), {"axes": (0,)}), ((f32(3, 3),), {"axes": (0, 0)})],
    prims.reshape: [((f32(2, 3),), {"shape": (5,)})],
    prims.reverse: [((f32(2, 3),), {"dims": (2,)}), ((f32(2, 3),), {"dims": (-1,)})],
    prims.rms_norm: [((f32(2, 5), f32(4)), {**_NORM, "rank": 1}), ((f32(2),), {**_NORM, "rank": 1})],
    prims.safe_softmax: [((f32(3),), {"axis": -1})],
    prims.scatter: [
        ((f32(3, 2), i64(2, 2), f32(1, 2)), {"axis": 0, "mode": "add"}),
        ((f32(3, 2), i64(2), f32(2)), {"axis": 0, "mode": "add"}),
        ((f32(3), i64(3), f32(3)), {"axis": 1, "mode": "add"}),
        ((f32(3), i64(3), f32(3)), {"axis": 0, "mode": "mean"}),
    ],
    prims.slice: [
        ((f32(3),), {"starts": (0, 0), "limits": (1, 1), "strides": (1, 1)}),
        ((f32(3),), {"starts": (0,), "limits": (4,), "strides": (1,)}),
        ((f32(3),), {"starts": (2,), "limits": (1,), "strides": (1,)}),
        ((f32(3),), {"starts": (-1,), "limits": (3,), "strides": (1,)}),
    ],
    prims.softmax: [((f32(),), {"axis": 0})],
    prims.logcumsumexp: [((f32(),), {"axis": 0}), ((f32(3),), {"axis": 1})],
    prims.searchsorted: [((f32(), f32()), {"right": False}), ((f32(2, 3), f32(4, 3)), {"right": False})],
    prims.sort: [((f32(3),), {"axis": 1, "descending": False})],
    prims.sum_pool: [((f32(1, 2, 5, 5),), _POOL), ((f32(5),), _POOL)],
    prims.take: [((f32(3), i64(2)), {"axis": 1}), ((f32(), i64(2)), {"axis": 0})],
}


def c64(*shape):
    return TensorType(shape, torch.complex64)


WRONG_CALLS |= {
    prims.bitcast: [((f32(3),), {"dtype": torch.float64})],
    prims.cummax: [((f32(3),), {"axis": 1})],
    prims.cummin: [((f32(3),), {"axis": 1})],
    prims.fft: [((c64(3),), {"axes": (1,), "inverse": False})],
    prims.householder_product: [((f32(3), f32(3)), {"columns": 3})],
    prims.incomplete_gamma: [((f32(3), f32(4)), {"upper": True})],
    prims.irfft: [((c64(3),), {"axes": (1,), "size": 4})],
    prims.ldl: [((f32(3, 4),), {"hermitian": False})],
    prims.logcumsumexp: [((f32(3),), {"axis": 1})],
    prims.lu_solve: [((f32(3, 3), i64(4), f32(3, 2)), {"adjoint": False})],
    prims.orthogonal_polynomial: [((f32(3), f32(4)), {"kind": "legendre_p"})],
    prims.qr: [((f32(3),), {"complete": False})],
    prims.rfft: [((f32(3),), {"axes": (1,)})],
    prims.searchsorted: [((f32(), f32(3)), {"right": False})],
    prims.svd: [((f32(3),), {"full": False})],
    prims.triangular_solve: [((f32(3, 4), f32(3, 2)), {"lower": True, "unit_diagonal": False})],
}


_STORED_AS = {"axis": 0, "lowest": 0, "highest": 255, "dtype": torch.uint8}


def i32(*shape):
    return TensorType(shape, torch.int32)


WRONG_CALLS |= {
    prims.dequantize: [((i32(3), f32(3), i32()), {"axis": 0, "dtype": torch.float32})],
    prims.quantize: [
        ((f32(3), f32(), i32()), _STORED_AS),
        ((f32(3), f32(3), i32(3)), {**_STORED_AS, "axis": 1}),
        ((f32(3), f32(3), i32(3)), {**_STORED_AS, "lowest": -1}),
    ],
}

# Unary ops on any shape: no shape is wrong for them.
TAKE_ANY_SHAPE = {op for op in CONTRACT if len(op.operand_names) == 1 and not op.attribute_names} | {prims.convert}
# Their operands must have one shape.
ONE_SHAPE = {op for op in CONTRACT if len(op.operand_names) > 1 and not op.attribute_names} - {prims.linear}


@pytest.mark.parametrize(
    ("wrong", "operands", "attributes"),
    [
        pytest.param(op, operands, attributes, id=f"{op.name}-{index}")
        for op, calls in WRONG_CALLS.items()
        for index, (operands, attributes) in enumerate(calls)
    ],
)
def test_shapes_that_do_not_fit_are_refused(wrong, operands, attributes):
    with pytest.raises(DialectError, match=rf"\b{wrong.name}\b"):
        wrong.infer(operands, dict(attributes))


@pytest.mark.parametrize("elementwise", sorted(ONE_SHAPE, key=lambda op: op.name), ids=lambda op: op.name)
def test_nothing_broadcasts(elementwise, first_call):
    types, attributes = first_call(elementwise)
    for position, type in enumerate(types):
        wider = (*types[:position], type.with_shape((3, *type.shape)), *types[position + 1 :])
        with pytest.raises(DialectError, match=rf"\b{elementwise.name}\b.*one shape"):
            elementwise.infer(wider, attributes)


def test_every_op_is_asked():
    assert set(WRONG_CALLS) | ONE_SHAPE | TAKE_ANY_SHAPE == set(CONTRACT)


def test_a_dtype_outside_the_contract_is_refused(op, first_call):
    types, attributes = first_call(op)
    for position, type in enumerate(types):
        if type is not None:
            wrong = (*types[:position], type.with_dtype(FOREIGN), *types[position + 1 :])
            with pytest.raises(DialectError, match=rf"\b{op.name}\(.*operand \d does not fit the dtype rule"):
                op.infer(wrong, attributes)
    for name, value in attributes.items():
        if isinstance(value, torch.dtype):
            with pytest.raises(DialectError, match=rf"\b{op.name}\b.*{name}"):
                op.infer(types, {**attributes, name: FOREIGN})


def test_a_missing_or_unknown_attribute_is_refused(op, first_call):
    types, attributes = first_call(op)
    with pytest.raises(DialectError, match=rf"\b{op.name}\b.*attributes.*nonsense"):
        op.infer(types, {**attributes, "nonsense": 1})
    for name in attributes:
        less = {key: value for key, value in attributes.items() if key != name}
        with pytest.raises(DialectError, match=rf"\b{op.name}\b.*{name}"):
            op.infer(types, less)


def test_a_wrong_number_of_operands_is_refused(op, first_call):
    types, attributes = first_call(op)
    if op.is_variadic:
        with pytest.raises(DialectError, match=rf"\b{op.name}\b"):
            op.infer((), attributes)
        return
    with pytest.raises(DialectError, match=rf"\b{op.name}\b takes {len(types)} operands, got {len(types) + 1}"):
        op.infer((*types, f32(3)), attributes)
