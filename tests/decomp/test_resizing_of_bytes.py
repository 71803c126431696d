"""Linear and cubic resizing of bytes: to the bit what eager gives, in whatever layout.

What a user would lose: images that are resized before they become floats, as most input pipelines do, would differ
by one here and there from those that the model was trained on.
"""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import interpolate

from backend_sdk.coverage.calls import COMPOSITES, PRIMS, Call, prove, together

MODES = ["bilinear", "bicubic"]
SIZES = [
    ((7, 9), (5, 5)),
    ((16, 12), (13, 20)),
    ((1, 5), (7, 30)),
    ((33, 2), (16, 3)),
    ((6, 7), (6, 15)),
    ((4, 1), (2, 1)),
]


def image(size, channels=3, batch=2, extreme=False):
    generator = torch.Generator().manual_seed(sum(size) + channels)
    x = torch.randint(0, 256, (batch, channels, *size), generator=generator, dtype=torch.uint8)
    # Of 0 and 255 alone a cubic kernel overshoots, and its result is clamped.
    return (x // 128) * 255 if extreme else x


def agrees_to_the_bit(actual, eager, measure):
    assert len(actual) == len(eager)
    for one, other in zip(actual, eager, strict=True):
        assert one.dtype == torch.uint8 and torch.equal(one, other), (one.int() - other.int()).abs().max()


def resized(x, **how):
    return Call(lambda x: interpolate(x, **how), (x,), agree=agrees_to_the_bit)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("align_corners", [False, True])
def test_to_a_size(mode, antialias, align_corners):
    calls = [
        resized(image(size, extreme=extreme), size=to, mode=mode, antialias=antialias, align_corners=align_corners)
        for size, to in SIZES
        for extreme in (False, True)
    ]
    assert prove(together(calls), COMPOSITES) is not None


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("antialias", [False, True])
def test_by_a_scale(mode, antialias):
    calls = [
        resized(image((size, 7)), scale_factor=scale, mode=mode, antialias=antialias, recompute_scale_factor=again)
        for size, scale in [(4, 1.2), (3, 2.2), (5, 0.5), (9, (0.3, 1.7)), (11, (2.9, 0.4))]
        for again in (None, True)
    ]
    assert prove(together(calls), COMPOSITES) is not None


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("antialias", [False, True])
def test_in_each_layout(mode, antialias):
    """Eager has kernels of their own for few channels, and for channels that lie together."""
    calls = [
        resized(image((10, 8), channels).contiguous(memory_format=layout), size=(7, 13), mode=mode, antialias=antialias)
        for channels in (1, 2, 3, 4, 5, 8)
        for layout in (torch.contiguous_format, torch.channels_last)
    ]
    calls.append(resized(image((10, 16), 3)[:, :, :, ::2], size=(7, 13), mode=mode, antialias=antialias))
    assert prove(together(calls), COMPOSITES) is not None


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("antialias", [False, True])
def test_weights_of_many_bits(mode, antialias):
    """Antialiasing of a long axis reads many elements: their weights are small and keep more bits of fraction."""
    calls = [
        resized(image(size, 1, 1), size=to, mode=mode, antialias=antialias)
        for size, to in [((700, 3), (2, 2)), ((3, 900), (5, 1))]
    ]
    assert prove(together(calls), COMPOSITES) is not None


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("channels", [3, 5])
def test_to_one_column(mode, antialias, channels):
    """Where eager contradicts itself: as it does of channels that lie together, whatever the layout."""

    def together_in_memory(x, to):
        x = x.contiguous(memory_format=torch.channels_last)
        return interpolate(x, size=to, mode=mode, antialias=antialias)

    torch._dynamo.reset()
    x = image((9, 6), channels)
    sizes = [(7, 1), (12, 1), (1, 1)] if channels > 4 else [(7, 1), (12, 1)]
    calls = [Call(together_in_memory, (x, to), agree=agrees_to_the_bit) for to in sizes]
    assert prove(together(calls), COMPOSITES) is not None
    ours = torch.compile(
        lambda x, to: interpolate(x, size=to, mode=mode, antialias=antialias),
        backend="sdk:reference",
        dynamic=False,
        options={"fallback": "error"},
    )
    for to in [(7, 1), (12, 1), (1, 1)]:
        assert torch.equal(ours(x, to), together_in_memory(x, to))


@pytest.mark.parametrize("antialias", [False, True])
def test_a_lanczos_kernel(antialias):
    op = torch.ops.aten._upsample_lanczos2d_aa
    calls = [Call(lambda x, to=to: op(x, to, antialias), (image(size),), agree=agrees_to_the_bit) for size, to in SIZES]
    assert prove(together(calls), PRIMS) is not None
