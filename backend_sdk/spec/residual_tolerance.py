"""A tolerance for results that are not unique: what counts is whether they solve the problem.

Eigenvectors, singular vectors, and the signs of a QR factorization are determined up to a phase, and the basis of
a repeated eigenvalue up to a rotation, so that comparing with a reference refuses right answers. The residual and
the loss of orthogonality do not depend on the choice.

Does not: know any factorization (`backend_sdk.prims.linalg` states the residuals of each).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from backend_sdk import dtypes
from backend_sdk.spec.tolerance import Call, Tolerance

Results = tuple[torch.Tensor, ...]

# Pairs (error, scale), each a tensor with one element per matrix of the batch (or one in all).
Residuals = Callable[[Results, Results, Call], Iterator[tuple[torch.Tensor, torch.Tensor]]]


@dataclass(frozen=True)
class Residual:
    """Every error that ``residuals`` yields is at most ``bound * size * eps`` times its scale.

    ``residuals(actual, reference, call)`` gets all results of the call, in float64; ``size(call)`` is the largest
    dimension of the problem and ``eps`` the epsilon of the result's dtype. The form and the bound of 30 are those
    of LAPACK's own test programs, ``||A - QR|| / (N ||A|| eps) < THRESH`` (Anderson et al., "LAPACK Users' Guide",
    3rd edition, and Blackford and Dongarra, "Installation Guide for LAPACK", LAPACK Working Note 41: THRESH is 30).

    A result that is not finite where the reference is, or the reverse, is an infinite share.
    """

    name: str
    residuals: Residuals
    size: Callable[[Call], int]
    bound: float = 30.0

    def share(self, actual: Any, reference: Any, call: Call) -> float:
        """As `Tolerance.share`. ``actual`` and ``reference`` are tuples where the op has several results."""
        given, truth = _tuple(actual), _tuple(reference)
        if len(given) != len(truth) or any(a.shape != r.shape for a, r in zip(given, truth, strict=True)):
            return math.inf
        if any(not torch.equal(a.isfinite(), r.isfinite()) for a, r in zip(given, truth, strict=True)):
            return math.inf
        eps = max(torch.finfo(a.dtype).eps for a in given if a.dtype.is_floating_point or a.dtype.is_complex)
        unit = self.bound * max(self.size(call), 1) * eps
        wide = tuple(a.to(dtypes.reference_dtype(a.dtype)) for a in given)
        worst = 0.0
        for error, scale in self.residuals(wide, truth, call):
            # A problem of scale 0 (a zero matrix) leaves no room for an error, but for underflow.
            allowed = (unit * scale).clamp(min=torch.finfo(torch.float32).tiny * eps)
            shares = error / allowed
            if shares.numel():
                largest = float(shares.max())
                worst = largest if not largest <= worst else worst
        return worst

    def describe(self) -> str:
        return f"{self.name} within {self.bound:g} N epsilons, N the problem's largest dimension (LAPACK's test ratio)"

    def bound_of(self, dtype: torch.dtype) -> dict[str, Any]:
        """As `Tolerance.bound_of`. The results are judged together, so integer ones have the same bound."""
        return {"kind": "residual", "equation": self.name, "epsilons_per_size": float(self.bound)}


def largest_share(
    tolerance: Tolerance, actual: Sequence[torch.Tensor], reference: Sequence[torch.Tensor], call: Call
) -> float:
    """The largest share over a call's results. Those of a `Residual` are judged together: they are one solution."""
    if isinstance(tolerance, Residual):
        return tolerance.share(tuple(actual), tuple(reference), call)
    shares = [tolerance.share(a, r, call) for a, r in zip(actual, reference, strict=True)]
    # Not max(): a share that is not a number is the worst of all.
    return next((share for share in shares if math.isnan(share)), max(shares, default=0.0))


def _tuple(results: Any) -> Results:
    return tuple(results) if isinstance(results, (tuple, list)) else (results,)
