"""How far a result may lie from the float64 reference, as data.

Each tolerance measures an error as a *share of its bound*: at most 1.0 is within tolerance. NaN must meet NaN
and an infinity the same infinity; anything else is an infinite share.

Does not: choose cases or run backends (conformance does).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch

from backend_sdk import dtypes


@runtime_checkable
class Tolerance(Protocol):
    """Measures the distance between an actual result and the reference."""

    def share(self, actual: torch.Tensor, reference: torch.Tensor, call: Call) -> float:
        """Largest error as a share of the bound (<= 1.0 passes). ``reference`` is float64 or exact."""
        ...

    def describe(self) -> str:
        """One line for the spec's page."""
        ...

    def bound_of(self, dtype: torch.dtype) -> dict[str, Any]:
        """The bound for a result of ``dtype`` as plain data: its ``kind``, and that kind's numbers."""
        ...


@dataclass(frozen=True)
class Call:
    """The call that is judged: ``evaluate(*tensors)`` runs the prim's reference with the same attributes."""

    operands: tuple[Any, ...]
    attributes: dict[str, Any]
    evaluate: Callable[..., Any]


@dataclass(frozen=True)
class Exact:
    """Bit-equal values (NaN equals NaN, -0 equals +0)."""

    def share(self, actual: torch.Tensor, reference: torch.Tensor, call: Call) -> float:
        actual, reference = dtypes.widened(actual.to(reference.dtype)), dtypes.widened(reference)
        same = torch.equal(torch.nan_to_num(actual, nan=0.0), torch.nan_to_num(reference, nan=0.0))
        return 0.0 if same and torch.equal(actual.isnan(), reference.isnan()) else math.inf

    def describe(self) -> str:
        return "exact"

    def bound_of(self, dtype: torch.dtype) -> dict[str, Any]:
        return {"kind": "exact"}


_COMPLEX_FACTOR = 2.0 * math.sqrt(5.0)


@dataclass(frozen=True)
class Ulp:
    """At most ``bound`` units in the last place of the result's dtype (``half`` for 16-bit dtypes).

    The guide for the bounds is the OpenCL C specification's table for the full profile. A complex result is
    measured by the unit of its magnitude, since its parts may cancel, and may be off by 2 sqrt(5) times as much
    (Brent, Percival and Zimmermann, "Error bounds on complex floating-point multiplication", 2007). ``floor``, in
    epsilons of the dtype, is an absolute error below which a result passes, for functions that cross zero with
    cancellation.
    """

    bound: float
    half: float = 1.0
    floor: float = 0.0

    def share(self, actual: torch.Tensor, reference: torch.Tensor, call: Call) -> float:
        if not actual.dtype.is_floating_point and not actual.dtype.is_complex:
            return Exact().share(actual, reference, call)
        bound = self.half if actual.dtype.itemsize <= 2 else self.bound
        real = actual.dtype.to_real()
        unit = unit_in_last_place(reference.abs(), real)
        allowed = (bound * unit).clamp(min=self.floor * torch.finfo(real).eps)
        if actual.dtype.is_complex:
            allowed = _COMPLEX_FACTOR * torch.stack([allowed, allowed], dim=-1)
            actual, reference = _parts(actual), _parts(reference)
        return _largest_share(actual, reference, allowed)

    def describe(self) -> str:
        floor = f", or {self.floor:g} epsilons absolute" if self.floor else ""
        return f"{self.bound:g} ULP ({self.half:g} for 16-bit floats){floor}"

    def bound_of(self, dtype: torch.dtype) -> dict[str, Any]:
        if not dtype.is_floating_point and not dtype.is_complex:
            return Exact().bound_of(dtype)
        bound = float(self.half if dtype.itemsize == 2 else self.bound)
        data: dict[str, Any] = {"kind": "ulp", "ulp": bound, "floor_epsilons": float(self.floor)}
        return {**data, "magnitude_factor": _COMPLEX_FACTOR} if dtype.is_complex else data


@dataclass(frozen=True)
class Accumulated:
    """A data-aware bound for sums of products (the rule of the TOSA specification's conformance section).

    ``S`` is the same operation on absolute values, each clamped up to the smallest normal, in float64;
    ``E = max(S * 2^(-1 - frac_out), smallest normal)``; with ``K`` accumulated terms (``terms(call)``) and an
    accumulator of at least float32, ``ksb = ceil(K / 2^((frac_acc - frac_out) / 2))`` and the error must be at
    most ``2 * ksb * E`` (``6 * ksb * E`` where the output has the accumulator's own precision).
    """

    terms: Callable[[Call], int]

    def share(self, actual: torch.Tensor, reference: torch.Tensor, call: Call) -> float:
        if actual.dtype.is_complex:
            real = actual.dtype.to_real()
            magnitudes = self._magnitudes(call, real)
            allowed = 2 * self._allowed(torch.stack([magnitudes, magnitudes], dim=-1), real, call)
            return _largest_share(_parts(actual), _parts(reference), allowed)
        if not actual.dtype.is_floating_point:
            return Exact().share(actual, reference, call)
        return _largest_share(
            actual, reference, self._allowed(self._magnitudes(call, actual.dtype), actual.dtype, call)
        )

    def _magnitudes(self, call: Call, dtype: torch.dtype) -> torch.Tensor:
        tiny = torch.finfo(dtype).tiny
        absolute = [
            operand.abs().to(torch.float64).clamp(min=tiny)
            if isinstance(operand, torch.Tensor) and (operand.dtype.is_floating_point or operand.is_complex())
            else operand
            for operand in call.operands
        ]
        result = call.evaluate(*absolute)
        return result if isinstance(result, torch.Tensor) else result[0]

    def _allowed(self, magnitudes: torch.Tensor, dtype: torch.dtype, call: Call) -> torch.Tensor:
        fraction = dtypes.fraction_bits(dtype)
        accumulator = max(fraction, dtypes.fraction_bits(torch.float32))
        blocks = math.ceil(max(self.terms(call), 1) / 2 ** ((accumulator - fraction) / 2))
        unit = (magnitudes * 2.0 ** (-1 - fraction)).clamp(min=torch.finfo(dtype).tiny)
        return unit * blocks * self._factor(fraction, accumulator)

    @staticmethod
    def _factor(fraction: int, accumulator: int) -> int:
        return 6 if fraction == accumulator else 2

    def describe(self) -> str:
        return "data-aware bound for accumulated products (TOSA rule)"

    def bound_of(self, dtype: torch.dtype) -> dict[str, Any]:
        if not dtype.is_floating_point and not dtype.is_complex:
            return Exact().bound_of(dtype)
        fraction = dtypes.fraction_bits(dtype.to_real())
        accumulator = max(fraction, dtypes.fraction_bits(torch.float32))
        # A part of a complex product is a sum of two real ones.
        factor = self._factor(fraction, accumulator) * (2 if dtype.is_complex else 1)
        return {
            "kind": "accumulated",
            "units_per_block": float(factor),
            "fraction_bits": fraction,
            "accumulator_bits": accumulator,
        }


@dataclass(frozen=True)
class Relative:
    """An error of at most ``bound`` units of the dtype's epsilon (``half`` for 16-bit dtypes), relative to the
    largest reference magnitude.

    For composites, whose body passes through several roundings and sums; those of 16-bit floats compute in float32,
    so that few of the roundings are to 16 bits.
    """

    bound: float
    half: float = 4.0

    def share(self, actual: torch.Tensor, reference: torch.Tensor, call: Call) -> float:
        if not actual.dtype.is_floating_point and not actual.dtype.is_complex:
            return Exact().share(actual, reference, call)
        finite = reference[reference.isfinite()].abs()
        scale = max(float(finite.max()) if finite.numel() else 0.0, torch.finfo(actual.dtype).tiny)
        bound = self.half if actual.dtype.itemsize <= 2 else self.bound
        allowed = torch.full_like(reference.abs(), bound * torch.finfo(actual.dtype).eps * scale)
        return _largest_share(actual, reference, allowed)

    def describe(self) -> str:
        return f"{self.bound:g} epsilons of the largest magnitude ({self.half:g} for 16-bit floats)"

    def bound_of(self, dtype: torch.dtype) -> dict[str, Any]:
        if not dtype.is_floating_point and not dtype.is_complex:
            return Exact().bound_of(dtype)
        return {"kind": "relative", "epsilons": float(self.half if dtype.itemsize == 2 else self.bound)}


def unit_in_last_place(reference: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Spacing of ``dtype`` at each value of the float64 tensor ``reference`` (subnormal spacing near zero)."""
    info = torch.finfo(dtype)
    _, exponent = torch.frexp(reference.abs().clamp(min=info.tiny, max=info.max))
    return torch.ldexp(torch.ones_like(reference), exponent - 1 - dtypes.fraction_bits(dtype))


def _parts(x: torch.Tensor) -> torch.Tensor:
    """Real and imaginary parts of a complex tensor, in a last dim of 2."""
    return torch.view_as_real(x.resolve_conj())


def _largest_share(actual: torch.Tensor, reference: torch.Tensor, allowed: torch.Tensor) -> float:
    if actual.shape != reference.shape:
        return math.inf
    if actual.numel() == 0:
        return 0.0
    wide = actual.to(reference.dtype)
    # A reference that rounds to infinity in the result's dtype must be met by that infinity.
    rounded = reference.to(actual.dtype).to(reference.dtype)
    special = ~rounded.isfinite() | ~wide.isfinite()
    agree = (wide == rounded) | (wide.isnan() & rounded.isnan())
    # An exact result is within any tolerance, one of 0 too.
    right = special | (wide == reference)
    error = torch.where(right, torch.zeros_like(allowed), (wide - reference).abs() / allowed)
    error = torch.where(special & ~agree, torch.full_like(allowed, math.inf), error)
    return float(error.max())
