"""Every op of torch's own catalogue of sample calls computes what eager computes, and reaches the contract.

What a user would lose: an answer that is silently wrong for an edge of an op's arguments (an empty tensor, a
0-d index, an integer dtype), or an op that silently runs in eager.
"""

from __future__ import annotations

import itertools
import warnings

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

from backend_sdk.decomp import rules_with
