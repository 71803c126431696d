"""`ReferenceBackend`: runs every op by its own reference. What it computes is the definition of the contract.

Does not: try to be fast.
"""

from __future__ import annotations

from backend_sdk import dtypes
from backend_sdk.backend import Backend
from backend_sdk.contract import YES, Capability, Kernel, Node, Region, Support, no
from backend_sdk.plugins.hookspecs import hookimpl
from backend_sdk.prims import CONTRACT
from backend_sdk.runtime.function_kernel import function_kernel
from backend_sdk.spec import Composite, Prim


class ReferenceBackend(Backend):
    """Runs prims by their references; composites descend to their bodies.

    With ``composites=True`` composites are kept whole and run by their body, which must give the same.
    """

    name = "reference"
    version = "1"
    composites = False
    capability = Capability(dtypes=dtypes.STORED)

    def __init__(self, composites: bool | None = None) -> None:
        super().__init__()
        if composites is not None:
            self.composites = composites

    def supports(self, node: Node) -> Support:
        """Yes to every op of the contract (composites: see the class), no to anything else."""
        if not isinstance(node.op, Prim) or node.op.name not in CONTRACT or CONTRACT[node.op.name] is not node.op:
            return no(f"{node.name} is not an op of the contract")
        if isinstance(node.op, Composite) and not self.composites:
            return no(f"{node.name} is a composite, and the reference runs the prims of its body")
        return YES

    def lower(self, region: Region) -> Kernel:
        """A kernel that calls the reference of each op in turn."""
        functions = {node: node.meta["call"].op.reference for node in region.graph.nodes if "call" in node.meta}
        return function_kernel(region, functions, self.name)


@hookimpl
def sdk_backends() -> list[type[Backend]]:
    """The reference backend."""
    return [ReferenceBackend]
