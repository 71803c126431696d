"""torch's private names are used in one package, and each is listed there with what a user loses without it.

Without this a new torch release breaks us in places that nobody knew of.

An attribute that starts with an underscore and that the package does not define itself is taken for torch's, on
whatever object it is read: ``op._schema`` counts as the name ``_schema``. Op names (``aten._softmax``) are public.
"""

from __future__ import annotations

import ast
import importlib
import re
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

import backend_sdk
from backend_sdk.torch_compat.private_names import PRIVATE_NAMES, PrivateName

ROOT = Path(backend_sdk.__file__).parent
COMPAT = ROOT / "torch_compat"
FILES = sorted(path for path in ROOT.rglob("*.py"))
# What is not the package but is read as an example of its use. Tests may look behind torch's curtain.
EXAMPLES = [path for folder in ("benchmarks", "examples") for path in sorted((ROOT.parent / folder).rglob("*.py"))]
OUTSIDE = [path for path in FILES if COMPAT not in path.parents] + EXAMPLES
INSIDE = [path for path in FILES if COMPAT in path.parents and path.name != "private_names.py"]


def is_private(part):
    return part.startswith("_") and not part.startswith("__")


def chain(node):
    """``["torch", "_C", "x"]`` for ``torch._C.x``; None when the chain does not start with a name."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        return [node.id, *reversed(parts)]
    return None


def imported(tree):
    """Dotted names that a file imports from torch or functorch."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def private_imports(tree):
    for name in imported(tree):
        head, *rest = name.split(".")
        if head == "functorch" or (head == "torch" and any(map(is_private, rest))):
            yield name


def outermost_attributes(tree):
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and id(node) not in inner]


def private_chains(tree):
    """``torch._C.x`` and the like, spelled out in the code."""
    for node in outermost_attributes(tree):
        parts = chain(node) or []
        if parts[:1] == ["functorch"] or (
            parts[:1] == ["torch"] and parts[1:2] != ["ops"] and any(map(is_private, parts))
        ):
            yield ".".join(parts)


@cache
def own_names():
    """Names with an underscore that the package itself defines."""
    names = set()
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                names.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                    names.add(node.attr)
            elif isinstance(node, ast.alias):
                names.add(node.asname or node.name)
    return names


def private_attributes(tree):
    """``_schema`` of ``op._schema``: attributes of objects whose type the code does not spell out."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not is_private(node.attr) or node.attr in own_names():
            continue
        parts = chain(node) or []
        if parts[:1] in (["torch"], ["functorch"], ["aten"], ["prims"], ["self"], ["cls"]):
            continue
        yield node.attr


def uses(path):
    """What a file of `torch_compat` uses, as listed: dotted names, and bare attributes."""
    tree = ast.parse(path.read_text())
    return {*private_imports(tree), *private_chains(tree)}, set(private_attributes(tree))


def test_the_walk_sees_every_form():
    tree = ast.parse(
        "import torch._a.b\nfrom torch import _c\nfrom torch._d.e import f\nimport functorch\n"
        "from torch.utils import _g, data\nfrom torch import fx\nimport torch.fx.node\n"
        "torch._h.i(torch.ops.aten._softmax, torch.nn._j)\nop._not_ours.x\naten._softmax\nself._mine\nx._NOWHERE\n"
    )
    assert set(private_imports(tree)) == {"torch._a.b", "torch._c", "torch._d.e.f", "functorch", "torch.utils._g"}
    assert set(private_chains(tree)) == {"torch._h.i", "torch.nn._j"}
    assert set(private_attributes(tree)) == {"_not_ours", "_NOWHERE"}


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: str(path.relative_to(ROOT.parent)))
def test_no_private_name_outside_torch_compat(path):
    names, attributes = uses(path)
    assert not names and not attributes, "move it to backend_sdk/torch_compat and list it in private_names.py"


def test_the_list_is_what_is_used():
    listed = {}
    for entry in PRIVATE_NAMES:
        assert entry.where.startswith("backend_sdk.torch_compat.")
        listed.setdefault(entry.where.rsplit(".", 1)[1], set()).add(entry.name)
    for path in INSIDE:
        names, attributes = uses(path)
        mine = listed.pop(path.stem, set())
        assert {name for name in mine if ":" not in name} == names, path.name
        assert {name.split(":")[1] for name in mine if ":" in name} == attributes, path.name
    assert not listed, "modules that do not exist"


@pytest.mark.parametrize("entry", PRIVATE_NAMES, ids=lambda entry: f"{entry.where.rsplit('.', 1)[1]}-{entry.name}")
def test_the_name_exists_in_this_torch(entry):
    if ":" in entry.name:
        module, attribute = entry.name.split(":")
        source = Path(importlib.import_module(module).__file__).read_text()
        assert re.search(rf"\b{attribute}\b", source), f"{module} does not mention {attribute}"
        return
    parts = entry.name.split(".")
    found = importlib.import_module(parts[0])
    for index, part in enumerate(parts[1:], 2):
        if not hasattr(found, part):
            importlib.import_module(".".join(parts[:index]))
        found = getattr(found, part)


def test_each_entry_says_why_and_what_breaks():
    for entry in PRIVATE_NAMES:
        for field in fields(PrivateName):
            assert len(getattr(entry, field.name)) > 8, entry
        assert entry.why != entry.breaks
    pairs = [(entry.name, entry.where) for entry in PRIVATE_NAMES]
    assert len(pairs) == len(set(pairs))
    assert pairs == sorted(pairs, key=lambda pair: (pair[1], pair[0])), "sorted by module, then name"
