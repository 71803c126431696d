"""`Prim` and `Composite`: the definition of one contract op, in one place, and the registry of them all.

An op is called with operands by position and attributes by keyword. Called on tensors it runs its reference;
called on graph values it adds itself to the graph that is being built. So a composite's body, a
decomposition and a test are all written the same way.

Does not: build graphs (`backend_sdk.graph` does, through `Builder`).
"""

from __future__ import annotations

import difflib
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from backend_sdk.errors import DialectError, RegistryError, nearest
from backend_sdk.spec.dtype_rule import DtypeRule
from backend_sdk.spec.symbolic import Shape, differ
from backend_sdk.spec.tolerance import Tolerance
from backend_sdk.spec.types import TensorType

PROFILES = ("base", "inference", "training", "half", "dynamic", "random", "linalg", "complex", "quantized")


class Builder(Protocol):
    """What an op needs from a graph under construction."""

    def emit(self, op: Prim, operands: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
        """Add ``op`` to the graph, or its body; return its value (a tuple of values for several results)."""
        ...


class _Active(threading.local):
    builder: Builder | None = None


_ACTIVE = _Active()


class building:
    """Context in which calling an op adds it to ``builder``'s graph."""

    def __init__(self, builder: Builder | None) -> None:
        self._builder = builder

    def __enter__(self) -> None:
        self._outer = _ACTIVE.builder
        _ACTIVE.builder = self._builder

    def __exit__(self, *exception: object) -> None:
        _ACTIVE.builder = self._outer


def active_builder() -> Builder | None:
    """The builder of the innermost `building` context of this thread, or None."""
    return _ACTIVE.builder


@dataclass(frozen=True)
class Sample:
    """One example call: operands by position, attributes by keyword."""

    operands: tuple[torch.Tensor | None, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)


SampleGenerator = Callable[[torch.dtype, torch.Generator], Iterator[Sample]]
SpecialValues = Callable[[torch.dtype], list[Any]]
ShapeRule = Callable[..., Any]


class Prim:
    """An op of the contract. See the module docstring for how it is called.

    ``shape_rule`` gets operand types and attributes and returns the result's shape, or a list of shapes when
    the op has several results; it raises `DialectError` through `refuse` for operands that do not fit.
    ``structural`` ops shape, convert or make constants: they carry no work of their own. ``doc`` is the
    reference's docstring. ``undefined(*operands, **attributes)``, when given, says of an elementwise op for which
    elements it promises no value: a bool tensor of the result's shape.
    """

    kind = "prim"

    def __init__(
        self,
        reference: Callable[..., Any],
        *,
        shape_rule: ShapeRule,
        dtype_rule: DtypeRule,
        tolerance: Tolerance,
        samples: SampleGenerator,
        specials: SpecialValues,
        profiles: Iterable[str],
        differentiable: bool = True,
        structural: bool = False,
        identity: Callable[..., bool] | None = None,
        undefined: Callable[..., torch.Tensor] | None = None,
    ) -> None:
        self.reference = reference
        self.name = self.__name__ = self.__qualname__ = reference.__name__
        self.__module__ = "backend_sdk.prims"
        self.doc = inspect.getdoc(reference) or ""
        self.signature = inspect.signature(reference)
        self.shape_rule = shape_rule
        self.dtype_rule = dtype_rule
        self.tolerance = tolerance
        self.samples = samples
        self.specials = specials
        self.profiles = tuple(profiles)
        self.differentiable = differentiable
        self.structural = structural
        self.identity = identity
        self.undefined = undefined
        parameters = self.signature.parameters.values()
        self.operand_names = tuple(p.name for p in parameters if p.kind is not p.KEYWORD_ONLY)
        self.attribute_names = tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
        self.is_variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        self._check_definition()
        # What `help` shows has the signature and the dtypes too, from where they are defined, so that none can part.
        self.__doc__ = f"{self.name}{self.signature_text}\n\n{self.doc}\n\nDtypes: {dtype_rule.in_words()}"

    @property
    def signature_text(self) -> str:
        """The signature with the operands as tensors: ``(x: Tensor, y: Tensor | None, *, rank: int) -> Tensor``."""
        parts = []
        for parameter in self.signature.parameters.values():
            if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parts and not self.is_variadic:
                parts.append("*")
            annotation = str(parameter.annotation).replace("Operand", "Tensor").replace("torch.", "")
            star = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
            parts.append(f"{star}{parameter.name}: {annotation}")
        results = ", ".join(["Tensor"] * self.result_count)
        return f"({', '.join(parts)}) -> {results if self.result_count == 1 else f'({results})'}"

    @property
    def result_count(self) -> int:
        return len(self.dtype_rule.results)

    def __call__(self, *operands: Any, **attributes: Any) -> Any:
        builder = _ACTIVE.builder
        if builder is not None:
            return builder.emit(self, operands, attributes)
        return self.reference(*operands, **attributes)

    def infer(self, operands: tuple[TensorType | None, ...], attributes: dict[str, Any]) -> tuple[TensorType, ...]:
        """Types of the results. Raises `DialectError` for operands or attributes outside the op's domain."""
        if self.is_variadic and not operands:
            raise DialectError(f"{self.name} takes at least one operand, got none", hint=self._call_advice())
        if len(operands) != len(self.operand_names) and not self.is_variadic:
            raise DialectError(
                f"{self.name} takes {len(self.operand_names)} operands, got {len(operands)}: {_listed(operands)}",
                hint=self._call_advice(),
            )
        if attributes.keys() != set(self.attribute_names):
            on = f", with the operands {_listed(operands)}" if operands else ""
            raise DialectError(
                f"{self.name} takes the attributes {list(self.attribute_names)}, got {sorted(attributes)}{on}",
                hint=self._call_advice(attributes),
            )
        result_dtypes = self.dtype_rule.infer(self.name, operands, attributes)
        shapes = self.shape_rule(*operands, **attributes)
        if len(result_dtypes) == 1 and not isinstance(shapes, list):
            return (TensorType(tuple(shapes), result_dtypes[0]),)
        return tuple(TensorType(tuple(s), d) for s, d in zip(shapes, result_dtypes, strict=True))

    def _call_advice(self, attributes: Iterable[str] = ()) -> str:
        """How the op is called, and the nearest spelling of each attribute that it has not."""
        near = {name: difflib.get_close_matches(name, self.attribute_names, n=1) for name in attributes}
        spelled = [f"{name} is spelled {found[0]}" for name, found in near.items() if found and found[0] != name]
        return ", ".join([*spelled, f"call prims.{self.name}{self.signature_text.partition(' -> ')[0]}"])

    def _check_definition(self) -> None:
        missing = [
            part
            for part, present in (
                ("a docstring", self.doc),
                ("a shape rule", callable(self.shape_rule)),
                ("a dtype rule", isinstance(self.dtype_rule, DtypeRule)),
                ("a tolerance", isinstance(self.tolerance, Tolerance)),
                ("a sample generator", callable(self.samples)),
                ("special values", callable(self.specials)),
                ("a profile", self.profiles),
            )
            if not present
        ]
        if missing:
            raise RegistryError(
                f"{self.kind} {self.name!r} lacks {', '.join(missing)}",
                hint="give them where the op is defined: an op of the contract stands in one place",
            )
        unknown = set(self.profiles) - set(PROFILES)
        if unknown:
            raise RegistryError(
                f"{self.kind} {self.name!r}: unknown profile {', '.join(sorted(unknown))}",
                hint=f"profiles are {', '.join(PROFILES)}",
            )

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}>"

    def __reduce__(self) -> str:
        return self.name


class Composite(Prim):
    """A contract op whose reference is a body made of other contract ops.

    A backend that claims it keeps it whole; for any other its body takes its place.
    """

    kind = "composite"

    @property
    def body(self) -> Callable[..., Any]:
        return self.reference


class Registry:
    """The contract: every op by name."""

    def __init__(self) -> None:
        self._ops: dict[str, Prim] = {}

    def add(self, op: Prim) -> Prim:
        if op.name in self._ops:
            raise RegistryError(
                f"the contract already has an op named {op.name!r}", hint="give one of the two another name"
            )
        self._ops[op.name] = op
        return op

    def __getitem__(self, name: str) -> Prim:
        try:
            return self._ops[name]
        except KeyError:
            raise RegistryError(
                f"the contract has no op {name!r}: {nearest(name, self._ops)}", hint="`backend-sdk spec` lists the ops"
            ) from None

    def __contains__(self, name: str) -> bool:
        return name in self._ops

    def __iter__(self) -> Iterator[Prim]:
        return iter(self._ops.values())

    def __len__(self) -> int:
        return len(self._ops)


def refuse(op: str, reason: str, *operands: TensorType | None, hint: str | None = None) -> DialectError:
    """The error of a shape rule: names the op, its operand types and the reason."""
    return DialectError(
        f"{op}({_listed(operands)}): {reason}", hint=hint or f"`backend-sdk spec {op}` says what the op takes"
    )


def same_shape(op: str, *operands: TensorType | None) -> Shape:
    """Shape rule of elementwise ops: all operands have one shape."""
    present = [operand for operand in operands if operand is not None]
    for operand in present:
        if differ(operand.shape, present[0].shape):
            raise refuse(op, "operands must have one shape; broadcast first", *operands, hint=_stretching(present))
    return present[0].shape


def _stretching(operands: list[TensorType]) -> str:
    """How to bring operands to one shape, in the values of the first whose shape is not that of the largest rank."""
    target = max(operands, key=lambda operand: operand.rank)
    other = next(operand for operand in operands if differ(operand.shape, target.shape))
    dims = tuple(range(target.rank - other.rank, target.rank))
    return (
        f"the dialect broadcasts nothing by itself: stretch each operand to the shape of the result, such as "
        f"prims.broadcast(x, shape=({', '.join(map(str, target.shape))}), dims={dims}) for the {other}; dims[i] is "
        "the dimension that dimension i of x becomes"
    )


def _listed(operands: Iterable[TensorType | None]) -> str:
    return ", ".join("None" if operand is None else str(operand) for operand in operands)
