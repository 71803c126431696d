"""What a proof runs: the items of the catalogue, the overloads that these leave, and special values of the elementwise
ones, with who lends an overload its arguments.

Does not: run them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch

from backend_sdk.coverage.calls import runs
from backend_sdk.coverage.generated import related, stem
from backend_sdk.coverage.prove import (
    BACKWARD,
    DEFAULT,
    DTYPES,
    FORWARD,
    OVERLOAD,
    SPECIAL,
    Entry,
    Item,
    lent,
    op_info_items,
)
from backend_sdk.coverage.special import special_calls, special_names
from backend_sdk.coverage.verdict import Covered, Verdict
from backend_sdk.coverage.workers import Task
from backend_sdk.errors import OptionError
from backend_sdk.torch_compat import op_catalogue

# How many OpInfos lend an overload their arguments, at most.
_DONORS = 4


def op_info_tasks(names: Sequence[str], dtypes: Sequence[str], kinds: Sequence[str]) -> list[Task]:
    """Tasks of the catalogue, all of it or the OpInfos called ``names``."""
    return [Task(item) for item in op_info_items(names, dtypes) if item.kind in kinds]


def overload_tasks(names: Sequence[str], covered: Sequence[Covered], entries: Sequence[Entry]) -> list[Task]:
    """Tasks for the overloads in scope that no entry has proven; with ``names``, for those overloads."""
    proven = {name for entry in entries if entry.item.kind in (FORWARD, BACKWARD) for name in entry.overloads}
    donors = _donors(entries)
    return [
        Task(Item(OVERLOAD, one.overload, DEFAULT), tuple(donors.get(related(one.overload), ())[:_DONORS]))
        for one in covered
        if (one.overload in names if names else one.verdict != Verdict.OUT_OF_SCOPE and one.overload not in proven)
    ]


def special_tasks(names: Sequence[str], covered: Sequence[Covered], dtypes: Sequence[str]) -> list[Task]:
    """Tasks for the elementwise overloads in scope, in each dtype that the OpInfo which lends arguments takes.

    Not in complex dtypes: at infinities and NaN eager's complex kernels differ among themselves. Of bool the samples
    have both values.
    """
    special = [name for name, dtype in DTYPES.items() if not dtype.is_complex and dtype != torch.bool]
    dtypes = [dtype for dtype in dtypes if dtype in special]
    within = {one.overload for one in covered if one.verdict != Verdict.OUT_OF_SCOPE}
    donors = _donors([])
    tasks = []
    for name in special_names():
        if name not in (set(names) & within if names else within):
            continue
        lenders = donors.get(related(name), [])[:_DONORS]
        taken = [dtype for dtype in dtypes if _takes(name, dtype, lenders)]
        # Of an overload that does not take the default dtype the first that it takes stands for that.
        if not taken and DEFAULT in dtypes:
            taken = [next((dtype for dtype in special if _takes(name, dtype, lenders)), DEFAULT)]
        tasks += [Task(Item(SPECIAL, name, dtype), tuple(lenders)) for dtype in taken]
    return tasks


def lenders(name: str) -> list[Item]:
    """The items that lend an overload its arguments; none without the catalogue, which the extra ``test`` brings."""
    try:
        return _donors([]).get(related(name), [])[:_DONORS]
    except OptionError:
        return []


def _takes(name: str, dtype: str, lenders: Sequence[Item]) -> bool:
    """Whether eager takes the dtype: of floats as OpInfos say, of integers, which some variants refuse, as a call."""
    if lenders and DTYPES[dtype].is_floating_point:
        infos = op_catalogue.op_infos()
        return any(op_catalogue.supports(infos[one.name], dtype) for one in lenders)
    return any(runs(call) for call in special_calls(name, DTYPES[dtype], lent(lenders)))


def _donors(entries: Sequence[Entry]) -> dict[str, list[Item]]:
    """By what an overload computes, the items whose samples called that, those named like it first."""
    found: dict[str, list[Item]] = defaultdict(list)
    for name, op in op_catalogue.op_infos().items():
        dtype = next((d for d in ("float32", "int64", "bool") if op_catalogue.supports(op, d)), None)
        if dtype is not None:
            for spelled in dict.fromkeys(
                (op.name.replace(".", "_"), op.name.rsplit(".", 1)[-1], op.aten_name or op.name)
            ):
                found[spelled].append(Item(FORWARD, name, dtype))
    for entry in sorted(entries, key=lambda entry: entry.seconds):
        if entry.item.kind in (FORWARD, BACKWARD):
            for name in entry.overloads:
                found[stem(name)].append(entry.item)
    return found
