"""A proof finds what is wrong, says what is missing, and counts what really ran.

What a user would lose: a report in which a wrong number counts as proven.
"""

from __future__ import annotations

import math

import pytest
import torch

from backend_sdk.coverage import calls
from backend_sdk.coverage.agreement import Mismatch, is_as_near
from backend_sdk.coverage.calls import COMPOSITES, PRIMS, Call, Refused
from backend_sdk.coverage.prove import BACKWARD, FORWARD, OVERLOAD, Item, Status, prove

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.mark.parametrize("level", [PRIMS, COMPOSITES])
@pytest.mark.parametrize("kind", [FORWARD, BACKWARD])
@pytest.mark.parametrize("name", ["add", "nn.functional.silu", "sort", "nn.functional.dropout", "linalg.cholesky"])
def test_samples_are_proven(name, kind, level):
    entry = prove(Item(kind, name, "float32"), level, 3, ())
    assert (entry.status, entry.failed) == (Status.PROVEN, 0), entry.message
    assert entry.samples == 3
    assert entry.overloads and entry.reduced


def test_composites_stay_whole_at_their_level_only():
    item = Item(FORWARD, "nn.functional.silu", "float32")
    assert prove(item, COMPOSITES, 1, ()).reduced["aten.silu.default"] == ["silu"]
    assert "silu" not in prove(item, PRIMS, 1, ()).reduced["aten.silu.default"]


def test_an_op_without_a_rule_is_named():
    entry = prove(Item(FORWARD, "to_sparse", "float32"), PRIMS, 1, ())
    assert entry.status == Status.REFUSED and "aten._to_sparse.default" in entry.message
    with pytest.raises(Refused) as raised:
        calls.prove(Call(torch.ops.aten._dirichlet_grad.default, (torch.full((2, 3), 0.5),) * 3), PRIMS)
    assert raised.value.ops == ["aten._dirichlet_grad.default"]


def _differs(change):
    """A function that computes something else when it is traced: what a wrong rule looks like from outside."""

    def run(tensor):
        traced = type(tensor) is not torch.Tensor or torch.compiler.is_compiling() or is_fake(tensor)
        return change(tensor) if traced else tensor * 2

    def is_fake(tensor):
        return torch._C._functorch.is_functionaltensor(tensor) or hasattr(tensor, "fake_mode")

    return run


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x * 2.001,
        lambda x: (x * 2).double(),
        lambda x: (x * 2)[:-1],
        lambda x: (x * 2, x),
        lambda x: torch.where(x > 0.5, x * 2, float("nan")),
    ],
    ids=["value", "dtype", "shape", "count", "nan"],
)
def test_a_wrong_result_is_a_mismatch(change):
    with pytest.raises(Mismatch):
        calls.prove(Call(_differs(change), (torch.linspace(0.1, 1, 5),)), PRIMS)


def test_a_wrong_gradient_is_a_mismatch():
    call = Call(_differs(lambda x: x * 2 + (x * 0.01 - (x * 0.01).detach())), (torch.ones(3, requires_grad=True),))
    calls.prove(call, PRIMS)
    call.backward = True
    with pytest.raises(Mismatch):
        calls.prove(call, PRIMS)


@pytest.mark.parametrize(
    "name",
    [
        "aten.add_.Tensor",
        "aten.add.out",
        "aten._foreach_add.List",
        "aten._foreach_add_.ScalarList",
        "aten._foreach_add.List_out",
        "aten.eq.Tensor_out",
        "aten.argmax.out",
        "aten.var.dim",
        "aten.fmod.Scalar",
        "aten.bitwise_and.Scalar",
        "aten.native_dropout.default",
        "aten.squeeze_.dim",
        "aten.max.dim_max",
    ],
)
def test_an_overload_is_called_by_its_schema(name):
    entry = prove(Item(OVERLOAD, name, "float32"), PRIMS, None, ())
    assert entry.status == Status.PROVEN, entry.message
    assert name in entry.overloads


def test_a_sample_lends_its_arguments():
    lent = prove(
        Item(OVERLOAD, "aten.index_copy_.default", "float32"), PRIMS, None, (Item(FORWARD, "index_copy", "float32"),)
    )
    assert lent.status == Status.PROVEN, lent.message


@pytest.mark.parametrize(
    ("actual", "eager", "truth", "errors", "near"),
    [
        ([1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [0.0, 0.0], True),
        ([math.inf, 1.0], [-math.inf, 1.0], [-math.inf, 1.0], [0.0, 0.0], False),
        ([math.nan, 1.0], [math.inf, 1.0], [math.inf, 1.0], [0.0, 0.0], False),
        ([math.inf, 1.0], [math.nan, 1.0], [math.nan, 1.0], [0.0, 0.0], False),
        ([math.nan, 1.0], [math.nan, 1.0], [math.nan, 1.0], [0.0, 0.0], True),
        # Where rounding costs something, and only there.
        ([1e-4, 1.0], [0.0, 1.0], [0.0, 1.0], [1e-5, 0.0], True),
        ([0.0, 1.0001], [0.0, 1.0], [0.0, 1.0], [1e-5, 0.0], False),
        # Within torch's own tolerance, beside one that is not.
        ([1e-8, 1.0001], [0.0, 1.0], [0.0, 1.0], [0.0, 1e-5], True),
        # Beside a large element a small one has its own measure.
        ([1e-4, 1.0], [0.0, 1.0], [0.0, 1.0], [0.0, 0.0], False),
        ([0.41, 22026.4648], [0.36787945, 22026.4648], [0.36787944, 22026.46579], [0.0, 0.0], False),
        ([0.0, 1e6], [0.05, 1e6], [0.05, 1e6], [0.0, 0.0], False),
        # Beside an element that eager gets wrong another may be as wrong, in what rounding costs it.
        ([1.0001, 1.0], [1.0, 1.001], [1.0, 1.0], [0.0, 0.0], True),
        ([0.01, 1e6], [0.0, 1e6 + 1000.0], [0.0, 1e6], [0.0, 0.0], False),
        ([1.01, 1.0], [1.0, 1.001], [1.0, 1.0], [0.0, 0.0], False),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_how_near_a_result_must_be(actual, eager, truth, errors, near, dtype):
    found = is_as_near(
        torch.tensor(actual).to(dtype),
        torch.tensor(eager).to(dtype),
        torch.tensor(truth, dtype=torch.float64).to(dtype.to_complex() if dtype.is_complex else torch.float64),
        torch.tensor(errors, dtype=torch.float64),
    )
    assert found == near


@pytest.mark.parametrize(
    ("actual", "operand", "near"),
    [
        # What rounding the operands costs where a sum cancels.
        (1.0000305e-3, 1e3, True),
        (2e-2, 1e3, False),
        (1.05e-3, 1e-3, False),
    ],
)
def test_what_rounding_the_inputs_costs_is_allowed(actual, operand, near):
    def cancels(x):
        return (x[:1] - x[1:2]) + x[2:]

    call = Call(cancels, (torch.tensor([operand, operand, 1e-3]),))
    true = calls._measure(call)
    eager = calls.run_in_eager(call)[0]
    assert is_as_near(torch.tensor([actual]), eager, true.truth[0], true.errors[0]) == near


JUMPS = [
    ("floor", torch.floor, [1.0, 2.0, -3.0, 0.25]),
    ("the way a half is rounded", torch.round, [0.5, 1.5, -2.5, 0.25]),
    ("remainder of a multiple", lambda x: torch.remainder(x, 0.5), [1.0, 1.5, -2.0, 3.5]),
    ("fmod of a multiple", lambda x: torch.fmod(x, 0.5), [1.0, 1.5, -2.0, 3.5]),
    ("a comparison", lambda x: (x >= 1.0).to(x.dtype), [1.0, 1.0, 1.0, 2.0]),
    ("floor of a quotient", lambda x: torch.floor(x / 3.0), [3.0, 6.0, 9.0, 1.0]),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(("function", "values"), [jump[1:] for jump in JUMPS], ids=[jump[0] for jump in JUMPS])
def test_a_jump_is_no_rounding_error(function, values, dtype):
    """An input that is exactly where a function jumps is exactly there: the other side of the jump is wrong."""
    true = calls._measure(Call(function, (torch.tensor(values, dtype=dtype),)))
    assert float(true.errors[0].max()) <= 16 * torch.finfo(dtype).eps * max(map(abs, values))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_gradient_among_equals_is_no_rounding_error(dtype):
    x = torch.tensor([1.0, 1.0, 0.5], dtype=dtype, requires_grad=True)
    true = calls._measure(Call(torch.amax, (x, 0), backward=True))
    assert float(true.errors[0].max()) <= 1e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_rounding_the_steps_costs_is_allowed(dtype):
    """Of a saturated softmax the gradient is a difference of nearly equal numbers, though no input is rounded."""
    x = torch.tensor([[30.0, 15.0, 0.0]], dtype=dtype, requires_grad=True)
    weight = torch.tensor([[1000.0, 1.0, 3.0]], dtype=dtype)
    true = calls._measure(Call(lambda x: torch.softmax(x, -1) * weight, (x,), backward=True))
    assert float(true.errors[0][0, 0]) > 10 * torch.finfo(dtype).eps * float(true.truth[0][0, 0].abs())


def test_what_is_not_reached_by_any_rounding_has_no_error():
    true = calls._measure(Call(lambda x: torch.cat([x, torch.zeros(2)]), (torch.ones(2),)))
    assert true.errors[0][2:].tolist() == [0.0, 0.0]
