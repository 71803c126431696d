"""What a captured graph holds in place of a call of an overload, and the ops of the contract that this becomes.

Does not: prove that the numbers agree (`prove` does), or say why an overload is not captured
(`backend_sdk.torch_compat.taken_apart`).
"""

from __future__ import annotations

import itertools

from backend_sdk.coverage import calls
from backend_sdk.coverage.generated import candidates
from backend_sdk.coverage.plan import lenders
from backend_sdk.coverage.prove import lent

# Calls that are captured at most: with a bias and without, of two ranks, in training.
_MOST_CALLS = 8
_MOST_TRIES = 40


def parts(name: str) -> dict[str, list[str]]:
    """By overload of the captured graphs of a few calls of the aten overload ``name``: ops of the contract that it
    becomes, composites kept whole. Empty when no call could be made.

    The calls are those that torch's catalogue lends, and without the extra ``test`` those made from the schema.
    """
    found: dict[str, set[str]] = {}
    tried = itertools.islice(candidates(name, lent(lenders(name))), _MOST_TRIES)
    for call in itertools.islice(filter(calls.runs, tried), _MOST_CALLS):
        try:
            captured = calls.captured(call)
        except Exception:
            # Made from the schema, a call that eager takes may make no sense: another may.
            continue
        for overload, ops in captured.items():
            found.setdefault(overload, set()).update(ops)
    return {overload: sorted(ops) for overload, ops in sorted(found.items())}
