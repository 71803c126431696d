"""Runs a contract test once for each op, or for each op and dtype of its domain."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from backend_sdk import dtypes
from backend_sdk.prims import CONTRACT
from backend_sdk.spec import Composite, DtypeVar, FromAttribute, Prim, TensorType

_SEED = 7


def _domain(op: Prim) -> list[torch.dtype]:
    """The dtypes that an op's samples are asked for."""
    for slot in op.dtype_rule.operands:
        if isinstance(slot, DtypeVar):
            return [dtype for dtype in dtypes.STORED_DTYPES if dtype in slot.domain]
    (result,) = op.dtype_rule.results
    if isinstance(result, FromAttribute):
        # These make tensors of a dtype; the samples say of which.
        return [dtype for dtype in dtypes.STORED_DTYPES if any(True for _ in op.samples(dtype, torch.Generator()))]
    return [result]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """``op`` is any op, ``composite`` a composite; with ``dtype``, each dtype of its domain."""
    for name, kind in (("op", Prim), ("composite", Composite)):
        if name not in metafunc.fixturenames:
            continue
        ops = [op for op in CONTRACT if isinstance(op, kind)]
        if "dtype" in metafunc.fixturenames:
            cases = [
                pytest.param(op, dtype, id=f"{op.name}-{dtypes.name(dtype)}") for op in ops for dtype in _domain(op)
            ]
            metafunc.parametrize((name, "dtype"), cases)
        else:
            metafunc.parametrize(name, [pytest.param(op, id=op.name) for op in ops])


@pytest.fixture(scope="session")
def samples_of():
    """``samples_of(op, dtype)``: its samples, the same in every run."""

    def samples(op: Prim, dtype: torch.dtype) -> list[Any]:
        return list(op.samples(dtype, torch.Generator().manual_seed(_SEED)))

    return samples


@pytest.fixture(scope="session")
def first_call():
    """``first_call(op)``: operand types and attributes of a call that the op takes."""

    def call(op: Prim) -> tuple[tuple[TensorType | None, ...], dict[str, Any]]:
        sample = next(sample for dtype in _domain(op) for sample in op.samples(dtype, torch.Generator()))
        types = tuple(None if x is None else TensorType(tuple(x.shape), x.dtype) for x in sample.operands)
        return types, dict(sample.attributes)

    return call
