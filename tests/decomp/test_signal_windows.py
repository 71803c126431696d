"""Windows of signal processing, the frequencies of a transform, and resizing by Lanczos' kernel.

What a user would lose: an audio front end that makes its window within the model.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from backend_sdk.coverage.calls import COMPOSITES, Call, prove

aten = torch.ops.aten

WINDOWS = (
    torch.bartlett_window,
    torch.blackman_window,
    torch.hamming_window,
    torch.hann_window,
    torch.kaiser_window,
)


def _agree(function, *args, backward=False):
    assert prove(Call(function, args, backward=backward), COMPOSITES) is not None


@pytest.mark.parametrize("window", WINDOWS, ids=lambda window: window.__name__)
@pytest.mark.parametrize("dtype", [None, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("length", [0, 1, 2, 7])
def test_windows(window, dtype, length):
    for periodic in (True, False):
        _agree(lambda x, p=periodic: x + window(length, p, dtype=dtype), torch.zeros(length, dtype=dtype))


def test_parameters_of_windows():
    _agree(lambda x: x + torch.hamming_window(9, False, 0.6, 0.3), torch.zeros(9))
    _agree(lambda x: x + torch.kaiser_window(9, True, 3.5), torch.zeros(9))
    _agree(lambda x: torch.stft(x, 16, window=torch.hamming_window(16), return_complex=True), torch.randn(64))


@pytest.mark.parametrize("dtype", [None, torch.float64, torch.float16])
@pytest.mark.parametrize("count", [0, 1, 2, 7, 8])
def test_frequencies(count, dtype):
    zero = torch.zeros((), dtype=dtype)
    _agree(lambda x: x + torch.fft.fftfreq(count, 0.25, dtype=dtype), zero)
    _agree(lambda x: x + torch.fft.rfftfreq(count, 3.0, dtype=dtype), zero)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("size", [(3, 4), (11, 5), (6, 5), (1, 1)])
def test_lanczos(size, aligned):
    torch.manual_seed(0)

    def resize(x):
        return aten._upsample_lanczos2d_aa.default(x, list(size), aligned)

    x = torch.randn(2, 2, 6, 5, dtype=torch.float64)
    _agree(resize, x)
    _agree(resize, x.requires_grad_(), backward=True)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_resizing_to_the_same_size_copies_any_dtype(mode):
    x = torch.arange(24, dtype=torch.uint8).reshape(1, 2, 3, 4)
    _agree(lambda x: F.interpolate(x, size=(3, 4), mode=mode, antialias=True), x)
