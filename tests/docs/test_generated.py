"""What is generated is what is committed; what is written by hand names things that are there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
import yaml

from tests.test_tidy import MODULES, tree_of
from tierdex import errors
from tierdex.app.http.server_settings import ServerSettings
from tierdex.settings import Settings
from tools import generate_docs
from tools.generated_parts import fill

ROOT = Path(__file__).parents[2]
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")})
_LINK = re.compile(r"\]\((?!https?://)([^)#\s]+)")
_NAME = re.compile(r"`((?:[A-Za-z_]\w*/)*[A-Za-z_]\w*\.py)`|`(?:[A-Z]\w+\.)?(_?[a-z]\w+)\(?\)?`")


@pytest.mark.parametrize("name", generate_docs.names())
def test_generated_document_is_the_committed_one(name):
    for path, text in generate_docs.generate(name).items():
        # A framework's upgrade may spell the same YAML differently; a template is none.
        if path.suffix == ".yaml" and "{{" not in text:
            assert yaml.safe_load(path.read_text()) == yaml.safe_load(text), "run `make docs`"
        else:
            assert path.read_text() == text, f"{path.relative_to(ROOT)} is old: run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_have_targets(page):
    targets = [page.parent / target for target in _LINK.findall(page.read_text())]
    assert [str(target) for target in targets if not target.exists()] == []


def headings(page):
    """Return the anchors of a page, as the site and GitHub make them."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_headings_have_them(page):
    links = re.findall(r"\]\((?!https?://)([^)#\s]*\.md)?#([\w-]+)\)", page.read_text())
    found = [(name, anchor, (page.parent / name) if name else page) for name, anchor in links]
    assert [(name, anchor) for name, anchor, at in found if anchor not in headings(at)] == []


def test_every_page_can_be_reached_from_the_readme():
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop().resolve()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        for target in _LINK.findall(page.read_text()):
            found = page.parent / target
            waiting += found.glob("*.md") if found.is_dir() else [found]
    assert {page.relative_to(ROOT) for page in PAGES if page.resolve() not in reached} == set()


def test_every_setting_and_error_is_documented():
    page = (ROOT / "docs" / "reference.md").read_text()
    settings = {*Settings.model_fields, *ServerSettings.model_fields}
    assert [name for name in settings if f"| `{name}` |" not in page] == []
    raised = set(errors.__all__) - {"TierdexError", "IllegalTransitionError"}
    assert [name for name in raised if f"| `{name}` |" not in page] == []


@pytest.mark.parametrize("name", ["architecture.md", "lifecycle.md"])
def test_modules_and_functions_that_a_page_names_are_in_the_code(name):
    text = (ROOT / "docs" / name).read_text().split("## Modules")[0]
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    modules, functions = zip(*_NAME.findall(text), strict=True)
    paths = {str(path.relative_to(ROOT)) for path in (ROOT / "tierdex").rglob("*.py")}
    assert [m for m in modules if m and not any(path.endswith("/" + m) for path in paths)] == []
    known = _names_in_the_code() | {*Settings.model_fields, *_SYSTEM_CALLS, *_PLACES}
    assert sorted({f for f in functions if f and not f.startswith("test_")} - known) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_folders_and_files_that_a_page_names_are_there(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    named = re.findall(r"`((?:tierdex|tools|tests|benchmarks|deploy)/[\w./-]+)`", text)
    assert [name for name in named if not (ROOT / name).exists()] == []


_SYSTEM_CALLS = {"open", "ftruncate", "fsync", "msync", "rename", "link", "mmap", "pwrite"}
_SYSTEM_CALLS |= {"flock", "posix_fallocate", "posix_fadvise"}
_PLACES = {"app", "client", "pipeline", "resolving", "log_service", "index_service", "lifecycle"}
_PLACES |= {"indexfile", "storage_layer", "testing"}
_PLACES |= {"received", "os", "disk", "remote"}


@cache
def _names_in_the_code() -> set[str]:
    names: set[str] = set()
    for path in MODULES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                names.add(node.name)
                names.update(a.arg for a in node.args.args + node.args.kwonlyargs)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names.add(node.target.id)
            elif isinstance(node, ast.Attribute):
                names.add(node.attr)
    return names


def test_page_without_its_part_is_refused():
    page = "<!-- generated: a -->\nold\n<!-- end generated -->\n"
    assert fill(page, {"a": "new\n"}) == page.replace("old", "new")
    with pytest.raises(ValueError, match="has the parts"):
        fill(page, {"b": ""})
