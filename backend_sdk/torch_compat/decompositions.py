"""torch's own decompositions, as graphs: its tables first, then its composite kernels.

Does not: know the contract. A caller goes on with the ops of the returned graph.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx
from torch._decomp import core_aten_decompositions, decomposition_table
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx


def decompose(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> fx.GraphModule | None:
    """The graph of torch's decomposition of one call on fake tensors, or None when torch has none.

    The graph's inputs are the tensors among ``args`` and ``kwargs``, in order; its nodes carry fake values.
    """
    rule = _rule(op)
    if rule is None:
        return None
    leaves, structure = torch.utils._pytree.tree_flatten((args, kwargs))
    positions = [index for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    mode = next((leaf.fake_mode for leaf in leaves if hasattr(leaf, "fake_mode")), None) or FakeTensorMode()

    def run(*tensors: torch.Tensor) -> Any:
        filled = list(leaves)
        for position, tensor in zip(positions, tensors, strict=True):
            filled[position] = tensor
        positional, named = torch.utils._pytree.tree_unflatten(filled, structure)
        result = rule(*positional, **named)
        # fx would put the construction of a named tuple into the graph as a call.
        return tuple(result) if isinstance(result, tuple) else result

    with mode:
        # Several decompositions write into what they made (copy_, squeeze_): only functionalized are they values.
        trace = make_fx(torch.func.functionalize(run), tracing_mode="real")
        graph: fx.GraphModule = trace(*(leaves[index] for index in positions))
    return graph


def _rule(op: OpOverload) -> Callable[..., Any] | None:
    rule = _table().get(op)
    if rule is not None:
        return rule
    if torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd"):
        return functools.partial(OpOverload.decompose, op)
    return None


@functools.cache
def _table() -> Mapping[OpOverload, Callable[..., Any]]:
    # The core table leaves out rules that only some compilers want, so it goes first where both have one.
    return {**decomposition_table, **core_aten_decompositions()}
