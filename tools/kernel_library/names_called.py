"""Which kernels Python's code names, which the library has to have, and the sources that kernels are made of.

Read from the sources, not from a run: a kernel that no test calls counts, too.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_CALLABLE = {"kernel", "short_kernel"}
_COMPILED = {*_CALLABLE, "primitive", "intrinsic"}


def names_called(package: Path) -> set[str]:
    """Return the dotted names of the kernels that functions of Python in `package` name."""
    trees = {
        _module_name(path, package): ast.parse(path.read_text()) for path in package.rglob("*.py")
    }
    kernels = {
        f"{module}.{each.name}"
        for module, tree in trees.items()
        for each in tree.body
        if isinstance(each, ast.FunctionDef) and _decorators(each) & _CALLABLE
    }
    return {
        name
        for module, tree in trees.items()
        for name in _names_used(module, tree)
        if name in kernels
    }


def kernel_sources(package: Path) -> list[str]:
    """Return the files of kernels and, from them on, of all that they import; relative to `package`."""
    paths = {_module_name(path, package): path for path in package.rglob("*.py")}
    waiting, found = [name for name in paths if ".kernels" in name], set()
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += (
                each for each in _imports(ast.parse(paths[name].read_text())) if each in paths
            )
    return sorted(str(paths[name].relative_to(package)) for name in found)


def _imports(tree: ast.Module) -> Iterator[str]:
    for each in ast.walk(tree):
        if isinstance(each, ast.ImportFrom) and each.module:
            yield each.module
            yield from (f"{each.module}.{name.name}" for name in each.names)


def _module_name(path: Path, package: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _decorators(function: ast.FunctionDef) -> set[str]:
    return {each.id for each in function.decorator_list if isinstance(each, ast.Name)}


def _names_used(module: str, tree: ast.Module) -> Iterator[str]:
    """Yield the dotted names that Python's own functions of a module use."""
    meant = {
        each.name: f"{module}.{each.name}"
        for each in tree.body
        if isinstance(each, ast.FunctionDef)
    }
    for each in ast.walk(tree):
        if isinstance(each, ast.ImportFrom) and each.module:
            meant |= {name.asname or name.name: f"{each.module}.{name.name}" for name in each.names}
    for each in _python_nodes(tree):
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load):
            yield meant.get(each.id, "")
        elif isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name):
            yield f"{meant.get(each.value.id, '')}.{each.attr}"


def _python_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes below `node`, without functions that are compiled."""
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.FunctionDef) and _decorators(child) & _COMPILED):
            yield child
            yield from _python_nodes(child)
