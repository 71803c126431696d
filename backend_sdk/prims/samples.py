"""Sample operands and special values shared by the contract's definitions.

Does not: freeze cases for certificates (conformance does).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from backend_sdk import dtypes
from backend_sdk.spec.prim import Sample, SampleGenerator

ELEMENTWISE_SHAPES = ((), (1,), (7,), (3, 5), (2, 3, 4), (0, 3))


def tensor(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    generator: torch.Generator,
    low: float = -4.0,
    high: float = 4.0,
) -> torch.Tensor:
    """A tensor of uniform values in ``[low, high)``; integers are rounded down, booleans are coin flips."""
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).to(torch.bool)
    if dtype.is_complex:
        parts = [tensor(shape, dtype.to_real(), generator, low, high) for _ in range(2)]
        return torch.complex(*parts)
    values = torch.rand(shape, generator=generator, dtype=torch.float64) * (high - low) + low
    if not dtype.is_floating_point:
        values = values.floor().clamp(min=-math.inf if dtype.is_signed else 0)
    return values.to(dtype)


def indices(shape: tuple[int, ...], size: int, generator: torch.Generator) -> torch.Tensor:
    """int64 indices in ``[0, size)``."""
    return torch.randint(0, size, shape, generator=generator)


def elementwise_samples(
    *domains: tuple[float, float],
    dtypes_of_operands: tuple[torch.dtype | None, ...] = (),
) -> SampleGenerator:
    """Samples for an elementwise op with one ``(low, high)`` domain per operand.

    ``dtypes_of_operands`` fixes the dtype of an operand (None: the dtype asked for).
    """

    def generate(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
        fixed = dtypes_of_operands or (None,) * len(domains)
        for shape in ELEMENTWISE_SHAPES:
            yield Sample(
                tuple(
                    tensor(shape, own or dtype, generator, *domain) for own, domain in zip(fixed, domains, strict=True)
                )
            )

    return generate


def special_values(dtype: torch.dtype) -> list[Any]:
    """NaN, infinities, signed zeros, subnormals and extremes of a float dtype; the edges of an integer one."""
    if dtype == torch.bool:
        return [False, True]
    if dtype in dtypes.INTEGRAL | dtypes.UNSIGNED:
        limits = torch.iinfo(dtype)
        return sorted({limits.min, limits.min + 1, 0, 1, limits.max - 1, limits.max} | ({-1} if limits.min else set()))
    info = torch.finfo(dtype.to_real() if dtype.is_complex else dtype)
    finite = [0.0, 1.0, 0.5, info.tiny, info.smallest_normal / 4, info.eps, info.max]
    real = [*finite, *(-value for value in finite), math.inf, -math.inf, math.nan]
    if dtype.is_complex:
        return [complex(a, b) for a, b in zip(real, reversed(real), strict=True)]
    return real
