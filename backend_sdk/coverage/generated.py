"""Calls of one overload: with arguments of the table, with those that a sample of the catalogue lends, or guessed ones.

An in-place or out= overload writes into copies made within the call, so that what it writes is a result.

Does not: run them. Some candidates are no valid call; whoever asks tries them in turn.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from backend_sdk.coverage.agreement import agree, agree_in_type, agree_roughly
from backend_sdk.coverage.arguments import changed_arguments, valid_arguments
from backend_sdk.coverage.calls import Call, run_in_eager
from backend_sdk.coverage.factors import UNIQUE
from backend_sdk.torch_compat import trees
from backend_sdk.torch_compat.ops import name_arguments
from backend_sdk.torch_compat.overloads import (
    Argument,
    arguments,
    aten_overloads,
    base_name,
    is_mutable,
    recording,
    result_count,
)

# Ops that no sample runs, with one whose arguments have the same names.
_RELATED = {
    "_native_batch_norm_legit_no_training": "_native_batch_norm_legit",
    "_batch_norm_no_update": "_native_batch_norm_legit",
    "_batch_norm_with_update": "_native_batch_norm_legit",
    "_batch_norm_impl_index": "_native_batch_norm_legit",
    "cudnn_batch_norm": "_native_batch_norm_legit",
    "native_batch_norm": "_native_batch_norm_legit",
}

# Ops whose values eager leaves undefined: only their types are compared.
UNDEFINED = frozenset(
    {
        "_make_dep_token",
        "empty",
        "empty_like",
        "empty_permuted",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
    }
)

# Ops that eager computes to three digits only.
_ROUGH = frozenset({"_standard_gamma_grad"})


# Ops that may place equal elements in any order: where an element came from is not compared.
_TIES_IN_ANY_ORDER = frozenset({"sort", "topk", "kthvalue", "median", "nanmedian", "mode"})


def related(name: str) -> str:
    """What an overload computes, or what the op computes that lends it arguments."""
    return _RELATED.get(stem(name), stem(name))


class _NoValue(Exception):
    """An argument for which nothing can be made."""


def tabled(name: str) -> dict[str, Any] | None:
    """The arguments that the table has for the overload, or None."""
    return valid_arguments(_entries(name))


def _entries(name: str) -> tuple[str, str]:
    """Under which names the tables may hold an overload: its own before what it computes."""
    return name.removeprefix("aten."), stem(name)


def candidates(name: str, lent: Iterable[Call]) -> Iterator[Call]:
    """Calls of the overload ``name``, the likelier first. ``lent`` are sample calls whose arguments may fit."""
    schema = arguments(aten_overloads()[name])
    given = tabled(name)
    yield from _assembled(name, schema, [given] if given else [], guessed=False)
    for call in itertools.islice(lent, 12):
        for given in _lent_arguments(name, call):
            yield from _assembled(name, schema, [given], guessed=False)
    yield from _assembled(name, schema, _guesses(schema), guessed=True)


# What an argument may be that has a default, by torch's word for its type. One of a pair is most often the default.
_OPTIONAL: Mapping[str, tuple[Any, ...]] = {
    "bool": (True, False),
    "number": (2, 0.5),
    "float": (0.5, 2.0),
    "ScalarType": (torch.float64,),
}


# Booleans that are not turned over, with why.
_NOT_TURNED = {
    "training": "without statistics eager's batch norm reads memory that it does not have, and ends the process",
    "train": "what is saved for the backward pass differs, and eager does not check what it is given",
    "has_biases": "it says how many weights a layer has, which eager does not check everywhere",
    "bidirectional": "it says how many weights a layer has, which eager does not check everywhere",
    "batch_first": "it says which sizes the states have, which eager does not check everywhere",
    "sparse": "the result would be sparse",
    "sparse_grad": "the result would be sparse",
    "sorted": "eager gives the elements in any order",
    "need_weights": "torch's fake kernel gives an empty tensor where eager gives none",
}
# Nor are those of these: they say how other arguments, which eager takes as they are, were made.
_NEVER_TURNED = frozenset({"mkldnn_rnn_layer", "mkldnn_rnn_layer_backward"})


def variants(name: str, call: Call) -> Iterator[Call]:
    """The call with one change each: an argument more, of those that have a default and that it leaves out; a boolean
    turned over; and what the table says may be given otherwise.
    """
    schema = arguments(aten_overloads()[name])
    values = call.args[0]
    known = {argument.name for argument in schema}
    changes: list[dict[str, Any]] = []
    for argument in schema:
        if argument.out or (argument.required and argument.name not in values):
            continue
        if argument.name not in values:
            word = argument.type.removeprefix("Optional[").removesuffix("]")
            changes += [{argument.name: value} for value in _OPTIONAL.get(word, ())]
        elif isinstance(values[argument.name], bool) and _turns(name, argument.name):
            changes.append({argument.name: not values[argument.name]})
    changes += [change for change in changed_arguments(_entries(name)) if change.keys() <= known]
    for change in changes:
        yield replace(call, args=({**values, **change},))


def _turns(name: str, argument: str) -> bool:
    return argument not in _NOT_TURNED and stem(name) not in _NEVER_TURNED


# ---- what samples lend


def _lent_arguments(name: str, call: Call) -> Iterator[dict[str, Any]]:
    """Arguments by name: as the function itself got them, and as the aten ops that eager ran within got them."""
    own = arguments(aten_overloads()[name])
    yield {**dict(zip([argument.name for argument in own], call.args, strict=False)), **call.kwargs}
    try:
        with recording() as recorded:
            run_in_eager(call)
    except Exception:
        return
    wanted = {stem(name), _RELATED.get(stem(name))}
    for called, (args, kwargs) in recorded.items():
        if stem(called) in wanted and called in aten_overloads():
            given = name_arguments(aten_overloads()[called], args, kwargs)
            yield given
            # Lists and scalar variants call the same argument otherwise.
            yield dict(zip([argument.name for argument in own if not argument.out], given.values(), strict=False))


def stem(name: str) -> str:
    """What an overload computes, whatever it writes into: ``add`` of ``aten.add_.Tensor`` and of ``aten.add.out``."""
    base = name.split(".")[1]
    if base.startswith("__i") and base.endswith("__"):
        return base.replace("__i", "__", 1)
    for ending in ("_functional", "_copy", "_"):
        if base.endswith(ending) and not base.endswith("__"):
            base = base.removesuffix(ending)
            break
    return base.removeprefix("_foreach_").removeprefix("_unsafe_")


@functools.cache
def functional_overloads(name: str) -> tuple[Any, ...]:
    """The overloads that compute the same and write into nothing."""
    base = name.split(".")[1].removesuffix("_")
    bases = (base, f"{base}_functional")
    return tuple(op for op in aten_overloads().values() if base_name(op) in bases and not is_mutable(op))


# ---- guesses


# Arguments whose name says what they must be.
_BY_NAME: Mapping[str, Any] = {
    "dim": 0,
    "dim0": 0,
    "dim1": 1,
    "axis": 0,
    "dims": [0],
    "kernel_size": 2,
    "stride": 1,
    "padding": 0,
    "dilation": 1,
    "groups": 1,
    "p": 0.5,
    "eps": 1e-5,
    "momentum": 0.1,
    "size": 3,
    "n": 3,
    "N": 3,
    "M": 3,
    "steps": 4,
    "end": 4,
    "start": 0,
    "step": 1,
    "high": 9,
    "low": 0,
    "sections": 2,
    "chunks": 2,
    "num_classes": 9,
    "output_size": 4,
    "input_size": 4,
    "scale_factors": 2.0,
    "num_groups": 1,
    "window_length": 4,
    "reduction": 1,
    "index": 0,
}

_SHAPES = ((3, 3), (2, 3), (4,), (), (2, 3, 4), (2, 3, 4, 4), (2, 3, 4, 4, 4))
_DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64)


def _guesses(schema: Sequence[Argument]) -> Iterator[dict[str, Any]]:
    required = [argument for argument in schema if argument.required and not argument.out]
    has_tensor = any("Tensor" in argument.type for argument in required)
    for dtype, shape in itertools.product(
        _DTYPES if has_tensor else _DTYPES[:1], _SHAPES if has_tensor else _SHAPES[:1]
    ):
        generator = torch.Generator().manual_seed(0)
        optional = [argument for argument in required if argument.type.startswith("Optional[")]
        # All, none, or the first of what may be None: output_size or scale_factors, but not both.
        for absent in (optional, [], optional[1:])[: 3 if optional else 1]:
            try:
                yield {
                    argument.name: None if argument in absent else _guess(argument, shape, dtype, generator)
                    for argument in required
                }
            except _NoValue:
                return


def _guess(argument: Argument, shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Any:
    word = argument.type
    if word.startswith("Optional["):
        word = word[len("Optional[") : -1]
    if word in ("Tensor", "List[Tensor]", "List[Optional[Tensor]]"):
        kind = torch.int64 if argument.name in ("index", "indices", "target") else dtype
        made = (torch.rand(shape, generator=generator) * (1 if kind.is_floating_point else 3) + 0.25).to(kind)
        return made if word == "Tensor" else [made, made.clone()]
    if argument.name in ("input_size", "input_sizes", "self_size"):
        return list(shape)
    known = _BY_NAME.get(argument.name)
    if word == "List[int]":
        return known if isinstance(known, list) else [known if isinstance(known, int) else 1] * (argument.length or 2)
    if word == "List[float]":
        return [known if isinstance(known, float) else 1.0] * (argument.length or 2)
    if word == "List[number]":
        return [1.5, 2.5]
    if word == "int":
        return known if isinstance(known, int) else 1
    if word in ("number", "float"):
        return known if isinstance(known, (int, float)) else 1.5 if dtype.is_floating_point else 2
    if word == "bool":
        return False
    if word in ("ScalarType", "Layout", "Device", "Generator", "MemoryFormat"):
        return {"ScalarType": torch.float32, "Device": torch.device("cpu"), "Layout": torch.strided}.get(word)
    raise _NoValue(argument.name)


# ---- from arguments to a call


def _assembled(
    name: str, schema: Sequence[Argument], given: Iterable[Mapping[str, Any]], *, guessed: bool
) -> Iterator[Call]:
    op = aten_overloads()[name]
    for one in given:
        try:
            values = {
                argument.name: _fitted(argument, one[argument.name])
                for argument in schema
                if argument.name in one and not argument.out
            }
        except _NoValue:
            continue
        if any(argument.required and not argument.out and argument.name not in values for argument in schema):
            continue
        compared = agree_in_type if stem(name) in UNDEFINED else agree_roughly if stem(name) in _ROUGH else agree
        yield Call(_Written(op, schema), (_detached(values),), agree=compared, guessed=guessed)


def _fitted(argument: Argument, value: Any) -> Any:
    """A value in the form that the schema asks for: a list for one, a tensor for a number, or the other way round."""
    word = argument.type.removeprefix("Optional[")
    if value is None:
        if argument.type.startswith("Optional["):
            return None
        raise _NoValue(argument.name)
    if word.startswith("List["):
        if isinstance(value, (list, tuple)):
            return list(value)
        return [value, value]
    if word.startswith("Tensor") and isinstance(value, (int, float, complex)):
        return torch.tensor(value)
    if word.startswith("number") and isinstance(value, torch.Tensor):
        if value.numel() != 1 and not value.numel():
            raise _NoValue(argument.name)
        return value.flatten()[0].item()
    if word.rstrip("]") in _NUMBERS and isinstance(value, torch.Tensor):
        # Eager takes a tensor for a number, and a captured graph does not.
        if value.numel() != 1:
            raise _NoValue(argument.name)
        return _NUMBERS[word.rstrip("]")](value.item())
    return value


_NUMBERS: Mapping[str, Callable[[Any], Any]] = {"int": int, "float": float, "bool": bool}


def _detached(values: Mapping[str, Any]) -> dict[str, Any]:
    leaves, structure = trees.flatten(dict(values))
    plain = [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    result: dict[str, Any] = trees.unflatten(plain, structure)
    return result


class _Written:
    """A call of an overload whose results include what it writes."""

    def __init__(self, op: Any, schema: Sequence[Argument]) -> None:
        self._op = op
        self._written = [argument.name for argument in schema if argument.written and not argument.out]
        self._out = [argument for argument in schema if argument.out]
        self._sizes: list[Any] | None = None
        self._drops_places = stem(str(op)) in _TIES_IN_ANY_ORDER
        self._unique = UNIQUE.get(stem(str(op)))

    def __call__(self, values: Mapping[str, Any]) -> Any:
        copies = {name: _copy(values[name]) for name in self._written if values.get(name) is not None}
        outs = {argument.name: value for argument, value in zip(self._out, self._outputs(values), strict=False)}
        results = self._op(**{**values, **copies, **outs})
        if self._unique is not None and values.get("compute_v", True) and values.get("compute_uv", True):
            # What out= tensors hold is among the results.
            return self._unique(next(iter(values.values())), results)
        found = [results, *copies.values(), *outs.values()]
        if not self._drops_places:
            return found
        return [leaf for leaf in trees.leaves(found) if leaf.dtype != torch.int64]

    def _outputs(self, values: Mapping[str, Any]) -> list[Any]:
        """Tensors to write into, of the right sizes: torch resizes empty ones, once, to learn them."""
        if not self._out:
            return []
        if self._sizes is None:
            self._sizes = self._learnt(values)
        return [_made(types) for types in self._sizes]

    def _learnt(self, values: Mapping[str, Any]) -> list[Any]:
        for functional in functional_overloads(str(self._op)):
            if not values.keys() <= {argument.name for argument in arguments(functional)}:
                continue
            try:
                results = functional(**values)
            except (RuntimeError, TypeError, IndexError):
                continue
            if result_count(functional) == 1:
                return [_types(results)]
            return [_types(result) for result in results][: len(self._out)]
        for dtype in (self._dtype(values), torch.int64, torch.bool, torch.float32):
            empty = {
                argument.name: [torch.empty(0, dtype=dtype) for _ in range(self._count(values))]
                if argument.type.startswith("List[")
                else torch.empty(0, dtype=dtype)
                for argument in self._out
            }
            try:
                self._op(**values, **empty)
            except (RuntimeError, IndexError):
                # Most often: this result has another dtype.
                continue
            return [_types(value) for value in empty.values()]
        raise TypeError(f"{self._op} takes no results of the dtypes tried")

    def _dtype(self, values: Mapping[str, Any]) -> torch.dtype:
        tensors = [leaf for leaf in trees.leaves(dict(values)) if isinstance(leaf, torch.Tensor)]
        return tensors[0].dtype if tensors else torch.get_default_dtype()

    def _count(self, values: Mapping[str, Any]) -> int:
        return max((len(value) for value in values.values() if isinstance(value, list)), default=1)


def _types(value: Any) -> Any:
    return [_types(item) for item in value] if isinstance(value, list) else (tuple(value.shape), value.dtype)


def _made(types: Any) -> Any:
    return [_made(item) for item in types] if isinstance(types, list) else torch.zeros(types[0], dtype=types[1])


def _copy(value: Any) -> Any:
    return [item.clone() for item in value] if isinstance(value, list) else value.clone()
