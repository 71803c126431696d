"""Rules for ``torch.ops.prims``, the ops in which torch's own decompositions are written.

They neither promote nor broadcast, so that the rule of the aten op serves. Those whose arguments differ follow.
"""

from __future__ import annotations

from typing import Any

from backend_sdk import dtypes, prims
from backend_sdk.decomp import elementwise, reduction, shape
from backend_sdk.decomp.promotion import spread
from backend_sdk.decomp.registry import RULES, decomposition
from backend_sdk.graph import Value
from backend_sdk.spec import TensorType
from backend_sdk.torch_compat.ops import aten, prims_of_torch

# Ops that are called as the aten op of that name (or of the name given).
_DEFAULT = {
    name: name
    for name in [
        "abs",
        "acos",
        "acosh",
        "asin",
        "asinh",
        "atan",
        "atan2",
        "atanh",
        "bitwise_not",
        "ceil",
        "clone",
        "cos",
        "cosh",
        "erf",
        "erfc",
        "exp",
        "exp2",
        "expm1",
        "floor",
        "fmax",
        "fmin",
        "isfinite",
        "log",
        "log10",
        "log1p",
        "log2",
        "maximum",
        "minimum",
        "neg",
        "reciprocal",
        "round",
        "rsqrt",
        "sign",
        "sin",
        "sinh",
        "sqrt",
        "tan",
        "tanh",
        "trunc",
        "cat",
        "full",
        "full_like",
        "reshape",
    ]
} | {"erf_inv": "erfinv"}
_TENSOR = {
    name: name
    for name in [
        "add",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "eq",
        "fmod",
        "ge",
        "gt",
        "le",
        "lt",
        "mul",
        "ne",
        "remainder",
        "sub",
    ]
} | {"shift_left": "bitwise_left_shift", "shift_right_arithmetic": "bitwise_right_shift"}

for _table, _overload in ((_DEFAULT, "default"), (_TENSOR, "Tensor")):
    for _name, _of in _table.items():
        _rule = RULES[getattr(getattr(aten, _of), _overload)]
        decomposition(getattr(prims_of_torch, _name).default)(_rule)

decomposition(prims_of_torch.pow.default)(elementwise.pow)
decomposition(prims_of_torch.where.default)(elementwise.where)
decomposition(prims_of_torch.fill.default)(shape.fill)


@decomposition(prims_of_torch.div.default)
def div(out: TensorType, x: Any, y: Any) -> Any:
    """Integers truncate."""
    if out.dtype in dtypes.INTEGRAL:
        return elementwise.div_mode(out, x, y, "trunc")
    return prims.div(spread(x, out.shape, out.dtype), spread(y, out.shape, out.dtype))


@decomposition(prims_of_torch.amax.default)
def amax(out: TensorType, x: Value, dims: Any, *, output_dtype: Any = None) -> Any:
    return prims.reduce_max(x, axes=tuple(dims))


@decomposition(prims_of_torch.amin.default)
def amin(out: TensorType, x: Value, dims: Any, *, output_dtype: Any = None) -> Any:
    return prims.reduce_min(x, axes=tuple(dims))


@decomposition(prims_of_torch.prod.default)
def prod(out: TensorType, x: Value, dims: Any, *, output_dtype: Any = None) -> Any:
    return reduction.prod_over(out, x, tuple(dims))


@decomposition(prims_of_torch.var.default)
def var(out: TensorType, x: Value, dims: Any, correction: Any = 1, *, output_dtype: Any = None) -> Any:
    return reduction.var(out, x, tuple(dims), correction=correction)
