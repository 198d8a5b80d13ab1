"""The examples of docs/spark.md and spark_logs.md, in order, as one program in the tests' session."""

from __future__ import annotations

import contextlib
import io
import shlex
import tomllib
import warnings
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.docs.code_blocks import blocks_to_run, lines_not_in
from tierdex.app.cli.commands import make_cli
from tierdex.pipeline.jobs.options import _READ_NAMES, _WRITE_NAMES
from tierdex.pipeline.logs.log_options import _NAMES, _STREAM_NAMES

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
LOGS = PAGE.with_name("spark_logs.md")
BLOCKS = [*blocks_to_run(PAGE), *blocks_to_run(LOGS)]
FOLDER = "/tmp/tierdex"  # as the page writes it


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The names that the blocks so far have defined, and the folder that they work in."""
    folder = tmp_path_factory.mktemp("page")
    return {"__name__": "page"}, str(folder)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_example_runs_and_shows_what_the_page_shows(block, program, spark, run_cli):
    names, folder = program
    code = block.code.replace(FOLDER, folder)
    if block.language == "bash":
        output = "".join(run_command(line, run_cli) for line in code.splitlines())
    else:
        written = io.StringIO()
        with contextlib.redirect_stdout(written), warnings.catch_warnings():
            exec(compile(code, block.name, "exec"), names)
        output = written.getvalue()
    assert lines_not_in(block.shown, output) == [], output


def run_command(line, run_cli):
    """Run one line of the page without a shell, and without a session of its own."""
    program, *arguments = shlex.split(line)
    assert program == "tierdex", line
    if arguments[0] == "spark":
        return run_cli(*arguments[1:]).output
    result = CliRunner().invoke(make_cli(), arguments)
    assert result.exit_code == 0, result.output
    return result.output


def test_readme_and_page_name_the_versions_that_are_installed():
    root = PAGE.parents[1]
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    for page in (PAGE, root / "README.md"):
        assert [one for one in extras["spark"] if f"`{one}`" not in page.read_text()] == [], page


def test_every_option_is_on_the_page():
    page = PAGE.read_text() + LOGS.read_text()
    names = (*_READ_NAMES, *_WRITE_NAMES, *_NAMES, *_STREAM_NAMES)
    assert [name for name in names if f"`{name}`" not in page] == []
