"""Rules for distributions that eager samples by rejection or by a search: gamma, Dirichlet, Poisson and binomial.

How long eager takes depends on the numbers it draws. Here the work is fixed: an inversion with a fixed number of
bisections, or a fixed number of tries at once, so many that all of them fail with a chance below 2^-64.

Does not: differentiate Dirichlet samples (`coverage.scope` says why).
"""

from __future__ import annotations

import math
from typing import Any

import torch

from backend_sdk import dtypes, prims
from backend_sdk.decomp.promotion import spread
from backend_sdk.decomp.random import substream
from backend_sdk.decomp.registry import decomposition
from backend_sdk.decomp.sampling import exponential_of_rate_one
from backend_sdk.graph import Value
from backend_sdk.prims.shorthand import along, cast, constant, scaled
from backend_sdk.spec import Shape, TensorType
from backend_sdk.torch_compat.ops import aten


def _uniform(key: Value, stream: int, shape: Shape, dtype: torch.dtype) -> Value:
    return prims.random_uniform(key, stream=stream, shape=shape, dtype=dtype)  # type: ignore[no-any-return]


def _tried(values: Value, tries: int) -> Value:
    """The same values for each of several tries, in a new first dim."""
    shape = (tries, *values.shape)
    return along(values, tuple(range(1, len(shape))), shape)  # type: ignore[no-any-return]


def _first_accepted(tried: Value, accepted: Value, otherwise: Value) -> Value:
    """Of the tries along the first dim the first one that is accepted; ``otherwise`` when none is."""
    chosen = prims.argmax(cast(accepted, torch.int32), axis=0)
    shape = (1, *chosen.shape)
    found = prims.gather(prims.select(accepted, tried, otherwise), prims.reshape(chosen, shape=shape), axis=0)
    return prims.reshape(found, shape=tuple(chosen.shape))  # type: ignore[no-any-return]


# ---- gamma


# A try fails with a chance of at most 4.84%, at the concentration 1: 15 fail with one of 2^-65.
_GAMMA_TRIES = 15


def _gamma(key: Value, stream: int, concentration: Value) -> tuple[Value, Value]:
    """Standard gamma numbers as a factor and the logarithm of another one, which is 0 from concentration 1 on.

    Marsaglia and Tsang, "A simple method for generating gamma variables" (2000): d v with v = (1 + c x)^3, x normal,
    accepted when log u < x^2 / 2 + d (1 - v + log v). Below 1, that for one more times u^(1 / concentration), their
    section 6. It may underflow, so it stays a logarithm.
    """
    dtype, shape = concentration.dtype, tuple(concentration.shape)
    one = constant(concentration, 1.0)
    small = prims.lt(concentration, one)
    base = prims.select(small, prims.add(concentration, one), concentration)
    d = prims.sub(base, constant(base, 1.0 / 3.0))
    c = prims.rsqrt(scaled(d, 9.0))
    wide_d, wide_c = _tried(d, _GAMMA_TRIES), _tried(c, _GAMMA_TRIES)
    x = prims.random_normal(key, stream=substream(stream, 0), shape=wide_d.shape, dtype=dtype)
    u = _uniform(key, substream(stream, 1), wide_d.shape, dtype)
    root = prims.add(constant(x, 1.0), prims.mul(wide_c, x))
    positive = prims.gt(root, constant(root, 0.0))
    root = prims.select(positive, root, constant(root, 1.0))
    v = prims.mul(root, prims.mul(root, root))
    rest = prims.add(prims.sub(constant(v, 1.0), v), prims.log(v))
    bound = prims.add(scaled(prims.mul(x, x), 0.5), prims.mul(wide_d, rest))
    accepted = prims.bitwise_and(positive, prims.lt(prims.log(u), bound))
    # Not a number stays one: its tries all fail.
    factor = prims.mul(d, _first_accepted(v, accepted, constant(v, 1.0)))
    waiting = exponential_of_rate_one(key, substream(stream, 2), shape, dtype)
    logarithm = prims.select(small, prims.neg(prims.div(waiting, concentration)), constant(concentration, 0.0))
    return factor, logarithm


@decomposition(aten._standard_gamma.default, draws=True)
def standard_gamma(out: TensorType, key: Value, stream: int, concentration: Value, generator: Any = None) -> Any:
    factor, logarithm = _gamma(key, stream, cast(concentration, dtypes.compute_dtype(out.dtype)))
    drawn = cast(prims.mul(factor, prims.exp(logarithm)), out.dtype)
    # Eager gives no zeros.
    return prims.maximum(drawn, constant(drawn, torch.finfo(out.dtype).tiny))


@decomposition(aten._sample_dirichlet.default, draws=True)
def sample_dirichlet(out: TensorType, key: Value, stream: int, concentration: Value, generator: Any = None) -> Any:
    """Gamma numbers over their sum, as a softmax of their logarithms: none of them underflows."""
    factor, logarithm = _gamma(key, stream, cast(concentration, dtypes.compute_dtype(out.dtype)))
    logits = prims.add(prims.log(factor), logarithm)
    shares = cast(prims.softmax(logits, axis=logits.ndim - 1), out.dtype) if logits.ndim else constant(logits, 1.0)
    limits = torch.finfo(out.dtype)
    shares = prims.maximum(cast(shares, out.dtype), constant(shares, limits.tiny, out.dtype))
    return prims.minimum(shares, constant(shares, 1.0 - limits.eps))


@decomposition(aten._standard_gamma_grad.default)
def standard_gamma_grad(out: TensorType, concentration: Value, sample: Value) -> Any:
    """The derivative of a sample with respect to its concentration, for a fixed level of the distribution function F:
    -(dF / d concentration) / density (Figurnov et al., "Implicit Reparameterization Gradients", arXiv:1805.08498).

    The derivative of F by the central difference of fourth order (Abramowitz and Stegun 25.3.21), in float64, of the
    tail that is the smaller one: within 1e-7 of the truth, where eager's approximation is within 1e-3.
    """
    a = cast(spread(concentration, out.shape, concentration.dtype), torch.float64)
    x = cast(spread(sample, out.shape, sample.dtype), torch.float64)
    # F changes over sqrt(a), and below 1 over a.
    step = scaled(prims.minimum(a, prims.sqrt(a)), 5e-3)
    upper_tail = prims.gt(x, a)

    def level(steps: float) -> Value:
        moved = prims.add(a, scaled(step, steps))
        lower, upper = (prims.incomplete_gamma(moved, x, upper=side) for side in (False, True))
        return prims.select(upper_tail, prims.neg(upper), lower)  # type: ignore[no-any-return]

    near = prims.sub(level(1.0), level(-1.0))
    far = prims.sub(level(2.0), level(-2.0))
    slope = prims.div(prims.sub(scaled(near, 8.0), far), scaled(step, 12.0))
    log_density = prims.sub(prims.sub(prims.mul(prims.sub(a, constant(a, 1.0)), prims.log(x)), x), prims.lgamma(a))
    return cast(prims.neg(prims.div(slope, prims.exp(log_density))), out.dtype)


# ---- Poisson


# Halvings of the bracket below, for rates whose counts the dtype has: 2^24, and 2^53.
_BISECTIONS = {torch.float32: 17, torch.float64: 32}


@decomposition(aten.poisson.default, draws=True)
def poisson(out: TensorType, key: Value, stream: int, rate: Value, generator: Any = None) -> Any:
    """The smallest k with P(X <= k) = Q(k + 1, rate) above a uniform number (Abramowitz and Stegun 26.4.21).

    By bisection of rate +- (10 sqrt(rate) + 32): X lies outside with a chance below 2^-64 (Bernstein's inequality).
    """
    wide = dtypes.compute_dtype(out.dtype)
    rate = cast(rate, wide)
    u = _uniform(key, stream, out.shape, wide)
    one = constant(rate, 1.0)
    reach = prims.add(scaled(prims.sqrt(rate), 10.0), constant(rate, 32.0))
    low = prims.maximum(prims.floor(prims.sub(rate, reach)), constant(rate, 0.0))
    high = prims.ceil(prims.add(rate, reach))
    for _ in range(_BISECTIONS[wide]):
        middle = prims.floor(scaled(prims.add(low, high), 0.5))
        reached = prims.gt(prims.incomplete_gamma(prims.add(middle, one), rate, upper=True), u)
        low = prims.select(reached, low, prims.minimum(prims.add(middle, one), high))
        high = prims.select(reached, middle, high)
    return cast(high, out.dtype)


# ---- binomial


# A mean below this is inverted, by a sum of so many terms: X is as large with a chance below 2^-64.
_LEAST_MEAN = 10.0
_TERMS = 64
# A try fails with a chance of at most 29.2%, at 20 trials of chance 1/2 (measured): 37 fail with one of 2^-65.
_BINOMIAL_TRIES = 37


def _few(key: Value, stream: int, trials: Value, chance: Value) -> Value:
    """Binomial numbers of a small mean, by inversion: how many values of the distribution function u reaches."""
    u = _uniform(key, stream, tuple(trials.shape), trials.dtype)
    shape = (_TERMS, *trials.shape)
    k = along(prims.iota(length=_TERMS, dtype=trials.dtype), (0,), shape)
    n = _tried(trials, _TERMS)
    fails = prims.log1p(prims.neg(chance))
    odds = _tried(prims.sub(prims.log(chance), fails), _TERMS)
    left = prims.maximum(prims.add(prims.sub(n, k), constant(n, 1.0)), constant(n, 0.0))
    ratio = prims.add(prims.log(prims.div(left, prims.maximum(k, constant(k, 1.0)))), odds)
    first = _tried(prims.mul(trials, fails), _TERMS)
    logarithms = prims.cumsum(prims.select(prims.eq(k, constant(k, 0.0)), first, ratio), axis=0)
    reached = prims.le(prims.cumsum(prims.exp(logarithms), axis=0), _tried(u, _TERMS))
    number = prims.reduce_sum(cast(reached, trials.dtype), axes=(0,))
    return prims.minimum(number, trials)  # type: ignore[no-any-return]


def _log_factorial(k: Value) -> Value:
    """log k! for k >= 0, float64: Stirling's series (Abramowitz and Stegun 6.1.41) eight places further on, where four
    terms are within 1e-12. Cheaper than `lgamma`, which takes any number.
    """
    z = prims.add(k, constant(k, 9.0))
    steps = constant(k, 1.0)
    for step in range(1, 9):
        steps = prims.mul(steps, prims.add(k, constant(k, float(step))))
    inverse = prims.div(constant(z, 1.0), z)
    square = prims.mul(inverse, inverse)
    series = constant(z, -1.0 / 1680.0)
    for coefficient in (1.0 / 1260.0, -1.0 / 360.0, 1.0 / 12.0):
        series = prims.add(prims.mul(series, square), constant(z, coefficient))
    log = prims.mul(prims.sub(z, constant(z, 0.5)), prims.log(z))
    whole = prims.add(prims.sub(log, z), constant(z, 0.5 * math.log(2.0 * math.pi)))
    whole = prims.add(whole, prims.mul(series, inverse))
    return prims.sub(whole, prims.log(steps))  # type: ignore[no-any-return]


def _many(key: Value, stream: int, trials: Value, chance: Value) -> Value:
    """Binomial numbers of a mean of at least 10 and a chance of at most 1/2, by transformed rejection: BTRS of Hörmann,
    "The generation of binomial random variates" (1993), with its constants.
    """
    tries = _BINOMIAL_TRIES
    shape = (tries, *trials.shape)
    one = constant(trials, 1.0)
    mean = prims.mul(trials, chance)
    spread_ = prims.sqrt(prims.mul(mean, prims.sub(one, chance)))
    b = prims.add(scaled(spread_, 2.53), constant(mean, 1.15))
    a = prims.add(prims.add(scaled(b, 0.0248), constant(b, -0.0873)), scaled(chance, 0.01))
    alpha = prims.mul(prims.add(constant(b, 2.83), prims.div(constant(b, 5.1), b)), spread_)
    inner = prims.sub(constant(b, 0.92), prims.div(constant(b, 4.2), b))
    mode = prims.floor(prims.mul(prims.add(trials, one), chance))
    odds = prims.log(prims.div(chance, prims.sub(one, chance)))
    at_mode = prims.add(_log_factorial(mode), _log_factorial(prims.sub(trials, mode)))
    n, a, b, alpha, inner, mode, odds, at_mode, center = (
        _tried(part, tries) for part in (trials, a, b, alpha, inner, mode, odds, at_mode, mean)
    )
    half = constant(n, 0.5)
    u = prims.sub(_uniform(key, substream(stream, 1), shape, n.dtype), half)
    v = _uniform(key, substream(stream, 2), shape, n.dtype)
    # The first u of all gives -1/2, on the edge, where 1 / margin has a pole.
    margin = prims.maximum(prims.sub(half, prims.abs(u)), constant(u, 2.0**-54))
    k = prims.mul(prims.add(prims.div(scaled(a, 2.0), margin), b), u)
    k = prims.floor(prims.add(k, prims.add(center, half)))
    inside = prims.bitwise_and(prims.ge(k, constant(k, 0.0)), prims.le(k, n))
    at_once = prims.bitwise_and(prims.ge(margin, constant(margin, 0.07)), prims.le(v, inner))
    known = prims.select(inside, k, mode)
    height = prims.log(prims.div(prims.mul(v, alpha), prims.add(prims.div(a, prims.mul(margin, margin)), b)))
    at_k = prims.add(_log_factorial(known), _log_factorial(prims.sub(n, known)))
    density = prims.add(prims.sub(at_mode, at_k), prims.mul(prims.sub(known, mode), odds))
    accepted = prims.bitwise_and(inside, prims.bitwise_or(at_once, prims.le(height, density)))
    return _first_accepted(known, accepted, mode)


@decomposition(aten.binomial.default, draws=True)
def binomial(out: TensorType, key: Value, stream: int, count: Value, chance: Value, generator: Any = None) -> Any:
    """In float64: log-densities of many trials are differences of large numbers. Takes the memory of 64 results."""
    n = spread(count, out.shape, torch.float64)
    p = spread(chance, out.shape, torch.float64)
    zero, one = constant(p, 0.0), constant(p, 1.0)
    likely = prims.gt(p, constant(p, 0.5))
    rare = prims.maximum(prims.select(likely, prims.sub(one, p), p), zero)
    trials = prims.maximum(n, zero)
    many = prims.ge(prims.mul(trials, rare), constant(p, _LEAST_MEAN))
    # Each way gets arguments that it can take.
    of_few = _few(key, stream, trials, prims.select(many, zero, rare))
    trials_of_many = prims.select(many, trials, constant(p, 4 * _LEAST_MEAN))
    of_many = _many(key, stream, trials_of_many, prims.select(many, rare, constant(p, 0.5)))
    drawn = prims.select(many, of_many, of_few)
    drawn = prims.select(likely, prims.sub(trials, drawn), drawn)
    unknown = prims.bitwise_or(prims.ne(n, n), prims.ne(p, p))
    return cast(prims.select(unknown, constant(drawn, math.nan), drawn), out.dtype)
