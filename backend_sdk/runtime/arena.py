"""The arena: one allocation that holds a plan's intermediate buffers, reused as their lifetimes allow.

Does not: hold results that leave the plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from backend_sdk.runtime.device import Device

ALIGNMENT = 64  # bytes: a cache line, and the widest vector register in use


@dataclass(frozen=True)
class Lifetime:
    """A buffer of ``nbytes`` that is written at step ``first`` and last read at step ``last``."""

    nbytes: int
    first: int
    last: int


def layout(lifetimes: Sequence[Lifetime]) -> tuple[list[int], int]:
    """Offsets for all buffers and the size of the arena, in bytes.

    Greedy by size: each buffer, largest first, goes to the lowest offset at which it meets no buffer that lives
    at the same time (Pisarchyk and Lee, "Efficient memory management for deep neural net inference",
    arXiv:2001.03288, algorithm 3).
    """
    offsets = [0] * len(lifetimes)
    placed: list[tuple[int, int, Lifetime]] = []
    size = 0
    for index in sorted(range(len(lifetimes)), key=lambda i: -lifetimes[i].nbytes):
        buffer = lifetimes[index]
        need = -(-buffer.nbytes // ALIGNMENT) * ALIGNMENT
        offset = 0
        for start, end, other in placed:
            if other.last < buffer.first or buffer.last < other.first:
                continue
            if offset + need <= start:
                break
            offset = max(offset, end)
        offsets[index] = offset
        size = max(size, offset + need)
        placed.append((offset, offset + need, buffer))
        placed.sort(key=lambda entry: entry[0])
    return offsets, size


class Arena:
    """An allocation cut into typed buffers."""

    def __init__(
        self,
        device: Device,
        shapes: Sequence[tuple[int, ...]],
        dtypes: Sequence[torch.dtype],
        offsets: Sequence[int],
        size: int,
    ) -> None:
        self.memory = device.allocate(size)
        self.start = self.memory.data_ptr()
        self.end = self.start + size
        self.buffers = tuple(
            self._buffer(shape, dtype, offset) for shape, dtype, offset in zip(shapes, dtypes, offsets, strict=True)
        )

    def _buffer(self, shape: tuple[int, ...], dtype: torch.dtype, offset: int) -> torch.Tensor:
        count = 1
        for size in shape:
            count *= size
        return self.memory[offset : offset + count * dtype.itemsize].view(dtype).reshape(shape)

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether ``tensor`` reads this arena's memory."""
        return self.start <= tensor.data_ptr() < self.end
