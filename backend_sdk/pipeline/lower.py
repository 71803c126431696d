"""Lower: has the backend compile each region, and checks that it returns a kernel.

Does not: run kernels.
"""

from __future__ import annotations

from backend_sdk.backend import Backend
from backend_sdk.contract import Kernel, Region
from backend_sdk.errors import LoweringError, SdkError
from backend_sdk.runtime.function_kernel import region_location, region_ops


def lower(region: Region, backend: Backend) -> Kernel:
    """The backend's kernel for ``region``. Raises `LoweringError` when it fails or gives something else."""
    try:
        kernel = backend.lower(region)
    except SdkError:
        raise
    except Exception as error:
        raise LoweringError(
            f"backend {backend.name!r}: lower() of {_describe(region)} raised {type(error).__name__}: {error}",
            location=region_location(region),
            hint="options={'dump': 'some/folder'} writes the region's graph",
        ) from error
    if not isinstance(kernel, Kernel):
        raise LoweringError(
            f"backend {backend.name!r}: lower() of {_describe(region)} returned {kernel!r}",
            location=region_location(region),
            hint="return backend_sdk.Kernel(run)",
        )
    return kernel


def _describe(region: Region) -> str:
    ops = region_ops(region)
    shown = ", ".join(ops[:4]) + (", ..." if len(ops) > 4 else "")
    return f"{region.name} ({len(ops)} ops: {shown})"
