"""Backends made for one test, and what the tests of the pipeline ask of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch

import backend_sdk
from backend_sdk.graph import runnable
from backend_sdk.pipeline import report
from backend_sdk.prims import CONTRACT
from backend_sdk.spec import Composite, SymExpr


def _calling(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of its own, so that marking it leaves ``function`` unmarked."""
    return lambda *operands, **attributes: function(*operands, **attributes)


def _kernels(without: tuple[str, ...], kernels: Mapping[str, Callable[..., Any]]) -> dict[str, Any]:
    """One marked function for each prim (composites only when named in ``kernels``)."""
    marked = {}
    for op in CONTRACT:
        if op.name in kernels or not (isinstance(op, Composite) or op.name in without):
            function = _calling(kernels.get(op.name, op.reference))
            marked[f"run_{op.name}"] = staticmethod(backend_sdk.implements(op)(function))
    return marked


class WritingBackend(backend_sdk.Backend):
    """Destination passing: ``lower`` returns kernels that write into the plan's buffers.

    Each output is filled with NaN (or the largest integer) before anything is computed: a kernel that
    reads memory which is not its own shows. Inputs must be laid out as the region says they are.
    """

    name = "writing"
    refused: frozenset[str] = frozenset()

    def __init__(self) -> None:
        super().__init__()
        self.regions: list[backend_sdk.Region] = []

    def supports(self, node: backend_sdk.Node) -> backend_sdk.Support:
        if node.op not in set(CONTRACT) or isinstance(node.op, Composite) or node.name in self.refused:
            return backend_sdk.no(f"it does not write {node.name}")
        return backend_sdk.YES

    def lower(self, region: backend_sdk.Region) -> backend_sdk.Kernel:
        self.regions.append(region)
        module = runnable(copy.deepcopy(region.graph))

        def run(inputs: Any, outputs: Any) -> None:
            for value, declared in zip(inputs, region.inputs, strict=True):
                if isinstance(declared, backend_sdk.BoundaryType):
                    _check_layout(value, declared)
            results = [result.clone() for result in module(*inputs)]
            for output in outputs:
                assert output.is_contiguous(), "the plan gave a kernel a buffer that is not dense"
                poison = float("nan") if output.dtype.is_floating_point else 1
                output.fill_(poison)
            for output, result in zip(outputs, results, strict=True):
                output.copy_(result)

        return backend_sdk.Kernel(run)


def _check_layout(value: torch.Tensor, declared: backend_sdk.BoundaryType) -> None:
    if declared.strides is None:
        assert value.is_contiguous(), f"{declared} is declared dense, but has strides {value.stride()}"
        return
    if not any(isinstance(number, SymExpr) for number in (*declared.strides, *declared.type.shape)):
        assert value.stride() == declared.strides, f"{declared} has strides {value.stride()}"


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    """No test reuses what another compiled."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


@pytest.fixture
def register() -> Iterator[Callable[[Any], str]]:
    """``register(backend)`` makes a backend available; returns its name for `torch.compile`."""
    names: list[str] = []

    def add(backend: Any) -> str:
        backend_sdk.register_backend(backend)
        names.append(backend.name)
        return f"sdk:{backend.name}"

    yield add
    for name in names:
        backend_sdk.unregister_backend(name)


@pytest.fixture
def make_backend(register: Callable[[Any], str]) -> Callable[..., str]:
    """``make_backend("acme", without=("exp",), kernels={"tanh": f}, capability=...)``: a backend of plain functions,
    registered; returns its name for `torch.compile`."""

    def make(
        name: str = "acme",
        *,
        without: tuple[str, ...] = (),
        kernels: Mapping[str, Callable[..., Any]] | None = None,
        **attributes: Any,
    ) -> str:
        namespace = {"name": name, **_kernels(without, kernels or {}), **attributes}
        return register(type(name.title(), (backend_sdk.Backend,), namespace))

    return make


@pytest.fixture
def make_writing(register: Callable[[Any], str]) -> Callable[..., WritingBackend]:
    """``make_writing(refused=("exp",))``: a registered `WritingBackend`."""

    def make(name: str = "writing", *, refused: tuple[str, ...] = ()) -> WritingBackend:
        backend = type("Writing", (WritingBackend,), {"name": name, "refused": frozenset(refused)})()
        register(backend)
        return backend

    return make


@pytest.fixture
def collected() -> Iterator[list[report.GraphReport]]:
    """The reports of the graphs that the test compiles."""
    with report.collecting() as reports:
        yield reports
