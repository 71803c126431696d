"""The accelerator, simulated: stands for the driver and the kernel library that a vendor already has.

Does not: know Backend SDK.
"""

import torch

LONGEST_DOT = 4096  # elements of one row that the matrix unit's buffer holds


def matmul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The matrix unit: ``[batch, m, k] @ [batch, k, n]`` in float32, integers exactly."""
    return torch.bmm(x, y)


def gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    """The activation unit knows the tanh form only."""
    return torch.nn.functional.gelu(x, approximate="tanh")


def softmax_rows(x: torch.Tensor) -> torch.Tensor:
    """The softmax unit normalizes rows, that is the last dim."""
    return torch.softmax(x, dim=-1)


def hard_swish(x: torch.Tensor) -> torch.Tensor:
    """The activation unit's own piecewise-linear swish."""
    return torch.nn.functional.hardswish(x)
