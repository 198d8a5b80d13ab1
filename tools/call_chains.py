"""`python -m tools.call_chains [--write]`: the modules of tierdex that each call enters, in order.

The calls: every spelling of put, append, append_nowait, query and get that README, the documents and the
docstrings show, those that the benchmark "One way" measures, and whole operations. `--write` keeps the
chains in tests/call_chains.txt, to which tests/test_call_chains.py holds them.

Each call runs once before it is traced, so that imports, kernels and caches are loaded. Kernels call each
other without Python: only the first of them is seen.
"""

from __future__ import annotations

import ast
import os
import re
import sys
import tempfile
from contextlib import contextmanager
from itertools import count, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

import tierdex
from benchmarks import one_way

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parent.parent
CHAINS_FILE = ROOT / "tests/call_chains.txt"
_PACKAGE = f"{Path(tierdex.__file__).parent}{os.sep}"
_KEYS = 100
_WHEN = 1_700_000_000_000
_VERBS = "put", "append", "append_nowait", "query", "get"
_CALL = re.compile(rf"\b(\w+)\.({'|'.join(_VERBS)})\((?=[^)])")
_NOT_OURS = {"parts", "writer"}  # a list of an example, RocketMQ's files
_OF_CLIENTS = {"message"}  # arguments that only a client's call has
# What a document leaves to its reader: `...`, and names.
_ANY: dict[str, Any] = {
    "topic": "shown", "key": "k", "keys": ["k"], "queue_id": 0, "offset": 0, "size": 1, "body": b"y",
    "timestamp": _WHEN, "begin": 0, "end": _WHEN, "message_id": "m",
}  # fmt: skip
_NEEDED = {
    "put": ("topic", "queue_id", "offset", "size", "timestamp"),
    "append": ("topic", "queue_id", "body"), "append_nowait": ("topic", "queue_id", "body"),
}  # fmt: skip
_NAMES: dict[str, Any] = {"now": _WHEN, "number": 7, "body": b"y", "topic": "shown"}


class Chain(NamedTuple):
    """The modules that a call enters, each once, and how often it goes from one into another.

    They are named without their folders, so that a move changes nothing.
    """

    modules: list[str]
    entries: int


def chain_of(operation: Callable[[], object]) -> Chain:
    """Return the chain of an operation."""
    entered: list[str] = []

    def note(frame: Any, event: str, _argument: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(_PACKAGE):
            entered.append(Path(path).stem)

    operation()
    sys.setprofile(note)
    try:
        operation()
    finally:
        sys.setprofile(None)
    return Chain(list(dict.fromkeys(entered)), sum(1 for _ in groupby(entered)))


# -- what documents show ----------------------------------------------------------------------------------


class Spelling(NamedTuple):
    """A call as a document shows it."""

    verb: str
    positional: tuple[Any, ...]
    named: tuple[tuple[str, Any], ...]

    @property
    def name(self) -> str:
        """The verb, and each argument with what kind of value it has: calls of one name go one way."""
        arguments = [_kind(value) for value in self.positional]
        arguments += [f"{name}={_kind(value)}" for name, value in self.named]
        return f"{self.verb}({', '.join(arguments)})"


def spellings() -> dict[str, Spelling]:
    """Return the calls that README, docs and docstrings show, by name."""
    texts = [
        path.read_text() for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    ]
    for path in sorted(Path(_PACKAGE).rglob("*.py")):
        texts += _docstrings(ast.parse(path.read_text()))
    found = [each for text in texts for each in _calls_in(text)]
    return {each.name: each for each in sorted(found, key=lambda each: each.name)}


def _docstrings(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def _calls_in(text: str) -> Iterator[Spelling]:
    for match in _CALL.finditer(text):
        call = _parsed(text[match.end() - 1 :])
        if call is None or match[1] in _NOT_OURS:
            continue
        positional = tuple(
            _value(each, name) for each, name in zip(call.args, ("topic", "key"), strict=False)
        )
        if not all(each.arg in _OF_CLIENTS for each in call.keywords) or positional:
            named = [(each.arg, _value(each.value, each.arg)) for each in call.keywords]
            kept = tuple((name, value) for name, value in named if name and name not in _OF_CLIENTS)
            yield Spelling(match[2], positional, kept)


def _parsed(text: str) -> ast.Call | None:
    """Return the call whose arguments a text begins with; None for prose, and `(...)` alone."""
    for match in re.finditer(r"\)", text[:1000]):
        inner = text[1 : match.start()].strip()
        try:
            call = ast.parse(f"f({inner.removesuffix('...').rstrip(', ')})", mode="eval").body
        except SyntaxError:
            continue
        return call if isinstance(call, ast.Call) and (call.args or call.keywords) else None
    return None


def _value(node: ast.expr, name: str | None) -> Any:
    code = ast.unparse(node)
    if "..." in code:
        return _ANY[name or ""]
    return eval(code, {"__builtins__": {}}, dict(_NAMES))


def _kind(value: Any) -> str:
    if isinstance(value, list | tuple | dict):
        return f"{type(value).__name__} of {len(value)}"
    return type(value).__name__


@contextmanager
def doors() -> Iterator[tuple[tierdex.Index, tierdex.MessageLog]]:
    """Open an index and a log, and let both know what documents ask for."""
    with (
        tempfile.TemporaryDirectory() as folder,
        tierdex.Index.open(f"{folder}/index", background=False, **one_way.SIZES) as index,
        tierdex.MessageLog.open(f"{folder}/log", background=False) as log,
    ):
        yield index, log


def documented(
    index: tierdex.Index, log: tierdex.MessageLog
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the name and the call of each spelling; lookups ask for what is there."""
    offsets = count()
    for name, (verb, positional, named) in spellings().items():
        given = {each: _ANY[each] for each in _NEEDED.get(verb, ())} | dict(named)
        door: Any = index if verb in ("put", "query") else log
        if verb in ("query", "get"):
            _store(
                door, dict(zip(("topic", "key"), positional, strict=False)) | given, next(offsets)
            )

        def call(
            door: Any = door, verb: str = verb, at: Any = positional, given: Any = given
        ) -> Any:
            return getattr(door, verb)(*at, **given)

        yield name, call


def _store(door: Any, asked: dict[str, Any], number: int) -> None:
    """Store what a lookup asks for."""
    names = {name: asked[name] for name in ("key", "message_id") if asked.get(name) is not None}
    at = {"topic": asked.get("topic", "shown"), "queue_id": 0, "timestamp": _WHEN}
    if isinstance(door, tierdex.Index):
        door.put(**names, **at, offset=number, size=1)
    else:
        door.append(**names, **at, body=b"y", durability="os")
        door.get(at["topic"], **names)


def measured(
    index: tierdex.Index, log: tierdex.MessageLog
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the name and the call of each row of the benchmark."""
    for verb, calls in (
        ("put", one_way.put_calls(index)), ("query", one_way.query_calls(index)),
        ("get", one_way.get_calls(log)), ("append", one_way.append_calls(log)),
    ):  # fmt: skip
        for name, (call, _limit) in calls.items():
            yield f"{verb}: {name}", call


# -- whole operations -------------------------------------------------------------------------------------


def operations(
    index: tierdex.Index, log: tierdex.MessageLog
) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the name and the call of each operation; the last ones need those before them."""
    numbers = count(1)
    place: dict[str, Any] = {"topic": "t", "queue_id": 0, "size": 1}
    keys = [f"key-{number}" for number in range(_KEYS)]
    lookups = pa.table({"topic": ["t"] * _KEYS, "key": keys})

    def put_batch() -> None:
        offsets = np.arange(_KEYS) + 1000 * next(numbers)
        index.put_batch(**place, keys=keys, offset=offsets, timestamp=offsets)

    def publish() -> None:
        put_batch()
        index.roll()
        index.run_compaction()

    def append_batch() -> None:
        log.append_batch(topic="t", queue_id=0, body=[b"y"] * _KEYS, key=keys, durability="os")

    yield f"put_batch of {_KEYS}", put_batch
    yield f"append_batch of {_KEYS}", append_batch
    yield "log.read", lambda: log.read("t", 0, 0)
    yield "query, local key", lambda: index.query("t", key=keys[0])
    yield "query_batch", lambda: index.query_batch(lookups.to_pylist())
    yield "query_batch_arrow", lambda: index.query_batch_arrow(lookups)
    yield "put_batch, roll, run_compaction", publish
    yield "query, published key", lambda: index.query("t", key=keys[0])


def spelled_chains() -> dict[str, Chain]:
    """Return the chains of single calls, by name: what documents show, and what is measured."""
    with doors() as (index, log):
        return {
            name: chain_of(call)
            for calls in (documented, measured)
            for name, call in calls(index, log)
        }


def read_chains() -> dict[str, Chain]:
    """Return the chains that are kept."""
    chains = {}
    for block in CHAINS_FILE.read_text().strip().split("\n\n"):
        name, entries, *modules = block.split("\n")
        chains[name] = Chain([each.strip() for each in modules], int(entries.split()[0]))
    return chains


def _block(name: str, chain: Chain) -> str:
    return "\n    ".join([f"{name}\n    {chain.entries} entries", *chain.modules])


def main() -> None:
    """Print each call's chain, or keep those of single calls."""
    chains = spelled_chains()
    if "--write" in sys.argv[1:]:
        CHAINS_FILE.write_text("\n\n".join(_block(*each) for each in chains.items()) + "\n")
        return
    with doors() as (index, log):
        chains |= {name: chain_of(operation) for name, operation in operations(index, log)}
    for name, chain in chains.items():
        print(f"{name}: {len(chain.modules)} modules, {chain.entries} entries into one")
        print(f"    {' -> '.join(chain.modules)}")


if __name__ == "__main__":
    main()
