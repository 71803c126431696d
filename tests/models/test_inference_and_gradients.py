"""Whole models compute what eager computes, forward and backward, with no op left to eager.

What a user would lose: a right answer from a real model.
"""

from __future__ import annotations

import torch


def test_inference(name, build, compile_strictly, in_float64, assert_as_exact):
    model = build(name)
    wide = in_float64(model)
    with torch.no_grad():
        eager, exact = model.call(), wide.call()
        actual = model.call(compile_strictly(model.module))
    assert_as_exact(actual, eager, exact)
    assert actual.stride() == eager.stride()


def test_gradients(name, build, compile_strictly, in_float64, assert_as_exact):
    model = build(name)
    wide = in_float64(model)
    result = model.call()
    upstream = torch.randn_like(result)
    result.backward(upstream)
    exact_result = wide.call()
    exact_result.backward(upstream.double())
    eager = {key: parameter.grad for key, parameter in model.module.named_parameters()}
    exact = {key: parameter.grad for key, parameter in wide.module.named_parameters()}
    model.module.zero_grad(set_to_none=True)

    actual = model.call(compile_strictly(model.module))
    actual.backward(upstream)

    assert_as_exact(actual.detach(), result.detach(), exact_result.detach())
    assert any(gradient is not None for gradient in eager.values())
    for key, parameter in model.module.named_parameters():
        if eager[key] is None:
            # Ahead-of-time autograd gives zeros to what leads to a result that nobody differentiates.
            assert parameter.grad is None or not parameter.grad.any(), key
        else:
            assert_as_exact(parameter.grad, eager[key], exact[key], what=key)
            assert parameter.grad.stride() == eager[key].stride(), key
