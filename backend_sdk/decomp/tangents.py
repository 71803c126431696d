"""Rules for derivatives in forward mode that aten has ops for: of the gated linear unit and of its gradient."""

from __future__ import annotations

from typing import Any

import torch

from backend_sdk import dtypes, prims
from backend_sdk.decomp.promotion import axis_of
from backend_sdk.decomp.registry import decomposition
from backend_sdk.decomp.shape import slice_axis
from backend_sdk.graph import Value
from backend_sdk.prims.shorthand import cast, constant, scaled
from backend_sdk.spec import TensorType
from backend_sdk.torch_compat.ops import aten


def _halves(x: Value, dim: int, dtype: torch.dtype) -> tuple[Value, Value]:
    axis = axis_of(dim, x.ndim)
    size = x.shape[axis]
    middle = size // 2
    wide = cast(x, dtype)
    return slice_axis(wide, axis, 0, middle), slice_axis(wide, axis, middle, size)


def _total(*terms: Value) -> Value:
    result = terms[0]
    for term in terms[1:]:
        result = prims.add(result, term)
    return result


@decomposition(aten.glu_jvp.default)
def glu_jvp(out: TensorType, glu: Value, x: Value, dx: Value, dim: int) -> Any:
    """Of a s, with a and b the halves of x and s = sigmoid(b): s da + a s (1 - s) db."""
    wide = dtypes.compute_dtype(out.dtype)
    _, gate = _halves(x, dim, wide)
    da, db = _halves(dx, dim, wide)
    s = prims.sigmoid(gate)
    rest = prims.sub(constant(s, 1.0), s)
    return cast(_total(prims.mul(s, da), prims.mul(prims.mul(cast(glu, wide), rest), db)), out.dtype)


@decomposition(aten.glu_backward_jvp.default)
def glu_backward_jvp(
    out: TensorType, grad_x: Value, grad_glu: Value, x: Value, dgrad_glu: Value, dx: Value, dim: int
) -> Any:
    """Of the gradient (g s, g a s (1 - s)) for the upstream gradient g: by the product rule, half by half."""
    wide = dtypes.compute_dtype(out.dtype)
    a, gate = _halves(x, dim, wide)
    da, db = _halves(dx, dim, wide)
    g, dg = cast(grad_glu, wide), cast(dgrad_glu, wide)
    s = prims.sigmoid(gate)
    one = constant(s, 1.0)
    slope = prims.mul(s, prims.sub(one, s))
    ds = prims.mul(slope, db)
    dslope = prims.mul(ds, prims.sub(one, scaled(s, 2.0)))
    first = _total(prims.mul(dg, s), prims.mul(g, ds))
    second = _total(
        prims.mul(prims.mul(dg, a), slope),
        prims.mul(prims.mul(g, da), slope),
        prims.mul(prims.mul(g, a), dslope),
    )
    return cast(prims.concat(first, second, axis=axis_of(dim, x.ndim)), out.dtype)
