"""The table of rules from aten overloads to contract ops.

A rule is called as ``rule(out, *args, **kwargs)``: ``out`` is the type that eager gives the result (a tuple of
types for several results), then the overload's own arguments, tensors as graph values. It returns a value, or
a tuple of them, of exactly those types (None where eager gives none), or `NotImplemented` (or `Declined`, with
a reason) for arguments that it does not cover. Shapes in ``out`` may be symbolic: take result shapes from there.

Does not: hold rules (the family modules do).
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from backend_sdk.errors import RegistryError
from backend_sdk.spec import Shape
from backend_sdk.spec.symbolic import Dim
from backend_sdk.torch_compat.ops import is_overload

Rule = Callable[..., Any]


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
            if not is_overload(overload) and not isinstance(overload, str):
                raise RegistryError(
                    f"decomposition {rule.__name__}: {overload!r} is not an overload",
                    hint="name the overload, e.g. torch.ops.aten.add.Tensor",
                )
            if overload in RULES:
                raise RegistryError(
                    f"decomposition {rule.__name__}: {overload} already has the rule {RULES[overload].__name__}"
                )
            RULES[overload] = rule
        rule.draws = draws  # type: ignore[attr-defined]
        rule.reads_memory = reads_memory  # type: ignore[attr-defined]
        rule.checks = checks  # type: ignore[attr-defined]
        return rule

    return register


def rules_with(vendor: Mapping[Any, Rule]) -> Mapping[Any, Rule]:
    """All rules, with a vendor's own in place of ours where both have one for an overload."""
    _load_families()
    return {**RULES, **vendor} if vendor else RULES


def rule_of(rules: Mapping[Any, Rule], overload: Any) -> Rule | None:
    """The rule for an overload, registered under itself or under its name."""
    return rules.get(overload) or rules.get(str(overload))


@functools.cache
def _load_families() -> None:
    """Import the modules that hold the rules, once: `import backend_sdk` must not pay for them."""
    package = importlib.import_module("backend_sdk.decomp")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"backend_sdk.decomp.{module.name}")
