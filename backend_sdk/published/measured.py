"""What is measured about the contract: how gradients reach it, and which aten overloads become which ops.

Both depend on the release of torch, so they are kept in a file beside the contract and no part of its hash.

Does not: prove (`backend_sdk.coverage` does; this runs its proof on the contract's own samples).
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from importlib.resources import files
from typing import Any

import torch

from backend_sdk import dtypes
from backend_sdk.coverage.calls import PRIMS, Call, prove
from backend_sdk.coverage.prove import BACKWARD, Entry, Item, iter_calls
from backend_sdk.coverage.report import reductions
from backend_sdk.errors import RegistryError
from backend_sdk.prims import CONTRACT
from backend_sdk.published.export import distinct, is_elementwise
from backend_sdk.published.meaning import meaning_of
from backend_sdk.selfcheck import sample_dtypes, samples_of
from backend_sdk.spec import Prim
from backend_sdk.torch_compat import trees

# An op whose reference torch cannot differentiate, and the item of torch's catalogue that shows the way of models: a
# formula of autograd for the aten op, which is made of other ops.
BY_CATALOGUE: Mapping[str, str] = {"qr": "linalg.qr"}

FILE = "measured.json"

# Samples of one op that are differentiated. Of an elementwise op each has attributes of its own.
_MOST_SAMPLES = 4


@functools.cache
def measured() -> dict[str, Any]:
    """What was measured when the contract was last published: ``torch``, ``gradients`` and ``reductions``."""
    data: dict[str, Any] = json.loads(files("backend_sdk.published").joinpath(FILE).read_text(encoding="utf-8"))
    return data


def gradients(contract: Iterable[Prim] = CONTRACT) -> dict[str, Any]:
    """The measured gradients of the ops that are still as they were when they were measured."""
    known = measured()["gradients"]
    return {
        op.name: {"torch": measured()["torch"], **known[op.name]["path"]}
        for op in contract
        if op.name in known and known[op.name]["reference"] == meaning_of(op.reference).digest
    }


def torch_release() -> str:
    """The installed torch without its build: ``"2.13.0"``."""
    return metadata.version("torch").partition("+")[0]


# ---- gradients


def measure(op: Prim) -> dict[str, Any]:
    """How the gradient of a differentiable op reaches the contract, by running it.

    Autograd differentiates the reference (``through`` names what, where it is something else) in ``dtype`` with respect
    to ``operands``. The graphs go through the pipeline on a backend that has nothing but the prims, without fallback,
    and what comes out is compared with eager. ``aten`` holds the aten ops that the gradient adds, with the prims that
    each became (none: it moves no data), ``prims`` all of these.

    Raises `RegistryError` when torch has no derivative of it, and what the proof raises when the gradient does not
    reach the contract or differs.
    """
    through, dtype, calls = _calls_of(op)
    operands: set[str] = set()
    reached: dict[str, set[str]] = {}
    for call in calls:
        for names, found in _ways(call, op):
            operands.update(names)
            for name, ops in found.items():
                reached.setdefault(name, set()).update(ops)
    if not operands:
        raise RegistryError(
            f"{op.kind} {op.name!r} is declared differentiable, but torch has no derivative of {through}",
            hint="say differentiable=False, or name in BY_CATALOGUE the sample calls of torch that show its gradient",
        )
    return {
        "through": through,
        "dtype": dtype,
        "operands": [name for name in op.operand_names if name in operands],
        "aten": {name: sorted(ops) for name, ops in sorted(reached.items())},
        "prims": sorted(set().union(*reached.values())),
    }


def _calls_of(op: Prim) -> tuple[str, str, Iterator[Call]]:
    if op.name in BY_CATALOGUE:
        item = Item(BACKWARD, BY_CATALOGUE[op.name], "float32")
        return f"torch.{item.name}", item.dtype, itertools.islice(iter_calls(item), _MOST_SAMPLES)
    preferred = (torch.float32, torch.complex64)
    dtype = next((d for d in preferred if d in sample_dtypes(op)), sample_dtypes(op)[0])
    return "the body" if op.kind == "composite" else "the reference", dtypes.name(dtype), _samples(op, dtype)


def _samples(op: Prim, dtype: torch.dtype) -> Iterator[Call]:
    seen: set[str] = set()
    for sample in distinct(op, _finite(op, dtype)):
        if len(seen) == _MOST_SAMPLES:
            return
        kind = repr(sorted(sample.attributes.items())) if is_elementwise(op) else str(len(seen))
        if kind not in seen:
            seen.add(kind)
            yield Call(_copied(op.reference), sample.operands, dict(sample.attributes), backward=True)


def _copied(reference: Callable[..., Any]) -> Callable[..., Any]:
    """The reference with results of their own: autograd differentiates a view of an input outside of the graph."""

    def run(*operands: Any, **attributes: Any) -> Any:
        results = reference(*operands, **attributes)
        return tuple(part.clone() for part in results) if isinstance(results, (tuple, list)) else results.clone()

    return run


def _finite(op: Prim, dtype: torch.dtype) -> Iterator[Any]:
    """Samples with a derivative: of a result that is not finite there is none."""
    for sample in samples_of(op, dtype):
        result = op.reference(*sample.operands, **sample.attributes)
        if all(part.isfinite().all() for part in (result if isinstance(result, (tuple, list)) else (result,))):
            yield sample


def _ways(call: Call, op: Prim) -> Iterator[tuple[Sequence[str], Mapping[str, list[str]]]]:
    """The operands that are differentiated together, and what the gradient's aten ops became."""
    if op.name in BY_CATALOGUE:
        yield op.operand_names, _gradient(call) or {}
        return
    floating = [i for i, x in enumerate(call.args) if x is not None and (x.is_floating_point() or x.is_complex())]
    for chosen in (floating, *([i] for i in floating if len(floating) > 1)):
        args = tuple(
            x if x is None else x.detach().clone().requires_grad_(i in chosen) for i, x in enumerate(call.args)
        )
        try:
            found = _gradient(Call(call.function, args, call.kwargs, backward=True))
        except (NotImplementedError, RuntimeError) as error:
            if "derivative" not in str(error):
                raise
            continue
        if found is not None:
            yield [_operand_name(op, i) for i in chosen], found
        if chosen is floating:
            return


def _gradient(call: Call) -> dict[str, list[str]] | None:
    """The aten ops that the gradient adds to a call, each with what it became; None when there is no gradient.

    Those are the backward graph's, and what the forward graph computes for it that the call alone does not.
    """
    ran = prove(call, PRIMS)
    if ran is None:
        return None
    leaves, structure = trees.flatten(call.args)
    plain = trees.unflatten([x.detach() if isinstance(x, torch.Tensor) else x for x in leaves], structure)
    alone = prove(replace(call, args=plain, backward=False), PRIMS)
    own = alone.reduced if alone is not None else {}
    return {name: ops for name, ops in ran.reduced.items() if name in ran.reduced_backward or name not in own}


def _operand_name(op: Prim, position: int) -> str:
    return op.operand_names[min(position, len(op.operand_names) - 1)]


# ---- what is kept


# A proof that has run: what it was made by, and its entries.
Proof = tuple[Mapping[str, Any], Sequence[Entry]]


def remeasured(proofs: Sequence[Proof], *, everything: bool) -> dict[str, Any]:
    """What `measured` is to hold: gradients of the ops that are not as they were measured, or (``everything``, or with
    another torch) of all; and the reductions that the proofs show, if there are any.
    """
    kept = _kept()
    stays = kept["gradients"] if not everything and kept["torch"] == torch_release() else {}
    paths: dict[str, Any] = {}
    for op in sorted(CONTRACT, key=lambda op: op.name):
        if op.differentiable:
            digest = meaning_of(op.reference).digest
            known = stays.get(op.name)
            fresh = known is None or known["reference"] != digest
            paths[op.name] = {"reference": digest, "path": measure(op)} if fresh else known
    made = kept["reductions"]
    if proofs:
        entries = [entry for _, found in proofs for entry in found]
        made = {
            "made_by": [dict(made_by) for made_by, _ in proofs],
            "items": len({entry.key for entry in entries}),
            "ops": {name: ops for name, ops in sorted(reductions(entries).items()) if ops},
        }
    return {"torch": torch_release(), "gradients": paths, "reductions": made}


def _kept() -> dict[str, Any]:
    empty = {"torch": "", "gradients": {}, "reductions": {"made_by": [], "items": 0, "ops": {}}}
    return measured() if files("backend_sdk.published").joinpath(FILE).is_file() else empty
