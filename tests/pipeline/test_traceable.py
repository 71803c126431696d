"""Calls that torch cannot trace, within `backend_sdk.traceable`: one graph, no fallback, eager's results.

What a user would lose: a model that is cut in two, and half of it in eager, for the sake of one check.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import backend_sdk

x = torch.rand(3, 5, generator=torch.Generator().manual_seed(0)) * 2 - 1
weights = torch.tensor([0.1, 0.4, 0.2, 0.2, 0.1])
frequencies = torch.tensor([1, 2, 1, 3, 1])
log_probs = torch.linspace(-2, 2, 20 * 3 * 6).sin().reshape(20, 3, 6).log_softmax(2)
labels = torch.tensor([[1, 2, 2, 3, 5], [4, 4, 1, 0, 0], [0, 0, 0, 0, 0]])

CALLS = {
    "allclose": lambda x: torch.allclose(x, x + 1e-9),
    "not allclose": lambda x: x.allclose(x + 1),
    "equal": lambda x: torch.equal(x, x.clone()),
    "not equal": lambda x: x.equal(x + 1),
    "cov": lambda x: torch.cov(x),
    "cov of weights": lambda x: torch.cov(x, correction=0, fweights=frequencies, aweights=weights),
    "cov with a correction": lambda x: x.cov(correction=1, fweights=frequencies, aweights=weights),
    "cov of a vector": lambda x: torch.cov(x[0]),
    "corrcoef": lambda x: torch.corrcoef(x),
    "lstsq": lambda x: torch.linalg.lstsq(x.T, x.T[:, :2])[0],
    "lstsq, wide": lambda x: torch.linalg.lstsq(x, x[:, :2], driver="gelsd"),
    "lstsq, residuals": lambda x: torch.linalg.lstsq(x.T, x.T[:, :2] + weights[:, None], driver="gels"),
    "lstsq of a vector": lambda x: torch.linalg.lstsq(x, x[:, 0])[0],
    "one_hot": lambda x: F.one_hot(x.argmax(0)),
    "one_hot of a number": lambda x: F.one_hot(x.argmax(0), 4),
    "gaussian_nll_loss": lambda x: F.gaussian_nll_loss(x, x + 1, x.abs()),
    "gaussian_nll_loss, a variance a row": lambda x: F.gaussian_nll_loss(x, x + 1, x[:, 0].abs(), full=True),
    "gaussian_nll_loss, a number": lambda x: F.gaussian_nll_loss(x, x + 1, 0.5, reduction="sum"),
    "ctc_loss": lambda x: F.ctc_loss(log_probs + 0 * x.sum(), labels, [20, 18, 9], [5, 3, 0], reduction="none"),
    "ctc_loss, mean": lambda x: F.ctc_loss(
        log_probs + 0 * x.sum(), labels, torch.tensor([20, 18, 9]), torch.tensor([5, 3, 1])
    ),
    "ctc_loss, labels in a row": lambda x: F.ctc_loss(
        log_probs + 0 * x.sum(), torch.cat([labels[0], labels[1, :3]]), (20, 18, 9), (5, 3, 0)
    ),
    "ctc_loss without a path": lambda x: F.ctc_loss(
        log_probs + 0 * x.sum(), labels, (4, 18, 9), (5, 3, 1), reduction="none", zero_infinity=True
    ),
    "cov of a number": lambda x: torch.cov(x[0, 0]),
    "cov of a weighed number": lambda x: torch.cov(x[0, 0], fweights=torch.tensor(2)),
    "corrcoef of a number": lambda x: torch.corrcoef(x[0, 0]),
    "cov of nothing": lambda x: torch.cov(x[:, :0]),
    "cov of integers": lambda x: torch.cov((x * 9).to(torch.int32), aweights=weights.double()),
    "lstsq by name": lambda x: (
        torch.linalg.lstsq(x.T, x.T[:, :2]).solution,
        torch.linalg.lstsq(x, x[:, :2], driver="gelss").singular_values,
        torch.linalg.lstsq(x, x[:, :2]).rank,
        torch.linalg.lstsq(x.T, x.T[:, :2] + weights[:, None], driver="gels").residuals,
    ),
    "lstsq of vectors": lambda x: torch.linalg.lstsq(torch.stack([x, x + 1]), x[:2, :3])[0],
    "lstsq of matrices, one right-hand side": lambda x: torch.linalg.lstsq(torch.stack([x, x + 1, x * 2]), x[:, :2])[0],
    "lstsq of no rows": lambda x: torch.linalg.lstsq(x[:0], x[:0, :2]),
    "one_hot of one number": lambda x: F.one_hot(x.argmax()),
    "ctc_loss without labels": lambda x: F.ctc_loss(
        log_probs + 0 * x.sum(), labels[0, :0], [20, 3, 0], [0, 0, 0], reduction="none"
    ),
    "ctc_loss without columns": lambda x: F.ctc_loss(
        log_probs + 0 * x.sum(), labels[:, :0], torch.tensor([20, 3, 0]), torch.tensor([0, 0, 0])
    ),
    "ctc_loss of one": lambda x: F.ctc_loss(
        log_probs[:, 0] + 0 * x.sum(), labels[0], torch.tensor([9]), torch.tensor([5]), reduction="none"
    ),
    "unique_consecutive of the last dim": lambda x: torch.unique_consecutive(x.round(), dim=-1),
}


def same(got, expected):
    got, expected = (torch.utils._pytree.tree_leaves(value) for value in (got, expected))
    for one, other in zip(got, expected, strict=True):
        if isinstance(other, torch.Tensor):
            torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4, equal_nan=True)
        else:
            assert bool(one) == other


@pytest.mark.parametrize("name", CALLS)
def test_one_graph_without_fallback(name):
    function = CALLS[name]
    flags = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}
    with torch._dynamo.config.patch(**flags), backend_sdk.traceable():
        compiled = torch.compile(function, backend="sdk:reference", fullgraph=True, options={"fallback": "error"})
        got = compiled(x)
    same(got, function(x))


@pytest.mark.parametrize("name", CALLS)
def test_in_eager_it_changes_nothing(name):
    with backend_sdk.traceable():
        got = CALLS[name](x)
    same(got, CALLS[name](x))


@pytest.mark.parametrize(
    "name", ["cov", "corrcoef", "lstsq", "gaussian_nll_loss", "gaussian_nll_loss, a variance a row", "ctc_loss, mean"]
)
def test_gradients_are_those_of_eager(name):
    def gradient(tensor):
        tensor = tensor.clone().requires_grad_()
        return torch.autograd.grad(CALLS[name](tensor).sum(), tensor)[0]

    with backend_sdk.traceable():
        got = gradient(x)
    torch.testing.assert_close(got, gradient(x), atol=1e-4, rtol=1e-3)


def test_the_gradient_of_ctc_is_that_of_eager():
    def gradient():
        given = log_probs.clone().requires_grad_()
        return torch.autograd.grad(F.ctc_loss(given, labels, (20, 18, 9), (5, 3, 0), reduction="sum"), given)[0]

    with backend_sdk.traceable():
        got = gradient()
    torch.testing.assert_close(got, gradient(), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("zero_infinity", [False, True])
def test_ctc_of_every_length_is_that_of_eager(reduction, zero_infinity):
    compared = 0
    for length in range(5):
        for count in range(4):
            arguments = (labels[:1, :3], (length,), (count,), 0, reduction, zero_infinity)
            given = log_probs[:4, :1].clone().requires_grad_()
            expected = F.ctc_loss(given, *arguments)
            with backend_sdk.traceable():
                got = F.ctc_loss(given, *arguments)
            torch.testing.assert_close(got, expected)
            if expected.isfinite().all():
                gradients = [torch.autograd.grad(loss.sum(), given)[0] for loss in (got, expected)]
                torch.testing.assert_close(*gradients)
                compared += 1
    assert compared == (20 if zero_infinity else 13)


def test_results_have_torch_s_own_type():
    with backend_sdk.traceable():
        assert isinstance(torch.linalg.lstsq(x, x), torch.return_types.linalg_lstsq)


@pytest.mark.parametrize(
    "call",
    [
        lambda: F.one_hot(labels[0]),
        lambda: F.ctc_loss(log_probs, labels, (20, 18, 9), (5, 3, 0)),
        lambda: F.ctc_loss(log_probs, torch.cat([labels[0], labels[1, :3]]), (20, 18, 9), (5, 3, 0)),
    ],
)
def test_tensors_are_made_where_the_operands_are(call):
    """With another default device, what is made without one would meet the operands on it."""
    with backend_sdk.traceable(), torch.device("meta"):
        assert call().device.type == "cpu"


WRONG = {
    "weights of zero": lambda x: torch.cov(x, fweights=frequencies * 0),
    "weights whose product is zero": lambda x: torch.cov(x, fweights=frequencies * (weights > 1), aweights=weights),
    "input lengths": lambda x: F.ctc_loss(
        log_probs + x.sum(), labels, torch.tensor([21, 18, 9]), torch.tensor([5, 3, 0])
    ),
    "target lengths": lambda x: F.ctc_loss(
        log_probs + x.sum(), labels, torch.tensor([20, 18, 9]), torch.tensor([6, 3, 0])
    ),
    "target lengths in a row": lambda x: F.ctc_loss(
        log_probs + x.sum(), labels[0], torch.tensor([20, 18, 9]), torch.tensor([5, 3, 0])
    ),
    "negative weights": lambda x: torch.cov(x, aweights=-weights),
    "negative variance": lambda x: F.gaussian_nll_loss(x, x, -x.abs() - 1),
    "negative classes": lambda x: F.one_hot(x.argmax(0) - 5),
    "no full rank": lambda x: torch.linalg.lstsq(torch.zeros(4, 2), torch.ones(4, 1), driver="gelss"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_eager_checks_a_graph_checks_when_it_runs(name):
    function = WRONG[name]
    with torch._dynamo.config.patch(capture_scalar_outputs=True), backend_sdk.traceable():
        compiled = torch.compile(function, backend="sdk:reference", fullgraph=True, options={"fallback": "error"})
        with pytest.raises(RuntimeError):
            compiled(x)


REFUSED = {
    "cov of three dims": lambda: torch.cov(x[None]),
    "cov of bool": lambda: torch.cov(x > 0),
    "corrcoef of three dims": lambda: torch.corrcoef(x[None]),
    "float fweights": lambda: torch.cov(x, fweights=weights),
    "bool fweights": lambda: torch.cov(x, fweights=weights > 0),
    "integer aweights": lambda: torch.cov(x, aweights=frequencies),
    "complex aweights": lambda: torch.cov(x, aweights=weights + 0j),
    "fweights of two dims": lambda: torch.cov(x, fweights=frequencies[None]),
    "aweights of two dims": lambda: torch.cov(x, aweights=weights[None]),
    "too few fweights": lambda: torch.cov(x, fweights=frequencies[:4]),
    "one aweight": lambda: torch.cov(x, aweights=weights[:1]),
    "weights of nothing": lambda: torch.cov(x[:, :0], aweights=weights[:0]),
    **{
        f"one_hot of {dtype}": lambda dtype=dtype: F.one_hot(x.argmax(0).to(dtype))
        for dtype in (torch.int32, torch.uint8, torch.float32, torch.bool)
    },
    "one_hot of nothing": lambda: F.one_hot(x[:0, 0].to(torch.int64)),
    "lstsq of other rows": lambda: torch.linalg.lstsq(x, x[:2]),
    "lstsq of a vector of other rows": lambda: torch.linalg.lstsq(x, x[0]),
    "lstsq of vectors, one matrix": lambda: torch.linalg.lstsq(x[None], x[:, 0]),
    "lstsq of a matrix, two dims and three": lambda: torch.linalg.lstsq(torch.stack([x, x]), x[:, :1]),
    "lstsq of more dims": lambda: torch.linalg.lstsq(x, x[None]),
    "lstsq of other batches": lambda: torch.linalg.lstsq(x.expand(2, 3, 5), x.expand(3, 3, 5)),
    "lstsq of a vector as the matrix": lambda: torch.linalg.lstsq(x[0], x[0]),
    "lstsq of a number": lambda: torch.linalg.lstsq(x, x[0, 0]),
    "lstsq of two dtypes": lambda: torch.linalg.lstsq(x, x.double()),
    "lstsq of integers": lambda: torch.linalg.lstsq(x.int(), x.int()),
    "lstsq of half": lambda: torch.linalg.lstsq(x.half(), x.half()),
    "input lengths": lambda: F.ctc_loss(log_probs, labels, (21, 18, 9), (5, 3, 0)),
    "negative input lengths": lambda: F.ctc_loss(log_probs, labels, (-1, 18, 9), (5, 3, 0)),
    "target lengths": lambda: F.ctc_loss(log_probs, labels, (20, 18, 9), (6, 3, 0)),
    "negative target lengths": lambda: F.ctc_loss(log_probs, labels, (20, 18, 9), (5, -3, 0)),
    "targets in a row": lambda: F.ctc_loss(log_probs, labels[0], (20, 18, 9), (5, 3, 0)),
    "number of input lengths": lambda: F.ctc_loss(log_probs, labels, (20,), (5, 3, 0)),
    "number of target lengths": lambda: F.ctc_loss(log_probs, labels, (20, 18, 9), (5,)),
    "float lengths": lambda: F.ctc_loss(log_probs, labels, weights[:3], frequencies[:3]),
    "blank": lambda: F.ctc_loss(log_probs, labels, (20, 18, 9), (5, 3, 0), blank=6),
    "rows of targets": lambda: F.ctc_loss(log_probs, labels[:2], (20, 18, 9), (5, 3, 0)),
    "no steps": lambda: F.ctc_loss(log_probs[:0], labels, (0, 0, 0), (0, 0, 0)),
    "bfloat16": lambda: F.ctc_loss(log_probs.bfloat16(), labels, (20, 18, 9), (5, 3, 0)),
    "one dim of log_probs": lambda: F.ctc_loss(log_probs[0, 0], labels, (20, 18, 9), (5, 3, 0)),
    "three dims of targets": lambda: F.ctc_loss(log_probs, labels[None], (20, 18, 9), (5, 3, 0)),
    "a number as the targets": lambda: F.ctc_loss(log_probs, labels[0, 0], (20, 18, 9), (5, 3, 0)),
    "lengths of two types": lambda: F.ctc_loss(log_probs, labels, (20, 18, 9), frequencies[:3]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_eager_refuses_at_the_call_is_refused_there(name):
    with pytest.raises((RuntimeError, TypeError)) as expected:
        REFUSED[name]()
    with backend_sdk.traceable(), pytest.raises(expected.type):
        REFUSED[name]()


def test_bad_arguments_are_refused_as_in_eager():
    with backend_sdk.traceable():
        with pytest.raises(ValueError, match="not valid"):
            F.gaussian_nll_loss(x, x, x.abs(), reduction="some")
        with pytest.raises(ValueError, match="incorrect size"):
            F.gaussian_nll_loss(x, x, x[:2, 0].abs())
        with pytest.raises(ValueError, match="reduction"):
            F.ctc_loss(log_probs, labels, (20, 18, 9), (5, 3, 0), reduction="some")
        with pytest.raises(RuntimeError, match="driver"):
            torch.linalg.lstsq(x, x, driver="gauss")


def test_torch_still_takes_a_negative_dim_for_a_size():
    """When this fails, `backend_sdk.tracing._unique_consecutive` can go."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    with FakeTensorMode(shape_env=ShapeEnv(allow_dynamic_output_shape_ops=True)):
        found = torch.ops.aten.unique_consecutive.default(torch.empty(5), False, False, -1)
    assert found[0].dim() == 2
