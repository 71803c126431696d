"""Dot products and convolutions, and the composites built on them.

Does not: define pooling (`pooling.py`) or attention (`attention.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from backend_sdk import dtypes
from backend_sdk.prims.define import FLOATING_OR_COMPLEX, Operand, composite, prim
from backend_sdk.prims.elementwise import add
from backend_sdk.prims.samples import tensor
from backend_sdk.prims.shape import broadcast, pad, permute, reshape, reverse
from backend_sdk.spec import Accumulated, Call, DtypeVar, Sample, Shape, TensorType, differ, refuse
from backend_sdk.spec.symbolic import Dim

_NUMBER = DtypeVar("T", dtypes.NUMERIC)
_FLOAT = DtypeVar("T", FLOATING_OR_COMPLEX)

Axes = tuple[int, ...]
Padding = tuple[tuple[Dim, Dim], ...]


# ---- dot products


def _dot_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    def operand(*shape: int) -> torch.Tensor:
        return tensor(shape, dtype, generator, -2.0, 2.0)

    yield Sample((operand(3, 5), operand(5, 4)), {"contract": ((1,), (0,)), "batch": ((), ())})
    yield Sample((operand(2, 3, 5), operand(2, 4, 5)), {"contract": ((2,), (2,)), "batch": ((0,), (0,))})
    yield Sample((operand(5, 3), operand(3, 5)), {"contract": ((0, 1), (1, 0)), "batch": ((), ())})
    yield Sample((operand(3, 0), operand(0, 4)), {"contract": ((1,), (0,)), "batch": ((), ())})
    yield Sample((operand(2, 65), operand(65, 2)), {"contract": ((1,), (0,)), "batch": ((), ())})
    yield Sample((operand(), operand()), {"contract": ((), ()), "batch": ((), ())})
    yield Sample((operand(0, 3, 5), operand(0, 5)), {"contract": ((2,), (1,)), "batch": ((0,), (0,))})


def _free(rank: int, *taken: Axes) -> list[int]:
    return [dim for dim in range(rank) if not any(dim in axes for axes in taken)]


def _dot_shape(x: TensorType, y: TensorType, *, contract: tuple[Axes, Axes], batch: tuple[Axes, Axes]) -> Shape:
    for side, taken, rank in (("x", (*contract[0], *batch[0]), x.rank), ("y", (*contract[1], *batch[1]), y.rank)):
        if len(set(taken)) != len(taken) or any(not 0 <= dim < rank for dim in taken):
            raise refuse("dot_general", f"contract and batch dims {taken} of {side} are not distinct dims of it", x, y)
    for kind, (left, right) in (("contract", contract), ("batch", batch)):
        if differ(tuple(x.shape[d] for d in left), tuple(y.shape[d] for d in right)):
            raise refuse("dot_general", f"{kind} dims {left} and {right} differ in size", x, y)
    return (
        *(x.shape[d] for d in batch[0]),
        *(x.shape[d] for d in _free(x.rank, contract[0], batch[0])),
        *(y.shape[d] for d in _free(y.rank, contract[1], batch[1])),
    )


def _terms_of_dot(call: Call) -> int:
    return math.prod(call.operands[0].shape[d] for d in call.attributes["contract"][0])


@prim(
    shape=_dot_shape,
    operands=(_NUMBER, _NUMBER),
    results=(_NUMBER,),
    tolerance=Accumulated(_terms_of_dot),
    samples=_dot_samples,
)
def dot_general(x: Operand, y: Operand, *, contract: tuple[Axes, Axes], batch: tuple[Axes, Axes]) -> Operand:
    """Sum of products over the ``contract`` dims, for each index of the ``batch`` dims.

    ``contract[0][i]`` of x meets ``contract[1][i]`` of y, likewise ``batch``. The result has the batch dims,
    then the other dims of x, then those of y. 16-bit floats accumulate in float32, integers wrap.
    """
    x_free, y_free = _free(x.ndim, contract[0], batch[0]), _free(y.ndim, contract[1], batch[1])
    shape = [x.shape[d] for d in (*batch[0], *x_free)] + [y.shape[d] for d in y_free]
    groups = math.prod(x.shape[d] for d in batch[0])
    depth = math.prod(x.shape[d] for d in contract[0])
    rows = math.prod(x.shape[d] for d in x_free)
    columns = math.prod(y.shape[d] for d in y_free)
    left = x.permute((*batch[0], *x_free, *contract[0])).reshape(groups, rows, depth)
    right = y.permute((*batch[1], *contract[1], *y_free)).reshape(groups, depth, columns)
    product = torch.bmm(left, right) if batch[0] else torch.mm(left[0], right[0])
    return product.reshape(shape)


def _linear_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    for shape in ((5,), (3, 5), (2, 3, 5), (0, 5)):
        weight = tensor((4, 5), dtype, generator, -2.0, 2.0)
        for bias in (None, tensor((4,), dtype, generator)):
            yield Sample((tensor(shape, dtype, generator, -2.0, 2.0), weight, bias))


def _linear_shape(x: TensorType, weight: TensorType, bias: TensorType | None) -> Shape:
    if weight.rank != 2 or x.rank < 1 or differ(x.shape[-1:], weight.shape[1:]):
        raise refuse("linear", "the last dim of x must be the last dim of a 2-d weight", x, weight, bias)
    if bias is not None and differ(bias.shape, weight.shape[:1]):
        raise refuse("linear", "bias must have one element per row of weight", x, weight, bias)
    return (*x.shape[:-1], weight.shape[0])


def _terms_of_linear(call: Call) -> int:
    return int(call.operands[0].shape[-1]) + 1


@composite(
    shape=_linear_shape,
    operands=(_FLOAT, _FLOAT, _FLOAT),
    results=(_FLOAT,),
    tolerance=Accumulated(_terms_of_linear),
    samples=_linear_samples,
)
def linear(x: Operand, weight: Operand, bias: Operand | None) -> Operand:
    """``x @ weight.T + bias`` for x ``[..., K]``, weight ``[N, K]``, bias ``[N]`` or None; result ``[..., N]``."""
    rank = len(x.shape)
    product = dot_general(x, weight, contract=((rank - 1,), (1,)), batch=((), ()))
    if bias is None:
        return product
    return add(product, broadcast(bias, shape=tuple(product.shape), dims=(rank - 1,)))


# ---- convolutions


def _dilated(size: Dim, dilation: int) -> Dim:
    return (size - 1) * dilation + 1


def _convolution_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    def call(
        x: tuple[int, ...],
        weight: tuple[int, ...],
        strides: Axes,
        padding: Padding,
        input_dilation: Axes,
        kernel_dilation: Axes,
        groups: int,
    ) -> Sample:
        operands = tensor(x, dtype, generator, -2.0, 2.0), tensor(weight, dtype, generator, -2.0, 2.0)
        return Sample(
            operands,
            {
                "strides": strides,
                "padding": padding,
                "input_dilation": input_dilation,
                "kernel_dilation": kernel_dilation,
                "groups": groups,
            },
        )

    yield call((2, 3, 7), (4, 3, 3), (1,), ((1, 1),), (1,), (1,), 1)
    yield call((1, 4, 6, 5), (6, 2, 3, 2), (2, 1), ((1, 0), (0, 1)), (1, 1), (1, 2), 2)
    yield call((2, 2, 4, 4), (2, 2, 3, 3), (1, 1), ((2, 1), (2, 2)), (2, 2), (1, 1), 1)
    yield call((1, 2, 3, 4, 3), (2, 2, 2, 2, 2), (1, 1, 1), ((0, 0),) * 3, (1, 1, 1), (1, 1, 1), 1)
    yield call((1, 3, 6), (3, 1, 3), (1,), ((-1, 1),), (1,), (1,), 3)
    yield call((0, 3, 7), (4, 3, 3), (1,), ((1, 1),), (1,), (1,), 1)
    yield call((2, 0, 7), (4, 0, 3), (1,), ((1, 1),), (1,), (1,), 1)


def _convolution_shape(
    x: TensorType,
    weight: TensorType,
    *,
    strides: Axes,
    padding: Padding,
    input_dilation: Axes,
    kernel_dilation: Axes,
    groups: int,
) -> Shape:
    spatial = x.rank - 2
    if weight.rank != x.rank or spatial < 1:
        raise refuse("convolution", "x [N, C, *S] and weight [O, C / groups, *K] need one rank of 3 or more", x, weight)
    if any(len(a) != spatial for a in (strides, padding, input_dilation, kernel_dilation)):
        raise refuse("convolution", f"attributes need one entry for each of {spatial} spatial dims", x, weight)
    channels, outputs = x.shape[1], weight.shape[0]
    if differ((channels,), (weight.shape[1] * groups,)) or (isinstance(outputs, int) and outputs % groups):
        raise refuse("convolution", f"{groups} groups do not match the channels", x, weight)
    sizes = tuple(
        (_dilated(size, spread) + low + high - _dilated(kernel, dilation)) // stride + 1
        for size, spread, (low, high), kernel, dilation, stride in zip(
            x.shape[2:], input_dilation, padding, weight.shape[2:], kernel_dilation, strides, strict=True
        )
    )
    return (x.shape[0], outputs, *sizes)


def _terms_of_convolution(call: Call) -> int:
    return math.prod(call.operands[1].shape[1:])


_TORCH_CONVOLUTION = {1: torch.conv1d, 2: torch.conv2d, 3: torch.conv3d}


@prim(
    shape=_convolution_shape,
    operands=(_FLOAT, _FLOAT),
    results=(_FLOAT,),
    tolerance=Accumulated(_terms_of_convolution),
    samples=_convolution_samples,
)
def convolution(
    x: Operand,
    weight: Operand,
    *,
    strides: Axes,
    padding: Padding,
    input_dilation: Axes,
    kernel_dilation: Axes,
    groups: int,
) -> Operand:
    """Cross-correlation of x ``[N, C, *S]`` with weight ``[O, C / groups, *K]``, 1 to 3 spatial dims.

    x is first spread by ``input_dilation`` (zeros between its elements), then padded with zeros (``padding`` is
    a (low, high) pair per dim, negative to cut). Per dim the result has
    ``((S - 1) * input_dilation + 1 + low + high - (K - 1) * kernel_dilation - 1) // stride + 1`` elements.
    16-bit floats accumulate in float32.
    """
    if weight.shape[1] == 0:
        # A sum over no channels. torch's own result has no output channels then.
        types = (TensorType(tuple(operand.shape), operand.dtype) for operand in (x, weight))
        shape = _convolution_shape(
            *types,
            strides=strides,
            padding=padding,
            input_dilation=input_dilation,
            kernel_dilation=kernel_dilation,
            groups=groups,
        )
        return x.new_zeros(shape)
    symmetric = all(low == high >= 0 for low, high in padding)  # type: ignore[operator]
    amounts = [low for low, _ in padding] if symmetric else [0] * len(padding)
    if any(spread != 1 for spread in input_dilation) or not symmetric:
        edges = ((0, 0), (0, 0), *(padding if not symmetric else ((0, 0),) * len(padding)))
        x = pad.reference(
            x,
            low=tuple(low for low, _ in edges),
            high=tuple(high for _, high in edges),
            interior=(0, 0, *(spread - 1 for spread in input_dilation)),
            value=0,
        )
    return _TORCH_CONVOLUTION[len(strides)](x, weight, None, strides, amounts, kernel_dilation, groups)  # type: ignore[arg-type]


def _gradient_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[tuple[Sample, Sample]]:
    """Pairs of samples for `convolution_input_grad` and `convolution_weight_grad` of the same convolution."""
    for x, weight, strides, padding, dilation, groups in (
        ((2, 3, 7), (4, 3, 3), (2,), (1,), (1,), 1),
        ((2, 4, 6, 5), (6, 2, 3, 2), (2, 1), (1, 0), (1, 2), 2),
        ((1, 4, 5, 5), (4, 1, 3, 3), (1, 1), (1, 1), (1, 1), 4),
        ((0, 3, 7), (4, 3, 3), (2,), (1,), (1,), 1),
    ):
        sizes = _convolution_shape(
            TensorType(x, dtype),
            TensorType(weight, dtype),
            strides=strides,
            padding=tuple((p, p) for p in padding),
            input_dilation=(1,) * len(strides),
            kernel_dilation=dilation,
            groups=groups,
        )
        grad = tensor(tuple(map(int, sizes)), dtype, generator, -2.0, 2.0)  # type: ignore[arg-type]
        common = {"strides": strides, "padding": padding, "dilation": dilation, "groups": groups}
        yield (
            Sample((grad, tensor(weight, dtype, generator)), {"input_sizes": x[2:], **common}),
            Sample((grad, tensor(x, dtype, generator)), {"kernel_sizes": weight[2:], **common}),
        )


def _input_grad_shape(
    grad: TensorType,
    weight: TensorType,
    *,
    input_sizes: Shape,
    strides: Axes,
    padding: Axes,
    dilation: Axes,
    groups: int,
) -> Shape:
    if grad.rank != weight.rank or differ(grad.shape[1:2], weight.shape[:1]):
        raise refuse(
            "convolution_input_grad", "grad [N, O, *P] and weight [O, C / groups, *K] must agree in O", grad, weight
        )
    return (grad.shape[0], weight.shape[1] * groups, *input_sizes)


@composite(
    shape=_input_grad_shape,
    operands=(_FLOAT, _FLOAT),
    results=(_FLOAT,),
    tolerance=Accumulated(lambda call: math.prod(call.operands[1].shape) // call.operands[1].shape[1]),
    samples=lambda dtype, generator: (pair[0] for pair in _gradient_samples(dtype, generator)),
    profiles=("training",),
)
def convolution_input_grad(
    grad: Operand,
    weight: Operand,
    *,
    input_sizes: Shape,
    strides: Axes,
    padding: Axes,
    dilation: Axes,
    groups: int,
) -> Operand:
    """Gradient of a convolution with respect to its input; also the transposed convolution of ``grad``.

    ``grad`` ``[N, O, *P]``, ``weight`` ``[O, C / groups, *K]``, ``input_sizes`` the spatial sizes of the result
    ``[N, C, *input_sizes]``; ``padding`` is symmetric. The convolution of the dilated gradient with the flipped
    kernel (Dumoulin and Visin, "A guide to convolution arithmetic for deep learning", section 4).
    """
    outputs, inputs, *kernel = weight.shape
    spatial = range(2, 2 + len(kernel))
    split = reshape(weight, shape=(groups, outputs // groups, inputs, *kernel))
    swapped = permute(split, dims=(0, 2, 1, *(dim + 1 for dim in spatial)))
    flipped = reverse(reshape(swapped, shape=(groups * inputs, outputs // groups, *kernel)), dims=tuple(spatial))
    edges = []
    for size, produced, k, stride, amount, spread in zip(
        input_sizes, grad.shape[2:], kernel, strides, padding, dilation, strict=True
    ):
        reach = (k - 1) * spread
        low = reach - amount
        edges.append((low, size - _dilated(produced, stride) - low + reach))
    return convolution(
        grad,
        flipped,
        strides=(1,) * len(kernel),
        padding=tuple(edges),
        input_dilation=tuple(strides),
        kernel_dilation=tuple(dilation),
        groups=groups,
    )


def _weight_grad_shape(
    grad: TensorType,
    x: TensorType,
    *,
    kernel_sizes: Shape,
    strides: Axes,
    padding: Axes,
    dilation: Axes,
    groups: int,
) -> Shape:
    if grad.rank != x.rank or differ(grad.shape[:1], x.shape[:1]):
        raise refuse("convolution_weight_grad", "grad [N, O, *P] and x [N, C, *S] must agree in N", grad, x)
    return (grad.shape[1], x.shape[1] // groups, *kernel_sizes)


@composite(
    shape=_weight_grad_shape,
    operands=(_FLOAT, _FLOAT),
    results=(_FLOAT,),
    tolerance=Accumulated(lambda call: math.prod(call.operands[0].shape) // call.operands[0].shape[1]),
    samples=lambda dtype, generator: (pair[1] for pair in _gradient_samples(dtype, generator)),
    profiles=("training",),
)
def convolution_weight_grad(
    grad: Operand,
    x: Operand,
    *,
    kernel_sizes: Shape,
    strides: Axes,
    padding: Axes,
    dilation: Axes,
    groups: int,
) -> Operand:
    """Gradient of a convolution with respect to its weight, ``[O, C / groups, *kernel_sizes]``.

    ``grad`` ``[N, O, *P]``, ``x`` ``[N, C, *S]``; ``padding`` is symmetric. A convolution of x with the gradient as
    kernel, in which batch and channels change places, and stride and dilation too.
    """
    batch, _, *produced = grad.shape
    channels, *sizes = x.shape[1:]
    inputs = channels // groups
    spatial = range(2, 2 + len(sizes))
    split = reshape(x, shape=(batch, groups, inputs, *sizes))
    image = reshape(
        permute(split, dims=(2, 1, 0, *(dim + 1 for dim in spatial))), shape=(inputs, groups * batch, *sizes)
    )
    kernel = permute(grad, dims=(1, 0, *spatial))
    edges = tuple(
        (amount, (k - 1) * spread + _dilated(p, stride) - size - amount)
        for size, p, k, stride, amount, spread in zip(
            sizes, produced, kernel_sizes, strides, padding, dilation, strict=True
        )
    )
    product = convolution(
        image,
        kernel,
        strides=tuple(dilation),
        padding=edges,
        input_dilation=(1,) * len(sizes),
        kernel_dilation=tuple(strides),
        groups=groups,
    )
    return permute(product, dims=(1, 0, *spatial))
