"""Whether drawn results follow the distribution of eager's: many runs of one call, each with a seed of its own, and
two-sample tests.

Elements of one run may depend on each other (a dropped channel, a permutation), runs do not. So each number that is
tested is one of a run: an element at its place, or a sum over all elements that tells a wrong rate, spread, order or
dependence. Of that number the runs of both sides are two samples.

Does not: run anything. Whoever asks gives the results of as many runs of each side.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from backend_sdk.coverage.agreement import Mismatch, agree_in_type

# The runs of each side. A Kolmogorov-Smirnov distance above 0.29 is seen: of rates that are 0.3 apart in one
# element, or whose mean over 25 elements is off by three quarters of its standard deviation.
RUNS = 300

# The chance that a right rule fails one test. The whole proof makes fewer than 10^5, so that it fails wrongly with a
# chance below 10^-6; and as the seeds are fixed, once and for all.
ALPHA = 1e-11

# Elements of a result that are tested by themselves, evenly spaced.
_PLACES = 24

# A result of whole numbers with no more than so many values has each value counted.
_VALUES = 32

# What two roundings of one number may differ by, in epsilons of the dtype: times the number, and times what nearly all
# numbers of the result are below.
_ROUNDINGS = 64
_ROUNDINGS_OF_16_BITS = 4


Runs = Sequence[Sequence[Any]]


def agree_in_distribution(ours: Runs, theirs: Runs) -> None:
    """Raise `Mismatch` unless the results of the runs have the types of eager's and, by each test, their distribution.

    ``ours`` and ``theirs`` are the results of as many runs each. What is the same in all of eager's is compared as it
    is.
    """
    for actual, expected in zip(ours, theirs, strict=True):
        agree_in_type(actual, expected)
    for place, first in enumerate(theirs[0]):
        mine, eager = ([run[place] for run in runs] for runs in (ours, theirs))
        if not _steady(eager):
            numbers = [torch.stack([_numbers(one) for one in runs]) for runs in (mine, eager)]
            _compare(numbers[0], numbers[1], place, _slack(first))
        elif not _steady([*mine, *eager]):
            raise Mismatch(f"result {place} is not random, and differs from eager's")


def equal_whatever_the_seed(ours: Runs, theirs: Runs) -> bool:
    """Whether all results are equal but for rounding: those of a factorization that begins with random vectors."""
    for actual, expected in zip(ours, theirs, strict=True):
        agree_in_type(actual, expected)
    return all(_steady([run[place] for run in (*ours, *theirs)]) for place in range(len(theirs[0])))


def same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether results are equal to the last bit, NaN to NaN."""
    return all(
        torch.equal(_numbers(a), _numbers(b)) if isinstance(a, torch.Tensor) else a == b
        for a, b in zip(one, other, strict=True)
    )


def _numbers(value: torch.Tensor) -> torch.Tensor:
    """The elements as float64, a complex one as two. NaN counts as infinity."""
    value = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
    return value.detach().double().flatten().nan_to_num(math.inf, math.inf, -math.inf)


# Steps of an algorithm that begins at random may multiply roundings by so much.
_STEPS = 16


def _steady(runs: Sequence[Any]) -> bool:
    """Whether all runs give the same numbers, but for rounding."""
    if not isinstance(runs[0], torch.Tensor):
        return all(run == runs[0] for run in runs)
    if not runs[0].numel():
        return True
    numbers = torch.stack([_numbers(run) for run in runs])
    wide = numbers.amax(dim=0) - numbers.amin(dim=0)
    near = _STEPS * _slack(runs[0]) * numbers.abs().amax()
    return bool(((wide <= near) | (numbers == numbers[0]).all(dim=0)).all())


def _slack(value: torch.Tensor) -> float:
    """How far two roundings of one number may be apart, relative to it."""
    dtype = value.dtype.to_real() if value.is_complex() else value.dtype
    if not dtype.is_floating_point:
        return 0.0
    return torch.finfo(dtype).eps * (_ROUNDINGS_OF_16_BITS if dtype.itemsize == 2 else _ROUNDINGS)


def _compare(ours: torch.Tensor, theirs: torch.Tensor, place: int, slack: float) -> None:
    """Raise `Mismatch` for two samples of [runs, elements] that do not have one distribution."""
    runs = len(ours)
    kinds = [len(sample.unique(dim=0)) for sample in (ours, theirs)]
    if kinds[0] == 1:
        raise Mismatch(f"result {place} is the same for {runs} seeds, and eager's is not")
    # Each run changes the number of different results by one at most: McDiarmid's bound, for the two numbers.
    if abs(kinds[0] - kinds[1]) > math.sqrt(2 * runs * math.log(4 / ALPHA)):
        raise Mismatch(f"result {place} has {kinds[0]} values for {runs} seeds, eager's has {kinds[1]}")
    numbers = torch.cat([ours, theirs])
    # Sums cancel, in the results as in what is tested of them: roundings are those of the large numbers.
    scale = float(numbers.abs().nan_to_num(posinf=0.0).quantile(0.9, dim=0).amax())
    for one in _tested(numbers, scale):
        sides = one.numbers[:runs], one.numbers[runs:]
        for test in (_distance, _beyond) if slack else (_distance, _beyond, _counts):
            if wrong := test(*sides, slack, slack * one.scale):
                raise Mismatch(f"result {place} is drawn from another distribution than eager's: {one.name}: {wrong}")


class _Tested(NamedTuple):
    """Numbers of each run that are tested, [runs, numbers], what they are, and how large what they are sums of."""

    name: str
    numbers: torch.Tensor
    scale: float


def _tested(numbers: torch.Tensor, scale: float) -> Iterator[_Tested]:
    count = numbers.shape[1]
    places = torch.linspace(0, count - 1, min(count, _PLACES)).round().long()
    yield _Tested("the element at its place", numbers[:, places], scale)
    if count == 1:
        return
    weights = torch.linspace(-1.0, 1.0, count, dtype=torch.float64)
    for name, column, size in (
        ("the mean", numbers.mean(dim=1), scale),
        ("the mean square", numbers.square().mean(dim=1), scale**2),
        ("the least", numbers.amin(dim=1), scale),
        ("the greatest", numbers.amax(dim=1), scale),
        ("the mean with weights", (numbers * weights).mean(dim=1), scale),
        ("the mean product of neighbours", (numbers[:, 1:] * numbers[:, :-1]).mean(dim=1), scale**2),
    ):
        yield _Tested(name, column[:, None].nan_to_num(math.inf, math.inf, -math.inf), size)
    values = numbers.unique() if bool((numbers == numbers.round()).all()) else numbers[:0, 0]
    for value in values if len(values) <= _VALUES else ():
        yield _Tested(f"how often it is {value.item():g}", (numbers == value).sum(1, True).double(), 1.0)


def _moved(numbers: torch.Tensor, slack: float, reach: float) -> torch.Tensor:
    """The largest number that one may be when rounded otherwise."""
    return numbers + slack * numbers.abs() + reach


def _distance(ours: torch.Tensor, theirs: torch.Tensor, slack: float, reach: float) -> str:
    """The Kolmogorov-Smirnov test, in which a number counts as below another that is equal but for rounding.

    Its tail, 2 exp(-n D^2) for n of each, holds for discrete numbers too, where it is less.
    """
    runs = len(ours)
    farthest = 0.0
    for one, other in ((ours, theirs), (theirs, ours)):
        at = one.T.contiguous().sort(dim=1).values
        below = torch.searchsorted(at, at, right=True)
        others = other.T.contiguous().sort(dim=1).values
        others = torch.searchsorted(others, _moved(at, slack, reach), right=True)
        farthest = max(farthest, float((below - others).max()) / runs)
    if farthest <= math.sqrt(math.log(2 / ALPHA) / runs):
        return ""
    return f"the distribution functions of {runs} runs are {farthest:.3f} apart"


def _beyond(ours: torch.Tensor, theirs: torch.Tensor, slack: float, reach: float) -> str:
    """How many runs of one side lie beyond all of the other: that the k greatest of all are of one side has a chance of
    2^-k, which tells numbers outside of the range of eager's.
    """
    for sign in (1, -1):
        for one, other, words in ((ours, theirs, "ours"), (theirs, ours, "eager's")):
            edge = _moved(sign * other, slack, reach).amax(dim=0)
            number = int((sign * one > edge).sum(dim=0).max())
            if number > math.log2(1 / ALPHA):
                return (
                    f"{number} of {len(ours)} runs of {words} lie {'above' if sign > 0 else 'below'} all of the other"
                )
    return ""


def _counts(ours: torch.Tensor, theirs: torch.Tensor, slack: float, reach: float) -> str:
    """The chi-square test for numbers with few values: values that came less than 20 times count as one."""
    for place in range(ours.shape[1]):
        values, where = torch.cat([ours[:, place], theirs[:, place]]).unique(return_inverse=True)
        if not 1 < len(values) <= _VALUES:
            continue
        counts = torch.stack([torch.bincount(half, minlength=len(values)) for half in where.chunk(2)]).double()
        often = counts.sum(dim=0) >= 20
        counts = torch.cat([counts[:, often], counts[:, ~often].sum(dim=1, keepdim=True)], dim=1)
        counts = counts[:, counts.sum(dim=0) >= 20]
        freedom = counts.shape[1] - 1
        if freedom < 1:
            continue
        square = ((counts[0] - counts[1]) ** 2 / counts.sum(dim=0)).sum()
        chance = float(torch.special.gammaincc(torch.tensor(freedom / 2.0, dtype=torch.float64), square / 2))
        if chance < ALPHA:
            return f"the counts of {len(values)} values differ, by chance with {chance:.0e}"
    return ""
