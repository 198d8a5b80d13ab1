"""The figures of the house (tools/house.py): right on a small house, and never higher than they were."""

from __future__ import annotations

import pytest

from tests.test_tidy import ROOT
from tools import house


@pytest.fixture(scope="module")
def measured():
    return house.figures(ROOT)


def test_every_figure_is_kept(measured):
    assert list(house.kept_figures()) == list(measured)


@pytest.mark.parametrize("name", house.kept_figures())
def test_a_figure_only_shrinks(measured, name):
    """A figure may grow where a change is worth it: raise it in that commit, and say why there."""
    assert measured[name] <= house.kept_figures()[name], (
        f"{name}: take something out, or raise the figure in tools/house_figures.json with the reason"
    )


def written(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_circle_through_types_and_functions_is_one_circle(tmp_path):
    root = written(
        tmp_path,
        {
            "tierdex/__init__.py": "",
            "tierdex/a.py": "if TYPE_CHECKING:\n    from tierdex.b import B\n",
            "tierdex/b.py": "def late():\n    from tierdex import c\n",
            "tierdex/c.py": "import tierdex.a\n",
            "tierdex/d.py": "from tierdex import a\n",
        },
    )
    graph = house.imports(root / "tierdex")
    assert house.circles(graph) == [["tierdex.a", "tierdex.b", "tierdex.c"]]


def test_figures_of_a_small_house(tmp_path):
    wide = "def wide(self, a, b, c, *, d, e, f, g, h): ...\n"
    long = "def long():\n" + "    x = 1\n" * 69
    root = written(
        tmp_path,
        {
            "README.md": "four words of text",
            "CHANGELOG.md": "one",
            "docs/deep/page.md": "two words",
            "tierdex/__init__.py": "",
            "tierdex/room/one.py": wide + "@kernel\n" + wide,
            "tierdex/room/two.py": long,
            "tierdex/room/three.py": "\n" * 401,
            "tierdex/room/kernels/four.py": wide,
            "tests/test_one.py": "thing._private\nself._own\nrow._asdict()\nthing.__doc__\n",
        },
    )
    assert house.figures(root) == {
        "product lines": 3 + 70 + 401 + 1,
        "test lines": 4,
        "words of docs": 7,
        "modules under 60 lines": 2,
        "largest room": 3,
        "circles": 0,
        "functions of 8 and more parameters": 1,
        "functions of 70 and more lines": 1,
        "files above 400 lines": 1,
        "private attributes in tests": 1,
    }
