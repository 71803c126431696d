"""Search in sorted sequences.

Does not: sort (`reduction.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from backend_sdk import dtypes
from backend_sdk.prims.define import Operand, composite
from backend_sdk.prims.elementwise import ne, select
from backend_sdk.prims.indexing import gather, scatter
from backend_sdk.prims.reduction import cumsum, sort
from backend_sdk.prims.samples import tensor
from backend_sdk.prims.shape import concat, slice
from backend_sdk.prims.shorthand import constant
from backend_sdk.spec import DtypeVar, Exact, Sample, Shape, TensorType, differ, refuse

_ORDERED = DtypeVar("T", dtypes.REAL | dtypes.BOOLEAN)


def _search_samples(dtype: torch.dtype, generator: torch.Generator) -> Iterator[Sample]:
    for lead, length, count in (((), 7, 5), ((3,), 4, 6), ((2, 2), 1, 3), ((), 0, 3), ((2,), 5, 0)):
        sequence = tensor((*lead, length), dtype, generator).sort(dim=-1).values
        for right in (False, True):
            yield Sample((sequence, tensor((*lead, count), dtype, generator)), {"right": right})


def _search_shape(sequence: TensorType, values: TensorType, *, right: bool) -> Shape:
    if sequence.rank < 1 or differ(sequence.shape[:-1], values.shape[:-1]) or sequence.rank != values.rank:
        raise refuse("searchsorted", "sequence and values must agree in every dim but the last", sequence, values)
    return values.shape


@composite(
    shape=_search_shape,
    operands=(_ORDERED, _ORDERED),
    results=(torch.int64,),
    tolerance=Exact(),
    samples=_search_samples,
    differentiable=False,
)
def searchsorted(sequence: Operand, values: Operand, *, right: bool) -> Operand:
    """How many elements of the ascending ``sequence`` (its last dim) lie below each of ``values``, or, with ``right``,
    are not above it. All elements do for NaN.

    The body sorts both together: unlike a binary search it needs no bound on the length.
    """
    axis = values.ndim - 1
    length, number = sequence.shape[-1], values.shape[-1]
    # The sort is stable, so of equal elements those of the first part come first.
    parts = (sequence, values) if right else (values, sequence)
    _, source = sort(concat(*parts, axis=axis), axis=axis, descending=False)
    flags = [constant(part, 1 if part is sequence else 0, torch.int64) for part in parts]
    passed = cumsum(gather(concat(*flags, axis=axis), source, axis=axis), axis=axis)
    # Back from sorted order to the order of the operands.
    found = scatter(constant(passed, 0), source, passed, axis=axis, mode="set")
    start = length if right else 0
    starts, limits = [0] * values.ndim, list(values.shape)
    starts[axis], limits[axis] = start, start + number
    result = slice(found, starts=tuple(starts), limits=tuple(limits), strides=(1,) * values.ndim)
    return select(ne(values, values), constant(result, length), result)
