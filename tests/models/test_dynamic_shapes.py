"""With ``dynamic=True`` one compilation serves every size.

What a user would lose: a compilation, seconds long, for each new batch or sequence length.
"""

from __future__ import annotations

import pytest
import torch

from backend_sdk.pipeline.report import collecting


def _bert_call(batch, length):
    return {
        "input_ids": torch.randint(3, 64, (batch, length)),
        "attention_mask": torch.ones(batch, length, dtype=torch.long),
    }


def _gpt2_call(batch, length):
    return {"input_ids": torch.randint(3, 64, (batch, length)), "use_cache": False}


def _resnet_call(batch, size):
    return {"pixel_values": torch.randn(batch, 3, size, size)}


@pytest.mark.parametrize(
    ("dynamic", "call", "sizes"),
    [
        ("bert", _bert_call, ((2, 10), (3, 7), (5, 21))),
        ("gpt2", _gpt2_call, ((2, 10), (3, 7), (5, 21))),
        ("resnet", _resnet_call, ((2, 32), (3, 48), (5, 64))),
    ],
    ids=("bert", "gpt2", "resnet"),
)
def test_one_compilation_serves_all_sizes(dynamic, call, sizes, build, compile_strictly, in_float64, assert_as_exact):
    model = build(dynamic)
    wide = in_float64(model)
    compiled = compile_strictly(model.module, dynamic=True)
    with torch.no_grad(), collecting() as reports:
        for size in sizes:
            model.arguments = call(*size)
            wide.arguments = {
                key: value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
                for key, value in model.arguments.items()
            }
            actual, eager = model.call(compiled), model.call()
            assert_as_exact(actual, eager, wide.call(), what=f"size {size}")
            assert actual.stride() == eager.stride()
    assert len(reports) == 1


def test_training_stops_compiling(build, compile_strictly):
    """torch may compile once more when sizes part that the first call happened to make equal, but not at each size."""
    model = build("gpt2")
    compiled = compile_strictly(model.module, dynamic=True)
    counts = []
    with collecting() as reports:
        for size in ((2, 10), (3, 7), (5, 21), (4, 13)):
            counts.append(len(reports))
            arguments = _gpt2_call(*size)
            gradients = []
            for module in (compiled, model.module):
                model.module.zero_grad(set_to_none=True)
                module(**arguments, labels=arguments["input_ids"]).loss.backward()
                gradients.append([p.grad for p in model.module.parameters()])
            for ours, theirs in zip(*gradients, strict=True):
                torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    assert len(reports) == counts[2] <= 4
