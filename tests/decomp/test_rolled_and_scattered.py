"""Rolls of symbolic sizes; scattering, filling and drawing in dtypes that are rarely met.

What a user would lose: a shifted window of a model with dynamic sizes, or a reduction of complex numbers, in eager.
"""

from __future__ import annotations

import math

import pytest
import torch

from backend_sdk.coverage.calls import COMPOSITES, Call, prove

NAN, INF = math.nan, math.inf


@pytest.fixture
def strict():
    torch._dynamo.reset()
    yield lambda function, **options: torch.compile(
        function, backend="sdk:reference", fullgraph=True, options={"fallback": "error"}, **options
    )
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("shifts", "dims"), [(1, 0), (-3, 1), (100, -1), ((2, -5), (0, 1)), ((1, 1, 7), (0, 0, 1)), (3, ()), (0, 1)]
)
def test_a_roll_of_symbolic_sizes(strict, shifts, dims):
    compiled = strict(lambda x: torch.roll(x, shifts, dims) * 1, dynamic=True)
    for shape in ((4, 5), (2, 3), (7, 2), (3, 9)):
        x = torch.arange(float(math.prod(shape))).reshape(shape)
        assert torch.equal(compiled(x), torch.roll(x, shifts, dims))


def test_a_roll_by_a_symbolic_number_and_its_gradient(strict):
    compiled = strict(lambda x, n: torch.roll(x, n, 0) * x, dynamic=True)
    for size, shift in ((4, 2), (5, 3), (6, 9), (3, -4)):
        x, y = (torch.arange(float(size)).requires_grad_() for _ in range(2))
        actual, expected = compiled(x, shift), torch.roll(y, shift, 0) * y
        (actual * actual).sum().backward()
        (expected * expected).sum().backward()
        assert torch.equal(actual, expected) and torch.equal(x.grad, y.grad)


REDUCED = {torch.bool: ["sum", "prod", "amax", "amin"], torch.complex64: ["sum", "mean"], torch.complex128: ["sum"]}


@pytest.mark.parametrize(("dtype", "reduce"), [(dtype, reduce) for dtype in REDUCED for reduce in REDUCED[dtype]])
@pytest.mark.parametrize("include_self", [True, False])
def test_scattered_reductions_of_truth_and_complex(dtype, reduce, include_self):
    x = torch.tensor([[1 + 2j, 0, -1j], [0, 3, 1]])
    source = torch.tensor([[0, 2 - 1j, 1, 1j], [1, 0, 0, 5]])
    x, source = (part.real.bool() if dtype == torch.bool else part.to(dtype) for part in (x, source))
    index = torch.tensor([[0, 0, 2, 0], [1, 1, 1, 2]])

    def scattered(x, index, source):
        return torch.scatter_reduce(x, 1, index, source, reduce, include_self=include_self)

    assert prove(Call(scattered, (x, index, source)), COMPOSITES)
    assert prove(Call(scattered, (x, index[:, :0], source)), COMPOSITES)
    flat = [part[0].clone() for part in (x, index, source)]
    call = Call(lambda x, i, s: torch.scatter_reduce(x, 0, i, s, reduce, include_self=include_self), tuple(flat))
    assert prove(call, COMPOSITES)
    number = (x[0, 0].clone(), torch.tensor(0), source[1, 3].clone())
    assert prove(Call(call.function, number), COMPOSITES)


@pytest.mark.parametrize(
    ("dtype", "reduce"), [(torch.bool, "mean"), (torch.complex64, "amax"), (torch.complex64, "amin")]
)
def test_what_eager_does_not_reduce_is_refused_with_its_reason(compiled_call, dtype, reduce):
    x = torch.ones(3, dtype=dtype)
    index = torch.tensor([0, 0, 1])
    with pytest.raises(Exception, match="not implemented for"):
        torch.scatter_reduce(x, 0, index, x, reduce)
    with pytest.raises(Exception, match="not implemented for"):
        compiled_call(lambda x, i: torch.scatter_reduce(x, 0, i, x, reduce), (x, index))


PARTS = [NAN, INF, -INF, 0.0, -0.0, 1.5, -2.0]


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("given", [(), (1.0,), (0.5, 2.0, 3.0), (None, -INF, NAN), (NAN, NAN, 7.0), (INF, 1.0, 2.0)])
def test_nan_to_num_of_each_part(dtype, given):
    x = torch.tensor([complex(real, imag) for real in PARTS for imag in PARTS], dtype=dtype)
    for operand in (x, x[0], x[:0]):
        assert prove(Call(lambda x: torch.nan_to_num(x, *given), (operand,)), COMPOSITES)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
# A deviation that is a number is refused before any backend: torch makes it complex and compares it with 0.
@pytest.mark.parametrize("deviation", [torch.full((20000,), 2.0), torch.tensor(2.0)])
def test_complex_normal_numbers(compiled_call, dtype, deviation):
    mean = torch.full((20000,), 3 - 1j, dtype=dtype)
    arguments = (mean, deviation)
    compiled = compiled_call(torch.normal, arguments)
    assert not compiled.left_to_eager
    drawn = compiled.leaves[0]
    assert (drawn.dtype, drawn.shape) == (dtype, mean.shape)
    # Of 20000 numbers: within five standard errors. The two parts share the variance, and are independent.
    torch.testing.assert_close(drawn.mean(), mean[0], atol=0.1, rtol=0)
    moved = torch.view_as_real(drawn - mean[0])
    torch.testing.assert_close(moved.var(0), torch.full_like(moved[0], 2.0), atol=0.1, rtol=0)
    torch.testing.assert_close((moved[:, 0] * moved[:, 1]).mean(), moved[0, 0] * 0, atol=0.1, rtol=0)
