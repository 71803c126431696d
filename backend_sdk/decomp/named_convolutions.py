"""Rules for convolutions that are named after the algorithm, the layout or the library that runs them.

Does not: hold the convolution itself (`linear.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from backend_sdk import prims
from backend_sdk.decomp import linear
from backend_sdk.decomp.registry import Declined, decomposition
from backend_sdk.graph import Value
from backend_sdk.spec import TensorType
from backend_sdk.torch_compat.ops import aten


def _is_of(weight: Value, kernel_size: Any) -> bool:
    return tuple(kernel_size) == tuple(weight.shape[2:])


def _batched(x: Value, weight: Value) -> Value:
    """x as ``[N, C, *S]``; torch also takes ``[C, *S]``."""
    return x if x.ndim == weight.ndim else prims.reshape(x, shape=(1, *x.shape))


_OTHER_KERNEL = Declined(
    "the kernel's size is not that of the weight, so that eager reads the weight as another tensor"
)


def _convolved(
    out: TensorType,
    x: Value,
    weight: Value,
    kernel_size: Any,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int] = (1,),
    transposed: bool = False,
    output_padding: Sequence[int] = (0,),
    groups: int = 1,
) -> Any:
    if not _is_of(weight, kernel_size):
        return _OTHER_KERNEL
    image = _batched(x, weight)
    shape = out.shape if image is x else (1, *out.shape)
    result = linear.convolution(
        TensorType(shape, out.dtype),
        image,
        weight,
        bias,
        stride,
        padding,
        dilation,
        transposed,
        output_padding,
        groups,
    )
    return result if result is NotImplemented else prims.reshape(result, shape=out.shape)


@decomposition(aten._slow_conv2d_forward.default, aten.slow_conv3d_forward.default)
def slow_convolution(
    out: TensorType,
    x: Value,
    weight: Value,
    kernel_size: Any,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
) -> Any:
    return _convolved(out, x, weight, kernel_size, bias, stride, padding)


@decomposition(aten.slow_conv_dilated2d.default, aten.slow_conv_dilated3d.default)
def slow_dilated_convolution(
    out: TensorType,
    x: Value,
    weight: Value,
    kernel_size: Any,
    bias: Value | None = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
) -> Any:
    return _convolved(out, x, weight, kernel_size, bias, stride, padding, dilation)


@decomposition(aten.slow_conv_transpose2d.default, aten.slow_conv_transpose3d.default)
def slow_transposed_convolution(
    out: TensorType,
    x: Value,
    weight: Value,
    kernel_size: Any,
    bias: Value | None = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    output_padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
) -> Any:
    return _convolved(out, x, weight, kernel_size, bias, stride, padding, dilation, True, output_padding)


@decomposition(aten._slow_conv2d_backward.output_mask)
def slow_convolution_backward(
    out: tuple[TensorType | None, ...],
    grad: Value,
    x: Value,
    weight: Value,
    kernel_size: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    output_mask: Sequence[bool],
) -> Any:
    if not _is_of(weight, kernel_size):
        return _OTHER_KERNEL
    grads = linear.convolution_backward(
        out,
        _batched(grad, weight),
        _batched(x, weight),
        weight,
        None,
        stride,
        padding,
        (1,),
        False,
        (0,),
        1,
        output_mask,
    )
    image, *rest = grads
    return (None if image is None else prims.reshape(image, shape=x.shape), *rest)


@decomposition(aten.conv_tbc.default)
def conv_tbc(out: TensorType, x: Value, weight: Value, bias: Value, pad: int = 0) -> Any:
    """A 1-d convolution of ``[time, batch, channels]`` with a kernel ``[time, inputs, outputs]``."""
    time, batch, channels = out.shape
    result = linear.convolution(
        TensorType((batch, channels, time), out.dtype),
        prims.permute(x, dims=(1, 2, 0)),
        prims.permute(weight, dims=(2, 1, 0)),
        bias,
        (1,),
        (pad,),
        (1,),
        False,
        (0,),
        1,
    )
    return prims.permute(result, dims=(2, 0, 1))
