"""Rounding errors of every step of a call, made visible: each intermediate result is moved at random.

The idea is Monte Carlo arithmetic (D. S. Parker, "Monte Carlo Arithmetic", UCLA CSD-970002, 1997).

Does not: say how large an error may be (`coverage.agreement` does).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from backend_sdk.torch_compat import trees
from backend_sdk.torch_compat.overloads import is_mutable, is_view


def moved(tensor: torch.Tensor, generator: torch.Generator, size: float) -> torch.Tensor:
    """The tensor with each part of each number moved, at random, by up to ``size`` of itself."""
    parts = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    moves = torch.rand(parts.shape, generator=generator, dtype=torch.float64) * 2 - 1
    parts = parts * (1 + size * moves)
    return torch.view_as_complex(parts) if tensor.is_complex() else parts


class _Rounding(TorchDispatchMode):
    def __init__(self, generator: torch.Generator, size: float) -> None:
        super().__init__()
        self._generator, self._size = generator, size

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = func(*args, **(kwargs or {}))
        # What is written in place, and what shows an argument's own memory, is moved where it was made.
        if is_mutable(func) or is_view(func):
            return results
        flat, structure = trees.flatten(results)
        return trees.unflatten([self._move(leaf) for leaf in flat], structure)

    def _move(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) and leaf.dtype in (torch.float64, torch.complex128):
            return moved(leaf, self._generator, self._size)
        return leaf


@contextmanager
def rounding(generator: torch.Generator, size: float) -> Iterator[None]:
    """Within the context every op's float64 and complex128 results are moved by up to ``size`` of themselves.

    Attention is computed in its parts: within one kernel nothing can be moved.
    """
    with sdpa_kernel(SDPBackend.MATH), _Rounding(generator, size):
        yield
