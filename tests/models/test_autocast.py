"""Under autocast a compiled model has eager's dtypes and loses no more precision than eager.

What a user would lose: half precision that is silently off, or a dtype that the next layer does not take.
"""

from __future__ import annotations

import pytest
import torch


@pytest.mark.parametrize("half", ["bert", "resnet"])
def test_autocast(half, build, compile_strictly, in_float64):
    model = build(half)
    wide = in_float64(model)
    compiled = compile_strictly(model.module)
    with torch.no_grad():
        exact = wide.call()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            eager, actual = model.call(), model.call(compiled)
    assert actual.dtype == eager.dtype
    assert actual.stride() == eager.stride()
    error, of_eager = ((x.double() - exact).norm() / exact.norm() for x in (actual, eager))
    # Each of about ten layers rounds to 8 bits: an error of a few epsilons (2^-8) is what the format gives.
    assert of_eager < 16 * 2.0**-8
    assert error <= 2 * of_eager


@pytest.mark.parametrize("half", ["bert", "resnet"])
def test_gradients_under_autocast(half, build, compile_strictly, in_float64):
    model = build(half)
    wide = in_float64(model)
    wide.call().sum().backward()
    gradients = []
    for module in (model.module, compile_strictly(model.module)):
        model.module.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            result = model.call(module)
        result.float().sum().backward()
        gradients.append({key: p.grad for key, p in model.module.named_parameters()})
    eager, actual = gradients
    for key, parameter in wide.module.named_parameters():
        if eager[key] is None:
            continue
        assert actual[key].dtype == eager[key].dtype, key
        exact = parameter.grad
        error, of_eager = ((x[key].double() - exact).norm() for x in (actual, eager))
        assert error <= 3 * of_eager + 8 * 2.0**-8 * exact.norm() + 1e-4, key
