"""Quantizers on plain dtypes give eager's integers and eager's gradients, at ties and ends of the range too.

What a user would lose: a model that was trained or exported for int8, off by one where it rounds.
"""

from __future__ import annotations

import math

import pytest
import torch
import torch.ao.quantization

aten = torch.ops.aten
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def _check(compiled_call, function, *args, exactly=True):
    expected = function(*args)
    compiled = compiled_call(function, args)
    assert not compiled.left_to_eager
    expected = expected if isinstance(expected, (tuple, list)) else (expected,)
    for actual, wanted in zip(compiled.leaves, expected, strict=True):
        assert (actual.dtype, actual.shape) == (wanted.dtype, wanted.shape)
        # Sums in another order, in float32.
        loose = {"rtol": 1e-5, "atol": 1e-4} if wanted.dtype == torch.float32 else {}
        rounding = {"rtol": 0, "atol": 0} if exactly else loose
        torch.testing.assert_close(actual, wanted, equal_nan=True, **rounding)
    return compiled


def _data(dtype, *shape):
    """Numbers of which some lie exactly between two steps of 0.25, and some outside of any range."""
    generator = torch.Generator().manual_seed(3)
    return (torch.randint(-400, 400, shape, generator=generator) * 0.125).to(dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(40, 50), (7,), (), (0, 3)])
@pytest.mark.parametrize(("low", "high", "zero_point"), [(-128, 127, 3), (0, 255, 128), (-8, 7, 0)])
@pytest.mark.parametrize("scale", [0.25, 0.1])
def test_simulated_per_tensor(compiled_call, dtype, shape, low, high, zero_point, scale):
    x = _data(dtype, *shape)
    limits = (scale, zero_point, low, high)
    _check(compiled_call, lambda x: aten.fake_quantize_per_tensor_affine_cachemask(x, *limits), x)
    x = x.to(torch.float32).requires_grad_()
    _check(compiled_call, lambda x: torch.fake_quantize_per_tensor_affine(x, *limits), x)


@pytest.mark.parametrize("enabled", [0, 1])
@pytest.mark.parametrize("dtype", FLOATS)
def test_simulated_by_tensors(compiled_call, dtype, enabled):
    scale, zero_point = torch.tensor([0.3]), torch.tensor([5], dtype=torch.int32)
    _check(
        compiled_call,
        lambda *given: aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams(*given, 0, 255),
        _data(dtype, 9, 11),
        scale,
        zero_point,
        torch.tensor([enabled]),
    )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("zero_point", [torch.tensor([0, 3, -4], dtype=torch.int32), torch.tensor([0.0, 3.5, -0.25])])
@pytest.mark.parametrize("axis", [0, 1])
def test_simulated_per_channel(compiled_call, dtype, zero_point, axis):
    x = _data(dtype, *((3, 40) if axis == 0 else (5, 3, 8)))
    # Eager may add a zero point that is a fraction without rounding the product first; a power of 2 has no rounding.
    scale = torch.tensor([0.25, 0.5 if zero_point.is_floating_point() else 0.1, 2.0])
    _check(
        compiled_call,
        lambda *given: aten.fake_quantize_per_channel_affine_cachemask(*given, axis, -16, 15),
        x,
        scale,
        zero_point,
    )


def test_nan_is_clamped_and_outside(compiled_call):
    x = torch.tensor([math.nan, -math.inf, 1.0])
    _check(compiled_call, lambda x: aten.fake_quantize_per_tensor_affine_cachemask(x, 0.1, 0, -8, 7), x)


def _learnt(x, scale, zero_point, grad, axis):
    args = (-8, 7, 0.5) if axis is None else (axis, -8, 7, 0.5)
    kind = "tensor" if axis is None else "channel"
    forward = getattr(aten, f"_fake_quantize_learnable_per_{kind}_affine")
    backward = getattr(aten, f"_fake_quantize_learnable_per_{kind}_affine_backward")
    return (forward(x, scale, zero_point, *args), *backward(grad, x, scale, zero_point, *args))


@pytest.mark.parametrize("zero_point", [0.5, -2.5, 3.2, 20.0])
@pytest.mark.parametrize("shape", [(20, 30), (0, 2)])
def test_learnable_per_tensor(compiled_call, zero_point, shape):
    x = _data(torch.float32, *shape)
    _check(
        compiled_call,
        lambda *given: _learnt(*given, None),
        x,
        torch.tensor([0.25]),
        torch.tensor([zero_point]),
        torch.rand(shape, generator=torch.Generator().manual_seed(1)),
        exactly=False,
    )


@pytest.mark.parametrize("axis", [0, 1])
def test_learnable_per_channel(compiled_call, axis):
    x = _data(torch.float32, 3, 3, 7)
    _check(
        compiled_call,
        lambda *given: _learnt(*given, axis),
        x,
        torch.tensor([0.25, 0.1, 2.0]),
        torch.tensor([0.5, -2.5, 30.0]),
        torch.rand(x.shape, generator=torch.Generator().manual_seed(1)),
        exactly=False,
    )


# Running extremes before the call: none yet, one-sided ranges, nothing at all, and a range below the least scale.
RANGES = [(math.inf, -math.inf), (-1.0, 3.0), (0.5, 3.0), (-3.0, -0.5), (0.0, 0.0), (-1e-6, 3e-6), (-2e-6, 0.0)]


SWITCHES = [
    (observes, quantizes, ends)
    for observes, quantizes in ((1, 1), (0, 1), (1, 0), (0, 0))
    for ends in (RANGES if observes and quantizes else RANGES[1:3])
]


@pytest.mark.parametrize(("observes", "quantizes", "ends"), SWITCHES)
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("per_row", [False, True])
def test_observer(compiled_call, observes, quantizes, ends, symmetric, per_row):
    low, high = ends
    x = _data(torch.float32, 3, 50) * (1e-7 if abs(high) < 1e-5 else 0.01)
    size = 3 if per_row else 1
    state = [torch.full((size,), value) for value in (low, high, 1.0)]

    def observe(x, *state):
        flags = torch.tensor([observes]), torch.tensor([quantizes])
        return aten._fused_moving_avg_obs_fq_helper_functional(x, *flags, *state, 0.1, -128, 127, 0, per_row, symmetric)

    _check(compiled_call, observe, x, *state, torch.zeros(size, dtype=torch.int32))


def test_a_model_in_training_for_int8():
    """The module of torch's quantization-aware training, whose state is updated in place."""
    quantizer, other = (
        torch.ao.quantization.FusedMovingAvgObsFakeQuantize(
            observer=torch.ao.quantization.MovingAverageMinMaxObserver, quant_min=0, quant_max=255, dtype=torch.quint8
        )
        for _ in range(2)
    )
    compiled = torch.compile(quantizer, backend="sdk:reference", options={"fallback": "error"})
    for step in range(3):
        x = (_data(torch.float32, 4, 5) * (step + 1)).requires_grad_()
        y = x.detach().clone().requires_grad_()
        ours, theirs = compiled(x), other(y)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
        ours.sum().backward()
        theirs.sum().backward()
        torch.testing.assert_close(x.grad, y.grad, rtol=0, atol=0)
    for name, value in other.state_dict().items():
        torch.testing.assert_close(quantizer.state_dict()[name], value, rtol=0, atol=0)


def test_integer_products(compiled_call):
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randint(-128, 128, shape, generator=generator, dtype=torch.int8) for shape in ((32, 64), (64, 16)))
    _check(compiled_call, torch._int_mm, x, y)
    scales = torch.rand(32, generator=generator) + 0.1
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        _check(
            compiled_call,
            torch._weight_int8pack_mm,
            torch.rand(4, 64, generator=generator).to(dtype),
            x,
            scales.to(dtype),
            exactly=False,
        )


STORED = [(torch.int8, -128, 127), (torch.uint8, 0, 255), (torch.int16, -32768, 32767), (torch.int32, -1000, 1000)]


@pytest.fixture(scope="module")
def exported():
    """The ops of quantized exports, which torch registers on demand."""
    import torch.ao.quantization.fx._decomposed

    return torch.ops.quantized_decomposed


@pytest.mark.parametrize(("dtype", "low", "high"), STORED)
@pytest.mark.parametrize("source", [torch.float32, torch.float16, torch.bfloat16])
def test_exported_per_tensor(compiled_call, exported, dtype, low, high, source):
    x = _data(source, 30, 40)
    zero_point = min(high, 3)

    def there_and_back(x, scale, zero):
        limits = (low, high, dtype)
        q = exported.quantize_per_tensor(x, 0.1, zero_point, *limits)
        r = exported.quantize_per_tensor.tensor(x, scale, zero, *limits)
        return (
            q,
            r,
            exported.dequantize_per_tensor(q, 0.1, zero_point, *limits),
            exported.dequantize_per_tensor.tensor(r, scale, zero, *limits),
        )

    _check(compiled_call, there_and_back, x, torch.tensor(0.25), torch.tensor(zero_point))


@pytest.mark.parametrize(("dtype", "low", "high"), STORED)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_exported_per_channel(compiled_call, exported, dtype, low, high, axis):
    x = _data(torch.float32, 3, 3, 3)

    def there_and_back(x, scales, zeros):
        q = exported.quantize_per_channel(x, scales, zeros, axis, low, high, dtype)
        return (
            q,
            exported.dequantize_per_channel(q, scales, zeros, axis, low, high, dtype),
            exported.dequantize_per_channel(q, scales, None, axis, low, high, dtype),
        )

    _check(compiled_call, there_and_back, x, torch.tensor([0.25, 0.1, 3.0]), torch.tensor([0, 1, 5]))
