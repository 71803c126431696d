"""Rules for ops that tell tracing what a size or a tensor is, and compute nothing: by then torch has made use of it.

Does not: check data (`backend_sdk.torch_compat.ops.is_check` names what does).
"""

from __future__ import annotations

from typing import Any

from backend_sdk.decomp.registry import decomposition
from backend_sdk.graph import Value
from backend_sdk.torch_compat.ops import aten


@decomposition(aten.sym_constrain_range.default, aten.sym_constrain_range_for_size.default)
def bounds_of_a_number(out: None, size: Any, *, min: int | None = None, max: int | None = None) -> None:
    """torch's own checks of the number stand in the graph beside it."""


@decomposition(aten._functional_sym_constrain_range.default, aten._functional_sym_constrain_range_for_size.default)
def bounds_that_hand_on_a_token(out: Any, size: Any, min: int | None, max: int | None, dep_token: Value) -> Value:
    """The token keeps effects in order, and this one has none."""
    return dep_token


@decomposition(aten._assert_tensor_metadata.default)
def metadata_of_a_tensor(out: None, x: Value, *_: Any, **__: Any) -> None:
    """Sizes, strides, dtype, device and layout, which torch has compared as it traced."""
