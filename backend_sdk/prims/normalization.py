"""Normalizations, as composites. 16-bit floats compute in float32; statistics stay in the compute dtype.

Does not: update running statistics (the decomposition of batch normalization does).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from backend_sdk import dtypes
from backend_sdk.prims.define import Operand, composite
from backend_sdk.prims.elementwise import add, mul, rsqrt, sub
from backend_sdk.prims.samples import tensor
from backend_sdk.prims.shape import reshape
from backend_sdk.prims.shorthand import along, cast, constant, keepdim, mean, stretch
from backend_sdk.spec import DtypeVar, FromAttribute, Relative, Sample, Shape, TensorType, differ, refuse

_FLOAT = DtypeVar("T", dtypes.FLOATING)
_WIDE = FromAttribute("statistics_dtype", dtypes.FLOATING)


def _affine(x: Operand, weight: Operand | None, bias: Operand | None, axes: tuple[int, ...]) -> Operand:
    """x * weight + bias, both along ``axes``, in x's dtype."""
    shape = tuple(x.shape)
    if weight is not None:
        x = mul(x, along(cast(weight, x.dtype), axes, shape))
    if bias is not None:
        x = add(x, along(cast(bias, x.dtype), axes, shape))
    return x


def _moments(x: Operand, axes: tuple[int, ...]) -> tuple[Operand, Operand, Operand]:
    """Mean, biased variance (both reduced) and x - mean, by two passes."""
    center = mean(x, axes)
    deviation = sub(x, stretch(center, axes, tuple(x.shape)))
    return center, mean(mul(deviation, deviation), axes), deviation


def _inverse_root(variance: Operand, epsilon: float) -> Operand:
    return rsqrt(add(variance, constant(variance, epsilon)))


def _layer_norm_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    for shape, rank in (((4, 8), 1), ((2, 3, 5), 2), ((6,), 1), ((0, 4), 1)):
        parameter = tensor(shape[-rank:], dtype, generator)
        for weight, bias in ((parameter, parameter), (parameter, None), (None, None)):
            yield Sample(
                (tensor(shape, dtype, generator), weight, bias),
                {"rank": rank, "epsilon": 1e-5, "statistics_dtype": dtypes.compute_dtype(dtype)},
            )


def _layer_norm_shape(
    x: TensorType,
    weight: TensorType | None,
    bias: TensorType | None,
    *,
    rank: int,
    epsilon: float,
    statistics_dtype: torch.dtype,
) -> list[Shape]:
    return _normalized("layer_norm", x, (weight, bias), rank)


def _normalized(op: str, x: TensorType, parameters: tuple[TensorType | None, ...], rank: int) -> list[Shape]:
    if not 0 < rank <= x.rank:
        raise refuse(op, f"cannot normalize {rank} trailing dims", x, *parameters)
    if any(parameter is not None and differ(parameter.shape, x.shape[-rank:]) for parameter in parameters):
        raise refuse(op, "parameters must have the normalized dims", x, *parameters)
    statistics = (*x.shape[:-rank], *(1,) * rank)
    return [x.shape, statistics, statistics]


@composite(
    shape=_layer_norm_shape,
    operands=(_FLOAT, _FLOAT, _FLOAT),
    results=(_FLOAT, _WIDE, _WIDE),
    tolerance=Relative(128),
    samples=_layer_norm_samples,
)
def layer_norm(
    x: Operand,
    weight: Operand | None,
    bias: Operand | None,
    *,
    rank: int,
    epsilon: float,
    statistics_dtype: torch.dtype,
) -> Operand:
    """(x - mean) / sqrt(variance + epsilon) * weight + bias over the last ``rank`` dims (Ba et al.,
    arXiv:1607.06450); also the mean and 1 / sqrt(variance + epsilon), with those dims kept as 1.
    """
    axes = tuple(range(len(x.shape) - rank, len(x.shape)))
    wide = cast(x, dtypes.compute_dtype(x.dtype))
    center, variance, deviation = _moments(wide, axes)
    inverse = _inverse_root(variance, epsilon)
    normal = mul(deviation, stretch(inverse, axes, tuple(x.shape)))
    y = cast(_affine(normal, weight, bias, axes), x.dtype)
    return (
        y,
        cast(keepdim(center, axes), statistics_dtype),
        cast(keepdim(inverse, axes), statistics_dtype),
    )


def _rms_norm_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    for shape, rank in (((4, 8), 1), ((2, 3, 5), 2), ((0, 4), 1)):
        for weight in (tensor(shape[-rank:], dtype, generator), None):
            yield Sample(
                (tensor(shape, dtype, generator), weight),
                {"rank": rank, "epsilon": 1e-6, "statistics_dtype": dtypes.compute_dtype(dtype)},
            )


def _rms_norm_shape(
    x: TensorType,
    weight: TensorType | None,
    *,
    rank: int,
    epsilon: float,
    statistics_dtype: torch.dtype,
) -> list[Shape]:
    return _normalized("rms_norm", x, (weight,), rank)[:2]


@composite(
    shape=_rms_norm_shape,
    operands=(_FLOAT, _FLOAT),
    results=(_FLOAT, _WIDE),
    tolerance=Relative(128),
    samples=_rms_norm_samples,
)
def rms_norm(
    x: Operand, weight: Operand | None, *, rank: int, epsilon: float, statistics_dtype: torch.dtype
) -> Operand:
    """x / sqrt(mean(x^2) + epsilon) * weight over the last ``rank`` dims (Zhang and Sennrich, arXiv:1910.07467);
    also 1 / sqrt(mean(x^2) + epsilon), with those dims kept as 1.
    """
    axes = tuple(range(len(x.shape) - rank, len(x.shape)))
    wide = cast(x, dtypes.compute_dtype(x.dtype))
    inverse = _inverse_root(mean(mul(wide, wide), axes), epsilon)
    normal = mul(wide, stretch(inverse, axes, tuple(x.shape)))
    y = cast(_affine(normal, weight, None, axes), x.dtype)
    return y, cast(keepdim(inverse, axes), statistics_dtype)


def _group_norm_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    for shape, groups in (((2, 6, 5), 3), ((1, 4, 3, 3), 1), ((2, 4), 2), ((0, 4, 3), 2)):
        parameter = tensor(shape[1:2], dtype, generator)
        yield Sample(
            (tensor(shape, dtype, generator), parameter, parameter),
            {"groups": groups, "epsilon": 1e-5, "statistics_dtype": dtypes.compute_dtype(dtype)},
        )


def _group_norm_shape(
    x: TensorType,
    weight: TensorType | None,
    bias: TensorType | None,
    *,
    groups: int,
    epsilon: float,
    statistics_dtype: torch.dtype,
) -> list[Shape]:
    if x.rank < 2 or (isinstance(x.shape[1], int) and x.shape[1] % groups != 0):
        raise refuse("group_norm", f"channels do not divide into {groups} groups", x, weight, bias)
    _per_channel("group_norm", x, weight, bias)
    return [x.shape, (x.shape[0], groups), (x.shape[0], groups)]


@composite(
    shape=_group_norm_shape,
    operands=(_FLOAT, _FLOAT, _FLOAT),
    results=(_FLOAT, _WIDE, _WIDE),
    tolerance=Relative(128),
    samples=_group_norm_samples,
)
def group_norm(
    x: Operand,
    weight: Operand | None,
    bias: Operand | None,
    *,
    groups: int,
    epsilon: float,
    statistics_dtype: torch.dtype,
) -> Operand:
    """x ``[N, C, *S]`` normalized over each of ``groups`` groups of channels (Wu and He, arXiv:1803.08494), then
    times weight plus bias per channel; also mean and inverse root, ``[N, groups]``.
    """
    batch, channels, *spatial = x.shape
    grouped = reshape(x, shape=(batch, groups, channels // groups, *spatial))
    axes = tuple(range(2, len(grouped.shape)))
    wide = cast(grouped, dtypes.compute_dtype(x.dtype))
    center, variance, deviation = _moments(wide, axes)
    inverse = _inverse_root(variance, epsilon)
    normal = mul(deviation, stretch(inverse, axes, tuple(grouped.shape)))
    y = _affine(reshape(normal, shape=tuple(x.shape)), weight, bias, (1,))
    return cast(y, x.dtype), cast(center, statistics_dtype), cast(inverse, statistics_dtype)


def _batch_norm_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    for shape in ((4, 3), (2, 3, 5), (2, 3, 4, 4), (0, 3)):
        parameter = tensor((3,), dtype, generator)
        spread = tensor((3,), dtype, generator, 0.5, 2.0)
        yield Sample((tensor(shape, dtype, generator), parameter, parameter, parameter, spread), {"epsilon": 1e-5})


def _per_channel(op: str, x: TensorType, *parameters: TensorType | None) -> Shape:
    if x.rank < 2 or any(p is not None and differ(p.shape, x.shape[1:2]) for p in parameters):
        raise refuse(op, "x [N, C, *S] needs parameters [C]", x, *parameters)
    return x.shape


def _batch_norm_shape(
    x: TensorType,
    weight: TensorType | None,
    bias: TensorType | None,
    mean: TensorType,
    variance: TensorType,
    *,
    epsilon: float,
) -> Shape:
    return _per_channel("batch_norm_inference", x, weight, bias, mean, variance)


_PARAMETER = DtypeVar("P", dtypes.FLOATING)


@composite(
    shape=_batch_norm_shape,
    operands=(_FLOAT, _PARAMETER, _PARAMETER, _PARAMETER, _PARAMETER),
    results=(_FLOAT,),
    tolerance=Relative(32),
    samples=_batch_norm_samples,
)
def batch_norm_inference(
    x: Operand,
    weight: Operand | None,
    bias: Operand | None,
    mean: Operand,
    variance: Operand,
    *,
    epsilon: float,
) -> Operand:
    """(x - mean) / sqrt(variance + epsilon) * weight + bias per channel (dim 1), with given statistics (Ioffe and
    Szegedy, arXiv:1502.03167).
    """
    wide = cast(x, dtypes.compute_dtype(x.dtype))
    shape = tuple(x.shape)
    inverse = _inverse_root(cast(variance, wide.dtype), epsilon)
    normal = mul(
        sub(wide, along(cast(mean, wide.dtype), (1,), shape)),
        along(inverse, (1,), shape),
    )
    return cast(_affine(normal, weight, bias, (1,)), x.dtype)


def _batch_norm_training_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    for sample in _batch_norm_samples(dtype, generator):
        if 0 in sample.operands[0].shape:  # type: ignore[union-attr]
            # Nothing has no mean.
            continue
        yield Sample(sample.operands[:3], {"epsilon": 1e-5, "statistics_dtype": dtypes.compute_dtype(dtype)})


def _batch_norm_training_shape(
    x: TensorType,
    weight: TensorType | None,
    bias: TensorType | None,
    *,
    epsilon: float,
    statistics_dtype: torch.dtype,
) -> list[Shape]:
    _per_channel("batch_norm_training", x, weight, bias)
    return [x.shape, x.shape[1:2], x.shape[1:2]]


@composite(
    shape=_batch_norm_training_shape,
    operands=(_FLOAT, _PARAMETER, _PARAMETER),
    results=(_FLOAT, _WIDE, _WIDE),
    tolerance=Relative(128),
    samples=_batch_norm_training_samples,
    profiles=("training",),
)
def batch_norm_training(
    x: Operand,
    weight: Operand | None,
    bias: Operand | None,
    *,
    epsilon: float,
    statistics_dtype: torch.dtype,
) -> Operand:
    """`batch_norm_inference` with the mean and biased variance of x itself, over all dims but 1; also both, ``[C]``."""
    axes = tuple(dim for dim in range(len(x.shape)) if dim != 1)
    wide = cast(x, dtypes.compute_dtype(x.dtype))
    center, variance, deviation = _moments(wide, axes)
    normal = mul(deviation, stretch(_inverse_root(variance, epsilon), axes, tuple(x.shape)))
    y = cast(_affine(normal, weight, bias, (1,)), x.dtype)
    return y, cast(center, statistics_dtype), cast(variance, statistics_dtype)
