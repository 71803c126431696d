"""Fourier transforms against float64 and against their own definition.

What a user would lose: the spectrum of a signal of odd length, of one element, or along axes in another order; or a
factor of N.
"""

from __future__ import annotations

import math

import pytest
import torch

REALS = (torch.float32, torch.float64)
SIGNALS = (
    ((8,), (0,)),
    ((7,), (0,)),
    ((1,), (0,)),
    ((2, 5), (-1,)),
    ((4, 3, 6), (0, 2)),
    ((4, 3, 5), (2, 1)),
    ((3, 2, 2), (0, 1, 2)),
)
signals = pytest.mark.parametrize(("shape", "dims"), SIGNALS, ids=str)
reals = pytest.mark.parametrize("dtype", REALS, ids=lambda dtype: str(dtype).removeprefix("torch."))
norms = pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])


def _signal(shape, dtype):
    """Of memory order last dim first, so that a rule that trusts strides would show."""
    generator = torch.Generator().manual_seed(len(shape))
    return torch.randn(*reversed(shape), generator=generator, dtype=dtype).permute(*reversed(range(len(shape))))


def _near(actual, expected):
    room = 16 * torch.finfo(actual.dtype).eps * (expected.abs().max().item() if expected.numel() else 0.0)
    torch.testing.assert_close(actual.to(expected.dtype), expected, rtol=0, atol=room)


@pytest.fixture
def run(compiled_call):
    """The result of a compiled call, which may leave nothing to eager."""

    def call(function, *args):
        compiled = compiled_call(function, args)
        assert not compiled.left_to_eager
        (result,) = compiled.leaves
        return result

    return call


@signals
@reals
@norms
@pytest.mark.parametrize("function", [torch.fft.fftn, torch.fft.ifftn], ids=["fft", "ifft"])
def test_complex_transforms(run, shape, dims, dtype, norm, function):
    x = _signal(shape, dtype.to_complex())
    _near(run(lambda x: function(x, dim=dims, norm=norm), x), function(x.to(torch.complex128), dim=dims, norm=norm))


@signals
@reals
@norms
@pytest.mark.parametrize("function", [torch.fft.fftn, torch.fft.rfftn], ids=["fft", "rfft"])
def test_transforms_of_real_signals(run, shape, dims, dtype, norm, function):
    x = _signal(shape, dtype)
    _near(run(lambda x: function(x, dim=dims, norm=norm), x), function(x.double(), dim=dims, norm=norm))


@signals
@reals
@norms
def test_real_signals_back_from_half_a_spectrum(run, shape, dims, dtype, norm):
    sizes = [shape[dim] for dim in dims]
    half = list(shape)
    half[dims[-1]] = sizes[-1] // 2 + 1
    x = _signal(tuple(half), dtype.to_complex())

    def back(x):
        return torch.fft.irfftn(x, s=sizes, dim=dims, norm=norm)

    # The imaginary parts that no real signal has are ignored, as in eager.
    _near(run(back, x), back(x.to(torch.complex128)))


@reals
def test_the_definition(run, dtype):
    n = 6
    x = _signal((n,), dtype.to_complex())
    k = torch.arange(n, dtype=torch.float64)
    matrix = torch.polar(torch.ones(n, n, dtype=torch.float64), -2 * math.pi * k[:, None] * k / n)
    _near(run(torch.fft.fft, x), matrix @ x.to(torch.complex128))


def test_a_signal_padded_and_cut(run):
    x = _signal((5, 4), torch.float64)
    for n in (1, 3, 9):
        _near(run(lambda x: torch.fft.fft(x, n=n, dim=0), x), torch.fft.fft(x, n=n, dim=0))  # noqa: B023
        _near(run(lambda x: torch.fft.irfft(x, n=n, dim=0), x), torch.fft.irfft(x, n=n, dim=0))  # noqa: B023


def test_no_signals(run):
    # Eager raises for an empty batch where torch is built with MKL; the result is empty all the same.
    x = torch.empty(0, 4, dtype=torch.complex64)
    assert run(torch.fft.fft, x).shape == (0, 4)
    assert run(torch.fft.irfft, x).shape == (0, 6)
    assert run(torch.fft.rfft, torch.empty(0, 4)).shape == (0, 3)


def test_a_convolution_by_the_theorem_and_its_gradient(compiled_call):
    def convolve(x, kernel):
        return torch.fft.irfft(torch.fft.rfft(x, n=16) * torch.fft.rfft(kernel, n=16), n=16)

    x, kernel = (torch.randn(n, dtype=torch.float64, requires_grad=True) for n in (10, 5))
    compiled = compiled_call(convolve, (x, kernel))
    assert not compiled.left_to_eager
    weights = torch.arange(16.0, dtype=torch.float64)
    ours = torch.autograd.grad((compiled.leaves[0] * weights).sum(), (x, kernel))
    eagers = torch.autograd.grad((convolve(x, kernel) * weights).sum(), (x, kernel))
    torch.testing.assert_close(ours, eagers)


def test_a_signal_of_dynamic_length():
    torch._dynamo.reset()

    def there_and_back(x):
        return torch.fft.irfft(torch.fft.rfft(x), n=x.shape[-1])

    compiled = torch.compile(there_and_back, backend="sdk:reference", dynamic=True)
    for n in (6, 7, 12):
        x = torch.randn(2, n)
        torch.testing.assert_close(compiled(x), x)
    torch._dynamo.reset()
