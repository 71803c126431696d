"""What the SDK loads when somebody asks for ``sdk:first_npu`` or ``sdk:first_npu_compiler``.

Does not: define the backends.
"""

from backend_sdk import hookimpl
from first_npu.backend import FirstNpu
from first_npu.compiler import FirstNpuCompiler


@hookimpl
def sdk_backends():
    """Both backends of this package; the SDK instantiates the one that was named."""
    return [FirstNpu, FirstNpuCompiler]
