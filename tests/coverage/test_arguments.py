"""The table of arguments: each entry names an overload and its arguments, and eager runs the call.

What a user would lose: an overload that counts as not runnable, because a name in the table is misspelled.
"""

from __future__ import annotations

from collections import defaultdict

import pytest
import torch

from backend_sdk.coverage import calls
from backend_sdk.coverage.arguments import ARGUMENTS, Draw, valid_arguments
from backend_sdk.coverage.baseline import Baseline, committed
from backend_sdk.coverage.calls import PRIMS
from backend_sdk.coverage.generated import candidates, stem
from backend_sdk.coverage.known import KNOWN
from backend_sdk.coverage.prove import OVERLOAD, Item, Status, prove
from backend_sdk.coverage.scope import Reason
from backend_sdk.coverage.verdict import Verdict, verdicts
from backend_sdk.torch_compat import trees
from backend_sdk.torch_compat.overloads import arguments, aten_overloads

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def _entry_of(name):
    own = name.removeprefix("aten.")
    return own if own in ARGUMENTS else stem(name)


def _served():
    """The overloads of the installed torch that each entry serves."""
    found = defaultdict(list)
    for name in aten_overloads():
        found[_entry_of(name)].append(name)
    return {entry: found.get(entry, []) for entry in ARGUMENTS}


SERVED = _served()
CASES = [name for names in SERVED.values() for name in names]


def test_each_entry_is_for_an_overload_of_a_supported_release():
    known = {_entry_of(name) for path in committed().values() for name in Baseline.read(path).overloads}
    assert ARGUMENTS.keys() - known == set()


@pytest.mark.parametrize("entry", [entry for entry, names in SERVED.items() if names])
def test_an_entry_names_arguments_of_its_overloads(entry):
    known = {argument.name for name in SERVED[entry] for argument in arguments(aten_overloads()[name])}
    assert ARGUMENTS[entry](Draw()).keys() <= known


@pytest.mark.parametrize("name", CASES)
def test_eager_runs_the_call(name):
    call = next(candidates(name, ()))
    assert not call.guessed, "the table lacks an argument that the schema requires"
    assert calls.runs(call)


def test_arguments_are_the_same_each_time():
    for entry in ARGUMENTS:
        first, second = (trees.leaves(valid_arguments((entry,))) for _ in range(2))
        assert [_seen(leaf) for leaf in first] == [_seen(leaf) for leaf in second], entry


def _seen(leaf):
    """Of the bytes of a library's workspace, which it fills in part, their number."""
    return len(leaf) if isinstance(leaf, torch.Tensor) and leaf.dtype == torch.uint8 else str(leaf)


def test_the_overload_itself_comes_before_what_it_computes():
    assert valid_arguments(("moveaxis.intlist", "clip")).keys() == {"self", "source", "destination"}
    assert valid_arguments(("clip.default", "clip")).keys() == {"self", "min", "max"}
    assert valid_arguments(("sub.default", "sub")) is None


def test_no_entry_serves_what_is_out_of_scope_alone():
    outside = {one.overload for one in verdicts() if one.verdict == Verdict.OUT_OF_SCOPE}
    assert [entry for entry, names in SERVED.items() if names and set(names) <= outside] == []


@pytest.mark.parametrize("op", [one.op for one in KNOWN if one.reason == Reason.DEVICE and OVERLOAD in one.kinds])
def test_eager_runs_no_call_of_what_has_no_cpu_kernel(op):
    overload = aten_overloads()[op]
    assert not torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), "CPU")
    assert not any(calls.runs(call) for call in candidates(op, ()))


@pytest.mark.parametrize(
    "name",
    ["aten.lstm.input", "aten._fused_adam_.default", "aten.nll_loss2d.out", "aten.native_channel_shuffle.default"],
)
def test_a_call_of_the_table_is_proven(name):
    entry = prove(Item(OVERLOAD, name, "float32"), PRIMS, None, ())
    assert entry.status == Status.PROVEN and entry.samples, entry.message
    assert name in entry.overloads
