"""The names of torch's OpInfos, read in a process of its own: importing them takes longer than all that needs them.

Does not: import torch, so that a command can start the reading before it does.
"""

from __future__ import annotations

import json
import subprocess
import sys
from types import TracebackType

from backend_sdk.errors import OptionError

_CHILD = """\
import json, sys
from backend_sdk.errors import OptionError
from backend_sdk.torch_compat.op_catalogue import op_infos
try:
    names = list(op_infos())
except OptionError:
    names = None
json.dump(names, sys.stdout)
"""


class OpInfoNames:
    """A context in which the names are read; it ends the process when nobody waited for them."""

    def __enter__(self) -> OpInfoNames:
        self._child = subprocess.Popen(
            [sys.executable, "-c", _CHILD], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child.poll() is None:
            self._child.kill()
            self._child.communicate()

    def result(self) -> list[str] | None:
        """Waits for the names; None where torch's catalogue cannot be imported (without the extra `test`).

        Raises `OptionError` when the process failed in another way.
        """
        output, errors = self._child.communicate()
        try:
            names: list[str] | None = json.loads(output)
        except ValueError as error:
            lines = errors.splitlines() or [f"exit code {self._child.returncode}"]
            raise OptionError(f"torch's catalogue of sample calls cannot be read: {lines[-1]}") from error
        return names
