from __future__ import annotations

from functools import cache

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from tierdex.app.cli.commands import make_cli

cli = make_cli()
# Making click's 45 commands anew costs as much as most of what the tests run.
command_of = cache(get_command)
SMALL = ("--set", "slot_count=1024", "--set", "item_capacity=4096")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a command in an empty folder, whose data folder is ./data."""
    monkeypatch.chdir(tmp_path)
    for name in ("TIERDEX_DATA", "TIERDEX_STORE", "TIERDEX_URL", "TIERDEX_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("typer.testing._get_command", command_of, raising=False)

    def invoke(*arguments, code=0, stdin=None):
        result = CliRunner().invoke(cli, list(arguments), input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, (result.exit_code, result.output)
        return result

    return invoke


@pytest.fixture
def put(run):
    def put_one(*arguments, **options):
        return run("put", *arguments, *SMALL, **options)

    return put_one
