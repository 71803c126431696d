"""The exception tree of Backend SDK.

Every message answers four questions: what was being done, with what (op, dtypes, shapes), for whom (backend,
user's source line), and what to do next. ``str(error)`` prints them in that order.

Does not: import torch. A command line that only reports a broken plugin must not pay for torch.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SdkError(Exception):
    """Base of all errors raised by Backend SDK.

    ``location`` is the user's source line (``"model.py:12: x = foo(x)"``) when one is known, ``hint`` is the
    next thing to do.
    """

    def __init__(self, message: str, *, location: str | None = None, hint: str | None = None) -> None:
        self.message = message
        self.location = location
        self.hint = hint
        super().__init__(message)

    def __str__(self) -> str:
        lines = [self.message]
        if self.location:
            lines.append(f"  at {self.location}")
        if self.hint:
            lines.append(f"  to fix: {self.hint}")
        return "\n".join(lines)


class OptionError(SdkError):
    """An unknown option, or an option with a value it does not take."""


class PluginError(SdkError):
    """Something is wrong with a plugin package."""


class UnknownBackendError(PluginError):
    """No installed package provides a backend of this name."""


class BrokenPluginError(PluginError):
    """A plugin was found but cannot be loaded. ``__cause__`` holds its own exception."""


class PluginCollisionError(PluginError):
    """Two installed packages claim the same backend name."""


class RegistryError(SdkError):
    """A definition (prim, composite, decomposition, implementation) is incomplete or clashes with another."""


class DialectError(SdkError):
    """A graph or a call breaks a rule of the prims dialect (dtype, shape, rank, unknown op)."""


class DtypeRuleError(DialectError):
    """A call of the dialect has a dtype that the op's dtype rule does not take."""


class CaptureError(SdkError):
    """The model cannot be captured as a graph."""


class DecompositionError(SdkError):
    """A decomposition rule failed or produced something that differs from what eager gives."""


class UnsupportedOpError(SdkError):
    """An op that the backend refuses, under ``fallback="error"``."""


class DeviceError(SdkError):
    """A tensor lives on a device that the backend does not take."""


class LoweringError(SdkError):
    """The backend's ``lower(region)`` raised or returned something that is not a kernel."""


class KernelError(SdkError):
    """A kernel failed while it ran."""


class KernelRaisedError(KernelError):
    """A kernel raised. ``__cause__`` holds its own exception."""


class KernelOutputError(KernelError):
    """A kernel returned something of the wrong kind, shape or dtype."""


class FallbackWarning(UserWarning):
    """Issued for each op that runs in eager, under ``fallback="warn"``."""


def nearest(name: str, known: Iterable[str]) -> str:
    """A phrase that lists ``known`` and the nearest spelling: ``"did you mean 'acme'? Known: acme, null"``."""
    names = sorted(known)
    listing = f"known: {', '.join(names)}" if names else "none is installed"
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]!r}? {listing}" if close else listing
