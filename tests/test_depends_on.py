"""A module's "Depends on ..." sentence is what it imports.

    Depends on NAME, NAME and NAME only[; whatever else is to be said].      Depends on nothing.

A NAME is a module or package of tierdex, by its name or the end of its path (`paths`, `lifecycle`,
`kernels.row_scan`), also as "the rest of lifecycle", a library (`numpy`), or a phrase of PHRASES.

* What is named is imported, if only for its types.
* What is imported when the module runs is named, or its package is. The ground may be left out, but not
  beside "only" or "nothing". Libraries may be left out.
"""

from __future__ import annotations

import ast
import re

from tests.test_tidy import PACKAGE, ROOT, tree_of

MODULES = sorted(PACKAGE.rglob("*.py"))
SEAMS = {"clock", "ids", "filesystem"}
GROUND = SEAMS | {
    "errors",
    "settings",
    "whole_file",
    "local_file",
    "reservation",
    "disk_errors",
    "background",
    "seams",
    "value_rules",
    "fork",
    "tierdex",
    "fileparts.kernels.compile",
}
FOLDER = "the other modules of this folder"
PHRASES = {
    "the ground": GROUND,
    "the seams": SEAMS | {"storage_layer"},
    "the store": {"storage_layer"},
    "the clock": {"clock"},
    "the kernel decorator": {"fileparts.kernels.compile"},
}
_SENTENCE = re.compile(r"\bDepends on ([^.;:]*(?:\.\w[^.;:]*)*)[.;:]")
_SEPARATOR = re.compile(r",\s+and\s+|,\s+|\s+and\s+")


def imports_of(path):
    """Return (dotted modules of tierdex imported at run time, those for types only, libraries)."""
    run_time, types, libraries = set(), set(), set()

    def walk(node, into):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
                for each in child.body:
                    walk_one(each, types)
            else:
                walk_one(child, into)

    def walk_one(node, into):
        if isinstance(node, ast.ImportFrom):
            module = node.module
            for alias in node.names:
                name = f"{module}.{alias.name}"
                is_module = module.startswith("tierdex") and (
                    (ROOT / (name.replace(".", "/") + ".py")).exists()
                    or (ROOT / name.replace(".", "/")).is_dir()
                )
                add(name if is_module else module, into)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                add(alias.name, into)
        walk(node, into)

    def add(module, into):
        head, _, rest = module.partition(".")
        if head == "tierdex":
            into.add(rest or "tierdex")
        else:
            libraries.add(head)

    walk(tree_of(path), run_time)
    return run_time, types - run_time, libraries


def place_of(path):
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


def covers(name, module):
    return f".{name}." in f".{module}."


def faults_of(path):
    sentence = _SENTENCE.search(" ".join((ast.get_docstring(tree_of(path)) or "").split()))
    if sentence is None:
        return []
    run_time, types, libraries = imports_of(path)
    said = sentence[1]
    is_strict = said == "nothing" or said.endswith(" only")
    folder = place_of(path).rpartition(".")[0]
    named, faults = set(), []
    for name in _SEPARATOR.split(said.removesuffix(" only")):
        name = name.removeprefix("the rest of ")
        candidates = {folder} if name == FOLDER else PHRASES.get(name, {name})
        meant = {c for c in candidates if any(covers(c, module) for module in run_time | types)}
        if name != "nothing" and not meant and name not in libraries:
            faults.append(f"names {name!r}, which it does not import")
        named |= meant
    missing = {
        module
        for module in run_time - (set() if is_strict else GROUND)
        if not any(covers(name, module) for name in named)
    }
    return faults + [f"imports {module!r}, which it does not name" for module in sorted(missing)]


def test_depends_on_names_what_the_module_imports():
    found = {place_of(path): faults_of(path) for path in MODULES}
    assert {place: faults for place, faults in found.items() if faults} == {}
