"""Ops that torch takes apart before any backend is asked, kept whole while a graph is captured.

Does not: decompose them (`backend_sdk.decomp` does).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

from torch._C import DispatchKey
from torch._ops import OpOverload

from backend_sdk.torch_compat import decompositions
from backend_sdk.torch_compat.overloads import aten_overloads, base_name

# Where torch's Python kernels that take an op apart are registered.
KEYS = (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)


@contextlib.contextmanager
def kept_whole() -> Iterator[None]:
    """Within, resizing (``upsample_...``) and ``multilabel_margin_loss_forward`` reach a captured graph as one op.

    torch has Python kernels that take them apart under autograd. Symptoms: an axis that keeps its size under a scale
    (4 elements by 1.2) is resampled, where eager copies it; nearest neighbors by a contradictory scale lie beyond the
    axis; the loss takes the -1 that ends a list of targets, and what follows it, for targets. And no backend is asked
    whether it has the op.
    """
    # torch makes its table, once, of these very kernels.
    decompositions.table()
    removed = {op: {key: op.py_kernels.pop(key) for key in KEYS if key in op.py_kernels} for op in kept_overloads()}
    for op in removed:
        op._dispatch_cache.clear()
    try:
        yield
    finally:
        for op, kernels in removed.items():
            op.py_kernels.update(kernels)
            op._dispatch_cache.clear()


@functools.cache
def kept_overloads() -> tuple[OpOverload, ...]:
    """The overloads whose Python kernels are taken out within `kept_whole`."""
    return tuple(
        op
        for op in aten_overloads().values()
        if "backward" not in base_name(op)
        and ("upsample" in base_name(op) or base_name(op) == "multilabel_margin_loss_forward")
    )
