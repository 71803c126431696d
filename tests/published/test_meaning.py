"""What code means is read through all that it reaches, and not from how it is written.

What a vendor would lose: a body that changes through a helper under an unchanged hash, or a new version for a comment.
"""

from __future__ import annotations

import importlib.util
import itertools

import pytest

from backend_sdk.errors import RegistryError
from backend_sdk.prims import CONTRACT
from backend_sdk.published.meaning import meaning_of, source_of

BASE = '''
import functools
import math
from dataclasses import dataclass

import torch

from backend_sdk import dtypes, prims
from backend_sdk.prims import add, mul

TABLE = (1.0, 2.5)
NAMES = {"half": torch.float16}


def scaled(x, by=2.0):
    return mul(x, prims.full(shape=(), value=by, dtype=x.dtype))


def op(x, *, mode: str = "sum"):
    """The doc."""
    if mode not in NAMES:
        raise ValueError(f"{mode} is unknown")
    total = scaled(x)
    for factor in TABLE:
        total = add(total, scaled(x, factor))
    return (lambda y: torch.sin(y))(total)
'''

_NUMBERS = itertools.count()


@pytest.fixture
def meaning(tmp_path):
    """The meaning of ``op`` in a module with this source."""

    def of(source, name="op"):
        path = tmp_path / f"meant_{next(_NUMBERS)}.py"
        path.write_text(source)
        spec = importlib.util.spec_from_file_location("meant", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return meaning_of(getattr(module, name))

    return of


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("add(total", "mul(total"),
        ("add(total, scaled", "prims.sub(total, scaled"),
        ("mul(x, prims.full", "add(x, prims.full"),
        ("prims.full(shape=()", "prims.full(shape=(1,)"),
        ("by=2.0", "by=3.0"),
        ("(1.0, 2.5)", "(1.0, 2.6)"),
        ("torch.float16", "torch.bfloat16"),
        ('"half"', '"quarter"'),
        ('= "sum"', '= "mean"'),
        ("torch.sin", "torch.cos"),
        ("mode not in", "mode in"),
        ("        raise", "        x = mul(x, x)\n        raise"),
        ("scaled(x, factor)", "scaled(x, -factor)"),
    ],
)
def test_a_change_of_what_is_computed_shows(meaning, old, new):
    assert BASE.count(old) >= 1
    assert meaning(BASE).digest != meaning(BASE.replace(old, new)).digest


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""The doc."""', '"""Another doc."""'),
        ('    """The doc."""\n', ""),
        ("    total = scaled(x)\n", "    # why\n    total = scaled( x )\n\n"),
        ("mode: str", "mode: object"),
        ("total = scaled(x)\n", "total: object = scaled(x)\n"),
        ("is unknown", "is no mode"),
        ("scaled(", "times("),
        ("TABLE", "FACTORS"),
        ("def scaled(x, by=2.0):", "@functools.cache\ndef scaled(x, by=2.0):"),
        ("import math\n", ""),
        ("import add, mul", "import mul, add"),
    ],
)
def test_a_change_of_how_it_is_written_does_not(meaning, old, new):
    assert BASE.count(old) >= 1
    assert meaning(BASE).digest == meaning(BASE.replace(old, new)).digest


def test_the_ops_are_those_that_it_reaches(meaning):
    assert meaning(BASE).ops == ("add", "full", "mul")
    assert meaning(
        "from backend_sdk import prims\nTABLE = {1: prims.exp}\ndef op(x):\n    return TABLE[1](x)\n"
    ).ops == ("exp",)


def test_recursion_ends_and_a_local_name_hides_a_global(meaning):
    found = meaning("from backend_sdk.prims import abs, neg\ndef op(x, abs):\n    return op(abs(x), abs)\n")
    assert found.ops == ()


def test_a_closure_counts(meaning):
    source = "def make(n):\n    def inner(x):\n        return x + n\n    return inner\nop = make({})\n"
    assert meaning(source.format(1)).digest != meaning(source.format(2)).digest


def test_the_methods_of_a_class_count(meaning):
    source = (
        "from backend_sdk.prims import {0}\n"
        "class Plan:\n    def __init__(self, x):\n        self.y = {0}(x)\n"
        "    @property\n    def z(self):\n        return self.y\n"
        "def op(x):\n    return Plan(x).z\n"
    )
    assert meaning(source.format("exp")).ops == ("exp",)
    assert meaning(source.format("exp")).digest != meaning(source.format("log")).digest


def test_what_has_no_lasting_form_is_refused_by_name(meaning):
    with pytest.raises(RegistryError, match=r"STATE in meant\.op is <.*object.*which has no lasting form"):
        meaning("class State:\n    pass\nSTATE = State()\ndef op(x):\n    return STATE\n")


def test_every_part_of_every_op_has_a_meaning_of_its_own():
    references = {op.name: meaning_of(op.reference).digest for op in CONTRACT}
    for op in CONTRACT:
        meaning_of(op.shape_rule)
        meaning_of(op.tolerance)
    shared = {}
    for name, digest in references.items():
        shared.setdefault(digest, []).append(name)
    assert not [names for names in shared.values() if len(names) > 1]


def test_the_source_is_the_function_without_decorators_and_docstring():
    assert source_of(CONTRACT["exp"].reference) == "def exp(x: Operand) -> Operand:\n    return torch.exp(x)"
