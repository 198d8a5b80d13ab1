"""`python -m tools.house [--write]`: measure the house: how large it is, and what in it is hard to live in.

The figures of the last landing stand in `house_figures.json` beside this module, and tests/test_house.py
lets each of them only shrink. `--write` writes lower figures there and leaves the others; one that has to
grow is raised by hand, in the commit that needs it, with its reason.

* Lines are all lines of the `.py` files; words are those of README, CHANGELOG and the pages of docs/.
* A room is a folder of modules. A circle is a set of modules that import each other in a round; imports
  for types only and imports inside functions count.
* A function's lines and parameters are its own, its docstring and `self` left out; a kernel's parameters
  are not counted.
* A private attribute is `thing._name` in a test, where `thing` is neither `self` nor `cls` and the name is
  not a named tuple's or `os._exit`.
"""

from __future__ import annotations

import ast
import json
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT: Final = Path(__file__).resolve().parent.parent
FIGURES: Final = Path(__file__).with_name("house_figures.json")
PACKAGE: Final = "tierdex"
SMALL_LINES: Final = 60
LONG_FILE_LINES: Final = 400
LONG_FUNCTION_LINES: Final = 70
WIDE_PARAMETERS: Final = 8
_DOCUMENTED: Final = {"_asdict", "_replace", "_fields", "_make", "_exit"}
_KERNELS: Final = "kernels"
_COMPILED: Final = {"kernel", "short_kernel", "primitive", "intrinsic", "overload"}
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def main() -> None:
    """Print the figures beside those that are kept; with `--write` keep the lower ones."""
    kept = kept_figures()
    measured = figures(ROOT)
    for name, figure in measured.items():
        print(f"{name:40}{figure:>10,}   kept {kept.get(name, figure):>10,}")
    for circle in circles(imports(ROOT / PACKAGE)):
        print("circle:", ", ".join(circle))
    if "--write" in sys.argv[1:]:
        lower = {name: min(figure, kept.get(name, figure)) for name, figure in measured.items()}
        FIGURES.write_text(json.dumps(lower, indent=2) + "\n")


def kept_figures() -> dict[str, int]:
    """Return the figures that the last landing kept."""
    if not FIGURES.exists():
        return {}
    kept: dict[str, int] = json.loads(FIGURES.read_text())
    return kept


def figures(root: Path) -> dict[str, int]:
    """Return every figure of the house under `root` by its name."""
    product = _sources(root / PACKAGE)
    tests = _sources(root / "tests")
    trees = {path: _tree(text) for path, text in product.items()}
    pages = [root / "README.md", root / "CHANGELOG.md", *(root / "docs").rglob("*.md")]
    rooms = Counter(path.parent for path in product)
    functions = [each for path, tree in trees.items() for each in _functions(path, tree)]
    return {
        "product lines": sum(map(_lines, product.values())),
        "test lines": sum(map(_lines, tests.values())),
        "words of docs": sum(len(page.read_text().split()) for page in pages),
        "modules under 60 lines": sum(
            _lines(text) < SMALL_LINES
            for path, text in product.items()
            if path.name not in {"__init__.py", "__main__.py"}
        ),
        "largest room": max(rooms.values()),
        "circles": len(circles(imports(root / PACKAGE))),
        "functions of 8 and more parameters": sum(
            _parameters(node) >= WIDE_PARAMETERS
            for path, node in functions
            if not _is_kernel(path, node)
        ),
        "functions of 70 and more lines": sum(
            _body_lines(node) >= LONG_FUNCTION_LINES for _, node in functions
        ),
        "files above 400 lines": sum(_lines(text) > LONG_FILE_LINES for text in product.values()),
        "private attributes in tests": sum(
            _private_attributes(ast.parse(text)) for text in tests.values()
        ),
    }


def imports(package: Path) -> dict[str, set[str]]:
    """Return the modules of the package that each of its modules imports, for types only too."""
    modules = {_dotted(package, path): path for path in package.rglob("*.py")}
    return {
        name: {
            target
            for node in ast.walk(_tree(path.read_text()))
            for target in _targets(node, modules)
            if target != name
        }
        for name, path in modules.items()
    }


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the sets of modules that reach each other, the largest first."""
    forward = {name: _reached(name, graph) for name in graph}
    left, found = set(graph), []
    for name in sorted(graph):
        if name not in left:
            continue
        round_ = {other for other in forward[name] if name in forward[other]}
        left -= round_ | {name}
        if round_:
            found.append(sorted(round_ | {name}))
    return sorted(found, key=len, reverse=True)


def _reached(start: str, graph: dict[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    ahead = list(graph[start])
    while ahead:
        name = ahead.pop()
        if name not in reached:
            reached.add(name)
            ahead.extend(graph[name])
    return reached


def _targets(node: ast.AST, modules: dict[str, Path]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in modules)
    elif isinstance(node, ast.ImportFrom) and node.module in modules:
        for alias in node.names:
            name = f"{node.module}.{alias.name}"
            yield name if name in modules else node.module


def _dotted(package: Path, path: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _sources(folder: Path) -> dict[Path, str]:
    return {path: path.read_text() for path in sorted(folder.rglob("*.py"))}


@cache
def _tree(text: str) -> ast.Module:
    return ast.parse(text)


def _lines(text: str) -> int:
    return text.count("\n")


def _functions(path: Path, tree: ast.AST) -> Iterable[tuple[Path, _Function]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield path, node


def _body_lines(node: _Function) -> int:
    docstring = ast.get_docstring(node, clean=False)
    last = node.end_lineno or node.lineno
    return last - node.lineno + 1 - (docstring.count("\n") + 1 if docstring else 0)


def _parameters(node: _Function) -> int:
    given = node.args
    names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def _is_kernel(path: Path, node: _Function) -> bool:
    if _KERNELS in path.parts or path.stem.endswith(_KERNELS):
        return True
    called = [each.func if isinstance(each, ast.Call) else each for each in node.decorator_list]
    names = {
        each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "") for each in called
    }
    return bool(names & _COMPILED)


def _private_attributes(tree: ast.AST) -> int:
    return sum(
        isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and node.attr not in _DOCUMENTED
        and not (isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"})
        for node in ast.walk(tree)
    )


if __name__ == "__main__":
    main()
