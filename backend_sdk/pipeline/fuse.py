"""Fuse: merges prims of a region into kernels. The identity, until the loop IR exists: a region is one kernel.

Does not: cut regions (partition does).
"""

from __future__ import annotations

from collections.abc import Sequence

from backend_sdk.pipeline.partition import Step


def fuse(steps: Sequence[Step]) -> Sequence[Step]:
    """The steps, each region to be lowered as one kernel."""
    return steps
