"""What a proof runs: the items of the catalogue, and the overloads that these leave, with who lends them arguments.

Does not: run them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from backend_sdk.coverage.generated import related, stem
from backend_sdk.coverage.prove import FORWARD, OVERLOAD, Entry, Item, op_info_items
from backend_sdk.coverage.verdict import Covered, Verdict
from backend_sdk.coverage.workers import Task
from backend_sdk.torch_compat import op_catalogue

# How many OpInfos lend an overload their arguments, at most.
_DONORS = 4


def op_info_tasks(names: Sequence[str], dtypes: Sequence[str], kinds: Sequence[str]) -> list[Task]:
    """Tasks of the catalogue, all of it or the OpInfos called ``names``."""
    return [Task(item) for item in op_info_items(names, dtypes) if item.kind in kinds]


def overload_tasks(names: Sequence[str], covered: Sequence[Covered], entries: Sequence[Entry]) -> list[Task]:
    """Tasks for the overloads in scope that no entry has proven; with ``names``, for those overloads."""
    proven = {name for entry in entries if entry.item.kind != OVERLOAD for name in entry.overloads}
    donors = _donors(entries)
    return [
        Task(Item(OVERLOAD, one.overload, "float32"), tuple(donors.get(related(one.overload), ())[:_DONORS]))
        for one in covered
        if (one.overload in names if names else one.verdict != Verdict.OUT_OF_SCOPE and one.overload not in proven)
    ]


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
        if entry.item.kind != OVERLOAD:
            for name in entry.overloads:
                found[stem(name)].append(entry.item)
    return found
