"""Rules for ops that read or change the bits of a number: sign, exponent, neighbors, hashes.

Does not: view a dtype as another (`dtype_views.py`).
"""

from __future__ import annotations

from typing import Any

import torch

from backend_sdk import dtypes, prims
from backend_sdk.decomp.promotion import axes_of, spread
from backend_sdk.decomp.registry import decomposition
from backend_sdk.decomp.shape import slice_axis
from backend_sdk.graph import Value
from backend_sdk.prims.shorthand import cast, constant
from backend_sdk.spec import TensorType
from backend_sdk.spec.symbolic import is_symbolic
from backend_sdk.torch_compat.ops import aten, prims_of_torch

_INTEGER_OF_WIDTH = {dtype.itemsize: dtype for dtype in dtypes.SIGNED_DTYPES}


def _bits(x: Value) -> Any:
    """The bits of a float as a signed integer: negative where its sign bit is set."""
    return prims.bitcast(x, dtype=_INTEGER_OF_WIDTH[x.dtype.itemsize])


def _is_negative(x: Value) -> Any:
    bits = _bits(x) if x.dtype in dtypes.FLOATING else x
    return prims.lt(bits, constant(bits, 0))


@decomposition(aten.signbit.default, prims_of_torch.signbit.default)
def signbit(out: TensorType, x: Value) -> Any:
    if x.dtype == torch.bool:
        return constant(x, False)
    return _is_negative(x)


@decomposition(aten.copysign.Tensor, aten.copysign.Scalar)
def copysign(out: TensorType, x: Value, y: Any) -> Any:
    magnitude = prims.abs(spread(x, out.shape, out.dtype))
    return prims.select(_is_negative(spread(y, out.shape, out.dtype)), prims.neg(magnitude), magnitude)


@decomposition(aten.nextafter.default, prims_of_torch.nextafter.default)
def nextafter(out: TensorType, x: Value, y: Value) -> Any:
    start, goal = spread(x, out.shape, out.dtype), spread(y, out.shape, out.dtype)
    bits, zero = _bits(start), constant(start, 0.0)
    one = constant(bits, 1)
    # A float's bits grow with its magnitude, so that its neighbors are one away, infinity included.
    outward = prims.eq(prims.gt(goal, start), prims.gt(start, zero))
    neighbor = prims.select(outward, prims.add(bits, one), prims.sub(bits, one))
    smallest = prims.bitcast(one, dtype=out.dtype)
    from_zero = prims.select(prims.lt(goal, zero), prims.neg(smallest), smallest)
    value = prims.bitcast(neighbor, dtype=out.dtype)
    value = prims.select(prims.eq(start, zero), from_zero, value)
    value = prims.select(prims.eq(start, goal), goal, value)
    # NaN + anything is NaN: the way to hand on a NaN of either operand.
    unordered = prims.bitwise_or(prims.ne(start, start), prims.ne(goal, goal))
    return prims.select(unordered, prims.add(start, goal), value)


@decomposition(aten.frexp.Tensor, prims_of_torch.frexp.default)
def frexp(out: tuple[TensorType, TensorType], x: Value) -> Any:
    """Fields of IEEE 754: the exponent is read off and replaced by that of [0.5, 1)."""
    fraction = dtypes.fraction_bits(x.dtype)
    exponent_bits = 8 * x.dtype.itemsize - 1 - fraction
    half = 2 ** (exponent_bits - 1) - 2
    magnitude = prims.abs(x)
    subnormal = prims.lt(magnitude, constant(x, torch.finfo(x.dtype).tiny))
    # Subnormals have no exponent of their own: scaled by a power of two, exactly, they get one.
    lift = fraction + 1
    lifted = prims.select(subnormal, prims.mul(x, constant(x, 2.0**lift)), x)
    bits = _bits(lifted)
    field = prims.bitwise_and(prims.shift_right(bits, constant(bits, fraction)), constant(bits, 2**exponent_bits - 1))
    without = prims.bitwise_and(bits, constant(bits, ~((2**exponent_bits - 1) << fraction)))
    mantissa = prims.bitcast(prims.bitwise_or(without, constant(bits, half << fraction)), dtype=x.dtype)
    exponent = cast(prims.sub(field, constant(field, half)), out[1].dtype)
    exponent = prims.select(subnormal, prims.sub(exponent, constant(exponent, lift)), exponent)
    # Zero, infinity and NaN are their own mantissas, with exponent 0.
    own = prims.bitwise_or(prims.eq(x, constant(x, 0.0)), prims.bitwise_not(prims.is_finite(x)))
    return prims.select(own, x, mantissa), prims.select(own, constant(exponent, 0), exponent)


# ---- hashes


@decomposition(aten.hash_tensor.default)
def hash_tensor(out: TensorType, x: Value, dim: Any = (), *, keepdim: bool = False, mode: int = 0) -> Any:
    """The exclusive or of all bits along ``dim``: of floats as float64, of integers as int64, read as uint64."""
    axes = axes_of(dim, x.ndim)
    if mode != 0 or is_symbolic(tuple(x.shape[axis] for axis in axes)):
        # The number of steps depends on the sizes.
        return NotImplemented
    words = prims.bitcast(cast(x, torch.float64), dtype=torch.int64) if x.dtype in dtypes.FLOATING else x
    words = cast(words, torch.int64)
    for axis in axes:
        words = _folded(words, axis)
    return prims.convert(prims.reshape(words, shape=out.shape), dtype=torch.uint64)


def _folded(x: Value, axis: int) -> Value:
    """x with its ``axis`` at size 1: halves are laid over one another until one element is left."""
    size: Any = x.shape[axis]
    if size == 0:
        return prims.full(shape=(*x.shape[:axis], 1, *x.shape[axis + 1 :]), value=0, dtype=x.dtype)  # type: ignore[no-any-return]
    while size > 1:
        half = size // 2
        folded = prims.bitwise_xor(slice_axis(x, axis, 0, half), slice_axis(x, axis, half, 2 * half))
        x = folded if size % 2 == 0 else prims.concat(folded, slice_axis(x, axis, 2 * half, size), axis=axis)
        size -= half
    return x
