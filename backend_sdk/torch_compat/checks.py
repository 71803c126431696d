"""Checks that a graph makes of its data when it runs."""

from __future__ import annotations

import torch


def assert_true(condition: torch.Tensor, message: str) -> None:
    """Raise `RuntimeError` with ``message`` when ``condition``, of one element, is false (traced: when it runs)."""
    torch._assert_async(condition, message)
