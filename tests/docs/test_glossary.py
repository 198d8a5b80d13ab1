"""One word, one meaning: the words of the glossary are used, the words that it turns down are not."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tests.test_tidy import MODULES, tree_of

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"
_ROW = re.compile(r"^\| (?P<words>\*\*.+?) \| (?P<meaning>.+?) \| ?(?P<not>.*?) ?\|$", re.MULTILINE)
_ANCESTOR = re.compile(r"rocketmq", re.IGNORECASE)  # its own words, where it is spoken of


def rows():
    return list(_ROW.finditer(GLOSSARY.read_text()))


@cache
def prose():
    """Return (place, text) of all documents and docstrings."""
    return list(_prose())


def _prose():
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        if path != GLOSSARY:
            yield path.relative_to(ROOT), path.read_text()
    for path in MODULES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield path.relative_to(ROOT), ast.get_docstring(node) or ""


def test_every_word_is_used():
    everything = "\n".join(text for _, text in prose()).lower()
    words = [word for row in rows() for word in re.findall(r"\*\*(.+?)\*\*", row["words"])]
    assert len(words) > 50
    unused = [w for w in words if not re.search(rf"\b{re.escape(w.lower())}", everything)]
    assert unused == []


def test_words_that_are_turned_down_are_not_used():
    refused = [w.strip() for row in rows() for w in row["not"].split(",") if w.strip()]
    assert len(refused) > 10
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, refused))})s?\b", re.IGNORECASE)
    found = [
        (str(place), match[0])
        for place, text in prose()
        if not _ANCESTOR.search(str(place))
        for match in pattern.finditer(text)
    ]
    assert found == []
