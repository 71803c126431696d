"""Runs commands in this process."""

import pytest

from backend_sdk import cli


@pytest.fixture
def run(capsys):
    """Runs a command: ``run("list", "--json")`` gives its exit code, standard output and standard error."""

    def run(*arguments):
        code = 0
        try:
            cli.main(arguments)
        except SystemExit as stop:
            code = stop.code or 0
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
