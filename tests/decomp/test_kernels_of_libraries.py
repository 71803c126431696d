"""Ops that one library or device has a kernel for, and recurrent layers, as captured or exported graphs show them.

What a user would lose: an exported LSTM in eager, or a program captured for another device that no backend can take.
"""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import backend_sdk
from backend_sdk.coverage.calls import COMPOSITES, Call, prove
from backend_sdk.pipeline.report import FALLBACK, collecting
from backend_sdk.torch_compat.ops import draws

aten = torch.ops.aten


def _agree(function, *args, backward=False):
    assert prove(Call(function, args, backward=backward), COMPOSITES) is not None


# ---- recurrent layers


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "model",
    [
        nn.LSTM(3, 4),
        nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True, dropout=0.5),
        nn.LSTM(3, 4, bias=False),
        nn.LSTM(3, 4, proj_size=2),
        nn.GRU(3, 4, num_layers=2),
        nn.RNN(3, 4, bidirectional=True),
        nn.RNN(3, 4, nonlinearity="relu"),
        nn.LSTMCell(3, 4),
        nn.GRUCell(3, 4),
    ],
    ids=str,
)
def test_exported_recurrent_models_run_without_fallback(model):
    model = model.eval()
    torch.manual_seed(0)
    x = torch.randn(2, 3) if isinstance(model, nn.RNNCellBase) else torch.randn(5, 2, 3)
    program = torch.export.export(model, (x,))
    with collecting() as reports:
        compiled = backend_sdk.compile_program(program, backend="reference", options={"fallback": "error"})
        ours = torch.utils._pytree.tree_leaves(compiled(x))
    assert not [node.op for report in reports for node in report.nodes if node.verdict == FALLBACK]
    expected = torch.utils._pytree.tree_leaves(model(x))
    for actual, wanted in zip(ours, expected, strict=True):
        torch.testing.assert_close(actual, wanted)


def _layer(dtype=torch.float32):
    torch.manual_seed(0)
    weights = [torch.randn(*shape).to(dtype) for shape in ((16, 3), (16, 4), (16,), (16,))]
    states = [torch.randn(2, 4).to(dtype) for _ in range(2)]
    return torch.randn(5, 2, 3).to(dtype), weights, states


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("has_biases", [False, True])
def test_recurrent_layer_of_the_library(reverse, has_biases):
    x, weights, states = _layer()

    def run(train):
        return lambda x, w, s: aten.mkldnn_rnn_layer.default(
            x, *w, *s, reverse, [], 2, 4, 1, has_biases, False, False, train
        )

    _agree(lambda *args: run(False)(*args)[:3], x, weights, states)
    output, hidden, cell, workspace = run(True)(x, weights, states)
    grads = [torch.randn_like(output), torch.randn_like(hidden), torch.randn_like(cell)]

    def back(x, w, s, results, grads, workspace):
        return aten.mkldnn_rnn_layer_backward.default(
            x, *w, *s, *results, *grads, reverse, 2, 4, 1, has_biases, True, False, [], False, workspace
        )

    _agree(back, x, weights, states, [output, hidden, cell], grads, workspace)


@pytest.mark.parametrize("batch_first", [False, True])
def test_gradients_of_recurrent_layers(batch_first):
    torch.manual_seed(0)
    shapes = [(16, 3), (16, 4), (16,), (16,)] * 2
    x = torch.randn(4, 2, 3, requires_grad=True)
    batch = 4 if batch_first else 2
    states = [torch.randn(2, batch, 4, requires_grad=True) for _ in range(2)]
    weights = [torch.randn(shape, requires_grad=True) for shape in shapes]
    _agree(
        lambda x, s, w: aten.lstm.input(x, s, w, True, 1, 0.0, True, True, batch_first),
        x,
        states,
        weights,
        backward=True,
    )


def test_only_a_call_that_drops_something_draws():
    x = torch.randn(5, 2, 3)

    def lstm(dropout, train):
        return draws(aten.lstm.input, (x, [], [], True, 2, dropout, train, False, False), {})

    assert lstm(0.5, True)
    assert not lstm(0.0, True) and not lstm(0.5, False)
    attention = aten._scaled_dot_product_flash_attention_for_cpu.default
    assert draws(attention, (x, x, x, 0.1), {}) and draws(attention, (x, x, x), {"dropout_p": 0.1})
    assert not draws(attention, (x, x, x), {}) and not draws(aten.add.Tensor, (x, x), {})
    assert draws(aten.native_dropout.default, (x, 0.5, None), {}) and draws(aten.rand.default, ([3],), {})


def test_fused_cell_and_its_gradient(compiled_call):
    """Eager has no CPU kernel: the cell written out is what they mean."""
    torch.manual_seed(0)
    leaves = [torch.randn(shape, requires_grad=True) for shape in ((2, 16), (2, 16), (2, 4), (16,), (16,))]
    input_gates, hidden_gates, cell, input_bias, hidden_bias = leaves
    total = input_gates + hidden_gates + input_bias + hidden_bias
    enter, forget, content, leave = total.chunk(4, 1)
    new = forget.sigmoid() * cell + enter.sigmoid() * content.tanh()
    hidden = leave.sigmoid() * new.tanh()
    plain = [leaf.detach() for leaf in leaves]
    result = compiled_call(aten._thnn_fused_lstm_cell.default, plain)
    assert not result.left_to_eager
    for ours, wanted in zip(result.leaves, (hidden, new), strict=False):
        torch.testing.assert_close(ours, wanted.detach())
    grads = torch.randn_like(hidden), torch.randn_like(new)
    for given in (grads, (grads[0], None), (None, grads[1])):
        outputs = [(y, g) for y, g in zip((hidden, new), given, strict=True) if g is not None]
        expected = torch.autograd.grad([y for y, _ in outputs], leaves, [g for _, g in outputs], retain_graph=True)
        back = compiled_call(
            lambda g, c, n, w: aten._thnn_fused_lstm_cell_backward_impl.default(*g, c, n, w, True),
            (given, plain[2], result.leaves[1], result.leaves[2]),
        )
        assert not back.left_to_eager
        for ours, wanted in zip(back.leaves, (expected[0], expected[2], expected[3]), strict=True):
            torch.testing.assert_close(ours, wanted)


@pytest.mark.parametrize("biased", [False, True])
def test_gradients_of_cells_written_out(biased):
    torch.manual_seed(0)

    def make(*shape):
        return torch.randn(shape)

    biases = (make(16), make(16)) if biased else (None, None)
    _agree(
        aten._thnn_differentiable_lstm_cell_backward.default,
        *(make(2, 4), make(2, 4), make(2, 16), make(2, 16), *biases, make(2, 4), make(2, 4)),
    )
    biases = (make(12), make(12)) if biased else (None, None)
    _agree(
        aten._thnn_differentiable_gru_cell_backward.default,
        *(make(2, 4), make(2, 12), make(2, 12), make(2, 4), *biases),
    )


# ---- products


def test_products_by_group():
    torch.manual_seed(0)

    def make(*shape):
        return torch.randn(shape).bfloat16()

    ends = torch.tensor([8, 8, 32], dtype=torch.int32)
    grouped = aten._grouped_mm.default
    _agree(grouped, make(32, 16), make(3, 16, 8), ends)
    _agree(grouped, make(3, 24, 16), make(16, 32), ends)
    _agree(grouped, make(24, 32), make(32, 16), ends)
    _agree(grouped, make(2, 24, 16), make(2, 16, 8))
    leaves = make(32, 16).requires_grad_(), make(3, 16, 8).requires_grad_()
    _agree(lambda x, y, e: grouped(x, y, e), *leaves, ends, backward=True)


def test_what_a_group_does_not_hold_does_not_reach_it():
    x, y = torch.ones(8, 32).bfloat16(), torch.ones(32, 8).bfloat16()
    x[:, 20], y[20] = math.inf, math.nan
    _agree(aten._grouped_mm.default, x, y, torch.tensor([16, 32], dtype=torch.int32))


def test_products_of_lists():
    x, y = torch.randn(2, 3), torch.randn(3, 4)
    _agree(lambda x, y: aten._foreach_mm.default([x, y.mT], [y, x.mT]), x, y)


# ---- normalization


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(8,), (4, 8)])
def test_gradient_of_rms_norm(compiled_call, dtype, shape):
    """Eager has no CPU kernel: the gradient of the norm is what it means."""
    torch.manual_seed(0)
    x = torch.randn(2, 4, 8).to(dtype).requires_grad_()
    weight = torch.randn(shape).to(dtype).requires_grad_()
    y = F.rms_norm(x, shape, weight, 1e-5)
    grad = torch.randn_like(y)
    expected = torch.autograd.grad(y, (x, weight), grad)
    _, rstd = aten._fused_rms_norm.default(x.detach(), list(shape), weight.detach(), 1e-5)
    result = compiled_call(
        lambda g, x, r, w: aten._fused_rms_norm_backward.default(g, x, list(shape), r, w, [True, True]),
        (grad, x.detach(), rstd, weight.detach()),
    )
    assert not result.left_to_eager
    for ours, wanted in zip(result.leaves, expected, strict=True):
        torch.testing.assert_close(ours, wanted)


# ---- attention


def _attention(dtype):
    torch.manual_seed(0)
    shapes = {"q": (2, 3, 5, 8), "k": (2, 3, 7, 8), "v": (2, 3, 7, 6), "bias": (2, 1, 5, 7), "grad": (2, 3, 5, 6)}
    return {name: torch.randn(shape).to(dtype) for name, shape in shapes.items()}


def _exact(case, bias, causal):
    leaves = [case[name].double().clone().requires_grad_() for name in ("q", "k", "v")]
    leaves += [bias.double().clone().requires_grad_()] if bias is not None else []
    mask = leaves[3] if bias is not None else None
    result = F.scaled_dot_product_attention(*leaves[:3], mask, is_causal=causal, scale=0.3)
    return result.detach(), torch.autograd.grad(result, leaves, case["grad"].double())


TOLERANCES = {torch.float64: 1e-6, torch.float32: 2e-6, torch.bfloat16: 2e-2}


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("form", ["plain", "causal", "biased", "row bias"])
@pytest.mark.parametrize("kernel", ["efficient", "overrideable"])
def test_attention_captured_for_other_devices(compiled_call, dtype, form, kernel):
    """Eager has no CPU kernel: attention in float64 is what they mean."""
    case = _attention(dtype)
    causal = form == "causal"
    bias = {"biased": case["bias"], "row bias": case["bias"][:1, :, :1]}.get(form)
    expected, gradients = _exact(case, bias, causal)

    def forward(q, k, v, b):
        if kernel == "efficient":
            return aten._scaled_dot_product_efficient_attention.default(q, k, v, b, True, 0.0, causal, scale=0.3)
        return aten._scaled_dot_product_fused_attention_overrideable.default(q, k, v, b, 0.0, causal, scale=0.3)

    result = compiled_call(forward, (case["q"], case["k"], case["v"], bias))
    assert not result.left_to_eager
    room = {"rtol": TOLERANCES[dtype], "atol": TOLERANCES[dtype] * 4}
    torch.testing.assert_close(result.leaves[0].double(), expected, **room)

    def backward(g, q, k, v, b, out, rows, seed):
        wanted = [True, True, True, b is not None]
        if kernel == "efficient":
            return aten._scaled_dot_product_efficient_attention_backward.default(
                g, q, k, v, b, out, rows, seed, seed, 0.0, wanted, causal, scale=0.3
            )
        return aten._scaled_dot_product_fused_attention_overrideable_backward.default(
            g, q, k, v, b, wanted, out, rows, None, None, 5, 7, 0.0, causal, seed, seed, scale=0.3
        )

    seed = torch.zeros((), dtype=torch.int64)
    args = (case["grad"], case["q"], case["k"], case["v"], bias, *result.leaves[:2], seed)
    back = compiled_call(backward, args)
    assert not back.left_to_eager
    for ours, wanted in zip(back.leaves, gradients, strict=False):
        torch.testing.assert_close(ours.double(), wanted, **room)
