"""torch's catalogue of sample calls (OpInfo), which its own tests run.

Does not: run a sample.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from backend_sdk.errors import OptionError


@functools.cache
def op_infos() -> Mapping[str, Any]:
    """Every OpInfo by its full name, in the catalogue's order. Raises `OptionError` without the extra ``test``."""
    try:
        from torch.testing._internal.common_methods_invocations import op_db
    except ImportError as error:
        raise OptionError(
            f"torch's catalogue of sample calls cannot be imported: {error}",
            hint="pip install 'backend-sdk[test]' (it needs expecttest)",
        ) from error
    return {op.full_name: op for op in op_db}


def samples(op: Any, dtype: torch.dtype, *, requires_grad: bool) -> Iterator[Any]:
    """The sample calls of an OpInfo, the same at each call."""
    torch.manual_seed(0)
    yield from op.sample_inputs("cpu", dtype, requires_grad=requires_grad)


@contextlib.contextmanager
def unseeded() -> Iterator[None]:
    """Within it the catalogue's random ops draw by the caller's seed: by themselves each sets one, always the same."""
    from torch.testing._internal import common_methods_invocations

    catalogue = vars(common_methods_invocations)
    seeded = catalogue["wrapper_set_seed"]
    catalogue["wrapper_set_seed"] = lambda op, *args, **kwargs: op(*args, **kwargs)
    try:
        yield
    finally:
        catalogue["wrapper_set_seed"] = seeded


def has_forward(op: Any, dtype: torch.dtype) -> bool:
    """Whether eager computes the op in ``dtype``."""
    return dtype in op.supported_dtypes("cpu")


def has_backward(op: Any, dtype: torch.dtype) -> bool:
    """Whether eager differentiates the op in ``dtype``."""
    return bool(op.supports_autograd) and dtype in op.supported_backward_dtypes("cpu")


def supports(op: Any, dtype: str) -> bool:
    """`has_forward` by the dtype's name."""
    return has_forward(op, getattr(torch, dtype))
