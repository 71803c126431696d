"""Rules for the fused steps of optimizers and of loss scaling: plain arithmetic on each tensor of a list.

Does not: count steps. An optimizer adds 1 to them before it calls its fused step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from backend_sdk import dtypes, prims
from backend_sdk.decomp.promotion import spread
from backend_sdk.decomp.random import chosen
from backend_sdk.decomp.registry import decomposition
from backend_sdk.graph import Value
from backend_sdk.prims.shorthand import along, cast, constant, scaled
from backend_sdk.spec import TensorType
from backend_sdk.torch_compat.ops import aten

Values = Sequence[Value]
Results = list[list[Value]]


def _number(value: Any, like: Value) -> Value:
    """A number, or a tensor of one element, in the shape and dtype of a value."""
    if isinstance(value, Value):
        return along(prims.reshape(cast(value, like.dtype), shape=()), (), like.shape)  # type: ignore[no-any-return]
    return constant(like, value)  # type: ignore[no-any-return]


def _times(factor: Any, x: Value) -> Value:
    return prims.mul(x, _number(factor, x))  # type: ignore[no-any-return]


class _Step:
    """What the fused steps share: gradients that loss scaling has scaled, a step that an infinity in them cancels,
    ascent in place of descent. 16-bit floats compute in float32 and round once.
    """

    def __init__(self, grad_scale: Value | None, found_inf: Value | None, maximize: bool) -> None:
        self._grad_scale = grad_scale
        self._found_inf = found_inf
        self._maximize = maximize

    def gradient(self, grad: Value) -> tuple[Value, Value]:
        """The gradient that the op leaves behind, without the scale, and the one to descend along, in wide dtype."""
        wide = cast(grad, dtypes.compute_dtype(grad.dtype))
        left = grad
        if self._grad_scale is not None:
            wide = prims.div(wide, _number(self._grad_scale, wide))
            left = cast(wide, grad.dtype)
        return left, prims.neg(wide) if self._maximize else wide

    def unless_cancelled(self, new: Values, old: Values) -> list[Value]:
        """The new values in the dtypes of the old ones, which stay where the step is cancelled."""
        new = [cast(value, before.dtype) for value, before in zip(new, old, strict=True)]
        if self._found_inf is None:
            return list(new)
        return [
            prims.select(prims.eq(flag, constant(flag, 1.0)), before, value)
            for value, before in zip(new, old, strict=True)
            for flag in [along(prims.reshape(self._found_inf, shape=()), (), before.shape)]
        ]


def _wide(*values: Value) -> list[Value]:
    return [cast(value, dtypes.compute_dtype(value.dtype)) for value in values]


def _transposed(results: Sequence[Sequence[Value]], out: Sequence[Sequence[TensorType]]) -> Results:
    """Results by tensor as lists by what they are; a list that eager leaves empty is empty."""
    if not results:
        return [[] for _ in out]
    return [list(column) if types else [] for column, types in zip(zip(*results, strict=True), out, strict=True)]


# ---- Adam (Kingma and Ba, arXiv:1412.6980), with decoupled weight decay (Loshchilov and Hutter, arXiv:1711.05101) and
# the running maximum of Reddi et al. (arXiv:1904.09237)


def _bias_correction(beta: float, step: Value, like: Value) -> Value:
    """1 - beta^step, without cancellation."""
    if beta == 0.0:
        return constant(like, 1.0)  # type: ignore[no-any-return]
    exponent = scaled(_number(step, like), math.log(beta))
    return prims.neg(prims.expm1(exponent))  # type: ignore[no-any-return]


def _adam(
    out: Sequence[Sequence[TensorType]],
    params: Values,
    grads: Values,
    averages: Values,
    squares: Values,
    maxima: Values,
    steps: Values,
    *,
    lr: Any,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
    amsgrad: bool,
    maximize: bool,
    decoupled: bool,
    grad_scale: Value | None = None,
    found_inf: Value | None = None,
) -> Results:
    common = _Step(grad_scale, found_inf, maximize)
    results = []
    for i, (param, grad, average, square, step) in enumerate(zip(params, grads, averages, squares, steps, strict=True)):
        left, slope = common.gradient(grad)
        p, m, v = _wide(param, average, square)
        slope = cast(slope, p.dtype)
        m, v = cast(m, p.dtype), cast(v, p.dtype)
        if weight_decay and decoupled:
            p = prims.sub(p, _times(lr, scaled(p, weight_decay)))
        elif weight_decay:
            slope = prims.add(slope, scaled(p, weight_decay))
        m = prims.add(m, scaled(prims.sub(slope, m), 1.0 - beta1))
        v = prims.add(scaled(v, beta2), scaled(prims.mul(slope, slope), 1.0 - beta2))
        largest = prims.maximum(cast(maxima[i], p.dtype), v) if amsgrad else v
        root = prims.sqrt(prims.div(largest, _bias_correction(beta2, step, p)))
        size = prims.div(_times(lr, m), _bias_correction(beta1, step, p))
        p = prims.sub(p, prims.div(size, prims.add(root, constant(root, eps))))
        old_max = maxima[i] if amsgrad else square
        new = common.unless_cancelled(
            [p, left, m, v, largest if amsgrad else v], [param, grad, average, square, old_max]
        )
        results.append(new)
    return _transposed(results, out)


@decomposition(aten._fused_adam.default, aten._fused_adam.tensor_lr)
def fused_adam(out: Any, *lists: Any, **settings: Any) -> Any:
    return _adam(out, *lists, decoupled=False, **settings)


@decomposition(aten._fused_adamw.default, aten._fused_adamw.tensor_lr)
def fused_adamw(out: Any, *lists: Any, **settings: Any) -> Any:
    return _adam(out, *lists, decoupled=True, **settings)


# ---- gradient descent with momentum (Sutskever et al., "On the importance of initialization and momentum in deep
# learning", 2013)


@decomposition(aten._fused_sgd.default, aten._fused_sgd.tensor_lr)
def fused_sgd(
    out: Any,
    params: Values,
    grads: Values,
    buffers: Values,
    *,
    weight_decay: float,
    momentum: float,
    lr: Any,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: Value | None = None,
    found_inf: Value | None = None,
) -> Any:
    common = _Step(grad_scale, found_inf, maximize)
    results = []
    for i, (param, grad) in enumerate(zip(params, grads, strict=True)):
        left, slope = common.gradient(grad)
        (p,) = _wide(param)
        slope = cast(slope, p.dtype)
        if weight_decay:
            slope = prims.add(slope, scaled(p, weight_decay))
        buffer = slope
        if momentum:
            if not is_first_step:
                buffer = scaled(cast(buffers[i], p.dtype), momentum)
                buffer = prims.add(buffer, scaled(slope, 1.0 - dampening))
            slope = prims.add(slope, scaled(buffer, momentum)) if nesterov else buffer
        p = prims.sub(p, _times(lr, slope))
        old = buffers[i] if buffers else param
        new = buffer if momentum else old
        results.append(common.unless_cancelled([p, left, new], [param, grad, old]))
    return _transposed(results, out)


# ---- Adagrad (Duchi et al., "Adaptive Subgradient Methods for Online Learning and Stochastic Optimization", 2011)


@decomposition(aten._fused_adagrad.default, aten._fused_adagrad.tensor_lr)
def fused_adagrad(
    out: Any,
    params: Values,
    grads: Values,
    sums: Values,
    steps: Values,
    *,
    lr: Any,
    lr_decay: float,
    weight_decay: float,
    eps: float,
    maximize: bool,
    grad_scale: Value | None = None,
    found_inf: Value | None = None,
) -> Any:
    common = _Step(grad_scale, found_inf, maximize)
    results = []
    for param, grad, total, step in zip(params, grads, sums, steps, strict=True):
        left, slope = common.gradient(grad)
        p, s = _wide(param, total)
        slope, s = cast(slope, p.dtype), cast(s, p.dtype)
        if weight_decay:
            slope = prims.add(slope, scaled(p, weight_decay))
        s = prims.add(s, prims.mul(slope, slope))
        before = prims.sub(_number(step, p), constant(p, 1.0))
        slowdown = prims.add(scaled(before, lr_decay), constant(p, 1.0))
        rate = prims.div(_number(lr, p), slowdown)
        root = prims.add(prims.sqrt(s), constant(s, eps))
        p = prims.sub(p, prims.mul(rate, prims.div(slope, root)))
        new = common.unless_cancelled([p, left, s], [param, grad, total])
        results.append([*new, step][: len(out)])
    return _transposed(results, out)


# ---- loss scaling (Micikevicius et al., "Mixed Precision Training", arXiv:1710.03740)


@decomposition(aten._amp_foreach_non_finite_check_and_unscale.default)
def check_and_unscale(out: Any, grads: Values, found_inf: Value, inverse_scale: Value) -> Any:
    """Gradients without the scale, and a flag that is set when one of them is not finite and else stays."""
    flag = found_inf
    unscaled = []
    for grad in grads:
        (wide,) = _wide(grad)
        unscaled.append(cast(prims.mul(wide, _number(inverse_scale, wide)), grad.dtype))
        broken = cast(prims.bitwise_not(prims.is_finite(grad)), flag.dtype)
        if 0 in grad.shape:
            continue
        largest = prims.reduce_max(broken, axes=tuple(range(grad.ndim)))
        flag = prims.maximum(flag, along(largest, (), flag.shape))
    return unscaled, flag


@decomposition(aten._amp_update_scale.default)
def update_scale(
    out: Any,
    scale: Value,
    tracker: Value,
    found_inf: Value,
    growth: float,
    backoff: float,
    interval: int,
) -> Any:
    """The scale shrinks after an infinity, and grows after so many steps without one, unless it would be infinite."""
    failed = prims.ne(found_inf, constant(found_inf, 0))
    steps = prims.add(tracker, constant(tracker, 1))
    due = prims.eq(steps, constant(steps, interval))
    grown = scaled(scale, growth)
    grows = prims.bitwise_and(prims.reshape(due, shape=scale.shape), prims.is_finite(grown))
    new = prims.select(
        prims.reshape(failed, shape=scale.shape), scaled(scale, backoff), prims.select(grows, grown, scale)
    )
    over = prims.bitwise_or(prims.reshape(failed, shape=tracker.shape), due)
    return new, prims.select(over, constant(tracker, 0), steps)


# ---- dropout


@decomposition(aten._fused_dropout.default, draws=True)
def fused_dropout(
    out: tuple[TensorType, TensorType], key: Value, stream: int, x: Value, p: float, generator: Any = None
) -> Any:
    """``p`` is the chance that an element stays."""
    keep = chosen(key, stream, out[1], p)
    wide = cast(x, dtypes.compute_dtype(x.dtype))
    kept = prims.select(keep, scaled(wide, 1.0 / p) if p else wide, constant(wide, 0.0))
    return cast(kept, x.dtype), cast(keep, out[1].dtype)


@decomposition(aten._masked_scale.default)
def masked_scale(out: TensorType, x: Value, mask: Value, scale: float) -> Any:
    wide = cast(x, dtypes.compute_dtype(x.dtype))
    return cast(scaled(prims.mul(wide, spread(mask, x.shape, wide.dtype)), scale), out.dtype)
