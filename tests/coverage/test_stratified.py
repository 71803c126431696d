"""The fast part of the proof: each op of torch's catalogue, forward and backward, on its first samples; each
elementwise overload on special values; of each op that writes into an argument one overload of each way.

The whole proof is ``backend-sdk coverage --prove`` (see docs/coverage.md).

What a user would lose: an answer that is silently wrong, or an op that eager runs without anybody having decided so.
"""

from __future__ import annotations

import pytest

from backend_sdk.coverage.calls import COMPOSITES, PRIMS
from backend_sdk.coverage.known import KNOWN
from backend_sdk.coverage.plan import overload_tasks, special_tasks
from backend_sdk.coverage.prove import BACKWARD, FORWARD, OVERLOAD, Item, Status, op_info_items, prove
from backend_sdk.coverage.report import judge
from backend_sdk.coverage.special import special_names
from backend_sdk.coverage.verdict import verdicts
from backend_sdk.torch_compat import op_catalogue
from backend_sdk.torch_compat.overloads import arguments, aten_overloads, base_name, is_mutable

# The strata: kind and dtype, with the samples of each op, and the level. At level composites the op runs on prims as
# well, and both must agree.
STRATA = (
    (FORWARD, "float32", 2, COMPOSITES),
    (FORWARD, "int64", 1, PRIMS),
    (FORWARD, "bool", 1, PRIMS),
    (BACKWARD, "float32", 1, PRIMS),
)

# torch's own backward of these ends the process, before any backend is asked. The whole proof runs each in a process
# that it may lose; `backend_sdk.coverage.known` has their reason.
ENDS_THE_PROCESS = {"sparse.sampled_addmm", "sparse.mm.reduce"}

CASES = list(
    dict.fromkeys(
        (item, limit, level)
        for kind, dtype, limit, level in STRATA
        for item in op_info_items((), (dtype,), (kind,))
        # Of an op that does not take the dtype, the catalogue gives another, which is a stratum of its own.
        if (item.dtype == dtype or dtype == "float32") and not (kind == BACKWARD and item.name in ENDS_THE_PROCESS)
    )
)


@pytest.fixture(scope="session")
def covered():
    return verdicts()


# The catalogue calls deprecated and beta functions on purpose.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("item", "limit", "level"), CASES, ids=lambda value: value.key if isinstance(value, Item) else ""
)
def test_first_samples_agree_with_eager(item, limit, level, covered, caplog):
    caplog.set_level("ERROR", logger="backend_sdk")
    entry = prove(item, level, limit, ())
    if entry.status not in (Status.PROVEN, Status.NOTHING):
        judged = judge(covered, [entry], whole=False).judged[0]
        assert judged.explanation, f"{entry.status}: {entry.message}"


@pytest.fixture(scope="session")
def elementwise(covered):
    return {task.item.name: task for task in special_tasks((), covered, ("float32",))}


# The catalogue calls deprecated and beta functions on purpose.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", special_names())
def test_special_values_agree_with_eager(name, elementwise, caplog):
    caplog.set_level("ERROR", logger="backend_sdk")
    if name not in elementwise:
        pytest.skip("out of scope: `backend-sdk coverage` gives the reason")
    entry = prove(elementwise[name].item, PRIMS, None, elementwise[name].donors)
    assert entry.status == Status.PROVEN, f"{entry.status}: {entry.message}"


@pytest.fixture(scope="session")
def overloads(covered):
    tasks = overload_tasks((), covered, ())
    return {task.item.name: task for task in tasks}


def way_of_writing(op):
    """What overloads have in common that torch brings to a functional one alike: the op, and in place or out=."""
    return base_name(op), any(argument.out for argument in arguments(op))


# Where torch itself writes the results into the wrong arguments the process may end: the whole proof runs each in a
# process that it may lose.
TORCH_FAILS = {known.op for known in KNOWN if OVERLOAD in known.kinds}

WRITING = list(
    {
        way_of_writing(op): name for name, op in aten_overloads().items() if is_mutable(op) and name not in TORCH_FAILS
    }.values()
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", WRITING)
def test_overloads_that_write_agree_with_eager(name, overloads, covered, caplog):
    caplog.set_level("ERROR", logger="backend_sdk")
    if name not in overloads:
        pytest.skip("out of scope: `backend-sdk coverage` gives the reason")
    entry = prove(overloads[name].item, PRIMS, None, overloads[name].donors)
    if entry.status == Status.NOTHING:
        pytest.skip("a sample that lends it arguments is found by the whole proof only")
    if entry.status != Status.PROVEN:
        judged = judge(covered, [entry], whole=False).judged[0]
        assert judged.explanation, f"{entry.status}: {entry.message}"


def test_each_op_is_there():
    assert {case[0].name for case in CASES} == set(op_catalogue.op_infos())
    assert len(CASES) > 1500
    assert len(WRITING) > 900
