"""Packed sequences in a form that torch can trace: packing, padding, and recurrent layers over what is packed.

torch packs sequences by their lengths, which only the data decide: step after step, the rows of all sequences that are
so long. Its kernels read the lengths off a tensor while they are traced, and its fake kernel of packing gives the data
the size of one sequence. Here all that depends on lengths is computed as values: the packed rows are at most batch x
steps, each step of a layer takes the whole batch, and a row whose sequence is at its end keeps its state.

Does not: say when torch calls them (`tracing` does).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from backend_sdk.torch_compat.checks import assert_true
from backend_sdk.torch_compat.symbolic import largest

Tensor = torch.Tensor


def pack(input: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    """The rows of ``input[steps, batch, ...]`` that lie within ``lengths``, step by step, and how many each step has
    (int64, on the CPU). ``lengths`` descend, and are positive and at most ``steps``: `RuntimeError` when it runs.
    """
    rows = input.transpose(0, 1) if batch_first else input
    steps, batch = rows.shape[:2]
    if lengths.dim() != 1 or lengths.shape[0] != batch:
        raise RuntimeError(f"packing a batch of {batch} sequences takes as many lengths, not {list(lengths.shape)}")
    within_steps = ((lengths > 0) & (lengths <= steps)).all() & (lengths[1:] <= lengths[:-1]).all()
    assert_true(within_steps, "packing takes lengths that descend, each at least 1 and at most the number of steps")
    within = torch.arange(steps).unsqueeze(1) < lengths
    counts = within.sum(1)
    return rows[within.to(rows.device)], counts[counts > 0]


def pad(
    data: Tensor, batch_sizes: Tensor, batch_first: bool, padding_value: float, total_length: int
) -> tuple[Tensor, Tensor]:
    """Packed rows as ``[steps, batch, ...]``, padded at the end of each sequence, and the lengths (int64, on the CPU).

    ``steps`` is that of the longest sequence, or ``total_length`` where that is positive, which must not be less.
    """
    steps = batch_sizes.shape[0]
    if total_length > 0:
        if total_length < steps:
            raise RuntimeError(f"padding to a total length of {total_length}: the longest sequence has {steps} steps")
        steps = total_length
    batch = batch_sizes[0].item()
    counts = _steps_of(batch_sizes, steps)
    padded = _padded(data, counts, batch, padding_value)
    return padded.transpose(0, 1) if batch_first else padded, (torch.arange(batch) < counts.unsqueeze(1)).sum(0)


def pack_backward(grad: Tensor, input_size: Sequence[int], batch_sizes: Tensor, batch_first: bool) -> Tensor:
    """The gradient of what was packed, of shape ``input_size``: that of each packed row, and zeros elsewhere."""
    batch, steps = input_size[:2] if batch_first else input_size[1::-1]
    padded = _padded(grad, _steps_of(batch_sizes, steps), batch, 0.0)
    return padded.transpose(0, 1) if batch_first else padded


def prune_rows(weight: Tensor, mask: Tensor, compressed_indices_dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """As ``torch._rowwise_prune``: the rows of ``weight[rows, ...]`` that the mask keeps, and for each row which one it
    is of those, or -1.
    """
    if mask.dim() != 1 or mask.shape[0] != weight.shape[0]:
        raise RuntimeError(f"pruning {weight.shape[0]} rows takes a mask of as many, not {list(mask.shape)}")
    kept = mask.to(torch.bool)
    place = torch.where(kept, kept.to(torch.int64).cumsum(0) - 1, -1)
    return weight[kept], place.to(compressed_indices_dtype)


def _padded(data: Tensor, counts: Tensor, batch: Any, padding_value: float) -> Tensor:
    """Packed rows as ``[steps, batch, ...]``."""
    within, place = _places(counts, batch, data.device)
    mask = within.reshape(*within.shape, *(1,) * (data.dim() - 1))
    return torch.where(mask, data[place], torch.full((), padding_value, dtype=data.dtype, device=data.device))


def _places(counts: Tensor, batch: Any, device: torch.device) -> tuple[Tensor, Tensor]:
    """For each step and sequence, whether the sequence is so long, and its packed row (of one that is not, the first):
    both ``[steps, batch]``.
    """
    within = torch.arange(batch) < counts.unsqueeze(1)
    place = torch.where(within, _starts(counts).unsqueeze(1) + torch.arange(batch), 0)
    return within.to(device), place.to(device)


def _steps_of(batch_sizes: Tensor, steps: int) -> Tensor:
    """Batch sizes, with zeros behind them for the steps that no sequence has."""
    sizes = torch.zeros(steps, dtype=torch.int64)
    return sizes.index_copy(0, torch.arange(batch_sizes.shape[0]), batch_sizes)


def _starts(counts: Tensor) -> Tensor:
    """Where the rows of each step begin."""
    return counts.cumsum(0) - counts


# ---- recurrent layers

# step(gates of the input, state, weights) -> state; the first of a state is what the layer hands on.
_Step = Callable[[Tensor, tuple[Tensor, ...], Sequence[Tensor | None]], tuple[Tensor, ...]]


def _lstm_step(gates: Tensor, state: tuple[Tensor, ...], weights: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
    hidden, cell = state
    recurrent, bias, projection = weights
    enters, forgets, new, shows = (gates + torch.nn.functional.linear(hidden, recurrent, bias)).chunk(4, 1)  # type: ignore[arg-type]
    cell = forgets.sigmoid() * cell + enters.sigmoid() * new.tanh()
    hidden = shows.sigmoid() * cell.tanh()
    return (hidden if projection is None else hidden @ projection.t()), cell


def _gru_step(gates: Tensor, state: tuple[Tensor, ...], weights: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
    (hidden,) = state
    recurrent, bias, _ = weights
    given = gates.chunk(3, 1)
    kept = torch.nn.functional.linear(hidden, recurrent, bias).chunk(3, 1)  # type: ignore[arg-type]
    reset, update = ((one + other).sigmoid() for one, other in zip(given[:2], kept[:2], strict=True))
    new = (given[2] + reset * kept[2]).tanh()
    return (new + update * (hidden - new),)


def _plain_step(activation: Callable[[Tensor], Tensor]) -> _Step:
    def step(gates: Tensor, state: tuple[Tensor, ...], weights: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        recurrent, bias, _ = weights
        return (activation(gates + torch.nn.functional.linear(state[0], recurrent, bias)),)  # type: ignore[arg-type]

    return step


def _layers(
    step: _Step,
    data: Tensor,
    batch_sizes: Tensor,
    hx: Tensor | Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[Tensor, ...]:
    """The packed outputs, and the last state of each layer and direction. Raises `RuntimeError` when nothing bounds the
    number of steps, and when it runs for a first state of another number of sequences.
    """
    first = (hx,) if isinstance(hx, Tensor) else tuple(hx)
    directions = 2 if bidirectional else 1
    batch = first[0].shape[1]
    assert_true(batch_sizes[0] == batch, "a recurrent layer's first state is for another number of sequences")
    counts = _steps_of(batch_sizes, largest(batch_sizes.shape[0]))
    each = len(params) // (num_layers * directions)
    last: list[tuple[Tensor, ...]] = []
    for layer in range(num_layers):
        found = []
        for direction in range(directions):
            place = layer * directions + direction
            weights = params[place * each : (place + 1) * each]
            output, state = _one_direction(
                step, data, counts, tuple(part[place] for part in first), weights, has_biases, bool(direction)
            )
            found.append(output)
            last.append(state)
        data = torch.cat(found, 1)
        if layer + 1 < num_layers:
            data = torch.nn.functional.dropout(data, dropout, train)
    return (data, *(torch.stack(parts) for parts in zip(*last, strict=True)))


def _layer_of(name: str, step: _Step) -> Callable[..., tuple[Tensor, ...]]:
    """Recurrent layers over packed rows, which take what torch's function of that name takes."""
    layers = functools.partial(_layers, step)
    layers.__name__ = name  # type: ignore[attr-defined]
    return layers


lstm = _layer_of("lstm", _lstm_step)
gru = _layer_of("gru", _gru_step)
rnn_tanh = _layer_of("rnn_tanh", _plain_step(torch.tanh))
rnn_relu = _layer_of("rnn_relu", _plain_step(torch.relu))


def _one_direction(
    step: _Step,
    data: Tensor,
    counts: Tensor,
    state: tuple[Tensor, ...],
    weights: Sequence[Tensor],
    has_biases: bool,
    backwards: bool,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The packed outputs of one direction of a layer, and its last state."""
    gates = torch.nn.functional.linear(data, weights[0], weights[2] if has_biases else None)
    rest = weights[4 if has_biases else 2 :]
    of_step = (weights[1], weights[3] if has_biases else None, rest[0] if rest else None)
    batch = state[0].shape[0]
    steps = counts.shape[0]
    within, place = _places(counts, batch, data.device)
    shown: list[Any] = [None] * steps
    for at in reversed(range(steps)) if backwards else range(steps):
        runs = within[at].unsqueeze(1)
        moved = step(gates[place[at]], state, of_step)
        state = tuple(torch.where(runs, new, old) for new, old in zip(moved, state, strict=True))
        shown[at] = state[0]
    # The packed row n is one of the step that has begun last before it.
    number = torch.arange(data.shape[0])
    home = torch.searchsorted(counts.cumsum(0), number, right=True)
    row = number - _starts(counts)[home]
    return torch.stack(shown)[home.to(data.device), row.to(data.device)], state
