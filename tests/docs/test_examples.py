"""The examples of README.md and of the pages in docs do what the pages say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.code_blocks import blocks_to_run, lines_not_in, run_block

ROOT = Path(__file__).parents[2]
PAGES = (
    ROOT / "README.md",
    ROOT / "docs" / "doors.md",
    ROOT / "docs" / "operations.md",
    ROOT / "docs" / "tasks.md",
    ROOT / "docs" / "message_log.md",
    ROOT / "docs" / "follow.md",
    ROOT / "docs" / "lake.md",
    ROOT / "docs" / "show.md",
)
BLOCKS = [block for page in PAGES for block in blocks_to_run(page)]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_example_runs_and_shows_what_the_page_shows(block, workspace):
    replacements = workspace.replacements
    if not block.name.startswith("README"):  # what a newcomer types starts as it does there
        replacements = replacements | {".venv/bin/tierdex": str(workspace.program)}
    output = run_block(block, workspace.folder, replacements)
    assert lines_not_in(block.shown, output) == [], output


def test_promised_line_is_matched_with_gaps_and_blanks():
    output = " offset   size \n 538818    92   x-local \n"
    assert lines_not_in(" offset size\n538818 … x-local", output) == []
    assert lines_not_in("538818 93", output) == ["538818 93"]
