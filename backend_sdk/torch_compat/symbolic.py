"""torch's symbolic shapes, as sympy expressions and Python source."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from types import CodeType
from typing import Any

import torch


def expression(number: Any) -> Any:
    """The simplified sympy expression of a ``torch.SymInt``, ``SymFloat`` or ``SymBool``."""
    node = number.node
    return node.shape_env.simplify(node.expr) if node.shape_env is not None else node.expr


def python_source(expr: Any) -> str:
    """``expr`` as Python source over its symbols and the ``math`` module."""
    from torch.utils._sympy.printers import PythonPrinter

    return str(PythonPrinter().doprint(expr))


def floor_divide(numerator: Any, denominator: Any) -> Any:
    """Floor division in torch's own canonical form, so that it compares equal to torch's expressions."""
    from torch.utils._sympy.functions import FloorDiv

    return FloorDiv(numerator, denominator)


def modulo(numerator: Any, denominator: Any) -> Any:
    """Python's ``%`` in torch's own canonical form."""
    from torch.utils._sympy.functions import PythonMod

    return PythonMod(numerator, denominator)


def evaluate(source: str, symbols: Mapping[str, int | float]) -> int | float:
    """Evaluate source that `python_source` printed."""
    return eval(_compiled(source), {"math": math, "torch": torch}, dict(symbols))  # type: ignore[no-any-return]


@functools.lru_cache(maxsize=4096)
def _compiled(source: str) -> CodeType:
    return compile(source, "<symbolic expression>", "eval")
