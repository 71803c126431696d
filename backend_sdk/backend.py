"""`Backend`: the class that a hardware vendor writes. Read this file first.

Three ways in, freely mixed:

1. a plain function on tensors per op, marked ``@implements(prims.exp)``;
2. (with the loop IR) a renderer;
3. ``lower(region)``: your own compiler takes a whole region and returns a `Kernel`.

Does not: find installed backends (`backend_sdk.plugins`) or drive the pipeline.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

import torch

from backend_sdk import dtypes as dtype_sets
from backend_sdk.contract import YES, Capability, Kernel, Limitation, Node, Op, Region, Support, no, op_name
from backend_sdk.errors import LoweringError, RegistryError, nearest
from backend_sdk.prims import CONTRACT
from backend_sdk.runtime.device import HOST, Device
from backend_sdk.runtime.function_kernel import function_kernel, node_location
from backend_sdk.spec import Prim, TensorType
from backend_sdk.torch_compat.ops import call_forms, is_overload, parameters

_MARK = "__backend_sdk_implementations__"

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Implementation:
    """A plain function that computes ``op`` for some dtypes and shapes."""

    op: Op
    function: Callable[..., Any]
    dtypes: frozenset[torch.dtype] | None
    when: Callable[[Node], Support] | None

    def accepts(self, node: Node) -> Support:
        """Whether this function computes ``node``, with the reason if not."""
        if self.dtypes is not None:
            # Of an op with operands the dtypes of the results follow: those of a comparison are bool.
            for type in [type for type in node.operands if type is not None] or node.results:
                if type.dtype not in self.dtypes:
                    known = ", ".join(sorted(map(dtype_sets.name, self.dtypes)))
                    return no(f"its kernel for {node.name} takes {known}, not {dtype_sets.name(type.dtype)}")
        return self.when(node) if self.when is not None else YES


def implements(
    *ops: Op,
    dtypes: Iterable[torch.dtype] | None = None,
    when: Callable[[Node], Support] | None = None,
) -> Callable[[_F], _F]:
    """Mark a plain function as the implementation of ``ops``.

    A contract op's function takes the op's operands by position and its attributes by keyword, under the op's
    own names. An aten overload's function takes what the overload's schema says, keyword-only arguments by name,
    and may be called without those that have a default; claiming it keeps the overload from being decomposed.
    ``dtypes`` limits the operands, all of them (the mask of a ``select`` is bool), and the results only of an op
    without operands (``iota``); ``when(node)`` may refuse with a reason (`contract.no`). Several functions may
    implement one op: the first that accepts a node runs it.

    Raises `RegistryError` for something that is not an op, a function that cannot be called like the op, and for what
    is no dtype, or dtypes of which the op has none.
    """
    if not ops:
        raise RegistryError("implements() names no op", hint="write @implements(prims.exp)")
    taken = frozenset(dtypes) if dtypes is not None else None

    def mark(function: _F) -> _F:
        for op in ops:
            _check_implementation(op, function)
            _check_dtypes(op, taken)
            found = list(getattr(function, _MARK, ()))
            found.append(Implementation(op, function, taken, when))
            setattr(function, _MARK, tuple(found))
        return function

    return mark


def _check_implementation(op: Op, function: Callable[..., Any]) -> None:
    if is_overload(op):
        _check_overload(op, function)
        return
    if not isinstance(op, Prim):
        raise RegistryError(
            f"@implements({op!r}): not an op",
            hint="name a contract op (prims.exp) or an aten overload (torch.ops.aten.exp.default)",
        )
    try:
        inspect.signature(function).bind(*op.operand_names, **dict.fromkeys(op.attribute_names))
    except TypeError as error:
        raise RegistryError(
            f"@implements(prims.{op.name}): {function.__name__}() cannot be called like the op: {error}",
            hint=f"def {op.name}({_parameters(op)}):",
        ) from None


def _check_dtypes(op: Op, taken: frozenset[Any] | None) -> None:
    for dtype in taken or ():
        if not isinstance(dtype, torch.dtype):
            raise RegistryError(
                f"@implements({op}, dtypes=...): {dtype!r} is no dtype", hint="name torch dtypes: {torch.float32}"
            )
    if taken and isinstance(op, Prim) and not taken & op.dtype_rule.operand_dtypes:
        known = [dtype_sets.name(one) for one in dtype_sets.STORED_DTYPES if one in op.dtype_rule.operand_dtypes]
        raise RegistryError(
            f"@implements(prims.{op.name}, dtypes=...): {op.name} has none of these dtypes",
            hint=f"its dtypes are {', '.join(known)}",
        )


def _check_overload(op: Any, function: Callable[..., Any]) -> None:
    """Both ways in which a captured graph calls an overload must do: with all arguments, and without defaults."""
    for operands, attributes in call_forms(op):
        try:
            inspect.signature(function).bind(*operands, **dict.fromkeys(attributes))
        except TypeError as error:
            raise RegistryError(
                f"@implements(torch.ops.{op}): {function.__name__}() cannot be called like the op: {error}",
                hint=f"def {op_name(op).split('.')[1]}({parameters(op)}):",
            ) from None


def _parameters(op: Prim) -> str:
    """The op's parameters as source, without annotations."""
    operands = [f"*{name}" if op.is_variadic else name for name in op.operand_names]
    keywords = [*([] if op.is_variadic or not op.attribute_names else ["*"]), *op.attribute_names]
    return ", ".join([*operands, *keywords])


class Backend:
    """A target that runs contract ops.

    Override the class attributes and, as you grow, `supports` and `lower`. The functions marked with
    `implements` are collected from the class's own body, its own module and the modules in ``kernel_modules``.
    ``overloads`` names aten overloads that `supports` may claim though no marked function implements them: those
    that `lower` compiles itself.
    """

    name: str = ""
    version: str = "0"
    capability: Capability = Capability()
    device: Device = HOST
    limitations: tuple[Limitation, ...] = ()
    kernel_modules: tuple[ModuleType, ...] = ()
    overloads: Collection[Op] = ()

    def __init__(self) -> None:
        check_name(self)
        self._implementations = _collect(type(self), self.kernel_modules)
        self._check_limitations()

    @property
    def implementations(self) -> Mapping[Op, tuple[Implementation, ...]]:
        """The marked functions of this backend, by op, in order of definition."""
        return self._implementations

    def supports(self, node: Node) -> Support:
        """Whether this backend runs ``node``, with the reason if not.

        The default answers from `limitations`, `capability` and the marked functions. A backend that lowers
        whole regions overrides it, usually as ``return self.within_capability(node) and ...``.
        """
        return self.within_capability(node) and self._implemented(node)

    def within_capability(self, node: Node) -> Support:
        """The static part of `supports`: declared limitations, dtypes, ranks, dynamic shapes."""
        for limitation in self.limitations:
            if limitation.covers(node):
                return no(f"declared limitation: {limitation.explanation}")
        for type in (*node.operands, *node.results):
            if type is not None:
                support = self._within(type)
                if not support:
                    return support
        return YES

    def lower(self, region: Region) -> Kernel:
        """Compile a region into a `Kernel`. The default strings the marked functions together."""
        functions = {}
        for node in region.graph.nodes:
            if node.op == "call_function" and "call" in node.meta:
                functions[node] = self._implementation(node.meta["call"], node_location(node)).function
        return function_kernel(region, functions, self.name, self.device)

    def _within(self, type: TensorType) -> Support:
        capability = self.capability
        if type.dtype not in capability.dtypes:
            return no(f"{dtype_sets.name(type.dtype)} is not among its dtypes")
        if capability.max_rank is not None and type.rank > capability.max_rank:
            return no(f"rank {type.rank} is above its maximum of {capability.max_rank}")
        if type.is_dynamic and not capability.dynamic_shapes:
            return no("it takes static shapes only")
        return YES

    def _implemented(self, node: Node) -> Support:
        found = self._implementations.get(node.op)
        if not found:
            return no(f"it has no kernel for {node.name}")
        support = YES
        for implementation in found:
            support = implementation.accepts(node)
            if support:
                return YES
        return support

    def _implementation(self, node: Node, location: str | None) -> Implementation:
        for implementation in self._implementations.get(node.op, ()):
            if implementation.accepts(node):
                return implementation
        missing = f"no function implements it: {self._implemented(node).reason}"
        if node.op not in self._implementations:
            missing = "no function implements it"
        op = f"prims.{node.name}" if isinstance(node.op, Prim) else f"torch.ops.{node.name}"
        raise LoweringError(
            f"backend {self.name!r}: supports() accepted {node}, but {missing}",
            location=location,
            hint=f"write @implements({op}), or override lower() to compile it yourself",
        )

    def _check_limitations(self) -> None:
        known = {op.name for op in CONTRACT} | {op_name(op) for op in (*self._implementations, *self.overloads)}
        for limitation in self.limitations:
            if limitation.op != "*" and limitation.op not in known:
                raise RegistryError(
                    f"backend {self.name!r}: its Limitation({limitation.op!r}, {limitation.reason!r}) covers nothing: "
                    f"{nearest(limitation.op, known)}",
                    hint="name an op of the contract, an aten overload that the backend claims, or '*'",
                )

    def __repr__(self) -> str:
        return f"<backend {self.name} {self.version}>"


def check_name(backend: Backend) -> None:
    """Raise `RegistryError` unless the backend's name can be written wherever the SDK writes it."""
    name: object = backend.name
    if not isinstance(name, str) or not name.isidentifier() or name.startswith("_"):
        raise RegistryError(
            f"{type(backend).__qualname__}.name is {name!r}",
            hint="give it a Python identifier without a leading underscore: name = 'acme'",
        )


def _collect(cls: type[Backend], modules: Iterable[ModuleType]) -> dict[Op, tuple[Implementation, ...]]:
    namespaces: list[Mapping[str, Any]] = [
        vars(base) for base in cls.__mro__ if base is not Backend and base is not object
    ]
    own = sys.modules.get(cls.__module__)
    namespaces += [vars(module) for module in (own, *modules) if module is not None]
    found: dict[Op, dict[Implementation, None]] = {}
    for namespace in namespaces:
        for value in namespace.values():
            # The mark sits on the wrapper when @implements stands above @staticmethod, else on the function.
            for holder in (value, getattr(value, "__func__", None)):
                for implementation in getattr(holder, _MARK, ()) if callable(holder) else ():
                    found.setdefault(implementation.op, {})[implementation] = None
    return {op: tuple(implementations) for op, implementations in found.items()}
