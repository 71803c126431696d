"""Running extremes and the running log-sum-exp: scans whose step is not a sum or a product.

Does not: define running sums and products (`reduction.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from backend_sdk import dtypes
from backend_sdk.prims.define import FLOATING_OR_COMPLEX, Operand, composite, prim
from backend_sdk.prims.elementwise import bitwise_not, neg
from backend_sdk.prims.samples import tensor
from backend_sdk.spec import DtypeVar, Exact, Relative, Sample, Shape, TensorType, refuse

_ORDERED = DtypeVar("T", dtypes.REAL | dtypes.BOOLEAN)


def _scan_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    for shape, axis in (((7,), 0), ((3, 5), 1), ((3, 5), 0), ((2, 3, 4), 1), ((2, 0), 1)):
        yield Sample((tensor(shape, dtype, generator, -2.0, 2.0),), {"axis": axis})


def _scanned(op: str, x: TensorType, axis: int) -> Shape:
    if not 0 <= axis < x.rank:
        raise refuse(op, f"axis {axis} is not a dim of the operand", x)
    return x.shape


def _cummax_shape(x: TensorType, *, axis: int) -> list[Shape]:
    return [_scanned("cummax", x, axis)] * 2


@prim(
    shape=_cummax_shape,
    operands=(_ORDERED,),
    results=(_ORDERED, torch.int64),
    tolerance=Exact(),
    samples=_scan_samples,
)
def cummax(x: Operand, *, axis: int) -> Operand:
    """Running maximum along ``axis``, and the index of the last element so far that equals it.

    From the first NaN on it is NaN, and the index is that of the last NaN so far. Of truth values: running or.
    """
    return tuple(torch.cummax(x, dim=axis))


def _cummin_shape(x: TensorType, *, axis: int) -> list[Shape]:
    return [_scanned("cummin", x, axis)] * 2


@composite(
    shape=_cummin_shape,
    operands=(_ORDERED,),
    results=(_ORDERED, torch.int64),
    tolerance=Exact(),
    samples=_scan_samples,
)
def cummin(x: Operand, *, axis: int) -> Operand:
    """Running minimum along ``axis``, and the index of the last element so far that equals it; NaN as in `cummax`."""
    # The complement reverses the order of integers and truth values without overflow.
    turn = neg if x.dtype in dtypes.FLOATING else bitwise_not
    values, index = cummax(turn(x), axis=axis)
    return turn(values), index


def _logcumsumexp_shape(x: TensorType, *, axis: int) -> Shape:
    return _scanned("logcumsumexp", x, axis)


_FLOAT = DtypeVar("T", FLOATING_OR_COMPLEX)


@prim(
    shape=_logcumsumexp_shape,
    operands=(_FLOAT,),
    results=(_FLOAT,),
    tolerance=Relative(64),
    samples=_scan_samples,
)
def logcumsumexp(x: Operand, *, axis: int) -> Operand:
    """log of the inclusive running sum of exp(x) along ``axis``.

    By the scan of log(exp(a) + exp(b)) = max(a, b) + log1p(exp(-|a - b|)): no exponential overflows, and a term counts
    however far the largest of all lies above it. 16-bit floats accumulate in float32.
    """
    wide = dtypes.compute_dtype(x.dtype)
    return torch.logcumsumexp(x.to(wide), dim=axis).to(x.dtype)
