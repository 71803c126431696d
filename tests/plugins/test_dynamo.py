"""The vendor's one line for torch.compile. Were it wrong, `backend="sdk:acme"` would need an import first."""

import importlib.metadata
import subprocess
import sys

import pytest

from backend_sdk import dynamo, plugins
from backend_sdk.errors import OptionError, UnknownBackendError


@pytest.fixture
def pipeline(monkeypatch):
    from backend_sdk.pipeline import compile

    calls = []
    monkeypatch.setattr(compile, "compile_for_dynamo", lambda *arguments: calls.append(arguments))
    return calls


def test_the_entry_point_gives_a_compiler_and_imports_no_plugin(packages, pipeline):
    packages.module("acme_sdk", "raise OSError('imported too early')")
    packages.add("acme-backend", {"acme": "acme_sdk"}, dynamo_lines={"sdk:acme": "backend_sdk.dynamo:acme"})
    (point,) = importlib.metadata.entry_points(group="torch_dynamo_backends", name="sdk:acme")
    compiler = point.load()
    assert compiler.__name__ == "sdk:acme"
    assert "acme_sdk" not in sys.modules
    compiler("graph", ["input"], options={"check": "never"}, mode="default")
    assert pipeline == [("acme", "graph", ["input"], {"check": "never"})]


def test_one_function_a_backend():
    assert dynamo.acme is dynamo.acme
    assert dynamo.acme is not dynamo.other


def test_torchs_modes_and_unknown_arguments_are_refused(pipeline):
    with pytest.raises(OptionError, match=r"sdk:acme.*mode='max-autotune'"):
        dynamo.acme("graph", [], mode="max-autotune")
    with pytest.raises(OptionError, match="unknown arguments depth, fullgraph"):
        dynamo.acme("graph", [], fullgraph=True, depth=1)
    assert pipeline == []


def test_an_unknown_backend_is_found_out_when_it_is_called():
    with pytest.raises(UnknownBackendError, match="did you mean 'null'"):
        dynamo.nul("graph", [])


def test_names_with_an_underscore_are_no_backends():
    for name in ("__path__", "__wrapped__", "_ipython_display_"):
        with pytest.raises(AttributeError, match=name):
            getattr(dynamo, name)


def test_no_global_of_the_module_hides_a_backend():
    assert [name for name in vars(dynamo) if not name.startswith("_")] == []


def test_importing_it_is_cheap():
    code = (
        "import sys, backend_sdk.dynamo as dynamo; dynamo.acme; heavy = ('torch', 'pluggy', 'backend_sdk.prims'); "
        "print([name for name in heavy if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_the_built_in_backends_have_their_lines():
    lines = {point.name: point.value for point in importlib.metadata.entry_points(group="torch_dynamo_backends")}
    for name in ("reference", "null"):
        assert lines[f"sdk:{name}"] == f"backend_sdk.dynamo:{name}"
        assert plugins.get_backend(name).name == name
