"""The pages are right: each block of them runs and prints what the page says, and no list in them has gaps.

A reader who follows a page and gets something else trusts neither the page nor the SDK.
"""

import dataclasses
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from backend_sdk import errors, prims
from backend_sdk.pipeline.options import Options

ROOT = Path(__file__).resolve().parents[2]
RUNNER = Path(__file__).with_name("run_page.py")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture(scope="session")
def site_packages(tmp_path_factory):
    """A folder with the example's package installed, as a vendor's users have it."""
    folder = tmp_path_factory.mktemp("install")
    source, target = folder / "source", folder / "site-packages"
    # setuptools builds beside the sources: not in the checkout.
    shutil.copytree(ROOT / "examples" / "first_backend", source)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    command += ["--no-build-isolation", "--no-deps", "--target", str(target), str(source)]
    subprocess.run(command, check=True)
    return target


def run_page(page, folder, site_packages=None):
    """Run a page in a process of its own; what it printed, and the reason when it does not hold."""
    environment = {**os.environ, "PYTHONWARNINGS": "ignore::UserWarning", "COLUMNS": "160"}
    environment.pop("PYTHONPATH", None)
    if site_packages is not None:
        environment["PYTHONPATH"] = str(site_packages)
    return subprocess.run(
        [sys.executable, str(RUNNER), str(page), str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_of_the_page_holds(page, tmp_path, site_packages):
    done = run_page(page, tmp_path, site_packages)
    assert done.returncode == 0, done.stderr


# ---- the pages' lists have no gaps


def test_the_readme_counts_the_ops_of_the_contract():
    composites = sum(op.kind == "composite" for op in prims.CONTRACT)
    total = len(prims.CONTRACT)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"{total} ops, {total - composites} prims and {composites} composites" in " ".join(text.split())


def test_the_commands_of_the_readme_are_those_of_dev_py():
    usage = subprocess.run([sys.executable, str(ROOT / "dev.py"), "--help"], capture_output=True, text=True, check=True)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    command = r"^ *python3 dev\.py (\w+)"
    assert set(re.findall(command, readme, re.MULTILINE)) == set(re.findall(command, usage.stdout, re.MULTILINE))


def test_every_option_is_documented_with_its_default():
    text = (ROOT / "docs" / "model-users.md").read_text(encoding="utf-8")
    section = text.partition("## Options")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| .* \| `(\S+)` \|", section, flags=re.MULTILINE))
    defaults = {field.name: field.default for field in dataclasses.fields(Options)}
    assert rows == {name: repr(value).replace("'", '"') for name, value in defaults.items()}


def test_every_error_is_documented():
    text = (ROOT / "docs" / "model-users.md").read_text(encoding="utf-8")
    section = text.partition("## Errors")[2].partition("\n## ")[0]
    rows = set(re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE))
    defined = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value)
        and issubclass(value, (errors.SdkError, Warning))
        and value.__module__ == errors.__name__
    }
    assert rows == defined


def test_every_pass_is_on_the_architecture_page():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    missing = [
        path.name
        for path in (ROOT / "backend_sdk" / "pipeline").glob("*.py")
        if path.name != "__init__.py" and f"`{path.name}`" not in text
    ]
    assert not missing


@pytest.mark.parametrize(
    "page", [*PAGES, *sorted((ROOT / "docs" / "decisions").glob("*.md"))], ids=lambda page: page.name
)
def test_links_and_named_files_exist(page):
    text = page.read_text(encoding="utf-8")
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    broken = [link for link in links if link and not (page.parent / link).exists()]
    named = set(re.findall(r"`((?:backend_sdk|docs|examples|tests)/[\w./-]+)`", text))
    gone = [name for name in named if not (ROOT / name).exists()]
    assert not broken and not gone


def test_decisions_are_numbered_without_gaps():
    numbers = sorted(path.name[:4] for path in (ROOT / "docs" / "decisions").glob("*.md"))
    assert numbers == [f"{n:04d}" for n in range(1, len(numbers) + 1)]


# ---- the example's package


def test_torch_finds_the_example_with_nothing_else_imported(tmp_path, site_packages):
    script = (
        "import torch\n"
        "compiled = torch.compile(lambda x: x.exp() + 1, backend='sdk:first_npu', options={'fallback': 'error'})\n"
        "x = torch.rand(3)\n"
        "assert torch.allclose(compiled(x), x.exp() + 1)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(site_packages)}
    subprocess.run([sys.executable, "-c", script], env=environment, cwd=tmp_path, check=True)


# ---- the runner itself: it must not pass a page that is wrong


def page_with(tmp_path, *blocks):
    page = tmp_path / "page.md"
    page.write_text("\n\n".join(f"```{info}\n{text}\n```" for info, text in blocks), encoding="utf-8")
    return page


@pytest.mark.parametrize(
    "blocks",
    [
        [("python", "x = 2\nprint(x)"), ("output", "2")],
        [("python", "x = 2"), ("python", "print(x + 1)"), ("output", "3")],
        [("python", "print('one')\nprint('two')\nprint('three')"), ("output", "one\n...\nth...e")],
        [("python raises=KeyError", "{}['key']"), ("output", "'key'")],
        [("python write=hello.py", "print('hello')"), ("console", "$ python hello.py\nhello")],
        [("console", "$ echo one\none\n$ exit 3  # (exit 3)")],
        [("toml excerpt=pyproject.toml", 'name = "backend-sdk"')],
        [("text", "not run: 1 / 0")],
    ],
)
def test_a_right_page_passes(tmp_path, blocks):
    done = run_page(page_with(tmp_path, *blocks), tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("blocks", "reason"),
    [
        ([("python", "print(2)"), ("output", "3")], "the page says"),
        ([("python", "print(2)\nprint(3)"), ("output", "2")], "the page says"),
        ([("python", "print(2)"), ("output", "2\n3")], "the page says"),
        ([("python", "1 / 0")], "ZeroDivisionError"),
        ([("python raises=KeyError", "1 / 0")], "ZeroDivisionError"),
        ([("python raises=KeyError", "1")], "did not raise KeyError"),
        ([("python raises=KeyError", "{}['key']"), ("output", "'door'")], "the page says"),
        ([("output", "3")], "follows a python block"),
        ([("console", "$ echo one\ntwo")], "the page says"),
        ([("console", "$ exit 3")], "ended with 3, not 0"),
        ([("console", "$ true  # (exit 3)")], "ended with 0, not 3"),
        ([("console", "echo one")], "starts with"),
        ([("console", "")], "starts with"),
        ([("toml excerpt=pyproject.toml", 'name = "something-else"')], "not in pyproject.toml"),
        ([("", "x = 1")], "a block is one of"),
        ([("bash", "true")], "a block is one of"),
        ([("python expect=2", "print(2)")], "takes no expect"),
    ],
)
def test_a_wrong_page_fails_and_says_where(tmp_path, blocks, reason):
    done = run_page(page_with(tmp_path, *blocks), tmp_path)
    assert done.returncode == 1
    assert reason in done.stderr
    assert re.search(r"page\.md:\d+|line \d+", done.stderr)


def test_a_block_left_open_fails(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1)\n", encoding="utf-8")
    assert "not closed" in run_page(page, tmp_path).stderr
