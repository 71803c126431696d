"""An op's parts agree with each other: samples, meta function, reference, tolerance.

What a vendor would lose: a certificate that judges by a definition which contradicts itself.
"""

from __future__ import annotations

import torch

from backend_sdk import dtypes
from backend_sdk.spec import Call, Exact, TensorType
from backend_sdk.spec.residual_tolerance import largest_share


def _types(operands):
    return tuple(None if x is None else TensorType(tuple(x.shape), x.dtype) for x in operands)


def _results(result):
    return list(result) if isinstance(result, (tuple, list)) else [result]


def test_infer_says_what_the_reference_returns(op, dtype, samples_of):
    samples = samples_of(op, dtype)
    assert samples
    for sample in samples:
        expected = op.infer(_types(sample.operands), dict(sample.attributes))
        results = _results(op.reference(*sample.operands, **sample.attributes))
        assert _types(results) == expected
        assert len(results) == op.result_count


def test_the_reference_leaves_its_operands_alone(op, dtype, samples_of):
    for sample in samples_of(op, dtype):
        before = [None if x is None else x.clone() for x in sample.operands]
        op.reference(*sample.operands, **sample.attributes)
        for now, then in zip(sample.operands, before, strict=True):
            assert now is None or torch.equal(*map(dtypes.widened, (now, then)))


def test_the_reference_is_within_its_tolerance_of_float64(op, dtype, samples_of):
    for sample in samples_of(op, dtype):
        actual = _results(op.reference(*sample.operands, **sample.attributes))
        truth, call = _truth(op, sample)
        share = largest_share(op.tolerance, actual, truth, call)
        assert share <= 1.0, f"{share:.3g} times {op.tolerance.describe()} at {sample}"


def test_the_tolerance_refuses_another_result(op, dtype, samples_of):
    sample = next(s for s in samples_of(op, dtype) if any(t.shape.numel() for t in _outputs(op, s)))
    truth, call = _truth(op, sample)
    results = _outputs(op, sample)
    for place, result in enumerate(results):
        wrong = [*results[:place], _spoiled(result), *results[place + 1 :]]
        assert not largest_share(op.tolerance, wrong, truth, call) <= 1.0


def _outputs(op, sample):
    return _results(op.reference(*sample.operands, **sample.attributes))


def _spoiled(result):
    if result.dtype in dtypes.STORAGE:
        return _spoiled(dtypes.widened(result)).to(result.dtype)
    if result.dtype == torch.bool:
        return ~result
    if result.dtype in dtypes.INTEGRAL:
        return result + 1
    return result + result.abs().clamp(min=1) / 4


def _truth(op, sample):
    """The results in float64, where the op rounds. An exact op has no rounding to look past."""

    def wide(value):
        if isinstance(op.tolerance, Exact):
            return value
        if isinstance(value, torch.Tensor):
            return value.to(dtypes.reference_dtype(value.dtype))
        return dtypes.reference_dtype(value) if isinstance(value, torch.dtype) else value

    attributes = {name: wide(value) for name, value in sample.attributes.items()}
    operands = tuple(map(wide, sample.operands))

    def evaluate(*given):
        return op.reference(*given, **attributes)

    return _results(evaluate(*operands)), Call(operands, attributes, evaluate)
