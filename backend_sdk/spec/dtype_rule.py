"""Dtype rules as data: which dtypes the operands may have, and what dtype each result has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from backend_sdk import dtypes
from backend_sdk.errors import DtypeRuleError
from backend_sdk.spec.types import TensorType


@dataclass(frozen=True)
class DtypeVar:
    """A dtype variable: operands that share it must have one dtype, taken from ``domain``."""

    name: str
    domain: frozenset[torch.dtype]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class FromAttribute:
    """The result dtype is the value of this attribute, taken from ``domain``."""

    attribute: str
    domain: frozenset[torch.dtype] = dtypes.ANY

    def __str__(self) -> str:
        return self.attribute


@dataclass(frozen=True)
class RealOf:
    """The real counterpart of a complex dtype variable (``complex64`` gives ``float32``)."""

    variable: DtypeVar

    def __str__(self) -> str:
        return f"real({self.variable})"


@dataclass(frozen=True)
class ComplexOf:
    """The complex counterpart of a real dtype variable (``float32`` gives ``complex64``)."""

    variable: DtypeVar

    def __str__(self) -> str:
        return f"complex({self.variable})"


Slot = DtypeVar | torch.dtype
Result = DtypeVar | torch.dtype | FromAttribute | RealOf | ComplexOf


@dataclass(frozen=True)
class DtypeRule:
    """``operands`` names a slot per operand (``variadic``: the last repeats); ``results`` one per result."""

    operands: tuple[Slot, ...]
    results: tuple[Result, ...]
    variadic: bool = False

    def infer(
        self, op: str, operands: tuple[TensorType | None, ...], attributes: dict[str, Any]
    ) -> tuple[torch.dtype, ...]:
        """Result dtypes. Raises `DialectError` when an operand's dtype is outside the rule."""
        bound: dict[str, torch.dtype] = {}
        slots = self.operands
        for position, operand in enumerate(operands):
            if operand is None:
                continue
            slot = slots[position] if position < len(slots) else slots[-1]
            if isinstance(slot, DtypeVar):
                expected = bound.setdefault(slot.name, operand.dtype)
                if operand.dtype != expected or operand.dtype not in slot.domain:
                    raise self._refusal(op, operands, position)
            elif operand.dtype != slot:
                raise self._refusal(op, operands, position)
        return tuple(self._result(op, result, bound, attributes) for result in self.results)

    def _result(
        self, op: str, result: Result, bound: dict[str, torch.dtype], attributes: dict[str, Any]
    ) -> torch.dtype:
        if isinstance(result, DtypeVar):
            return bound[result.name]
        if isinstance(result, FromAttribute):
            dtype: torch.dtype = attributes[result.attribute]
            if dtype not in result.domain:
                raise DtypeRuleError(
                    f"{op}: attribute {result.attribute}={dtype} is not a dtype of {describe(result.domain)}",
                    hint=f"`backend-sdk spec {op}` lists the dtypes that {result.attribute} may be",
                )
            return dtype
        if isinstance(result, RealOf):
            return bound[result.variable.name].to_real()
        if isinstance(result, ComplexOf):
            return bound[result.variable.name].to_complex()
        return result

    def domain(self, position: int) -> frozenset[torch.dtype]:
        """Dtypes that the operand at ``position`` may have."""
        slot = self.operands[position] if position < len(self.operands) else self.operands[-1]
        return slot.domain if isinstance(slot, DtypeVar) else frozenset({slot})

    def _refusal(self, op: str, operands: tuple[TensorType | None, ...], position: int) -> DtypeRuleError:
        got = ", ".join("None" if operand is None else str(operand) for operand in operands)
        return DtypeRuleError(
            f"{op}({got}): operand {position} does not fit the dtype rule {self}",
            hint="convert the operands first: the dialect promotes nothing",
        )

    @property
    def operand_dtypes(self) -> frozenset[torch.dtype]:
        """Every dtype that an operand can have; of an op without operands, its result."""
        domains = [self.domain(position) for position in range(len(self.operands))]
        return frozenset[torch.dtype]().union(*domains) or self.result_dtypes

    @property
    def result_dtypes(self) -> frozenset[torch.dtype]:
        """Every dtype that a result can have."""
        found: set[torch.dtype] = set()
        for result in self.results:
            if isinstance(result, (DtypeVar, FromAttribute)):
                found |= result.domain
            elif isinstance(result, RealOf):
                found |= {dtype.to_real() for dtype in result.variable.domain}
            elif isinstance(result, ComplexOf):
                found |= {dtype.to_complex() for dtype in result.variable.domain} & dtypes.COMPLEX
            else:
                found.add(result)
        return frozenset(found)

    @property
    def variables(self) -> dict[str, frozenset[torch.dtype]]:
        """What each dtype variable of the operands may be, by name."""
        return {slot.name: slot.domain for slot in self.operands if isinstance(slot, DtypeVar) and slot.domain}

    def in_words(self) -> str:
        """The rule, then the dtypes that each variable, and each attribute that gives a dtype, may be."""
        given = {result.attribute: result.domain for result in self.results if isinstance(result, FromAttribute)}
        shown = (
            f"{name}: {', '.join(dtypes.name(dtype) for dtype in dtypes.STORED_DTYPES if dtype in domain)}."
            for name, domain in {**self.variables, **given}.items()
        )
        return " ".join((f"{self}.", *shown))

    def __str__(self) -> str:
        def show(slot: Slot | Result) -> str:
            return dtypes.name(slot) if isinstance(slot, torch.dtype) else str(slot)

        operands = ", ".join(map(show, self.operands)) + (", ..." if self.variadic else "")
        where = "; ".join(f"{name} in {describe(domain)}" for name, domain in self.variables.items())
        return f"({operands}) -> {', '.join(map(show, self.results))}" + (f" where {where}" if where else "")


_NAMED_SETS = (
    (dtypes.STORED, "stored"),
    (dtypes.ANY, "any"),
    (dtypes.NUMERIC, "numeric"),
    (dtypes.REAL, "real"),
    (dtypes.FLOATING | dtypes.COMPLEX, "floating or complex"),
    (dtypes.FLOATING, "floating"),
    (dtypes.INTEGRAL, "integral"),
    (dtypes.COMPLEX, "complex"),
)


def describe(domain: frozenset[torch.dtype]) -> str:
    """A set of dtypes in words."""
    for known, words in _NAMED_SETS:
        if domain == known:
            return words
    return "{" + ", ".join(sorted(map(dtypes.name, domain))) + "}"
