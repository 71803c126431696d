"""What the reference of an elementwise op gives for special values: a table to read.

Does not: judge, or state more than the reference says on this machine.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import torch

from backend_sdk import dtypes
from backend_sdk.published.export import decoded
from backend_sdk.selfcheck import samples_of
from backend_sdk.spec import Prim

# The values of a table of two operands: of each kind one, as the table has as many rows as columns. Without the least
# integer: the processor traps when that is divided by -1.
_OF_TWO: dict[torch.dtype, list[Any]] = {
    torch.float32: ["nan", "inf", "-inf", 0.0, -0.0, 1.0, -1.0, 0.5],
    torch.int32: [0, 1, -1, 2, -7, torch.iinfo(torch.int32).max],
    torch.bool: [False, True],
}

# What stands in a table for a value that the op does not promise.
UNDEFINED = "undefined"

_SHOWN_DTYPES = (torch.float32, torch.int32, torch.bool)
# Forms of an op, by its attributes, of which each gets a table.
_MOST_FORMS = 4


@dataclass(frozen=True)
class Table:
    """``rows`` of values and results as text: one row a value, or with two operands one row and column a value."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def tables(op: Prim, data: dict[str, Any]) -> list[Table]:
    """The tables of an op whose document is ``data``; none unless it is elementwise with one result and at most two
    operands of one dtype.
    """
    operands = data["operands"]
    plain = len(operands) in (1, 2) and len({str(operand["dtype"]) for operand in operands}) == 1
    if not data["elementwise"] or not plain or len(data["results"]) != 1:
        return []
    taken = [dtypes.by_name(name) for name in data["special_values"]]
    shown = [dtype for dtype in _SHOWN_DTYPES if dtype in taken] or taken[-1:]
    return [
        table for dtype in shown for attributes in _forms(op, dtype) for table in _table(op, data, dtype, attributes)
    ]


def _forms(op: Prim, dtype: torch.dtype) -> list[dict[str, Any]]:
    forms = {repr(sorted(sample.attributes.items())): dict(sample.attributes) for sample in samples_of(op, dtype)}
    return list(forms.values())[:_MOST_FORMS]


def _table(op: Prim, data: dict[str, Any], dtype: torch.dtype, attributes: dict[str, Any]) -> list[Table]:
    names = [operand["name"] for operand in data["operands"]]
    given = ", ".join(f"{name}={_attribute(value)}" for name, value in attributes.items())
    title = f"{dtypes.name(dtype)}{', ' + given if given else ''}"
    call = f"{op.name}({', '.join(names)})"
    if len(names) == 1:
        values = [decoded(value) for value in data["special_values"][dtypes.name(dtype)]]
        operand = torch.tensor(values, dtype=dtype)
        undefined = _undefined(op, (operand,), attributes)
        results = _shown(op.reference(operand, **attributes))
        cells = [UNDEFINED if open_ else result for open_, result in zip(undefined, results, strict=True)]
        return [Table(title, (names[0], call), tuple(zip(map(shown, values), cells, strict=True)))]
    if dtype not in _OF_TWO:
        return []
    values = [decoded(value) for value in _OF_TWO[dtype]]
    results = [_of_pair(op, pair, dtype, attributes) for pair in itertools.product(values, values)]
    size = len(values)
    rows = tuple((shown(value), *results[i * size : (i + 1) * size]) for i, value in enumerate(values))
    return [Table(title, (f"{names[0]} \\ {names[1]}", *map(shown, values)), rows)]


def _of_pair(op: Prim, pair: tuple[Any, ...], dtype: torch.dtype, attributes: dict[str, Any]) -> str:
    operands = tuple(torch.tensor([value], dtype=dtype) for value in pair)
    if _undefined(op, operands, attributes)[0]:
        return UNDEFINED
    try:
        return _shown(op.reference(*operands, **attributes))[0]
    except RuntimeError:
        # An integer to a negative power: the reference raises.
        return "raises"


def _undefined(op: Prim, operands: tuple[torch.Tensor, ...], attributes: dict[str, Any]) -> list[bool]:
    """Of which elements the op promises no value, whatever its reference gives here."""
    if op.undefined is None:
        return [False] * operands[0].numel()
    found: list[bool] = op.undefined(*operands, **attributes).tolist()
    return found


def _shown(results: torch.Tensor) -> list[str]:
    return [shown(value) for value in results.tolist()]


def shown(value: Any) -> str:
    """A number as a person reads it: seven digits, which are all that a float32 has."""
    if isinstance(value, int):
        return str(value)
    if isinstance(value, complex):
        return f"{shown(value.real)} {'-' if math.copysign(1.0, value.imag) < 0 else '+'} {shown(abs(value.imag))}i"
    return f"{value:.7g}"


def _attribute(value: Any) -> str:
    return dtypes.name(value) if isinstance(value, torch.dtype) else repr(value)
