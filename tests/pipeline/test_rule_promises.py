"""What a vendor's rule may not do is refused by name: foreign ops, loops, wrong results, changed inputs, clashes.

Without this a careless rule gives wrong numbers in somebody's model, or an error in a place that does not name it.
"""

from __future__ import annotations

import functools
import json
import logging
import sys

import pytest
import torch

import backend_sdk
from backend_sdk import errors, hookimpl, prims
from backend_sdk.backends.reference import ReferenceBackend
from backend_sdk.decomp.registry import RULES, all_rules, signature_fault
from backend_sdk.graph import GraphBuilder, Value
from backend_sdk.pipeline import rule_call
from backend_sdk.plugins.diagnosis import Status, check_load
from backend_sdk.plugins.probe import probe
from backend_sdk.spec import TensorType, building
from backend_sdk.torch_compat import decompositions
from backend_sdk.torch_compat.ops import AbsentOverload, is_overload
from backend_sdk.torch_compat.ops import aten as named_aten

aten = torch.ops.aten
HERE = __file__.rsplit("/", 1)[-1]


class Vendor(ReferenceBackend):
    name = "vendor"


@pytest.fixture
def vendor(registered):
    """``vendor({overload: rule})`` registers a backend with these rules; more tables, more hook implementations."""

    def register(*tables):
        functions = {}
        for number, table in enumerate(tables):

            def give(self, table=table):
                return table

            functions[f"give_{number}"] = hookimpl(give, specname="sdk_decompositions")
        backend_sdk.register_backend(Vendor(), hooks=type("Hooks", (), functions)())
        registered.append("vendor")

    return register


def compiled(function, *inputs, **options):
    return torch.compile(function, backend="sdk:vendor", options=options)(*inputs)


def model(x):
    return torch.sigmoid(torch.tanh(x))


# ---- results, operands and the graph

kept: dict[str, Value] = {}


def keeps_a_value(out, x):
    return prims.neg(kept.setdefault("x", x))


def of_another_graph(out, x):
    return GraphBuilder().input("x", out)


def lies_about_the_type(out, x):
    return Value(prims.convert(x, dtype=torch.float64).node, out)


def by_hand(op):
    """Puts a call into the graph without asking the builder."""

    def rule(out, x):
        node = x.node.graph.call_function(op, (x.node,))
        node.meta["type"] = out
        return Value(node, out)

    return rule


def adds_in_place(out, x):
    x += 1
    return x


def calls_itself(out, x):
    return calls_itself(out, x)


def first_of_two(out, x):
    return second_of_two(out, x)


def second_of_two(out, x):
    return first_of_two(out, prims.neg(x))


def sets_the_type(out, x):
    x.type = TensorType((7,), torch.float64)
    return prims.neg(x)


def sets_the_nodes_type(out, x):
    x.node.meta["type"] = TensorType((7,), torch.float64)
    return out and x


def renames(out, x):
    x.node.name = "other"
    return prims.neg(x)


def changes_the_operands_op(out, x):
    x.node.target = prims.sin
    return prims.neg(x)


def changes_its_own_node(out, x):
    result = prims.neg(x)
    result.node.target = prims.exp
    return result


def erases(out, x):
    unused = prims.cos(x)
    x.node.graph.erase_node(unused.node)
    return prims.neg(x)


class Callable:
    """A rule that is an object."""

    def __call__(self, out, x):
        return 7


PROMISES = {
    # Emits a non-contract op.
    "torch function": (lambda out, x: torch.neg(x), ["torch.neg is called on a value", "prims.neg(x)"]),
    "aten overload": (lambda out, x: aten.neg.default(x), ["aten.neg.default is called on a value", "prims.neg(x)"]),
    "functional": (lambda out, x: torch.nn.functional.gelu(x), ["gelu is called on a value"]),
    "method": (lambda out, x: x.sigmoid(), ["no 'sigmoid'", "not tensors", "backend-sdk spec"]),
    "operator": (lambda out, x: -x, ["TypeError", "not tensors"]),
    "aten call by hand": (by_hand(aten.neg.default), ["a call of aten.neg.default was put into the graph by hand"]),
    "contract call by hand": (by_hand(prims.neg), ["a call of neg was put into the graph by hand"]),
    "Python call by hand": (by_hand(abs), ["a call of <built-in function abs> was put into the graph by hand"]),
    "torch tensor": (lambda out, x: torch.zeros(3), ["gives a torch tensor, float32[3]", "op of the contract"]),
    "number": (lambda out, x: 1.0, ["gives 1.0", "prims.full"]),
    "number as operand": (lambda out, x: prims.add(x, 1.0), ["operand 1.0 is a float", "full"]),
    "nothing": (lambda out, x: None, ["gives None", "eager gives float32[3]"]),
    "string": (lambda out, x: "x", ["gives 'x'"]),
    "node": (lambda out, x: x.node, ["gives the fx node tanh"]),
    "node as operand": (lambda out, x: prims.neg(x.node), ["operand tanh is a Node"]),
    "bare type": (lambda out, x: out, ["gives the bare type float32[3]"]),
    "value of another graph": (of_another_graph, ["of another graph"]),
    "value of an earlier graph": (keeps_a_value, ["is of another graph", "keep none between calls"]),
    "value made by hand": (lies_about_the_type, ["no value that an op gave"]),
    "object": (Callable(), ["decomposition Callable", "gives 7"]),
    "partial": (functools.partial(lambda kind, out, x: kind, 7), ["decomposition <lambda>", "gives 7"]),
    # Loops.
    "calls itself": (calls_itself, ["never ends: calls_itself", "calls calls_itself", "NotImplemented"]),
    "call each other": (first_of_two, ["never ends", "first_of_two", "calls second_of_two"]),
    # Changes dtype, shape or the number of results.
    "dtype": (
        lambda out, x: prims.convert(x, dtype=torch.float64),
        ["gives float64[3], eager gives float32[3]", "prims.convert(result, dtype=out.dtype)"],
    ),
    "shape": (
        lambda out, x: prims.reshape(x, shape=(1, 3)),
        ["gives float32[1, 3], eager gives float32[3]", "out.shape"],
    ),
    "rank": (lambda out, x: prims.reduce_sum(x, axes=(0,)), ["gives float32[], eager gives float32[3]", "out.shape"]),
    "tuple": (lambda out, x: (x,), ["gives (float32[3],)", "return one value, float32[3], and no tuple"]),
    "list": (lambda out, x: [x], ["gives [float32[3]]", "and no list"]),
    # Mutates its input.
    "in-place method": (lambda out, x: x.add_(1), ["writes into its operand by add_()", "cannot be written"]),
    "in-place operator": (adds_in_place, ["+=", "not tensors"]),
    "in-place torch function": (lambda out, x: torch.sigmoid_(x), ["torch.sigmoid_ is called on a value"]),
    "value's type": (sets_the_type, ["property 'type' of 'Value' object has no setter", "not tensors"]),
    "node's type": (sets_the_nodes_type, ["tanh had the type float32[3] and now has float64[7]"]),
    "node's name": (renames, ["tanh had the name tanh and now has other"]),
    "operand's op": (changes_the_operands_op, ["node tanh had the op tanh and now has sin"]),
    "own op": (changes_its_own_node, ["node neg had the op neg and now has exp"]),
    "erased": (erases, ["changes the graph"]),
    # And what any function may do.
    "raises": (lambda out, x: 1 / 0, ["raised ZeroDivisionError"]),
    "exits": (lambda out, x: sys.exit(3), ["raised SystemExit: 3"]),
}


@pytest.mark.parametrize("case", PROMISES)
def test_a_broken_promise_names_rule_op_types_line_and_remedy(vendor, case):
    rule, words = PROMISES[case]
    vendor({aten.sigmoid.default: rule})
    x = torch.randn(3)
    with pytest.raises(errors.DecompositionError) as caught:
        # A value that a rule keeps is wrong in the next graph.
        for _ in range(2):
            torch._dynamo.reset()
            compiled(model, x)
    kept.clear()
    text = str(caught.value)
    assert text.startswith("decomposition ")
    for part in [
        "of aten.sigmoid.default(float32[3])",
        f"{HERE}:{model.__code__.co_firstlineno + 1}: return torch.sigmoid(torch.tanh(x))",
        *words,
    ]:
        assert part in text
    if case not in ("raises", "exits"):
        assert "to fix: " in text
    if hasattr(rule, "__code__"):
        assert f"({HERE}:{rule.__code__.co_firstlineno})" in text
    torch._dynamo.reset()
    torch.testing.assert_close(compiled(torch.tanh, x), torch.tanh(x))


def appends(out, x, dims, keepdim=False, *, dtype=None):
    dims.append(5)
    return prims.reduce_sum(x, axes=(0,))


def replaces_and_declines(out, x, dims, keepdim=False, *, dtype=None):
    dims[0] = 7
    return NotImplemented


def reverses_and_declines(out, tensors, dim=0):
    tensors.reverse()
    return NotImplemented


@pytest.mark.parametrize(
    ("overload", "rule", "function", "words"),
    [
        (aten.sum.dim_IntList, appends, lambda x: x.sum(0), ["float32[3, 2], [0]", "argument [0] to [0, 5]"]),
        (aten.sum.dim_IntList, replaces_and_declines, lambda x: x.sum(0), ["argument [0] to [7]"]),
        (
            aten.cat.default,
            reverses_and_declines,
            lambda x: torch.cat([x, x + 1]),
            ["[float32[3, 2], float32[3, 2]]", "to [add: float32[3, 2], arg0_1: float32[3, 2]]"],
        ),
    ],
    ids=["appends", "replaces", "reverses"],
)
def test_a_rule_may_not_change_its_lists(vendor, overload, rule, function, words):
    vendor({overload: rule})
    with pytest.raises(errors.DecompositionError) as caught:
        compiled(function, torch.randn(3, 2))
    for word in [rule.__name__, f"of {overload}", "changes its argument", "copy a list", HERE, *words]:
        assert word in str(caught.value)


def two(x):
    return torch.sort(x, dim=0)


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (lambda values, places: (places, values), ["(int64[3], float32[3])", "in eager's order: float32[3], int64[3]"]),
        (lambda values, places: (values,), ["(float32[3],)", "return 2 results"]),
        (lambda values, places: values, ["return a tuple of 2 results"]),
        (lambda values, places: (values, places, values), ["return 2 results"]),
        (lambda values, places: (values, prims.convert(places, dtype=torch.int32)), ["int32[3]", "prims.convert"]),
        (lambda values, places: (values, 0), ["prims.full"]),
    ],
    ids=["order", "too few", "bare", "too many", "dtype of one", "number"],
)
def test_wrong_results_of_several_are_named(vendor, result, words):
    def rule(out, x, dim=-1, descending=False):
        return result(*prims.sort(x, axis=0, descending=False))

    vendor({aten.sort.default: rule})
    with pytest.raises(errors.DecompositionError) as caught:
        compiled(two, torch.randn(3))
    for word in ["of aten.sort.default(float32[3]", "eager gives (float32[3], int64[3])", HERE, *words]:
        assert word in str(caught.value)


def test_what_a_rule_changes_later_is_found_before_anything_runs(vendor):
    held = []

    def holds(out, x):
        held.append(prims.neg(x))
        return held[-1]

    def spoils(out, x):
        held[0].node.target = prims.exp
        return prims.sin(x)

    vendor({aten.sigmoid.default: holds, aten.cos.default: spoils})
    with pytest.raises(
        errors.DecompositionError,
        match=r"after it had returned: node neg had the op neg and now has exp(.|\n)*holds.*spoils",
    ):
        compiled(lambda x, y: torch.sigmoid(x) * torch.cos(y), torch.randn(3), torch.randn(3))


# ---- loops through torch's decompositions and through bodies


def test_torchs_decompositions_that_lead_back_are_named_and_end_in_eager(vendor, monkeypatch):
    table = {
        **decompositions.table(),
        aten.sigmoid.default: lambda x: torch.ops.aten.logit.default(x),
        aten.logit.default: lambda x, eps=None: torch.ops.aten.sigmoid.default(x),
    }
    monkeypatch.setattr(decompositions, "table", lambda: table)
    declines = lambda out, x, *rest: NotImplemented  # noqa: E731
    monkeypatch.delitem(RULES, aten.sigmoid.default)
    vendor({aten.sigmoid.default: declines, aten.logit.default: declines})
    explanation = backend_sdk.explain(torch.sigmoid, torch.rand(3), backend="vendor")
    path = "aten.sigmoid.default -> aten.logit.default -> aten.sigmoid.default"
    (fallen,) = explanation.fallbacks
    assert f"aten.sigmoid.default: torch's decompositions lead back to it ({path})" in fallen.reasons


def test_a_composite_whose_body_calls_itself_is_named(monkeypatch):
    builder = GraphBuilder(lambda *_: False)
    x = builder.input("x", TensorType((3,), torch.float32))
    monkeypatch.setattr(prims.silu, "reference", lambda x: prims.silu(x))
    with building(builder), pytest.raises(errors.DialectError, match="silu calls silu with the same operands"):
        prims.silu(x)


# ---- whose rule


def test_a_rule_that_declines_leaves_the_call_to_ours(vendor):
    vendor({aten.sigmoid.default: lambda out, x: prims.neg(x) if x.ndim == 1 else NotImplemented})
    x = torch.randn(2, 3)
    explanation = backend_sdk.explain(torch.sigmoid, x, backend="vendor", options={"fallback": "error"})
    assert explanation.counts["fallback"] == 0
    assert explanation.graphs[0].vendor_rules == []
    torch.testing.assert_close(compiled(torch.sigmoid, x), torch.sigmoid(x))


def acme_sigmoid(out, x):
    return prims.neg(x)


def acme_celu(out, x, alpha=1.0):
    return prims.neg(x)


def test_a_clash_says_at_load_time_who_won_and_why(vendor, caplog):
    vendor({aten.sigmoid.default: acme_sigmoid})
    with caplog.at_level(logging.INFO, logger="backend_sdk"):
        compiled(torch.sigmoid, torch.randn(3))
        torch._dynamo.reset()
        compiled(torch.sigmoid, torch.randn(3))
    (line,) = [record.getMessage() for record in caplog.records if "comes before" in record.getMessage()]
    for part in ("plugin 'vendor'", f"acme_sigmoid ({HERE}", "aten.sigmoid.default", "the SDK's rule", "own backends"):
        assert part in line


def test_explain_says_whose_rule_decomposed_a_node(vendor):
    vendor({aten.sigmoid.default: acme_sigmoid, aten.celu.default: acme_celu})
    x = torch.randn(3)
    assert aten.sigmoid.default in all_rules() and aten.celu.default not in all_rules()
    explanation = backend_sdk.explain(lambda x: torch.celu(torch.sigmoid(x)) + 1, x, backend="vendor")
    sigmoid, celu, add = explanation.graphs[0].nodes
    (won,) = sigmoid.vendor_rules
    assert won.startswith(f"aten.sigmoid.default: the vendor's acme_sigmoid ({HERE}")
    assert won.endswith("in place of the SDK's sigmoid")
    (alone,) = celu.vendor_rules
    assert "acme_celu" in alone and "in place of" not in alone
    assert add.vendor_rules == []
    assert f"rule: {won}" in str(explanation)
    assert json.loads(json.dumps(explanation.to_json()))["graphs"][0]["nodes"][0]["vendor_rules"] == [won]


def test_two_implementations_with_a_rule_for_one_overload_are_refused(vendor):
    vendor({aten.sigmoid.default: acme_sigmoid}, {aten.sigmoid.default: acme_celu, aten.cos.default: acme_sigmoid})
    with pytest.raises(errors.BrokenPluginError) as caught:
        compiled(torch.sigmoid, torch.randn(3))
    for word in ("aten.sigmoid.default", "acme_sigmoid", "acme_celu", "keep one"):
        assert word in str(caught.value)


def test_two_implementations_with_different_overloads_add_up(vendor):
    vendor({aten.sigmoid.default: acme_sigmoid}, {aten.cos.default: acme_sigmoid})
    x = torch.randn(3)
    torch.testing.assert_close(compiled(lambda x: torch.cos(torch.sigmoid(x)), x), x)


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        (aten.sigmoid, "torch.ops.aten.sigmoid.default"),
        (aten.add, "torch.ops.aten.add.Tensor or torch.ops.aten.add.Scalar"),
        ("aten.add.Tensor", "name an overload: torch.ops.aten.add.Tensor\n"),
        ("torch.ops.aten.sigmoid", "torch.ops.aten.sigmoid.default"),
        ("aten::sigmoid", "torch.ops.aten.sigmoid.default"),
        ("sigmoid", "such as torch.ops.aten.add.Tensor"),
        (torch.sigmoid, "such as torch.ops.aten.add.Tensor"),
        (prims.neg, "such as torch.ops.aten.add.Tensor"),
        (None, "such as torch.ops.aten.add.Tensor"),
    ],
    ids=["packet", "packet of many", "string", "string of a packet", "name in C++", "bare", "function", "prim", "None"],
)
def test_a_key_that_is_no_overload_is_refused_with_advice(vendor, key, advice):
    vendor({key: acme_sigmoid})
    with pytest.raises(errors.BrokenPluginError) as caught:
        compiled(torch.sigmoid, torch.randn(3))
    assert "plugin 'vendor'" in str(caught.value) and repr(key) in str(caught.value)
    assert advice in str(caught.value) + "\n"


@pytest.mark.parametrize(
    ("overload", "rule", "words"),
    [
        (aten.sigmoid.default, lambda x: x, ["it takes (x)", "too many positional", "(out, self)"]),
        (aten.add.Tensor, lambda out, x, y: x, ["it takes (out, x, y)", "alpha", "(out, self, other, *, alpha=...)"]),
        (aten.sum.dim_IntList, lambda out, x, dims, *, dtype=None: x, ["(out, self, dim, keepdim=..., *, dtype=...)"]),
        (aten.softplus.default, lambda out, x, beta, threshold: x, ["missing a required argument: 'beta'"]),
        (aten.sigmoid.default, 7, ["7", "a function as the rule"]),
    ],
    ids=["no out", "no keyword", "no optional", "required", "no function"],
)
def test_a_rule_that_cannot_be_called_like_its_overload_is_refused_at_load(vendor, overload, rule, words):
    vendor({overload: rule})
    with pytest.raises(errors.BrokenPluginError) as caught:
        compiled(torch.tanh, torch.randn(3))
    for word in [str(overload), *words]:
        assert word in str(caught.value)


@pytest.mark.parametrize("rule", [functools.partial(lambda kind, out, x: prims.neg(x), 1), Callable().__call__])
def test_partials_and_methods_are_rules_too(rule):
    assert signature_fault(aten.sigmoid.default, rule) is None


# ---- our own table


def test_each_rule_of_ours_can_be_called_like_its_overload():
    faults = {op: signature_fault(op, rule) for op, rule in all_rules().items() if is_overload(op)}
    assert {op: fault for op, fault in faults.items() if fault} == {}
    assert len(faults) > 500


def test_each_module_of_rules_bears_an_overload_that_torch_lacks():
    all_rules()
    modules = [module for name, module in sys.modules.items() if name.startswith("backend_sdk.decomp.")]
    assert len(modules) > 20
    assert [module.__name__ for module in modules if vars(module).get("aten", named_aten) is not named_aten] == []


def test_an_overload_that_torch_lacks_is_named_and_equals_nothing_that_a_graph_calls():
    assert named_aten.add.Tensor is aten.add.Tensor
    for absent in (named_aten.no_such_op.default, named_aten.add.no_such_overload):
        assert isinstance(absent, AbsentOverload)
        assert not is_overload(absent)
    assert str(named_aten.no_such_op.default) == "aten.no_such_op.default"
    assert named_aten.no_such_op.default == named_aten.no_such_op.default
    assert named_aten.no_such_op.overloads() == []


def test_doctor_says_which_rules_come_before_ours(packages):
    packages.working("acme")
    module = packages.folder / "acme_sdk.py"
    module.write_text(
        module.read_text()
        + "\n\nimport torch\n\n\ndef acme_sigmoid(out, x):\n    return x\n\n\n@hookimpl\ndef sdk_decompositions():\n"
        "    aten = torch.ops.aten\n"
        "    return {aten.sigmoid.default: acme_sigmoid, aten.celu.default: lambda out, x, alpha=1.0: x}\n"
    )
    (report,) = probe(["acme"])
    check = check_load(report)
    assert check.status == Status.OK
    assert "adds 2 decompositions" in check.detail
    assert "its rule acme_sigmoid (acme_sdk.py:17) for aten.sigmoid.default comes before the SDK's" in check.detail
    assert "celu" not in check.detail


def test_a_rule_that_adds_ops_without_end_is_refused(vendor, monkeypatch):
    monkeypatch.setattr(rule_call, "_MOST_OPS", 1000)

    def endless(out, x):
        while True:
            x = prims.neg(x)

    vendor({aten.tanh.default: endless})
    with pytest.raises(
        errors.DecompositionError, match=r"endless .* of aten\.tanh\.default\(float32\[3\]\): it adds ops without"
    ):
        compiled(model, torch.ones(3))
