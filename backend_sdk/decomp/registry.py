"""The table of rules from aten overloads to contract ops.

A rule is called as ``rule(out, *args, **kwargs)``: ``out`` is the type that eager gives the result (a tuple of
types for several results), then the overload's own arguments, tensors as graph values. It returns a value, or
a tuple of them, of exactly those types (None where eager gives none), or `NotImplemented` (or `Declined`, with
a reason) for arguments that it does not cover. Shapes in ``out`` may be symbolic: take result shapes from there.

The table may name overloads that the installed torch has not: a rule serves each supported release that has its
overload. `backend-sdk drift` says when no supported release has it.

Does not: hold rules (the family modules do), or call them (`backend_sdk.pipeline.decompose` does).
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from backend_sdk.errors import RegistryError
from backend_sdk.spec import Shape
from backend_sdk.spec.symbolic import Dim
from backend_sdk.torch_compat.ops import AbsentOverload, call_forms, is_overload, parameters

Rule = Callable[..., Any]

# Adds a call that the host runs for what it raises: what a rule with ``checks`` gets.
Check = Callable[..., None]


@dataclass(frozen=True)
class Declined:
    """What a rule returns for arguments that it does not cover, with the ``reason`` that a user reads."""

    reason: str


@dataclass(frozen=True)
class Layout:
    """Where a tensor lies in eager, in elements of its storage."""

    contiguous: bool
    strides: Shape
    offset: Dim


@dataclass(frozen=True)
class Memory:
    """How eager lays out the tensor arguments of a call, and its results, in order."""

    operands: tuple[Layout, ...]
    results: tuple[Layout, ...]


_F = TypeVar("_F", bound=Rule)

RULES: dict[Any, Rule] = {}


def decomposition(
    *overloads: Any, draws: bool = False, reads_memory: bool = False, checks: bool = False
) -> Callable[[_F], _F]:
    """Register a rule for ``overloads``. Raises `RegistryError` for a second rule for one overload.

    An op that torch registers only when a module of its is imported goes by its name, as ``"namespace.op.overload"``.

    A rule that ``draws`` random numbers is called as ``rule(out, key, stream, *args, **kwargs)``: the graph's key
    and a stream that no other call of the graph has. One that ``reads_memory`` is called as
    ``rule(out, memory, *args, **kwargs)`` with a `Memory`. The dialect has none; a few aten ops give values that depend
    on it. One that ``checks`` the data is called as ``rule(out, check, *args, **kwargs)``, where
    ``check(op, *args, **kwargs)`` adds a call that the host runs for what it raises.
    """

    def register(rule: _F) -> _F:
        for overload in overloads:
            if not isinstance(overload, AbsentOverload | str) and not is_overload(overload):
                raise RegistryError(
                    f"decomposition {rule.__name__}: {overload!r} is not an overload",
                    hint="name the overload, e.g. torch.ops.aten.add.Tensor",
                )
            if overload in RULES:
                raise RegistryError(
                    f"decomposition {rule.__name__}: {overload} already has the rule {RULES[overload].__name__}",
                    hint="keep one of the two: the one table has one rule for an overload",
                )
            RULES[overload] = rule
        rule.draws = draws  # type: ignore[attr-defined]
        rule.reads_memory = reads_memory  # type: ignore[attr-defined]
        rule.checks = checks  # type: ignore[attr-defined]
        return rule

    return register


def all_rules() -> Mapping[Any, Rule]:
    """Our rules by overload, all of them."""
    _load_families()
    return RULES


def rule_name(rule: Rule) -> str:
    """What messages call a rule: its function's name, and for one outside of the SDK where it is written."""
    while isinstance(rule, functools.partial):
        rule = rule.func
    rule = getattr(rule, "__func__", rule)
    name = str(getattr(rule, "__name__", type(rule).__name__))
    code = getattr(inspect.unwrap(rule), "__code__", None)
    if code is None or str(getattr(rule, "__module__", "")).startswith("backend_sdk.decomp"):
        return name
    return f"{name} ({Path(code.co_filename).name}:{code.co_firstlineno})"


def signature_fault(overload: Any, rule: Rule) -> str | None:
    """Why a rule cannot be called like its overload, with both signatures; None when it can.

    A captured graph calls an overload with all of its arguments or leaves out some that have a default.
    """
    signature = _signature(rule)
    if signature is None:
        return None
    before = _before(rule)
    for positional, keywords in call_forms(overload):
        try:
            signature.bind(*before, *positional, **dict.fromkeys(keywords))
        except TypeError as error:
            return (
                f"it takes {signature} and cannot be called like {overload}: {error}; the overload wants "
                f"({parameters(overload, before)})"
            )
    return None


def unnamed_arguments(overload: Any, rule: Rule) -> list[str]:
    """The overload's arguments that a rule takes without naming them, in ``*args`` or ``**kwargs``.

    The rule must be one that `signature_fault` finds nothing wrong with.
    """
    signature = _signature(rule)
    if signature is None:
        return []
    positional, keywords = call_forms(overload)[0]
    bound = signature.bind(*_before(rule), *positional, **dict.fromkeys(keywords)).arguments
    found: list[str] = []
    for name, parameter in signature.parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            found += bound.get(name, ())
    return found


def _signature(rule: Rule) -> inspect.Signature | None:
    try:
        return inspect.signature(rule)
    except (TypeError, ValueError):
        # A function written in C may not tell.
        return None


def _before(rule: Rule) -> tuple[str, ...]:
    """What a rule is called with before the overload's own arguments."""
    if getattr(rule, "draws", False):
        return "out", "key", "stream"
    if getattr(rule, "checks", False):
        return "out", "check"
    return ("out", "memory") if getattr(rule, "reads_memory", False) else ("out",)


def rule_of(rules: Mapping[Any, Rule], overload: Any) -> Rule | None:
    """The rule for an overload, registered under itself or under its name."""
    return rules.get(overload) or rules.get(str(overload))


@functools.cache
def _load_families() -> None:
    """Import the modules that hold the rules, once: `import backend_sdk` must not pay for them."""
    package = importlib.import_module("backend_sdk.decomp")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"backend_sdk.decomp.{module.name}")
