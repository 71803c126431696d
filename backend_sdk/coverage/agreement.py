"""Whether results agree with eager's: the same types, and values as near to the true ones as eager's are.

Does not: run anything. Whoever asks gives the true results, when they are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch


class Mismatch(Exception):
    """The pipeline computes something that eager does not."""


@dataclass(frozen=True)
class Measure:
    """The true results of a call, in double precision.

    ``errors`` are, element by element, what rounding the inputs and the steps of eager's own formula changes: large
    where a problem is ill-conditioned or a sum cancels, and zero where the function jumps.
    """

    truth: Sequence[Any]
    errors: Sequence[torch.Tensor | None]


# How results are compared: ours, eager's, and who gives the true ones.
Agreement = Callable[[Sequence[Any], Sequence[Any], Callable[[], Measure | None]], None]


def agree(actual: Sequence[Any], expected: Sequence[Any], measure: Callable[[], Measure | None]) -> None:
    """Raise `Mismatch` unless each result has the expected type, and values within torch's own tolerances or as near
    to the true ones.
    """
    agree_in_type(actual, expected)
    for position, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
        if not isinstance(theirs, torch.Tensor):
            if ours != theirs and not (ours != ours and theirs != theirs):
                raise Mismatch(f"result {position} is {ours!r}, eager gives {theirs!r}")
            continue
        try:
            torch.testing.assert_close(ours.detach(), theirs.detach(), equal_nan=True)
        except AssertionError as error:
            floats = theirs.dtype.is_floating_point or theirs.dtype.is_complex
            true = measure() if floats else None
            if true is not None and is_as_near(
                ours.detach(), theirs.detach(), true.truth[position].detach(), true.errors[position]
            ):
                continue
            raise Mismatch(f"result {position} ({theirs.dtype}): {_first_lines(error)}") from None


def agree_in_type(
    actual: Sequence[Any], expected: Sequence[Any], measure: Callable[[], Measure | None] | None = None
) -> None:
    """Raise `Mismatch` unless there are as many results as expected, each of the expected dtype and shape."""
    if len(actual) != len(expected):
        raise Mismatch(f"{len(actual)} results, eager gives {len(expected)}")
    for position, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
        kinds = [(x.dtype, tuple(x.shape)) if isinstance(x, torch.Tensor) else type(x) for x in (ours, theirs)]
        if kinds[0] != kinds[1]:
            raise Mismatch(f"result {position} is {kinds[0]}, eager gives {kinds[1]}")


def agree_roughly(actual: Sequence[Any], expected: Sequence[Any], measure: Callable[[], Measure | None]) -> None:
    """As `agree`, for what eager itself computes to three digits: within a hundredth."""
    agree_in_type(actual, expected)
    for position, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
        try:
            torch.testing.assert_close(ours.detach(), theirs.detach(), rtol=1e-2, atol=1e-3, equal_nan=True)
        except AssertionError as error:
            raise Mismatch(f"result {position} ({theirs.dtype}): {_first_lines(error)}") from None


# What a chain of correctly rounded steps may cost. 16-bit floats compute in float32 and round at the end; for float64
# some of eager's constants are float32, and some of its series end at 1e-9.
_NEAR = {
    torch.float64: 1e-7,
    torch.float32: 64 * torch.finfo(torch.float32).eps,
    torch.float16: 4 * torch.finfo(torch.float16).eps,
    torch.bfloat16: 4 * torch.finfo(torch.bfloat16).eps,
}


def agree_in_each_element(
    actual: Sequence[Any],
    expected: Sequence[Any],
    measure: Callable[[], Measure | None],
    *,
    operands: Sequence[torch.Tensor],
    signed_zeros: bool,
    cancels: bool,
) -> None:
    """Raise `Mismatch` unless each element of an elementwise op agrees with eager's by itself: NaN with NaN, an
    infinity with the same one, a zero with one of its sign (if ``signed_zeros``), a number with one near to it.

    What ``cancels`` is measured by the largest of the ``operands`` beside it, or by 1 where that is larger.
    """
    agree_in_type(actual, expected)
    beside = torch.zeros(operands[0].shape, dtype=torch.float64)
    for operand in operands if cancels else ():
        beside = torch.maximum(beside, operand.double().abs().nan_to_num(0.0).clamp(max=1.0))
    for position, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
        wrong = ours != theirs
        if theirs.dtype.is_floating_point:
            info = torch.finfo(theirs.dtype)
            size = torch.maximum(theirs.double().abs(), beside)
            # Below the smallest normal number there is less to be near to.
            allowed = _NEAR[theirs.dtype] * size.clamp(min=info.tiny)
            near = theirs.isfinite() & ((ours.double() - theirs.double()).abs() <= allowed)
            wrong &= ~near & ~(ours.isnan() & theirs.isnan())
            if signed_zeros:
                wrong |= (ours == 0) & (theirs == 0) & (ours.signbit() != theirs.signbit())
        if wrong.any():
            first = int(wrong.nonzero()[0])
            of = ", ".join(str(operand[first].item()) for operand in operands)
            raise Mismatch(
                f"result {position} ({theirs.dtype}) differs for {int(wrong.sum())} of {wrong.numel()} special values: "
                f"of ({of}) it is {ours[first].item()}, eager gives {theirs[first].item()}"
            )


# Roundings that a right result may be off by, in an order or a formula of its own.
_ROUNDINGS = 32

# torch.testing's own relative and absolute tolerances, of each part of a number.
_TOLERANCES = {
    torch.float64: (1e-7, 1e-7),
    torch.float32: (1.3e-6, 1e-5),
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
}


def is_as_near(
    actual: torch.Tensor, eager: torch.Tensor, truth: torch.Tensor, errors: torch.Tensor | None = None
) -> bool:
    """Whether each element is within torch's own tolerances, or as near to the truth as eager's are.

    An element's unit is an epsilon of its own, and what rounding costs it (``errors``). Allowed are 32 units
    or, where eager is worse, four times as many as eager's worst element is off by: a long sum in a single chain, a
    recurrence. So a small element is not measured by a large one, nor a well-conditioned by an ill-conditioned one.
    """
    if truth.shape != eager.shape:
        return False
    if errors is None:
        errors = torch.zeros_like(truth, dtype=truth.dtype.to_real())
    if eager.is_complex():
        # The parts of a product of complex numbers cancel: both have the unit of the larger.
        rounding = torch.finfo(eager.dtype).eps * truth.abs().nan_to_num(0.0, 0.0, 0.0)
        errors = torch.maximum(errors, rounding).unsqueeze(-1)
        actual, eager, truth = (torch.view_as_real(x.resolve_conj()) for x in (actual, eager, truth))
        errors = errors.expand_as(truth)
    finite = eager.isfinite()
    # NaN where eager has NaN, and the same infinities.
    if not torch.equal(actual.isnan(), eager.isnan()) or not torch.equal(*(x[x.isinf()] for x in (actual, eager))):
        return False
    if not torch.equal(actual.isfinite(), finite) or not finite.any():
        return False
    info = torch.finfo(eager.dtype)
    relative, absolute = _TOLERANCES[eager.dtype]
    truth, errors = truth[finite], errors[finite]
    actual, eager = (x[finite].to(truth.dtype) for x in (actual, eager))
    error, of_eager = ((x - truth).abs() for x in (actual, eager))
    unit = info.eps * truth.abs() + errors
    # Below the smallest normal number there is less to be near to.
    roundings = (of_eager / unit.clamp(min=info.eps * info.tiny)).max()
    near = error <= torch.maximum(unit * torch.clamp(4 * roundings, min=_ROUNDINGS), 4 * of_eager)
    return bool((near | ((actual - eager).abs() <= absolute + relative * eager.abs())).all())


def _first_lines(error: Exception) -> str:
    return " ".join(line.strip() for line in str(error).splitlines() if line.strip())[:300]
