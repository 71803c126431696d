"""Decompose and claim: from an aten graph to a graph of what the backend takes.

Each aten node is kept when the backend claims it, else goes through the first of: a rule of ours (or the
vendor's), torch's decomposition, eager. A composite that the backend refuses is replaced by its body.

Does not: place prims that the backend refuses (partition does); it only marks them with the reason.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
from torch import fx

from backend_sdk import dtypes, prims
from backend_sdk.backend import Backend
from backend_sdk.contract import op_name
from backend_sdk.decomp import rule_of
from backend_sdk.decomp.registry import Declined, Layout, Memory, Rule, rule_name
from backend_sdk.errors import DecompositionError
from backend_sdk.graph import GraphBuilder, Origin, Value, define, is_open, solve
from backend_sdk.graph.runnable import symbols_of
from backend_sdk.pipeline.capture import Captured, boundary_type, check_device, dim_of, tensor_type, user_location
from backend_sdk.pipeline.claim import Claims, ask_about
from backend_sdk.pipeline.options import Options
from backend_sdk.pipeline.report import DECOMPOSED, FALLBACK, FREE, HOST, NATIVE, NodeReport
from backend_sdk.pipeline.rule_call import Stranger, advice, call_rule, leaves, shown_result
from backend_sdk.spec import Prim, Shape, SymExpr, TensorType, building, differ
from backend_sdk.spec.symbolic import Dim, contiguous_strides
from backend_sdk.torch_compat import decompositions
from backend_sdk.torch_compat.ops import (
    draws,
    has_effect,
    is_check,
    is_higher_order,
    is_overload,
    is_random,
    name_arguments,
)

# Why the host runs a call.
_CHECKS_DATA = "checks the data, and raises as eager does"


@dataclass
class Dialect:
    """The graph after decomposition. ``outputs`` mirror the captured graph's: nodes, symbolic numbers or None.

    ``attributes`` are the targets of ``get_attr`` nodes. ``key`` is the hidden input that random ops read.
    """

    graph: fx.Graph
    captured: Captured
    outputs: list[Any]
    attributes: dict[str, Any]
    key: fx.Node | None
    work: list[tuple[NodeReport, list[fx.Node]]] = field(default_factory=list)

    def reread_outputs(self) -> None:
        """Take over the results from the graph's output node, after a pass has changed the graph."""
        returned = iter(self.graph.output_node().args[0])  # type: ignore[arg-type]
        self.outputs = [next(returned) if isinstance(item, fx.Node) else item for item in self.outputs]

    def adopt_new_nodes(self) -> None:
        """Give every call that a pass has added a report of its own, so that none escapes the fallback policy."""
        alive = set(self.graph.nodes)
        self.work = [(report, [node for node in added if node in alive]) for report, added in self.work]
        owned = {node for _, living in self.work for node in living}
        for node in self.graph.nodes:
            if node.op == "call_function" and node.target is not operator.getitem and node not in owned:
                origin = node.meta.get("origin") or Origin("")
                self.work.append((NodeReport(node.name, origin.op or op_name(node.target), FREE), [node]))

    def judged(self) -> list[NodeReport]:
        """The captured nodes with their verdicts, once it is known which nodes eager runs."""
        for report, living in self.work:
            report.ops = [op_name(node.target) for node in living]
            refusals = [f"{op_name(node.target)}: {node.meta['refusal']}" for node in living if "refusal" in node.meta]
            if refusals:
                report.verdict = FALLBACK
                report.reasons = list(dict.fromkeys([*report.reasons, *refusals]))
            elif living and all("host" in node.meta for node in living if node.target is not operator.getitem):
                report.verdict = HOST
                report.reasons = list(dict.fromkeys(str(node.meta["host"]) for node in living if "host" in node.meta))
            elif living:
                hosted = [node.meta["host"] for node in living if "host" in node.meta]
                computing = [node for node in living if "host" not in node.meta and not is_structural(node.target)]
                report.reasons = list(dict.fromkeys([*report.reasons, *hosted]))
                report.verdict = NATIVE if len(computing) <= 1 else DECOMPOSED
        return [report for report, _ in self.work]


def is_structural(op: Any) -> bool:
    """Whether an op only shapes, converts or makes constants: an aten op that becomes one other op and some of
    these is native.
    """
    return isinstance(op, Prim) and op.structural


def decompose(
    captured: Captured,
    backend: Backend,
    rules: Mapping[Any, Rule],
    options: Options,
    vendor_rules: Mapping[Any, Rule] = MappingProxyType({}),
) -> Dialect:
    """Translate a captured graph. ``vendor_rules`` are asked before ``rules``, which are ours.

    Raises `DecompositionError` for a rule that breaks its promise and `DeviceError` for an input on a foreign device.
    """
    return _Translation(captured, backend, rules, options, vendor_rules).run()


class _Translation:
    def __init__(
        self,
        captured: Captured,
        backend: Backend,
        rules: Mapping[Any, Rule],
        options: Options,
        vendor_rules: Mapping[Any, Rule],
    ) -> None:
        self._captured = captured
        self._backend = backend
        self._rules = rules
        self._vendor_rules = vendor_rules
        self._replaced: list[str] = []
        self._options = options
        self._claims = Claims(backend, captured.kind)
        self._builder = GraphBuilder(self._claims.composite)
        self._attributes: dict[str, Any] = {}
        self._key: Value | None = None
        self._streams = 0
        self._work: list[tuple[NodeReport, list[fx.Node]]] = []

    # ---- the walk over the captured graph

    def run(self) -> Dialect:
        values: dict[fx.Node, Any] = {}
        graph = self._captured.graph.graph
        placeholders = [node for node in graph.nodes if node.op == "placeholder"]
        for node in placeholders:
            values[node] = self._placeholder(node)
        self._solve_sizes([values[node] for node in placeholders], graph)
        for node in graph.nodes:
            if node.op == "get_attr":
                values[node] = self._constant(self._captured.graph, node)
            elif node.op == "call_function":
                self._translate_reported(node, values)
        outputs = [self._output(item, values) for item in graph.output_node().args[0]]  # type: ignore[union-attr]
        return self._finish(outputs)

    def _placeholder(self, node: fx.Node) -> Any:
        value = node.meta.get("val")
        name = node.name
        if isinstance(value, torch.Tensor):
            check_device(value, name, self._backend.device, self._backend.name)
            result = self._builder.input(name, tensor_type(value))
            result.node.meta["boundary"] = boundary_type(value)
            self._builder.bind(result.type)
            return result
        inner = self._builder.graph.placeholder(name)
        number = dim_of(value)
        inner.meta["type"] = number
        inner.meta["origin"] = Origin("")
        self._builder.bind(number)
        return number if isinstance(number, SymExpr) else inner

    def _solve_sizes(self, inputs: list[Any], graph: fx.Graph) -> None:
        """Bind what the sizes of the inputs are made of. torch may name what a forward graph's data decide anew in the
        backward graph, and leave the old names in the sizes of the incoming gradients.
        """
        unbound = [value for value in inputs if isinstance(value, Value) and not self._is_bound(value.type)]
        if not unbound:
            return
        bindings = [node.meta.get("unbacked_bindings") or {} for node in graph.nodes]
        decided = frozenset(str(symbol) for found in bindings for symbol in found)
        with building(self._builder):
            for value in unbound:
                for axis in range(value.ndim):
                    solve(value, axis, decided)

    def _is_bound(self, type: Any) -> bool:
        return symbols_of(type) <= self._builder.symbols

    def _constant(self, module: fx.GraphModule, node: fx.Node) -> Any:
        target: Any = module
        for part in str(node.target).split("."):
            target = getattr(target, part)
        name = f"constant_{len(self._attributes)}"
        self._attributes[name] = target
        # fx warns about get_attr targets that its owning module lacks; these are resolved by the plan.
        inner = self._builder.graph.create_node("get_attr", name)
        inner.meta["origin"] = Origin("")
        if isinstance(target, torch.Tensor):
            inner.meta["boundary"] = boundary_type(target)
            inner.meta["type"] = TensorType(tuple(target.shape), target.dtype)
            return Value(inner, inner.meta["type"])
        inner.meta["type"] = None
        return inner

    def _translate_reported(self, node: fx.Node, values: dict[fx.Node, Any]) -> None:
        report = NodeReport(node.name, op_name(node.target), FREE, location=user_location(node))
        self._builder.origin = Origin(report.op, report.location)
        self._claims.refusals.clear()
        self._replaced.clear()
        self._claims.location = report.location
        start = len(self._builder.added)
        values[node] = self._translate(node, values, ())
        added = self._builder.added[start:]
        if added or is_overload(node.target):
            report.reasons = list(dict.fromkeys(self._claims.refusals))
            report.vendor_rules = list(dict.fromkeys(self._replaced))
            self._work.append((report, added))

    def _output(self, item: Any, values: dict[fx.Node, Any]) -> Any:
        value = values[item] if isinstance(item, fx.Node) else item
        return value.node if isinstance(value, Value) else value

    # ---- one node

    def _translate(self, node: fx.Node, values: dict[fx.Node, Any], outer: tuple[Any, ...]) -> Any:
        target = node.target
        if target is operator.getitem:
            return values[node.args[0]][node.args[1]]  # type: ignore[index]
        self._correct(node)
        value = node.meta.get("val")
        number = dim_of(value)
        if isinstance(number, (int, float)) or (
            isinstance(number, SymExpr) and number.symbols <= self._builder.symbols
        ):
            return number
        args = _substitute(node.args, values)
        kwargs = _substitute(node.kwargs, values)
        expected = _types(value)
        undescribed = "val" not in node.meta and is_higher_order(target) and bool(node.users)
        if undescribed:
            # Calls that torch inserts while it partitions (saving a random state) carry no fake value.
            expected = _types_of_picks(node)
        elsewhere = self._device_elsewhere(node)
        if elsewhere is not None:
            return self._eager(node, args, kwargs, expected, f"the backend does not take tensors on {elsewhere}")
        if is_check(target, node.args):
            return self._on_host(self._foreign(node, args, kwargs, expected), _CHECKS_DATA)
        if is_overload(target) and not self._is_opaque((args, kwargs), value):
            reason = "no decomposition reaches the contract"
            for attempt in (self._claimed, self._by_rule, self._by_torch):
                found, result = attempt(node, args, kwargs, expected, outer)
                if found:
                    return result
                reason = result.reason if isinstance(result, Declined) else reason
            return self._eager(node, args, kwargs, expected, reason)
        result = self._eager(node, args, kwargs, expected, _why_foreign(target, args, kwargs))
        return self._with_undescribed(result) if undescribed else result

    def _correct(self, node: fx.Node) -> None:
        """Compute a node's fake value anew when it speaks of a size that neither it nor a call before it decides.

        torch merges equal calls, such as ``x[x > 0]`` written twice, and leaves the size of the call that is gone in
        what was computed from it.
        """
        if node.meta.get("unbacked_bindings") or is_higher_order(node.target) or not node.all_input_nodes:
            return
        if self._is_bound(_types(node.meta.get("val"))):
            return
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda operand: operand.meta["val"])
        node.meta["val"] = node.target(*args, **kwargs)  # type: ignore[operator]

    def _device_elsewhere(self, node: fx.Node) -> str | None:
        """The device of an operand or result that the backend's memory is not, or None."""
        found: list[Any] = []
        for value in (node.meta.get("val"), *(source.meta.get("val") for source in node.all_input_nodes)):
            fx.node.map_aggregate(value, lambda item: found.append(item))
        for item in found:
            if isinstance(item, torch.Tensor) and not self._backend.device.accepts(item.device):
                return repr(str(item.device))
        return None

    def _with_undescribed(self, result: tuple[Any, ...]) -> tuple[Any, ...]:
        """The results of the call just added, picked as they come where torch did not say what they are."""
        call = next(made for made in reversed(self._builder.added) if "layouts" in made.meta)
        return tuple(self._pick(call, index) if value is None else value for index, value in enumerate(result))

    def _pick(self, call: fx.Node, index: int) -> fx.Node:
        pick = self._builder.graph.call_function(operator.getitem, (call, index))
        pick.meta["type"] = None
        pick.meta["origin"] = self._builder.origin
        return pick

    def _is_opaque(self, arguments: Any, value: Any) -> bool:
        """Whether an argument or result is neither a number nor a dense strided tensor of a dtype of the contract."""
        found: list[Any] = []
        fx.node.map_aggregate(
            arguments, lambda item: found.append(isinstance(item, fx.Node) or _is_foreign_value(item))
        )
        fx.node.map_aggregate(
            value,
            lambda item: found.append(
                isinstance(item, torch.Tensor) and (item.layout != torch.strided or item.dtype not in dtypes.STORED)
            ),
        )
        return any(found)

    def _claimed(
        self, node: fx.Node, args: Any, kwargs: Any, expected: Any, outer: tuple[Any, ...]
    ) -> tuple[bool, Any]:
        results = _flat_types(expected)
        if results is None:
            return False, None
        call = self._claims.overload(node.target, args, kwargs, results)
        if call is None:
            return False, None
        result = self._foreign(node, args, kwargs, expected)
        self._builder.added[-1].meta["call"] = call
        return True, result

    def _by_rule(
        self, node: fx.Node, args: Any, kwargs: Any, expected: Any, outer: tuple[Any, ...]
    ) -> tuple[bool, Any]:
        target: Any = node.target
        if draws(target, args, kwargs) and self._options.random == "eager":
            result = self._eager(node, args, kwargs, expected, "random numbers by eager, as the options ask")
            self._builder.added[-1].meta["requested"] = True
            return True, result
        declined: Any = None
        theirs, ours = self._vendor_rules.get(target), rule_of(self._rules, target)
        for rule in (theirs, ours):
            if rule is None:
                continue
            result = self._apply(rule, node, args, kwargs, expected)
            if result is NotImplemented or isinstance(result, Declined):
                declined = result
                continue
            if rule is theirs:
                instead = f" in place of the SDK's {rule_name(ours)}" if ours is not None else ""
                self._replaced.append(f"{op_name(target)}: the vendor's {rule_name(rule)}{instead}")
            return True, result
        return False, declined

    def _apply(self, rule: Rule, node: fx.Node, args: Any, kwargs: Any, expected: Any) -> Any:
        """What a rule gives, held to its promise; `NotImplemented` or `Declined` when it does not cover these
        arguments.
        """
        changed = self._builder.changed_among(leaf.node for leaf in leaves((args, kwargs)) if isinstance(leaf, Value))
        if changed is not None:
            raise self._spoilt(changed)
        start = len(self._builder.added)
        leading: tuple[Any, ...] = (expected,)
        if getattr(rule, "draws", False):
            leading = (expected, self._random_key(), self._next_stream())
        elif getattr(rule, "reads_memory", False):
            leading = (expected, _memory(node))
        elif getattr(rule, "checks", False):
            leading = (expected, self._check)
        describe = functools.partial(_describe_call, node.target, args, kwargs)
        result = call_rule(rule, leading, args, kwargs, self._builder, describe)
        if result is NotImplemented or isinstance(result, Declined):
            return result
        result = self._with_masked_results(node, result, expected)
        self._check_result(rule, node.target, args, kwargs, result, expected)
        self._define_open(result, expected)
        ask_about(self._builder.added[start:], self._claims)
        return result

    def _by_torch(
        self, node: fx.Node, args: Any, kwargs: Any, expected: Any, outer: tuple[Any, ...]
    ) -> tuple[bool, Any]:
        target: Any = node.target
        if target in outer:
            path = " -> ".join(map(op_name, (*outer[outer.index(target) :], target)))
            self._claims.refusals.append(f"{op_name(target)}: torch's decompositions lead back to it ({path})")
            return False, None
        if draws(target, args, kwargs):
            return False, None
        fake_args = fx.node.map_arg(node.args, lambda n: n.meta["val"])
        fake_kwargs = fx.node.map_arg(node.kwargs, lambda n: n.meta["val"])
        try:
            graph = _torch_decomposition(target, fake_args, fake_kwargs)
        except Exception as error:
            self._claims.refusals.append(
                f"{op_name(target)}: torch's decomposition fails on these arguments "
                f"({type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''})"
            )
            return False, None
        if graph is None:
            return False, None
        leaves: list[Any] = []
        fx.node.map_aggregate((args, kwargs), lambda item: leaves.append(item))
        tensors = iter([leaf for leaf in leaves if isinstance(leaf, Value)])
        inner: dict[fx.Node, Any] = {}
        result: Any = None
        for step in graph.graph.nodes:
            if step.op == "placeholder":
                inner[step] = next(tensors)
            elif step.op == "get_attr":
                inner[step] = self._constant(graph, step)
            elif step.op == "call_function":
                inner[step] = self._translate(step, inner, (*outer, target))
            elif step.op == "output":
                result = _substitute(step.args[0], inner)
        if isinstance(expected, tuple) and isinstance(result, (list, tuple)):
            result = tuple(result)
        self._check_result(None, target, args, kwargs, result, expected)
        self._define_open(result, expected)
        return True, result

    def _eager(self, node: fx.Node, args: Any, kwargs: Any, expected: Any, reason: str) -> Any:
        result = self._foreign(node, args, kwargs, expected)
        self._builder.added[-1].meta["refusal"] = reason
        self._claims.refusals.append(f"{op_name(node.target)}: {reason}")
        return result

    def _check(self, op: Any, *args: Any, **kwargs: Any) -> None:
        """Add a check within a rule. torch's kernels of checks want dense operands."""
        call = self._builder.call_foreign(op, args, kwargs)
        call.meta["layouts"] = [
            contiguous_strides(leaf.shape) for leaf in leaves((args, kwargs)) if isinstance(leaf, Value)
        ]
        self._on_host(self._typed(call, None), _CHECKS_DATA)

    def _on_host(self, result: Any, reason: str) -> Any:
        """Mark the call just added as one that eager runs and that is no fallback."""
        self._builder.added[-1].meta["host"] = reason
        return result

    def _foreign(self, node: fx.Node, args: Any, kwargs: Any, expected: Any) -> Any:
        """Add the captured call as it is. Its operands must get the strides that eager would give them."""
        layouts: list[Any] = []
        fx.node.map_arg(
            (node.args, node.kwargs),
            lambda n: layouts.append(_layout(n.meta["val"])) if isinstance(n.meta.get("val"), torch.Tensor) else None,
        )
        inner = self._builder.call_foreign(node.target, args, kwargs)
        inner.meta["layouts"] = layouts
        result = self._typed(inner, expected)
        made = [inner]
        for node in made:
            self._bind_sizes(node)
            made += node.users
        return result

    def _typed(self, inner: fx.Node, expected: Any) -> Any:
        if isinstance(expected, (SymExpr, type(None))):
            self._builder.typed(inner, (expected,), single=True)
            return expected
        results = expected if isinstance(expected, tuple) else (expected,)
        return self._builder.typed(inner, results, single=not isinstance(expected, tuple))

    def _bind_sizes(self, made: fx.Node) -> None:
        """Remember which sizes only this call's data decides: whoever computes with them comes after it."""
        new = self._builder.bind(made.meta["type"])
        if new:
            made.meta["binds"] = new

    # ---- questions and checks

    def _check_result(self, rule: Any, target: Any, args: Any, kwargs: Any, result: Any, expected: Any) -> None:
        got = shown_result(result, self._builder)
        # A result that eager leaves undefined may be computed all the same.
        if _matches(got, expected):
            return
        name = f"decomposition {rule_name(rule)}" if rule is not None else "torch's decomposition"
        raise DecompositionError(
            f"{name} of {_describe_call(target, args, kwargs)} gives {got}, eager gives {expected}",
            location=self._builder.origin.location,
            hint=advice(got, expected)
            if rule is not None
            else f"return a rule for {op_name(target)} from the plugin's sdk_decompositions(), and report this: the "
            "fault is torch's",
        )

    def _spoilt(self, changed: str) -> DecompositionError:
        suspects = ", ".join(dict.fromkeys(map(rule_name, self._vendor_rules.values()))) or "none"
        return DecompositionError(
            f"a decomposition changed the graph after it had returned: {changed}",
            location=self._builder.origin.location,
            hint=f"a rule may keep no value between calls; the rules of the backend's plugin: {suspects}",
        )

    def _define_open(self, result: Any, expected: Any) -> None:
        """Bind the sizes that torch left open and a rule's result has as an expression."""
        if isinstance(expected, tuple):
            for item, type in zip(result, expected, strict=True):
                self._define_open(item, type)
            return
        pairs: list[tuple[Any, Any]] = [(result, expected)]
        if isinstance(result, Value) and isinstance(expected, TensorType):
            pairs = list(zip(result.shape, expected.shape, strict=True))
        with building(self._builder):
            for found, number in pairs:
                if is_open(number):
                    define(number, found)

    def _with_masked_results(self, node: fx.Node, result: Any, expected: Any) -> Any:
        """Zeros for the gradients that ``output_mask`` leaves out: eager gives an undefined tensor there, which
        torch's tracing shows with a shape.
        """
        mask = name_arguments(node.target, node.args, dict(node.kwargs)).get("output_mask")  # type: ignore[arg-type]
        if mask is None or not isinstance(result, tuple) or len(mask) != len(result):
            return result
        with building(self._builder):
            return tuple(
                prims.full(shape=type.shape, value=0, dtype=type.dtype)
                if value is None and not wanted and isinstance(type, TensorType)
                else value
                for value, wanted, type in zip(result, mask, expected, strict=True)
            )

    def _random_key(self) -> Value:
        if self._key is None:
            self._key = self._builder.input("random_key", TensorType((1,), torch.int64))
        return self._key

    def _next_stream(self) -> int:
        self._streams += 1
        return self._streams

    # ---- the end

    def _finish(self, outputs: list[Any]) -> Dialect:
        graph = self._builder.graph
        changed = self._builder.changed()
        if changed is not None:
            raise self._spoilt(changed)
        graph.output(tuple(item for item in outputs if isinstance(item, fx.Node)))
        graph.eliminate_dead_code(is_impure_node=_must_stay)
        alive = set(graph.nodes)
        work = [(report, [node for node in added if node in alive]) for report, added in self._work]
        key = self._key.node if self._key is not None else None
        return Dialect(graph, self._captured, outputs, self._attributes, key, work)


def _must_stay(node: fx.Node) -> bool:
    """Whether a node counts even when nothing reads its value: an input, or a call with an effect."""
    if node.op in ("placeholder", "output"):
        return True
    if node.meta.get("binds"):
        return True
    if node.op != "call_function" or isinstance(node.target, Prim) or node.target is operator.getitem:
        return False
    return node.meta.get("type") is None or has_effect(node.target)


def _why_foreign(target: Any, args: Any, kwargs: Any) -> str:
    """Why a call is not of the dialect's kind."""
    if is_higher_order(target):
        return "higher-order op: runs in eager"
    if is_random(target) and name_arguments(target, args, kwargs).get("generator") is not None:
        return "draws from a generator of its own, where a graph has one key: runs in eager"
    return "op outside aten's dense tensors: runs in eager"


def _substitute(arguments: Any, values: Mapping[fx.Node, Any]) -> Any:
    boxed: Any = fx.node.map_arg(arguments, lambda node: _Boxed(values[node]))  # type: ignore[arg-type, return-value]
    return _plain(boxed)


class _Boxed:
    """Carries a value through fx's argument mapping, which treats tuples of values as containers."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def _plain(arguments: Any) -> Any:
    if isinstance(arguments, _Boxed):
        return arguments.value
    if isinstance(arguments, tuple):
        return tuple([_plain(item) for item in arguments])
    if isinstance(arguments, list):
        return [_plain(item) for item in arguments]
    if isinstance(arguments, dict):
        return {key: _plain(item) for key, item in arguments.items()}
    return arguments


def _types(value: Any) -> Any:
    """Types of a node's fake value: a `TensorType`, a `SymExpr`, None, or a tuple of them."""
    if isinstance(value, torch.Tensor):
        return tensor_type(value)
    if isinstance(value, (tuple, list)):
        return tuple(_types(item) for item in value)
    return dim_of(value)


def _is_foreign_value(item: Any) -> bool:
    return isinstance(item, Value) and item.dtype not in dtypes.STORED


def _types_of_picks(node: fx.Node) -> tuple[Any, ...]:
    """Types of the results of a call without a fake value, by the calls that pick them; None where unknown."""
    picks = {int(user.args[1]): user for user in node.users if user.target is operator.getitem}  # type: ignore[arg-type]
    return tuple(
        _types(picks[index].meta.get("val")) if index in picks else None for index in range(max(picks, default=-1) + 1)
    )


def _flat_types(expected: Any) -> tuple[TensorType, ...] | None:
    types = expected if isinstance(expected, tuple) else (expected,)
    return types if all(isinstance(type, TensorType) for type in types) else None


def _matches(got: Any, expected: Any) -> bool:
    if isinstance(expected, tuple):
        return (
            isinstance(got, (tuple, list))
            and len(got) == len(expected)
            and all(_matches(g, e) for g, e in zip(got, expected, strict=True))
        )
    if isinstance(got, Stranger):
        return False
    if isinstance(got, TensorType) and isinstance(expected, TensorType):
        return got.dtype == expected.dtype and not differ(got.shape, expected.shape)
    return expected is None or got == expected


def _layout(value: torch.Tensor) -> tuple[Any, ...] | None:
    return tuple(map(dim_of, value.stride())) if value.layout == torch.strided else None


def _memory(node: fx.Node) -> Memory:
    operands: list[Any] = []
    fx.node.map_arg((node.args, node.kwargs), lambda inner: operands.append(inner.meta.get("val")))
    value = node.meta["val"]
    return Memory(_layouts(operands), _layouts(value if isinstance(value, (tuple, list)) else (value,)))


def _layouts(values: Iterable[Any]) -> tuple[Layout, ...]:
    found = []
    for value in values:
        if isinstance(value, torch.Tensor):
            shape, strides = tuple(map(dim_of, value.shape)), tuple(map(dim_of, value.stride()))
            found.append(Layout(_is_contiguous(shape, strides), strides, dim_of(value.storage_offset())))
    return tuple(found)


def _is_contiguous(shape: Shape, strides: Shape) -> bool:
    """Whether it is known: torch's own question makes a guard of it, which a size that the data decide cannot have."""
    step: Dim = 1
    for size, stride in reversed(list(zip(shape, strides, strict=True))):
        if size != 1 and stride != step:
            return 0 in shape
        step = step * size
    return True


def _describe_call(target: Any, args: Any, kwargs: Any) -> str:
    def show(item: Any) -> str:
        return str(item.type) if isinstance(item, Value) else repr(item)

    parts = [f"[{', '.join(map(show, item))}]" if isinstance(item, (list, tuple)) else show(item) for item in args]
    parts += [f"{key}={show(item)}" for key, item in kwargs.items()]
    return f"{op_name(target)}({', '.join(parts)})"


_DECOMPOSED_BY_TORCH: dict[Any, fx.GraphModule | None] = {}
_MOST_REMEMBERED = 4096


def _torch_decomposition(target: Any, args: Any, kwargs: Any) -> fx.GraphModule | None:
    """torch's decomposition, remembered for static arguments: models repeat their layers."""
    key = _static_key(target, args, kwargs)
    if key is None:
        return decompositions.decompose(target, args, kwargs)
    if key not in _DECOMPOSED_BY_TORCH:
        if len(_DECOMPOSED_BY_TORCH) >= _MOST_REMEMBERED:
            _DECOMPOSED_BY_TORCH.clear()
        _DECOMPOSED_BY_TORCH[key] = decompositions.decompose(target, args, kwargs)
    return _DECOMPOSED_BY_TORCH[key]


def _static_key(target: Any, args: Any, kwargs: Any) -> Any:
    static = True
    places: dict[int, int] = {}

    def show(item: Any) -> Any:
        nonlocal static
        if isinstance(item, torch.Tensor):
            # The graph of op(x, x) reads one input only: it is not the graph of op(x, y).
            place = places.setdefault(id(item), len(places))
            layout = (tuple(item.shape), tuple(item.stride()), item.dtype, item.requires_grad, place)
            static = static and all(isinstance(n, int) for part in layout[:2] for n in part)
            return repr(layout)
        if isinstance(item, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            static = False
        return repr(item)

    shown = fx.node.map_aggregate((args, kwargs), show)
    return (target, repr(shown), torch.get_default_dtype()) if static else None
