"""Storage dtypes: eight-bit floats, wide unsigned integers and complex32 are kept, moved and converted on the backend.

What a user would lose: a model with weights in eight bits, of which every touch runs in eager.
"""

from __future__ import annotations

import pytest
import torch

from backend_sdk import Capability, dtypes
from backend_sdk.backends.reference import ReferenceBackend

MOVES = {
    "convert from": lambda x: x.to(torch.float32) if not x.is_complex() else x.to(torch.complex64),
    "reshape": lambda x: x.reshape(3, 2),
    "transpose": lambda x: x.t().contiguous(),
    "slice": lambda x: x[:, 1:].clone(),
    "cat": lambda x: torch.cat([x, x[:1]]),
    "expand": lambda x: x[None].expand(2, 2, 3).contiguous(),
    "flip": lambda x: x.flip(0),
    "where": lambda x: torch.where(torch.tensor([True, False, True]), x, x.flip(0)),
    "stack": lambda x: torch.stack([x, x]),
    "split": lambda x: torch.cat(x.split(2, dim=1)[::-1], dim=1),
}


def compiled(function, *args):
    # Each test compiles the same code anew.
    torch._dynamo.reset()
    return torch.compile(function, backend="sdk:reference", fullgraph=True, options={"fallback": "error"})(*args)


def same(got, expected):
    assert got.dtype == expected.dtype
    assert torch.equal(*map(dtypes.widened, (got, expected)))


@pytest.mark.parametrize("dtype", dtypes.STORAGE_DTYPES, ids=dtypes.name)
@pytest.mark.parametrize("name", MOVES)
def test_moves_and_conversions_stay_on_the_backend(name, dtype):
    x = torch.arange(6.0).reshape(2, 3).to(dtype)
    same(compiled(MOVES[name], x), MOVES[name](x))


@pytest.mark.parametrize("dtype", dtypes.STORAGE_DTYPES, ids=dtypes.name)
@pytest.mark.parametrize("source", [torch.float32, torch.float16, torch.int64, torch.bool], ids=dtypes.name)
def test_conversions_to_them(dtype, source):
    x = torch.tensor([0.0, 1.0, 2.0, 100.0]).to(source)
    same(compiled(lambda x: x.to(dtype), x), x.to(dtype))


@pytest.mark.parametrize(
    "pair", [(torch.float8_e4m3fn, torch.uint8), (torch.int64, torch.uint64), (torch.uint16, torch.bfloat16)]
)
def test_bits(pair):
    source, target = pair
    x = torch.arange(5).to(source)
    same(compiled(lambda x: x.view(target), x), x.view(target))


# For scales of rows, eager gives bfloat16 only.
@pytest.mark.parametrize(
    ("rows", "out_dtype"), [(False, torch.bfloat16), (False, torch.float32), (False, None), (True, torch.bfloat16)]
)
@pytest.mark.parametrize("bias", [False, True])
def test_products_of_eight_bit_floats(rows, bias, out_dtype):
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(15, 16, generator=generator).to(torch.float8_e4m3fn)
    b = torch.randn(32, 16, generator=generator).to(torch.float8_e5m2).t()
    scales = (torch.rand(15, 1), torch.rand(1, 32)) if rows else (torch.tensor(0.5), torch.tensor(1.5))
    added = torch.randn(32, generator=generator).to(torch.bfloat16) if bias else None

    def product(a, b, *scales):
        return torch._scaled_mm(a, b, *scales, bias=added, out_dtype=out_dtype)

    expected = product(a, b, *scales)
    got = compiled(product, a, b, *scales)
    assert got.dtype == expected.dtype
    torch.testing.assert_close(got.float(), expected.float(), rtol=0.02, atol=0.02)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64, torch.int8, torch.uint8, torch.bool])
@pytest.mark.parametrize("dim", [None, 0, 1, (0, 1)])
def test_hashes(dtype, dim):
    x = torch.arange(-6.0, 9.0).reshape(3, 5).to(dtype)
    arguments = {} if dim is None else {"dim": dim}
    same(compiled(lambda x: torch.hash_tensor(x, **arguments), x), torch.hash_tensor(x, **arguments))


def test_a_backend_that_says_nothing_is_not_asked_to_hold_them():
    assert Capability().dtypes.isdisjoint(dtypes.STORAGE)
    assert ReferenceBackend().capability.dtypes >= dtypes.STORAGE


CONJUGATES = {
    "conj": lambda x: x.conj().resolve_conj(),
    "conj_physical": torch.conj_physical,
    "adjoint": lambda x: x.mH.resolve_conj().clone(),
}


@pytest.mark.parametrize("name", CONJUGATES)
def test_conjugates_of_half_precision(name):
    torch._dynamo.reset()
    x = torch.complex(torch.arange(6.0).reshape(2, 3), torch.ones(2, 3)).to(torch.complex32)
    run = torch.compile(CONJUGATES[name], backend="sdk:reference", options={"fallback": "allow"})
    same(run(x).resolve_conj(), CONJUGATES[name](x).resolve_conj())


COMPUTED = {
    "add": lambda x: x + x,
    "mul": lambda x: x * x,
    "abs": lambda x: x.abs(),
    "sum": lambda x: x.sum(),
    "eq": lambda x: x == x,
    "neg": lambda x: -x,
    "index_select": lambda x: x.index_select(0, torch.tensor([1, 0])),
    "index": lambda x: x[torch.tensor([1, 0])],
    "embedding": lambda x: torch.nn.functional.embedding(torch.tensor([1, 0]), x),
    "sort": lambda x: x.sort(),
    "isnan": lambda x: x.isnan(),
    "amax": lambda x: x.amax(1),
    "clamp": lambda x: x.clamp(1, 2),
    "full": lambda x: torch.full_like(x, 2),
    "masked_fill": lambda x: x.masked_fill(torch.tensor([True, False, True]), 1),
}


@pytest.mark.parametrize("dtype", dtypes.STORAGE_DTYPES, ids=dtypes.name)
@pytest.mark.parametrize("name", COMPUTED)
def test_computing_falls_back(name, dtype):
    x = torch.arange(6.0).reshape(2, 3).to(dtype)
    try:
        expected = torch.utils._pytree.tree_leaves(COMPUTED[name](x))
    except (RuntimeError, NotImplementedError):
        pytest.skip("eager does not compute it either")
    torch._dynamo.reset()
    run = torch.compile(COMPUTED[name], backend="sdk:reference", fullgraph=True, options={"fallback": "allow"})
    for one, other in zip(torch.utils._pytree.tree_leaves(run(x)), expected, strict=True):
        same(one, other)
