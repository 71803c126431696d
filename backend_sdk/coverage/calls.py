"""One call of a torch function, in eager and through the whole pipeline, and whether the two agree.

The pipeline is entered behind Dynamo, with ``fallback="error"``, on a backend that has the contract and nothing else: a
call that comes back has reached the contract. Or on a vendor's backend, with its rules: what comes back it has run.

Does not: choose calls, or say how near a result must be (`agreement` does).
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from backend_sdk.backend import Backend
from backend_sdk.backends.reference import ReferenceBackend
from backend_sdk.coverage.agreement import Agreement, Measure, Mismatch, agree, agree_in_type
from backend_sdk.coverage.draws import RUNS, agree_in_distribution, equal_whatever_the_seed, same
from backend_sdk.errors import UnsupportedOpError
from backend_sdk.pipeline.capture import BACKWARD
from backend_sdk.pipeline.compile import compile_module
from backend_sdk.pipeline.options import Options
from backend_sdk.pipeline.report import FALLBACK, GraphReport, collecting
from backend_sdk.plugins import get_backend, plugin_of
from backend_sdk.plugins.discovery import DYNAMO_PREFIX
from backend_sdk.torch_compat import op_catalogue, trees
from backend_sdk.torch_compat.aot import open_sizes
from backend_sdk.torch_compat.ops import is_random
from backend_sdk.torch_compat.overloads import aten_overloads, recording
from backend_sdk.torch_compat.rounding import moved, rounding
from backend_sdk.tracing import traceable

# The seed that torch's catalogue sets within its random ops.
SEED = 42

# Of the runs whose draws are compared: the two sides share none.
_SEEDS_OF_OURS = range(1000, 1000 + RUNS)
_SEEDS_OF_EAGER = range(2000, 2000 + RUNS)

PRIMS, COMPOSITES = "prims", "composites"


def level_of(backend: str) -> str:
    """The level at which a call runs on an installed or registered backend, with its claims and rules."""
    return f"{DYNAMO_PREFIX}{backend}"


class Refused(Exception):
    """Some ops do not reach the contract, or are refused by a vendor's backend: ``ops``, by name."""

    def __init__(self, ops: list[str], reasons: Sequence[str] = ()) -> None:
        self.ops = ops
        what = f"refused by the backend: {'; '.join(reasons)}" if reasons else None
        super().__init__(what or f"not reduced to the contract: {', '.join(ops)}")


@dataclass
class Call:
    """A function with its arguments. ``backward`` compares gradients with respect to the inputs that ask for one.

    ``agree`` compares; of what eager leaves undefined, only the types. ``guessed``: its arguments were made up, and
    eager may not have checked that they make sense.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    backward: bool = False
    agree: Agreement = agree
    guessed: bool = False


def together(calls: Sequence[Call]) -> Call:
    """Several calls of one kind as one: they make one graph, which compiles faster than one for each of them."""
    if len(calls) == 1:
        return calls[0]

    def run(*packs: tuple[tuple[Any, ...], dict[str, Any]]) -> list[Any]:
        return [call.function(*args, **kwargs) for call, (args, kwargs) in zip(calls, packs, strict=True)]

    return replace(calls[0], function=run, args=tuple((call.args, dict(call.kwargs)) for call in calls), kwargs={})


@dataclass
class Ran:
    """What a call that agrees ran: the overloads of eager, and the contract's ops by captured overload, of all graphs
    and of the backward graph alone.

    ``drew``: its graphs draw random numbers, in so many ops of the contract, and `prove_draws` must show from which
    distribution.
    """

    overloads: list[str]
    reduced: dict[str, list[str]]
    reduced_backward: dict[str, list[str]]
    drew: int = 0


def prove(call: Call, level: str) -> Ran | None:
    """Run a call both ways and compare. None when there is nothing to compare (a backward without gradients).

    ``level`` is `PRIMS`, `COMPOSITES` or what `level_of` gives for a backend.

    Raises `Mismatch`, `Refused`, or what the pipeline raises. What eager raises comes as it is: ask `runs` first.
    """
    with recording() as recorded:
        eager = _run(call, call.function)
    overloads = [name for name in recorded if name in aten_overloads()]
    if call.backward and not any(isinstance(leaf, torch.Tensor) for leaf in eager):
        return None
    views = [] if call.backward else _views_of_arguments(call, eager)
    if views:
        eager += [eager[place].clone() for place in views]
        call = _with_copies(call, views)
    reports: list[GraphReport] = []
    backend = _backend(level)
    results = [_compiled(call, "eager", backend, reports)]
    if level == COMPOSITES:
        results.append(_compiled(call, "eager", _backend(PRIMS), []))
    measure = functools.cache(lambda: _measure(call))
    for actual in results:
        call.agree(actual, eager, measure)
    drawn: list[GraphReport] = []
    if drawing(overloads):
        # Drawn by the contract's own generator: other numbers, of the same types.
        agree_in_type(_compiled(call, "counter", backend, drawn), eager)
        reports += drawn
    if len(results) == 2:
        call.agree(results[0], results[1], measure)
    backward = [report for report in reports if report.kind == BACKWARD]
    return Ran(overloads, _reduced(reports), _reduced(backward), sum(len(report.nodes) for report in drawn))


def drawing(overloads: Iterable[str]) -> frozenset[str]:
    """Those of the overloads that draw random numbers."""
    aten = aten_overloads()
    return frozenset(name for name in overloads if name in aten and is_random(aten[name]))


def drawn_by(call: Call) -> frozenset[str]:
    """The overloads by which eager draws random numbers for the call."""
    with recording() as recorded:
        _run(call, call.function)
    return drawing(recorded)


# Runs that show whether the results depend on the seed at all.
_FIRST_RUNS = 8


def prove_draws(call: Call, level: str) -> None:
    """Run a call that draws random numbers by many seeds, both ways, and compare the distributions of its results.

    Raises `Mismatch`, or what `prove` raises.
    """
    call = _with_copies(call, _views_of_arguments(call, _run(call, call.function)))
    compiled = _ready(call, "counter", _backend(level), "error")

    def ours(seeds: range) -> list[list[Any]]:
        return [_kept(_run(call, compiled, seed)) for seed in seeds]

    def theirs(seeds: range) -> list[list[Any]]:
        with op_catalogue.unseeded():
            return [_kept(_run(call, call.function, seed)) for seed in seeds]

    with collecting(quiet=True):
        samples = ours(_SEEDS_OF_OURS[:_FIRST_RUNS]), theirs(_SEEDS_OF_EAGER[:_FIRST_RUNS])
        again = ours(_SEEDS_OF_OURS[:1])
    if not same(again[0], samples[0][0]):
        raise Mismatch("one seed gives one result, and then another")
    if not equal_whatever_the_seed(*samples):
        samples[0].extend(ours(_SEEDS_OF_OURS[_FIRST_RUNS:]))
        samples[1].extend(theirs(_SEEDS_OF_EAGER[_FIRST_RUNS:]))
        agree_in_distribution(*samples)


def _kept(results: Sequence[Any]) -> list[Any]:
    """Results, copied: the next run may write into them."""
    return [leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in results]


def _views_of_arguments(call: Call, results: Sequence[Any]) -> list[int]:
    """Which results are views of an argument: the runner makes such a view out of the argument itself, and nobody would
    look at what the graph computes for it.
    """
    given = {_memory(leaf) for leaf in trees.leaves((call.args, dict(call.kwargs)))} - {None}
    return [place for place, leaf in enumerate(results) if _memory(leaf) in given]


def _with_copies(call: Call, places: Sequence[int]) -> Call:
    """The call with a copy of each of these results after all of them."""

    def run(*args: Any, **kwargs: Any) -> list[Any]:
        found = trees.leaves(call.function(*args, **kwargs))
        return [*found, *(found[place].clone() for place in places)]

    return replace(call, function=run)


def _memory(value: Any) -> int | None:
    """Where a dense tensor's memory starts."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or not value.numel():
        return None
    return value.untyped_storage().data_ptr()


def runs(call: Call) -> bool:
    """Whether eager runs the call at all."""
    try:
        _run(call, call.function)
    except Exception:
        return False
    return True


def run_in_eager(call: Call) -> list[Any]:
    """What a call gives in eager: results, or gradients."""
    return _run(call, call.function)


def captured(call: Call) -> dict[str, list[str]]:
    """The overloads that the captured graph of a call holds, with the contract's ops that each becomes, composites kept
    whole. Raises what the pipeline raises, and `Refused` for an op that does not reach the contract.
    """
    reports: list[GraphReport] = []
    _compiled(call, "counter", _backend(COMPOSITES), reports)
    return _reduced(reports)


def _backend(level: str) -> Backend:
    if level.startswith(DYNAMO_PREFIX):
        return get_backend(level.removeprefix(DYNAMO_PREFIX))
    return ReferenceBackend(composites=level == COMPOSITES)


def _compiled(call: Call, random: str, backend: Backend, reports: list[GraphReport]) -> list[Any]:
    plugin = plugin_of(backend.name)
    theirs = plugin is not None and plugin.backend is backend

    def run(fallback: str, into: list[GraphReport]) -> list[Any]:
        with collecting(quiet=True) as collected:
            result = _run(call, _ready(call, random, backend, fallback))
        into.extend(collected)
        return result

    try:
        return run("error", reports)
    except UnsupportedOpError as error:
        allowed: list[GraphReport] = []
        run("allow", allowed)
        fallbacks = [node for report in allowed for node in report.nodes if node.verdict == FALLBACK]
        refused = {node.op for node in fallbacks}
        if theirs:
            reasons = dict.fromkeys(f"{node.op} ({', '.join(node.reasons)})" for node in fallbacks)
            raise Refused(sorted(refused), list(reasons)) from error
        inner = {name for node in fallbacks for name in node.ops if "." in name}
        raise Refused(sorted(inner or refused)) from error


def _ready(call: Call, random: str, backend: Backend, fallback: str) -> Callable[..., Any]:
    """The call's function, compiled for its own arguments, whatever it is called with."""
    module = TensorFunction(call.function, call.args, call.kwargs)
    options = Options(random=random, fallback=fallback)
    with open_sizes(module.tensors) as examples:
        compiled = compile_module(module, examples, backend, options)  # type: ignore[arg-type]
    return lambda *args, **kwargs: compiled(*module.tensors)


class TensorFunction(torch.nn.Module):
    """A function of tensors only: what an argument list holds beside them is part of the function."""

    def __init__(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        super().__init__()
        self._function = function
        self._leaves, self._structure = trees.flatten((tuple(args), dict(kwargs)))
        self._places = [i for i, leaf in enumerate(self._leaves) if isinstance(leaf, torch.Tensor)]

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [self._leaves[place] for place in self._places]

    def forward(self, *tensors: torch.Tensor) -> tuple[Any, ...]:
        leaves = list(self._leaves)
        for place, tensor in zip(self._places, tensors, strict=True):
            leaves[place] = tensor
        args, kwargs = trees.unflatten(leaves, self._structure)
        with traceable():
            return tuple(trees.leaves(self._function(*args, **kwargs)))


def _run(call: Call, function: Callable[..., Any], seed: int = SEED) -> list[Any]:
    torch.manual_seed(seed)
    results = trees.leaves(function(*call.args, **call.kwargs))
    if not call.backward:
        return results
    inputs = [
        leaf
        for leaf in trees.leaves((call.args, dict(call.kwargs)))
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad
    ]
    return _gradients(results, inputs)


def _gradients(results: Sequence[Any], inputs: Sequence[torch.Tensor]) -> list[Any]:
    """Gradients of a sum of the results in which each element has a weight of its own."""
    total: Any = None
    for result in results:
        if isinstance(result, torch.Tensor) and result.requires_grad:
            weights = torch.linspace(0.5, 1.5, result.numel(), dtype=result.dtype.to_real()).reshape(result.shape)
            real = result.real + result.imag if result.is_complex() else result
            part = (real * weights).sum()
            total = part if total is None else total + part
    if total is None or not inputs:
        return [None] * len(inputs)
    return list(torch.autograd.grad(total, inputs, allow_unused=True))


def _reduced(reports: Sequence[GraphReport]) -> dict[str, list[str]]:
    found: dict[str, set[str]] = {}
    for report in reports:
        for node in report.nodes:
            # A call without a namespace is no overload: torch's order of checks.
            if node.verdict != FALLBACK and "." in node.op:
                found.setdefault(node.op, set()).update(name for name in node.ops if "." not in name)
    return {name: sorted(ops) for name, ops in found.items()}


# ---- what the true result is

# Draws of rounding errors.
_PERTURBATIONS = 4

# How much smaller the second moves of a draw are, and by how much less than that a change shrinks at a jump.
_SMALLER, _JUMPS = 1024, 8


def _measure(call: Call) -> Measure | None:
    """The call in double precision, in eager, and what rounding its steps costs. None when eager has no such call.

    Where a function jumps (``floor`` of an integer, the gradient of a maximum of equals) any move changes the result by
    as much: that is no rounding error of an input that is exactly there. Of a smooth function a smaller move changes it
    by less.
    """
    truth = _run_wide(call)
    if truth is None:
        return None
    inputs = [leaf for leaf in trees.leaves((call.args, dict(call.kwargs))) if _rounds(leaf)]
    # Double precision resolves nothing below its own epsilon, and of a move by a few of them little.
    largest = _SMALLER**2 if any(leaf.dtype.to_real() == torch.float64 for leaf in inputs) else 1
    errors: list[torch.Tensor | None] = [None] * len(truth)
    for seed in range(_PERTURBATIONS):
        # The same moves twice, of two sizes.
        coarse, fine = (_changes(call, truth, seed, size) for size in (largest, largest / _SMALLER))
        for position, (change, smaller) in enumerate(zip(coarse, fine, strict=True)):
            if change is not None and smaller is not None:
                smooth = torch.where(_JUMPS * smaller > change, 0.0, change / largest)
                error = errors[position]
                errors[position] = smooth if error is None else torch.maximum(error, smooth)
    return Measure(truth, errors)


def _changes(call: Call, truth: Sequence[Any], seed: int, size: float) -> list[torch.Tensor | None]:
    """How far moves of the inputs, by up to ``size`` epsilons, move each element of the results."""
    found = _run_wide(call, torch.Generator().manual_seed(SEED + seed), size) or [None] * len(truth)
    return [
        (value.detach() - true.detach()).abs().nan_to_num(0.0, 0.0, 0.0)
        if _rounds(value) and value.shape == true.shape
        else None
        for value, true in zip(found, truth, strict=True)
    ]


def _rounds(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex())


def _run_wide(call: Call, generator: torch.Generator | None = None, size: float = 0.0) -> list[Any] | None:
    """The call with float64 and complex128 inputs; with a generator, these and the results of all its steps are moved
    by up to ``size`` epsilons of the dtypes that it has.
    """
    leaves, structure = trees.flatten((call.args, dict(call.kwargs)))
    epsilon = min((torch.finfo(leaf.dtype).eps for leaf in leaves if _rounds(leaf)), default=0.0)

    def wide(leaf: Any) -> Any:
        if not _rounds(leaf):
            return leaf
        made = leaf.detach().to(torch.complex128 if leaf.is_complex() else torch.float64)
        if generator is not None:
            made = moved(made, generator, size * torch.finfo(leaf.dtype).eps)
        return made.requires_grad_(leaf.requires_grad)

    args, kwargs = trees.unflatten([wide(leaf) for leaf in leaves], structure)
    wider = Call(call.function, args, kwargs, backward=call.backward)
    try:
        with contextlib.nullcontext() if generator is None else rounding(generator, size * epsilon):
            return _run(wider, wider.function)
    except Exception:
        return None


def quiet() -> None:
    """Settings of a process that proves: one thread, and no log line for each fallback."""
    torch.set_num_threads(1)
    logging.getLogger("backend_sdk").setLevel(logging.ERROR)
