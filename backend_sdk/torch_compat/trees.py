"""Nested results as flat lists, and back.

Does not: know what the leaves are.
"""

from __future__ import annotations

from typing import Any

from torch.export import ExportedProgram
from torch.utils import _pytree


def leaves(tree: Any) -> list[Any]:
    """The leaves of nested tuples, lists, dicts and registered classes."""
    return list(_pytree.tree_leaves(tree))


def flatten(tree: Any) -> tuple[list[Any], Any]:
    """The leaves, and the structure that `unflatten` needs."""
    flat, structure = _pytree.tree_flatten(tree)
    return list(flat), structure


def unflatten(flat: list[Any], structure: Any) -> Any:
    """The tree out of its leaves."""
    return _pytree.tree_unflatten(flat, structure)


class ProgramTree:
    """How an exported program nests its inputs and results."""

    def __init__(self, program: ExportedProgram) -> None:
        self._spec = program.call_spec

    @property
    def expected(self) -> str:
        """How to call the program, in words."""
        spec = self._spec.in_spec
        if spec is None:
            return "the exported model"
        names = ", ".join(f"{name}=..." for name in spec.child(1).context)
        return f"program({', '.join(['...'] * spec.child(0).num_children + ([names] if names else []))})"

    def flatten(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | None:
        """The leaves of a call's arguments, or None when they are nested otherwise than the program's."""
        expected = self._spec.in_spec
        names = list(expected.child(1).context) if expected is not None else []
        if set(names) != set(kwargs):
            return None
        flat, spec = _pytree.tree_flatten((args, {name: kwargs[name] for name in names}))
        return list(flat) if spec == expected else None

    def unflatten(self, results: list[Any]) -> Any:
        """The program's result out of its leaves."""
        assert self._spec.out_spec is not None
        return _pytree.tree_unflatten(results, self._spec.out_spec)
