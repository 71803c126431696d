"""Fused optimizer steps and loss scaling give what eager's kernels give, in place within `torch.compile` too.

What a user would lose: the whole optimizer step runs in eager, or trains with another rate than they set.
"""

from __future__ import annotations

import math

import pytest
import torch

aten = torch.ops.aten


def _lists(dtype, count=2):
    generator = torch.Generator().manual_seed(0)
    shapes = [(3, 4), (5,), ()]
    return [[torch.randn(shape, generator=generator).to(dtype) for shape in shapes] for _ in range(count)]


def _positive(dtype):
    return [x.abs() for x in _lists(dtype)[0]]


def _check(compiled_call, function, *args):
    expected = torch.utils._pytree.tree_leaves(function(*args))
    compiled = compiled_call(function, args)
    assert not compiled.left_to_eager
    for actual, wanted in zip(compiled.leaves, expected, strict=True):
        assert (actual.dtype, actual.shape) == (wanted.dtype, wanted.shape)
        # Eager rounds between steps; the denominators of Adam's first steps are small.
        bound = {"rtol": 2e-2, "atol": 2e-2} if wanted.dtype.itemsize == 2 else {"rtol": 1e-5, "atol": 1e-6}
        torch.testing.assert_close(actual, wanted, equal_nan=True, **bound)


def _scaling(kind):
    """The scale of the gradients and whether they had an infinity, both given or neither."""
    if kind == "none":
        return {}
    return {"grad_scale": torch.tensor([4.0]), "found_inf": torch.tensor([float(kind == "infinite")])}


SCALINGS = ["none", "finite", "infinite"]
FLOATS = [torch.float32, torch.float64, torch.bfloat16]


@pytest.mark.parametrize("op", ["_fused_adam", "_fused_adamw"])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize(
    ("step", "decay", "maximize", "rate"), [(1, 0.0, False, 0.1), (700, 0.2, True, torch.tensor(0.1))]
)
def test_adam(compiled_call, op, dtype, scaling, amsgrad, step, decay, maximize, rate):
    scale = _scaling(scaling)

    def run(params, grads, averages, squares, maxima, steps, rate, scale):
        return getattr(aten, op)(
            params, grads, averages, squares, maxima, steps,
            lr=rate, beta1=0.9, beta2=0.999, weight_decay=decay, eps=1e-8, amsgrad=amsgrad, maximize=maximize, **scale,
        )  # fmt: skip

    params, grads = _lists(dtype)
    averages = _lists(dtype, 3)[2]
    maxima = [2 * x for x in _positive(dtype)] if amsgrad else []
    steps = [torch.tensor(float(step)) for _ in params]
    _check(compiled_call, run, params, grads, averages, _positive(dtype), maxima, steps, rate, scale)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize(
    ("momentum", "dampening", "nesterov", "first", "decay", "maximize", "rate"),
    [
        (0.0, 0.0, False, False, 0.0, False, 0.1),
        (0.9, 0.3, False, False, 0.1, True, torch.tensor(0.1)),
        (0.9, 0.0, True, False, 0.0, False, 0.1),
        (0.9, 0.3, False, True, 0.1, False, 0.1),
    ],
)
def test_descent(compiled_call, dtype, scaling, momentum, dampening, nesterov, first, decay, maximize, rate):
    scale = _scaling(scaling)

    def run(params, grads, buffers, rate, scale):
        return aten._fused_sgd(
            params, grads, buffers, weight_decay=decay, momentum=momentum, lr=rate, dampening=dampening,
            nesterov=nesterov, maximize=maximize, is_first_step=first, **scale,
        )  # fmt: skip

    params, grads = _lists(dtype)
    buffers = _lists(dtype, 3)[2] if momentum else []
    _check(compiled_call, run, params, grads, buffers, rate, scale)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize(("decay", "maximize", "rate"), [(0.0, False, 0.1), (0.1, True, torch.tensor(0.1))])
def test_adagrad(compiled_call, dtype, scaling, decay, maximize, rate):
    scale = _scaling(scaling)

    def run(params, grads, sums, steps, rate, scale):
        results = aten._fused_adagrad(
            params, grads, sums, steps,
            lr=rate, lr_decay=0.01, weight_decay=decay, eps=1e-10, maximize=maximize, **scale,
        )  # fmt: skip
        # With a tensor for a rate eager gives the steps too, which the schema does not have.
        return results[:3]

    params, grads = _lists(dtype)
    steps = [torch.tensor(7.0) for _ in params]
    _check(compiled_call, run, params, grads, _positive(dtype), steps, rate, scale)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.float16])
@pytest.mark.parametrize("bad", [None, math.inf, math.nan])
@pytest.mark.parametrize("found", [0.0, 1.0])
def test_gradients_lose_their_scale(compiled_call, dtype, bad, found):
    grads = _lists(dtype)[0]
    if bad is not None:
        grads[1][2] = bad
    _check(
        compiled_call,
        aten._amp_foreach_non_finite_check_and_unscale.default,
        [*grads, torch.empty(0, dtype=dtype)],
        torch.tensor([found]),
        torch.tensor([0.25]),
    )


@pytest.mark.parametrize("scale", [8.0, 3e38])
@pytest.mark.parametrize("tracked", [0, 2])
@pytest.mark.parametrize("found", [0.0, 1.0])
def test_the_scale_follows_the_infinities(compiled_call, scale, tracked, found):
    _check(
        compiled_call,
        lambda *given: aten._amp_update_scale(*given, 2.0, 0.5, 3),
        torch.tensor([scale]),
        torch.tensor([tracked], dtype=torch.int32),
        torch.tensor([found]),
    )


def test_a_training_step_in_place_compiles_whole():
    """What `torch.optim.AdamW(amsgrad=True, fused=True)` and `GradScaler` call, which write into their arguments.

    torch functionalizes no empty list of maxima, and its optimizers break the graph before a fused step.
    """
    torch._dynamo.reset()

    def step(params, grads, averages, squares, maxima, steps, scale, tracker, found, inverse):
        torch._amp_foreach_non_finite_check_and_unscale_(grads, found, inverse)
        torch._foreach_add_(steps, 1)
        torch._fused_adamw_(
            params, grads, averages, squares, maxima, steps,
            lr=0.01, beta1=0.9, beta2=0.999, weight_decay=0.1, eps=1e-8, amsgrad=True, maximize=False,
        )  # fmt: skip
        torch._amp_update_scale_(scale, tracker, found, 2.0, 0.5, 2)
        return params[0].sum()

    compiled = torch.compile(step, backend="sdk:reference", fullgraph=True, options={"fallback": "error"})
    states = []
    for run in (step, compiled):
        params = _lists(torch.float32)[0]
        averages, squares, maxima = ([torch.zeros_like(x) for x in params] for _ in range(3))
        steps = [torch.tensor(0.0) for _ in params]
        scale, tracker, found = torch.tensor([8.0]), torch.zeros(1, dtype=torch.int32), torch.zeros(1)
        results = []
        for number in range(3):
            grads = [8.0 * torch.sin(x + number) for x in params]
            scaling = (scale, tracker, found, torch.tensor([0.125]))
            results.append(run(params, grads, averages, squares, maxima, steps, *scaling))
        states.append([*params, *averages, *squares, *maxima, *steps, scale, tracker, found, *results])
    for wanted, actual in zip(*states, strict=True):
        torch.testing.assert_close(actual, wanted, rtol=1e-5, atol=1e-6)


def test_fused_dropout_keeps_its_share(compiled_call):
    """For CUDA only in eager, so that its numbers themselves are tested: what stays is scaled; the mask says what."""
    meta = torch.empty(20000, device="meta")
    assert [x.dtype for x in aten._fused_dropout(meta, 0.75)] == [torch.float32, torch.uint8]
    compiled = compiled_call(lambda x: aten._fused_dropout(x, 0.75), (torch.ones(20000),))
    assert not compiled.left_to_eager
    dropped, mask = compiled.leaves
    assert abs(mask.float().mean().item() - 0.75) < 6 * math.sqrt(0.75 * 0.25 / 20000)
    torch.testing.assert_close(dropped, mask / 0.75)
    scaled = compiled_call(lambda x, mask: aten._masked_scale(x, mask, 2.0), (torch.ones(20000), mask))
    assert not scaled.left_to_eager
    assert torch.equal(scaled.leaves[0], mask * 2.0)
