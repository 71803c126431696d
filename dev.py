#!/usr/bin/env python3
"""One command for a fresh clone: make the environment, then run the demo or the tests.

    python3 dev.py demo              install into .venv, then run `backend-sdk demo`
    python3 dev.py test              install into .venv, then ruff, mypy, lint-imports and pytest
    python3 dev.py test -- -k name   what follows goes to pytest (after `demo`: to the demo)

Does not: need anything but Python's standard library, write outside the checkout, or decide where packages
come from (pip's own settings do). Set-up is skipped while nothing that it depends on has changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
STAMP = VENV / "backend-sdk-setup.json"
CONSTRAINTS = ROOT / "constraints.txt"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")

# As in pyproject.toml, which needs tomllib and so a supported Python to be read.
OLDEST_PYTHON = (3, 11)
FIRST_UNSUPPORTED_PYTHON = (3, 14)

EXTRAS = {"demo": ("demo",), "test": ("demo", "test")}
# Not in build-system.requires, because a build front end adds them only where the system has none.
BUILD_TOOLS = ("cmake", "ninja")


class Problem(Exception):
    """Something the person has to mend; the text says what and how."""


def say(text: str) -> None:
    """Print at once, so that our lines and those of the commands stay in order."""
    print(text, flush=True)


def seconds(since: float) -> str:
    """The time since `since` (of time.monotonic), for people."""
    return f"{time.monotonic() - since:.1f} s"


# ------------------------------------------------------------------ what the machine must have


def check_python() -> None:
    """Raise Problem unless this Python is supported and has venv, pip and the headers of its C API."""
    version = sys.version_info[:2]
    wanted = f"{_dotted(OLDEST_PYTHON)} to {FIRST_UNSUPPORTED_PYTHON[0]}.{FIRST_UNSUPPORTED_PYTHON[1] - 1}"
    if not OLDEST_PYTHON <= version < FIRST_UNSUPPORTED_PYTHON:
        found = [
            name
            for minor in range(FIRST_UNSUPPORTED_PYTHON[1] - 1, OLDEST_PYTHON[1] - 1, -1)
            for name in [f"python3.{minor}"]
            if _runs(name)
        ]
        advice = (
            f"This machine has one: {found[0]} dev.py {' '.join(sys.argv[1:])}"
            if found
            else "Install one: "
            + _per_platform(
                linux="sudo apt install python3 python3-venv python3-dev (or your distribution's packages)",
                mac="brew install python@3.12",
                windows="winget install Python.Python.3.12",
            )
        )
        raise Problem(f"Backend SDK needs Python {wanted}, this is {_dotted(version)}.\n{advice}")

    missing = [name for name in ("venv", "ensurepip") if not _has_module(name)]
    headers = Path(sysconfig.get_path("include"), "Python.h").is_file()
    if missing or not headers:
        lacking = " and ".join(
            [*(f"the module {name}" for name in missing), *([] if headers else ["the header Python.h"])]
        )
        packages = (["python3-venv"] if missing else []) + ([] if headers else ["python3-dev"])
        raise Problem(
            f"{sys.executable} lacks {lacking}, needed to make the environment and the native module.\n"
            "Install: "
            + _per_platform(
                linux=f"sudo apt install {' '.join(packages)} (or your distribution's packages)",
                mac="brew install python@3.12",
                windows="winget install Python.Python.3.12",
            )
        )


def check_compiler() -> None:
    """Raise Problem unless a C++ compiler is in sight. On Windows CMake finds it, it is not on the path."""
    if os.name == "nt":
        return
    named = os.environ.get("CXX", "").split()
    if named:
        if shutil.which(named[0]) is None:
            raise Problem(f"CXX={os.environ['CXX']} is set, but {named[0]} is not a command here.")
    elif not any(shutil.which(name) for name in ("c++", "g++", "clang++")):
        raise Problem(
            "No C++ compiler found (c++, g++ or clang++); backend_sdk._native needs one with C++17.\n"
            "Install: "
            + _per_platform(
                linux="sudo apt install g++ (Fedora: sudo dnf install gcc-c++)",
                mac="xcode-select --install",
                windows="winget install Microsoft.VisualStudio.2022.BuildTools",
            )
        )


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)


def _per_platform(*, linux: str, mac: str, windows: str) -> str:
    return {"Darwin": mac, "Windows": windows}.get(platform.system(), linux)


def _has_module(name: str) -> bool:
    from importlib.util import find_spec

    return find_spec(name) is not None


def _runs(command: str) -> bool:
    """Version managers put names on the path that only print a complaint, so being there is not enough."""
    path = shutil.which(command)
    return path is not None and _quietly([path, "-c", ""])


def _quietly(command: list[str]) -> bool:
    try:
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    except OSError:
        return False
    return done.returncode == 0


# ------------------------------------------------------------------ the environment


def fingerprint() -> str:
    """Hash of everything that an installation depends on: the place, the Python and the packaging's files."""
    # Not all of native/, because the build in place leaves its own files there.
    sources = [path for pattern in ("*.h", "*.cpp") for path in (ROOT / "native").glob(pattern)]
    files = [ROOT / "pyproject.toml", CONSTRAINTS, ROOT / "native" / "CMakeLists.txt", *sorted(sources)]
    digest = hashlib.sha256(f"{ROOT}\n{sys.version}\n".encode())
    for path in files:
        content = path.read_bytes()
        digest.update(f"{path.relative_to(ROOT).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def installed_extras(print_of_now: str) -> set[str]:
    """The extras that .venv has, empty unless it was set up from exactly these files."""
    native_module = ROOT / "backend_sdk" / f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
        if stamp["fingerprint"] == print_of_now and native_module.is_file() and _venv_works():
            return set(stamp["extras"])
    except (OSError, ValueError, KeyError):
        pass  # no stamp, or one that a killed set-up left half written: set up again
    return set()


def set_up(extras: tuple[str, ...]) -> None:
    """Bring .venv to what `extras` need; nothing is done, and no network asked, when it is there already."""
    print_of_now = fingerprint()
    present = installed_extras(print_of_now)
    if present.issuperset(extras):
        return
    check_compiler()
    started = time.monotonic()
    wanted = sorted(present.union(extras))
    STAMP.unlink(missing_ok=True)
    if not _venv_works():
        say(f"== set-up: making {VENV.name} with Python {platform.python_version()}")
        run([sys.executable, "-m", "venv", "--clear", str(VENV)], "making the environment")
    say(download_notice(wanted))
    # No build isolation: the build uses the versions pinned here, downloads nothing twice, and works again
    # without a network once .venv has the packages.
    run(pip_install(*build_requirements()), "installing the build tools")
    package = f"{ROOT}[{','.join(wanted)}]"
    run(pip_install("--no-build-isolation", "--editable", package), "installing the package")
    STAMP.write_text(json.dumps({"fingerprint": print_of_now, "extras": wanted}), encoding="utf-8")
    say(f"== set-up: done, {seconds(started)}")


def download_notice(extras: list[str]) -> str:
    """What pip is about to fetch and roughly how large. Sizes of the wheels for Linux x86-64, 2026."""
    pins = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    torch = next(pin.strip() for pin in pins if pin.startswith("torch=="))
    cuda = platform.system() == "Linux"
    rows = [
        f"   {torch}: about 0.2 GB as a CPU-only build"
        + (", about 3 GB as the default build with its CUDA libraries (6 GB on disk)" if cuda else ""),
        "   build tools (cmake, ninja, pybind11, scikit-build-core): about 35 MB",
        "   numpy, rich, typer and other small packages: about 30 MB",
    ]
    if "demo" in extras:
        rows.append("   the demo's model with its weights, transformers, scipy, scikit-learn: about 150 MB")
    if "test" in extras:
        rows.append("   the test tools (pytest, ruff, mypy, import-linter, ...): about 35 MB")
    return "\n".join(
        [
            f"== set-up: pip downloads what {VENV.name} lacks, in the versions of {CONSTRAINTS.name}:",
            *rows,
            "   pip's own settings say where from: PIP_INDEX_URL or PIP_FIND_LINKS can name a place with",
            "   the CPU-only build of torch, which is all that this needs.",
        ]
    )


def build_requirements() -> list[str]:
    """What pyproject.toml asks for to build, and the tools that run the build."""
    import tomllib  # not at the top: an older Python has to reach check_python

    with (ROOT / "pyproject.toml").open("rb") as file:
        return [*tomllib.load(file)["build-system"]["requires"], *BUILD_TOOLS]


def pip_install(*arguments: str) -> list[str]:
    """The command that installs `arguments` into .venv under the constraints."""
    quiet_bar = [] if sys.stdout.isatty() else ["--progress-bar=off"]
    options = ["--disable-pip-version-check", "--no-input", "--constraint", str(CONSTRAINTS), *quiet_bar]
    return [str(_venv_python()), "-m", "pip", "install", *options, *arguments]


def _venv_python() -> Path:
    return BIN / ("python.exe" if os.name == "nt" else "python")


def _venv_works() -> bool:
    """Whether .venv runs with the Python version that runs this file (moving Python breaks it)."""
    check = f"import sys, pip; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"
    return _venv_python().exists() and _quietly([str(_venv_python()), "-c", check])


# ------------------------------------------------------------------ the commands


def environment() -> dict[str, str]:
    """The environment of an activated .venv."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONHOME"}
    variables["VIRTUAL_ENV"] = str(VENV)
    variables["PATH"] = os.pathsep.join([str(BIN), os.environ.get("PATH", os.defpath)])
    return variables


def run(command: list[str], doing: str) -> None:
    """Run in the checkout; raise Problem that says what was being done when the command fails."""
    started = time.monotonic()
    code = subprocess.run(command, cwd=ROOT, env=environment(), check=False).returncode
    if code != 0:
        raise Problem(f"FAILED: {doing} after {seconds(started)} (exit {code}): {' '.join(command)}")


def tool(name: str, *arguments: str) -> list[str]:
    """The command line of a tool that is installed in .venv."""
    return [str(BIN / (f"{name}.exe" if os.name == "nt" else name)), *arguments]


def demo(arguments: list[str]) -> None:
    """Set up, then run the demo."""
    set_up(EXTRAS["demo"])
    run(tool("backend-sdk", "demo", *arguments), "the demo")


def test(arguments: list[str]) -> None:
    """Set up, then run each check; the first that fails ends it."""
    set_up(EXTRAS["test"])
    checks = [
        ("ruff check", tool("ruff", "check", ".")),
        ("ruff format", tool("ruff", "format", "--check", ".")),
        ("mypy", tool("mypy")),
        ("lint-imports", tool("lint-imports", "--no-logo")),
        # Two processes; worksteal, because a few tests take most of the time.
        ("pytest", tool("pytest", "-n", "2", "--dist", "worksteal", *arguments)),
    ]
    for name, command in checks:
        say(f"== {name}")
        started = time.monotonic()
        run(command, name)
        say(f"== {name}: ok, {seconds(started)}")


def main(arguments: list[str]) -> int:
    """Run one command; the exit status is 0 when all of it went well."""
    commands = {"demo": demo, "test": test}
    if not arguments or arguments[0] not in commands:
        say((__doc__ or "").strip())
        return 0 if arguments and arguments[0] in ("-h", "--help") else 2
    rest = arguments[1:]
    if rest[:1] == ["--"]:
        rest = rest[1:]
    try:
        check_python()
        commands[arguments[0]](rest)
    except Problem as problem:
        say(str(problem))
        return 1
    except KeyboardInterrupt:
        say("\ninterrupted")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
