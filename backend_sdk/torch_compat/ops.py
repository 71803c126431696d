"""torch's operator objects: what an overload is, how it splits its arguments, what it does to them."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeGuard

import torch
from torch._ops import HigherOrderOperator, OpOverload


def is_overload(value: Any) -> TypeGuard[OpOverload]:
    """Whether ``value`` is one overload of an aten or custom op."""
    return isinstance(value, OpOverload)


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
