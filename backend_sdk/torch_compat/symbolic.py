"""torch's symbolic shapes, as sympy expressions and Python source."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Mapping
from types import CodeType
from typing import Any

import torch


def expression(number: Any) -> Any:
    """The simplified sympy expression of a ``torch.SymInt``, ``SymFloat`` or ``SymBool``."""
    node = number.node
    if node.shape_env is None:
        return node.expr
    return _without_exact_division(node.shape_env.simplify(node.expr), node.shape_env)


def _without_exact_division(expr: Any, shape_env: Any) -> Any:
    """``2*(s0//2)`` as ``s0`` where torch knows that s0 is even, so that equal sizes compare equal."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true
    from torch.utils._sympy.functions import FloorDiv

    exact = {}
    for division in expr.atoms(FloorDiv):
        numerator, denominator = division.args
        if denominator.is_Integer:
            dividend = shape_env.create_symintnode(numerator, hint=None)
            if statically_known_true(dividend % int(denominator) == 0):
                exact[division] = numerator / denominator
    simpler = expr.xreplace(exact).expand() if exact else expr
    # A quotient that does not cancel stays a floor division, which is integer arithmetic in Python.
    return expr if any(not number.is_Integer for number in simpler.atoms() if number.is_Number) else simpler


def indicated_symbol(expr: Any) -> str | None:
    """The symbol s when ``expr`` is ``Eq(s, 1)``, which is how torch writes a bool that only data decides."""
    is_indicator = expr.is_Relational and expr.rel_op == "==" and expr.lhs.is_Symbol and expr.rhs == 1
    return str(expr.lhs) if is_indicator else None


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


def smaller(left: Any, right: Any) -> Any:
    """The smaller of two expressions, in torch's own form."""
    from torch.utils._sympy.functions import Min

    return Min(left, right)


def larger(left: Any, right: Any) -> Any:
    """The larger of two expressions, in torch's own form."""
    from torch.utils._sympy.functions import Max

    return Max(left, right)


def evaluate(source: str, symbols: Mapping[str, int | float]) -> int | float:
    """Evaluate source that `python_source` printed."""
    return eval(_compiled(source), {"math": math, "torch": torch}, dict(symbols))  # type: ignore[no-any-return]


@functools.lru_cache(maxsize=4096)
def _compiled(source: str) -> CodeType:
    return compile(source, "<symbolic expression>", "eval")


def largest(size: Any) -> int:
    """The largest number that a size can be, by what torch knows of it while it traces; of an int, itself.

    Raises `RuntimeError` for a size that nothing bounds.
    """
    if isinstance(size, int):
        return size
    bound = size.node.shape_env.bound_sympy(size.node.expr).upper
    if not bound.is_Integer or int(bound) >= sys.maxsize - 1:
        raise RuntimeError(f"the size {size} has no bound that torch knows of: nothing can be made in its largest size")
    return int(bound)
