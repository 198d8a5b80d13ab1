"""Code blocks of a Markdown page, run as a reader would run them.

A block is run when its language is `bash` or `python`, unless a comment `<!-- not executed: why -->`
stands before it. A `text` block shows output of the block before: each of its lines must occur in it,
with `…` for anything and runs of blanks as one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

_FENCE = re.compile(
    r"^(?P<why><!-- not executed: [^\n]+ -->\n)?```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_HERE = {
    "TIERDEX_SLOT_COUNT": "4096",  # small files: quick to make
    "TIERDEX_ITEM_CAPACITY": "8192",
    "TIERDEX_MESSAGE_TIMEOUT": str(PATIENCE_S),
}


@dataclass(frozen=True)
class Block:
    """One block; `shown` is the output that the page promises."""

    name: str
    language: str
    code: str
    shown: str = ""


def blocks_to_run(page: Path) -> list[Block]:
    """Return the page's runnable blocks in order, each with the text block that follows it."""
    text = page.read_text()
    found: list[Block] = []
    is_run = False
    for match in _FENCE.finditer(text):
        language, code = match["language"], match["code"]
        line = text.count("\n", 0, match.start()) + 1
        if match["why"]:
            assert language in {"bash", "python"}, f"{page}:{line} needs no opt-out"
            is_run = False
        elif language in {"bash", "python"}:
            found.append(Block(f"{page.name}:{line}", language, code))
            is_run = True
        elif language == "text" and found and is_run:
            last = found[-1]
            found[-1] = Block(last.name, last.language, last.code, code)
    return found


def run_block(block: Block, folder: Path, replacements: dict[str, str]) -> str:
    """Run a block in `folder` and return what it wrote; a failing line fails the block."""
    code = block.code
    for written, here in replacements.items():
        code = code.replace(written, here)
    command = [sys.executable, "-W", "error", "-c", code]
    if block.language == "bash":
        command = ["bash", "-euo", "pipefail", "-c", code]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **_HERE},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, f"{block.name} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


def lines_not_in(shown: str, output: str) -> list[str]:
    """Return the promised lines that no line of the output matches."""
    have = [" ".join(line.split()) for line in output.splitlines()]
    return [
        line
        for line in map(str.strip, shown.splitlines())
        if line and not any(_pattern(line).search(candidate) for candidate in have)
    ]


def _pattern(line: str) -> re.Pattern[str]:
    parts = [re.escape(" ".join(part.split())) for part in line.split("…")]
    return re.compile(r"\s*.*?\s*".join(parts))
