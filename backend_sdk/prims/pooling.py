"""Window reductions over 1 to 3 spatial dims of ``[N, C, *S]``.

Does not: resample or pool adaptively (decompositions reduce those to these and to dot products).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from backend_sdk import dtypes
from backend_sdk.prims.define import Operand, prim
from backend_sdk.prims.samples import tensor
from backend_sdk.spec import Accumulated, Call, DtypeVar, Exact, Sample, Shape, TensorType, refuse
from backend_sdk.spec.symbolic import Dim

_FLOAT = DtypeVar("T", dtypes.FLOATING)

Axes = tuple[int, ...]
Padding = tuple[tuple[Dim, Dim], ...]

_TORCH_MAX_POOL = {
    1: torch.nn.functional.max_pool1d,
    2: torch.nn.functional.max_pool2d,
    3: torch.nn.functional.max_pool3d,
}


def _pool_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    for shape, window, strides, padding, dilation in (
        ((2, 3, 8), (3,), (2,), ((1, 1),), (1,)),
        ((1, 2, 6, 7), (2, 3), (2, 1), ((0, 1), (1, 1)), (1, 2)),
        ((1, 1, 4, 4, 4), (2, 2, 2), (2, 2, 2), ((0, 0),) * 3, (1, 1, 1)),
        ((0, 3, 8), (3,), (2,), ((1, 1),), (1,)),
    ):
        yield Sample(
            (tensor(shape, dtype, generator),),
            {"window": window, "strides": strides, "padding": padding, "dilation": dilation},
        )


def _pooled(op: str, x: TensorType, window: Axes, strides: Axes, padding: Padding, dilation: Axes) -> Shape:
    if x.rank < 3 or any(len(a) != x.rank - 2 for a in (window, strides, padding, dilation)):
        raise refuse(op, "x [N, C, *S] and attributes with one entry for each of 1 to 3 spatial dims must pair up", x)
    shape = (
        *x.shape[:2],
        *(
            (size + low + high - (extent - 1) * spread - 1) // stride + 1
            for size, extent, stride, (low, high), spread in zip(
                x.shape[2:], window, strides, padding, dilation, strict=True
            )
        ),
    )
    if any(isinstance(size, int) and size < 0 for size in shape):
        raise refuse(op, f"a window of {window} does not fit", x)
    return shape


def _max_pool_shape(x: TensorType, *, window: Axes, strides: Axes, padding: Padding, dilation: Axes) -> list[Shape]:
    return [_pooled("max_pool", x, window, strides, padding, dilation)] * 2


@prim(
    shape=_max_pool_shape,
    operands=(_FLOAT,),
    results=(_FLOAT, torch.int64),
    tolerance=Exact(),
    samples=_pool_samples,
)
def max_pool(x: Operand, *, window: Axes, strides: Axes, padding: Padding, dilation: Axes) -> Operand:
    """Largest element of each window, and its index in the row-major plane of x's spatial dims.

    Padding never wins, not even over -inf; the first of equal elements does; NaN is largest.
    """
    edges = [amount for pair in reversed(padding) for amount in pair]
    padded = torch.nn.functional.pad(x, edges, value=-math.inf)  # type: ignore[arg-type]
    values, flat = _TORCH_MAX_POOL[len(window)](padded, window, strides, dilation=dilation, return_indices=True)
    index, first, is_padding = torch.zeros_like(flat), torch.zeros_like(flat), torch.zeros_like(flat, dtype=torch.bool)
    for position, size in enumerate(x.shape[2:]):
        below = math.prod(padded.shape[3 + position :])
        coordinate = flat // below % padded.shape[2 + position] - padding[position][0]  # type: ignore[operator]
        # Of a window of -inf torch names the padding: the first element of x in it is meant.
        start = torch.arange(flat.shape[2 + position]) * strides[position] - padding[position][0]  # type: ignore[operator]
        inside = start + (-start).clamp(min=0).add(dilation[position] - 1) // dilation[position] * dilation[position]
        inside = inside.reshape(-1, *(1,) * (len(window) - position - 1))
        index, first = index * size + coordinate, first * size + inside
        is_padding |= (coordinate < 0) | (coordinate >= size)
    return values, torch.where(is_padding, first, index)


def _sum_pool_shape(x: TensorType, *, window: Axes, strides: Axes, padding: Padding, dilation: Axes) -> Shape:
    return _pooled("sum_pool", x, window, strides, padding, dilation)


def _terms_of_window(call: Call) -> int:
    return math.prod(call.attributes["window"])


@prim(
    shape=_sum_pool_shape,
    operands=(_FLOAT,),
    results=(_FLOAT,),
    tolerance=Accumulated(_terms_of_window),
    samples=_pool_samples,
)
def sum_pool(x: Operand, *, window: Axes, strides: Axes, padding: Padding, dilation: Axes) -> Operand:
    """Sum of each window; padding counts as 0. 16-bit floats accumulate in float32."""
    edges = [amount for pair in reversed(padding) for amount in pair]
    windows = torch.nn.functional.pad(x.to(dtypes.compute_dtype(x.dtype)), edges)  # type: ignore[arg-type]
    for position, (extent, stride, spread) in enumerate(zip(window, strides, dilation, strict=True)):
        # `unfold` moves the window to the end, so the spatial dims stay where they are.
        windows = windows.unfold(2 + position, (extent - 1) * spread + 1, stride)[..., ::spread]
    return windows.sum(dim=tuple(range(-len(window), 0))).to(x.dtype)
