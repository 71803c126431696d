"""Symbolic numbers: sizes and scalars that are known only when a graph runs.

A `SymExpr` is an expression over symbols (``s0``), each bound at the graph's entry. It is immutable, hashable,
compares by structure, prints as Python and evaluates with a symbol table.

Does not: guard. Whether two different expressions happen to be equal is decided while torch captures the
graph; a decomposition takes result shapes from there and never needs to ask again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from backend_sdk.errors import DialectError
from backend_sdk.torch_compat import symbolic as torch_symbolic

if TYPE_CHECKING:
    import sympy


class SymExpr:
    """A symbolic integer or float, wrapping a sympy expression."""

    __slots__ = ("_source", "expr")

    def __init__(self, expr: sympy.Expr) -> None:
        self.expr = expr
        self._source: str | None = None

    @staticmethod
    def of(expr: Any) -> SymExpr | int | float:
        """``expr`` as a plain number when it is constant, else as a `SymExpr`."""
        if expr.is_Integer:
            return int(expr)
        if expr.is_Number:
            return float(expr)
        return SymExpr(expr)

    @property
    def symbols(self) -> frozenset[str]:
        """Names of the symbols that must be bound to evaluate this expression."""
        return frozenset(str(symbol) for symbol in self.expr.free_symbols)

    @property
    def is_symbol(self) -> bool:
        """Whether the expression is one bare symbol, which an input can bind."""
        return bool(self.expr.is_Symbol)

    @property
    def source(self) -> str:
        """The expression as Python source over its symbols (and ``math``)."""
        if self._source is None:
            self._source = torch_symbolic.python_source(self.expr)
        return self._source

    def evaluate(self, symbols: Mapping[str, int | float]) -> int | float:
        """The value under ``symbols``. Raises `DialectError` when a symbol is missing."""
        missing = self.symbols - symbols.keys()
        if missing:
            raise DialectError(f"cannot evaluate {self.source}: no value for {', '.join(sorted(missing))}")
        return torch_symbolic.evaluate(self.source, symbols)

    def __repr__(self) -> str:
        return self.source

    def __hash__(self) -> int:
        return hash(self.expr)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SymExpr) and bool(self.expr == other.expr)

    def __add__(self, other: Dim) -> Dim:
        return _number(self.expr + _expr(other))

    __radd__ = __add__

    def __sub__(self, other: Dim) -> Dim:
        return _number(self.expr - _expr(other))

    def __rsub__(self, other: Dim) -> Dim:
        return _number(_expr(other) - self.expr)

    def __mul__(self, other: Dim) -> Dim:
        return _number(self.expr * _expr(other))

    __rmul__ = __mul__

    def __neg__(self) -> Dim:
        return _number(-self.expr)

    def __floordiv__(self, other: Dim) -> Dim:
        return _number(torch_symbolic.floor_divide(self.expr, _expr(other)))

    def __rfloordiv__(self, other: Dim) -> Dim:
        return _number(torch_symbolic.floor_divide(_expr(other), self.expr))

    def __mod__(self, other: Dim) -> Dim:
        return _number(torch_symbolic.modulo(self.expr, _expr(other)))

    def __rmod__(self, other: Dim) -> Dim:
        return _number(torch_symbolic.modulo(_expr(other), self.expr))

    def __bool__(self) -> bool:
        raise DialectError(
            f"the symbolic value {self.source} has no truth value while the graph is being built",
            hint="compare with `==`, or take the decision from a result shape",
        )


def smaller(left: Dim, right: Dim) -> Dim:
    """The smaller of two sizes."""
    if isinstance(left, int) and isinstance(right, int):
        return min(left, right)
    return _number(torch_symbolic.smaller(_expr(left), _expr(right)))


def larger(left: Dim, right: Dim) -> Dim:
    """The larger of two sizes."""
    if isinstance(left, int) and isinstance(right, int):
        return max(left, right)
    return _number(torch_symbolic.larger(_expr(left), _expr(right)))


def symbol(name: str) -> SymExpr:
    """The bare symbol called ``name``, a size."""
    import sympy

    return SymExpr(sympy.Symbol(name, integer=True))


Dim = int | SymExpr
Shape = tuple[Dim, ...]
Scalar = bool | int | float | complex | SymExpr


def _expr(value: Any) -> Any:
    return value.expr if isinstance(value, SymExpr) else value


def _number(expr: Any) -> Dim:
    number = SymExpr.of(expr)
    assert not isinstance(number, float)
    return number


def is_symbolic(shape: Shape) -> bool:
    """Whether any dimension is symbolic."""
    return any(isinstance(dim, SymExpr) for dim in shape)


def may_be_empty(shape: Shape) -> bool:
    """Whether a size is, or may turn out to be, 0. torch says of a size that an input has that it is positive."""
    return any(not dim.expr.is_positive if isinstance(dim, SymExpr) else dim == 0 for dim in shape)


def differ(left: Shape, right: Shape) -> bool:
    """Whether two shapes are known to be different.

    Equal sizes may have different expressions: torch guards that ``s0 * s1 == s2 * s3`` and keeps both. So a rule
    refuses only what cannot be equal, another rank, other numbers, or expressions a constant apart.
    """
    return len(left) != len(right) or any(_apart(a, b) for a, b in zip(left, right, strict=True))


def _apart(left: Dim, right: Dim) -> bool:
    if isinstance(left, int) and isinstance(right, int):
        return left != right
    distance = _expr(left) - _expr(right)
    return bool(distance.is_number) and bool(distance != 0)


def element_count(shape: Shape) -> Dim:
    """Product of the dimensions (1 for a scalar)."""
    count: Dim = 1
    for dim in shape:
        count = count * dim
    return count


def contiguous_strides(shape: Shape) -> Shape:
    """Strides, in elements, of a row-major tensor of ``shape``; zero-size dims count as one, as in torch."""
    strides: list[Dim] = []
    step: Dim = 1
    for dim in reversed(shape):
        strides.append(step)
        step = step * (1 if dim == 0 else dim)
    return tuple(reversed(strides))


def concrete(value: Any, symbols: Mapping[str, int | float]) -> Any:
    """``value`` (nested tuples and lists of numbers) with every `SymExpr` evaluated."""
    if isinstance(value, SymExpr):
        return value.evaluate(symbols)
    if isinstance(value, (tuple, list)):
        return type(value)(concrete(item, symbols) for item in value)
    return value
