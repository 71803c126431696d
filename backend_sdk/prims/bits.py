"""The prim that reads the bits of a number as another number of the same width.

Does not: change a width or move elements.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from backend_sdk import dtypes
from backend_sdk.prims.define import Operand, prim
from backend_sdk.prims.samples import elementwise_samples
from backend_sdk.spec import DtypeVar, Exact, FromAttribute, Sample, Shape, TensorType, refuse

_BITS = dtypes.REAL | dtypes.FLOAT8 | dtypes.UNSIGNED
_T = DtypeVar("T", _BITS)


def _bitcast_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    for target in (*dtypes.FLOAT_DTYPES, *dtypes.INTEGER_DTYPES, *dtypes.FLOAT8_DTYPES, *dtypes.UNSIGNED_DTYPES):
        if target.itemsize == dtype.itemsize:
            # Integers get the bits of ordinary floats: those of small integers are subnormals or NaN.
            source = target if target.is_floating_point and not dtype.is_floating_point else dtype
            for sample in elementwise_samples((-4.0, 4.0))(source, generator):
                yield Sample(tuple(x.view(dtype) for x in sample.operands if x is not None), {"dtype": target})


def _bitcast_shape(x: TensorType, *, dtype: torch.dtype) -> Shape:
    if dtype not in _BITS or dtype.itemsize != x.dtype.itemsize:
        raise refuse("bitcast", f"{dtypes.name(dtype)} is not a real dtype of the same width", x)
    return x.shape


@prim(
    shape=_bitcast_shape,
    operands=(_T,),
    results=(FromAttribute("dtype", _BITS),),
    tolerance=Exact(),
    samples=_bitcast_samples,
    differentiable=False,
    identity=lambda x, *, dtype: x.dtype == dtype,
)
def bitcast(x: Operand, *, dtype: torch.dtype) -> Operand:
    """The bits of x read as ``dtype``, a real dtype of the same width: floats are IEEE 754 (bfloat16 the upper half
    of a float32, eight bits as their names say), integers two's complement. A NaN keeps its payload.
    """
    return x.view(dtype)
