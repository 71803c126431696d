"""Host steps: what the host does while a graph runs, where only the data decide a size. They compute nothing.

A rule whose result has a size that only the data decide computes that size as a value, and lets the host `read` it;
or it knows an expression for the size, and lets the host `define` it. Both bind the symbol that torch gave the size,
and whatever computes with the symbol comes after. Neither is a fallback: reading a number takes a copy from the device.

Does not: run them (the runner does, as any call outside the regions).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from backend_sdk.errors import DialectError
from backend_sdk.graph.builder import GraphBuilder, Value
from backend_sdk.spec import Shape, SymExpr, TensorType
from backend_sdk.spec.prim import active_builder
from backend_sdk.spec.symbolic import Dim
from backend_sdk.torch_compat.symbolic import indicated_symbol


class HostStep:
    """The target of a host step's node. Called, it does the step; ``reason`` says in a report what that is."""

    def __init__(self, name: str, function: Callable[..., Any], reason: str) -> None:
        self.__name__ = self.__qualname__ = name
        self.__module__ = "backend_sdk.graph.host"
        self.__doc__ = self.reason = reason
        self._function = function

    def __call__(self, *args: Any) -> Any:
        return self._function(*args)

    def __str__(self) -> str:
        return f"host.{self.__name__}"

    __repr__ = __str__

    def __reduce__(self) -> str:
        return self.__name__


read_number = HostStep("read_number", torch.Tensor.item, "the host reads a number off a tensor")
define_number = HostStep("define_number", lambda number: number, "the host computes a size from other sizes")
solve_size = HostStep(
    "solve_size",
    lambda x, axis, rest, factor: (x.shape[axis] - rest) // factor,
    "the host computes a size from that of an input",
)
view_memory = HostStep("view_memory", torch.as_strided, "the host looks at an input's memory in another way")


def read(value: Value, number: Any) -> None:
    """Let the host read the one element of ``value`` when the graph runs, as the number that torch calls ``number``.

    Does nothing when ``number`` is known already. Raises `DialectError` when it is no single symbol.
    """
    _bind(read_number, (value,), number)


def define(number: Any, expression: Any) -> None:
    """Let the host compute ``number``, which torch left open, as ``expression`` over numbers that are known."""
    _bind(define_number, (expression,), number)


def solve(value: Value, axis: int, decided: frozenset[str]) -> None:
    """Bind the symbols of a size of a graph input, such as ``u0 + u1``, that no input has by themselves.

    Sizes within the graph follow from those of its inputs, so any numbers will do of which the input's size is made:
    one symbol is what the known ones leave of it, and the other unknown ones are 0. Does nothing when a call of the
    graph binds one of them, as ``decided`` says, or when the size is no sum of multiples of them.
    """
    size = value.shape[axis]
    if not isinstance(size, SymExpr) or size.symbols & decided:
        return
    known = _builder().symbols
    unknown = sorted((symbol for symbol in size.expr.free_symbols if str(symbol) not in known), key=str)
    terms = size.expr.expand().as_coefficients_dict()
    factors = [int(terms[symbol]) for symbol in unknown]
    constant = size.expr - sum(factor * symbol for factor, symbol in zip(factors, unknown, strict=True))
    least = math.gcd(*factors)
    if least not in factors or constant.expand().free_symbols & set(unknown):
        return
    place = factors.index(least)
    for other in (*unknown[:place], *unknown[place + 1 :]):
        define(SymExpr.of(other), 0)
    rest = SymExpr.of(constant.expand())
    _bind(solve_size, (value, axis, rest, least), SymExpr.of(unknown[place]))


def memory_of(value: Value, type: TensorType, strides: Shape, offset: Dim) -> Value | None:
    """What lies in the memory of a graph input from element ``offset`` of its storage on: it may be more than the input
    itself shows. None when ``value`` is no graph input: the dialect's own values have no memory.
    """
    if value.node.op != "placeholder":
        return None
    builder = _builder()
    node = builder.call_foreign(view_memory, (value, type.shape, strides, offset), {})
    node.meta["host"] = view_memory.reason
    return builder.typed(node, (type,), single=True)  # type: ignore[no-any-return]


def is_open(number: Any) -> bool:
    """Whether a number of torch's has a symbol that nothing binds yet."""
    return isinstance(number, SymExpr) and not number.symbols <= _builder().symbols


def _bind(step: HostStep, arguments: tuple[Any, ...], number: Any) -> None:
    if not is_open(number):
        return
    if not number.is_symbol and indicated_symbol(number.expr) is None:
        raise DialectError(f"{step} cannot bind {number}: it is not one symbol")
    builder = _builder()
    node = builder.call_foreign(step, arguments, {})
    builder.typed(node, (number,), single=True)
    node.meta["host"] = step.reason
    node.meta["binds"] = builder.bind(number)


def _builder() -> GraphBuilder:
    builder = active_builder()
    assert isinstance(builder, GraphBuilder), "host steps are added while a graph is built"
    return builder
