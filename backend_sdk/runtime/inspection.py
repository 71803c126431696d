"""What a checked run looks at around a kernel: operands that it changed, outputs that it left as they were.

Does not: say whose fault it is (the callers build the errors).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

# Integers of a dtype's width: what its values look like as bits. complex128 is two of the last.
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}


class Operands:
    """The bytes of a kernel's operands before it ran."""

    def __init__(self, values: Iterable[Any]) -> None:
        self._before = [
            (index, value, value.detach().clone())
            for index, operand in enumerate(values)
            for value in (operand if isinstance(operand, (tuple, list)) else (operand,))
            # Sizes are ints, effect tokens None.
            if isinstance(value, torch.Tensor) and value.layout == torch.strided
        ]

    def changed(self) -> int | None:
        """The index of the first operand whose bytes are not what they were; it then gets them back."""
        for index, value, before in self._before:
            if not torch.equal(_bits(value), _bits(before)):
                value.detach().copy_(before)
                return index
        return None


def untouched(run: Callable[[], None], outputs: Sequence[torch.Tensor]) -> tuple[int, int] | None:
    """Run a kernel that writes into dense ``outputs``; the first output that it left unwritten in part, and how many
    elements of it.

    Outputs hold NaN (the largest integer) before. Where a result holds just that, the kernel runs once more over
    something else: no kernel computes both.
    """
    suspects = _poisoned(run, outputs, -1)
    if not any(bool(suspect.any()) for suspect in suspects):
        return None
    results = [output.clone() for output in outputs]
    again = _poisoned(run, outputs, -2)
    for index, (one, other) in enumerate(zip(suspects, again, strict=True)):
        count = int((one & other).sum())
        if count:
            return index, -(-count // max(1, one.numel() // outputs[index].numel()))
    for output, result in zip(outputs, results, strict=True):
        output.copy_(result)
    return None


def _poisoned(run: Callable[[], None], outputs: Sequence[torch.Tensor], poison: int) -> list[torch.Tensor]:
    """Where each output still holds the poison after a run."""
    for output in outputs:
        _bits(output).fill_(_pattern(output.dtype, poison))
    run()
    return [_bits(output) == _pattern(output.dtype, poison) for output in outputs]


def _pattern(dtype: torch.dtype, poison: int) -> int:
    """-1 and -2 are NaN in all IEEE formats and no bool; of a signed integer, the largest value and the next."""
    if dtype.is_floating_point or dtype.is_complex or dtype == torch.bool or not dtype.is_signed:
        return poison
    return torch.iinfo(dtype).max + 1 + poison


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """The bits of each element as integers; a view of a dense tensor."""
    dense = tensor.detach().resolve_conj().resolve_neg().contiguous()
    flat = dense.reshape(-1)
    # One element may have any stride and still count as dense; a view under another dtype wants 1.
    return flat.as_strided(flat.shape, (1,)).view(_BITS[tensor.dtype.itemsize])
