"""The plan as data: what runs in which order, and where each value lives.

Does not: build itself (the pipeline does) or run (the runner does).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from backend_sdk.contract import Kernel, Region, op_name
from backend_sdk.runtime.device import Device
from backend_sdk.runtime.eager import EagerCall
from backend_sdk.spec import Shape, TensorType
from backend_sdk.spec.symbolic import Dim


@dataclass(frozen=True)
class Buffer:
    """A kernel's output that the plan allocates: in the arena, or on its own when it is a result of the plan.

    It is written at step ``first`` and last read at step ``last``.
    """

    name: str
    type: TensorType
    first: int
    last: int
    in_arena: bool


@dataclass(frozen=True)
class KernelAction:
    """Run a kernel on named values."""

    kernel: Kernel
    region: Region
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class EagerAction:
    """Run one call in eager. ``picks`` names the used results of a call with several: (name, tuple, index, type)."""

    call: EagerCall
    result: str
    type: Any
    picks: tuple[tuple[str, str, int, Any], ...]
    has_effect: bool


@dataclass(frozen=True)
class View:
    """Where a result lies in memory that it shares: in that of the input ``base``, or (None) in the memory that all
    results with the same ``group`` show. ``offset``, in elements, counts from the base's first element, or from
    the start of the memory.
    """

    base: str | None
    group: int
    shape: Shape
    strides: Shape
    offset: Dim


@dataclass(frozen=True)
class Output:
    """A result of the plan: the value ``name``, or the constant or symbolic ``number``.

    ``strides`` are what eager gives; ``copy`` makes it a copy in any case; ``is_input`` passes an input through.
    ``view`` says that eager's result is a view, of an input or of memory that other results show as well.
    """

    name: str | None
    number: Any
    strides: Shape | None
    visible: bool
    copy: bool
    is_input: bool = False
    view: View | None = None


@dataclass(frozen=True)
class Plan:
    """Actions in order, with buffers and results. ``frees[i]`` are the names that nothing needs after action i.

    ``key`` names the hidden input of random ops. ``computes`` is the backend's `Capability.computes`.
    """

    name: str
    backend: str
    device: Device
    inputs: tuple[tuple[str, Any], ...]
    key: str | None
    constants: dict[str, Any]
    actions: tuple[KernelAction | EagerAction, ...]
    buffers: tuple[Buffer, ...]
    outputs: tuple[Output, ...]
    frees: tuple[tuple[str, ...], ...]
    computes: bool = True

    def __str__(self) -> str:
        lines = [f"plan {self.name}:"]
        lines += [
            f"  buffer {b.name}: {b.type} steps {b.first}..{b.last} {'arena' if b.in_arena else 'result'}"
            for b in self.buffers
        ]
        for index, action in enumerate(self.actions):
            if isinstance(action, KernelAction):
                lines.append(
                    f"  {index}: {', '.join(action.outputs)} = {action.region.name}({', '.join(action.inputs)})"
                )
            else:
                lines.append(f"  {index}: {action.result} = eager {op_name(action.call.target)}")
        lines.append(f"  return {', '.join(o.name or str(o.number) for o in self.outputs)}")
        return "\n".join(lines)
