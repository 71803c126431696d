"""Runs one call of a torch function through the whole pipeline, without Dynamo: cheap enough for thousands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from backend_sdk.coverage.calls import TensorFunction
from backend_sdk.pipeline.compile import compile_module
from backend_sdk.pipeline.options import Options
from backend_sdk.pipeline.report import FALLBACK, GraphReport, collecting
from backend_sdk.plugins import get_backend

# The seed that torch's catalogue of sample calls sets within its random ops.
SEED = 42


@dataclass
class Compiled:
    """The leaves of a compiled call's result, and what the pipeline reports about its graphs."""

    leaves: list[Any]
    reports: list[GraphReport] = field(default_factory=list)

    @property
    def left_to_eager(self) -> set[str]:
        """Names of the ops that no rule reduced to the contract, but for checks, which are the host's."""
        names = {
            name for report in self.reports for node in report.nodes if node.verdict == FALLBACK for name in node.ops
        }
        return {name for name in names if "." in name}


@pytest.fixture(scope="session")
def compiled_call():
    """``compiled_call(function, args, kwargs, **options)`` compiles for the reference backend and runs."""
    torch.set_num_threads(1)
    backend = get_backend("reference")

    def run(
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Compiled:
        call = TensorFunction(function, args, kwargs or {})
        with collecting() as reports:
            compiled = compile_module(call, call.tensors, backend, Options(**options))
        # Capturing may draw random numbers; what a caller compares starts here.
        torch.manual_seed(SEED)
        return Compiled(list(compiled(*call.tensors)), reports)

    return run


@pytest.fixture(scope="session")
def assert_as_eager():
    """``assert_as_eager(actual, eager, exact)``: same type and, but for rounding, the same values.

    What torch's own default tolerances refuse must be as near to ``exact()``, the float64 result, as eager's is:
    within four times eager's largest error, or 16 epsilons of the largest magnitude.
    """

    def check(actual: Any, eager: Any, exact: Callable[[], Any] | None = None) -> None:
        if not isinstance(eager, torch.Tensor):
            assert actual == eager
            return
        assert actual.dtype == eager.dtype
        assert actual.shape == eager.shape
        try:
            torch.testing.assert_close(actual, eager, equal_nan=True)
        except AssertionError:
            truth = exact() if exact is not None and eager.dtype.is_floating_point else None
            if truth is None or not _as_near(actual, eager, truth):
                raise

    return check


def _as_near(actual: torch.Tensor, eager: torch.Tensor, truth: torch.Tensor) -> bool:
    if not torch.equal(actual.isfinite(), eager.isfinite()):
        return False
    finite = eager.isfinite()
    truth = truth[finite]
    error, of_eager = ((x[finite].to(truth.dtype) - truth).abs() for x in (actual, eager))
    floor = 16 * torch.finfo(eager.dtype).eps * truth.abs().max()
    return bool(error.max() <= torch.maximum(4 * of_eager.max(), floor))
