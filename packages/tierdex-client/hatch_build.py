"""Makes the package `tierdex_client` of the modules of `tierdex` that its clients import, and of no others.

Two distributions may not own the same files, so that the modules move to a name of their own: only their
import statements change. A source distribution holds the result, and a wheel made of one takes it from there.
"""

from __future__ import annotations

import ast
import re
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE, TARGET = "tierdex", "tierdex_client"
ROOTS = ("tierdex.client.remote", "tierdex.errors")
_IMPORT = re.compile(rf"^(\s*)(from|import) {SOURCE}\b", re.MULTILINE)


class ClientPackage(BuildHookInterface[Any]):
    """Adds the package to a wheel or a source distribution."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            raise ValueError("nothing to edit here: the modules are tierdex's, install tierdex")
        here = Path(self.root)
        if (here / TARGET).exists():  # in a source distribution
            return
        self._folder = tempfile.TemporaryDirectory()
        write_package(here.parents[1], Path(self._folder.name))
        build_data["force_include"][self._folder.name] = TARGET

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if folder := getattr(self, "_folder", None):
            folder.cleanup()


def write_package(tree: Path, target: Path) -> None:
    """Write the package into the folder `target`, from the repository `tree`."""
    modules = needed_modules(tree)
    for module in modules:
        path = _path(tree, module)
        at = target / path.relative_to(tree / SOURCE)
        at.parent.mkdir(parents=True, exist_ok=True)
        (at.parent / "__init__.py").touch()
        at.write_text(_IMPORT.sub(rf"\1\2 {TARGET}", path.read_text()))
    (target / "__init__.py").write_text(_public_names(tree, modules))
    (target / "py.typed").touch()


def needed_modules(tree: Path) -> set[str]:
    """Return the modules that the clients import, at once or when they need them."""
    needed: set[str] = set()
    waiting = list(ROOTS)
    while waiting:
        module = waiting.pop()
        if module != SOURCE and module not in needed:
            needed.add(module)
            waiting += _imports(tree, ast.parse(_path(tree, module).read_text()))
    return needed


def _imports(tree: Path, node: ast.AST) -> list[str]:
    """Return the modules of ours that a piece of code imports when it runs, not for types alone."""
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return []
    if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == SOURCE:
        names = (f"{node.module}.{alias.name}" for alias in node.names)
        return [name if _path(tree, name).exists() else str(node.module) for name in names]
    return [module for child in ast.iter_child_nodes(node) for module in _imports(tree, child)]


def _path(tree: Path, module: str) -> Path:
    return tree.joinpath(*module.split(".")).with_suffix(".py")


def _public_names(tree: Path, modules: set[str]) -> str:
    """Return `__init__.py`: the names of `tierdex` whose modules are here."""
    assigned = {}
    for statement in ast.parse((tree / SOURCE / "__init__.py").read_text()).body:
        if isinstance(statement, ast.Assign):
            assigned[ast.unparse(statement.targets[0])] = statement.value
    homes = ast.literal_eval(assigned["_HOMES"])
    kept = {home: names for home, names in homes.items() if home in modules}
    names = sorted([*(name for names in kept.values() for name in names), "errors"])
    lines = [
        '"""The clients of a Tierdex service: `Client`, `AsyncClient`, their answers and errors."""',
        f"from {TARGET} import errors",
        *(
            f"from {TARGET}{home.removeprefix(SOURCE)} import {', '.join(kept[home])}"
            for home in kept
        ),
        f"__all__ = {names!r}",
    ]
    return "\n\n".join(lines) + "\n"
