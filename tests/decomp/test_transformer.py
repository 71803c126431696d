"""The fused layers that torch's transformer modules call in inference.

What a user would lose: a transformer that runs on the backend in training, and in eager once it is in evaluation mode.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

from backend_sdk.coverage.calls import COMPOSITES, Call, prove
from backend_sdk.pipeline.report import collecting

aten = torch.ops.aten


def _agree(function, *args):
    assert prove(Call(function, args), COMPOSITES) is not None


def _mask(kind):
    return {
        None: None,
        0: torch.ones(5, 5).triu(1).bool(),
        1: torch.tensor([[False, False, False, True, True], [False, True, False, False, False]]),
        2: torch.rand(2, 2, 5, 5, generator=torch.Generator().manual_seed(1)) > 0.6,
    }[kind]


@pytest.mark.parametrize("kind", [None, 0, 1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_multi_head_attention(kind, dtype):
    torch.manual_seed(0)
    weights = [torch.randn(*shape).mul(0.4).to(dtype) for shape in ((24, 8), (24,), (8, 8), (8,))]
    x, y = torch.randn(2, 5, 8).to(dtype), torch.randn(2, 5, 8).to(dtype)
    mask = _mask(kind)

    def attend(average):
        return lambda q, k, v, mask, *w: aten._native_multi_head_attention.default(
            q, k, v, 8, 2, *w, mask, True, average, kind
        )

    _agree(attend(True), x, x, x, mask, *weights)
    _agree(attend(False), x, y, y, mask, *weights)
    _agree(
        lambda x, mask, *w: aten._native_multi_head_attention.default(x, x, x, 8, 2, *w, mask, False, True, kind)[0],
        x,
        mask,
        *weights,
    )


def test_a_mask_that_hides_every_key_gives_nan_as_in_eager():
    torch.manual_seed(0)
    weights = [torch.randn(*shape) for shape in ((24, 8), (24,), (8, 8), (8,))]
    mask = torch.tensor([[True] * 5, [False] * 5])
    x = torch.randn(2, 5, 8)
    _agree(
        lambda x, m, *w: aten._native_multi_head_attention.default(x, x, x, 8, 2, *w, m, mask_type=1), x, mask, *weights
    )


@pytest.mark.parametrize("kind", [None, 0, 1, 2])
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("use_gelu", [False, True])
def test_encoder_layer(kind, norm_first, use_gelu):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, norm_first=norm_first)
    attention = layer.self_attn
    weights = [
        attention.in_proj_weight,
        attention.in_proj_bias,
        attention.out_proj.weight,
        attention.out_proj.bias,
    ]
    rest = [layer.norm1.weight, layer.norm1.bias, layer.norm2.weight, layer.norm2.bias]
    rest += [layer.linear1.weight, layer.linear1.bias, layer.linear2.weight, layer.linear2.bias]
    tensors = [tensor.detach() for tensor in (*weights, *rest)]

    def run(x, mask, *w):
        return aten._transformer_encoder_layer_fwd.default(
            x, 8, 2, *w[:4], use_gelu, norm_first, 1e-5, *w[4:], mask, kind
        )

    _agree(run, torch.randn(2, 5, 8), _mask(kind), *tensors)


@pytest.mark.parametrize("shape", [(2, 3, 4, 4), (2, 5), (7,)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_masked_softmax(shape, dtype):
    torch.manual_seed(0)
    x = torch.randn(shape).to(dtype)
    mask = torch.rand(shape) > 0.7
    for dim in (None, 0, -1):
        _agree(lambda x, m, d=dim: aten._masked_softmax.default(x, m, d, 2), x, mask)
    result = aten._masked_softmax.default(x, mask, -1, 2)
    _agree(
        lambda g, y, m: aten._masked_softmax_backward.default(g, y, m, -1), torch.randn(shape).to(dtype), result, mask
    )
    hides_all = torch.ones(shape, dtype=torch.bool)
    _agree(lambda x, m: aten._masked_softmax.default(x, m, -1, 2), x, hides_all)


@pytest.mark.parametrize("masked", [False, True])
def test_modules_in_evaluation_mode_run_without_fallback(masked):
    """Whichever path torch takes when it captures them: eager takes the fused one."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, activation="gelu", batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    attention = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    x = torch.randn(3, 6, 16)
    padded = torch.zeros(3, 6, dtype=torch.bool)
    padded[1, 4:] = True
    mask = nn.Transformer.generate_square_subsequent_mask(6) if masked else None
    key_mask = padded if masked else None
    options = {"fallback": "error"}
    with torch.no_grad():
        compiled = torch.compile(encoder, backend="sdk:reference", options=options)
        torch.testing.assert_close(compiled(x, mask, key_mask), encoder(x, mask, key_mask))
        compiled = torch.compile(attention, backend="sdk:reference", options=options)
        for ours, expected in zip(compiled(x, x, x, key_mask), attention(x, x, x, key_mask), strict=True):
            torch.testing.assert_close(ours, expected)


def test_an_encoder_layer_written_with_the_fused_op_runs_without_fallback():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    attention = layer.self_attn

    def model(x):
        return torch._transformer_encoder_layer_fwd(
            x,
            16,
            4,
            attention.in_proj_weight,
            attention.in_proj_bias,
            attention.out_proj.weight,
            attention.out_proj.bias,
            False,
            False,
            layer.norm1.eps,
            layer.norm1.weight,
            layer.norm1.bias,
            layer.norm2.weight,
            layer.norm2.bias,
            layer.linear1.weight,
            layer.linear1.bias,
            layer.linear2.weight,
            layer.linear2.bias,
        )

    x = torch.randn(3, 6, 16)
    with torch.no_grad(), collecting() as reports:
        result = torch.compile(model, backend="sdk:reference", options={"fallback": "error"})(x)
        torch.testing.assert_close(result, layer(x))
    assert "aten._transformer_encoder_layer_fwd.default" in {node.op for report in reports for node in report.nodes}
