"""What a value is inside the dialect, and what crosses a graph's edge."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from backend_sdk import dtypes
from backend_sdk.spec.symbolic import Dim, Shape, element_count, is_symbolic


@dataclass(frozen=True, slots=True)
class TensorType:
    """Shape and dtype of a value. No strides: layout inside a graph is the backend's business."""

    shape: Shape
    dtype: torch.dtype

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_dynamic(self) -> bool:
        """Whether any dimension is symbolic."""
        return is_symbolic(self.shape)

    @property
    def nbytes(self) -> Dim:
        """Bytes of a dense tensor of this type."""
        return element_count(self.shape) * self.dtype.itemsize

    def with_shape(self, shape: Shape) -> TensorType:
        return TensorType(tuple(shape), self.dtype)

    def with_dtype(self, dtype: torch.dtype) -> TensorType:
        return TensorType(self.shape, dtype)

    def __str__(self) -> str:
        return f"{dtypes.name(self.dtype)}[{', '.join(map(str, self.shape))}]"

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class BoundaryType:
    """A `TensorType` with the layout that a tensor has, or must have, where it crosses the graph's edge.

    ``strides`` are in elements; None inside the plan, where a buffer is dense and row-major. There is no storage
    offset: torch calls one compiled graph with tensors of any offset, and a data pointer has it in it.
    """

    type: TensorType
    strides: Shape | None = None

    def __str__(self) -> str:
        if self.strides is None:
            return str(self.type)
        return f"{self.type} strides ({', '.join(map(str, self.strides))})"
