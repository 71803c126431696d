"""Rules for views of a tensor's memory as another dtype, narrower or wider elements included.

Memory is little-endian: of the narrow elements in place of a wide one, the first holds its lowest bits.
"""

from __future__ import annotations

from typing import Any

import torch

from backend_sdk import dtypes, prims
from backend_sdk.decomp.complex import from_pairs, pairs
from backend_sdk.decomp.registry import decomposition
from backend_sdk.decomp.shape import slice_axis
from backend_sdk.graph import Value
from backend_sdk.prims.shorthand import cast, constant
from backend_sdk.spec import TensorType
from backend_sdk.torch_compat.ops import aten, prims_of_torch

# What `bitcast` takes.
_BITS = dtypes.REAL | dtypes.FLOAT8 | dtypes.UNSIGNED
_INTEGER_OF_WIDTH = {dtype.itemsize: dtype for dtype in dtypes.SIGNED_DTYPES}


def _as_integers(x: Value) -> Value:
    """The bits of x as signed integers of its width; a complex value as its parts, in a last dim twice as long."""
    if x.dtype in dtypes.COMPLEX:
        x = prims.reshape(pairs(x), shape=(*x.shape[:-1], 2 * x.shape[-1]))
    if x.dtype == torch.bool:
        return cast(x, torch.int8)  # type: ignore[no-any-return]
    return prims.bitcast(x, dtype=_INTEGER_OF_WIDTH[x.dtype.itemsize])  # type: ignore[no-any-return]


def _split(x: Value, width: int) -> Value:
    """Each integer as several of ``width`` bytes: each shifted to the top and back, which keeps its sign."""
    whole = 8 * x.dtype.itemsize
    parts = []
    for low in range(0, whole, 8 * width):
        top = prims.shift_left(x, constant(x, whole - 8 * width - low))
        part = prims.shift_right(top, constant(x, whole - 8 * width))
        parts.append(prims.reshape(cast(part, _INTEGER_OF_WIDTH[width]), shape=(*x.shape, 1)))
    joined = prims.concat(*parts, axis=x.ndim)
    return prims.reshape(joined, shape=(*x.shape[:-1], x.shape[-1] * len(parts)))  # type: ignore[no-any-return]


def _join(x: Value, width: int) -> Value:
    """Several integers each as one of ``width`` bytes: their bits, without signs, one above the other."""
    bits = 8 * x.dtype.itemsize
    number = 8 * width // bits
    rows = prims.reshape(x, shape=(*x.shape[:-1], x.shape[-1] // number, number))
    wide = cast(rows, _INTEGER_OF_WIDTH[width])
    wide = prims.bitwise_and(wide, constant(wide, 2**bits - 1))
    axis = x.ndim
    total: Value | None = None
    for position in range(number):
        part = prims.reshape(slice_axis(wide, axis, position, position + 1), shape=rows.shape[:-1])
        part = prims.shift_left(part, constant(part, bits * position))
        total = part if total is None else prims.bitwise_or(total, part)
    assert total is not None
    return total


@decomposition(aten.view.dtype, aten.view_copy.dtype, prims_of_torch.view_of_dtype.default)
def view_dtype(out: TensorType, x: Value, dtype: torch.dtype) -> Any:
    """Bytes that are neither 0 nor 1 are True as a truth value, and so read as 1 once more."""
    if x.dtype == dtype:
        return x
    if {dtype, x.dtype} <= _BITS and x.dtype.itemsize == dtype.itemsize:
        return prims.bitcast(x, dtype=dtype)
    if not {dtype, x.dtype} <= _BITS | dtypes.ANY:
        return NotImplemented
    if 0 in out.shape:
        return prims.full(shape=out.shape, value=0, dtype=dtype)
    real = dtype.to_real() if dtype in dtypes.COMPLEX else dtype
    bits = _as_integers(x if x.ndim else prims.reshape(x, shape=(1,)))
    if bits.dtype.itemsize > real.itemsize:
        bits = _split(bits, real.itemsize)
    elif bits.dtype.itemsize < real.itemsize:
        bits = _join(bits, real.itemsize)
    if dtype in dtypes.COMPLEX:
        return from_pairs(prims.reshape(prims.bitcast(bits, dtype=real), shape=(*out.shape, 2)), out.shape)
    value = cast(bits, dtype) if dtype == torch.bool else prims.bitcast(bits, dtype=dtype)
    return prims.reshape(value, shape=out.shape)
