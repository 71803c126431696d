"""torch's functions whose kernels read numbers off a tensor, that `backend_sdk.traceable` takes the place of.

Does not: compute them (`backend_sdk.packed_sequences` and `backend_sdk.tracing` do).
"""

from __future__ import annotations

import torch

PACK = torch._pack_padded_sequence
PAD = torch._pad_packed_sequence
PRUNE_ROWS = torch._rowwise_prune
ADDCDIV = torch._foreach_addcdiv
ADDCDIV_ = torch._foreach_addcdiv_
ADDCMUL = torch._foreach_addcmul
ADDCMUL_ = torch._foreach_addcmul_
