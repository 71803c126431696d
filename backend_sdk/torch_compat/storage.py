"""Which tensors share memory.

Does not: know what a plan does about it.
"""

from __future__ import annotations

from typing import Any

import torch


def memory_key(tensor: torch.Tensor) -> Any:
    """Equal for tensors of one dtype that are views of one memory, fake tensors included; None when that cannot be
    told by strides alone (sparse tensors, and lazily conjugated or negated ones).

    A key counts while the tensors are alive.
    """
    if tensor.layout != torch.strided or tensor.is_conj() or tensor.is_neg():
        return None
    return tensor.untyped_storage()._cdata, tensor.dtype
