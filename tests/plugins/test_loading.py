"""Loading by name. Were it wrong, one vendor's broken package would stop another vendor's backend."""

import contextlib
import subprocess
import sys
import threading
import time

import pluggy
import pytest
import torch

from backend_sdk import plugins
from backend_sdk.contract import Pass
from backend_sdk.errors import BrokenPluginError, PluginCollisionError, UnknownBackendError

HOOK = "from backend_sdk.plugins import hookimpl\n"


def broken(packages, source, name="acme"):
    """The error of loading a plugin with this source."""
    packages.add("acme-backend", {name: packages.module("acme_sdk", source)})
    with pytest.raises(BrokenPluginError) as caught:
        plugins.get_backend(name)
    return caught.value


def test_a_backend_is_found_by_the_name_of_its_entry_point(packages):
    packages.working("acme")
    backend = plugins.get_backend("acme")
    assert (backend.name, backend.version) == ("acme", "7")
    assert plugins.get_backend("acme") is backend
    assert plugins.plugin_of("acme").backend is backend


def test_what_is_not_named_is_not_imported(packages):
    packages.working("acme")
    packages.module("other_sdk", "raise SystemExit('imported though not named')")
    packages.add("other", {"other": "other_sdk"})
    plugins.get_backend("acme")
    assert {known.name for known in plugins.known_backends()} >= {"acme", "other", "null", "reference"}
    assert plugins.plugin_of("other") is None
    assert "other_sdk" not in sys.modules


def test_known_backends_say_where_they_come_from(packages):
    packages.add("acme-backend", {"acme": "acme_sdk.plugin"}, version="2.5")
    acme = next(known for known in plugins.known_backends() if known.name == "acme")
    assert (acme.distribution, acme.version, acme.module) == ("acme-backend", "2.5", "acme_sdk.plugin")


def test_a_plugin_that_fails_to_import_is_named_with_its_package_and_hurts_nobody_else(packages):
    packages.working("fine")
    error = broken(packages, "raise OSError('libacme.so: cannot open shared object file')")
    for part in ("'acme'", "acme_sdk", "acme-backend 1.0", "OSError", "libacme.so"):
        assert part in str(error)
    assert "backend-sdk doctor" in str(error)
    assert isinstance(error.__cause__, OSError)
    assert plugins.get_backend("fine").name == "fine"
    assert plugins.get_backend("reference").name == "reference"


def test_a_plugin_that_exits_is_broken_and_does_not_end_the_program(packages):
    error = broken(packages, "import sys; sys.exit('no licence')")
    assert "SystemExit: no licence" in str(error)


def test_a_failure_is_not_remembered(packages):
    broken(packages, "import os; marker = os.environ['ACME_DRIVER']")
    packages.module("acme_sdk", "marker = None\n" + HOOK + "import backend_sdk.backends.null as null\n")
    sys.modules.pop("acme_sdk", None)
    with pytest.raises(BrokenPluginError, match="no sdk_backends"):
        plugins.get_backend("acme")


def test_a_misspelled_name_gets_the_nearest_one_and_all_that_are_known(packages):
    packages.working("acme")
    with pytest.raises(UnknownBackendError) as caught:
        plugins.get_backend("acne")
    assert "did you mean 'acme'? known: acme, null, reference" in str(caught.value)
    assert "register_backend" in str(caught.value)


def test_the_name_for_torch_compile_is_not_a_backends_name():
    with pytest.raises(UnknownBackendError, match=r"leave out 'sdk:'.*'null'"):
        plugins.get_backend("sdk:null")


def test_a_package_with_only_the_line_for_torch_compile_is_pointed_out(packages):
    packages.add("acme-backend", {}, dynamo_lines={"sdk:acme": "backend_sdk.dynamo:acme"})
    with pytest.raises(UnknownBackendError, match=r"acme-backend 1\.0 declares 'sdk:acme' for torch\.compile, but no"):
        plugins.get_backend("acme")


def test_two_packages_with_one_name_are_both_named(packages):
    packages.add("acme-backend", {"acme": "acme_sdk"})
    packages.add("rival", {"acme": "rival_sdk"}, version="3.1")
    with pytest.raises(PluginCollisionError) as caught:
        plugins.get_backend("acme")
    for part in ("acme-backend 1.0", "rival 3.1", "pip uninstall acme-backend or pip uninstall rival"):
        assert part in str(caught.value)
    assert len([known for known in plugins.known_backends() if known.name == "acme"]) == 2


def test_one_package_seen_twice_is_no_collision(packages, tmp_path, monkeypatch):
    packages.working("acme")
    # An editable install leaves its egg-info in the source tree, under the name as it was written there.
    second = tmp_path / "source"
    packages.add("Acme_Backend", {"acme": "acme_sdk"}, version="0.9", folder=second)
    monkeypatch.syspath_prepend(str(second))
    plugins.refresh()
    assert plugins.get_backend("acme").name == "acme"


def test_a_plugin_without_a_backend_of_the_entrys_name_lists_what_it_has(packages):
    source = (
        HOOK
        + "from backend_sdk.backends.null import NullBackend\n"
        + "class Mark2(NullBackend):\n    name = 'mark2'\n"
        + "@hookimpl\ndef sdk_backends():\n    return [NullBackend(), Mark2]\n"
    )
    error = broken(packages, source)
    assert "yields 'null' (NullBackend), 'mark2' (Mark2), none named 'acme'" in str(error)
    assert "set name = 'acme'" in str(error)


def test_only_the_class_that_is_named_is_instantiated(packages):
    source = (
        HOOK
        + "from backend_sdk.backends.null import NullBackend\n"
        + "class Acme(NullBackend):\n    name = 'acme'\n"
        + "class Absent(NullBackend):\n    name = 'absent'\n"
        + "    def __init__(self):\n        raise OSError('no such device')\n"
        + "@hookimpl\ndef sdk_backends():\n    return [Absent, Acme]\n"
    )
    packages.add("acme-backend", {"acme": packages.module("acme_sdk", source), "absent": "acme_sdk"})
    assert plugins.get_backend("acme").name == "acme"
    with pytest.raises(BrokenPluginError, match=r"Absent\(\) raised OSError: no such device"):
        plugins.get_backend("absent")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "@hookimpl\ndef sdk_backends(config, verbose=False):\n    return []\n",
            ["sdk_backends(config, verbose=False)", "takes config", "passes no arguments"],
        ),
        (
            "@hookimpl\ndef sdk_commands(application):\n    pass\n",
            ["sdk_commands(application)", "sdk_commands(app", "takes application", "passes app"],
        ),
        (
            "@hookimpl\ndef sdk_backend():\n    return []\n",
            ["sdk_backend()", "unknown hook 'sdk_backend'", "did you mean 'sdk_backends'?"],
        ),
    ],
)
def test_a_wrong_implementation_shows_plugin_hook_definition_and_names(packages, source, expected):
    error = broken(packages, HOOK + source)
    for part in ["'acme'", "acme_sdk", "acme-backend 1.0", *expected]:
        assert part in str(error)
    assert isinstance(error.__cause__, pluggy.PluginValidationError)


def test_an_unmarked_hook_is_an_error_and_not_ignored(packages):
    error = broken(packages, "def sdk_backends():\n    return []\n")
    assert "sdk_backends() is named like a hook but not marked" in str(error)
    assert "@hookimpl" in str(error)


@pytest.mark.parametrize(
    ("hook", "returned", "expected"),
    [
        ("sdk_backends", "'acme'", "wants a sequence of Backend"),
        ("sdk_backends", "[int]", "wants Backend instances or subclasses"),
        ("sdk_decompositions", "{'aten.add': len}", "torch.ops.aten.add.Tensor"),
        ("sdk_passes", "[len]", "backend_sdk.Pass"),
        ("sdk_passes", "1 / 0", "sdk_passes() raised ZeroDivisionError"),
        ("sdk_conformance_cases", "[1]", "ConformanceCase"),
    ],
)
def test_what_a_hook_returns_is_checked(packages, hook, returned, expected):
    backends = (
        ""
        if hook == "sdk_backends"
        else "from backend_sdk.backends.null import NullBackend\n"
        "class Acme(NullBackend):\n    name = 'acme'\n"
        "@hookimpl\ndef sdk_backends():\n    return [Acme]\n"
    )
    source = f"{HOOK}{backends}@hookimpl\ndef {hook}():\n    return {returned}\n"
    packages.add("acme-backend", {"acme": packages.module("acme_sdk", source)})
    parts = {
        "sdk_backends": lambda plugin: plugin.backend,
        "sdk_decompositions": lambda plugin: plugin.decompositions(),
        "sdk_passes": lambda plugin: plugin.passes(),
        "sdk_conformance_cases": lambda plugin: plugin.cases(),
    }
    with pytest.raises(BrokenPluginError) as caught:
        parts[hook](plugins.load_plugin("acme"))
    assert expected in str(caught.value)
    assert "acme-backend 1.0" in str(caught.value)


def test_a_plugins_rules_passes_and_cases_are_its_own(packages):
    source = HOOK + (
        "import torch\n"
        "from backend_sdk.backends.null import NullBackend\n"
        "from backend_sdk.contract import Pass\n"
        "from backend_sdk.plugins import ConformanceCase\n"
        "from backend_sdk.spec import Sample\n"
        "class Acme(NullBackend):\n    name = 'acme'\n"
        "@hookimpl\ndef sdk_backends():\n    return (Acme,)\n"
        "def rule(out, x):\n    return x\n"
        "@hookimpl\ndef sdk_decompositions():\n    return {torch.ops.aten.exp.default: rule}\n"
        "@hookimpl\ndef sdk_passes():\n    return [Pass('tidy', 'decomposed', lambda graph: None)]\n"
        "@hookimpl\ndef sdk_conformance_cases():\n"
        "    return [ConformanceCase('exp', Sample((torch.ones(3),)))]\n"
    )
    packages.add("acme-backend", {"acme": packages.module("acme_sdk", source)})
    acme = plugins.load_plugin("acme")
    assert list(acme.decompositions()) == [torch.ops.aten.exp.default]
    assert [(one.name, one.stage) for one in acme.passes()] == [("tidy", "decomposed")]
    assert [case.op for case in acme.cases()] == ["exp"]
    assert not acme.has_commands
    other = plugins.load_plugin("reference")
    assert not other.decompositions() and not other.passes() and not other.cases()


def test_a_case_for_an_unknown_op_is_an_error(packages):
    source = HOOK + (
        "import torch\n"
        "from backend_sdk.backends.null import NullBackend\n"
        "from backend_sdk.plugins import ConformanceCase\n"
        "from backend_sdk.spec import Sample\n"
        "class Acme(NullBackend):\n    name = 'acme'\n"
        "@hookimpl\ndef sdk_backends():\n    return [Acme]\n"
        "@hookimpl\ndef sdk_conformance_cases():\n"
        "    return [ConformanceCase('expm', Sample((torch.ones(3),)))]\n"
    )
    packages.add("acme-backend", {"acme": packages.module("acme_sdk", source)})
    with pytest.raises(BrokenPluginError, match=r"'expm', which is no contract op\n.*did you mean 'expm?1?'"):
        plugins.load_plugin("acme").cases()


def test_an_entry_point_may_name_an_instance_but_not_a_class(packages):
    source = HOOK + (
        "from backend_sdk.backends.null import NullBackend\n"
        "class Acme(NullBackend):\n    name = 'acme'\n"
        "class Hooks:\n    @hookimpl\n    def sdk_backends(self):\n        return [Acme]\n"
        "hooks = Hooks()\n"
    )
    packages.module("acme_sdk", source)
    packages.add("acme-backend", {"acme": "acme_sdk:hooks"})
    assert plugins.get_backend("acme").name == "acme"
    packages.add("wrong", {"wrong": "acme_sdk:Acme"})
    with pytest.raises(BrokenPluginError, match="names the class Acme"):
        plugins.get_backend("wrong")


def test_threads_get_one_backend_and_make_it_once(packages):
    source = HOOK + (
        "import time\n"
        "from backend_sdk.backends.null import NullBackend\n"
        "time.sleep(0.2)\n"
        "class Acme(NullBackend):\n    name = 'acme'\n    made = 0\n"
        "    def __init__(self):\n        super().__init__()\n        time.sleep(0.05)\n        Acme.made += 1\n"
        "@hookimpl\ndef sdk_backends():\n    return [Acme]\n"
    )
    packages.add("acme-backend", {"acme": packages.module("acme_sdk", source)})
    found, start = [], threading.Barrier(8)

    def ask():
        start.wait()
        found.append(plugins.get_backend("acme"))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(map(id, found))) == 1
    assert type(found[0]).made == 1


def test_a_slow_plugin_does_not_hold_up_another(packages):
    packages.working("acme")
    packages.add("slow", {"slow": packages.module("slow_sdk", "import time\ntime.sleep(1.5)\n")})

    def load_slowly():
        with contextlib.suppress(BrokenPluginError):
            plugins.get_backend("slow")

    thread = threading.Thread(target=load_slowly)
    thread.start()
    start = time.perf_counter()
    plugins.get_backend("acme")
    assert time.perf_counter() - start < 1.0
    thread.join()


def test_a_plugin_that_asks_for_itself_while_it_loads_is_told_so(packages):
    error = broken(packages, "from backend_sdk.plugins import get_backend\nget_backend('acme')\n")
    assert "while it loads, it asks for its own backend" in str(error)


def test_a_pass_of_an_unknown_stage_is_refused():
    from backend_sdk.errors import RegistryError

    with pytest.raises(RegistryError, match=r"no stage 'lowered'\n.*decomposed, partitioned"):
        Pass("tidy", "lowered", lambda graph: None)


def test_import_torch_imports_nothing_of_ours():
    found = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, torch; print([n for n in sys.modules if n.split('.')[0] == 'backend_sdk'])",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == "[]"
