"""Views of memory as another dtype: narrower and wider elements, complex values, truth values.

What a user would lose: packing and unpacking of bytes, as quantized formats and hashes do it, in eager.
"""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from backend_sdk import dtypes
from backend_sdk.coverage.calls import COMPOSITES, Call, prove
from backend_sdk.errors import UnsupportedOpError

REAL = (*dtypes.FLOAT_DTYPES, *dtypes.INTEGER_DTYPES)
NAMES = {dtypes.name(dtype): dtype for dtype in (*REAL, *dtypes.COMPLEX_DTYPES)}


def _agree(function, *args):
    assert prove(Call(function, args), COMPOSITES) is not None


def _bytes(*shape):
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)


@pytest.mark.parametrize("source", NAMES)
def test_every_pair_of_dtypes(source):
    x = _bytes(2, 3, 32).view(NAMES[source])
    for target in NAMES.values():
        # Bytes compare NaN payloads and all.
        _agree(lambda x, t=target: x.view(t).contiguous().view(torch.uint8), x)


def test_bits_of_known_values():
    one = torch.tensor([1.0, -2.0, math.inf])
    _agree(lambda x: (x.view(torch.int16), x.view(torch.uint8), x.view(torch.bfloat16)), one)
    _agree(lambda x: x.view(torch.int64), torch.tensor([-1, 0, 1, -1], dtype=torch.int32))
    _agree(lambda x: x.view(torch.complex128), torch.arange(4.0, dtype=torch.float64))


def test_truth_values():
    x = torch.tensor([True, False, True, True])
    _agree(lambda x: (x.view(torch.uint8), x.view(torch.int32), x.view(torch.int8)), x)
    _agree(lambda x: x.view(torch.bool), torch.tensor([1, 0], dtype=torch.uint8))
    _agree(lambda x: x.view(torch.bool), torch.tensor([1, 256], dtype=torch.int32))


def test_shapes():
    for source, target in itertools.product((torch.int8, torch.float32, torch.complex64), repeat=2):
        _agree(lambda x, t=target: x.view(t), torch.zeros(0, 8, dtype=source))
    _agree(lambda x: x.view(torch.int32), torch.tensor(1.5))
    _agree(lambda x: x.view(torch.float64), torch.tensor(1.5 - 2j, dtype=torch.complex64))
    _agree(lambda x: x.view(torch.complex64), torch.tensor(1.5, dtype=torch.float64))
    # Only the last dim must lie in order.
    _agree(lambda x: x.transpose(0, 1).view(torch.int16), torch.arange(24.0).reshape(2, 3, 4))
    _agree(lambda x: torch.ops.aten.view_copy.dtype(x, torch.int16), torch.arange(4.0))


def test_symbolic_sizes():
    compiled = torch.compile(
        lambda x: x.view(torch.uint8) + 1, backend="sdk:reference", options={"fallback": "error"}, dynamic=True
    )
    for size in (3, 5):
        x = torch.arange(float(size))
        assert torch.equal(compiled(x), x.view(torch.uint8) + 1)


def test_the_memory_of_an_input_is_there_beyond_its_own_elements():
    x = torch.arange(20.0)[5:15]
    _agree(lambda x: x.as_strided((2, 2), (1, 2), 0) + 1, x)
    _agree(lambda x: x.as_strided((4,), (5,), 4) * x[:4], x)
    _agree(lambda x: x.as_strided((2, 2), (1, 2), 10) + 1, x)


def test_memory_outside_of_a_computed_value_is_refused_with_its_reason():
    x = torch.arange(20.0)[5:15]

    def outside(x):
        return (x[::2] * 2)[1:].as_strided((2,), (1,), 0) + 1

    with pytest.raises(UnsupportedOpError, match="memory that its operand's own elements"):
        torch.compile(outside, backend="sdk:reference", options={"fallback": "error"})(x)
    assert torch.equal(torch.compile(outside, backend="sdk:reference")(x), outside(x))
