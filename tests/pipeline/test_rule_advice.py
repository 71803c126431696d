"""Each refusal of a rule names rule, call with its types, and op, and says what to do next.

A vendor who reads "operands must have one shape" and nothing else looks for the fault in the SDK.
"""

from __future__ import annotations

import pytest
import torch

import backend_sdk
from backend_sdk import hookimpl, prims
from backend_sdk.backends.reference import ReferenceBackend
from backend_sdk.errors import BrokenPluginError, DecompositionError
from backend_sdk.prims import CONTRACT
from backend_sdk.spec.prim import refuse

aten = torch.ops.aten


class Vendor(ReferenceBackend):
    name = "vendor"


@pytest.fixture
def refused(registered):
    """The error that a rule for expm1 meets on a float32[3, 8]."""

    def run(rule):
        class Hooks:
            @hookimpl
            def sdk_decompositions(self):
                return {aten.expm1.default: rule}

        backend_sdk.register_backend(Vendor(), hooks=Hooks())
        registered.append("vendor")
        torch._dynamo.reset()
        with pytest.raises(DecompositionError) as raised:
            torch.compile(lambda x: torch.expm1(x), backend="sdk:vendor")(torch.rand(3, 8))
        return raised.value

    return run


def row(x, dtype=torch.float32):
    return prims.full(shape=(8,), value=1, dtype=dtype)


RULES = {
    "broadcasts": (
        lambda out, x: prims.add(x, row(x)),
        "add(float32[3, 8], float32[8]): operands must have one shape",
        "prims.broadcast(x, shape=(3, 8), dims=(1,)) for the float32[8]",
    ),
    "promotes": (lambda out, x: prims.add(row(x), row(x, torch.float64)), "float64[8]", "convert the operands"),
    "misspells an attribute": (
        lambda out, x: prims.reduce_sum(x, axis=(0,)),
        "reduce_sum takes the attributes ['axes'], got ['axis'], with the operands float32[3, 8]",
        "axis is spelled axes, call prims.reduce_sum(x: Tensor, *, axes: tuple[int, ...])",
    ),
    "leaves an attribute out": (lambda out, x: prims.reduce_sum(x), "got []", "call prims.reduce_sum(x"),
    "gives an attribute by position": (lambda out, x: prims.reduce_sum(x, (0,)), "(0,) is a tuple", "axes=..."),
    "gives too many operands": (
        lambda out, x: prims.exp(x, x),
        "exp takes 1 operands, got 2: float32[3, 8], float32[3, 8]",
        "call prims.exp(x: Tensor)",
    ),
    "gives no operand": (lambda out, x: prims.concat(axis=0), "at least one operand", "prims.concat(*parts"),
    "gives a number": (lambda out, x: prims.add(x, 1), "operand 1 is a int", "prims.full(shape=x.shape"),
    "gives the type of the result": (lambda out, x: prims.exp(out), "is a TensorType", "def rule(out, x)"),
    "misspells an op": (lambda out, x: prims.expp(x), "the contract has no op 'expp'", "write prims.exp;"),
    "returns an op": (lambda out, x: prims.exp, "gives the op exp itself", "prims.exp(x: Tensor)"),
    "returns an op in a list": (lambda out, x: [x, prims.exp], "the op exp itself", "call it"),
    "returns nothing": (lambda out, x: None, "gives None", "return the value of a call"),
    "breaks a shape rule": (
        lambda out, x: prims.reduce_sum(x, axes=(7,)),
        "axes (7,)",
        "`backend-sdk spec reduce_sum`",
    ),
    "makes a foreign dtype": (
        lambda out, x: prims.convert(prims.exp(prims.convert(x, dtype=torch.int64)), dtype=out.dtype),
        "exp(int64[3, 8])",
        "convert the operands",
    ),
    "raises": (lambda out, x: 1 / 0, "raised ZeroDivisionError", "__cause__"),
}


@pytest.mark.parametrize(("rule", "message", "hint"), RULES.values(), ids=RULES)
def test_a_refusal_names_rule_op_and_types_and_says_what_to_do(refused, rule, message, hint):
    error = refused(rule)
    assert "<lambda> (test_rule_advice.py:" in error.message
    assert "of aten.expm1.default(float32[3, 8])" in error.message
    assert message in error.message
    assert hint in error.hint and "to fix: " in str(error)
    assert error.location is not None and "torch.expm1(x)" in error.location


def test_an_op_in_place_of_a_rule_is_refused_when_the_plugin_gives_it(registered):
    class Hooks:
        @hookimpl
        def sdk_decompositions(self):
            return {aten.add.Tensor: prims.add}

    backend_sdk.register_backend(Vendor(), hooks=Hooks())
    registered.append("vendor")
    with pytest.raises(BrokenPluginError, match="the op add itself as the rule for aten") as raised:
        backend_sdk.plugins.load_plugin("vendor").decompositions()
    assert "return prims.add(...)" in raised.value.hint


def test_no_shape_rule_refuses_without_advice():
    for op in CONTRACT:
        assert refuse(op.name, "it does not fit").hint
