"""Calls of elementwise overloads on the values at which rules go wrong: signed zeros, infinities, NaN, subnormals,
extremes and ties; of integers the edges of the dtype. Several tensors meet in every combination.

Does not: run them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from backend_sdk.coverage.agreement import agree_in_each_element
from backend_sdk.coverage.calls import Call
from backend_sdk.coverage.generated import candidates, stem
from backend_sdk.prims.samples import special_values
from backend_sdk.torch_compat.overloads import aten_overloads, base_name, is_elementwise, is_mutable, is_view

# Elementwise overloads without torch's tag for them, by what they compute.
_UNTAGGED = frozenset(
    {
        "__and__",
        "__or__",
        "_add_relu",
        "_prelu_kernel",
        "absolute",
        "arccos",
        "arccosh",
        "arcsin",
        "arcsinh",
        "arctan",
        "arctan2",
        "arctanh",
        "divide",
        "elu_backward",
        "fix",
        "floor_divide",
        "greater",
        "greater_equal",
        "hardshrink_backward",
        "hardsigmoid_backward",
        "hardswish",
        "hardswish_backward",
        "hardtanh_backward",
        "isreal",
        "leaky_relu_backward",
        "less",
        "less_equal",
        "log_sigmoid",
        "log_sigmoid_backward",
        "log_sigmoid_forward",
        "mish_backward",
        "multiply",
        "negative",
        "not_equal",
        "rrelu_with_noise_backward",
        "softplus_backward",
        "softshrink_backward",
        "special_digamma",
        "special_erf",
        "special_erfc",
        "special_erfinv",
        "special_exp2",
        "special_expit",
        "special_expm1",
        "special_gammainc",
        "special_gammaincc",
        "special_gammaln",
        "special_i0",
        "special_log1p",
        "special_logit",
        "special_multigammaln",
        "special_ndtr",
        "special_polygamma",
        "special_psi",
        "special_round",
        "special_sinc",
        "special_xlogy",
        "subtract",
    }
)

# Beside the special values of the dtype: where rounding ties, where functions have poles and zeros, and tails.
_ORDINARY = (2.0, -2.0, 3.0, -3.0, 1.5, -1.5, 2.5, -2.5, 12.5, -12.5)
_ORDINARY_INTEGERS = (2, 3, 7, -2, -3)

# Combinations of the values of more tensors than three are drawn.
_MOST_COMBINED = 3
_DRAWN = 4096

Given = Mapping[str, Any]


@dataclass(frozen=True)
class Limit:
    """Where eager's value of an op says nothing, and is not compared.

    ``compared`` says of which rows it is, given the arguments by name.
    """

    why: str
    compared: Callable[[Given], torch.Tensor]


def _limits(why: str, compared: Callable[[Given], torch.Tensor], ops: str) -> dict[str, Limit]:
    return dict.fromkeys(ops.split(), Limit(why, compared))


def _divides(given: Given) -> torch.Tensor:
    x, y = _tensors(given, "self", "other")
    if x.dtype.is_floating_point or y.dtype.is_floating_point:
        return torch.ones(torch.broadcast_shapes(x.shape, y.shape), dtype=torch.bool)
    return (y != 0) & ~((y == -1) & (x == torch.iinfo(torch.result_type(x, y)).min))


def _shifts(given: Given) -> torch.Tensor:
    x, y = _tensors(given, "self", "other")
    return ((y >= 0) & (y < torch.iinfo(x.dtype).bits)).expand(torch.broadcast_shapes(x.shape, y.shape))


def _tensors(given: Given, *names: str) -> tuple[torch.Tensor, ...]:
    return tuple(torch.as_tensor(given[name]) for name in names)


def _normal(x: torch.Tensor) -> torch.Tensor:
    """Whether half of x is no subnormal number."""
    limits = torch.finfo(x.dtype if x.dtype.is_floating_point else torch.get_default_dtype())
    return (x.abs() > 2 * limits.tiny).logical_or(x == 0).logical_or(x.isnan())


def _is_no_nan(given: Given) -> torch.Tensor:
    """Of the operands. The gradient of a result may be NaN."""
    operands = _tensors(given, *(name for name in ("self", "self_or_result", "other") if name in given))
    return functools.reduce(torch.logical_and, [~operand.isnan() for operand in operands])


def _scales_finite_products(given: Given) -> torch.Tensor:
    a, b = _tensors(given, "tensor1", "tensor2")
    scaled: torch.Tensor = given.get("value", 1) * a
    return (scaled * b).isfinite().logical_or(~(scaled.isfinite() & b.isfinite()))


def _weighs_finite_differences(given: Given) -> torch.Tensor:
    x, y, weight = _tensors(given, "self", "end", "weight")
    difference = y - x
    products: torch.Tensor = (difference * weight).isfinite() & (difference * (1 - weight)).isfinite()
    return products.logical_or(~(x.isfinite() & y.isfinite() & weight.isfinite()))


LIMITS: Mapping[str, Limit] = {
    **_limits(
        "integer division by zero, and of the most negative value by -1, is undefined in C++ and may end the process",
        _divides,
        "div divide floor_divide fmod remainder",
    ),
    **_limits(
        "divides by the greatest common divisor, which of the most negative value may be -1: undefined in C++",
        lambda given: torch.minimum(given["self"], given["other"]) > torch.iinfo(given["self"].dtype).min,
        "lcm",
    ),
    **_limits(
        "a shift by less than 0, or by the width or more, is undefined in C++",
        _shifts,
        "bitwise_left_shift bitwise_right_shift __lshift__ __rshift__",
    ),
    **_limits(
        "eager divides inf by inf, or multiplies it with 0, where the limit is infinite",
        lambda given: ~given["self"].isinf(),
        "i0 special_i0 special_i1 special_modified_bessel_i0 special_modified_bessel_i1",
    ),
    **_limits(
        "at a pole eager's sine of a rounded multiple of pi is not 0: 1e15 in place of inf; of the largest number the "
        "reciprocal is subnormal",
        lambda given: ~((given["self"] <= 0) & (given["self"] == given["self"].floor())) & ~(given["self"] > 1e38),
        "polygamma special_polygamma",
    ),
    **_limits(
        "eager multiplies and adds in one rounding where it is vectorized: a product beyond the largest number is none",
        _scales_finite_products,
        "addcmul",
    ),
    **_limits(
        "eager multiplies and adds in one rounding where it is vectorized: a product beyond the largest number is none",
        _weighs_finite_differences,
        "lerp",
    ),
    **_limits(
        "eager's asymptotic series is right to six digits",
        lambda given: ~(given["x"] < -2.09),
        "special_airy_ai",
    ),
    **_limits(
        "eager's series loses bits of subnormal numbers",
        lambda given: _normal(given["self"]),
        "special_bessel_j1",
    ),
    **_limits(
        "eager's vectorized kernel gives another value for NaN than its scalar one, which runs the last few elements",
        _is_no_nan,
        """
        _add_relu elu_backward hardshrink_backward hardswish_backward hardtanh_backward leaky_relu_backward
        softshrink_backward
        """,
    ),
    **_limits(
        "eager overflows at the largest number and gives NaN at infinity; its kernel for bfloat16 has no subnormals",
        lambda given: ~(given["self"].abs() >= torch.finfo(given["self"].dtype).max) & _normal(given["self"]),
        "gelu",
    ),
    **_limits(
        "eager's vectorized exponential is 0 in the tail, and its kernel for bfloat16 flushes subnormal results to 0",
        lambda given: _normal(given["grad_output"]) & _normal(given["self"]) & ~(given["self"] < -10),
        "gelu_backward",
    ),
    **_limits(
        "of a subnormal number one rounding decides whether the reciprocal overflows",
        lambda given: _normal(given["self"]),
        "digamma special_digamma special_psi",
    ),
    **_limits(
        "a mask is of truth values",
        lambda given: (given["mask"] == 0) | (given["mask"] == 1),
        "native_dropout_backward",
    ),
    **_limits(
        "outside of the function's domain, where eager checks nothing and rounds in between",
        lambda given: given["self"] > (given["p"] - 1) / 2,
        "mvlgamma special_multigammaln",
    ),
    **_limits(
        "no value of the function whose gradient it is lies there",
        lambda given: ~((given["output"] < 0) | (given["output"] > 1)),
        "sigmoid_backward",
    ),
    **_limits(
        "eager's kernel for 16-bit floats drops the sign of zero",
        lambda given: ~((given["self"] == 0) & given["self"].signbit()),
        "logit_backward",
    ),
}

# Ops that place 0 and -0 where eager, or eager's scalar kernel, has the other one, with the reason.
ZERO_OF_EITHER_SIGN: Mapping[str, str] = {
    **dict.fromkeys(
        ("relu", "relu6", "hardtanh", "fmax", "fmin", "_add_relu", "softshrink"),
        "0 and -0 are equal, and either is the larger one",
    ),
    **dict.fromkeys(
        ("addcmul", "lerp", "gelu_backward"), "a product that vanishes leaves its sign where it is rounded by itself"
    ),
    "logaddexp2": "a sum that cancels has the sign of its rounding errors",
    "native_dropout_backward": "of integers eager multiplies before it converts",
}


# Ops whose steps cancel, in eager as here, so that a result near 0 is right to an epsilon of the operands only.
CANCELS: Mapping[str, str] = {
    **dict.fromkeys(("gelu", "gelu_backward"), "1 + erf(x), where erf(x) is near -1"),
    "lerp": "start + weight (end - start)",
    "logaddexp2": "the larger operand and the logarithm of the rest of the sum",
    **dict.fromkeys(
        ("special_bessel_j0", "special_bessel_j1", "special_bessel_y0", "special_bessel_y1"),
        "the phase of an argument beyond the mantissa",
    ),
}


def special_names() -> tuple[str, ...]:
    """The elementwise overloads that write into nothing. In-place and out= ones become these."""
    return tuple(
        name
        for name, op in aten_overloads().items()
        if (is_elementwise(op) or base_name(op) in _UNTAGGED) and not is_mutable(op) and not is_view(op)
    )


def special_calls(name: str, dtype: torch.dtype, lent: Iterable[Call]) -> Iterator[Call]:
    """Calls of ``name`` with one-dimensional tensors of special values in place of those of likely calls, one for each
    set of other arguments and kinds of tensors.
    """
    seen = set()
    for call in candidates(name, lent):
        values = call.args[0]
        tensors = [key for key, value in values.items() if isinstance(value, torch.Tensor)]
        if not tensors:
            continue
        kinds = [torch.bool if values[key].dtype == torch.bool else dtype for key in tensors]
        form = repr((kinds, {key: value for key, value in values.items() if key not in tensors}))
        if form in seen:
            continue
        seen.add(form)
        rows = _rows(kinds)
        given = {**values, **dict(zip(tensors, rows, strict=True))}
        if stem(name) in LIMITS:
            try:
                compared = LIMITS[stem(name)].compared(given)
            except (RuntimeError, TypeError):
                # The dtype has no such arithmetic: no valid call.
                continue
            rows = [row[compared] for row in rows]
        yield replace(
            call,
            args=({**values, **dict(zip(tensors, rows, strict=True))},),
            guessed=False,
            agree=functools.partial(
                agree_in_each_element,
                operands=rows,
                signed_zeros=stem(name) not in ZERO_OF_EITHER_SIGN,
                cancels=stem(name) in CANCELS,
            ),
        )


def _rows(kinds: Sequence[torch.dtype]) -> list[torch.Tensor]:
    values = [_values(kind) for kind in kinds]
    if len(values) <= _MOST_COMBINED:
        places = torch.cartesian_prod(*(torch.arange(len(value)) for value in values)).reshape(-1, len(values))
    else:
        generator = torch.Generator().manual_seed(0)
        places = torch.stack([torch.randint(len(value), (_DRAWN,), generator=generator) for value in values], dim=1)
    return [value[places[:, position]] for position, value in enumerate(values)]


def _values(dtype: torch.dtype) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.tensor([False, True])
    ordinary = _ORDINARY if dtype.is_floating_point else _ORDINARY_INTEGERS
    return torch.tensor([*special_values(dtype), *ordinary], dtype=dtype)
