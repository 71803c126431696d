"""Makes a typed graph runnable Python: symbols are bound from the inputs at the top of the function.

Does not: place or lower anything; every call runs the target's own reference.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import fx

from backend_sdk.errors import DialectError
from backend_sdk.spec import SymExpr, TensorType
from backend_sdk.torch_compat.symbolic import indicated_symbol


def runnable(graph: fx.Graph, attributes: dict[str, Any] | None = None) -> fx.GraphModule:
    """A module that runs ``graph``. ``attributes`` are the targets of its ``get_attr`` nodes."""
    graph.set_codegen(_SymbolBindingCodeGen(symbol_sources(graph)))
    return fx.GraphModule(_Attributes(attributes or {}), graph)


class _Attributes(torch.nn.Module):
    def __init__(self, attributes: dict[str, Any]) -> None:
        super().__init__()
        for name, value in attributes.items():
            setattr(self, name, value)


class _SymbolBindingCodeGen(fx.graph.CodeGen):
    def __init__(self, sources: dict[str, str]) -> None:
        super().__init__()
        self._sources = sources

    def gen_fn_def(self, *args: Any, **kwargs: Any) -> str:
        text = super().gen_fn_def(*args, **kwargs)
        # Expressions over sizes may call it. Not a global: fx takes the module for torch.math.
        lines = ["import math"] if self._sources else []
        lines += [f"{symbol} = {source}" for symbol, source in self._sources.items()]
        return text + "".join(f"\n    {line}" for line in lines)


def symbol_sources(graph: fx.Graph) -> dict[str, str]:
    """For each symbol of the graph, the Python source that reads it off an input: ``{"s0": "x.shape[0]"}``.

    Raises `DialectError` for a symbol that no input binds.
    """
    wanted: set[str] = set()
    for node in graph.nodes:
        wanted |= symbols_of(node.meta.get("type")) | symbols_of(node.args) | symbols_of(node.kwargs)
    sources = bound_symbols((node.name, node.meta.get("type")) for node in graph.nodes if node.op == "placeholder")
    unbound = wanted - sources.keys()
    if unbound:
        raise DialectError(f"no graph input binds the symbols {', '.join(sorted(unbound))}")
    return {symbol: source for symbol, source in sources.items() if symbol in wanted}


def bound_symbols(inputs: Iterable[tuple[str, Any]]) -> dict[str, str]:
    """The symbols that inputs, given as (variable, type), bind, with the source that reads each."""
    sources: dict[str, str] = {}
    for name, type in inputs:
        if isinstance(type, SymExpr) and type.is_symbol:
            sources.setdefault(type.source, name)
        elif isinstance(type, SymExpr):
            symbol = indicated_symbol(type.expr)
            if symbol is not None:
                sources.setdefault(symbol, f"int({name})")
            elif len(type.symbols) == 1 and not type.expr.is_Relational:
                (only,) = type.expr.free_symbols
                if (type.expr - only).is_Integer:
                    sources.setdefault(str(only), f"({name} - {int(type.expr - only)})")
        elif isinstance(type, TensorType):
            for index, dim in enumerate(type.shape):
                if isinstance(dim, SymExpr) and dim.is_symbol:
                    sources.setdefault(dim.source, f"{name}.shape[{index}]")
    return sources


def symbols_of(value: Any) -> set[str]:
    """Names of all symbols in a type, a shape, an argument or a nest of them."""
    if isinstance(value, SymExpr):
        return set(value.symbols)
    if isinstance(value, TensorType):
        return symbols_of(value.shape)
    if isinstance(value, dict):
        return _union(value.values())
    if isinstance(value, (tuple, list)):
        return _union(value)
    return set()


def _union(values: Iterable[Any]) -> set[str]:
    found: set[str] = set()
    for value in values:
        found |= symbols_of(value)
    return found
