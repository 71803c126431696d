"""Resizing by a scale beside a size: eager copies or doubles some axes whatever the scale says, and so do the rules.

What a user would lose: ``interpolate(x, scale_factor=1.2)`` of an axis that keeps its size would be resampled.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch.nn.functional import interpolate

from backend_sdk.coverage.calls import COMPOSITES, Call, prove
from backend_sdk.torch_compat.kept_whole import kept_whole

MODES = [
    ("nearest", 1),
    ("nearest", 2),
    ("nearest", 3),
    ("nearest-exact", 1),
    ("nearest-exact", 2),
    ("nearest-exact", 3),
    ("linear", 1),
    ("bilinear", 2),
    ("trilinear", 3),
    ("bicubic", 2),
]
# A size that the scale keeps, one that it doubles, and others.
SCALES = [(4, 1.2), (3, 2.2), (4, 2.1), (5, 0.5), (3, 1.7)]


def image(size, spatial, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return torch.rand((2, 2, *(size,) * spatial), generator=generator).to(dtype)


@pytest.mark.parametrize(("mode", "spatial"), MODES)
@pytest.mark.parametrize(("size", "scale"), SCALES)
@pytest.mark.parametrize("backward", [False, True])
def test_a_scale_as_in_eager(mode, spatial, size, scale, backward):
    x = image(size, spatial).requires_grad_(backward)
    call = Call(lambda x: interpolate(x, scale_factor=scale, mode=mode), (x,), backward=backward)
    assert prove(call, COMPOSITES) is not None


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize(("size", "scale"), SCALES)
@pytest.mark.parametrize("backward", [False, True])
def test_antialiased_by_a_scale(mode, size, scale, backward):
    x = image(size, 2).requires_grad_(backward)
    call = Call(lambda x: interpolate(x, scale_factor=scale, mode=mode, antialias=True), (x,), backward=backward)
    assert prove(call, COMPOSITES) is not None


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.uint8])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear"])
def test_in_other_dtypes(mode, dtype):
    x = image(4, 2, dtype) if dtype.is_floating_point else (image(4, 2) * 255).to(dtype)
    for scale in (1.2, 2.1, 1.7):
        assert prove(Call(lambda x, scale=scale: interpolate(x, scale_factor=scale, mode=mode), (x,)), COMPOSITES)


@pytest.mark.parametrize(("mode", "spatial"), MODES)
def test_the_op_reaches_the_backend_whole(mode, spatial):
    """As one node, which a backend may claim: torch by itself takes it apart before any backend is asked."""
    ran = prove(Call(lambda x: interpolate(x, scale_factor=1.7, mode=mode), (image(4, spatial),)), COMPOSITES)
    assert [name for name in ran.reduced if "upsample" in name], ran.reduced


def test_torch_still_resamples_what_keeps_its_size():
    """When this fails torch has mended it, and `kept_whole` is left for backends that claim the op."""
    x = torch.arange(16.0).reshape(1, 1, 4, 4)

    def same(x):
        return interpolate(x, scale_factor=1.2)

    assert torch.equal(same(x), x)
    assert not torch.equal(torch.compile(same, backend="aot_eager")(x), x)


def test_the_kernels_are_put_back():
    op = torch.ops.aten.upsample_nearest2d.vec
    before = dict(op.py_kernels)
    with pytest.raises(ValueError, match="within"), kept_whole():
        assert op.py_kernels != before
        raise ValueError("within")
    assert op.py_kernels == before


def test_torchs_table_is_the_same_whether_it_is_made_within_or_before():
    """It is made once in a process, and `backend-sdk drift` compares its sources."""
    program = """
import sys
from backend_sdk.torch_compat import decompositions
from backend_sdk.torch_compat.kept_whole import kept_whole
from backend_sdk.torch_compat.overloads import aten_overloads
if sys.argv[1] == "within":
    with kept_whole():
        decompositions.table()
print([name for name, op in aten_overloads().items() if "upsample" in name and decompositions.source_of(op)])
"""
    found = [
        subprocess.run([sys.executable, "-c", program, when], capture_output=True, text=True, check=True).stdout
        for when in ("before", "within")
    ]
    assert found[0] == found[1] and "upsample_nearest2d.vec" in found[0]
