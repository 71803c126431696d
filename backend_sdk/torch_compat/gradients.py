"""The gradient of what one call made: as far back as the tensors that were there before it.

Does not: accumulate into ``.grad``.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.autograd.graph import GradientEdge, Node


def moment() -> int:
    """Now, in autograd's count of the nodes that this thread has recorded."""
    with torch.enable_grad():
        node = torch.ones((), requires_grad=True).clone().grad_fn
    assert node is not None
    return _number(node)


def differentiate(outputs: Iterable[torch.Tensor], since: int) -> None:
    """Differentiate the sum of ``outputs`` with respect to all that they were made of since the `moment`: arguments,
    parameters and what a closure holds. A graph that was recorded before stays as it is.
    """
    # Complex outputs have no sum that autograd takes as a loss.
    total = sum(output.sum().real for output in outputs)
    assert isinstance(total, torch.Tensor) and total.grad_fn is not None
    edges: set[tuple[Node, int]] = set()
    seen: set[Node] = set()
    pending: list[Node] = [total.grad_fn]
    while pending:
        for source, index in pending.pop().next_functions:
            if source is None:
                continue
            if not source.next_functions or _number(source) < since:
                edges.add((source, index))
            elif source not in seen:
                seen.add(source)
                pending.append(source)
    if edges:
        torch.autograd.grad(total, [GradientEdge(*edge) for edge in edges], allow_unused=True)


def _number(node: Node) -> int:
    # Leaves have the largest number there is.
    return int(node._sequence_nr())
