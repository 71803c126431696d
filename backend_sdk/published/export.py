"""The contract as one JSON document, and its hash.

What the hash covers of an op is what binds a backend: operands, attributes, results and their dtypes, profiles, flags,
tolerance and special values by dtype, and the code of reference (or body), shape rule and tolerance. Text, examples and
measurements are beside it (`INFORMATIVE`).

Does not: measure (`backend_sdk.published.measured`) or read documents (`backend_sdk.published.document`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from backend_sdk import __version__, dtypes
from backend_sdk.errors import DialectError, RegistryError
from backend_sdk.graph import GraphBuilder
from backend_sdk.graph.builder import claim_prims_only
from backend_sdk.prims import CONTRACT
from backend_sdk.published.meaning import Meaning, digest_of, meaning_of, source_of
from backend_sdk.published.version import FORMAT, VERSION
from backend_sdk.selfcheck import sample_dtypes, samples_of
from backend_sdk.spec import (
    ComplexOf,
    Composite,
    DtypeVar,
    FromAttribute,
    Prim,
    RealOf,
    Sample,
    TensorType,
    building,
)
from backend_sdk.spec.prim import PROFILES

SPEC = "backend-sdk contract"

# Fields of an op that the hash leaves out: text, what follows from the other fields, and measurements.
INFORMATIVE = frozenset(
    {
        "hash",
        "signature",
        "dtype_rule",
        "doc",
        "elementwise",
        "source",
        "uses",
        "prims",
        "examples",
        "edge_cases",
        "gradient",
    }
)

# What annotations of attributes are called in the document, and what a value of each is.
ATTRIBUTE_TYPES: Mapping[str, tuple[str, str]] = {
    "bool": ("bool", "true or false"),
    "int": ("int", "an integer"),
    "int | None": ("optional int", "an integer, or null"),
    "float": ("float", "a real number"),
    "str": ("name", "one of the names listed"),
    "torch.dtype": ("dtype", "a dtype"),
    "Dim": ("size", "an integer, or an expression over symbolic sizes"),
    "Shape": ("sizes", "a list of sizes"),
    "Axes": ("ints", "a list of integers"),
    "tuple[int, ...]": ("ints", "a list of integers"),
    "Padding": ("pairs of sizes", "a list of pairs of sizes"),
    "tuple[Axes, Axes]": ("two lists of ints", "a pair of lists of integers"),
    "Scalar": ("number", "a boolean, integer, real or complex number, or an expression over symbolic sizes"),
}

_MOST_EXAMPLES = 3


def document(
    contract: Iterable[Prim] = CONTRACT, gradients: Mapping[str, Any] | None = None, version: str = VERSION
) -> dict[str, Any]:
    """The whole contract as plain data. ``gradients`` are measurements by op."""
    ops = [op_data(op, (gradients or {}).get(op.name)) for op in sorted(contract, key=lambda op: op.name)]
    made = {
        "format": FORMAT,
        "spec": SPEC,
        "version": version,
        "hash": "",
        "sdk": __version__,
        "profiles": [{"name": name, "ops": [op["name"] for op in ops if name in op["profiles"]]} for name in PROFILES],
        "attribute_types": dict(sorted(set(ATTRIBUTE_TYPES.values()))),
        "ops": ops,
    }
    return {**made, "hash": hash_of(made)}


def hash_of(spec: Mapping[str, Any]) -> str:
    """The hash of a document: of its format, the names of its profiles and the hashes of its ops, which count anew."""
    binding = {
        "format": spec["format"],
        "profiles": sorted(profile["name"] for profile in spec["profiles"]),
        "ops": {op["name"]: op_hash(op) for op in spec["ops"]},
    }
    return f"sha256:{digest_of(binding)}"


def op_hash(op: Mapping[str, Any]) -> str:
    """The hash of one op of a document: of its fields but for the informative ones."""
    return f"sha256:{digest_of({name: value for name, value in op.items() if name not in INFORMATIVE})}"


def op_data(op: Prim, gradient: Any = None) -> dict[str, Any]:
    """One op as plain data. Raises `RegistryError` for an attribute of a type that the document has no word for."""
    rule = op.dtype_rule
    reference = _meaning(op, "reference")
    given, made = _ordered(rule.operand_dtypes), _ordered(rule.result_dtypes)
    data: dict[str, Any] = {
        "name": op.name,
        "kind": op.kind,
        "hash": "",
        "signature": op.signature_text,
        "doc": op.doc,
        "operands": [_operand(op, position) for position in range(len(op.operand_names))],
        "attributes": [_attribute(op, name) for name in op.attribute_names],
        "results": [_dtype_data(result) for result in rule.results],
        "dtype_variables": _variables(op),
        "dtype_rule": str(rule),
        "profiles": sorted(op.profiles, key=PROFILES.index),
        "differentiable": op.differentiable,
        "structural": op.structural,
        "elementwise": is_elementwise(op),
        "tolerance": {dtypes.name(dtype): op.tolerance.bound_of(dtype) for dtype in made},
        "special_values": {dtypes.name(dtype): [encoded(value) for value in op.specials(dtype)] for dtype in given},
        "definition": {
            "reference": reference.digest,
            "shape_rule": _meaning(op, "shape_rule").digest,
            "tolerance": _meaning(op, "tolerance").digest,
        },
        "source": source_of(op.reference),
        "uses": list(reference.ops),
        "prims": sorted(body_prims(op)) if isinstance(op, Composite) else [],
        "examples": [_example(op, sample) for sample in _examples(op)],
        "edge_cases": [_example(op, sample) for sample in _edge_cases(op)],
        "gradient": gradient,
    }
    return {**data, "hash": op_hash(data)}


def _meaning(op: Prim, part: str) -> Meaning:
    try:
        return meaning_of(getattr(op, part))
    except RegistryError as error:
        raise RegistryError(f"{op.kind} {op.name!r}, its {part}: {error.message}", hint=error.hint) from error


# ---- values


def encoded(value: Any) -> Any:
    """A number as JSON: NaN and infinities are strings, a complex number is the list of its two parts."""
    if isinstance(value, complex):
        return [encoded(value.real), encoded(value.imag)]
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def decoded(value: Any) -> Any:
    """The number that `encoded` gave."""
    if isinstance(value, list):
        return complex(float(decoded(value[0])), float(decoded(value[1])))
    return float(value) if isinstance(value, str) else value


def _ordered(domain: Iterable[torch.dtype]) -> list[torch.dtype]:
    return sorted(domain, key=dtypes.STORED_DTYPES.index)


# ---- signature


def _operand(op: Prim, position: int) -> dict[str, Any]:
    name = op.operand_names[position]
    parameter = op.signature.parameters[name]
    slots = op.dtype_rule.operands
    return {
        "name": name,
        "optional": "None" in str(parameter.annotation),
        "variadic": parameter.kind is parameter.VAR_POSITIONAL,
        "dtype": _dtype_data(slots[min(position, len(slots) - 1)]),
    }


def _attribute(op: Prim, name: str) -> dict[str, Any]:
    annotation = str(op.signature.parameters[name].annotation)
    if annotation not in ATTRIBUTE_TYPES:
        raise RegistryError(
            f"{op.kind} {op.name!r}: attribute {name} is annotated {annotation!r}, which the document has no word for",
            hint=f"use one of {', '.join(ATTRIBUTE_TYPES)}, or add a row to ATTRIBUTE_TYPES in {__name__}",
        )
    data: dict[str, Any] = {"name": name, "type": ATTRIBUTE_TYPES[annotation][0]}
    if annotation == "str":
        data["values"] = sorted({sample.attributes[name] for sample in _all_samples(op)})
    for result in op.dtype_rule.results:
        if isinstance(result, FromAttribute) and result.attribute == name:
            data["dtypes"] = _names(result.domain)
    return data


def _names(domain: Iterable[torch.dtype]) -> list[str]:
    return [dtypes.name(dtype) for dtype in _ordered(domain)]


def _dtype_data(slot: Any) -> dict[str, Any]:
    """Where a dtype comes from: a variable, an attribute, a variable's real or complex counterpart, or nowhere."""
    if isinstance(slot, DtypeVar):
        return {"from": "variable", "name": slot.name}
    if isinstance(slot, FromAttribute):
        return {"from": "attribute", "name": slot.attribute}
    if isinstance(slot, (RealOf, ComplexOf)):
        return {"from": "real part of" if isinstance(slot, RealOf) else "complex of", "name": slot.variable.name}
    return {"from": "fixed", "name": dtypes.name(slot)}


def _variables(op: Prim) -> dict[str, list[str]]:
    variables: dict[str, frozenset[torch.dtype]] = {}
    for slot in op.dtype_rule.operands:
        if isinstance(slot, DtypeVar) and variables.setdefault(slot.name, slot.domain) != slot.domain:
            raise RegistryError(f"{op.kind} {op.name!r}: its dtype variable {slot.name} has two domains")
    return {name: _names(domain) for name, domain in sorted(variables.items())}


# ---- samples


@functools.cache
def _all_samples(op: Prim) -> tuple[Sample, ...]:
    return tuple(sample for dtype in sample_dtypes(op) for sample in samples_of(op, dtype))


def types_of(sample: Sample) -> tuple[TensorType | None, ...]:
    """The types of a sample's operands."""
    return tuple(None if x is None else TensorType(tuple(x.shape), x.dtype) for x in sample.operands)


def distinct(op: Prim, samples: Iterable[Sample]) -> Iterator[Sample]:
    """The first sample for each set of attributes, of absent operands, and of ranks; none whose results are empty."""
    seen: set[str] = set()
    for sample in samples:
        if any(0 in result.shape for result in op.infer(types_of(sample), dict(sample.attributes))):
            continue
        kind = repr((sorted(sample.attributes.items()), [None if x is None else x.ndim for x in sample.operands]))
        if kind not in seen:
            seen.add(kind)
            yield sample


def _examples(op: Prim) -> list[Sample]:
    return list(distinct(op, _shown_samples(op)))[:_MOST_EXAMPLES]


def _edge_cases(op: Prim) -> list[Sample]:
    """The samples with a 0-d or an empty tensor, one for each set of shapes."""
    found: dict[tuple[Any, ...], Sample] = {}
    for sample in _shown_samples(op):
        operands = types_of(sample)
        types = [*operands, *op.infer(operands, dict(sample.attributes))]
        shapes = tuple(None if type is None else type.shape for type in types)
        if any(shape is not None and (not shape or 0 in shape) for shape in shapes):
            found.setdefault(shapes, sample)
    return list(found.values())


def _shown_samples(op: Prim) -> Sequence[Sample]:
    """In float32 where the op has it, else in the first dtype that it has."""
    samples = _all_samples(op)
    dtypes_of_samples = [_dtypes_in(sample) for sample in samples]
    first = next((found[0] for found in dtypes_of_samples if found), None)
    chosen = torch.float32 if any(torch.float32 in found for found in dtypes_of_samples) else first
    return [sample for sample, found in zip(samples, dtypes_of_samples, strict=True) if chosen in found or not found]


def _dtypes_in(sample: Sample) -> list[torch.dtype]:
    operands = [x.dtype for x in sample.operands if x is not None]
    return operands or [value for value in sample.attributes.values() if isinstance(value, torch.dtype)]


def _example(op: Prim, sample: Sample) -> dict[str, Any]:
    operands = types_of(sample)
    return {
        "operands": [None if type is None else str(type) for type in operands],
        "attributes": {name: _attribute_value(value) for name, value in sorted(sample.attributes.items())},
        "results": [str(type) for type in op.infer(operands, dict(sample.attributes))],
    }


def _attribute_value(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return dtypes.name(value)
    return [_attribute_value(item) for item in value] if isinstance(value, (list, tuple)) else encoded(value)


def is_elementwise(op: Prim) -> bool:
    """Whether the shape rule gives every result the operands' one shape, whatever its rank and sizes."""
    sample = next(iter(_all_samples(op)))
    if not op.operand_names or op.is_variadic or None in sample.operands:
        return False
    for shape in ((), (2,), (2, 3), (2, 3, 5)):
        types = tuple(type.with_shape(shape) for type in types_of(sample) if type is not None)
        try:
            results = op.infer(types, dict(sample.attributes))
        # A shape rule that expects another rank may fail in its own way.
        except (DialectError, IndexError, ValueError):
            return False
        if any(result.shape != shape for result in results):
            return False
    return True


def body_prims(op: Composite) -> set[str]:
    """The prims that the body uses, over the op's samples: each is built as a graph, with every composite descended."""
    found: set[str] = set()
    for sample in distinct(op, _all_samples(op)):
        builder = GraphBuilder(claim_prims_only)
        operands = [None if type is None else builder.input(f"x{i}", type) for i, type in enumerate(types_of(sample))]
        with building(builder):
            op(*operands, **sample.attributes)
        found |= {node.target.name for node in builder.graph.nodes if isinstance(node.target, Prim)}
    return found
