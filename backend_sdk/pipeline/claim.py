"""Claim: asks the backend about each op and remembers every answer.

Does not: act on a refusal (decompose descends, partition places).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import fx

from backend_sdk.backend import Backend
from backend_sdk.contract import Node, Op, Support, no
from backend_sdk.errors import PluginError
from backend_sdk.spec import Prim, TensorType
from backend_sdk.torch_compat.ops import is_overload, name_arguments


class Claims:
    """The backend's answers during one compilation.

    ``refusals`` holds the noes since it was last cleared, ``location`` the user's line that is asked about.
    """

    def __init__(self, backend: Backend, kind: str = "inference") -> None:
        self._backend = backend
        self._backward = kind == "backward"
        self.refusals: list[str] = []
        self.location: str | None = None

    def composite(
        self,
        op: Prim,
        operands: tuple[TensorType | None, ...],
        results: tuple[TensorType, ...],
        attributes: dict[str, Any],
    ) -> bool:
        """Whether a composite stays whole."""
        return bool(self.ask(Node(op, operands, results, attributes)))

    def overload(
        self,
        op: Op,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        results: tuple[TensorType, ...],
    ) -> Node | None:
        """The node of an aten overload when the backend claims it directly, else None.

        A backend that never names the overload is not asked: silence about aten is no refusal.
        """
        named = op in self._backend.implementations or op in self._backend.overloads
        if not named or not is_overload(op):
            return None
        operands: list[TensorType | None] = []
        attributes: dict[str, Any] = {}
        for name, argument in name_arguments(op, args, kwargs).items():
            type = getattr(argument, "type", None)
            if isinstance(type, TensorType):
                operands.append(type)
            else:
                attributes[name] = argument
        node = Node(op, tuple(operands), results, attributes)
        return node if self.ask(node) else None

    def ask(self, node: Node) -> Support:
        """The backend's answer about one node."""
        try:
            if self._backward and not self._backend.capability.training:
                support = no("it does not train (Capability.training)")
            else:
                support = self._backend.supports(node)
        except Exception as error:
            raise PluginError(
                f"backend {self._backend.name!r}: supports({node}) raised {type(error).__name__}: {error}",
                location=self.location,
                hint="supports() must answer YES or no(reason) for any node",
            ) from error
        if not isinstance(support, Support):
            raise PluginError(
                f"backend {self._backend.name!r}: supports({node}) returned {support!r}",
                location=self.location,
                hint="return backend_sdk.YES or backend_sdk.no(reason)",
            )
        if not support:
            self.refusals.append(f"{node.name}: {support.reason}")
        return support


def ask_about(nodes: Iterable[fx.Node], claims: Claims) -> None:
    """Stamp each call of a contract op that has no answer yet: ``call``, and ``refusal`` when it is a no."""
    for node in nodes:
        if node.op != "call_function" or not isinstance(node.target, Prim) or "call" in node.meta:
            continue
        call = Node(node.target, operand_types(node.args), result_types(node.meta["type"]), dict(node.kwargs))
        node.meta["call"] = call
        support = claims.ask(call)
        if not support:
            node.meta["refusal"] = support.reason


def operand_types(arguments: tuple[Any, ...]) -> tuple[TensorType | None, ...]:
    """Types of the fx arguments of a contract op's node."""
    return tuple([None if argument is None else argument.meta["type"] for argument in arguments])


def result_types(meta: Any) -> tuple[TensorType, ...]:
    """The result types of a node as a tuple."""
    return meta if isinstance(meta, tuple) else (meta,)
