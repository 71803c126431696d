"""Which ops torch's own decomposition of an overload calls, seen on fake tensors: nothing is computed.

Does not: choose arguments, or say what the contract makes of those ops.
"""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from backend_sdk.torch_compat import decompositions, trees
from backend_sdk.torch_compat.ops import schema_arguments
from backend_sdk.torch_compat.overloads import recording

# Says at length what a fake tensor does not fit; whoever tries arguments knows that some will not.
_NOISY = "torch._subclasses.fake_tensor"


def reached(op: Any, values: Mapping[str, Any]) -> list[str]:
    """Names of the ops that torch's decomposition of a call of ``op`` runs, sorted.

    ``values`` are the arguments by their names in the schema. Raises what the decomposition raises, and `LookupError`
    when torch has none.
    """
    rule = decompositions.rule_of(op)
    if rule is None:
        raise LookupError(str(op))
    mode = _mode()
    leaves, structure = trees.flatten(dict(values))
    logger = logging.getLogger(_NOISY)
    disabled, logger.disabled = logger.disabled, True
    try:
        with mode, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fake = [mode.from_tensor(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
            named = trees.unflatten(fake, structure)
            positional: list[Any] = []
            for argument in schema_arguments(op):
                if argument.keyword_only or argument.name not in named:
                    break
                positional.append(named.pop(argument.name))
            with recording() as recorded:
                rule(*positional, **named)
    finally:
        logger.disabled = disabled
    # Of TorchScript's own ops some ask about a tensor (prim.device); they compute nothing.
    return sorted(name for name in recorded if name.startswith(("aten.", "prims.")) and name != str(op))


@functools.cache
def _mode() -> FakeTensorMode:
    return FakeTensorMode()
