"""Dtype sets and dtype facts that the contract is written in.

Does not: decide promotion of aten ops (decompositions do) or what a backend supports (Capability does).
"""

from __future__ import annotations

from typing import Final

import torch

FLOAT_DTYPES: Final = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
COMPLEX_DTYPES: Final = (torch.complex128, torch.complex64)
SIGNED_DTYPES: Final = (torch.int64, torch.int32, torch.int16, torch.int8)
INTEGER_DTYPES: Final = (*SIGNED_DTYPES, torch.uint8)
BOOL_DTYPES: Final = (torch.bool,)

FLOATING: Final = frozenset(FLOAT_DTYPES)
COMPLEX: Final = frozenset(COMPLEX_DTYPES)
SIGNED: Final = frozenset(SIGNED_DTYPES)
INTEGRAL: Final = frozenset(INTEGER_DTYPES)
BOOLEAN: Final = frozenset(BOOL_DTYPES)
REAL: Final = FLOATING | INTEGRAL
NUMERIC: Final = REAL | COMPLEX
ANY: Final = NUMERIC | BOOLEAN

# Dtypes that are kept, moved and converted, and not computed with: eight-bit floats, wide unsigned integers (torch
# itself computes with few of them), complex numbers of half precision.
FLOAT8_DTYPES: Final = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
UNSIGNED_DTYPES: Final = (torch.uint16, torch.uint32, torch.uint64)
FLOAT8: Final = frozenset(FLOAT8_DTYPES)
UNSIGNED: Final = frozenset(UNSIGNED_DTYPES)
STORAGE_DTYPES: Final = (*FLOAT8_DTYPES, *UNSIGNED_DTYPES, torch.complex32)
STORAGE: Final = frozenset(STORAGE_DTYPES)
STORED: Final = ANY | STORAGE

# In the order in which lists of dtypes are shown: those that ops compute with, and all that values may have.
COMPUTING_DTYPES: Final = (*FLOAT_DTYPES, *COMPLEX_DTYPES, *INTEGER_DTYPES, *BOOL_DTYPES)
STORED_DTYPES: Final = (*COMPUTING_DTYPES, *STORAGE_DTYPES)

_BY_NAME: Final = {str(dtype).removeprefix("torch."): dtype for dtype in STORED}

# Significand bits that are stored, without the implicit one (IEEE 754; bfloat16 as in its white paper; eight bits as in
# "FP8 Formats for Deep Learning", 2022).
_FRACTION_BITS: Final = {torch.float64: 52, torch.float32: 23, torch.float16: 10, torch.bfloat16: 7} | {
    dtype: 3 if "e4m3" in str(dtype) else 2 for dtype in FLOAT8_DTYPES
}


_WIDER: Final = {torch.uint16: torch.int32, torch.uint32: torch.int64, torch.complex32: torch.complex64}


def name(dtype: torch.dtype) -> str:
    """``"float32"`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")


def by_name(text: str) -> torch.dtype:
    """The dtype called ``text`` (``"float32"``). Raises ``KeyError`` for a dtype outside the contract."""
    return _BY_NAME[text]


def fraction_bits(dtype: torch.dtype) -> int:
    """Stored significand bits of a real floating dtype."""
    return _FRACTION_BITS[dtype]


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which composites carry intermediates: float32 for half precision, else ``dtype`` itself."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor`` in a dtype that torch computes with and that holds each of its values (of uint64: its bits)."""
    if tensor.dtype == torch.uint64:
        return tensor.view(torch.int64)
    if tensor.dtype in FLOAT8:
        return tensor.to(torch.float32)
    return tensor.to(_WIDER[tensor.dtype]) if tensor.dtype in _WIDER else tensor


def reference_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the numeric truth: float64 for floats, complex128 for complex, else ``dtype`` itself."""
    if dtype.is_floating_point:
        return torch.float64
    return torch.complex128 if dtype.is_complex else dtype
