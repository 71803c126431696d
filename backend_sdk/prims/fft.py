"""The discrete Fourier transform, and its forms for real signals.

Does not: scale (aten's normalizations are a multiplication after it).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from backend_sdk import dtypes
from backend_sdk.prims.complex import complex as complex_of
from backend_sdk.prims.complex import real
from backend_sdk.prims.define import Operand, composite, prim
from backend_sdk.prims.matrices import conjugate
from backend_sdk.prims.samples import tensor
from backend_sdk.prims.shape import concat, reverse
from backend_sdk.prims.shape import slice as slice_
from backend_sdk.prims.shorthand import constant
from backend_sdk.spec import ComplexOf, DtypeVar, RealOf, Relative, Sample, Shape, TensorType, refuse
from backend_sdk.spec.symbolic import Dim, SymExpr

Axes = tuple[int, ...]

_COMPLEX = DtypeVar("C", dtypes.COMPLEX)
_REAL = DtypeVar("R", frozenset(dtype.to_real() for dtype in dtypes.COMPLEX))

# The error of a fast transform of N points grows as log2 N (Gentleman and Sande, "Fast Fourier Transforms: for fun and
# profit", 1966); a direct sum of as many products in the same precision grows as N, which this bound does not admit.
_TOLERANCE = Relative(32)


def _specials(dtype: torch.dtype) -> list[Any]:
    """Zero and one. An infinity spreads as NaN and infinities in a pattern that depends on the algorithm."""
    return [complex(0, 0), complex(1, 0), complex(0, 1)] if dtype in dtypes.COMPLEX else [0.0, 1.0]


def _axes_fit(op: str, x: TensorType, axes: Axes) -> None:
    if len(set(axes)) != len(axes) or any(not 0 <= axis < x.rank for axis in axes):
        raise refuse(op, f"axes {axes} are not distinct dims of the operand", x)
    if any(x.shape[axis] == 0 for axis in axes):
        raise refuse(op, f"a transformed dim of {axes} has no element", x)


_SHAPES: tuple[tuple[tuple[int, ...], Axes], ...] = (
    ((8,), (0,)),
    ((3, 7), (1,)),
    ((5, 4), (0,)),
    ((2, 3, 4), (0, 2)),
    ((2, 6, 5), (2, 1)),
    ((2, 1), (1,)),
    ((0, 4), (1,)),
    ((60,), (0,)),
)


def _fft_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    for shape, axes in _SHAPES:
        for inverse in (False, True):
            yield Sample((tensor(shape, dtype, generator, -1.0, 1.0),), {"axes": axes, "inverse": inverse})


def _fft_shape(x: TensorType, *, axes: Axes, inverse: bool) -> Shape:
    _axes_fit("fft", x, axes)
    return x.shape


@prim(
    shape=_fft_shape,
    operands=(_COMPLEX,),
    results=(_COMPLEX,),
    tolerance=_TOLERANCE,
    samples=_fft_samples,
    specials=_specials,
    profiles=("linalg", "complex"),
    identity=lambda x, *, axes, inverse: not axes,
)
def fft(x: Operand, *, axes: Axes, inverse: bool) -> Operand:
    """``X[k] = sum_n x[n] exp(-2 pi i k n / N)`` along each of ``axes`` (N >= 1 elements, any N), unscaled.

    With ``inverse`` the exponent is positive and there is still no factor: the inverse of the transform is ``fft`` with
    ``inverse`` divided by the number of elements along ``axes``.
    """
    if x.numel() == 0:
        return torch.empty_like(x)
    if inverse:
        return torch.fft.ifftn(x, dim=axes, norm="forward")
    return torch.fft.fftn(x, dim=axes, norm="backward")


def _rfft_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    for shape, axes in _SHAPES:
        yield Sample((tensor(shape, dtype, generator, -1.0, 1.0),), {"axes": axes})


def _rfft_shape(x: TensorType, *, axes: Axes) -> Shape:
    _axes_fit("rfft", x, axes)
    if not axes:
        raise refuse("rfft", "there must be an axis", x)
    last = axes[-1]
    return (*x.shape[:last], x.shape[last] // 2 + 1, *x.shape[last + 1 :])


@composite(
    shape=_rfft_shape,
    operands=(_REAL,),
    results=(ComplexOf(_REAL),),
    tolerance=_TOLERANCE,
    samples=_rfft_samples,
    specials=_specials,
    profiles=("linalg", "complex"),
)
def rfft(x: Operand, *, axes: Axes) -> Operand:
    """`fft` of a real x along ``axes``. Of the N elements along the last of them only ``k = 0 .. N // 2`` are given:
    the others are their conjugates.
    """
    last = axes[-1]
    whole = fft(complex_of(x, constant(x, 0.0)), axes=axes, inverse=False)
    return _part(whole, last, 0, x.shape[last] // 2 + 1)


def _irfft_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    for shape, axes in _SHAPES:
        half = list(shape)
        half[axes[-1]] = shape[axes[-1]] // 2 + 1
        yield Sample((tensor(tuple(half), dtype, generator, -1.0, 1.0),), {"axes": axes, "size": shape[axes[-1]]})


def _irfft_shape(x: TensorType, *, axes: Axes, size: Dim) -> Shape:
    _axes_fit("irfft", x, axes)
    last = axes[-1] if axes else 0
    if not axes or (isinstance(size, int) and (size < 1 or x.shape[last] != size // 2 + 1)):
        raise refuse("irfft", f"the last of {axes} must have {size} // 2 + 1 elements", x)
    return (*x.shape[:last], size, *x.shape[last + 1 :])


@composite(
    shape=_irfft_shape,
    operands=(_COMPLEX,),
    results=(RealOf(_COMPLEX),),
    tolerance=_TOLERANCE,
    samples=_irfft_samples,
    specials=_specials,
    profiles=("linalg", "complex"),
)
def irfft(x: Operand, *, axes: Axes, size: Dim) -> Operand:
    """The real signal, times its element count, whose `rfft` along ``axes`` is x; its last axis has ``size`` elements.

    x gives ``k = 0 .. size // 2`` along the last of ``axes``. First the other axes are transformed (``fft`` with
    ``inverse``); of the result, the imaginary part at k = 0 (and at ``size / 2``) is ignored, as in pocketfft and MKL.
    """
    last = axes[-1]
    half = fft(x, axes=axes[:-1], inverse=True)
    length = x.shape[last]
    rest = size - length
    # The missing elements size // 2 + 1 .. size - 1 are the conjugates of those from size - size // 2 - 1 down to 1.
    if isinstance(rest, SymExpr) or rest:
        mirrored = conjugate(reverse(_part(half, last, 1, rest + 1), dims=(last,)))
        half = concat(half, mirrored, axis=last)
    return real(fft(half, axes=(last,), inverse=True))


def _part(x: Operand, axis: int, start: Dim, limit: Dim) -> Operand:
    rank = len(x.shape)
    starts: list[Dim] = [0] * rank
    limits: list[Dim] = list(x.shape)
    starts[axis], limits[axis] = start, limit
    return slice_(x, starts=tuple(starts), limits=tuple(limits), strides=(1,) * rank)
