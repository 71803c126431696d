"""`FirstNpuCompiler`: a backend that takes whole regions and compiles them with a compiler of its own.

The "compiler" translates a region into a list of instructions. Results are written into the memory that the
SDK hands over (destination passing), temporaries into registers of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from backend_sdk import Backend, Capability, Kernel, Node, Region, Support, no, prims


def _linear(x, weight, bias, *, out):
    product = torch.matmul(x, weight.T, out=out)
    return product if bias is None else product.add_(bias)


def _relu(x, *, out):
    return torch.clamp(x, min=0, out=out)


# What the device executes. Each writes into ``out``, or into a new register when ``out`` is None.
OPCODES = {
    prims.add: torch.add,
    prims.sub: torch.sub,
    prims.mul: torch.mul,
    prims.exp: torch.exp,
    prims.tanh: torch.tanh,
    prims.relu: _relu,
    prims.linear: _linear,
}


@dataclass(frozen=True)
class Instruction:
    """``registers[target] = opcode(registers[sources]...)``; the source None is an absent operand."""

    opcode: Callable[..., torch.Tensor]
    sources: tuple[int | None, ...]
    target: int


class Program:
    """A compiled region. Registers 0, 1, ... hold its inputs, then come the values in order."""

    def __init__(self, region: Region) -> None:
        number = {node: index for index, node in enumerate(region.graph.nodes)}
        self._size = len(number)
        self._instructions = [
            Instruction(
                OPCODES[node.target],
                tuple(None if operand is None else number[operand] for operand in node.args),
                number[node],
            )
            for node in region.graph.nodes
            if node.op == "call_function"
        ]
        self._results = [number[node] for node in region.graph.output_node().args[0]]

    def run(self, inputs, outputs) -> None:
        """Write the results into ``outputs``."""
        registers = [*inputs, *[None] * (self._size - len(inputs))]
        for register, output in zip(self._results, outputs, strict=True):
            registers[register] = output
        for step in self._instructions:
            operands = [None if source is None else registers[source] for source in step.sources]
            registers[step.target] = step.opcode(*operands, out=registers[step.target])


class FirstNpuCompiler(Backend):
    """Float32 and static shapes; no region of fewer than two ops, because starting a program has its price."""

    name = "first_npu_compiler"
    version = "0.1.0"
    capability = Capability(dtypes=frozenset({torch.float32}), dynamic_shapes=False, minimum_region=2)

    def supports(self, node: Node) -> Support:
        """Yes to what has an opcode, within the capability."""
        if node.op not in OPCODES:
            return no(f"its instruction set has no {node.name}")
        if node.op is prims.linear and node.operands[0].rank < 2:
            return no("its matrix unit takes matrices, not vectors")
        return self.within_capability(node)

    def lower(self, region: Region) -> Kernel:
        """Compile the region."""
        return Kernel(Program(region).run)
