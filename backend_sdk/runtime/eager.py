"""One call that runs in eager: a refused prim by its reference, any other op by torch.

Does not: decide that it falls back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from backend_sdk.contract import op_name
from backend_sdk.errors import KernelRaisedError
from backend_sdk.spec import Prim, SymExpr, TensorType

Layouts = list[tuple[Any, ...] | None]


class EagerCall:
    """Calls ``target`` on the values of its arguments' ``leaves`` (graph nodes and symbolic numbers, in order).

    torch's kernels may depend on strides (``view`` does), so each tensor gets the strides that eager would give
    it, ``layouts``, in the order of the call's tensors; None for a prim, whose reference takes any. What a call raises
    that ``raises_as_eager`` is the user's to catch, and comes as it is.
    """

    def __init__(
        self,
        target: Any,
        args: Any,
        kwargs: Any,
        layouts: Layouts | None,
        backend: str,
        origin: Any,
        *,
        raises_as_eager: bool = False,
    ) -> None:
        self.target = target
        self.leaves: list[fx.Node | SymExpr] = []
        self.layout_numbers: list[tuple[SymExpr | int, ...] | None] = []
        self._function = target.reference if isinstance(target, Prim) else target
        self._backend = backend
        self._origin = origin
        self.raises_as_eager = raises_as_eager
        self._layouts = iter(layouts) if layouts is not None else None
        self._arguments = self._template(args), self._template(dict(kwargs))

    def __call__(self, leaves: tuple[Any, ...], layouts: tuple[Any, ...]) -> Any:
        """Run on the values of ``leaves``; ``layouts`` holds concrete strides (None: any) for each of them."""
        values = [
            # An effect token is declared as a tensor, and is None.
            value if strides is None or value is None or value.stride() == strides else with_strides(value, strides)
            for value, strides in zip(leaves, layouts, strict=True)
        ]
        args, kwargs = _fill(self._arguments, values)
        try:
            return self._function(*args, **kwargs)
        except Exception as error:
            if self.raises_as_eager:
                raise
            raise KernelRaisedError(
                f"{self._describe(args, kwargs)}, which runs in eager for backend {self._backend!r}, raised "
                f"{type(error).__name__}: {error}",
                location=self._origin.location,
                hint="eager raises the same for these values, unless the backend computed them wrongly",
            ) from error

    def _describe(self, args: Any, kwargs: Any) -> str:
        parts = [_show(argument) for argument in args]
        parts += [f"{key}={_show(argument)}" for key, argument in kwargs.items()]
        return f"{op_name(self.target)}({', '.join(parts)})"

    def _template(self, argument: Any) -> Any:
        if isinstance(argument, fx.Node):
            tensor = isinstance(argument.meta.get("type"), TensorType)
            layout = next(self._layouts) if self._layouts is not None and tensor else None
            return self._leaf(argument, layout)
        if isinstance(argument, SymExpr):
            return self._leaf(argument, None)
        if isinstance(argument, tuple):
            return tuple(self._template(item) for item in argument)
        if isinstance(argument, list):
            return [self._template(item) for item in argument]
        if isinstance(argument, dict):
            return {key: self._template(item) for key, item in argument.items()}
        return argument

    def _leaf(self, value: fx.Node | SymExpr, layout: tuple[Any, ...] | None) -> _Slot:
        self.leaves.append(value)
        self.layout_numbers.append(layout)
        return _Slot(len(self.leaves) - 1)


def _show(argument: Any) -> str:
    if isinstance(argument, torch.Tensor):
        return str(TensorType(tuple(argument.shape), argument.dtype))
    if isinstance(argument, (tuple, list)):
        return f"[{', '.join(map(_show, argument))}]"
    return repr(argument)


class _Slot:
    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


def _fill(template: Any, values: list[Any]) -> Any:
    if isinstance(template, _Slot):
        return values[template.index]
    if isinstance(template, tuple):
        return tuple([_fill(item, values) for item in template])
    if isinstance(template, list):
        return [_fill(item, values) for item in template]
    if isinstance(template, dict):
        return {key: _fill(item, values) for key, item in template.items()}
    return template


def with_strides(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """A copy of ``tensor`` with the given strides."""
    if 0 in strides or _overlaps(tensor.shape, strides):
        return write(tensor.new_empty(reach(tensor.shape, strides)), tensor, strides, 0)
    copy = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device)
    return copy.copy_(tensor)


def write(memory: torch.Tensor, tensor: torch.Tensor, strides: tuple[int, ...], offset: int) -> torch.Tensor:
    """Write ``tensor`` into a dense ``memory`` with the given strides from element ``offset`` on; return that view.

    Elements that the strides lay over one another must be equal.
    """
    place = memory.as_strided(tensor.shape, strides, memory.storage_offset() + offset)
    # The first along each dimension of stride 0 stands for all.
    elements = tuple(slice(0, 1 if stride == 0 else None) for stride in strides)
    if _overlaps(place[elements].shape, strides):
        positions = torch.arange(memory.numel(), device=memory.device).as_strided(tensor.shape, strides, offset)
        memory[positions] = tensor
    else:
        place[elements].copy_(tensor[elements])
    return place


def reach(shape: Sequence[int], strides: Sequence[int]) -> int:
    """How many elements of memory a layout spans."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def _overlaps(shape: Sequence[int], strides: Sequence[int]) -> bool:
    if 0 in shape:
        return False
    span = 1
    for stride, size in sorted((stride, size) for size, stride in zip(shape, strides, strict=True) if size > 1):
        if stride < span:
            return True
        span = stride * (size - 1) + span
    return False
