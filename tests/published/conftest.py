"""The document of the contract, made once."""

from __future__ import annotations

import copy

import pytest

from backend_sdk.prims import CONTRACT
from backend_sdk.published.export import document, hash_of, op_hash
from backend_sdk.published.measured import gradients


@pytest.fixture(scope="session")
def made():
    """The document of the installed contract. Tests do not change it: see ``changed``."""
    return document(gradients=gradients())


@pytest.fixture
def changed(made):
    """``changed(edit, version)``: the document as it would be after ``edit(ops by name, document)``, hashed anew."""

    def change(edit, version=None):
        spec = copy.deepcopy(made)
        edit({op["name"]: op for op in spec["ops"]}, spec)
        for op in spec["ops"]:
            op["hash"] = op_hash(op)
        spec["hash"] = hash_of(spec)
        spec["version"] = version or spec["version"]
        return spec

    return change


def pytest_generate_tests(metafunc):
    """``differentiable_op`` is each op that says it has a gradient."""
    if "differentiable_op" in metafunc.fixturenames:
        ops = [op for op in CONTRACT if op.differentiable]
        metafunc.parametrize("differentiable_op", [pytest.param(op, id=op.name) for op in ops])
