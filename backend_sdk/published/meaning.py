"""What the code of a definition says, apart from how it is written: the source of the contract's hash.

A function is read as its syntax tree together with all that it reaches in the contract's own modules: helpers, and
constants by value. Comments, layout, docstrings, annotations, the names and modules of helpers, and the text of errors
are no part of it. Bytecode is not read, and fields of the tree that are empty are left out, so that every supported
Python reads the same.

Does not: know what is hashed beside code (`backend_sdk.published.export` does).
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import functools
import hashlib
import inspect
import json
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import torch

from backend_sdk.errors import RegistryError
from backend_sdk.spec import Prim
from backend_sdk.torch_compat.ops import Operators, is_overload

# Modules whose code is part of what an op means. What another module computes is known by its name.
_FOLLOWED = ("backend_sdk.prims", "backend_sdk.dtypes", "backend_sdk.decomp")

_POSITIONS = frozenset({"ctx", "kind", "type_comment", "annotation", "returns", "decorator_list", "type_params"})


@dataclasses.dataclass(frozen=True)
class Meaning:
    """The code of a function and of what it reaches, as JSON data, and the names of the contract's ops in it."""

    code: list[Any]
    ops: tuple[str, ...]

    @property
    def digest(self) -> str:
        """SHA-256 of the code, in hexadecimal."""
        return digest_of(self.code)


def digest_of(data: Any) -> str:
    """SHA-256 of ``data`` as canonical JSON (sorted keys, no blanks, ASCII), in hexadecimal."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def meaning_of(value: Any) -> Meaning:
    """The meaning of a function, or of a constant that holds functions.

    Raises `RegistryError` when it reaches something that has no form which stays the same from run to run.
    """
    reader = _Reader(_home(value))
    start = reader.describe(value, "the definition")
    return Meaning([start, *reader.code], tuple(sorted(reader.ops)))


def _home(value: Any) -> str:
    return getattr(inspect.unwrap(value) if callable(value) else value, "__module__", "") or ""


class _Reader:
    """``code`` holds the trees of the functions met, in the order in which they are met."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._places: dict[FunctionType | type, int] = {}
        self.code: list[Any] = []
        self.ops: set[str] = set()

    # ---- values

    def describe(self, value: Any, what: str) -> Any:
        """A value as JSON data. ``what`` names it in an error."""
        if isinstance(value, Prim):
            self.ops.add(value.name)
            return ["op", value.name]
        if value is None or isinstance(value, (bool, int, str)):
            return ["constant", value]
        if value is Ellipsis or value is NotImplemented or isinstance(value, (float, complex, bytes)):
            return ["constant", type(value).__name__, repr(value)]
        if isinstance(value, torch.dtype):
            return ["dtype", str(value)]
        if isinstance(value, torch.Tensor):
            return ["tensor", str(value.dtype), list(value.shape), [repr(x) for x in value.flatten().tolist()]]
        if isinstance(value, (tuple, list)):
            return ["sequence", [self.describe(item, what) for item in value]]
        if isinstance(value, (set, frozenset)):
            return ["set", sorted((self.describe(item, what) for item in value), key=json.dumps)]
        if isinstance(value, Mapping):
            return ["mapping", [[self.describe(key, what), self.describe(item, what)] for key, item in value.items()]]
        return self._describe_object(value, what)

    def _describe_object(self, value: Any, what: str) -> Any:
        if isinstance(value, ModuleType):
            return ["module", value.__name__]
        if isinstance(value, functools.partial):
            return ["partial", *(self.describe(part, what) for part in (value.func, value.args, value.keywords))]
        if isinstance(value, FunctionType) and self._is_followed(value.__module__):
            return ["function", self._place(inspect.unwrap(value))]
        if isinstance(value, type) and self._is_followed(value.__module__):
            return ["class", self._place_of_class(value)]
        if callable(value) and isinstance(getattr(value, "__wrapped__", None), FunctionType):
            return self.describe(value.__wrapped__, what)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = [[f.name, self.describe(getattr(value, f.name), what)] for f in dataclasses.fields(value)]
            return ["object", type(value).__qualname__, fields]
        if isinstance(value, (type, FunctionType, BuiltinFunctionType)) or hasattr(value, "__qualname__"):
            return ["name", value.__module__, value.__qualname__]
        if is_overload(value) or isinstance(value, Operators):
            return ["name", str(value)]
        raise RegistryError(
            f"{what} is {value!r}, a {type(value).__qualname__}, which has no lasting form",
            hint="make it a number, a dtype, a tuple or dict of these, a dataclass, or a function of the contract",
        )

    def _is_followed(self, module: str | None) -> bool:
        return module is not None and (module == self._home or module.startswith(_FOLLOWED))

    # ---- functions

    def _place(self, function: Any) -> int:
        known = self._places.get(function)
        if known is not None:
            return known
        place = self._places[function] = len(self.code)
        self.code.append(None)
        scope = _Scope(function)
        trees = [self._function(tree, scope, top=True) for tree in _trees_of(function)]
        defaults = self.describe(function.__defaults__, f"a default of {function.__qualname__}")
        keyword_defaults = self.describe(function.__kwdefaults__, f"a default of {function.__qualname__}")
        self.code[place] = [trees, defaults, keyword_defaults]
        return place

    def _place_of_class(self, cls: type) -> int:
        """A class as its methods. What a decorator has made of it (an `__init__` of a dataclass) has no source."""
        known = self._places.get(cls)
        if known is not None:
            return known
        place = self._places[cls] = len(self.code)
        self.code.append(None)
        methods = []
        for name, member in sorted(vars(cls).items()):
            function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            function = inspect.unwrap(function) if callable(function) else function
            if isinstance(function, FunctionType) and Path(function.__code__.co_filename).is_file():
                methods.append([name, self._place(function)])
        self.code[place] = methods
        return place

    def _function(self, node: Any, scope: _Scope, *, top: bool = False) -> Any:
        with scope.within(node):
            arguments = self._node(node.args, scope, defaults=not top)
            if isinstance(node, ast.Lambda):
                return ["function", arguments, [["Return", [["value", self._node(node.body, scope)]]]]]
            return ["function", arguments, self._body(node.body, scope)]

    def _body(self, statements: list[ast.stmt], scope: _Scope) -> list[Any]:
        # A string that stands alone is a docstring or a remark.
        spoken = (s for s in statements if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant)))
        return [self._node(statement, scope) for statement in spoken]

    def _node(self, node: Any, scope: _Scope, *, defaults: bool = True) -> Any:
        if isinstance(node, list):
            return [self._node(item, scope) for item in node]
        if not isinstance(node, ast.AST):
            return node
        if isinstance(node, ast.Constant):
            return self.describe(node.value, "a constant")
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            named = getattr(node, "name", "")
            return ["define", named, self._function(node, scope)]
        if isinstance(node, ast.Raise):
            return ["Raise"]
        if isinstance(node, (ast.Name, ast.Attribute)):
            found = self._resolved(node, scope)
            if found is not None:
                return found
        skipped = _POSITIONS if defaults else _POSITIONS | {"defaults", "kw_defaults"}
        if isinstance(node, ast.AnnAssign):
            targets = [] if node.value is None else [node.target]
            return ["Assign", [["targets", self._node(targets, scope)], ["value", self._node(node.value, scope)]]]
        fields = []
        for name, value in sorted(ast.iter_fields(node), key=lambda field: field[0]):
            if name not in skipped and value is not None and value != []:
                is_block = name in ("body", "orelse", "finalbody") and isinstance(value, list)
                fields.append([name, self._body(value, scope) if is_block else self._node(value, scope)])
        return [type(node).__name__, fields]

    def _resolved(self, node: ast.expr, scope: _Scope) -> Any:
        """A name, or a dotted name that starts at one of our modules, as what it stands for; None for a local one."""
        if isinstance(node, ast.Name):
            found = scope.lookup(node.id)
            return None if found is _LOCAL else self.describe(found, f"{node.id} in {scope.name}")
        if not isinstance(node, ast.Attribute):
            return None
        path, start = _dotted(node)
        value = scope.lookup(start) if start is not None else _LOCAL
        if isinstance(value, FunctionType) and path == ["__name__"]:
            return ["constant", "__name__"]
        if not isinstance(value, ModuleType) or not self._is_followed(value.__name__):
            return None
        for name in path:
            value = getattr(value, name)
        return self.describe(value, f"{start}.{'.'.join(path)} in {scope.name}")


def _dotted(node: ast.expr) -> tuple[list[str], str | None]:
    path: list[str] = []
    while isinstance(node, ast.Attribute):
        path.insert(0, node.attr)
        node = node.value
    return path, node.id if isinstance(node, ast.Name) else None


_LOCAL = object()


class _Scope:
    """What names mean within a function: local, of its closure, of its module, or built in."""

    def __init__(self, function: FunctionType) -> None:
        self.name = f"{function.__module__}.{function.__qualname__}"
        self._globals = function.__globals__
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        self._closure = {name: cell.cell_contents for name, cell in cells}
        self._locals: list[set[str]] = []

    def within(self, node: Any) -> _Entered:
        """A context in which the names that the function ``node`` binds are local."""
        return _Entered(self._locals, set(_bound(node)))

    def lookup(self, name: str) -> Any:
        """The value of a name, or ``_LOCAL``."""
        if any(name in names for names in self._locals):
            return _LOCAL
        if name in self._closure:
            return self._closure[name]
        if name in self._globals:
            return self._globals[name]
        return getattr(builtins, name, _LOCAL)


class _Entered:
    def __init__(self, stack: list[set[str]], names: set[str]) -> None:
        self._stack, self._names = stack, names

    def __enter__(self) -> None:
        self._stack.append(self._names)

    def __exit__(self, *exception: object) -> None:
        self._stack.pop()


def _bound(function: Any) -> Iterator[str]:
    """The names that a function binds: parameters, assignments, loops, imports, nested functions."""
    for node in ast.walk(function.args):
        if isinstance(node, ast.arg):
            yield node.arg
    waiting: list[Any] = list(function.body) if isinstance(function.body, list) else [function.body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef):
            yield node.name
            continue
        if isinstance(node, ast.Lambda):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        if isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]
        if isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name
        waiting.extend(ast.iter_child_nodes(node))


def _trees_of(function: FunctionType) -> list[Any]:
    """The syntax tree of a function. Lambdas that start in one line with equal parameters are told apart by nothing,
    and each then means all of them.
    """
    code = function.__code__
    found = _functions_of(code.co_filename).get(code.co_firstlineno, ())
    name = code.co_name
    count = code.co_argcount + code.co_kwonlyargcount
    parameters = set(code.co_varnames[:count])
    trees = [
        tree
        for tree in found
        if getattr(tree, "name", "<lambda>") == name and parameters == {arg.arg for arg in _parameters(tree)}
    ]
    if not trees:
        raise RegistryError(
            f"the source of {function.__module__}.{function.__qualname__} is not in {code.co_filename}",
            hint="define the op in a file that is as it was when Python imported it",
        )
    return trees


def _parameters(tree: Any) -> list[ast.arg]:
    return [*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs]


@functools.cache
def _functions_of(path: str) -> dict[int, list[Any]]:
    """The functions of a source file by first line, which is that of the first decorator."""
    found: dict[int, list[Any]] = {}
    for node in ast.walk(ast.parse(Path(path).read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            decorators: list[ast.expr] = getattr(node, "decorator_list", [])
            first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
            found.setdefault(first, []).append(node)
    return found


def source_of(function: Callable[..., Any]) -> str:
    """The text of a function without its decorators and its docstring, as it stands in its file.

    Raises `RegistryError` when the file does not hold it.
    """
    code = inspect.unwrap(function).__code__
    (tree, *_) = _trees_of(inspect.unwrap(function))
    lines = Path(code.co_filename).read_text(encoding="utf-8").splitlines()
    kept = lines[tree.lineno - 1 : tree.end_lineno]
    if isinstance(tree, ast.FunctionDef) and ast.get_docstring(tree) is not None:
        doc = tree.body[0]
        del kept[doc.lineno - tree.lineno : (doc.end_lineno or doc.lineno) - tree.lineno + 1]
    return textwrap.dedent("\n".join(kept))
