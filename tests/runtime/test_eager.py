"""Copies have exactly the strides that were asked for, whatever those are."""

from __future__ import annotations

import random

import pytest
import torch

from backend_sdk.runtime.eager import reach, with_strides, write


@pytest.mark.parametrize("seed", range(100))
def test_any_view_can_be_copied_with_its_strides(seed):
    """The strides of random views (expanded, windowed, stepped, permuted) can all be given to a copy."""
    generator = random.Random(seed)
    view = torch.arange(240.0).reshape(*generator.choice([(240,), (6, 40), (4, 5, 12), (2, 3, 4, 10)]))
    for _ in range(generator.randint(0, 4)):
        dim = generator.randrange(view.ndim) if view.ndim else 0
        change = generator.choice(["permute", "step", "narrow", "expand", "unfold", "select", "empty"])
        if change == "permute" and view.ndim:
            view = view.permute(*generator.sample(range(view.ndim), view.ndim))
        elif change == "expand":
            view = view[None].expand(3, *view.shape)
        elif view.ndim and view.shape[dim] > 2:
            if change == "step":
                view = view[(slice(None),) * dim + (slice(None, None, 2),)]
            elif change == "narrow":
                view = view.narrow(dim, 1, view.shape[dim] - 2)
            elif change == "unfold":
                view = view.unfold(dim, 2, 1)
            elif change == "select":
                view = view.select(dim, 1)
            elif generator.random() < 0.2:
                view = view.narrow(dim, 0, 0)
    dense = view.clone(memory_format=torch.contiguous_format)
    copy = with_strides(dense, view.stride())
    assert copy.stride() == view.stride() and copy.shape == view.shape
    assert torch.equal(copy, view)
    assert copy.untyped_storage().data_ptr() != dense.untyped_storage().data_ptr() or not copy.numel()

    memory = torch.full((reach(view.shape, view.stride()) + 5,), -1.0)
    written = write(memory, dense, view.stride(), 3)
    assert torch.equal(written, view) and (memory[:3] == -1).all() and (memory[-2:] == -1).all()


def test_reach():
    assert reach((), ()) == 1
    assert reach((0, 3), (3, 1)) == 0
    assert reach((2, 3), (3, 1)) == 6
    assert reach((2, 3), (1, 10)) == 22
    assert reach((5,), (0,)) == 1
