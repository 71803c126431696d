"""Rules for matrix products and convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from backend_sdk import dtypes, prims
from backend_sdk.decomp import integer_windows
from backend_sdk.decomp.promotion import spread
from backend_sdk.decomp.registry import decomposition
from backend_sdk.graph import Value
from backend_sdk.prims.shorthand import along, cast, scaled
from backend_sdk.spec import TensorType
from backend_sdk.spec.symbolic import is_symbolic
from backend_sdk.torch_compat.ops import aten


def _transposed_weight(y: Value) -> Value | None:
    """w, when y is the transpose of a 2-d value w: then ``x @ y`` is a linear layer."""
    node = y.node
    if node.target is prims.permute and node.kwargs["dims"] == (1, 0):
        source = node.args[0]
        return Value(source, source.meta["type"])  # type: ignore[union-attr, arg-type]
    return None


def matrix_product(x: Value, y: Value) -> Value:
    """``x @ y`` for 2-d values, as `linear` where y is a transposed weight."""
    weight = _transposed_weight(y)
    if weight is not None and x.dtype in dtypes.FLOATING | dtypes.COMPLEX:
        return prims.linear(x, weight, None)  # type: ignore[no-any-return]
    return prims.dot_general(x, y, contract=((1,), (0,)), batch=((), ()))  # type: ignore[no-any-return]


def _batched(x: Value, y: Value) -> Value:
    return prims.dot_general(x, y, contract=((2,), (1,)), batch=((0,), (0,)))  # type: ignore[no-any-return]


@decomposition(aten.mm.default)
def mm(out: TensorType, x: Value, y: Value) -> Any:
    return matrix_product(x, y)


@decomposition(aten.bmm.default)
def bmm(out: TensorType, x: Value, y: Value) -> Any:
    return _batched(x, y)


@decomposition(aten.mm.dtype)
def mm_dtype(out: TensorType, x: Value, y: Value, out_dtype: torch.dtype) -> Any:
    return matrix_product(cast(x, out.dtype), cast(y, out.dtype))


@decomposition(aten.bmm.dtype)
def bmm_dtype(out: TensorType, x: Value, y: Value, out_dtype: torch.dtype) -> Any:
    return _batched(cast(x, out.dtype), cast(y, out.dtype))


@decomposition(aten.mv.default)
def mv(out: TensorType, x: Value, y: Value) -> Any:
    return prims.dot_general(x, y, contract=((1,), (0,)), batch=((), ()))


@decomposition(aten.dot.default)
def dot(out: TensorType, x: Value, y: Value) -> Any:
    return prims.dot_general(x, y, contract=((0,), (0,)), batch=((), ()))


def _blend(out: TensorType, bias: Value, product: Value, beta: Any, alpha: Any) -> Any:
    """beta * bias + alpha * product. A beta of 0 ignores the bias, NaN included."""
    # A matrix product of 16-bit floats is rounded already; the rest is computed wide and rounded once.
    wide = dtypes.compute_dtype(out.dtype)
    total = cast(product, wide)
    total = scaled(total, alpha) if alpha != 1 else total
    if beta != 0:
        base = spread(bias, out.shape, wide)
        total = prims.add(scaled(base, beta) if beta != 1 else base, total)
    return cast(total, out.dtype)


@decomposition(aten.addmm.default)
def addmm(out: TensorType, bias: Value, x: Value, y: Value, *, beta: Any = 1, alpha: Any = 1) -> Any:
    weight = _transposed_weight(y)
    plain = beta == 1 and alpha == 1 and out.dtype in dtypes.FLOATING | dtypes.COMPLEX
    if plain and weight is not None and bias.shape == weight.shape[:1]:
        return prims.linear(x, weight, bias)
    return _blend(out, bias, matrix_product(x, y), beta, alpha)


@decomposition(aten.baddbmm.default)
def baddbmm(out: TensorType, bias: Value, x: Value, y: Value, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _blend(out, bias, _batched(x, y), beta, alpha)


@decomposition(aten.addbmm.default)
def addbmm(out: TensorType, bias: Value, x: Value, y: Value, *, beta: Any = 1, alpha: Any = 1) -> Any:
    product = prims.dot_general(x, y, contract=((0, 2), (0, 1)), batch=((), ()))
    return _blend(out, bias, product, beta, alpha)


@decomposition(aten._compute_linear_combination.default)
def linear_combination(out: TensorType, x: Value, coefficients: Value) -> Any:
    """``[N, *]`` weighted by the rows of ``[M, N]``: ``[M, *]``."""
    if out.dtype in dtypes.COMPLEX:
        # Eager's kernel takes the coefficients' memory for real numbers.
        return NotImplemented
    return prims.dot_general(coefficients, x, contract=((1,), (0,)), batch=((), ()))


@decomposition(aten.linear_backward.default)
def linear_backward(
    out: tuple[TensorType | None, ...], x: Value, grad: Value, weight: Value, output_mask: Sequence[bool]
) -> Any:
    """Eager gives both gradients of the parameters where one of them is asked for."""
    input_grad = weight_grad = bias_grad = None
    outer = tuple(range(grad.ndim - 1))
    if output_mask[0]:
        input_grad = prims.dot_general(grad, weight, contract=((grad.ndim - 1,), (0,)), batch=((), ()))
    if output_mask[1] or output_mask[2]:
        weight_grad = prims.dot_general(grad, x, contract=(outer, outer), batch=((), ()))
        bias_grad = cast(prims.reduce_sum(cast(grad, dtypes.compute_dtype(grad.dtype)), axes=outer), grad.dtype)
    return input_grad, weight_grad, bias_grad


# ---- convolutions


def _each(values: Sequence[int], spatial: int) -> tuple[int, ...]:
    """torch lets one number stand for all spatial dims."""
    return tuple(values) if len(values) == spatial else tuple(values) * spatial


@decomposition(aten.convolution.default)
def convolution(
    out: TensorType,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    spatial = x.ndim - 2
    strides, edges, spread_ = _each(stride, spatial), _each(padding, spatial), _each(dilation, spatial)
    if x.dtype not in dtypes.FLOATING | dtypes.COMPLEX:
        if is_symbolic(weight.shape):
            return NotImplemented
        convolve = integer_windows.transposed_convolution if transposed else integer_windows.convolution
        product = convolve(out, x, weight, strides, edges, spread_, groups)
    elif transposed:
        product = prims.convolution_input_grad(
            x,
            weight,
            input_sizes=out.shape[2:],
            strides=strides,
            padding=edges,
            dilation=spread_,
            groups=groups,
        )
    else:
        product = _forward(x, weight, strides, edges, spread_, groups)
    return product if bias is None else prims.add(product, along(bias, (1,), out.shape))


@decomposition(aten._convolution.default)
def convolution_with_library_choices(
    out: TensorType,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    *_: bool,
) -> Any:
    return convolution(out, x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)


def _forward(
    x: Value,
    weight: Value,
    strides: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
) -> Any:
    return prims.convolution(
        x,
        weight,
        strides=strides,
        padding=tuple((amount, amount) for amount in padding),
        input_dilation=(1,) * len(strides),
        kernel_dilation=dilation,
        groups=groups,
    )


@decomposition(aten.convolution_backward.default)
def convolution_backward(
    out: tuple[TensorType | None, ...],
    grad: Value,
    x: Value,
    weight: Value,
    bias_sizes: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> Any:
    spatial = x.ndim - 2
    strides, edges, spread_ = _each(stride, spatial), _each(padding, spatial), _each(dilation, spatial)
    common: dict[str, Any] = {"strides": strides, "padding": edges, "dilation": spread_, "groups": groups}
    input_grad = weight_grad = bias_grad = None
    if output_mask[0]:
        if transposed:
            # An output padding of a stride or more leaves windows at the end that no input element made.
            whole = _forward(grad, weight, strides, edges, spread_, groups)
            input_grad = prims.slice(whole, starts=(0,) * x.ndim, limits=x.shape, strides=(1,) * x.ndim)
        else:
            input_grad = prims.convolution_input_grad(grad, weight, input_sizes=x.shape[2:], **common)
    if output_mask[1]:
        # A transposed convolution is an input gradient, so its own input plays the gradient here.
        produced, image = (x, grad) if transposed else (grad, x)
        weight_grad = prims.convolution_weight_grad(produced, image, kernel_sizes=weight.shape[2:], **common)
    if output_mask[2]:
        axes = tuple(dim for dim in range(grad.ndim) if dim != 1)
        bias_grad = cast(prims.reduce_sum(cast(grad, dtypes.compute_dtype(grad.dtype)), axes=axes), grad.dtype)
    return input_grad, weight_grad, bias_grad


# ---- matrices of eight-bit floats


def _scaled_product(out: TensorType, a: Value, b: Value, scales: Sequence[Value], bias: Value | None) -> Any:
    """a @ b in float32, times the scales of both: numbers, or one for each row of a and one for each column of b."""
    wide = [cast(operand, torch.float32) for operand in (a, b)]
    product = prims.dot_general(*wide, contract=((1,), (0,)), batch=((), ()))
    for scale in scales:
        product = prims.mul(product, spread(scale, product.shape, torch.float32))
    if bias is not None:
        product = prims.add(product, spread(bias, product.shape, torch.float32))
    return cast(product, out.dtype)


@decomposition(aten._scaled_mm.default)
def scaled_mm(
    out: TensorType,
    a: Value,
    b: Value,
    scale_a: Value,
    scale_b: Value,
    bias: Value | None = None,
    scale_result: Value | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> Any:
    """``scale_result`` has no effect, as in eager on the CPU."""
    return _scaled_product(out, a, b, (scale_a, scale_b), bias)


# What torch.nn.functional.ScalingType and SwizzleType call TensorWise, RowWise and NO_SWIZZLE.
_ONE_SCALE, _SCALE_OF_ROWS = 0, 1
_NO_SWIZZLE = 0


@decomposition(aten._scaled_mm_v2.default)
def scaled_mm_v2(
    out: TensorType,
    a: Value,
    b: Value,
    scale_a: Sequence[Value],
    recipe_a: Sequence[int],
    swizzle_a: Sequence[int],
    scale_b: Sequence[Value],
    recipe_b: Sequence[int],
    swizzle_b: Sequence[int],
    bias: Value | None,
    out_dtype: torch.dtype | None,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
) -> Any:
    shapes = {_ONE_SCALE: ((1, 1), (1, 1)), _SCALE_OF_ROWS: ((out.shape[0], 1), (1, out.shape[1]))}
    scales = []
    for side, (scale, recipe, swizzle) in enumerate(((scale_a, recipe_a, swizzle_a), (scale_b, recipe_b, swizzle_b))):
        if len(scale) != 1 or recipe[0] not in shapes or any(number != _NO_SWIZZLE for number in swizzle):
            # Scales of blocks, which eager on the CPU does not take either.
            return NotImplemented
        scales.append(prims.reshape(scale[0], shape=shapes[recipe[0]][side]))
    return _scaled_product(out, a, b, scales, bias)
