"""Rules for losses and for gradients of losses that torch's tables leave out.

Does not: cover the loss of connectionist temporal classification, which torch cannot trace (`coverage.scope`).
"""

from __future__ import annotations

import math
from typing import Any

import torch

from backend_sdk import dtypes, prims
from backend_sdk.decomp.promotion import spread
from backend_sdk.decomp.registry import decomposition
from backend_sdk.decomp.searching import positions
from backend_sdk.graph import Value
from backend_sdk.prims.shorthand import along, cast, constant, scaled
from backend_sdk.spec import Shape, TensorType
from backend_sdk.torch_compat.ops import aten

# torch's numbers for a reduction: 0 is none.
_NONE, _MEAN = 0, 1


# ---- shrinkage


@decomposition(aten.hardshrink_backward.default, aten.softshrink_backward.default)
def shrink_backward(out: TensorType, grad: Value, x: Value, lambd: Any) -> Any:
    """The gradient where x lies outside of [-lambd, lambd]."""
    grad, x = spread(grad, out.shape, out.dtype), spread(x, out.shape, out.dtype)
    inside = prims.bitwise_and(prims.ge(x, constant(x, -lambd)), prims.le(x, constant(x, lambd)))
    return prims.select(inside, constant(grad, 0), grad)


# ---- margins


def _rows(x: Value) -> Value:
    """Samples by classes: a 1-d value is one sample, a 0-d one has one class."""
    return prims.reshape(x, shape=(*(1,) * (2 - x.ndim), *x.shape))  # type: ignore[no-any-return]


def _upstream(grad: Value, shape: Shape, reduction: int) -> Value:
    """The gradient of each sample's mean over its classes, over samples by classes."""
    number, classes = shape
    if grad.ndim == 1:
        each = along(grad, (0,), shape)
    else:
        each = along(prims.reshape(grad, shape=()), (), shape)
    size = number * classes if reduction == _MEAN else classes
    return prims.div(each, constant(each, size))  # type: ignore[no-any-return]


@decomposition(aten.multi_margin_loss_backward.default)
def multi_margin_loss_backward(
    out: TensorType,
    grad: Value,
    x: Value,
    target: Value,
    p: Any,
    margin: Any,
    weight: Value | None = None,
    reduction: int = _MEAN,
) -> Any:
    """The sample's loss is the mean over the classes of max(0, margin - x[target] + x[class])^p, p being 1 or 2."""
    if 0 in x.shape:
        return prims.full(shape=out.shape, value=0, dtype=out.dtype)
    rows = _rows(cast(x, dtypes.compute_dtype(x.dtype)))
    shape = tuple(rows.shape)
    target = prims.reshape(target, shape=(shape[0], 1))
    of_target = along(prims.gather(rows, target, axis=1), (0, 1), shape)
    slack = prims.add(prims.sub(constant(rows, margin), of_target), rows)
    is_target = prims.eq(positions(shape, 1), along(target, (0, 1), shape))
    slope = _upstream(cast(grad, rows.dtype), shape, reduction)
    if p == 2:
        slope = prims.mul(slope, scaled(slack, 2.0))
    if weight is not None:
        weights = prims.take(cast(weight, rows.dtype), prims.reshape(target, shape=(shape[0],)), axis=0)
        slope = prims.mul(slope, along(weights, (0,), shape))
    pushes = prims.bitwise_and(prims.gt(slack, constant(slack, 0.0)), prims.bitwise_not(is_target))
    slope = prims.select(pushes, slope, constant(slope, 0.0))
    total = along(prims.neg(prims.reduce_sum(slope, axes=(1,))), (0,), shape)
    return cast(prims.reshape(prims.select(is_target, total, slope), shape=out.shape), out.dtype)


def _listed(target: Value) -> Value:
    """Which entries of each row name a target: those before the first that is negative."""
    ended = prims.cumsum(cast(prims.lt(target, constant(target, 0)), torch.int64), axis=1)
    return prims.eq(ended, constant(ended, 0))  # type: ignore[no-any-return]


def _slacks(rows: Value, target: Value, is_target: Value) -> tuple[Value, Value]:
    """1 - x[target] + x[class] over samples, entries of the list and classes, and which of them count: positive ones of
    an entry that names a target and of a class that is none.
    """
    number, classes = rows.shape
    cube = (number, classes, classes)
    index = prims.maximum(target, constant(target, 0))
    of_target = along(prims.gather(rows, index, axis=1), (0, 1), cube)
    one = prims.full(shape=cube, value=1.0, dtype=rows.dtype)
    slack = prims.add(prims.sub(one, of_target), along(rows, (0, 2), cube))
    wrong = along(prims.eq(is_target, constant(is_target, 0)), (0, 2), cube)
    counts = prims.bitwise_and(wrong, along(_listed(target), (0, 1), cube))
    return slack, prims.bitwise_and(counts, prims.gt(slack, constant(slack, 0.0)))


@decomposition(aten.multilabel_margin_loss_forward.default)
def multilabel_margin_loss_forward(out: tuple[TensorType, TensorType], x: Value, target: Value, reduction: int) -> Any:
    """See `multilabel_margin_loss_backward`; beside the loss which classes are targets, as numbers."""
    if 0 in x.shape:
        return tuple(prims.full(shape=type.shape, value=0, dtype=type.dtype) for type in out)
    rows = _rows(cast(x, dtypes.compute_dtype(x.dtype)))
    number, classes = rows.shape
    target = prims.reshape(target, shape=(number, classes))
    named = cast(_listed(target), rows.dtype)
    index = prims.maximum(target, constant(target, 0))
    is_target = prims.scatter(constant(rows, 0.0), index, named, axis=1, mode="maximum")
    slack, counts = _slacks(rows, target, is_target)
    loss = prims.reduce_sum(prims.select(counts, slack, constant(slack, 0.0)), axes=(1, 2))
    loss = prims.div(loss, constant(loss, classes))
    if reduction != _NONE:
        loss = prims.reduce_sum(loss, axes=(0,))
        if reduction == _MEAN:
            loss = prims.div(loss, constant(loss, number))
    return (
        cast(prims.reshape(loss, shape=out[0].shape), out[0].dtype),
        cast(prims.reshape(is_target, shape=out[1].shape), out[1].dtype),
    )


@decomposition(aten.multilabel_margin_loss_backward.default)
def multilabel_margin_loss_backward(
    out: TensorType, grad: Value, x: Value, target: Value, reduction: int, is_target: Value
) -> Any:
    """The sample's loss is the mean over the classes of the sum of max(0, 1 - x[target] + x[class]) over all targets, a
    list that ends before the first negative entry, and classes that are none.
    """
    if 0 in x.shape:
        return prims.full(shape=out.shape, value=0, dtype=out.dtype)
    rows = _rows(cast(x, dtypes.compute_dtype(x.dtype)))
    shape = tuple(rows.shape)
    target, is_target = prims.reshape(target, shape=shape), prims.reshape(is_target, shape=shape)
    _, counts = _slacks(rows, target, is_target)
    pushes = cast(counts, rows.dtype)
    down, up = prims.reduce_sum(pushes, axes=(2,)), prims.reduce_sum(pushes, axes=(1,))
    index = prims.maximum(target, constant(target, 0))
    times = prims.scatter(up, index, prims.neg(down), axis=1, mode="add")
    result = prims.mul(times, _upstream(cast(grad, rows.dtype), shape, reduction))
    return cast(prims.reshape(result, shape=out.shape), out.dtype)


# ---- a linear layer and the cross entropy of its results


def _class_weights(x: Value, target: Value, weight: Value | None, ignored: int) -> Value:
    """The weight of each sample: its class's, and 0 for a target that is ignored."""
    if weight is None:
        found = prims.full(shape=tuple(target.shape), value=1.0, dtype=x.dtype)
    else:
        found = prims.take(cast(weight, x.dtype), _known(target, ignored), axis=0)
    return prims.select(prims.eq(target, constant(target, ignored)), constant(found, 0.0), found)  # type: ignore[no-any-return]


def _known(target: Value, ignored: int) -> Value:
    """Targets as indices of classes: an ignored one may lie outside, and counts as the first."""
    return prims.select(prims.eq(target, constant(target, ignored)), constant(target, 0), target)  # type: ignore[no-any-return]


def _scores(x: Value, layer: Value, bias: Value | None, target: Value, ignored: int) -> tuple[Value, Value]:
    """Logarithms of the classes' shares, and that of each sample's target."""
    logits = prims.linear(x, layer, bias)
    shares = prims.log_softmax(logits, axis=1)
    column = prims.reshape(_known(target, ignored), shape=(x.shape[0], 1))
    return shares, prims.reshape(prims.gather(shares, column, axis=1), shape=(x.shape[0],))


def _widened(*parts: Value | None) -> list[Any]:
    return [None if part is None else cast(part, dtypes.compute_dtype(part.dtype)) for part in parts]


@decomposition("torch_nn._linear_cross_entropy_batch_chunked_no_reduction.default")
def linear_cross_entropy_of_samples(
    out: TensorType,
    x: Value,
    layer: Value,
    target: Value,
    bias: Value | None,
    weight: Value | None,
    ignored: int,
    *_: Any,
) -> Any:
    x, layer, bias = _widened(x, layer, bias)
    if 0 in x.shape:
        return prims.full(shape=out.shape, value=0, dtype=out.dtype)
    found = _scores(x, layer, bias, target, ignored)[1]
    return cast(prims.neg(prims.mul(_class_weights(x, target, weight, ignored), found)), out.dtype)


@decomposition("torch_nn._linear_cross_entropy_batch_chunked.default")
def linear_cross_entropy(
    out: tuple[TensorType, ...],
    x: Value,
    layer: Value,
    target: Value,
    bias: Value | None,
    weight: Value | None,
    reduction: str,
    ignored: int,
    smoothing: float,
    *_: Any,
) -> Any:
    """The loss with its gradients, which torch's op computes in chunks: a backend has its own way to save memory.

    A gradient that nobody asks for has no elements.
    """
    x, layer, bias = _widened(x, layer, bias)
    if 0 in x.shape:
        empty = math.nan if reduction == "mean" else 0.0
        return tuple(
            prims.full(shape=type.shape, value=0.0 if place else empty, dtype=type.dtype)
            for place, type in enumerate(out)
        )
    shares, found = _scores(x, layer, bias, target, ignored)
    weights = _class_weights(x, target, weight, ignored)
    if reduction == "mean":
        total = prims.reduce_sum(weights, axes=(0,))
        weights = prims.div(weights, along(total, (), weights.shape))
    loss = prims.neg(prims.reduce_sum(prims.mul(weights, found), axes=(0,)))
    results = [cast(loss, out[0].dtype)]
    table = tuple(shares.shape)
    chosen = prims.eq(positions(table, 1), along(_known(target, ignored), (0,), table))
    slope = prims.sub(prims.exp(shares), cast(chosen, shares.dtype))
    slope = prims.mul(slope, along(weights, (0,), table))
    gradients = (
        lambda: prims.dot_general(slope, layer, contract=((1,), (0,)), batch=((), ())),
        lambda: prims.dot_general(slope, x, contract=((0,), (0,)), batch=((), ())),
        lambda: prims.reduce_sum(slope, axes=(0,)),
    )
    for type, gradient, of in zip(out[1:], gradients, (x, layer, bias), strict=True):
        wanted = of is not None and not (0 in type.shape and 0 not in of.shape)
        results.append(
            cast(gradient(), type.dtype) if wanted else prims.full(shape=type.shape, value=0, dtype=type.dtype)
        )
    return tuple(results)
