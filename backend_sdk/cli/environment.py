"""Checks of the machine for `backend-sdk doctor`: Python, torch, the native module, a C++ compiler.

Does not: import torch, or look at plugins (`backend_sdk.plugins.diagnosis`).
"""

from __future__ import annotations

import importlib
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from importlib import metadata

from backend_sdk.plugins.diagnosis import Check, Status

# As in pyproject.toml (a test compares them). Outside, private names of torch may have moved.
OLDEST_PYTHON, NEWEST_PYTHON = (3, 11), (3, 13)
OLDEST_TORCH, NEWEST_TORCH = (2, 13), (2, 14)


def check_environment() -> Iterator[Check]:
    """One check for each thing that the SDK needs of the machine."""
    yield check_python(sys.version_info[:2])
    try:
        yield check_torch(metadata.version("torch"))
    except metadata.PackageNotFoundError:
        yield Check("torch", Status.FAILED, "torch is not installed", f"pip install 'torch{_torch_range()}'")
    yield check_native()
    yield check_compiler()


def check_python(version: tuple[int, int]) -> Check:
    """Whether this Python is one that is tested."""
    text = f"{platform.python_version()} ({sys.executable})"
    if OLDEST_PYTHON <= version <= NEWEST_PYTHON:
        return Check("Python", Status.OK, text)
    return Check(
        "Python",
        Status.FAILED,
        f"{text} is outside the tested range",
        f"use Python {_dotted(OLDEST_PYTHON)} to {_dotted(NEWEST_PYTHON)}",
    )


def check_torch(version: str) -> Check:
    """Whether the torch release ``version`` is one that is tested."""
    found = re.match(r"(\d+)\.(\d+)", version)
    release = (int(found[1]), int(found[2])) if found else (0, 0)
    tested = f"{_dotted(OLDEST_TORCH)} to {_dotted(NEWEST_TORCH)}"
    if OLDEST_TORCH <= release <= NEWEST_TORCH:
        return Check("torch", Status.OK, f"{version}, tested: {tested}")
    return Check(
        "torch",
        Status.FAILED,
        f"{version} is outside the tested range {tested}: private names of torch may have moved",
        f"pip install 'torch{_torch_range()}'",
    )


def check_native() -> Check:
    """Whether the native module loads."""
    try:
        module = importlib.import_module("backend_sdk._native")
    except ImportError as error:
        return Check(
            "native module",
            Status.FAILED,
            f"backend_sdk._native does not load: {error}",
            "reinstall backend-sdk for this Python (from a checkout: python3 dev.py test)",
        )
    return Check("native module", Status.OK, str(module.__file__))


def check_compiler() -> Check:
    """Whether a C++ compiler is in sight. Only building native parts needs one."""
    named = os.environ.get("CXX", "").split()
    for candidate in named[:1] or ("c++", "g++", "clang++", "cl"):
        path = shutil.which(candidate)
        if path is not None:
            return Check("C++ compiler", Status.OK, path)
    searched = f"CXX={named[0]} is not a command" if named else "no c++, g++, clang++ or cl on the PATH"
    return Check(
        "C++ compiler",
        Status.WARNING,
        searched,
        "install one or set CXX; only building native code needs it",
    )


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _torch_range() -> str:
    return f">={_dotted(OLDEST_TORCH)},<{NEWEST_TORCH[0]}.{NEWEST_TORCH[1] + 1}"
