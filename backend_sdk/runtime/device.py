"""Where a backend's buffers live.

Does not: run kernels.
"""

from __future__ import annotations

import torch


class Device:
    """Memory that a backend's kernels read and write. Subclass it for memory of your own.

    ``type`` is the torch device type whose tensors the backend takes as they are (``"cpu"``, ``"cuda"``, ...).

    ``asynchronous`` says that a kernel may still run when the call that started it has returned. Kernels then must
    run in the order in which they were started, and the plan calls `synchronize` before anything but a kernel
    touches what they read or write: before an eager op, before results are returned and memory is given back. When
    it is false, `synchronize` is never called by a plan.
    """

    type: str = "cpu"
    asynchronous: bool = False

    def allocate(self, nbytes: int) -> torch.Tensor:
        """An uninitialized uint8 tensor of ``nbytes``, aligned to at least 64 bytes (torch's CPU alignment)."""
        return torch.empty(nbytes, dtype=torch.uint8, device=self.type)

    def empty(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """An uninitialized tensor of its own storage."""
        return torch.empty_strided(shape, strides, dtype=dtype, device=self.type)

    def synchronize(self) -> None:
        """Wait until all kernels that were started have finished. Nothing to wait for on the host.

        What it raises is reported as the failure of the kernels that were started since the last call.
        """

    def accepts(self, device: torch.device) -> bool:
        """Whether kernels can read a tensor on ``device``."""
        return device.type == self.type


HOST = Device()
