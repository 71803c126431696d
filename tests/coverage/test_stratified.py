"""The fast part of the proof: each op of torch's catalogue, forward and backward, on its first samples.

The whole proof is ``backend-sdk coverage --prove`` (see docs/coverage.md).

What a user would lose: an answer that is silently wrong, or an op that eager runs without anybody having decided so.
"""

from __future__ import annotations

import pytest

from backend_sdk.coverage.calls import COMPOSITES, PRIMS
from backend_sdk.coverage.prove import BACKWARD, FORWARD, Item, Status, op_info_items, prove
from backend_sdk.coverage.report import judge
from backend_sdk.coverage.verdict import verdicts
from backend_sdk.torch_compat import op_catalogue

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


def test_each_op_is_there():
    assert {case[0].name for case in CASES} == set(op_catalogue.op_infos())
    assert len(CASES) > 1500
