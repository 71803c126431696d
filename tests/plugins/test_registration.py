"""Backends of a script or notebook. Were it wrong, a vendor's first hour would need a package."""

import subprocess
import sys
import textwrap

import pytest
import torch

from backend_sdk import plugins
from backend_sdk.backends.null import NullBackend
from backend_sdk.backends.reference import ReferenceBackend
from backend_sdk.errors import BrokenPluginError, PluginCollisionError, RegistryError, UnknownBackendError
from backend_sdk.plugins import hookimpl


class Script(ReferenceBackend):
    name = "script"


def test_a_class_is_registered_by_decoration(registered):
    @plugins.register_backend
    class Decorated(ReferenceBackend):
        name = "decorated"

    registered.append("decorated")
    assert isinstance(Decorated, type)
    assert type(plugins.get_backend("decorated")) is Decorated
    known = next(known for known in plugins.known_backends() if known.name == "decorated")
    assert (known.distribution, known.version) == ("", "")


def test_an_instance_keeps_its_identity(registered):
    backend = Script(composites=True)
    assert plugins.register_backend(backend) is backend
    registered.append("script")
    assert plugins.get_backend("script") is backend


def test_the_same_class_may_be_registered_again_and_the_newer_counts(registered):
    plugins.register_backend(Script)
    registered.append("script")
    again = type("Script", (ReferenceBackend,), {"name": "script", "__module__": __name__, "version": "2"})
    again.__qualname__ = Script.__qualname__
    plugins.register_backend(again)
    assert plugins.get_backend("script").version == "2"


def test_another_class_of_that_name_is_refused_and_both_are_named(registered):
    plugins.register_backend(Script)
    registered.append("script")

    class Rival(NullBackend):
        name = "script"

    with pytest.raises(PluginCollisionError, match=r"Rival.*Script is registered"):
        plugins.register_backend(Rival)
    assert type(plugins.get_backend("script")) is Script


def test_a_name_that_an_installed_package_has_is_refused(packages):
    packages.working("acme")

    class Acme(NullBackend):
        name = "acme"

    with pytest.raises(PluginCollisionError, match=r"Acme, the installed package acme-backend 1\.0"):
        plugins.register_backend(Acme)
    with pytest.raises(PluginCollisionError, match="backend-sdk"):
        plugins.register_backend(ReferenceBackend)


def test_something_else_is_refused():
    with pytest.raises(RegistryError, match="not a backend"):
        plugins.register_backend(int)
    with pytest.raises(UnknownBackendError, match="'nobody', no call registered it"):
        plugins.unregister_backend("nobody")


def test_hooks_of_a_script_are_used_and_checked(registered):
    class Hooks:
        @hookimpl
        def sdk_decompositions(self):
            return {torch.ops.aten.exp.default: lambda out, x: x}

    plugins.register_backend(Script, hooks=Hooks())
    registered.append("script")
    assert list(plugins.plugin_of("script").decompositions()) == [torch.ops.aten.exp.default]

    class Wrong:
        @hookimpl
        def sdk_decompositions(self, table):
            return {}

    with pytest.raises(BrokenPluginError, match="takes table"):
        plugins.register_backend(Script, hooks=Wrong())


@pytest.fixture
def pipeline(monkeypatch):
    """In place of the pipeline: runs the graph as it is and notes for whom."""
    from backend_sdk.pipeline import compile

    calls = []

    def compile_for_dynamo(name, graph_module, example_inputs, options):
        calls.append((name, options, plugins.get_backend(name)))
        return graph_module.forward

    monkeypatch.setattr(compile, "compile_for_dynamo", compile_for_dynamo)
    torch._dynamo.reset()
    return calls


def test_torch_compile_finds_a_registered_backend(registered, pipeline):
    plugins.register_backend(Script)
    registered.append("script")
    compiled = torch.compile(lambda x: x + 1, backend="sdk:script", options={"fallback": "error"})
    assert torch.equal(compiled(torch.zeros(3)), torch.ones(3))
    assert [call[:2] for call in pipeline] == [("script", {"fallback": "error"})]


def test_code_compiled_for_an_older_definition_is_not_used_for_the_newer(registered, pipeline):
    def model(x):
        return x + 1

    plugins.register_backend(Script)
    registered.append("script")
    torch.compile(model, backend="sdk:script")(torch.zeros(3))
    torch.compile(model, backend="sdk:script")(torch.zeros(3))
    assert len(pipeline) == 1
    newer = Script()
    plugins.register_backend(newer)
    torch.compile(model, backend="sdk:script")(torch.zeros(3))
    assert len(pipeline) == 2
    assert pipeline[1][2] is newer


def test_torch_compile_forgets_an_unregistered_backend(registered, pipeline):
    plugins.register_backend(Script)
    torch.compile(lambda x: x + 1, backend="sdk:script")(torch.zeros(3))
    plugins.unregister_backend("script")
    with pytest.raises(Exception, match="Invalid backend: 'sdk:script'"):
        torch.compile(lambda x: x + 1, backend="sdk:script")(torch.zeros(3))


def test_registering_imports_no_dynamo_and_torch_compile_finds_the_name_later():
    script = """
        import sys
        from importlib import metadata

        import backend_sdk.plugins as plugins
        from backend_sdk.backends.null import NullBackend

        @plugins.register_backend
        class Early(NullBackend):
            name = "early"

        @plugins.register_backend
        class Gone(NullBackend):
            name = "gone"

        plugins.unregister_backend("gone")
        assert "torch._dynamo" not in sys.modules, "registering imported torch._dynamo"
        # Tools that walk over all installed packages must not stumble over ours.
        for distribution in metadata.distributions():
            assert distribution.name and distribution.version
            distribution.files, distribution.requires

        import torch
        from backend_sdk.pipeline import compile

        compile.compile_for_dynamo = lambda name, graph, inputs, options: print(name) or graph.forward
        torch.compile(lambda x: x + 1, backend="sdk:early")(torch.zeros(3))
        assert "sdk:gone" not in torch._dynamo.list_backends()
    """
    found = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip() == "early"
