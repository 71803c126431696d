"""Calls one rule and holds it to its promise: it ends, adds ops of the contract only, and changes nothing.

Does not: choose the rule, or compare what it gives with what eager gives (`backend_sdk.pipeline.decompose` does).
"""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import fx

from backend_sdk import dtypes, prims
from backend_sdk.decomp.registry import Declined, Rule, rule_name
from backend_sdk.errors import DecompositionError, DtypeRuleError, SdkError
from backend_sdk.graph import GraphBuilder, Value
from backend_sdk.spec import Prim, SymExpr, TensorType, building, differ

_NO_TENSOR = (
    "a rule gets values of the graph, not tensors: call ops of the contract on them (`backend-sdk spec` lists them), "
    "such as prims.neg(x)"
)


_SEE_CAUSE = (
    "the exception that this one was raised from (__cause__) shows the line of the rule; for a call that it does not "
    "cover a rule returns NotImplemented"
)

# A recurrent layer of ten thousand steps has a few hundred thousand; a loop that never ends has more.
_MOST_OPS = 500_000


def call_rule(
    rule: Rule,
    leading: tuple[Any, ...],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    builder: GraphBuilder,
    describe: Callable[[], str],
) -> Any:
    """What ``rule(*leading, *args, **kwargs)`` gives. ``describe()`` shows the call of the overload, with its types.

    `Declined` when the rule computes with a dtype that the contract only stores.

    Raises `DecompositionError` for a rule that raises, never ends, or changes the graph or its arguments other than by
    calling ops of the contract. ``args`` and ``kwargs`` stay as they are.
    """
    state = builder.state()
    passed = fresh_containers(args), fresh_containers(kwargs)

    def refuse(what: str, hint: str | None = None, cause: BaseException | None = None) -> NoReturn:
        raise DecompositionError(
            f"decomposition {rule_name(rule)} of {describe()}{what}",
            location=builder.origin.location,
            hint=hint or _SEE_CAUSE,
        ) from cause

    try:
        with building(builder), builder.at_most(_MOST_OPS):
            result = rule(*leading, *passed[0], **passed[1])
    except SdkError as error:
        stored = next((dtype for dtype in map(_dtype_of, leaves((args, kwargs, leading[0]))) if dtype), None)
        if isinstance(error, DtypeRuleError) and stored is not None:
            # A rule need not know which dtypes are only kept: what it added before is read by nobody, and goes.
            return Declined(f"no op of the contract computes this with {dtypes.name(stored)}")
        refuse(f": {error.message}", error.hint, error)
    except RecursionError as error:
        refuse(f" never ends: {_cycle(error)}", "a rule that does not cover a call returns NotImplemented", error)
    except AttributeError as error:
        if error.obj is prims:
            near = difflib.get_close_matches(str(error.name), prims.__all__, n=1)
            spelled = f"write prims.{near[0]}; " if near else ""
            refuse(f": the contract has no op {error.name!r}", f"{spelled}`backend-sdk spec` lists the ops", error)
        if not isinstance(error.obj, Value):
            _refuse_raised(refuse, error)
        name = f"{error.name}"
        if name.endswith("_") and not name.startswith("_"):
            refuse(f" writes into its operand by {name}(): values cannot be written", _NO_TENSOR, error)
        refuse(f": a value of the graph has no {name!r} to read or set", _NO_TENSOR, error)
    # A rule that calls sys.exit() is as broken as one that raises.
    except (Exception, SystemExit) as error:
        _refuse_raised(refuse, error)
    operands = (leaf for leaf in leaves((args, kwargs)) if isinstance(leaf, Value))
    changed = builder.foreign_hand(state, operands)
    if changed is not None:
        refuse(f" changes the graph: {changed}", "add to the graph by calling ops of the contract, prims.neg(x), alone")
    if passed != (args, kwargs):
        before, after = next(
            (before, after)
            for before, after in zip((*args, *kwargs.values()), (*passed[0], *passed[1].values()), strict=True)
            if before != after
        )
        refuse(f" changes its argument {before} to {after}", "copy a list before changing it: list(dims)")
    return result


def _dtype_of(item: Any) -> torch.dtype | None:
    """The dtype of a value or type when the contract only stores it, else None."""
    return item.dtype if isinstance(item, (Value, TensorType)) and item.dtype in dtypes.STORAGE else None


def _refuse_raised(refuse: Callable[..., NoReturn], error: BaseException) -> NoReturn:
    hint = _NO_TENSOR if f"'{Value.__name__}'" in str(error) else None
    refuse(f" raised {type(error).__name__}: {error}", hint, error)


def _cycle(error: RecursionError) -> str:
    """The functions that call each other, by the innermost frames: ``f (rules.py:3) calls g (rules.py:7) calls f``."""
    frames = traceback.extract_tb(error.__traceback__)[-200:]
    places = [f"{frame.name} ({Path(frame.filename).name}:{frame.lineno})" for frame in frames]
    again = next((i for i, place in enumerate(places) if place in places[:i]), None)
    if again is None:
        return f"{places[-1]} goes deeper and deeper"
    first = places.index(places[again])
    return " calls ".join([*places[first:again], places[again]])


def leaves(arguments: Any) -> Iterator[Any]:
    """What stands in a nest of tuples, lists and dicts."""
    if isinstance(arguments, dict):
        arguments = arguments.values()
    elif not isinstance(arguments, (tuple, list)):
        yield arguments
        return
    for item in arguments:
        yield from leaves(item)


def fresh_containers(arguments: Any) -> Any:
    """The same arguments in tuples, lists and dicts of their own."""
    if isinstance(arguments, tuple):
        return tuple([fresh_containers(item) for item in arguments])
    if isinstance(arguments, list):
        return [fresh_containers(item) for item in arguments]
    if isinstance(arguments, dict):
        return {key: fresh_containers(item) for key, item in arguments.items()}
    return arguments


def shown_result(result: Any, builder: GraphBuilder) -> Any:
    """A rule's result with each value as its type. What is no value of this graph is shown by what it is."""

    def show(item: Any) -> Any:
        if isinstance(item, Value):
            if item.node.graph is not builder.graph:
                return Stranger(f"{item} of another graph")
            return item.type if builder.holds(item) else Stranger(f"{item}, which is no value that an op gave")
        if isinstance(item, torch.Tensor):
            return Stranger(f"a torch tensor, {dtypes.name(item.dtype)}{list(item.shape)}")
        if isinstance(item, TensorType):
            return Stranger(f"the bare type {item}")
        if isinstance(item, Prim):
            return Stranger(f"the op {item.name} itself, which is not called", item)
        if isinstance(item, fx.Node):
            return Stranger(f"the fx node {item}")
        return item if isinstance(item, (int, float, complex, SymExpr, type(None))) else Stranger(repr(item))

    if isinstance(result, (tuple, list)):
        return type(result)(shown_result(item, builder) for item in result)
    return show(result)


class Stranger:
    """What a rule gives in place of a value, in words. ``op``: it is this op of the contract."""

    def __init__(self, words: str, op: Prim | None = None) -> None:
        self._words = words
        self.op = op

    def __repr__(self) -> str:
        return self._words


def advice(got: Any, expected: Any) -> str:
    """What to do about a result that differs from eager's, both as types."""
    several = isinstance(expected, tuple)
    op = next((item.op for item in leaves(got) if isinstance(item, Stranger) and item.op is not None), None)
    if op is not None:
        return f"call it, and return what the call gives: prims.{op.name}{op.signature_text.partition(' -> ')[0]}"
    if several and not isinstance(got, (tuple, list)):
        return f"return a tuple of {len(expected)} results: {_listing(expected)}"
    if not several and isinstance(got, (tuple, list)):
        return f"return one value, {expected}, and no {type(got).__name__}"
    if several:
        if len(got) != len(expected):
            return f"return {len(expected)} results: {_listing(expected)}"
        if sorted(map(str, got)) == sorted(map(str, expected)):
            return f"return the results in eager's order: {_listing(expected)}"
        pairs = zip(got, expected, strict=True)
        return next((advice(g, e) for g, e in pairs if _plainly_differ(g, e)), f"return {_listing(expected)}")
    if isinstance(got, (bool, int, float, complex)):
        return "a number becomes a value by prims.full(shape=out.shape, value=..., dtype=out.dtype)"
    if not isinstance(got, TensorType) or not isinstance(expected, TensorType):
        return f"return the value of a call of an op of the contract, {expected}"
    if got.dtype != expected.dtype:
        return "compute in the dtype that suits, and end with prims.convert(result, dtype=out.dtype)"
    return "take the shape of the result from out.shape: prims.reshape and prims.broadcast bring it there"


def _plainly_differ(got: Any, expected: Any) -> bool:
    if isinstance(got, TensorType) and isinstance(expected, TensorType):
        return got.dtype != expected.dtype or differ(got.shape, expected.shape)
    return expected is not None and not isinstance(expected, SymExpr)


def _listing(types: Any) -> str:
    return ", ".join(map(str, types))
