"""torch's operator objects: what an overload is, how it splits its arguments, what it does to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeGuard

import torch
from torch._ops import HigherOrderOperator, OpOverload


@dataclass(frozen=True)
class AbsentOverload:
    """Stands for an overload that the installed torch has not. Equal to nothing that a graph may call."""

    name: str

    def __str__(self) -> str:
        return self.name


class _Packet:
    """The overloads of one op. ``found`` is torch's own packet, None when torch has no op of this name."""

    def __init__(self, name: str, found: Any) -> None:
        self._name = name
        self._found = found

    def overloads(self) -> list[str]:
        """The names of the overloads that torch has."""
        return [] if self._found is None else list(self._found.overloads())

    def __getattr__(self, overload: str) -> Any:
        if overload.startswith("__"):
            raise AttributeError(overload)
        return getattr(self._found, overload, AbsentOverload(f"{self._name}.{overload}"))


class Operators:
    """``torch.ops.NAMESPACE``, in which an overload that the installed torch has not is an `AbsentOverload`.

    A table that names overloads so can be read under each torch release, and says what is missing.
    """

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    def __str__(self) -> str:
        return f"torch.ops.{self._namespace}"

    def __getattr__(self, op: str) -> Any:
        found = getattr(getattr(torch.ops, self._namespace), op, None)
        # Some ops are called like Python's own methods (aten.__lshift__), which others may look for.
        if found is None and op.startswith("__"):
            raise AttributeError(op)
        return _Packet(f"{self._namespace}.{op}", found)


aten = Operators("aten")
prims_of_torch = Operators("prims")


def is_overload(value: Any) -> TypeGuard[OpOverload]:
    """Whether ``value`` is one overload of an aten or custom op."""
    return isinstance(value, OpOverload)


def overload_advice(value: Any) -> str:
    """How to name an overload, for somebody who gave ``value`` in place of one: a packet, a string or anything."""
    name = str(value).removeprefix("torch.ops.").replace("::", ".")
    namespace, _, rest = name.partition(".")
    base, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace, None), base, None) if namespace.isidentifier() and base else None
    if packet is None:
        return "name an overload, such as torch.ops.aten.add.Tensor"
    # A captured graph is functional: it calls no overload that writes.
    known = [one for one in packet.overloads() if not getattr(packet, one)._schema.is_mutable]
    chosen = [overload] if overload in known else known
    return "name an overload: " + " or ".join(f"torch.ops.{namespace}.{base}.{one}" for one in chosen)


def is_higher_order(value: Any) -> bool:
    """Whether ``value`` is a higher-order operator (``cond``, ``while_loop``, ...)."""
    return isinstance(value, HigherOrderOperator)


class SchemaArgument(NamedTuple):
    """One argument of an overload, as its schema declares it."""

    name: str
    keyword_only: bool
    required: bool


def schema_arguments(op: OpOverload) -> list[SchemaArgument]:
    """What an overload takes, in order."""
    return [
        SchemaArgument(argument.name, argument.kwarg_only, not argument.has_default_value())
        for argument in op._schema.arguments
    ]


def call_forms(op: OpOverload) -> tuple[tuple[list[str], list[str]], ...]:
    """The two ways in which a captured graph calls an overload, each as names that go by position and names that go
    by keyword: with all arguments, and without those that have a default.
    """
    arguments = schema_arguments(op)
    positional = [argument for argument in arguments if not argument.keyword_only]
    keywords = [argument for argument in arguments if argument.keyword_only]
    longest = [one.name for one in positional], [one.name for one in keywords]
    while positional and not positional[-1].required:
        positional.pop()
    return longest, ([one.name for one in positional], [one.name for one in keywords if one.required])


def parameters(op: OpOverload, before: tuple[str, ...] = ()) -> str:
    """What a function must take to be called like an overload, as source: ``self, other, *, alpha=...``."""
    arguments = schema_arguments(op)
    takes = [*before, *(_parameter(one) for one in arguments if not one.keyword_only)]
    keywords = [_parameter(one) for one in arguments if one.keyword_only]
    return ", ".join([*takes, "*", *keywords] if keywords else takes)


def _parameter(argument: SchemaArgument) -> str:
    return argument.name + ("" if argument.required else "=...")


def name_arguments(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by schema name, defaults included."""
    named: dict[str, Any] = {}
    for position, argument in enumerate(op._schema.arguments):
        if position < len(args):
            named[argument.name] = args[position]
        elif argument.name in kwargs:
            named[argument.name] = kwargs[argument.name]
        elif argument.has_default_value():
            named[argument.name] = argument.default_value
    return named


def has_effect(op: Any) -> bool:
    """Whether a call does something beyond its result: the schema mutates, or the op is higher-order."""
    return op._schema.is_mutable if isinstance(op, OpOverload) else isinstance(op, HigherOrderOperator)


# What raises for the data that it looks at, and computes nothing. The functional forms hand a token on.
_CHECKS = frozenset(
    {
        torch.ops.aten._assert_async.default,
        torch.ops.aten._assert_async.msg,
        torch.ops.aten._assert_scalar.default,
        torch.ops.aten._functional_assert_async.msg,
        torch.ops.aten._functional_assert_scalar.default,
        torch.ops.aten._linalg_check_errors.default,
    }
)


def is_check(op: Any, args: tuple[Any, ...] = ()) -> bool:
    """Whether a call only checks data, and raises: an assertion, or one whose order ``with_effects`` keeps."""
    if op is torch.ops.higher_order.with_effects:
        # Its arguments: the effects' token, the op, the op's own arguments.
        return args[1] in _CHECKS
    return op in _CHECKS


def is_random(op: Any) -> bool:
    """Whether the op draws from torch's random state."""
    return isinstance(op, OpOverload) and torch.Tag.nondeterministic_seeded in op.tags


def draws(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether this call draws from torch's random state: not, where its arguments say that it drops nothing."""
    if not is_random(op):
        return False
    named = name_arguments(op, args, kwargs)
    if named.get("train") is False:
        return False
    dropped = next((named[name] for name in ("dropout", "dropout_p") if name in named), None)
    return not (isinstance(dropped, (int, float)) and dropped == 0)
