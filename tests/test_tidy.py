"""The house rules that no linter knows: how a module opens, what names may be, where bytes are counted.

Every rule says what to do in its message. Exceptions stand here, each with its reason.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "tierdex"
MODULES = sorted(PACKAGE.rglob("*.py"))
OWN_CODE = sorted(
    path
    for folder in ("tierdex", "tests", "tools", "benchmarks")
    for path in (ROOT / folder).rglob("*.py")
)
LINES_MAX = 600
FUNCTION_LINES_MAX = 70
LONG_FUNCTIONS_SHARE = 0.005

# Modules that own a binary layout (Arrow's metadata is the layout of another project, read in that one
# file).
LAYOUT_MODULES = (
    "fileparts/layout.py",
    "indexfile/layout.py",
    "logfile/layout.py",
    "rocketmq/layout.py",
    "following/sources/rocketmq_message.py",
    "app/http/codecs/arrow_stream.py",
    "index_service/requests/cursor.py",
)
STRUCT_BY_DTYPE = {
    "indexfile/schema.py"
}  # makes a packer of the item's dtype: no format of its own

_BANNED_IN_NAMES = re.compile(
    r"Manager|Helper|Util(?!iz)|Impl(?!y|ement|ic)|(?i:_helpers?$|_utils?$|_impl$)"
)
_BANNED_NAMES = re.compile(r"do_\w+|process|data|info|v\d+|\w+_v2|helpers?|utils?|common|misc")
_MARKER = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
_STRUCT = re.compile(
    r"\bstruct\.(pack|unpack|calcsize|Struct|iter_unpack)|\bimport struct\b|\bfrom struct\b"
)
_NUMERIC_OFFSET = re.compile(
    r"\b(unpack_from|pack_into)\([^()\n]*,\s*\d+\s*[,)]|\bfrombuffer\([^()\n]*offset=\d"
    r"|\.(read_at|write_at)\(\s*[1-9]\d*\s*,"
)
_DTYPE_OFFSETS = re.compile(r"['\"]offsets['\"]\s*:\s*\[\s*\d")
_REGISTRY = re.compile(
    r"\b(py"
    r"pi\.org|python"
    r"hosted\.org|crates\.io|npm"
    r"js\.(com|org)|rubygems\.org|"
    r"proxy\.golang\.org|repo1?\.maven\.org|docker\.io|ghcr\.io|quay\.io|conda\.anaconda\.org)\b"
)


def ids(paths):
    return [str(path.relative_to(ROOT)) for path in paths]


@cache
def tree_of(path):
    return ast.parse(path.read_text())


def functions():
    for path in MODULES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield path, node


def body_lines(node) -> int:
    """Return a function's lines without its docstring."""
    docstring = ast.get_docstring(node, clean=False)
    return node.end_lineno - node.lineno + 1 - (docstring.count("\n") + 1 if docstring else 0)


def test_every_module_opens_with_what_it_owns():
    silent = [
        path
        for path in MODULES
        if len((ast.get_docstring(tree_of(path)) or "").split("\n")[0]) < 16
    ]
    assert ids(silent) == [], "say what the module owns, its rule, what it may import"


def test_modules_say_what_they_depend_on():
    """Not in a package's `__init__`, and not in the ground's one-line modules."""
    silent = [
        path
        for path in MODULES
        if path.name not in {"__init__.py", "__main__.py"}
        and not re.search(
            r"[Dd]epend|[Mm]ust not import|[Pp]ure", ast.get_docstring(tree_of(path)) or ""
        )
    ]
    assert len(silent) / len(MODULES) < 0.03, f"say what they may import: {ids(silent)}"


def test_no_file_holds_two_nouns():
    long = [path for path in OWN_CODE if path.read_text().count("\n") > LINES_MAX]
    assert ids(long) == [], f"more than {LINES_MAX} lines: split"


def test_no_file_holds_leftovers_or_names_of_registries():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    texts = [*OWN_CODE, *pages, ROOT / "Makefile", ROOT / "Dockerfile", ROOT / "pyproject.toml"]
    texts = [path for path in texts if path != Path(__file__)]
    assert ids(path for path in texts if _MARKER.search(path.read_text())) == [], "do it"
    assert ids(path for path in texts if _REGISTRY.search(path.read_text())) == []


def test_functions_fit_a_screen():
    lengths = [
        (body_lines(node), f"{path.relative_to(ROOT)}:{node.name}") for path, node in functions()
    ]
    too_long = sorted(entry for entry in lengths if entry[0] > FUNCTION_LINES_MAX)
    assert len(too_long) <= LONG_FUNCTIONS_SHARE * len(lengths), too_long


def test_names_say_what_a_thing_is():
    banned = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in MODULES
        for name in [path.stem, *defined_names(tree_of(path))]
        if _BANNED_IN_NAMES.search(name) or _BANNED_NAMES.fullmatch(name.lstrip("_"))
    ]
    assert banned == [], "no Manager, Helper, Util, Impl, do_, process, data, info, version suffix"


def defined_names(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name


def test_places_of_bytes_stand_in_the_layout_modules():
    found = []
    for path in MODULES:
        name = str(path.relative_to(PACKAGE))
        if name.startswith(LAYOUT_MODULES):
            continue
        text = path.read_text()
        rules = [_NUMERIC_OFFSET, _DTYPE_OFFSETS, *([] if name in STRUCT_BY_DTYPE else [_STRUCT])]
        found += [f"{name}: {match[0]}" for rule in rules if (match := rule.search(text))]
    assert found == [], "formats of structs and numeric offsets belong into a layout module"


def test_kernels_take_places_in_memory_from_the_layout():
    """No literal is added to an address that a kernel loads from, stores to or sums up.

    `8 * i` is an element of an array, which is allowed for elements of up to 8 bytes; a place inside a
    struct, and the stride of an array of structs, have names.
    """
    found = [
        f"{in_package(path)}:{node.lineno}: {ast.unparse(node.args[0])}"
        for path in MODULES
        if "kernels" in path.parts
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and node.args and _TOUCHES_MEMORY.match(name_called(node))
        if any(is_literal_place(term) for term in terms_of(node.args[0]))
    ]
    assert found == [], "name the place in a layout module"


_TOUCHES_MEMORY = re.compile(r"(load|store|crc32c|prefetch)")
_ELEMENT_BYTES_MAX = 8


def in_package(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def name_called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def terms_of(node: ast.expr) -> list[ast.expr]:
    """Return the terms of a sum or difference; the last byte of what is prefetched is one less."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        is_last = isinstance(node.op, ast.Sub) and getattr(node.right, "value", None) == 1
        return terms_of(node.left) + ([] if is_last else terms_of(node.right))
    return [node]


def is_literal_place(term: ast.expr) -> bool:
    """Say whether a term is a number, or an index times a number that is no element's width."""
    if isinstance(term, ast.BinOp) and isinstance(term.op, ast.Mult):
        factors = [side.value for side in (term.left, term.right) if isinstance(side, ast.Constant)]
        return any(factor > _ELEMENT_BYTES_MAX for factor in factors)
    return isinstance(term, ast.Constant)


def test_exported_names_exist_once():
    for path in MODULES:
        if "__all__ = [" not in path.read_text() or path.is_relative_to(PACKAGE / "pipeline"):
            continue  # pipeline's modules are imported where pyspark is: tests/pipeline
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        module = import_module(name)
        assert [n for n in module.__all__ if not hasattr(module, n)] == [], name
        assert len(set(module.__all__)) == len(module.__all__), name


def test_no_error_is_swallowed_below_app():
    silent = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in MODULES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ExceptHandler)
        and all(isinstance(line, ast.Pass) for line in node.body)
        and getattr(node.type, "id", "")
        != "ValueError"  # a text that is not of this form: the next one
    ]
    assert silent == [], "say why with contextlib.suppress and a comment, or handle it"
