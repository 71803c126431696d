"""Activations and softmaxes, as composites. 16-bit floats compute in float32 and round once.

Does not: define their gradients (decompositions write those in prims).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from backend_sdk import dtypes
from backend_sdk.prims.define import Operand, composite, elementwise
from backend_sdk.prims.elementwise import add, div, eq, erf, exp, log, maximum, mul, neg, select, sub, tanh
from backend_sdk.prims.reduction import reduce_sum
from backend_sdk.prims.samples import elementwise_samples, tensor
from backend_sdk.prims.shorthand import cast, constant, largest_along, scaled, stretch
from backend_sdk.spec import DtypeVar, Relative, Sample, Shape, TensorType, Ulp, refuse, same_shape
from backend_sdk.spec.prim import ShapeRule

_FLOAT = DtypeVar("T", dtypes.FLOATING)


@elementwise(dtypes.REAL, tolerance=Ulp(0), body=True)
def relu(x: Operand) -> Operand:
    """max(x, 0), in the dtype of x; NaN stays NaN (Nair and Hinton, ICML 2010)."""
    return maximum(x, constant(x, 0))


@elementwise(dtypes.FLOATING, tolerance=Ulp(8), body=True)
def sigmoid(x: Operand) -> Operand:
    """The logistic function 1 / (1 + exp(-x)): 0 at -inf, 1 at +inf. 16-bit floats compute in float32."""
    wide = cast(x, dtypes.compute_dtype(x.dtype))
    one = constant(wide, 1.0)
    return cast(div(one, add(one, exp(neg(wide)))), x.dtype)


@elementwise(dtypes.FLOATING, tolerance=Ulp(8), body=True)
def silu(x: Operand) -> Operand:
    """x / (1 + exp(-x)), x times its `sigmoid` (Hendrycks and Gimpel, arXiv:1606.08415): NaN at -inf, as in
    torch. 16-bit floats compute in float32.
    """
    wide = cast(x, dtypes.compute_dtype(x.dtype))
    one = constant(wide, 1.0)
    return cast(div(wide, add(one, exp(neg(wide)))), x.dtype)


GELU_FORMS = ("none", "tanh")


def _gelu_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    for form in GELU_FORMS:
        for sample in elementwise_samples((-4.0, 4.0))(dtype, generator):
            yield Sample(sample.operands, {"approximate": form})


def _gelu_shape(x: TensorType, *, approximate: str) -> Shape:
    if approximate not in GELU_FORMS:
        raise refuse("gelu", f"approximate {approximate!r} is none of {GELU_FORMS}", x)
    return same_shape("gelu", x)


@composite(
    shape=_gelu_shape, operands=(_FLOAT,), results=(_FLOAT,), tolerance=Ulp(16, 2, floor=8), samples=_gelu_samples
)
def gelu(x: Operand, *, approximate: str) -> Operand:
    """x * Phi(x), Phi the standard normal distribution (Hendrycks and Gimpel, arXiv:1606.08415).

    ``approximate="none"``: 0.5 x (1 + erf(x / sqrt 2)); ``"tanh"``: 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715
    x^3))).
    """
    wide = cast(x, dtypes.compute_dtype(x.dtype))
    half, one = scaled(wide, 0.5), constant(wide, 1.0)
    if approximate == "none":
        inner = erf(scaled(wide, math.sqrt(0.5)))
    else:
        cube = mul(mul(wide, wide), wide)
        inner = tanh(scaled(add(wide, scaled(cube, 0.044715)), math.sqrt(2.0 / math.pi)))
    return cast(mul(half, add(one, inner)), x.dtype)


def _axis_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    for shape, axis in (((7,), 0), ((3, 5), 1), ((2, 3, 4), 1), ((0, 3), 1)):
        yield Sample((tensor(shape, dtype, generator),), {"axis": axis})


def _axis_shape(op: str) -> ShapeRule:
    def shape(x: TensorType, *, axis: int) -> Shape:
        if not 0 <= axis < x.rank:
            raise refuse(op, f"axis {axis} is not a dim of the operand", x)
        return x.shape

    return shape


def _shifted(x: Operand, axis: int) -> Operand:
    """x minus its maximum along ``axis``, so that exp cannot overflow."""
    return sub(x, stretch(largest_along(x, axis), (axis,), tuple(x.shape)))


@composite(
    shape=_axis_shape("softmax"), operands=(_FLOAT,), results=(_FLOAT,), tolerance=Relative(16), samples=_axis_samples
)
def softmax(x: Operand, *, axis: int) -> Operand:
    """exp(x - max) / sum(exp(x - max)) along ``axis``. A row of -inf gives NaN."""
    wide = cast(x, dtypes.compute_dtype(x.dtype))
    weights = exp(_shifted(wide, axis))
    total = stretch(reduce_sum(weights, axes=(axis,)), (axis,), tuple(x.shape))
    return cast(div(weights, total), x.dtype)


@composite(
    shape=_axis_shape("log_softmax"),
    operands=(_FLOAT,),
    results=(_FLOAT,),
    tolerance=Relative(16),
    samples=_axis_samples,
)
def log_softmax(x: Operand, *, axis: int) -> Operand:
    """x - max - log(sum(exp(x - max))) along ``axis``: the logarithm of `softmax`, without overflow and without its
    underflow to -inf. A row of -inf gives NaN. 16-bit floats compute in float32.
    """
    wide = cast(x, dtypes.compute_dtype(x.dtype))
    shifted = _shifted(wide, axis)
    total = log(reduce_sum(exp(shifted), axes=(axis,)))
    return cast(sub(shifted, stretch(total, (axis,), tuple(x.shape))), x.dtype)


@composite(
    shape=_axis_shape("safe_softmax"),
    operands=(_FLOAT,),
    results=(_FLOAT,),
    tolerance=Relative(16),
    samples=_axis_samples,
)
def safe_softmax(x: Operand, *, axis: int) -> Operand:
    """`softmax`, but a row whose every element is -inf gives zeros (a query that may attend to nothing)."""
    largest = largest_along(x, axis)
    empty = stretch(eq(largest, constant(largest, -math.inf)), (axis,), tuple(x.shape))
    return select(empty, constant(x, 0.0), softmax(x, axis=axis))
