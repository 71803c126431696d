"""Decompositions of matrices whose factors are not unique: what of them is.

Signs and phases of vectors are free, and so is the order of the eigenvalues of a general matrix. What the factors make
together is not, nor is how they stand to each other.

Does not: compare (`agreement` does).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch


def _eigh(matrix: torch.Tensor, factors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    values, vectors = factors
    return [values, (vectors * values.unsqueeze(-2)) @ vectors.mH, vectors.mH @ vectors]


def _eig(matrix: torch.Tensor, factors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    values, vectors = factors
    # The sums of the first powers, of which there are as many as eigenvalues, decide these but for their order.
    sums = [(values**power).sum(-1) for power in range(1, values.shape[-1] + 1)]
    rest = matrix.to(vectors.dtype) @ vectors - vectors * values.unsqueeze(-2)
    return [*sums, rest, vectors.abs().square().sum(-2)]


def _svd(matrix: torch.Tensor, factors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    left, values, right = factors
    return _of_svd(left, values, right)


def _old_svd(matrix: torch.Tensor, factors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Of ``aten.svd``, whose last factor is not transposed."""
    left, values, right = factors
    return _of_svd(left, values, right.mH)


def _of_svd(left: torch.Tensor, values: torch.Tensor, right: torch.Tensor) -> list[torch.Tensor]:
    count = values.shape[-1]
    made = (left[..., :count] * values.unsqueeze(-2)) @ right[..., :count, :]
    return [values, made, left.mH @ left, right @ right.mH]


# By op: from its matrix and all its results to what is unique.
UNIQUE: Mapping[str, Callable[[Any, Sequence[torch.Tensor]], list[torch.Tensor]]] = {
    "_linalg_eigh": _eigh,
    "linalg_eigh": _eigh,
    "linalg_eig": _eig,
    "_linalg_svd": _svd,
    "linalg_svd": _svd,
    "svd": _old_svd,
}
