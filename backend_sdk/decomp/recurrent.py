"""Rules for recurrent layers that torch hands to one kernel: a layer of LSTM cells, one fused cell, their gradients.

Gates come in torch's order: input, forget, cell, output (Hochreiter and Schmidhuber, "Long short-term memory", 1997).

Does not: hold layers that torch itself writes out, step by step, as other ops.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from backend_sdk import dtypes, prims
from backend_sdk.decomp.registry import Declined, decomposition
from backend_sdk.decomp.shape import slice_axis
from backend_sdk.graph import Value
from backend_sdk.prims.shorthand import along, cast, constant
from backend_sdk.spec import SymExpr, TensorType
from backend_sdk.torch_compat.ops import aten

# The library's number for a layer of LSTM cells (ideep, rnn_kind).
_LSTM = 2


@dataclass(frozen=True)
class _Gates:
    """A cell's gates after their activations, each ``[B, H]``."""

    enter: Value
    forget: Value
    content: Value
    leave: Value

    @staticmethod
    def activated(total: Value) -> _Gates:
        enter, forget, content, leave = _quarters(total)
        return _Gates(prims.sigmoid(enter), prims.sigmoid(forget), prims.tanh(content), prims.sigmoid(leave))

    def step(self, cell: Value) -> tuple[Value, Value]:
        """The new hidden state and cell state."""
        kept = prims.add(prims.mul(self.forget, cell), prims.mul(self.enter, self.content))
        return prims.mul(self.leave, prims.tanh(kept)), kept

    def step_back(self, old: Value, new: Value, hidden_grad: Value | None, cell_grad: Value | None) -> tuple[Any, Any]:
        """Gradients of the sums that the gates activate, ``[B, 4 H]``, and of the ``old`` cell state."""
        one = constant(new, 1.0)
        curve = prims.tanh(new)
        leave_grad = constant(new, 0.0)
        total = cell_grad
        if hidden_grad is not None:
            leave_grad = prims.mul(hidden_grad, curve)
            through = prims.mul(prims.mul(hidden_grad, self.leave), prims.sub(one, prims.mul(curve, curve)))
            total = through if total is None else prims.add(total, through)
        assert total is not None

        def logistic(grad: Value, gate: Value) -> Value:
            return prims.mul(grad, prims.mul(gate, prims.sub(one, gate)))  # type: ignore[no-any-return]

        bent = prims.sub(one, prims.mul(self.content, self.content))
        parts = (
            logistic(prims.mul(total, self.content), self.enter),
            logistic(prims.mul(total, old), self.forget),
            prims.mul(prims.mul(total, self.enter), bent),
            logistic(leave_grad, self.leave),
        )
        return prims.concat(*parts, axis=1), prims.mul(total, self.forget)


def _quarters(x: Value) -> tuple[Value, Value, Value, Value]:
    size = x.shape[1] // 4
    first, second, third, fourth = (slice_axis(x, 1, index * size, (index + 1) * size) for index in range(4))
    return first, second, third, fourth


def _summed(*terms: Value | None) -> Any:
    total: Value | None = None
    for term in terms:
        if term is not None:
            total = term if total is None else prims.add(total, term)
    return total


# ---- a layer over time


def _declined(x: Value, batch_sizes: Sequence[int], mode: int, layers: int, both_ways: bool, batch_first: bool) -> Any:
    if mode != _LSTM or layers != 1 or both_ways or batch_first or len(batch_sizes):
        return Declined("the rule covers one layer of LSTM cells, in one direction, time first, all of one length")
    if any(isinstance(size, SymExpr) for size in x.shape[:1]):
        return Declined("the number of steps is symbolic, and a step is a piece of the graph")
    return None


def _step_of(x: Value, time: int) -> Value:
    return prims.reshape(slice_axis(x, 0, time, time + 1), shape=x.shape[1:])  # type: ignore[no-any-return]


def _in_order(steps: Any, reverse: bool) -> list[int]:
    return list(reversed(range(steps))) if reverse else list(range(steps))


def _from_inputs(x: Value, weight: Value, biases: Sequence[Value]) -> Value:
    """What the inputs add to the gates, for all steps at once: ``[T, B, 4 H]``."""
    total = prims.linear(x, weight, None)
    for bias in biases:
        total = prims.add(total, along(bias, (2,), total.shape))
    return total  # type: ignore[no-any-return]


def _stacked(steps: Sequence[Value]) -> Any:
    return prims.concat(*(prims.reshape(step, shape=(1, *step.shape)) for step in steps), axis=0)


@decomposition(aten.mkldnn_rnn_layer.default)
def recurrent_layer(
    out: tuple[TensorType, ...],
    x: Value,
    from_input: Value,
    from_hidden: Value,
    input_bias: Value,
    hidden_bias: Value,
    hidden: Value,
    cell: Value,
    reverse: bool,
    batch_sizes: Sequence[int],
    mode: int,
    hidden_size: int,
    num_layers: int,
    has_biases: bool,
    bidirectional: bool,
    batch_first: bool,
    train: bool,
) -> Any:
    """Step by step. The library's workspace stays empty: the gradient's rule computes the gates again."""
    declined = _declined(x, batch_sizes, mode, num_layers, bidirectional, batch_first)
    if declined is not None or 0 in x.shape:
        return declined or NotImplemented
    wide = dtypes.compute_dtype(x.dtype)
    weight = cast(from_hidden, wide)
    biases = [cast(bias, wide) for bias in (input_bias, hidden_bias)] if has_biases else []
    inputs = _from_inputs(cast(x, wide), cast(from_input, wide), biases)
    state = (x.shape[1], hidden_size)
    h, c = (cast(prims.reshape(start, shape=state), wide) for start in (hidden, cell))
    results: dict[int, Value] = {}
    for time in _in_order(x.shape[0], reverse):
        gates = _Gates.activated(prims.add(_step_of(inputs, time), prims.linear(h, weight, None)))
        h, c = gates.step(c)
        results[time] = h
    output = _stacked([results[time] for time in sorted(results)])
    empty = prims.full(shape=out[3].shape, value=0, dtype=out[3].dtype)
    states = (
        cast(prims.reshape(state, shape=type.shape), type.dtype) for state, type in zip((h, c), out[1:3], strict=True)
    )
    return cast(output, out[0].dtype), *states, empty


@decomposition(aten.mkldnn_rnn_layer_backward.default)
def recurrent_layer_backward(
    out: tuple[TensorType, ...],
    x: Value,
    from_input: Value,
    from_hidden: Value,
    input_bias: Value,
    hidden_bias: Value,
    hidden: Value,
    cell: Value,
    output: Value,
    last_hidden: Value,
    last_cell: Value,
    output_grad: Value | None,
    hidden_grad: Value | None,
    cell_grad: Value | None,
    reverse: bool,
    mode: int,
    hidden_size: int,
    num_layers: int,
    has_biases: bool,
    train: bool,
    bidirectional: bool,
    batch_sizes: Sequence[int],
    batch_first: bool,
    workspace: Value,
) -> Any:
    """Back through time: all gates again from the hidden states that the layer gave, then step by step in reverse."""
    declined = _declined(x, batch_sizes, mode, num_layers, bidirectional, batch_first)
    if declined is not None or 0 in x.shape:
        return declined or NotImplemented
    wide = dtypes.compute_dtype(x.dtype)
    order = _in_order(x.shape[0], reverse)
    state = (x.shape[1], hidden_size)
    start, cell_start = (cast(prims.reshape(value, shape=state), wide) for value in (hidden, cell))
    results, weight = cast(output, wide), cast(from_hidden, wide)
    # The hidden state with which each step began.
    before = {order[0]: start} | {time: _step_of(results, last) for last, time in itertools.pairwise(order)}
    begun = _stacked([before[time] for time in range(len(order))])
    biases = [cast(bias, wide) for bias in (input_bias, hidden_bias)] if has_biases else []
    inputs = _from_inputs(cast(x, wide), cast(from_input, wide), biases)
    totals = prims.add(inputs, prims.linear(begun, weight, None))
    gates: dict[int, _Gates] = {}
    cells: dict[int, tuple[Value, Value]] = {}
    c = cell_start
    for time in order:
        gates[time] = _Gates.activated(_step_of(totals, time))
        _, kept = gates[time].step(c)
        cells[time] = (c, kept)
        c = kept
    h_grad, c_grad = (
        None if grad is None else cast(prims.reshape(grad, shape=state), wide) for grad in (hidden_grad, cell_grad)
    )
    upstream = None if output_grad is None else cast(output_grad, wide)
    grads: dict[int, Value] = {}
    for time in reversed(order):
        here = _summed(h_grad, None if upstream is None else _step_of(upstream, time))
        if here is None and c_grad is None:
            here = constant(start, 0.0)
        grads[time], c_grad = gates[time].step_back(*cells[time], here, c_grad)
        h_grad = prims.dot_general(grads[time], weight, contract=((1,), (0,)), batch=((), ()))
    assert h_grad is not None and c_grad is not None
    gate_grads = _stacked([grads[time] for time in range(len(order))])
    over_time = ((0, 1), (0, 1))
    bias_grad = prims.reduce_sum(gate_grads, axes=(0, 1))
    values = (
        prims.dot_general(gate_grads, cast(from_input, wide), contract=((2,), (0,)), batch=((), ())),
        prims.dot_general(gate_grads, cast(x, wide), contract=over_time, batch=((), ())),
        prims.dot_general(gate_grads, begun, contract=over_time, batch=((), ())),
        bias_grad,
        bias_grad,
        h_grad,
        c_grad,
    )
    return tuple(
        cast(prims.reshape(value, shape=type.shape), type.dtype) for value, type in zip(values, out, strict=True)
    )


# ---- one cell


@decomposition(aten._thnn_fused_lstm_cell.default)
def fused_cell(
    out: tuple[TensorType, ...],
    input_gates: Value,
    hidden_gates: Value,
    cell: Value,
    input_bias: Value | None = None,
    hidden_bias: Value | None = None,
) -> Any:
    """The new states, and the gates after their activations, which the gradient reads."""
    wide = dtypes.compute_dtype(cell.dtype)
    total = prims.add(cast(input_gates, wide), cast(hidden_gates, wide))
    for bias in (input_bias, hidden_bias):
        if bias is not None:
            total = prims.add(total, along(cast(bias, wide), (1,), total.shape))
    gates = _Gates.activated(total)
    hidden, kept = gates.step(cast(cell, wide))
    workspace = prims.concat(gates.enter, gates.forget, gates.content, gates.leave, axis=1)
    return tuple(cast(value, type.dtype) for value, type in zip((hidden, kept, workspace), out, strict=True))


@decomposition(aten._thnn_fused_lstm_cell_backward_impl.default)
def fused_cell_backward(
    out: tuple[TensorType | None, ...],
    hidden_grad: Value | None,
    cell_grad: Value | None,
    old: Value,
    new: Value,
    workspace: Value,
    has_bias: bool,
) -> Any:
    if hidden_grad is None and cell_grad is None:
        return None, None, None
    wide = dtypes.compute_dtype(workspace.dtype)
    gates = _Gates(*_quarters(cast(workspace, wide)))
    gate_grads, old_grad = gates.step_back(
        cast(old, wide),
        cast(new, wide),
        None if hidden_grad is None else cast(hidden_grad, wide),
        None if cell_grad is None else cast(cell_grad, wide),
    )
    bias_grad = cast(prims.reduce_sum(gate_grads, axes=(0,)), workspace.dtype) if has_bias else None
    return cast(gate_grads, workspace.dtype), cast(old_grad, old.dtype), bias_grad
