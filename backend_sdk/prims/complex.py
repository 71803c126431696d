"""Prims between complex values and pairs of real ones. Whatever else is complex is written with them.

Does not: define complex arithmetic; the elementwise prims that take complex dtypes do.
"""

from __future__ import annotations

import torch

from backend_sdk import dtypes
from backend_sdk.prims.define import Operand, prim
from backend_sdk.prims.samples import elementwise_samples
from backend_sdk.spec import ComplexOf, DtypeVar, Exact, RealOf, Shape, TensorType, same_shape

# Complex numbers of half precision can be taken apart and put together, if nothing else.
_DOMAIN = dtypes.COMPLEX | {torch.complex32}
_COMPLEX = DtypeVar("C", _DOMAIN)
_PART = DtypeVar("R", frozenset(dtype.to_real() for dtype in _DOMAIN))
_EXACT = Exact()


def _complex_shape(real: TensorType, imag: TensorType) -> Shape:
    return same_shape("complex", real, imag)


def _part_shape(x: TensorType) -> Shape:
    return x.shape


@prim(
    shape=_complex_shape,
    operands=(_PART, _PART),
    results=(ComplexOf(_PART),),
    tolerance=_EXACT,
    samples=elementwise_samples((-4.0, 4.0), (-4.0, 4.0)),
    profiles=("complex",),
)
def complex(real: Operand, imag: Operand) -> Operand:
    """The complex number with the given parts, bit by bit: signed zeros, infinities and NaN stay in their part."""
    return torch.complex(real, imag)


@prim(
    shape=_part_shape,
    operands=(_COMPLEX,),
    results=(RealOf(_COMPLEX),),
    tolerance=_EXACT,
    samples=elementwise_samples((-4.0, 4.0)),
    profiles=("complex",),
)
def real(x: Operand) -> Operand:
    """Real part of a complex x, bit by bit: float64 of complex128, float32 of complex64, float16 of complex32."""
    return torch.real(x)


@prim(
    shape=_part_shape,
    operands=(_COMPLEX,),
    results=(RealOf(_COMPLEX),),
    tolerance=_EXACT,
    samples=elementwise_samples((-4.0, 4.0)),
    profiles=("complex",),
)
def imag(x: Operand) -> Operand:
    """Imaginary part of a complex x, a real number, bit by bit: float64 of complex128, float32 of complex64, float16
    of complex32.
    """
    return torch.imag(x).resolve_neg()
