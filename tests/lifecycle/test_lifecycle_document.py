import re
from pathlib import Path

from tierdex.lifecycle.file_state import mermaid

DOCUMENT = Path(__file__).parents[2] / "docs" / "lifecycle.md"
TESTS = Path(__file__).parents[1]
FOLDERS = ("lifecycle", "stateful", "crash", "torture")


def test_diagram_in_the_document_is_the_generated_one():
    assert f"```mermaid\n{mermaid()}```" in DOCUMENT.read_text(), "run `make docs`"


def test_every_row_of_the_crash_table_names_a_test_that_is_there():
    named = set(re.findall(r"`(test_\w+)`", DOCUMENT.read_text()))
    defined = set()
    for path in (path for folder in FOLDERS for path in (TESTS / folder).rglob("test_*.py")):
        defined |= set(re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE))
    assert len(named) > 10
    assert named <= defined
