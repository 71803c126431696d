"""Runs a Markdown page: every fenced block is executed or checked, and the first that does not hold ends it.

    python run_page.py docs/vendors.md WORK_FOLDER

A fence says what its block is:

- ``python``: runs. The python blocks of one page share a namespace. ``raises=NAME``: it has to raise NAME.
  ``write=FILE``: it is not run but written to FILE in the work folder. ``excerpt=PATH``: it is not run but has to
  stand in that file of the checkout, letter by letter.
- ``output``: what the python block before it prints, or the text of what it raises.
- ``console``: lines ``$ command`` run by the shell in the work folder, each followed by what it prints (nothing:
  anything goes). The exit code has to be 0, or N where the command ends in ``# (exit N)``.
- ``toml``: with ``excerpt=PATH``, as above.
- ``text``: neither run nor checked.

In expected output, ``...`` stands for anything in a line, and a line of its own for any number of lines. Blank
lines and blanks at the end of a line do not count. Any other fence is an error, so that no block goes unseen.

Does not: import torch, or anything of the SDK.
"""

import contextlib
import io
import linecache
import os
import re
import subprocess
import sys
import time
import traceback
import types
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

KINDS = {
    "python": {"raises", "write", "excerpt"},
    "output": set(),
    "console": set(),
    "toml": {"excerpt"},
    "text": set(),
}
_FENCE = re.compile(r"^```(.*)$")
_EXIT = re.compile(r"#\s*\(exit (\d+)\)\s*$")
TIMEOUT_SECONDS = 60


class Wrong(Exception):
    """A block that does not hold."""


@dataclass
class Block:
    """A fenced block. ``line`` is that of its first line of content, counted from 1."""

    kind: str
    line: int
    text: str
    options: dict[str, str] = field(default_factory=dict)


def blocks_of(page: str) -> list[Block]:
    """The fenced blocks of a page, in order. Raises `Wrong` for a fence of no known kind."""
    blocks: list[Block] = []
    opened: Block | None = None
    lines: list[str] = []
    for number, line in enumerate(page.splitlines(), start=1):
        fence = _FENCE.match(line)
        if opened is None and fence:
            opened, lines = _opened(fence.group(1), number), []
        elif opened is not None and line == "```":
            opened.text = "\n".join(lines) + "\n"
            blocks.append(opened)
            opened = None
        elif opened is not None:
            lines.append(line)
        elif line.lstrip().startswith("```"):
            raise Wrong(f"line {number}: a fence starts at the left edge")
    if opened is not None:
        raise Wrong(f"line {opened.line - 1}: this block is not closed")
    return blocks


def _opened(info: str, number: int) -> Block:
    kind, *words = info.split() or [""]
    if kind not in KINDS:
        raise Wrong(f"line {number}: a block is one of {', '.join(KINDS)}, not {kind!r}")
    options = dict(word.partition("=")[::2] for word in words)
    unknown = options.keys() - KINDS[kind]
    if unknown:
        raise Wrong(f"line {number}: {kind} takes no {', '.join(sorted(unknown))}")
    return Block(kind, number + 1, "", options)


def matches(expected: str, actual: str) -> bool:
    """Whether output is what a page says it is."""

    def kept(text: str) -> list[str]:
        return [line.rstrip() for line in text.splitlines() if line.strip()]

    pattern = ""
    for line in kept(expected):
        if line.strip() == "...":
            pattern += r"(?:.*\n)*"
        else:
            pattern += ".*".join(map(re.escape, line.split("..."))) + "\n"
    return re.fullmatch(pattern, "".join(line + "\n" for line in kept(actual))) is not None


class Page:
    """Runs the blocks of one page."""

    def __init__(self, path: Path, folder: Path) -> None:
        self._path = path
        self._folder = folder
        self._text = path.read_text(encoding="utf-8")
        self._blocks = blocks_of(self._text)
        # A module of its own: backends look up the module that defines them.
        self._module = types.ModuleType("page")
        sys.modules["page"] = self._module

    def run(self) -> None:
        """Run or check every block. Raises `Wrong` at the first that does not hold."""
        printed: str | None = None
        for block in self._blocks:
            started = time.perf_counter()
            try:
                if block.kind == "output":
                    self._check_output(block, printed)
                    printed = None
                elif block.kind == "console":
                    self._console(block)
                elif "excerpt" in block.options:
                    self._check_excerpt(block)
                elif "write" in block.options:
                    (self._folder / block.options["write"]).write_text(block.text, encoding="utf-8")
                elif block.kind == "python":
                    printed = self._python(block)
            except Wrong as wrong:
                raise Wrong(f"{self._path.name}:{block.line}: {wrong}") from wrong.__cause__
            print(f"{self._path.name}:{block.line} {block.kind} {time.perf_counter() - started:.1f} s", flush=True)

    def _python(self, block: Block) -> str:
        """Run a block; what it printed, or the text of the exception that it had to raise."""
        # With the page's own line numbers, so that a traceback, and an error's source line, point into the page.
        source, name = "\n" * (block.line - 1) + block.text, self._path.name
        linecache.cache[name] = (len(self._text), None, self._text.splitlines(keepends=True), name)
        output = io.StringIO()
        wanted = block.options.get("raises")
        try:
            with contextlib.redirect_stdout(output):
                exec(compile(source, name, "exec"), vars(self._module))
        except Exception as error:
            if type(error).__name__ == wanted:
                return str(error)
            raise Wrong(f"it raised\n{traceback.format_exc()}") from error
        if wanted:
            raise Wrong(f"it did not raise {wanted}")
        return output.getvalue()

    def _check_output(self, block: Block, printed: str | None) -> None:
        if printed is None:
            raise Wrong("an output block follows a python block that runs")
        _compare(block.text, printed)

    def _check_excerpt(self, block: Block) -> None:
        path = ROOT / block.options["excerpt"]
        if block.text not in path.read_text(encoding="utf-8"):
            raise Wrong(f"this is not in {block.options['excerpt']}")

    def _console(self, block: Block) -> None:
        commands: list[tuple[str, list[str]]] = []
        for line in block.text.splitlines():
            if line.startswith("$ "):
                commands.append((line[2:], []))
            elif commands:
                commands[-1][1].append(line)
            else:
                raise Wrong("a console block starts with '$ command'")
        for command, expected in commands:
            self._command(command, "\n".join(expected))

    def _command(self, command: str, expected: str) -> None:
        found = _EXIT.search(command)
        wanted = int(found.group(1)) if found else 0
        binaries = str(Path(sys.executable).parent)
        environment = {**os.environ, "PATH": os.pathsep.join([binaries, os.environ.get("PATH", os.defpath)])}
        done = subprocess.run(
            command,
            shell=True,
            cwd=self._folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        if done.returncode != wanted:
            raise Wrong(f"`{command}` ended with {done.returncode}, not {wanted}:\n{done.stdout}")
        if expected.strip():
            _compare(expected, done.stdout)


def _compare(expected: str, actual: str) -> None:
    if not matches(expected, actual):
        raise Wrong(f"the page says\n{expected}\nbut this came out:\n{actual}")


def main() -> int:
    """Run the page named on the command line; exit code 1 with the reason when a block does not hold."""
    path, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    # As a reader would: in the folder where the page's files are.
    os.chdir(folder)
    sys.path[0] = str(folder)
    try:
        Page(path, folder).run()
    except Wrong as wrong:
        print(wrong, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
