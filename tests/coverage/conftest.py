"""Runs a command of the coverage package in this process."""

from __future__ import annotations

import pytest

from backend_sdk import cli


@pytest.fixture
def command(capfd):
    """``command("coverage", "--json")`` gives the exit code, standard output and standard error."""

    def run(*arguments):
        code = 0
        try:
            cli.main(arguments)
        except SystemExit as stop:
            code = stop.code or 0
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return run
