"""torch's own decompositions, as graphs: its tables first, then its composite kernels.

Does not: know the contract. A caller goes on with the ops of the returned graph.
"""

from __future__ import annotations

import functools
import inspect
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
    rule = rule_of(op)
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
        graph = _functional_trace(run, leaves, positions)
        if any(isinstance(node.target, OpOverload) and node.target._schema.is_mutable for node in graph.graph.nodes):
            # What a composite kernel of C++ writes into escapes the first time.
            graph = _functional_trace(graph, leaves, positions)
    return graph


def _functional_trace(run: Callable[..., Any], leaves: list[Any], positions: list[int]) -> fx.GraphModule:
    trace = make_fx(torch.func.functionalize(run), tracing_mode="real")
    graph: fx.GraphModule = trace(*(leaves[index] for index in positions))
    return graph


def rule_of(op: OpOverload) -> Callable[..., Any] | None:
    """torch's decomposition of an overload: of its tables, else its composite kernel, else of its list; or None."""
    rule = table().get(op)
    if rule is not None:
        return rule
    if torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd"):
        return functools.partial(OpOverload.decompose, op)
    return of_lists(op)


@functools.cache
def of_lists(op: OpOverload) -> Callable[..., Any] | None:
    """For ``_foreach_NAME``, which does to each tensor of a list what NAME does to one: so many calls of NAME."""
    name = str(op).split(".")[1]
    if not name.startswith("_foreach_") or op._schema.is_mutable or len(op._schema.returns) != 1:
        return None
    stem = name.removeprefix("_foreach_")
    if "Scalar" in str(op).split(".")[2]:
        # maximum and minimum take no numbers, and norm no dtype by place; these compute the same.
        stem = {"maximum": "clamp_min", "minimum": "clamp_max", "norm": "linalg_vector_norm"}.get(stem, stem)
    single = getattr(torch.ops.aten, stem, None)
    if single is None:
        return None
    names = [argument.name for argument in op._schema.arguments]
    # What NAME takes by keyword only, beside what _foreach_NAME does: addcdiv(..., *, value).
    by_keyword = (
        {"scalars": "value", "value": "value"}
        if stem in ("addcdiv", "addcmul")
        else {"alpha": "alpha", "dtype": "dtype"}
    )

    def run(*args: Any, **kwargs: Any) -> list[Any]:
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        count = max(len(value) for value in given.values() if isinstance(value, (list, tuple)))

        def part(value: Any, i: int) -> Any:
            return value[i] if isinstance(value, (list, tuple)) and len(value) == count else value

        return [
            single(
                *[part(value, i) for name, value in given.items() if name not in by_keyword],
                **{by_keyword[name]: part(value, i) for name, value in given.items() if name in by_keyword},
            )
            for i in range(count)
        ]

    return run


def source_of(op: OpOverload) -> str | None:
    """The Python source of the rule that torch's tables have for an overload, without blank lines, whole-line comments
    and indentation; None when they have none, or one that is no Python function of its own (a composite kernel).
    """
    rule = table().get(op)
    if rule is None:
        return None
    try:
        source = inspect.getsource(inspect.unwrap(rule))
    except (TypeError, OSError):
        return None
    lines = (line.strip() for line in source.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("#"))


@functools.cache
def table() -> Mapping[OpOverload, Callable[..., Any]]:
    """torch's decomposition tables: all of its rules, by overload."""
    # The core table leaves out rules that only some compilers want, so it goes first where both have one.
    return {**decomposition_table, **core_aten_decompositions()}
