"""Fixtures that tests of several folders share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from backend_sdk import plugins

WORKING = """
from backend_sdk.backends.reference import ReferenceBackend
from backend_sdk.plugins import hookimpl

class {cls}(ReferenceBackend):
    name = "{name}"
    version = "7"

@hookimpl
def sdk_backends():
    return [{cls}]
"""


class FakePackages:
    """Installs packages by writing what an installer would leave in a folder on ``sys.path``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(
        self,
        distribution: str,
        backends: dict[str, str],
        *,
        dynamo_lines: dict[str, str] | None = None,
        version: str = "1.0",
        folder: Path | None = None,
    ) -> None:
        """``backends`` and ``dynamo_lines`` are the entry points: name to object."""
        info = (folder or self.folder) / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        lines = ["[backend_sdk]", *(f"{name} = {value}" for name, value in backends.items())]
        lines += ["[torch_dynamo_backends]"]
        lines += [f"{name} = {value}" for name, value in (dynamo_lines or {}).items()]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
        plugins.refresh()

    def module(self, name: str, source: str) -> str:
        """Write an importable module; return its name."""
        (self.folder / f"{name}.py").write_text(source)
        return name

    def working(self, name: str, *, line: bool = True) -> None:
        """A package with a working backend ``name``; ``line`` says whether `torch.compile` may find it."""
        module = self.module(f"{name}_sdk", WORKING.format(name=name, cls=name.title()))
        lines = {f"sdk:{name}": f"backend_sdk.dynamo:{name}"} if line else {}
        self.add(f"{name}-backend", {name: module}, dynamo_lines=lines)


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Fake installed packages, gone after the test."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    present = set(sys.modules)
    plugins.refresh()
    yield FakePackages(folder)
    monkeypatch.undo()
    for name in set(sys.modules) - present:
        if (folder / f"{name}.py").exists():
            del sys.modules[name]
    plugins.refresh()


@pytest.fixture
def registered():
    """The names of backends that a test registers; they are unregistered after it."""
    names: list[str] = []
    yield names
    for name in names:
        plugins.unregister_backend(name)
