"""Special functions at the edges of their domains: poles, zeros, extremes, NaN, integers, 16-bit floats, gradients.

What a user would lose: a loss that turns to NaN at an argument which the function takes, or a backend that gets a body
whose digits end where the function becomes interesting.
"""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

from backend_sdk import prims

INF, NAN = math.inf, math.nan
TINY = torch.finfo(torch.float32).tiny

# Values with 17 digits, computed with 40 by mpmath 1.3; exact limits where the argument is none.
VALUES = {
    "lgamma": {
        1e-30: 69.077552789821371,
        0.5: 0.57236494292470009,
        0.999: 0.00057803853289138024,
        1.0: 0.0,
        2.0: 0.0,
        2.001: 0.00042310673480011699,
        7.999: 8.5231457861589155,
        8.0: 8.5251613610654143,
        1e10: 220258509288.81058,
        -0.5: 1.2655121234846454,
        -1e-20: 46.051701859880914,
        -5.5: -4.5178321740077414,
        0.0: INF,
        -1.0: INF,
        -1e20: INF,
        INF: INF,
        -INF: INF,
        NAN: NAN,
    },
    "digamma": {
        1e-20: -1e20,
        1.0: -0.57721566490153286,
        10.0: 2.251752589066721,
        1e10: 23.025850929890456,
        -0.5: 0.036489973978576521,
        0.0: -INF,
        -3.0: NAN,
        INF: INF,
        -INF: NAN,
        NAN: NAN,
    },
    "erfcx": {
        0.0: 1.0,
        1.0: 0.42758357615580701,
        100.0: 0.0056416137829894329,
        1e20: 5.6418958354775629e-21,
        -1.0: 5.0089800807622835,
        -9.0: 3.0121946291700611e35,
        -40.0: INF,
        INF: 0.0,
        -INF: INF,
        NAN: NAN,
    },
    "ndtri": {
        1e-30: -11.464024688443616,
        0.001: -3.0902323061678135,
        0.5: 0.0,
        0.75: 0.67448975019608174,
        0.0: -INF,
        1.0: INF,
        -0.1: NAN,
        1.1: NAN,
        NAN: NAN,
    },
    "log_ndtr": {
        0.0: -0.69314718055994531,
        -1.0: -1.8410216450092636,
        -100.0: -5005.5242086942051,
        5.0: -2.8665161296376359e-7,
        -INF: -INF,
        INF: 0.0,
        NAN: NAN,
    },
    "bessel_i0": {0.0: 1.0, 8.0: 427.56411572180474, 90.0: 5.1392383455086638e37, INF: INF, -INF: INF, NAN: NAN},
    "bessel_i1": {0.0: 0.0, 8.0: 399.87313678256009, -1.0: -0.56515910399248503, INF: INF, -INF: -INF, NAN: NAN},
    "bessel_i0e": {0.0: 1.0, 1e6: 0.00039894233026924578, INF: 0.0, -INF: 0.0, NAN: NAN},
    "bessel_i1e": {0.0: 0.0, -1e6: -0.00039894213079803078, INF: 0.0, -INF: 0.0, NAN: NAN},
    "bessel_k0": {1e-20: 46.167633375539326, 2.0: 0.11389387274953344, 0.0: INF, -1.0: NAN, INF: 0.0, NAN: NAN},
    "bessel_k1": {1e-20: 1e20, 2.0: 0.13986588181652243, 0.0: INF, -1.0: NAN, INF: 0.0, NAN: NAN},
    "bessel_k0e": {2.0: 0.84156821507077142, 1e6: 0.0012533139806513212, 0.0: INF, -1.0: NAN, NAN: NAN},
    "bessel_k1e": {2.0: 1.0334768470686886, 1e6: 0.0012533146073081549, 0.0: INF, -1.0: NAN, NAN: NAN},
    # 5.1 and -3 lie where torch's own kernels are off by 1e-7 and more.
    "bessel_j0": {
        0.0: 1.0,
        5.1: -0.14433474706050065,
        -1.0: 0.76519768655796655,
        1e4: -0.0070961603533888017,
        NAN: NAN,
    },
    "bessel_j1": {0.0: 0.0, 5.1: -0.33709720201823181, -1.0: -0.44005058574493352, NAN: NAN},
    "bessel_y0": {5.1: -0.32160244912485942, 1.0: 0.088256964215676958, 0.0: -INF, -1.0: NAN, NAN: NAN},
    "bessel_y1": {5.1: 0.11373644197749973, 1.0: -0.78121282130028872, 0.0: -INF, -1.0: NAN, NAN: NAN},
    "spherical_bessel_j0": {0.0: 1.0, 1e-20: 1.0, 1.0: 0.8414709848078965, INF: 0.0, -INF: 0.0, NAN: NAN},
    "airy_ai": {
        0.0: 0.35502805388781724,
        -3.0: -0.37881429367765826,
        10.0: 1.1047532552898687e-10,
        1e30: 0.0,
        INF: NAN,
        -INF: NAN,
        NAN: NAN,
    },
}

CALLS = [(name, x) for name, values in VALUES.items() for x in values]


@pytest.mark.parametrize(("name", "x"), CALLS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_known_values(name, x, dtype):
    """As near as the tolerance says. Where the dtype has no such argument, float64 says what its neighbor gives."""
    op, argument = prims.CONTRACT[name], torch.tensor(x, dtype=dtype)
    expected = VALUES[name][x]
    if math.isfinite(expected) and float(argument) != x:
        expected = float(op(argument.double()))
    actual = op(argument)
    assert actual.dtype == dtype
    assert op.tolerance.share(actual, torch.tensor(expected, dtype=torch.float64), None) <= 1.0


def test_the_pole_of_digamma_has_the_sign_of_zero():
    assert prims.digamma(torch.tensor([0.0, -0.0])).tolist() == [-INF, INF]


# Where a float32 argument has too few digits left for the result, by the slope of the function.
FARTHEST = {"airy_ai": (-20.0, INF), "log_ndtr": (-INF, 6.0), "lgamma": (-20.0, INF), "digamma": (-20.0, INF)}


@pytest.mark.parametrize("name", VALUES)
def test_float32_keeps_its_tolerance_over_all_magnitudes(name):
    op = prims.CONTRACT[name]
    x = torch.logspace(-30, 30, 2001)
    x = torch.cat([x, -x])
    low, high = FARTHEST.get(name, (-INF, INF))
    x = x[(x >= low) & (x <= high)]
    actual, wide = op(x), op(x.double())
    small = wide.abs() < 2 * TINY
    assert op.tolerance.share(actual[~small], wide[~small], None) <= 1.0
    # Subnormals may be flushed.
    assert (actual[small].abs() <= 4 * TINY).all()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64], ids=str)
def test_gcd_needs_no_more_steps_than_it_has(dtype):
    """Consecutive Fibonacci numbers take the most, and the most negative value has no magnitude."""
    limits = torch.iinfo(dtype)
    a, b = 1, 1
    while a + b <= limits.max:
        a, b = b, a + b
    values = torch.tensor([a, b, 0, 1, 12, 18, limits.max, limits.min, limits.min + 1], dtype=dtype)
    x, y = (part.contiguous() for part in torch.cartesian_prod(values, values).unbind(1))
    assert torch.equal(prims.gcd(x, y), torch.gcd(x, y))


def test_hypot_neither_overflows_nor_underflows():
    x = torch.tensor([3e38, 1e-38, 0.0, INF, NAN, -INF, 3.0])
    y = torch.tensor([1e38, 1e-38, 0.0, NAN, INF, 1.0, -4.0])
    torch.testing.assert_close(prims.hypot(x, y), torch.hypot(x.double(), y.double()).float(), rtol=4e-7, atol=0.0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("function", [torch.nextafter, torch.copysign])
def test_neighbors_and_signs_are_eagers_bits(function, dtype, compiled_call):
    if function is torch.nextafter and dtype == torch.float16:
        pytest.skip("eager has no nextafter for float16")
    info = torch.finfo(dtype)
    edges = [0.0, -0.0, 1.0, -1.0, info.tiny, info.smallest_normal / 2, info.max, info.min, INF, -INF, NAN]
    x, y = torch.cartesian_prod(*[torch.tensor(edges, dtype=dtype)] * 2).unbind(1)
    (actual,) = compiled_call(function, (x, y)).leaves
    eager = function(x, y)
    ordered = ~eager.isnan()
    assert torch.equal(ordered, ~actual.isnan())
    # signbit tells -0 from 0.
    assert torch.equal(actual[ordered], eager[ordered])
    assert torch.equal(actual[ordered].signbit(), eager[ordered].signbit())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_frexp_splits_subnormals_and_extremes(dtype, compiled_call):
    info = torch.finfo(dtype)
    x = torch.tensor([0.0, -0.0, 1.0, -3.0, info.tiny, -info.tiny / 2, info.tiny * info.eps, info.max], dtype=dtype)
    mantissa, exponent = compiled_call(torch.frexp, (x,)).leaves
    assert exponent.dtype == torch.int32
    of_number = x != 0
    assert ((mantissa[of_number].abs() >= 0.5) & (mantissa[of_number].abs() < 1)).all()
    assert torch.equal(torch.ldexp(mantissa.double(), exponent), x.double())


def test_a_composite_reaches_prims_on_a_backend_that_claims_none(compiled_call):
    """No special function is needed to run one: what a body stands for."""
    names = {op.name for op in prims.CONTRACT if op.kind == "prim"}
    for function in (torch.lgamma, torch.digamma, torch.i0, torch.special.bessel_y1, torch.special.ndtri):
        compiled = compiled_call(function, (torch.rand(5),))
        assert not compiled.left_to_eager
    assert names.isdisjoint(VALUES)


# ---- torch's own samples, forward and backward, in every dtype that eager takes

# The functions of this module's families; what else uses them is in the catalogue under its own name.
FAMILIES = {
    "copysign",
    "digamma",
    "exp2",
    "float_power",
    "frac",
    "frexp",
    "gcd",
    "heaviside",
    "hypot",
    "i0",
    "igamma",
    "igammac",
    "isneginf",
    "isposinf",
    "lcm",
    "ldexp",
    "lgamma",
    "log10",
    "logaddexp",
    "logaddexp2",
    "logit",
    "mvlgamma",
    "nan_to_num",
    "nextafter",
    "polygamma",
    "signbit",
    "sinc",
    "xlogy",
}

# Ops whose result eager gets wrong, with what is wrong. They are left out in float64 and for integers.
EAGER_IS_OFF = {
    "special.bessel_j0": "drops the leading 1 of a denominator: off by 4e-7 beyond 5, more than float64 forgives",
    "special.bessel_j1": "the same",
    "special.bessel_y0": "the same",
    "special.bessel_y1": "the same",
    "special.airy_ai": "the same below -2.09",
    "polygamma": "gives a large finite number for the first derivative at a pole, where it is infinite",
    "special.polygamma": "the same",
}
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.bool)


def _is_off(op, dtype):
    return op.name in EAGER_IS_OFF and (dtype == torch.float64 or not dtype.is_floating_point)


def _is_ours(op):
    return op.name in FAMILIES or op.name.startswith("special.")


def _cases(dtypes_of):
    return [
        pytest.param(op, dtype, id=f"{op.formatted_name}-{str(dtype).removeprefix('torch.')}")
        for op in op_db
        if _is_ours(op)
        for dtype in DTYPES
        if dtype in dtypes_of(op) and not _is_off(op, dtype)
    ]


@pytest.mark.parametrize(("op", "dtype"), _cases(lambda op: op.supported_dtypes("cpu")))
def test_samples_in_every_dtype(op, dtype, compiled_call, assert_as_eager):
    for sample in itertools.islice(op.sample_inputs("cpu", dtype), 2):
        args = (sample.input, *sample.args)
        eager = pytree.tree_leaves(op.op(*args, **sample.kwargs))
        compiled = compiled_call(op.op, args, sample.kwargs)
        assert not compiled.left_to_eager
        for position, (actual, expected) in enumerate(zip(compiled.leaves, eager, strict=True)):
            assert_as_eager(
                actual, expected, lambda p=position, s=sample: pytree.tree_leaves(op.op(*_wide(s)[0], **_wide(s)[1]))[p]
            )


@pytest.mark.parametrize(
    ("op", "dtype"), _cases(lambda op: op.supported_backward_dtypes("cpu") if op.supports_autograd else ())
)
def test_gradients_of_samples(op, dtype, compiled_call, assert_as_eager):
    for sample in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=True), 2):
        args = (sample.input, *sample.args)
        eager = _gradients(pytree.tree_leaves(op.op(*args, **sample.kwargs)), _inputs(args, sample.kwargs))
        compiled = compiled_call(op.op, args, sample.kwargs)
        ours = _gradients(compiled.leaves, _inputs(args, sample.kwargs))
        assert not compiled.left_to_eager
        wide_args, wide_kwargs = _wide(sample)

        def exact(position, args=wide_args, kwargs=wide_kwargs):
            return _gradients(pytree.tree_leaves(op.op(*args, **kwargs)), _inputs(args, kwargs))[position]

        for position, (actual, expected) in enumerate(zip(ours, eager, strict=True)):
            assert_as_eager(actual, expected, lambda p=position, e=exact: e(p))


def _wide(sample):
    def widen(leaf):
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
            return leaf.detach().double().requires_grad_(leaf.requires_grad)
        return leaf

    return pytree.tree_map(widen, (sample.input, *sample.args)), pytree.tree_map(widen, sample.kwargs)


def _inputs(args, kwargs):
    return [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor) and x.requires_grad]


def _gradients(results, inputs):
    """For a sum of all results, each element with another weight; zeros for an input that nothing depends on."""
    results = [x for x in results if isinstance(x, torch.Tensor) and x.requires_grad]
    if not results:
        return []
    weights = [torch.linspace(0.5, 1.5, x.numel(), dtype=x.dtype).reshape(x.shape) for x in results]
    return list(torch.autograd.grad(results, inputs, weights, allow_unused=True, materialize_grads=True))
