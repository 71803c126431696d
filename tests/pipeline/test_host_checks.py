"""Checks of the data: eager runs them, they raise what eager raises, and they are no fallback.

What a user would lose: `torch.linalg` under ``fallback="error"``, and the `LinAlgError` that a solver's caller catches.
"""

from __future__ import annotations

import logging

import pytest
import torch

from backend_sdk.coverage.calls import COMPOSITES, Call, prove
from backend_sdk.pipeline.report import FALLBACK, HOST, collecting

STRICT = {"fallback": "error"}


def _compiled(function):
    return torch.compile(function, backend="sdk:reference", options=STRICT, dynamic=False)


def _raised(function, *args):
    try:
        function(*args)
    except Exception as error:
        return type(error), str(error)
    return None


SINGULAR = (torch.zeros(3, 3), torch.stack([torch.eye(3), torch.zeros(3, 3)]))
INDEFINITE = tuple(x - 2 * torch.eye(3) for x in SINGULAR)

SOLVERS = {
    "inv": (torch.linalg.inv, SINGULAR),
    "solve": (lambda x: torch.linalg.solve(x, torch.ones(3, 2)), SINGULAR),
    "cholesky": (torch.linalg.cholesky, INDEFINITE),
    "deprecated cholesky": (torch.cholesky, INDEFINITE),
    "lu_factor": (torch.linalg.lu_factor, SINGULAR),
    "ldl_factor": (torch.linalg.ldl_factor, SINGULAR),
    "inv_ex": (lambda x: torch.linalg.inv_ex(x, check_errors=True), SINGULAR),
    "solve_ex": (lambda x: torch.linalg.solve_ex(x, torch.ones(3, 2), check_errors=True), SINGULAR),
    "cholesky_ex": (lambda x: torch.linalg.cholesky_ex(x, check_errors=True), INDEFINITE),
    "lu_factor_ex": (lambda x: torch.linalg.lu_factor_ex(x, check_errors=True), SINGULAR),
    "ldl_factor_ex": (lambda x: torch.linalg.ldl_factor_ex(x, check_errors=True), SINGULAR),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", SOLVERS)
def test_a_solver_raises_what_eager_raises_and_nothing_falls_back(name, caplog):
    function, wrong = SOLVERS[name]
    right = torch.eye(3) * 2 + 0.1
    with collecting() as reports:
        compiled = _compiled(function)
        torch.testing.assert_close(compiled(right), function(right))
    nodes = [node for report in reports for node in report.nodes]
    assert not [node for node in nodes if node.verdict == FALLBACK]
    assert any("check" in op or op == "with_effects" for node in nodes for op in node.ops)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    for x in wrong:
        expected = _raised(function, x)
        assert expected is not None
        assert _raised(_compiled(function), x) == expected


@pytest.mark.parametrize("name", ["inv_ex", "solve_ex", "cholesky_ex", "lu_factor_ex", "ldl_factor_ex"])
def test_what_does_not_check_does_not_raise(name):
    function = getattr(torch.linalg, name)
    args = (torch.ones(3, 2),) if name == "solve_ex" else ()
    x = SOLVERS[name][1][1]
    info, expected = (call(x, *args)[-1] for call in (_compiled(function), function))
    torch.testing.assert_close(info, expected)


@pytest.mark.parametrize("function", [torch.linalg.inv, torch.linalg.cholesky, torch.linalg.det, torch.linalg.slogdet])
def test_gradients_without_fallback(function):
    x = (torch.eye(4, dtype=torch.float64) * 3 + 0.25).requires_grad_()

    def loss(x):
        result = function(x)
        return result.sum() if isinstance(result, torch.Tensor) else result[1].sum()

    (expected,) = torch.autograd.grad(loss(x), x)
    (ours,) = torch.autograd.grad(_compiled(loss)(x), x)
    torch.testing.assert_close(ours, expected)


def test_assertions_on_tensors():
    def positive(x):
        torch._assert_async(x.sum() > 0, "the sum must be positive")
        return x + 1

    with collecting() as reports:
        compiled = _compiled(positive)
        torch.testing.assert_close(compiled(torch.ones(3)), torch.ones(3) + 1)
    (report,) = reports
    assert [node.verdict for node in report.nodes if node.op == "aten._assert_async.msg"] == [HOST]
    assert report.counts[HOST] == 1
    assert _raised(compiled, -torch.ones(3)) == _raised(positive, -torch.ones(3))


def test_a_graph_without_checks_counts_none():
    with collecting() as reports:
        _compiled(lambda x: x + 1)(torch.ones(3))
    assert HOST not in reports[0].counts


def test_a_check_is_named_with_its_reason():
    import backend_sdk

    explanation = backend_sdk.explain(torch.linalg.inv, torch.eye(3), backend="reference")
    assert not explanation.fallbacks and explanation.counts[HOST] == 1
    (check,) = [node for graph in explanation.graphs for node in graph.nodes if node.verdict == HOST]
    assert check.reasons == ["checks the data, and raises as eager does"]


def test_an_exported_program_checks():
    import backend_sdk

    class Model(torch.nn.Module):
        def forward(self, x):
            torch._assert_async(x.sum() > 0, "the sum must be positive")
            return torch.linalg.inv(x) + 1

    program = torch.export.export(Model(), (torch.eye(3),))
    compiled = backend_sdk.compile_program(program, backend="reference", options=STRICT)
    x = torch.eye(3) * 2
    torch.testing.assert_close(compiled(x), Model()(x))
    for wrong in (-torch.eye(3), torch.ones(3, 3)):
        expected = _raised(Model(), wrong)
        assert expected is not None and _raised(compiled, wrong) == expected


def test_assertions_that_hand_on_a_token():
    def positive(x, token):
        return torch.ops.aten._functional_assert_async.msg(x.sum() > 0, "the sum must be positive", token)

    ran = prove(Call(positive, (torch.ones(3), torch.zeros(()))), COMPOSITES)
    assert ran is not None and "aten._functional_assert_async.msg" in ran.overloads
