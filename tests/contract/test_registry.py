"""The contract refuses a definition that lacks a part, so that no op is half defined.

What a vendor would lose: an op without samples passes any conformance suite.
"""

from __future__ import annotations

import pytest
import torch

from backend_sdk import dtypes, prims
from backend_sdk.errors import RegistryError
from backend_sdk.prims import CONTRACT
from backend_sdk.spec import Composite, DtypeRule, DtypeVar, Exact, Prim, Registry, Sample

_T = DtypeVar("T", dtypes.FLOATING)


def identity(x):
    """x."""
    return x


def undocumented(x):
    return x


COMPLETE = {
    "shape_rule": lambda x: x.shape,
    "dtype_rule": DtypeRule((_T,), (_T,)),
    "tolerance": Exact(),
    "samples": lambda dtype, generator: iter([Sample((torch.ones(2, dtype=dtype),))]),
    "specials": lambda dtype: [0.0],
    "profiles": ("base",),
}


def test_a_complete_definition_enters_once():
    registry = Registry()
    op = registry.add(Prim(identity, **COMPLETE))
    assert registry["identity"] is op
    assert len(registry) == 1
    with pytest.raises(RegistryError, match="already has an op named 'identity'"):
        registry.add(Prim(identity, **COMPLETE))


@pytest.mark.parametrize("kind", [Prim, Composite])
@pytest.mark.parametrize(
    ("part", "named"),
    [
        ("shape_rule", "a shape rule"),
        ("dtype_rule", "a dtype rule"),
        ("tolerance", "a tolerance"),
        ("samples", "a sample generator"),
        ("specials", "special values"),
        ("profiles", "a profile"),
    ],
)
def test_a_missing_part_is_named(kind, part, named):
    with pytest.raises(RegistryError, match=rf"^{kind.kind} 'identity' lacks {named}"):
        kind(identity, **{**COMPLETE, part: () if part == "profiles" else None})


def test_a_missing_docstring_is_named():
    with pytest.raises(RegistryError, match="'undocumented' lacks a docstring"):
        Prim(undocumented, **COMPLETE)


def test_all_missing_parts_are_named_at_once():
    with pytest.raises(RegistryError, match=r"lacks a docstring, a tolerance, special values"):
        Prim(undocumented, **{**COMPLETE, "tolerance": None, "specials": None})


def test_an_unknown_profile_is_named():
    with pytest.raises(RegistryError, match="'identity': unknown profile fancy") as caught:
        Prim(identity, **{**COMPLETE, "profiles": ("base", "fancy")})
    assert "training" in str(caught.value)


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(RegistryError, match=r"no op 'layernorm'.*layer_norm"):
        CONTRACT["layernorm"]


def test_the_contract_stays_small_and_each_op_says_what_it_does(op):
    assert len(CONTRACT) <= 250
    assert CONTRACT[op.name] is op
    assert getattr(prims, op.name) is op
    assert op.__doc__.strip().endswith((".", ")", "``", ":")) or len(op.__doc__) > 20
    assert op.tolerance.describe()
    assert "->" in str(op.dtype_rule)
