"""Host steps: what the host does while a graph runs, where only the data decide a size. They compute nothing.

A rule whose result has a size that only the data decide computes that size as a value, and lets the host `read` it;
or it knows an expression for the size, and lets the host `define` it. Both bind the symbol that torch gave the size,
and whatever computes with the symbol comes after. Neither is a fallback: reading a number takes a copy from the device.

Does not: run them (the runner does, as any call outside the regions).
"""

from __future__ import annotations

from typing import Any

import torch

from backend_sdk.errors import DialectError
from backend_sdk.graph.builder import GraphBuilder, Value
from backend_sdk.spec import SymExpr
from backend_sdk.spec.prim import active_builder
from backend_sdk.torch_compat.symbolic import indicated_symbol


class HostStep:
    """The target of a host step's node. Called, it does the step."""

    def __init__(self, name: str, doc: str) -> None:
        self.__name__ = self.__qualname__ = name
        self.__module__ = "backend_sdk.graph.host"
        self.__doc__ = self.reason = doc

    def __call__(self, value: Any) -> Any:
        return value.item() if isinstance(value, torch.Tensor) else value

    def __str__(self) -> str:
        return f"host.{self.__name__}"

    __repr__ = __str__

    def __reduce__(self) -> str:
        return self.__name__


read_number = HostStep("read_number", "the host reads a number off a tensor")
define_number = HostStep("define_number", "the host computes a size from other sizes")


def read(value: Value, number: Any) -> None:
    """Let the host read the one element of ``value`` when the graph runs, as the number that torch calls ``number``.

    Does nothing when ``number`` is known already. Raises `DialectError` when it is no single symbol.
    """
    _bind(read_number, value, number)


def define(number: Any, expression: Any) -> None:
    """Let the host compute ``number``, which torch left open, as ``expression`` over numbers that are known."""
    _bind(define_number, expression, number)


def is_open(number: Any) -> bool:
    """Whether a number of torch's has a symbol that nothing binds yet."""
    return isinstance(number, SymExpr) and not number.symbols <= _builder().symbols


def _bind(step: HostStep, source: Any, number: Any) -> None:
    if not is_open(number):
        return
    if not number.is_symbol and indicated_symbol(number.expr) is None:
        raise DialectError(f"{step} cannot bind {number}: it is not one symbol")
    builder = _builder()
    node = builder.call_foreign(step, (source,), {})
    builder.typed(node, (number,), single=True)
    node.meta["host"] = step.reason
    node.meta["binds"] = builder.bind(number)


def _builder() -> GraphBuilder:
    builder = active_builder()
    assert isinstance(builder, GraphBuilder), "host steps are added while a graph is built"
    return builder
