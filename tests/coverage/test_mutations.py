"""Rules that are wrong on purpose: the proof must fail on each of them.

What a user would lose: the word of a proof that passes whatever the rules compute.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from backend_sdk import cli, prims
from backend_sdk.coverage import workers
from backend_sdk.coverage.prove import BACKWARD, FORWARD, OVERLOAD, SPECIAL, Item, Status, prove
from backend_sdk.decomp import all_rules
from backend_sdk.prims.shorthand import constant

aten = torch.ops.aten

Rule = Callable[..., Any]


@dataclass(frozen=True)
class Mutation:
    """A wrong rule for an overload, which the samples of an OpInfo must show. ``make(right)`` gives the wrong rule."""

    wrong: str
    overload: Any
    op: str
    make: Callable[[Rule], Rule]
    kind: str = FORWARD


def at_special_values(wrong: str, overload: Any, make: Callable[[Rule], Rule]) -> Mutation:
    """A wrong rule that special values of the overload's own operands must show."""
    return Mutation(wrong, overload, str(overload), make, SPECIAL)


def argument(place: int, change: Callable[[Any], Any]) -> Callable[[Rule], Rule]:
    """The rule with a positional argument changed, where it is given."""

    def make(right: Rule) -> Rule:
        def wrong(out, *args, **kwargs):
            if place < len(args):
                args = (*args[:place], change(args[place]), *args[place + 1 :])
            return right(out, *args, **kwargs)

        return wrong

    return make


def keyword(name: str, change: Callable[[Any], Any]) -> Callable[[Rule], Rule]:
    """The rule with a keyword argument changed, where it is given."""

    def make(right: Rule) -> Rule:
        def wrong(out, *args, **kwargs):
            if name in kwargs:
                kwargs = {**kwargs, name: change(kwargs[name])}
            return right(out, *args, **kwargs)

        return wrong

    return make


def swapped(right: Rule) -> Rule:
    return lambda out, x, y, *args, **kwargs: right(out, y, x, *args, **kwargs)


def result(change: Callable[[Any], Any]) -> Callable[[Rule], Rule]:
    """The rule with its result, or the first of them, changed."""

    def make(right: Rule) -> Rule:
        def wrong(out, *args, **kwargs):
            found = right(out, *args, **kwargs)
            if found is NotImplemented:
                return found
            return (change(found[0]), *found[1:]) if isinstance(found, tuple) else change(found)

        return wrong

    return make


def reading_memory(make: Callable[[Rule], Rule]) -> Callable[[Rule], Rule]:
    """For a rule that is called with the memory of its operands before its arguments."""

    def made(right: Rule) -> Rule:
        def wrong(out, memory, *args, **kwargs):
            return make(lambda out, *args, **kwargs: right(out, memory, *args, **kwargs))(out, *args, **kwargs)

        wrong.reads_memory = True
        return wrong

    return made


def instead(rule: Rule) -> Callable[[Rule], Rule]:
    return lambda right: rule


def doubled(x):
    return prims.add(x, x)


def wide(x):
    return prims.convert(x, dtype=torch.float64)


def one_doubled(place: int) -> Callable[[Rule], Rule]:
    """The rule with one of its results doubled."""

    def make(right: Rule) -> Rule:
        def wrong(out, *args, **kwargs):
            results = right(out, *args, **kwargs)
            return tuple(doubled(one) if at == place and one is not None else one for at, one in enumerate(results))

        return wrong

    return make


def without_sign_of_infinity(x):
    return prims.select(prims.is_finite(x), x, prims.abs(x)) if x.dtype.is_floating_point else x


def finite(x):
    largest = torch.finfo(x.dtype).max
    return prims.maximum(prims.minimum(x, constant(x, largest)), constant(x, -largest))


def without_nan(x):
    return prims.select(prims.eq(x, x), x, constant(x, 0))


def without_sign_of_zero(x):
    return prims.add(x, constant(x, 0.0))


def without_tail(x):
    return prims.select(prims.lt(x, constant(x, 5e-6)), constant(x, 0.0), x)


def without_subnormals(x):
    return prims.select(prims.lt(x, constant(x, torch.finfo(x.dtype).tiny)), constant(x, 0.0), x)


def first_axis_reversed(x):
    return prims.reverse(x, dims=(0,)) if x.ndim else x


def off_by_one(out, memory, x, dim=0, start=None, end=None, step=1, right=None):
    size = x.shape[dim]
    begin = min(max((start or 0) + (size if (start or 0) < 0 else 0), 0), size)
    shifted = begin - 1 if begin > 0 else begin + 1
    length = out.shape[dim]
    if shifted + (length - 1) * step + 1 > size:
        return right(out, memory, x, dim, start, end, step)
    return right(out, memory, x, dim, shifted, shifted + (length - 1) * step + 1, step)


def slice_off_by_one(right: Rule) -> Rule:
    def wrong(out, memory, *args):
        return off_by_one(out, memory, *args, right=right)

    wrong.reads_memory = True
    return wrong


MUTATIONS = (
    # ---- arithmetic
    Mutation("alpha is ignored", aten.add.Tensor, "add", keyword("alpha", lambda alpha: 1)),
    Mutation("the operands are swapped", aten.sub.Tensor, "sub", swapped),
    Mutation(
        "the quotient is rounded down",
        aten.div.Tensor_mode,
        "div.trunc_rounding",
        keyword("rounding_mode", lambda mode: "floor"),
    ),
    Mutation(
        "the quotient is cut off",
        aten.div.Tensor_mode,
        "div.floor_rounding",
        keyword("rounding_mode", lambda mode: "trunc"),
    ),
    Mutation(
        "the remainder has the sign of the dividend",
        aten.remainder.Tensor,
        "remainder",
        instead(lambda out, x, y: prims.fmod(*_alike(out, x, y))),
    ),
    Mutation("the operands are swapped", aten.atan2.default, "atan2", swapped),
    Mutation("the result is promoted", aten.mul.Tensor, "mul", result(wide)),
    Mutation("base and exponent are swapped", aten.pow.Tensor_Tensor, "pow", swapped),
    Mutation("value is ignored", aten.addcmul.default, "addcmul", keyword("value", lambda value: 1)),
    Mutation("the ends are swapped", aten.lerp.Scalar, "lerp", swapped),
    Mutation("a limit is ignored", aten.clamp.Tensor, "clamp", argument(2, lambda limit: None)),
    Mutation(
        "what is chosen is swapped", aten.where.self, "where", lambda right: lambda out, c, x, y: right(out, c, y, x)
    ),
    Mutation("minus zero, NaN and the rest alike", aten.sign.default, "sign", result(prims.neg)),
    Mutation(
        "the bits are those of or",
        aten.bitwise_xor.Tensor,
        "bitwise_xor",
        lambda right: lambda out, x, y: prims.bitwise_or(*_alike(out, x, y)),
    ),
    # ---- activations
    Mutation(
        "the approximation is ignored",
        aten.gelu.default,
        "nn.functional.gelu",
        keyword("approximate", lambda how: "none"),
    ),
    Mutation(
        "the negative side is mirrored", aten.relu.default, "nn.functional.relu", instead(lambda out, x: prims.abs(x))
    ),
    Mutation("another axis", aten._softmax.default, "softmax", argument(1, lambda dim: 0)),
    Mutation("another axis", aten._log_softmax.default, "log_softmax", argument(1, lambda dim: 0)),
    Mutation(
        "the slope is that of the sigmoid alone",
        aten.sigmoid_backward.default,
        "sigmoid",
        instead(lambda out, grad, y: prims.mul(grad, y)),
        BACKWARD,
    ),
    Mutation(
        "the square is forgotten",
        aten.tanh_backward.default,
        "tanh",
        instead(lambda out, grad, y: prims.mul(grad, prims.sub(constant(y, 1.0), y))),
        BACKWARD,
    ),
    Mutation(
        "the inner product is forgotten",
        aten._softmax_backward_data.default,
        "softmax",
        instead(lambda out, grad, y, dim, dtype: prims.mul(grad, y)),
        BACKWARD,
    ),
    # ---- reductions
    Mutation("infinities lose their sign", aten.amax.default, "masked.amax", result(without_sign_of_infinity)),
    Mutation("another axis", aten.sum.dim_IntList, "sum", argument(1, lambda dims: [(d + 1) for d in dims])),
    Mutation("the divisor is one too large", aten.mean.dim, "mean", result(lambda x: prims.mul(x, constant(x, 0.75)))),
    Mutation(
        "the correction is ignored", aten.var.correction, "var.unbiased", keyword("correction", lambda correction: 0)
    ),
    Mutation("the correction is ignored", aten.std.correction, "std", keyword("correction", lambda correction: 1)),
    Mutation(
        "the correction is ignored", aten.var_mean.correction, "var_mean", keyword("correction", lambda correction: 1)
    ),
    Mutation(
        "the smallest",
        aten.amax.default,
        "amax",
        lambda right: (
            lambda out, x, *args: (
                prims.neg(right(out, prims.neg(x), *args)) if x.dtype != torch.bool else right(out, x, *args)
            )
        ),
    ),
    Mutation(
        "the last index",
        aten.argmax.default,
        "argmax",
        lambda right: (
            lambda out, x, *args: right(out, prims.neg(x), *args) if x.dtype != torch.bool else right(out, x, *args)
        ),
    ),
    Mutation(
        "the sum leaves its own element out",
        aten.cumsum.default,
        "cumsum",
        lambda right: lambda out, x, dim, **rest: prims.sub(right(out, x, dim, **rest), x),
    ),
    Mutation("ascending only", aten.sort.stable, "sort", keyword("descending", lambda descending: False)),
    Mutation(
        "the smallest of all",
        aten.topk.default,
        "topk",
        lambda right: lambda out, x, k, dim=-1, largest=True, sorted=True: right(out, x, k, dim, not largest, sorted),
    ),
    # ---- shape
    Mutation("off by one", aten.slice.Tensor, "__getitem__", slice_off_by_one),
    Mutation(
        "the next index",
        aten.select.int,
        "select",
        reading_memory(argument(2, lambda index: index - 1 if index > 0 else index + 1)),
    ),
    Mutation("not reversed", aten.flip.default, "flip", instead(lambda out, x, dims: x)),
    Mutation("the other direction", aten.roll.default, "roll", argument(1, lambda shifts: [-s for s in shifts])),
    Mutation(
        "the parts are in reverse order", aten.cat.default, "cat", argument(0, lambda parts: list(reversed(parts)))
    ),
    Mutation(
        "the diagonal is one too high",
        aten.triu.default,
        "triu",
        lambda right: lambda out, x, diagonal=0: right(out, x, diagonal + 1),
    ),
    Mutation(
        "the diagonal is one too low",
        aten.tril.default,
        "tril",
        lambda right: lambda out, x, diagonal=0: right(out, x, diagonal - 1),
    ),
    Mutation(
        "another diagonal", aten.diagonal.default, "diagonal", result(lambda x: prims.reverse(x, dims=(x.ndim - 1,)))
    ),
    Mutation("the padding is zero", aten.constant_pad_nd.default, "constant_pad_nd", argument(2, lambda value: 0)),
    Mutation(
        "the windows are in reverse order",
        aten.unfold.default,
        "unfold",
        result(lambda x: prims.reverse(x, dims=(x.ndim - 1,))),
    ),
    # ---- indexing
    Mutation("the next index", aten.index_select.default, "index_select", argument(2, first_axis_reversed)),
    Mutation(
        "another axis",
        aten.gather.default,
        "gather",
        lambda right: lambda out, x, dim, index, **rest: right(out, first_axis_reversed(x), dim, index, **rest),
    ),
    Mutation(
        "the last one wins",
        aten.scatter_add.default,
        "scatter_add",
        instead(lambda out, x, dim, index, source: all_rules()[aten.scatter.src](out, x, dim, index, source)),
    ),
    Mutation(
        "the own element counts",
        aten.scatter_reduce.two,
        "scatter_reduce.sum",
        keyword("include_self", lambda include: True),
    ),
    Mutation(
        "what is there is overwritten", aten.index_put.default, "index_put", argument(3, lambda accumulate: False)
    ),
    Mutation(
        "the gradients belong to other indices",
        aten.embedding_dense_backward.default,
        "nn.functional.embedding",
        result(first_axis_reversed),
        BACKWARD,
    ),
    # ---- products and windows
    Mutation("beta is ignored", aten.addmm.default, "addmm", keyword("beta", lambda beta: 1)),
    Mutation("alpha is ignored", aten.baddbmm.default, "baddbmm", keyword("alpha", lambda alpha: 1)),
    Mutation(
        "the padding is ignored",
        aten.convolution.default,
        "nn.functional.conv2d",
        argument(4, lambda padding: [0] * len(padding)),
    ),
    Mutation(
        "the dilation is ignored",
        aten.convolution.default,
        "nn.functional.conv2d",
        argument(5, lambda dilation: [1] * len(dilation)),
    ),
    Mutation(
        "the gradient of the weight is doubled",
        aten.convolution_backward.default,
        "nn.functional.conv1d",
        one_doubled(1),
        BACKWARD,
    ),
    Mutation(
        "the divisor is ignored", aten.avg_pool2d.default, "nn.functional.avg_pool2d", argument(6, lambda divisor: None)
    ),
    Mutation(
        "sizes are rounded down", aten.avg_pool2d.default, "nn.functional.avg_pool1d", argument(4, lambda up: False)
    ),
    Mutation(
        "borders are zero", aten.grid_sampler_2d.default, "nn.functional.grid_sample", argument(3, lambda mode: 0)
    ),
    # ---- normalizations
    Mutation(
        "epsilon is dropped", aten.native_layer_norm.default, "native_layer_norm", argument(4, lambda epsilon: 0.0)
    ),
    Mutation(
        "epsilon is dropped",
        aten.native_group_norm.default,
        "nn.functional.group_norm",
        argument(7, lambda epsilon: 0.0),
    ),
    Mutation(
        "the bias is left out",
        aten.native_layer_norm.default,
        "nn.functional.layer_norm",
        argument(3, lambda bias: None),
    ),
    Mutation(
        "the mean is no function of the input",
        aten.native_layer_norm_backward.default,
        "native_layer_norm",
        result(lambda x: x if x is None else doubled(x)),
        BACKWARD,
    ),
    # ---- linear algebra and complex numbers
    Mutation(
        "the other triangle",
        aten.linalg_cholesky_ex.default,
        "linalg.cholesky_ex",
        keyword("upper", lambda upper: not upper),
    ),
    Mutation("not normalized", aten._fft_r2c.default, "fft.rfft", argument(2, lambda mode: (mode + 1) % 3)),
    # ---- at infinities, NaN, signed zeros and extremes only, which no sample of the catalogue holds
    at_special_values("infinity is cut off", aten.exp.default, result(finite)),
    at_special_values("infinity is cut off", aten.log.default, result(finite)),
    at_special_values("infinity is cut off", aten.atanh.default, result(finite)),
    at_special_values("NaN is 0", aten.maximum.default, result(without_nan)),
    at_special_values("NaN is 0", aten.sqrt.default, result(without_nan)),
    at_special_values("-0 is 0", aten.neg.default, result(without_sign_of_zero)),
    at_special_values("-0 is 0", aten.floor.default, result(without_sign_of_zero)),
    at_special_values("-0 is 0", aten.asinh.default, result(without_sign_of_zero)),
    at_special_values(
        "the squares overflow",
        aten.hypot.default,
        instead(lambda out, x, y: prims.sqrt(prims.add(prims.mul(x, x), prims.mul(y, y)))),
    ),
    at_special_values(
        "the quotient overflows",
        aten.div.Tensor_mode,
        instead(lambda out, x, y, rounding_mode=None: prims.floor(prims.div(x, y))),
    ),
    at_special_values(
        "a zero has the sign of the first operand",
        aten.copysign.Tensor,
        instead(lambda out, x, y: prims.select(prims.lt(y, constant(y, 0.0)), prims.neg(prims.abs(x)), prims.abs(x))),
    ),
    at_special_values(
        "cancels in the tail",
        aten.erfc.default,
        instead(lambda out, x: prims.sub(constant(x, 1.0), prims.erf(x))),
    ),
    Mutation(
        "vectors of another length",
        aten._linalg_eigh.default,
        "aten._linalg_eigh.default",
        one_doubled(1),
        OVERLOAD,
    ),
    Mutation("vectors of another length", aten.linalg_eig.default, "aten.linalg_eig.default", one_doubled(1), OVERLOAD),
    Mutation("twice the values", aten._linalg_svd.default, "aten._linalg_svd.default", one_doubled(1), OVERLOAD),
    Mutation(
        "twice the gradient",
        aten._standard_gamma_grad.default,
        "aten._standard_gamma_grad.default",
        result(doubled),
        OVERLOAD,
    ),
    # What an overload's first call leaves at its default.
    *(
        Mutation(
            f"{name} is ignored", op.default, str(op.default), keyword(name, lambda _, value=value: value), OVERLOAD
        )
        for op, name, value in (
            (aten._fused_sgd, "nesterov", False),
            (aten._fused_sgd, "maximize", False),
            (aten._fused_sgd, "is_first_step", False),
            (aten._fused_sgd, "grad_scale", None),
            (aten._fused_sgd, "found_inf", None),
            (aten._fused_adam, "maximize", False),
            (aten._fused_adam, "amsgrad", True),
            (aten._fused_adam, "grad_scale", None),
            (aten._fused_adam, "found_inf", None),
        )
    ),
    Mutation(
        "the mode is ignored",
        aten._embedding_bag_dense_backward.default,
        "aten._embedding_bag_dense_backward.default",
        argument(7, lambda _: 1),
        OVERLOAD,
    ),
    Mutation(
        "the kind of mask is ignored",
        aten._masked_softmax.default,
        "aten._masked_softmax.default",
        argument(3, lambda _: 2),
        OVERLOAD,
    ),
    Mutation(
        "what is not finite does not lower the scale",
        aten._amp_update_scale.default,
        "aten._amp_update_scale.default",
        argument(2, lambda found: constant(found, 0.0)),
        OVERLOAD,
    ),
    at_special_values("the tail is 0", aten.exp.default, result(without_tail)),
    at_special_values("the tail is 0", aten.sigmoid.default, result(without_tail)),
    at_special_values("subnormals are 0", aten.abs.default, result(without_subnormals)),
    at_special_values(
        "the most negative integer by itself",
        aten.bitwise_right_shift.Tensor,
        instead(lambda out, x, y: prims.shift_right(prims.maximum(x, constant(x, -(2**63) + 1)), y)),
    ),
)


def at_random(wrong: str, overload: Any, op: str, make: Callable[[Rule], Rule]) -> Mutation:
    """A wrong rule for a random op, whose numbers have the right type. ``op`` is an OpInfo's name or an overload's."""
    return Mutation(wrong, overload, op, make, OVERLOAD if op.startswith("aten.") else FORWARD)


def ones_like(x):
    return constant(x, 1.0)


def in_order(out, key, stream, n, *_, **__):
    return prims.iota(length=out.shape[0], dtype=out.dtype)


# Arguments of a rule that draws come after a key and a stream.
RANDOM_MUTATIONS = (
    at_random(
        "the deviation is ignored", aten.normal_functional.default, "normal.in_place", argument(4, lambda _: 1.0)
    ),
    at_random("the mean is ignored", aten.normal.Tensor_Tensor, "normal", argument(2, lambda mean: 0.0)),
    at_random("the variance is doubled", aten.randn_like.default, "randn_like", result(doubled)),
    at_random("the range ends early", aten.uniform.default, "uniform", argument(4, lambda high: high - 0.3)),
    at_random(
        "too few are kept", aten.native_dropout.default, "nn.functional.dropout", argument(3, lambda p: (1 + p) / 2)
    ),
    at_random("too few channels are kept", aten.bernoulli.p, "nn.functional.dropout2d", argument(3, lambda p: 0.6 * p)),
    at_random(
        "the chance is that of 0",
        aten.bernoulli.default,
        "bernoulli",
        result(lambda drawn: prims.sub(ones_like(drawn), drawn)),
    ),
    at_random(
        "too few are kept", aten.native_dropout.default, "aten.native_dropout.default", argument(3, lambda _: 0.6)
    ),
    at_random("the weights are ignored", aten.multinomial.default, "multinomial", argument(2, ones_like)),
    at_random("the rate is inverted", aten.exponential.default, "exponential", argument(3, lambda rate: 1.0 / rate)),
    at_random(
        "failures are counted, without the success",
        aten.geometric.default,
        "geometric",
        result(lambda x: prims.sub(x, ones_like(x))),
    ),
    at_random("the scale is ignored", aten.cauchy.default, "cauchy", argument(4, lambda sigma: 1.0)),
    at_random("the deviation is ignored", aten.log_normal.default, "log_normal", argument(4, lambda deviation: 1.0)),
    at_random("the greatest is never drawn", aten.randint.default, "randint", argument(2, lambda high: high - 1)),
    at_random(
        "the range begins at its middle",
        aten.randint.low,
        "randint",
        lambda right: (
            lambda out, key, stream, low, high, *rest, **named: right(
                out, key, stream, (low + high) // 2, high, *rest, **named
            )
        ),
    ),
    at_random("the seed is ignored", aten.randn_like.default, "randn_like", argument(0, lambda key: constant(key, 7))),
    at_random("the order is no random one", aten.randperm.default, "aten.randperm.default", instead(in_order)),
    at_random("the mean is off by half", aten.poisson.default, "aten.poisson.default", argument(2, doubled)),
    at_random(
        "the shape is doubled", aten._standard_gamma.default, "aten._standard_gamma.default", argument(2, doubled)
    ),
    at_random(
        "the shapes are doubled", aten._sample_dirichlet.default, "aten._sample_dirichlet.default", argument(2, doubled)
    ),
    at_random(
        "the chance is that of a failure",
        aten.binomial.default,
        "aten.binomial.default",
        argument(3, lambda p: prims.sub(ones_like(p), p)),
    ),
    at_random(
        "every slope is the steepest",
        aten.rrelu_with_noise_functional.default,
        "nn.functional.rrelu",
        lambda right: (
            lambda out, key, stream, x, noise, lower=0.125, upper=1 / 3, *rest: right(
                out, key, stream, x, noise, upper, upper, *rest
            )
        ),
    ),
)


def _alike(out, *operands):
    from backend_sdk.decomp.promotion import promoted, spread

    dtype = promoted(*operands)
    return [spread(operand, out.shape, dtype) for operand in operands]


def _dtype(op):
    return "int64" if "bitwise" in op else "float32"


def _name(mutation):
    return f"{mutation.overload}: {mutation.wrong} ({mutation.op}, {mutation.kind})"


@pytest.fixture
def mutate(monkeypatch):
    def mutate(mutation):
        right = all_rules()[mutation.overload]
        wrong = mutation.make(right)
        for mark in ("draws", "reads_memory", "checks"):
            if getattr(right, mark, False):
                setattr(wrong, mark, True)
        wrong.__name__ = f"wrong_{right.__name__}"
        monkeypatch.setitem(all_rules(), mutation.overload, wrong)

    return mutate


def test_there_are_enough():
    assert len(MUTATIONS) >= 40
    assert len({mutation.overload for mutation in MUTATIONS}) >= 40


@pytest.mark.parametrize("mutation", MUTATIONS, ids=_name)
def test_the_proof_fails_on_a_wrong_rule(mutation, mutate):
    item = Item(mutation.kind, mutation.op, _dtype(mutation.op))
    mutate(mutation)
    entry = prove(item, "prims", 96, ())
    # Other numbers, or other types, which the pipeline refuses; a wrong rule that crashes would show nothing.
    assert entry.status == Status.MISMATCH or entry.message.startswith("DecompositionError"), entry
    assert "wrong_" not in entry.message or " raised " not in entry.message, entry


@pytest.mark.parametrize("op", sorted({(mutation.op, mutation.kind) for mutation in MUTATIONS}), ids="-".join)
def test_the_proof_passes_on_the_right_rules(op):
    """Else the other test would pass for another reason."""
    name, kind = op
    entry = prove(Item(kind, name, _dtype(name)), "prims", 96, ())
    assert entry.status == Status.PROVEN, entry


@pytest.mark.parametrize("mutation", RANDOM_MUTATIONS, ids=_name)
def test_the_proof_fails_on_another_distribution(mutation, mutate):
    mutate(mutation)
    entry = prove(Item(mutation.kind, mutation.op, "float32"), "prims", 96, ())
    assert entry.status == Status.MISMATCH, entry
    assert any(words in entry.message for words in ("distribution", "seeds", "not random")), entry


def test_the_proof_fails_on_another_distribution_of_complex_numbers(mutate):
    """The variance is that of both parts together, and both are drawn."""
    item = Item(FORWARD, "randn_like", "complex64")
    assert prove(item, "prims", None, ()).status == Status.PROVEN
    right = all_rules()[aten.randn_like.default]
    for wrong in (doubled, lambda x: prims.complex(prims.real(x), prims.real(x)) if x.dtype.is_complex else x):
        mutate(at_random("", aten.randn_like.default, "randn_like", lambda _, wrong=wrong: result(wrong)(right)))
        entry = prove(item, "prims", None, ())
        assert entry.status == Status.MISMATCH, entry


@pytest.mark.parametrize("op", sorted({(mutation.op, mutation.kind) for mutation in RANDOM_MUTATIONS}), ids="-".join)
def test_the_proof_passes_on_the_right_distributions(op):
    name, kind = op
    entry = prove(Item(kind, name, "float32"), "prims", 96, ())
    assert entry.status == Status.PROVEN, entry


def test_the_command_fails_on_a_wrong_rule(mutate, monkeypatch, tmp_path, capfd):
    monkeypatch.setattr(
        workers,
        "prove_all",
        lambda tasks, level, limit, jobs: (prove(task.item, level, limit, task.donors) for task in tasks),
    )
    arguments = (
        "--prove",
        "--op",
        "cumsum",
        "--only",
        FORWARD,
        "--journal",
        str(tmp_path / "journal.jsonl"),
        "--fresh",
    )
    assert _exit_code(arguments) == 0
    mutate(next(mutation for mutation in MUTATIONS if mutation.op == "cumsum"))
    assert _exit_code(arguments) == 1
    assert "cumsum" in capfd.readouterr().out.split("unexplained")[-1]


def _exit_code(arguments):
    try:
        cli.main(("coverage", *arguments))
    except SystemExit as stop:
        return stop.code or 0
    return 0
