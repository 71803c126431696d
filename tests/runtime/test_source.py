"""Generated functions: any argument can be written down, and what was written is what a traceback shows."""

from __future__ import annotations

import math
import traceback

import pytest
import torch

from backend_sdk.runtime.source import SourceWriter
from backend_sdk.spec.symbolic import symbol


@pytest.mark.parametrize(
    "value",
    [
        0,
        -1,
        True,
        None,
        1.5,
        -0.0,
        1e300,
        math.inf,
        -math.inf,
        "text'\"",
        torch.float32,
        (1,),
        (),
        [1, (2.0, [3])],
        1 + 2j,
        torch.device("cpu"),
        torch.channels_last,
        slice(1, None),
        {"a": 1},
        10**30,
    ],
    ids=repr,
)
def test_arguments_survive(value):
    writer = SourceWriter("test")
    writer.line("def run():", indent=0)
    writer.line(f"return {writer.literal(value)}")
    result = writer.compile("run")()
    assert result == value and type(result) is type(value)
    if isinstance(value, float):
        assert math.copysign(1, result) == math.copysign(1, value)


def test_nan_and_tensors_survive():
    tensor = torch.ones(2)
    writer = SourceWriter("test")
    writer.line("def run():", indent=0)
    writer.line(f"return {writer.literal((math.nan, tensor))}")
    number, same = writer.compile("run")()
    assert math.isnan(number) and same is tensor


def test_symbols_are_expressions():
    writer = SourceWriter("test")
    writer.line("def run(s0):", indent=0)
    writer.line(f"return {writer.literal((symbol('s0') * 2 + 1, [symbol('s0') // 3]))}")
    assert writer.compile("run")(7) == (15, [2])


def test_traceback_shows_the_generated_line():
    writer = SourceWriter("shown")
    writer.line("def run(x):", indent=0)
    writer.line("return x.no_such_thing")
    with pytest.raises(AttributeError) as caught:
        writer.compile("run")(1)
    text = "".join(traceback.format_exception(caught.value))
    assert "<backend_sdk shown #" in text and "return x.no_such_thing" in text


def test_globals_can_be_replaced():
    writer = SourceWriter("test")
    name = writer.bind(len, "function")
    assert writer.bind(len, "function") == name
    writer.line("def run(x):", indent=0)
    writer.line(f"return {name}(x)")
    assert writer.compile("run")([1, 2]) == 2
    assert writer.compile("run", {name: sum})([1, 2]) == 3
