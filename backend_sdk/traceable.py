"""Calls that torch cannot trace, in a form that it can: a mode for models that are compiled as one graph or exported.

torch's own `torch.allclose`, `torch.equal`, `torch.cov`, `torch.corrcoef`, `torch.linalg.lstsq`,
`torch.nn.functional.one_hot` (without ``num_classes``) and `torch.nn.functional.gaussian_nll_loss` ask for a number of a
tensor within torch's own code, or have no meta function. Dynamo breaks the graph at them, and `torch.export` refuses
them. Within `traceable` the same calls are made of functions that both can trace, with the same results::

    torch._dynamo.config.capture_scalar_outputs = True
    with backend_sdk.traceable():
        compiled = torch.compile(model, backend="sdk:acme", fullgraph=True)
        compiled(x)

Does not: change what is called outside the mode.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from backend_sdk.torch_compat.checks import assert_true


class traceable(TorchFunctionMode):
    """Context in which torch calls that cannot be traced are made of those that can. Works around `torch.compile` and
    `torch.export.export`, and in eager.

    Two differences remain. What eager checks at the call, a compiled graph checks when it runs, with a `RuntimeError`.
    `torch.linalg.lstsq` with the drivers ``gelss`` and ``gelsd`` raises one for a tall matrix that lacks full rank: there,
    eager gives residuals of another rank.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call the substitute of ``func``, or ``func`` itself when it has none."""
        return _SUBSTITUTES.get(func, func)(*args, **(kwargs or {}))


def _equal(input: torch.Tensor, other: torch.Tensor) -> Any:
    if input.shape != other.shape:
        return False
    return torch.eq(input, other).all().item()


def _allclose(
    input: torch.Tensor, other: torch.Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    return torch.isclose(input, other, rtol=rtol, atol=atol, equal_nan=equal_nan).all().item()


def _cov(
    input: torch.Tensor,
    *,
    correction: int = 1,
    fweights: torch.Tensor | None = None,
    aweights: torch.Tensor | None = None,
) -> torch.Tensor:
    """The formula of `torch.cov`'s documentation: weighted products of what is left when the mean is taken off."""
    rows = input.unsqueeze(0) if input.dim() < 2 else input
    count = rows.shape[1]
    weights = None
    for given, name in ((fweights, "fweights"), (aweights, "aweights")):
        if given is not None:
            assert_true((given >= 0).all(), f"cov(): {name} cannot be negative")
            weights = given if weights is None else weights * given
    total = count if weights is None else weights.sum()
    mean = rows.sum(1) / total if weights is None else (rows * weights).sum(1) / total
    if weights is None:
        norm: Any = count - correction
    elif aweights is None or correction == 0:
        norm = total - correction
    else:
        norm = total - correction * (weights * aweights).sum() / total
    centered = rows - mean.unsqueeze(1)
    weighted = centered if weights is None else centered * weights
    product = centered @ weighted.t().conj()
    scale = torch.as_tensor(norm, dtype=product.real.dtype).clamp(min=0)
    return (product / scale).squeeze()


def _corrcoef(input: torch.Tensor) -> torch.Tensor:
    """Covariances over the products of the standard deviations, clipped to what rounding cannot exceed."""
    found = _cov(input)
    if found.dim() == 0:
        return found / found
    deviation = found.diagonal().sqrt() if not found.is_complex() else found.diagonal().real.sqrt()
    found = found / deviation.unsqueeze(1) / deviation.unsqueeze(0)
    if found.is_complex():
        return torch.complex(found.real.clip(-1, 1), found.imag.clip(-1, 1))
    return found.clip(-1, 1)


def _one_hot(tensor: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    if num_classes != -1 or tensor.numel() == 0:
        return torch.nn.functional.one_hot(tensor, num_classes)
    assert_true((tensor >= 0).all(), "Class values must be non-negative.")
    classes = torch.arange(tensor.max().item() + 1)  # type: ignore[arg-type]
    return (tensor.unsqueeze(-1) == classes).to(torch.int64)


def _gaussian_nll_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    var: torch.Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> torch.Tensor:
    """log(var) + (input - target)^2 / var, halved, with ``eps`` as the least variance (gradients do not see that)."""
    if isinstance(var, float):
        return torch.nn.functional.gaussian_nll_loss(input, target, var, full, eps, reduction)
    assert_true((var >= 0).all(), "var has negative entry/entries")
    if var.shape != input.shape:
        if input.shape[:-1] == var.shape:
            var = var.unsqueeze(-1)
        elif input.dim() != var.dim() or sum(a for a, b in zip(input.shape, var.shape, strict=True) if a != b) != 1:
            # As the original: one dim may differ, in which the input has one element, or the variance has.
            if not all(a == b or b == 1 for a, b in zip(input.shape, var.shape, strict=True)):
                raise ValueError("var is of incorrect size")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not valid")
    var = var.clone()
    with torch.no_grad():
        var.clamp_(min=eps)
    loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


def _lstsq(
    input: torch.Tensor, b: torch.Tensor, rcond: float | None = None, *, driver: str | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The solution of least norm, by the pseudo-inverse; what a driver does not give is empty."""
    driver = driver or "gelsy"
    if driver not in ("gels", "gelsy", "gelss", "gelsd"):
        raise RuntimeError(f"torch.linalg.lstsq: driver must be gels, gelsy, gelss or gelsd on the CPU, not {driver!r}")
    rows, columns = input.shape[-2:]
    is_vector = b.dim() == 1 or (input.dim() - 1 == b.dim() and b.shape == input.shape[:-1])
    right = b.unsqueeze(-1) if is_vector else b
    cutoff = rcond if rcond is not None else torch.finfo(input.dtype).eps * max(rows, columns)
    solution = torch.linalg.pinv(input, rtol=None if driver == "gels" else cutoff) @ right
    values = torch.linalg.svdvals(input.detach())
    rank = (values > cutoff * values[..., :1]).sum(-1)
    residuals = input.new_empty(0, dtype=values.dtype)
    if rows > columns and driver != "gelsy":
        if driver != "gels":
            assert_true((rank == columns).all(), "torch.linalg.lstsq: residuals of a matrix that lacks full rank")
        difference = input @ solution - right
        residuals = (difference * difference.conj()).real.sum(-2)
    return (
        solution.squeeze(-1) if is_vector else solution,
        residuals,
        rank if driver != "gels" else rank.new_empty(0),
        values if driver in ("gelss", "gelsd") else values.new_empty(0),
    )


def _unique_consecutive(
    input: torch.Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """A negative ``dim`` counted from the front: torch's shape rule takes it for a size that is inserted there."""
    if dim is not None and dim < 0:
        dim += input.dim()
    return torch.unique_consecutive(input, return_inverse=return_inverse, return_counts=return_counts, dim=dim)


_SUBSTITUTES: Mapping[Any, Callable[..., Any]] = {
    torch.allclose: _allclose,
    torch.Tensor.allclose: _allclose,
    torch.equal: _equal,
    torch.Tensor.equal: _equal,
    torch.cov: _cov,
    torch.Tensor.cov: _cov,
    torch.corrcoef: _corrcoef,
    torch.Tensor.corrcoef: _corrcoef,
    torch.linalg.lstsq: _lstsq,
    torch.nn.functional.one_hot: _one_hot,
    torch.nn.functional.gaussian_nll_loss: _gaussian_nll_loss,
    torch.unique_consecutive: _unique_consecutive,
    torch.Tensor.unique_consecutive: _unique_consecutive,
}
