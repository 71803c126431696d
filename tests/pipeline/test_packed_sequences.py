"""Packed sequences within `backend_sdk.traceable`: on the contract, without fallback, with eager's results.

What a user would lose: a recurrent model over sequences of different lengths is cut at each packing, or not exported.
"""

from __future__ import annotations

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import backend_sdk
from backend_sdk.coverage.calls import COMPOSITES, PRIMS, Call, prove

aten = torch.ops.aten

LENGTHS = ([5, 3, 3, 1], [2, 2, 2, 2], [5, 5, 5, 5], [1, 1, 1, 1])
FLAGS = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True, "allow_rnn": True}


def agrees(function, *args, backward=False, level=COMPOSITES):
    return prove(Call(function, args, backward=backward), level) is not None


def batch(*shape):
    return torch.rand(4, 5, *shape, generator=torch.Generator().manual_seed(0)) - 0.5


def packed(lengths, *shape):
    return aten._pack_padded_sequence(batch(*shape), torch.tensor(lengths), True)


@pytest.mark.parametrize(
    ("lengths", "shape", "batch_first"),
    [(LENGTHS[0], (3,), True), (LENGTHS[0], (2, 3), False), *((lengths, (), True) for lengths in LENGTHS[1:])],
)
def test_packing_and_padding(lengths, shape, batch_first):
    x = batch(*shape) if batch_first else batch(*shape).transpose(0, 1)
    assert agrees(lambda x, n: torch._pack_padded_sequence(x, n, batch_first), x, torch.tensor(lengths))
    assert agrees(lambda x, n: aten._pack_padded_sequence.default(x, n, batch_first), x, torch.tensor(lengths))
    data, sizes = packed(lengths, *shape)
    for total in (-1, max(lengths), max(lengths) + 2):
        assert agrees(
            lambda data, sizes, total=total: torch._pad_packed_sequence(data, sizes, batch_first, -1.5, total),
            data,
            sizes,
        )
    assert agrees(
        lambda data, sizes: aten._pack_padded_sequence_backward.default(data, x.shape, sizes, batch_first), data, sizes
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int64, torch.bool])
def test_rows_of_any_dtype_are_packed_and_padded(dtype):
    x = (batch(3) * 8).to(dtype)
    data, sizes = aten._pack_padded_sequence(x, torch.tensor(LENGTHS[0]), True)
    assert agrees(lambda x, n: aten._pack_padded_sequence.default(x, n, True), x, torch.tensor(LENGTHS[0]))
    assert agrees(lambda data, sizes: aten._pad_packed_sequence.default(data, sizes, True, 1, -1), data, sizes)


LAYERS = {"lstm": (torch.lstm, 4, 2), "gru": (torch.gru, 3, 1), "tanh": (torch.rnn_tanh, 1, 1)}
LAYERS["relu"] = (torch.rnn_relu, 1, 1)


def layer_arguments(gates, states, biases, layers, directions):
    generator = torch.Generator().manual_seed(1)

    def draw(*shape):
        return torch.randn(shape, generator=generator) / 2

    params = []
    for layer in range(layers):
        for _ in range(directions):
            params += [draw(4 * gates, 4 * directions if layer else 3), draw(4 * gates, 4)]
            params += [draw(4 * gates), draw(4 * gates)] if biases else []
    first = [draw(layers * directions, 4, 4) for _ in range(states)]
    return first if states > 1 else first[0], params


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize(
    ("biases", "layers", "directions", "backward"),
    [(True, 1, 1, False), (False, 1, 2, False), (True, 2, 2, False), (True, 1, 2, True)],
)
def test_recurrent_layers_over_packed_rows(name, biases, layers, directions, backward):
    function, gates, states = LAYERS[name]
    first, params = layer_arguments(gates, states, biases, layers, directions)
    data, sizes = packed([3, 2, 2, 1], 3)
    for leaf in (data, *params):
        leaf.requires_grad_(backward)
    assert agrees(
        lambda data, sizes, first, params: function(
            data, sizes, first, params, biases, layers, 0.0, False, directions == 2
        ),
        data,
        sizes,
        first,
        params,
        backward=backward,
        level=PRIMS,
    )


def test_an_lstm_with_a_projection():
    layer = torch.nn.LSTM(3, 5, proj_size=2)
    data, sizes = packed(LENGTHS[0], 3)
    with torch.no_grad():
        assert agrees(
            lambda params, data, sizes: torch.func.functional_call(layer, params, (PackedSequence(data, sizes),)),
            dict(layer.named_parameters()),
            data,
            sizes,
        )


class Tagger(torch.nn.Module):
    """Packs, runs and pads: how many steps there are, only the lengths say."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True)

    def forward(self, x, lengths):
        rows = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        output, _ = self.layer(rows)
        return pad_packed_sequence(output, batch_first=True)


@pytest.mark.parametrize(("lengths", "backward"), [([2, 5, 1, 3], True), ([1, 1, 1, 1], False)])
def test_a_model_that_packs_runs_and_pads(lengths, backward):
    model = Tagger()
    params = {name: value.detach().requires_grad_(backward) for name, value in model.named_parameters()}
    assert agrees(
        lambda params, x, lengths: torch.func.functional_call(model, params, (x, lengths)),
        params,
        batch(3),
        torch.tensor(lengths),
        backward=backward,
    )


def test_such_a_model_is_exported_once_for_all_lengths():
    model = Tagger().eval()
    with backend_sdk.traceable():
        program = torch.export.export(model, (batch(3), torch.tensor(LENGTHS[0])))
    for lengths in (*LENGTHS, [2, 5, 1, 3]):
        got = program.module()(batch(3), torch.tensor(lengths))
        torch.testing.assert_close(got, model(batch(3), torch.tensor(lengths)))


def test_dynamo_compiles_a_layer_of_a_packed_sequence_as_one_graph():
    model = torch.nn.LSTM(3, 4, bidirectional=True)
    first, params = layer_arguments(3, 1, True, 1, 1)

    def lstm(rows):
        return model(rows)[0].data

    def gru(rows):
        return torch.gru(rows.data, rows.batch_sizes, first, params, True, 1, 0.0, False, False)

    rows = PackedSequence(*packed(LENGTHS[0], 3))
    for function in (lstm, gru):
        with torch.no_grad(), torch._dynamo.config.patch(**FLAGS), backend_sdk.traceable():
            compiled = torch.compile(function, backend="sdk:reference", fullgraph=True, options={"fallback": "error"})
            got = compiled(rows)
        torch.testing.assert_close(got, function(rows))


@pytest.mark.parametrize("lengths", [[3, 5, 3, 1], [5, 3, 3, 0]])
def test_lengths_that_eager_refuses_are_refused(lengths):
    for context in (torch.no_grad(), backend_sdk.traceable()):
        with context, pytest.raises(RuntimeError):
            torch._pack_padded_sequence(batch(3), torch.tensor(lengths), True)


def test_a_sequence_longer_than_the_data_is_refused():
    # Eager gives fewer rows than the lengths add up to.
    with backend_sdk.traceable(), pytest.raises(RuntimeError, match="at most the number of steps"):
        torch._pack_padded_sequence(batch(3), torch.tensor([6, 3, 3, 1]), True)


def test_shapes_that_eager_refuses_are_refused():
    data, sizes = packed(LENGTHS[0], 3)
    first, params = layer_arguments(3, 1, True, 1, 1)
    for context in (torch.no_grad(), backend_sdk.traceable()):
        with context, pytest.raises(RuntimeError):
            torch._pack_padded_sequence(batch(3), torch.tensor([5, 3, 1]), True)
        with context, pytest.raises(RuntimeError):
            torch._pad_packed_sequence(data, sizes, True, 0.0, 4)
        with context, pytest.raises(RuntimeError):
            torch.gru(data, sizes, first[:, :3], params, True, 1, 0.0, False, False)
        with context, pytest.raises(RuntimeError):
            torch._rowwise_prune(batch(3)[0], torch.ones(3, dtype=torch.bool), torch.int32)


# ---- other kernels that read numbers off a tensor


@pytest.mark.parametrize("kept", [[True, False, True], [False, False, False], [True, True, True]])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_pruning_of_rows(kept, dtype):
    assert agrees(lambda w, mask: torch._rowwise_prune(w, mask, dtype), batch(3)[0, :3], torch.tensor(kept))


@pytest.mark.parametrize("name", ["addcdiv", "addcmul"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_lists_of_tensors_with_a_factor_each(name, dtype):
    lists = [[batch(3).to(dtype) + shift, batch().to(dtype) + shift] for shift in (0, 1, 2)]
    factors = torch.tensor([0.5, -2.0])
    assert agrees(lambda lists, factors: getattr(torch, f"_foreach_{name}")(*lists, factors), lists, factors)

    def in_place(lists, factors):
        target = [one.clone() for one in lists[0]]
        getattr(torch, f"_foreach_{name}_")(target, *lists[1:], factors)
        return target

    assert agrees(in_place, lists, factors)
    # With a number, or a number each, they are torch's own.
    assert agrees(lambda lists: getattr(torch, f"_foreach_{name}")(*lists, 0.5), lists)
    assert agrees(lambda lists: getattr(torch, f"_foreach_{name}")(*lists, [0.5, 2.0]), lists)
    with backend_sdk.traceable(), pytest.raises(RuntimeError):
        getattr(torch, f"_foreach_{name}")(*lists, torch.ones(3))
