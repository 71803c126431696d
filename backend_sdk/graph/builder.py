"""Builds a prims graph: every call of a contract op on graph values becomes a node, or its body.

Equal calls become one node: the dialect has values only, so that is always right.

Does not: decide what a backend claims (it asks ``claims``).
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from backend_sdk.contract import op_name
from backend_sdk.errors import DialectError
from backend_sdk.graph.runnable import bound_symbols
from backend_sdk.spec import Composite, Prim, Shape, SymExpr, TensorType, differ


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a node comes from: the aten op it stems from and the user's source line."""

    op: str
    location: str | None = None


class Value:
    """A value of the graph under construction: looks like a tensor to bodies and decompositions.

    It cannot be changed. torch's own functions refuse it with a `DialectError`.
    """

    __slots__ = ("_node", "_type")

    def __init__(self, node: fx.Node, type: TensorType) -> None:
        self._node = node
        self._type = type

    @property
    def node(self) -> fx.Node:
        return self._node

    @property
    def type(self) -> TensorType:
        return self._type

    @property
    def shape(self) -> Shape:
        return self._type.shape

    @property
    def dtype(self) -> torch.dtype:
        return self._type.dtype

    @property
    def ndim(self) -> int:
        return len(self._type.shape)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # Found by torch's dispatcher in each call of a torch function or aten op with a value among its arguments.
        raise DialectError(
            f"{torch.overrides.resolve_name(function) or function} is called on a value of the graph: it is no op of "
            "the contract",
            hint="call ops of the contract (`backend-sdk spec` lists them): prims.neg(x)",
        )

    def __repr__(self) -> str:
        return f"{self.node.name}: {self.type}"

    def __bool__(self) -> bool:
        raise DialectError(
            f"the value {self!r} has no truth value while the graph is being built",
            hint="use select(condition, x, y) in place of a Python condition",
        )


# claims(op, operand types, result types, attributes) says whether a composite stays whole.
Claims = Callable[[Prim, tuple[TensorType | None, ...], tuple[TensorType, ...], dict[str, Any]], bool]


def claim_everything(*_: Any) -> bool:
    """A ``claims`` that keeps every composite whole."""
    return True


def claim_prims_only(*_: Any) -> bool:
    """A ``claims`` that replaces every composite by its body."""
    return False


class GraphBuilder:
    """Grows an ``fx.Graph`` of contract ops. ``origin`` is stamped on every node that is added; ``symbols`` are those
    that an input or an earlier node binds.
    """

    def __init__(self, claims: Claims = claim_everything) -> None:
        self.graph = fx.Graph()
        self.origin = Origin("")
        self._claims = claims
        self._known: dict[Any, Any] = {}
        # What each node was when it was added: whoever holds a value can reach, and spoil, the graph.
        self._made: dict[fx.Node, tuple[Any, ...]] = {}
        self._open: set[Any] = set()
        self._first_call: fx.Node | None = None
        self.symbols: set[str] = set()
        self.added: list[fx.Node] = []
        self._most_nodes: int | None = None

    def input(self, name: str, type: TensorType) -> Value:
        """A new graph input, after those that exist."""
        if self._first_call is None:
            node = self.graph.placeholder(name)
        else:
            with self.graph.inserting_before(self._first_call):
                node = self.graph.placeholder(name)
        node.meta["type"] = type
        node.meta["origin"] = self.origin
        self._made[node] = _content(node)
        return Value(node, type)

    def bind(self, type: Any) -> frozenset[str]:
        """Count the symbols that a value (or number) of ``type`` shows as bound; return those that are new."""
        new = frozenset(bound_symbols([("", type)])) - self.symbols
        self.symbols |= new
        return new

    def emit(self, op: Prim, operands: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
        """Add ``op``, or its body when the op is a composite that is not claimed.

        Raises `DialectError` when the call breaks the op's rules.
        """
        types = tuple([None if operand is None else self._type_of(op, operand) for operand in operands])
        key = _call_key(op, operands, attributes)
        known = self._known.get(key)
        if known is not None:
            return known
        results = op.infer(types, attributes)
        if op.identity is not None and op.identity(*types, **attributes):
            return operands[0]
        if isinstance(op, Composite) and not self._claims(op, types, results, attributes):
            value = self._body(op, operands, attributes, key)
            self._check_body(op, value, results)
        else:
            value = self.call(op, operands, attributes, results)
        self._known[key] = value
        return value

    @contextmanager
    def at_most(self, count: int) -> Iterator[None]:
        """Within, only so many nodes may be added. Raises `DialectError` at the one after."""
        before, self._most_nodes = self._most_nodes, len(self._made) + count
        try:
            yield
        finally:
            self._most_nodes = before

    def call(
        self, target: Any, operands: Sequence[Any], attributes: dict[str, Any], results: tuple[TensorType, ...]
    ) -> Any:
        """Add a node with the given result types; return its value, or a tuple of values for several results."""
        if self._most_nodes is not None and len(self._made) >= self._most_nodes:
            raise DialectError("it adds ops without end", hint="bound its loops by the sizes of its operands")
        arguments = _nodes_of(tuple(operands))
        node = self.graph.call_function(target, arguments, _nodes_of(attributes))
        return self.typed(node, results)

    def call_foreign(self, target: Any, args: Any, kwargs: Any) -> fx.Node:
        """Add a call of an op outside the contract with its own arguments. The caller types it."""
        return self.graph.call_function(target, _nodes_of(args), _nodes_of(kwargs))

    def typed(self, node: fx.Node, results: tuple[Any, ...], *, single: bool | None = None) -> Any:
        """Stamp result types on a node; return its value, or values behind `operator.getitem` nodes.

        ``single`` says that the node returns a bare value (default: when it has one result).
        """
        node.meta["origin"] = self.origin
        self._first_call = self._first_call or node
        self.added.append(node)
        if len(results) == 1 if single is None else single:
            node.meta["type"] = results[0]
            self._made[node] = _content(node)
            return Value(node, results[0])
        node.meta["type"] = results
        self._made[node] = _content(node)
        return self._items(node, results)

    def state(self) -> tuple[int, int]:
        """For `foreign_hand`: the graph's size, and how many nodes this builder has added."""
        return len(self.graph.nodes), len(self._made)

    def foreign_hand(self, since: tuple[int, int], values: Iterable[Any]) -> str | None:
        """What was done to the graph behind the builder's back since `state`, or to ``values`` of it; None if nothing.

        Looks at the nodes of ``values`` and at those added since. `changed` looks at all.
        """
        nodes, made = since
        added = itertools.islice(reversed(self._made), len(self._made) - made)
        changed = self.changed_among(itertools.chain((value.node for value in values), added))
        if changed is not None:
            return changed
        if len(self.graph.nodes) - nodes == len(self._made) - made:
            return None
        return self.changed(only_calls=True) or "nodes were taken out of the graph"

    def changed_among(self, nodes: Iterable[fx.Node]) -> str | None:
        """The first of ``nodes`` that is no longer what this builder made; None if all are."""
        for node in nodes:
            if node in self._made and self._made[node] != _content(node):
                return self._describe_change(node)
        return None

    def changed(self, *, only_calls: bool = False) -> str | None:
        """The first node of the graph that is no longer what this builder made, or that it did not make."""
        for node in self.graph.nodes:
            if node not in self._made:
                if node.op == "call_function" and "origin" not in node.meta:
                    return f"a call of {op_name(node.target)} was put into the graph by hand"
            elif not only_calls and self._made[node] != _content(node):
                return self._describe_change(node)
        return None

    def holds(self, value: Value) -> bool:
        """Whether a value is one that this builder gave out, of the type that it gave it."""
        type = value.node.meta.get("type")
        return value.node.graph is self.graph and (type is value.type or type == value.type)

    def _describe_change(self, node: fx.Node) -> str:
        parts = zip(("name", "op", "operands", "attributes", "type"), self._made[node], _content(node), strict=True)
        what, before, after = next(part for part in parts if part[1] != part[2])
        if what == "op":
            before, after = op_name(before), op_name(after)
        return f"node {self._made[node][0]} had the {what} {before} and now has {after}"

    def _body(self, op: Composite, operands: tuple[Any, ...], attributes: dict[str, Any], key: Any) -> Any:
        if key in self._open:
            raise DialectError(
                f"the body of composite {op.name} calls {op.name} with the same operands, without end",
                hint="make the body of other ops of the contract",
            )
        self._open.add(key)
        try:
            return op.body(*operands, **attributes)
        finally:
            self._open.discard(key)

    def _type_of(self, op: Prim, operand: Any) -> TensorType:
        if not isinstance(operand, Value):
            raise DialectError(
                f"{op.name}: operand {operand!r} is a {type(operand).__name__}, not a value of the graph",
                hint=_operand_advice(op, operand),
            )
        if not self.holds(operand):
            of = "another graph"
            if operand.node.graph is self.graph:
                of = f"a node whose type is {operand.node.meta.get('type')}"
            raise DialectError(
                f"{op.name}: operand {operand!r} is of {of}",
                hint="use the values that a rule is called with and those that ops return, and keep none between calls",
            )
        return operand.type

    def _items(self, node: fx.Node, results: tuple[Any, ...]) -> tuple[Any, ...]:
        values: list[Any] = []
        for index, type in enumerate(results):
            if not isinstance(type, (TensorType, SymExpr, tuple)):
                values.append(type)
                continue
            item = self.graph.call_function(operator.getitem, (node, index))
            item.meta["origin"] = self.origin
            item.meta["type"] = type
            self._made[item] = _content(item)
            if isinstance(type, tuple):
                values.append(self._items(item, type))
            else:
                values.append(Value(item, type) if isinstance(type, TensorType) else type)
        return tuple(values)

    def _check_body(self, op: Composite, value: Any, expected: tuple[TensorType, ...]) -> None:
        values = value if isinstance(value, tuple) else (value,)
        got = tuple(item.type for item in values)
        if len(got) != len(expected) or any(
            a.dtype != b.dtype or differ(a.shape, b.shape) for a, b in zip(got, expected, strict=True)
        ):
            raise DialectError(
                f"the body of composite {op.name} gives {list(got)}, its rules say {list(expected)}",
                hint="mend the body, or the op's shape rule and dtype rule: they must agree",
            )


def _operand_advice(op: Prim, operand: Any) -> str:
    """What to give in place of something that is no value."""
    if isinstance(operand, TensorType):
        return (
            "that is a type, such as a rule gets first, of its result: def rule(out, x): ... calls ops on x and what "
            "follows"
        )
    if isinstance(operand, (int, float, complex)):
        return "operands are values: a number becomes one through prims.full(shape=x.shape, value=..., dtype=x.dtype)"
    names = ", ".join(f"{name}=..." for name in op.attribute_names)
    return "operands go by position and are values" + (f"; attributes go by keyword: {names}" if names else "")


def _content(node: fx.Node) -> tuple[Any, ...]:
    """What makes a node what it is, in the order of `GraphBuilder._describe_change`."""
    return node.name, node.target, node.args, node.kwargs, node.meta.get("type")


def _nodes_of(value: Any) -> Any:
    if isinstance(value, Value):
        return value.node
    if isinstance(value, (list, tuple)):
        return tuple([_nodes_of(item) for item in value])
    if isinstance(value, dict):
        return {key: _nodes_of(item) for key, item in value.items()}
    return value


def _call_key(op: Prim, operands: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    # repr keeps 1, 1.0, True, -0.0 and 0.0 apart, which compare equal but are different constants.
    return (
        op,
        tuple([None if operand is None else operand.node for operand in operands]),
        repr(attributes) if attributes else "",
    )
