"""The benchmarks run. Their bounds are held where they are measured, alone on a machine; here they only measure."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).parents[1] / "benchmarks" / "foundation.py"


@pytest.fixture(scope="module")
def foundation():
    spec = importlib.util.spec_from_file_location("foundation", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["foundation"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["foundation"]


def test_the_chain_is_cut_at_every_refusal_and_in_time(foundation):
    number = foundation.partition_chain()
    assert number.kept, number
    assert "500 regions, 500 eager calls" in number.detail


def test_the_ratios_are_measured(foundation):
    for number in (foundation.call_overhead(rounds=1, calls=5), foundation.import_torch(runs=1)):
        assert 0.01 < number.value < 100, number
    assert 0 < foundation.import_sdk(runs=1).value < 30


def test_a_missed_bound_is_told(foundation):
    number = foundation.Number("slow", 2.0, 1.0, "s", "")
    assert not number.kept
