"""Convolutions under the name of an algorithm, a layout or a library, and other steps of ops called by themselves.

What a user would lose: an exported program that holds such a name, run in eager.
"""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from backend_sdk.coverage.calls import COMPOSITES, Call, prove

aten = torch.ops.aten


def _agree(function, *args, backward=False):
    assert prove(Call(function, args, backward=backward), COMPOSITES) is not None


def _sizes(spatial):
    return (7, 6, 5)[:spatial], (3, 2, 2)[:spatial]


@pytest.mark.parametrize("spatial", [2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("batched", [True, False])
def test_slow_convolutions(spatial, dtype, batched):
    torch.manual_seed(0)
    size, kernel = _sizes(spatial)
    lead = (2, 4) if batched else (4,)
    x, weight = torch.randn(*lead, *size, dtype=dtype), torch.randn(6, 4, *kernel, dtype=dtype)
    across = torch.randn(4, 6, *kernel, dtype=dtype)
    bias = torch.randn(6, dtype=dtype)
    stride, padding, dilation = [2] * spatial, [1] * spatial, [2, 1, 1][:spatial]
    forward = aten._slow_conv2d_forward.default if spatial == 2 else aten.slow_conv3d_forward.default
    dilated = aten.slow_conv_dilated2d.default if spatial == 2 else aten.slow_conv_dilated3d.default
    transposed = aten.slow_conv_transpose2d.default if spatial == 2 else aten.slow_conv_transpose3d.default
    if batched:
        _agree(lambda x, w, b: forward(x, w, list(kernel), b, stride, padding), x, weight, bias)
        _agree(lambda x, w: forward(x, w, list(kernel), None, stride, padding), x, weight)
    _agree(lambda x, w, b: dilated(x, w, list(kernel), b, stride, padding, dilation), x, weight, bias)
    _agree(lambda x, w, b: transposed(x, w, list(kernel), b, stride, padding, [1] * spatial, dilation), x, across, bias)
    if spatial == 2 and batched:
        grad = torch.randn_like(forward(x, weight, list(kernel), bias, stride, padding))
        _agree(
            lambda g, x, w: aten._slow_conv2d_backward.output_mask(
                g, x, w, list(kernel), stride, padding, [True, True, True]
            ),
            grad,
            x,
            weight,
        )
        _agree(lambda x, w, b: aten.thnn_conv2d.default(x, w, list(kernel), b, stride, padding), x, weight, bias)
    if spatial == 3 and batched:
        _agree(lambda x, w, b: aten.slow_conv3d.default(x, w, list(kernel), b, stride, padding), x, weight, bias)


@pytest.mark.parametrize("padding", ["same", "valid"])
def test_convolution_by_the_name_of_its_padding(padding):
    torch.manual_seed(0)
    x, weight = torch.randn(2, 4, 7, 6), torch.randn(4, 2, 3, 2)
    _agree(lambda x, w: aten._convolution_mode.default(x, w, None, [1, 1], padding, [1, 2], 2), x, weight)


@pytest.mark.parametrize("pad", [0, 2])
def test_time_batch_channel_convolution(pad):
    torch.manual_seed(0)
    leaves = [torch.randn(shape, dtype=torch.float64) for shape in ((6, 2, 3), (3, 3, 4), (4,))]
    _agree(lambda x, w, b: torch.conv_tbc(x, w, b, pad), *leaves)
    _agree(lambda x, w, b: torch.conv_tbc(x, w, b, pad), *(x.requires_grad_() for x in leaves), backward=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.int8])
def test_add_and_relu(dtype):
    x, y = torch.tensor([[-1, 3, 2]]).to(dtype), torch.tensor([[0], [2]]).to(dtype)
    for alpha in (1, 2, -3):
        _agree(lambda x, y, a=alpha: aten._add_relu.Tensor(x, y, alpha=a), x, y)
        _agree(lambda x, y, a=alpha: aten._add_relu_.Tensor(x.clone(), y, alpha=a), x, y[:1])
    _agree(lambda x: aten._add_relu.Scalar(x, 2), x)
    if dtype.is_floating_point:
        special = torch.tensor([math.inf, -math.inf, -0.0, torch.finfo(dtype).max], dtype=dtype)
        _agree(lambda x, y: aten._add_relu.Tensor(x, y), special, special)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_forward_derivatives_of_the_gated_linear_unit(dtype, dim):
    torch.manual_seed(0)
    x, dx = torch.randn(4, 6, 2).to(dtype), torch.randn(4, 6, 2).to(dtype)
    glu = F.glu(x, dim)
    grad, dgrad = torch.randn_like(glu), torch.randn_like(glu)
    grad_x = aten.glu_backward.default(grad, x, dim)
    _agree(lambda *leaves: aten.glu_jvp.default(*leaves, dim), glu, x, dx)
    _agree(lambda *leaves: aten.glu_backward_jvp.default(*leaves, dim), grad_x, grad, x, dgrad, dx)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
@pytest.mark.parametrize("upper", [False, True])
def test_cholesky_solve_helper(dtype, upper):
    torch.manual_seed(0)
    factor = torch.randn(2, 3, 3, dtype=dtype).tril() + 3 * torch.eye(3, dtype=dtype)
    factor = factor.mH if upper else factor
    _agree(lambda b, a: aten._cholesky_solve_helper.default(b, a, upper), torch.randn(2, 3, 2, dtype=dtype), factor)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_linear_combination(dtype):
    torch.manual_seed(0)
    x, coefficients = torch.randn(3, 2, 4, dtype=dtype), torch.randn(5, 3, dtype=dtype)
    _agree(aten._compute_linear_combination.default, x, coefficients)


@pytest.mark.parametrize("use_gelu", [False, True])
def test_product_and_activation(use_gelu):
    torch.manual_seed(0)
    leaves = torch.randn(4), torch.randn(3, 5), torch.randn(5, 4)
    _agree(lambda b, x, y: aten._addmm_activation.default(b, x, y, beta=0.5, alpha=2, use_gelu=use_gelu), *leaves)


@pytest.mark.parametrize("dim", [0, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_weight_norm_gradient(dim, dtype):
    torch.manual_seed(0)
    v = torch.randn(3, 4, 5).to(dtype)
    shape = [1, 1, 1]
    shape[dim] = v.shape[dim]
    g = torch.randn(shape).to(dtype)
    w, norms = aten._weight_norm_interface.default(v, g, dim)
    _agree(lambda *leaves: aten._weight_norm_interface_backward.default(*leaves, dim), w, v, g, norms)


def test_index_put_without_checks():
    x, values = torch.zeros(3, 4), torch.arange(3.0)
    places = [torch.tensor([2, -1, 0]), torch.tensor([3, 3, 1])]
    for accumulate in (False, True):
        _agree(lambda x, p, v, a=accumulate: aten._index_put_impl.default(x, p, v, a, True), x, places, values)
        _agree(lambda x, p, v, a=accumulate: aten._index_put_impl_.default(x.clone(), p, v, a), x, places, values)


def test_gradient_of_a_linear_layer(compiled_call):
    """Eager has no CPU kernel: the gradient of the layer is what it means."""
    torch.manual_seed(0)
    x, weight, bias = (torch.randn(shape, requires_grad=True) for shape in ((2, 3, 4), (5, 4), (5,)))
    y = F.linear(x, weight, bias)
    grad = torch.randn_like(y)
    expected = torch.autograd.grad(y, (x, weight, bias), grad)
    result = compiled_call(
        lambda x, g, w: aten.linear_backward.default(x, g, w, [True, True, True]), (x.detach(), grad, weight.detach())
    )
    assert not result.left_to_eager
    for ours, wanted in zip(result.leaves, expected, strict=True):
        torch.testing.assert_close(ours, wanted)


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_embedding_bags_into_given_results(mode):
    torch.manual_seed(0)
    table, indices, offsets = torch.randn(5, 3), torch.tensor([1, 4, 4, 0]), torch.tensor([0, 2])
    rest = (False, mode, False, None, False, -1)
    outs = [torch.zeros_like(result) for result in aten._embedding_bag.default(table, indices, offsets, *rest)]

    def run(table, indices, offsets, outs):
        given = {f"out{index}": out.clone() for index, out in enumerate(outs)}
        return aten._embedding_bag.out(table, indices, offsets, *rest, **given)[0]

    _agree(run, table, indices, offsets, outs)


@pytest.mark.parametrize("dim", [0, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_weight_norm_into_given_results(dim, dtype):
    torch.manual_seed(0)
    v = torch.randn(3, 4, 5).to(dtype)
    shape = [1, 1, 1]
    shape[dim] = v.shape[dim]
    g = torch.randn(shape).to(dtype)
    _agree(lambda v, g: aten._weight_norm_interface.default(v, g, dim), v, g)
    _, norms = aten._weight_norm_interface.default(v, g, dim)

    def run(v, g, norms):
        return aten._weight_norm_interface.out(v, g, dim, out0=torch.zeros_like(v), out1=torch.zeros_like(norms))

    _agree(run, v, g, norms)
    _agree(lambda v, g: torch._weight_norm(v, g, dim), v, g)
    leaves = v.requires_grad_(), g.requires_grad_()
    _agree(lambda v, g: aten._weight_norm_interface.default(v, g, dim)[0], *leaves, backward=True)
