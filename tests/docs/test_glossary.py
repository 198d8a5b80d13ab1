"""One word, one meaning: terms of the glossary are used and name real code; what it turns down is absent."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.test_tidy import MODULES, tree_of

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"
_ROW = re.compile(r"^\| (?P<words>\*\*.+?) \| (?P<meaning>.+?) \| ?(?P<not>.*?) ?\|$", re.MULTILINE)
_ANCESTOR = re.compile(r"rocketmq", re.IGNORECASE)  # its own words, where it is spoken of
_CODE = re.compile(r"`([^`]+)`")


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


@cache
def names_of_the_code():
    """Return the names of modules and classes."""
    classes = {
        node.name
        for path in MODULES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ClassDef)
    }
    return classes | {path.stem for path in MODULES}


def has(name):
    """Return whether a class or a module has a name, in either spelling: `Shelf`, `shelf.py`."""
    plain = name.replace("_", "").lower()
    return any(plain == known.strip("_").replace("_", "").lower() for known in names_of_the_code())


def turned_down():
    """Return the words, and the names in backticks, of the last column."""
    columns = [row["not"] for row in rows()]
    words = [w.strip() for c in columns for w in _CODE.sub("", c).split(",") if w.strip()]
    return words, [name for column in columns for name in _CODE.findall(column)]


def test_every_term_is_used():
    everything = "\n".join(text for _, text in prose()).lower()
    words = [word for row in rows() for word in re.findall(r"\*\*(.+?)\*\*", row["words"])]
    assert len(words) > 50
    unused = [w for w in words if not re.search(rf"\b{re.escape(w.lower())}", everything)]
    assert unused == []


def test_names_of_the_meanings_are_in_the_code():
    named = [name for row in rows() for name in _CODE.findall(row["meaning"])]
    code = [name.removesuffix(".py") for name in named if re.match(r"[A-Z]|\w+\.py$", name)]
    assert len(code) > 20
    assert [name for name in code if name not in names_of_the_code()] == []


def test_words_that_are_turned_down_are_not_used():
    refused, _ = turned_down()
    assert len(refused) > 10
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, refused))})s?\b", re.IGNORECASE)
    found = [
        (str(place), match[0])
        for place, text in prose()
        if not _ANCESTOR.search(str(place))
        for match in pattern.finditer(text)
    ]
    assert found == []


def test_sentences_name_their_subject():
    """A reader asks who "whoever" is: a caller, an owner, a thread, a reader of the store."""
    vague = re.compile(r"\b(whoever|nobody|somebody|anybody|everybody|those who)\b", re.IGNORECASE)
    texts = [ROOT / "README.md", ROOT / "SECURITY.md", *(ROOT / "docs").rglob("*.md"), *MODULES]
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in texts
        for match in vague.finditer(path.read_text())
    ]
    assert found == []


@pytest.mark.parametrize("name", turned_down()[1])
def test_name_that_is_turned_down_is_no_class_and_no_module(name):
    assert not has(name)
