"""Checks that a graph makes of its data when it runs."""

from __future__ import annotations

import torch


def assert_true(condition: torch.Tensor, message: str) -> None:
    """Raise `RuntimeError` with ``message`` when the one element of ``condition`` is false; a traced call does it later."""
    torch._assert_async(condition, message)
