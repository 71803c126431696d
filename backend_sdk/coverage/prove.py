"""Proof by execution: one item is every sample of an OpInfo in one dtype, forward or backward, or one overload.

Does not: choose the calls of an overload (`generated` does), or judge a failure (`report` does).
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

import torch

from backend_sdk.coverage import calls
from backend_sdk.coverage.agreement import Mismatch, agree, agree_in_type
from backend_sdk.coverage.calls import Call, Refused
from backend_sdk.coverage.generated import UNDEFINED, candidates, tabled, variants
from backend_sdk.coverage.special import special_calls
from backend_sdk.torch_compat import op_catalogue

# Guessed calls of an overload that may fail before it counts as failed.
_MOST_GUESSES = 4

# Calls of an overload that are proven beside the first, not counting those with one more argument.
_FURTHER_CALLS = 2

FORWARD, BACKWARD, OVERLOAD, SPECIAL = "forward", "backward", "overload", "special"

DEFAULT = "float32"

DTYPES = {
    name: getattr(torch, name) for name in ("float32", "float64", "bfloat16", "float16", "int64", "bool", "complex64")
}

# Ops that may place equal elements in any order, with the position of ``dim`` after the tensor: what they place is
# compared, not where it came from.
TIES_IN_ANY_ORDER = {"argsort": 0, "sort": 0, "topk": 1, "median": 0, "nanmedian": 0, "mode": 0, "kthvalue": 1}


class Status(StrEnum):
    """What running an item showed."""

    PROVEN = "proven"
    MISMATCH = "mismatch"
    REFUSED = "refused"
    RAISED = "raised"
    DIED = "died"
    # No sample had anything to compare, or no call could be made.
    NOTHING = "nothing"


@dataclass(frozen=True)
class Item:
    """One thing to prove. ``name`` is an OpInfo's full name or an overload's."""

    kind: str
    name: str
    dtype: str

    @property
    def key(self) -> str:
        """The item's name in a journal."""
        return f"{self.kind}/{self.name}/{self.dtype}"


@dataclass
class Entry:
    """What a journal holds of an item. ``refused`` are the ops that did not reach the contract."""

    key: str
    status: Status = Status.NOTHING
    samples: int = 0
    failed: int = 0
    message: str = ""
    refused: list[str] = field(default_factory=list)
    overloads: list[str] = field(default_factory=list)
    reduced: dict[str, list[str]] = field(default_factory=dict)
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """The entry as plain data."""
        return asdict(self)

    @staticmethod
    def parse(data: Mapping[str, Any]) -> Entry:
        """An entry out of plain data."""
        return Entry(**{**data, "status": Status(data["status"])})

    @property
    def item(self) -> Item:
        """What the entry is about."""
        kind, rest = self.key.split("/", 1)
        name, dtype = rest.rsplit("/", 1)
        return Item(kind, name, dtype)


def op_info_items(
    names: Sequence[str], dtypes: Sequence[str], kinds: Sequence[str] = (FORWARD, BACKWARD)
) -> list[Item]:
    """The items of torch's catalogue: every OpInfo, or those of ``names``, in each dtype asked for that eager takes."""
    found = []
    has = {FORWARD: op_catalogue.has_forward, BACKWARD: op_catalogue.has_backward}
    for name, op in op_catalogue.op_infos().items():
        if names and name not in names and op.name not in names:
            continue
        taken = [dtype for dtype in dtypes if has[FORWARD](op, DTYPES[dtype])]
        # Of an op that does not take the default dtype the first that it takes stands for that.
        if not taken and DEFAULT in dtypes:
            taken = [next((dtype for dtype in DTYPES if has[FORWARD](op, DTYPES[dtype])), DEFAULT)]
        found += [Item(FORWARD, name, dtype) for dtype in taken if FORWARD in kinds]
        found += [
            Item(BACKWARD, name, dtype) for dtype in taken if BACKWARD in kinds and has[BACKWARD](op, DTYPES[dtype])
        ]
    return found


def prove(item: Item, level: str, limit: int | None, donors: Sequence[Item]) -> Entry:
    """Run an item. ``donors`` are the items whose samples lend an overload their arguments.

    What a call raises is in the entry.
    """
    entry = Entry(item.key)
    start = time.perf_counter()
    if item.kind == OVERLOAD:
        _prove_overload(item, level, donors, entry)
    elif item.kind == SPECIAL:
        _prove_special(item, level, donors, entry)
    else:
        _prove_samples(item, level, limit, entry)
    if entry.samples and not entry.failed:
        entry.status = Status.PROVEN
    entry.seconds = round(time.perf_counter() - start, 3)
    return entry


def _prove_samples(item: Item, level: str, limit: int | None, entry: Entry) -> None:
    samples = itertools.islice(_surviving(iter_calls(item), entry), limit)
    size = 1
    drawn: list[Drawn] = []
    while batch := list(itertools.islice(samples, size)):
        start = time.perf_counter()
        drawn += _attempt_all(batch, level, entry)
        each = (time.perf_counter() - start) / len(batch)
        size = max(1, min(_LARGEST_BATCH, int(_BATCH_S / each)))
    _attempt_draws(drawn, level, entry)


# What samples of one graph may take together, by what the last ones took. Most of a small graph's time is torch's, once
# for each graph; of a large one it is not.
_BATCH_S = 0.8
_LARGEST_BATCH = 24


class Drawn(NamedTuple):
    """A call that drew random numbers: by which overloads of eager, and about how many ops of the contract it is."""

    call: Call
    by: frozenset[str]
    ops: int


# What is repeated to see a distribution: of an item's calls some, and no more ops than these beside the first call of
# each set of overloads, as each op runs hundreds of times.
_MOST_DRAWN = 12
_MOST_DRAWN_OPS = 120


def _attempt_draws(drawn: Sequence[Drawn], level: str, entry: Entry) -> None:
    """Prove the distributions of calls that draw, all in one graph."""
    if drawn and not entry.failed:
        with _noting(entry):
            calls.prove_draws(calls.together(_repeated(drawn)), level)


def _repeated(drawn: Sequence[Drawn]) -> list[Call]:
    """The calls to repeat: of each set of overloads the first, then others from all over."""
    firsts = {one.by: one for one in reversed(drawn)}
    step = -(-len(drawn) // _MOST_DRAWN)
    chosen = list(firsts.values())
    for one in drawn[::step]:
        if (
            all(one.call is not other.call for other in chosen)
            and sum(other.ops for other in chosen) + one.ops <= _MOST_DRAWN_OPS
        ):
            chosen.append(one)
    return [one.call for one in chosen]


def _attempt_all(batch: Sequence[Call], level: str, entry: Entry) -> list[Drawn]:
    """Prove calls in one graph, and when that fails, each in its own. Gives those that drew."""
    found = Entry("")
    if len(batch) > 1:
        ran = _attempt(calls.together(batch), level, found)
        if not found.failed:
            found.samples = len(batch) if found.samples else 0
            _add(found, entry)
            if ran is None or not ran.drew:
                return []
            each = ((call, calls.drawn_by(call)) for call in batch)
            return [Drawn(call, by, ran.drew // len(batch)) for call, by in each if by]
    return [one for call in batch for one in _drawn(call, _attempt(call, level, entry))]


def _drawn(call: Call, ran: calls.Ran | None) -> list[Drawn]:
    return [Drawn(call, calls.drawing(ran.overloads), ran.drew)] if ran and ran.drew else []


def _add(found: Entry, entry: Entry) -> None:
    entry.samples += found.samples
    entry.overloads = sorted({*entry.overloads, *found.overloads})
    for name, ops in found.reduced.items():
        entry.reduced[name] = sorted({*entry.reduced.get(name, ()), *ops})


def _prove_overload(item: Item, level: str, donors: Sequence[Item], entry: Entry) -> None:
    possible = candidates(item.name, lent(donors))
    drawn: list[Drawn] = []
    for tried, call in enumerate(filter(calls.runs, possible), 1):
        found = Entry(item.key)
        drawn = _drawn(call, _attempt(call, level, found))
        entry.__dict__.update(found.__dict__)
        # A guess that raises may have made no sense: another may. Numbers that differ from eager's always count.
        settled = not found.failed or found.status == Status.MISMATCH
        if settled or not call.guessed or tried == _MOST_GUESSES:
            break
    if not entry.samples or entry.failed:
        return
    further: list[Call] = []
    if tabled(item.name) is None:
        # The table is for overloads whose other candidates are no valid calls, and may end the process.
        left = (other for other in possible if not other.guessed)
        further = list(itertools.islice(filter(calls.runs, left), _FURTHER_CALLS))
    drawn += _attempt_all([*further, *filter(calls.runs, variants(item.name, call))], level, entry)
    _attempt_draws(drawn, level, entry)
    # A composite kernel runs as its parts below autograd: the call itself says what was called.
    if not entry.failed and item.name not in entry.overloads:
        entry.overloads.append(item.name)


# Calls of an elementwise overload on special values, and how many may be tried to find them.
_SPECIAL_CALLS = 4
_SPECIAL_TRIES = 40


def _prove_special(item: Item, level: str, donors: Sequence[Item], entry: Entry) -> None:
    """The first calls that eager takes with special values of the item's dtype."""
    tried = itertools.islice(special_calls(item.name, DTYPES[item.dtype], lent(donors)), _SPECIAL_TRIES)
    for call in itertools.islice(filter(calls.runs, tried), _SPECIAL_CALLS):
        _attempt(call, level, entry)


def lent(donors: Sequence[Item]) -> Any:
    """The first sample calls of each donor."""
    return (call for donor in donors for call in itertools.islice(_surviving(iter_calls(donor), Entry("")), 3))


def _surviving(samples: Any, entry: Entry) -> Any:
    """The samples up to one that the catalogue itself cannot make."""
    try:
        yield from samples
    except Exception as error:
        _note(entry, Status.RAISED, f"the catalogue's samples: {type(error).__name__}: {error}")


def iter_calls(item: Item) -> Any:
    """The calls of an OpInfo's samples, one by one."""
    op = op_catalogue.op_infos()[item.name]
    backward = item.kind == BACKWARD
    for sample in op_catalogue.samples(op, DTYPES[item.dtype], requires_grad=backward):
        yield Call(
            _picked(op.op, sample, TIES_IN_ANY_ORDER.get(op.name)) if not backward else _invariant(op.op, sample),
            (sample.input, *sample.args),
            sample.kwargs,
            backward=backward,
            agree=agree_in_type if op.name in UNDEFINED else agree,
        )


def _invariant(function: Callable[..., Any], sample: Any) -> Callable[..., Any]:
    """The op followed by what torch's own tests apply to results that are not unique: signs and phases drop out."""
    return lambda *args, **kwargs: sample.output_process_fn_grad(function(*args, **kwargs))


def _picked(function: Callable[..., Any], sample: Any, dim_at: int | None) -> Callable[..., Any]:
    """The op; of one that places equal elements in any order, the elements that its indices lead to."""
    if dim_at is None:
        return _invariant(function, sample)

    def run(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        dim = args[dim_at] if dim_at < len(args) else kwargs.get("dim", -1)
        result = function(tensor, *args, **kwargs)
        if isinstance(result, torch.Tensor):
            if result.dtype != torch.int64 or tensor.dim() == 0 or result.shape != tensor.shape:
                return result
            return tensor.gather(dim, result)
        values, places = result
        if tensor.dim() == 0:
            return values, places
        lost = places.dim() < tensor.dim()
        found = tensor.gather(dim, places.unsqueeze(dim) if lost else places)
        return values, found.squeeze(dim) if lost else found

    return run


def _attempt(call: Call, level: str, entry: Entry) -> calls.Ran | None:
    """Prove a call. Gives what it ran, where it agrees and there is something to compare."""
    ran = None
    with _noting(entry):
        try:
            ran = calls.prove(call, level)
        except (Mismatch, Refused):
            entry.samples += 1
            raise
        except Exception:
            # What eager refuses as well leaves nothing to compare with.
            if calls.runs(call):
                entry.samples += 1
                raise
    if ran is not None:
        _add(Entry("", samples=1, overloads=ran.overloads, reduced=ran.reduced), entry)
    return ran


@contextlib.contextmanager
def _noting(entry: Entry) -> Iterator[None]:
    """What is raised within goes into the entry."""
    try:
        yield
    except Mismatch as error:
        _note(entry, Status.MISMATCH, str(error))
    except Refused as error:
        entry.refused = sorted({*entry.refused, *error.ops})
        _note(entry, Status.REFUSED, str(error))
    except Exception as error:
        text = " ".join(str(error).split())[:300]
        _note(entry, Status.RAISED, f"{type(error).__name__}: {text}")


# A wrong number matters more than an error, an error more than an op without a rule.
_GRAVITY = (Status.NOTHING, Status.PROVEN, Status.REFUSED, Status.RAISED, Status.MISMATCH)


def _note(entry: Entry, status: Status, message: str) -> None:
    entry.failed += 1
    if _GRAVITY.index(status) > _GRAVITY.index(entry.status):
        entry.status = status
        entry.message = message
