"""Buffers that live at the same time never share memory, and memory is reused."""

from __future__ import annotations

import random

import pytest
import torch

from backend_sdk.runtime.arena import ALIGNMENT, Arena, Lifetime, layout
from backend_sdk.runtime.device import HOST


def random_lifetimes(seed):
    generator = random.Random(seed)
    steps = generator.randint(1, 40)
    lifetimes = []
    for _ in range(generator.randint(0, 80)):
        first = generator.randrange(steps)
        last = min(steps, first + generator.choice([0, 1, 1, 2, 5, 40]))
        lifetimes.append(Lifetime(generator.choice([0, 1, 4, 63, 64, 65, 1000, 4096]), first, last))
    return lifetimes


@pytest.mark.parametrize("seed", range(200))
def test_living_buffers_never_overlap(seed):
    lifetimes = random_lifetimes(seed)
    offsets, size = layout(lifetimes)
    for i, (one, start) in enumerate(zip(lifetimes, offsets, strict=True)):
        assert start % ALIGNMENT == 0 and start >= 0 and start + one.nbytes <= size
        for j in range(i):
            other = lifetimes[j]
            together = one.first <= other.last and other.first <= one.last
            apart = start + one.nbytes <= offsets[j] or offsets[j] + other.nbytes <= start
            assert apart or not together, (one, start, other, offsets[j])


@pytest.mark.parametrize("seed", range(50))
def test_the_arena_is_no_larger_than_all_and_no_smaller_than_the_busiest_step(seed):
    lifetimes = random_lifetimes(seed)
    _, size = layout(lifetimes)
    rounded = [-(-one.nbytes // ALIGNMENT) * ALIGNMENT for one in lifetimes]
    busiest = max(
        (
            sum(need for one, need in zip(lifetimes, rounded, strict=True) if one.first <= step <= one.last)
            for step in range(42)
        ),
        default=0,
    )
    assert busiest <= size <= sum(rounded)


def test_a_chain_needs_two_buffers():
    chain = [Lifetime(1024, step, step + 1) for step in range(50)]
    assert layout(chain)[1] == 2 * 1024


def test_buffers_are_views_of_one_aligned_allocation():
    shapes, types = [(3, 5), (), (0, 4), (7,)], [torch.float32, torch.bool, torch.float64, torch.int64]
    lifetimes = [
        Lifetime(torch.Size(shape).numel() * dtype.itemsize, 0, 9) for shape, dtype in zip(shapes, types, strict=True)
    ]
    offsets, size = layout(lifetimes)
    arena = Arena(HOST, shapes, types, offsets, size)
    for index, buffer in enumerate(arena.buffers):
        assert (tuple(buffer.shape), buffer.dtype) == (shapes[index], types[index]) and buffer.is_contiguous()
        if buffer.numel():
            assert buffer.data_ptr() % ALIGNMENT == 0 and arena.holds(buffer)
            buffer.fill_(index)
    for index, buffer in enumerate(arena.buffers):
        assert (buffer == torch.tensor(index).to(buffer.dtype)).all()
    assert not arena.holds(torch.ones(3))


def test_no_buffers_no_arena():
    assert layout([]) == ([], 0)
    assert Arena(HOST, [], [], [], 0).buffers == ()
