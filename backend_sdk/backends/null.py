"""`NullBackend`: takes everything and computes nothing. What a model costs on it is the SDK's own cost.

Does not: write its outputs. They hold whatever their memory held.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from backend_sdk.backend import Backend
from backend_sdk.contract import YES, Capability, Kernel, Node, Region, Support, no
from backend_sdk.plugins.hookspecs import hookimpl
from backend_sdk.prims import CONTRACT
from backend_sdk.spec import Prim


class NullBackend(Backend):
    """Claims every op of the contract, composites whole; its kernels do nothing."""

    name = "null"
    version = "1"
    capability = Capability(computes=False)

    def supports(self, node: Node) -> Support:
        """Yes to every op of the contract, no to anything else."""
        if isinstance(node.op, Prim) and node.op.name in CONTRACT and CONTRACT[node.op.name] is node.op:
            return YES
        return no(f"{node.name} is not an op of the contract")

    def lower(self, region: Region) -> Kernel:
        """A kernel that leaves its outputs as they are."""
        return Kernel(_nothing)


def _nothing(inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
    """Compute nothing."""


@hookimpl
def sdk_backends() -> list[type[Backend]]:
    """The null backend."""
    return [NullBackend]
