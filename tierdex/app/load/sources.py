"""The files that a load is asked for: paths, folders, globs, objects by URL, and the standard input.

::

    orders.csv   logs/   'logs/*/day-*.jsonl.gz'   s3://bucket/logs/   's3://bucket/logs/*.parquet'   -

A folder stands for the files below it whose names end in a known format, in the order of their names; names
that begin with `.` or `_` are left out, as Spark leaves them out, unless a glob names that letter. `*` stands
for a part of a name, `**` for folders. `.gz` and `.zst` behind a format are unfolded.

Depends on errors, file_walk, files, filesystem, resolving and storage_layer.
"""

from __future__ import annotations

import glob
import re
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from tierdex.errors import InvalidRequestError, NotFoundError
from tierdex.file_walk import readable_name, walk
from tierdex.files.object_file import (
    RangeFile,
    address_of_path,
    bucket_and_key,
    is_local,
    opened_file,
    path_of_address,
)
from tierdex.resolving.unfolded_text import CODECS, UnfoldedText, codec_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tierdex.filesystem import FileSystem
    from tierdex.resolving.unfolded_text import Text
    from tierdex.storage_layer.base import Store

Kind = Literal["csv", "jsonl", "parquet"]
KINDS: Final[dict[str, Kind]] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
}
STDIN: Final = "-"
_OBJECT_URLS: Final = ("s3://", "s3a://", "memory://")
_WILD: Final = re.compile(r"[*?\[]")
_PARTS: Final = re.compile(r"(\*\*/|\*\*|\*|\?|\[!?[^]/]+\])")  # of a glob


@dataclass(frozen=True)
class SourceFile:
    """A file: its path, absolute, or its URL, in `parameters` what a URL says of its store.

    `size` in bytes and `changed_ms`, the time of its last change, are as they were when it was found.
    """

    address: str
    kind: Kind
    size: int
    changed_ms: int
    parameters: str = ""

    @property
    def is_tab_separated(self) -> bool:
        return _suffix(self.address) == ".tsv"

    @property
    def is_stream(self) -> bool:
        return self.address == STDIN


class _Seen(NamedTuple):
    """A file before its format is known."""

    address: str
    size: int
    changed_ms: int
    parameters: str = ""


class Sources:
    """Finds files and opens them. Close it: it keeps the stores of URLs open."""

    def __init__(self, filesystem: FileSystem, now_ms: int) -> None:
        self._filesystem = filesystem
        self._now_ms = now_ms  # the time of what has none
        self._stores: dict[str, Store] = {}
        self._closing = ExitStack()
        self.left_out = 0  # files of folders and globs whose names end in no known format
        self.not_files: dict[str, str] = {}  # what of a known name is no file: why, by its path

    def close(self) -> None:
        self._closing.close()

    def find(self, given: Sequence[str | Path], kind: Kind | None) -> list[SourceFile]:
        """Return the files in order, each once; `kind` is theirs, or their names tell it.

        Raises NotFoundError for what stands for no file, InvalidRequestError for an unknown format.
        """
        found: dict[str, SourceFile] = {}
        for text in map(str, given):
            for file in self._find_one(text, kind):
                found.setdefault(file.address, file)
        return list(found.values())

    @contextmanager
    def opened(self, file: SourceFile) -> Iterator[RangeFile]:
        """Open a file that is no stream. Raises NotFoundError, OSError and what a store raises."""
        if is_local(file.address):
            with opened_file(self._filesystem, file.address) as opened:
                yield opened
            return
        root, key = bucket_and_key(file.address)
        store = self._store(root + file.parameters)
        yield RangeFile(
            lambda position, count: store.get(key, position, count), file.size, file.changed_ms
        )

    def text_of(self, file: SourceFile, opened: RangeFile | None) -> Text:
        """Return the text of an opened file; of the standard input for None."""
        if opened is None:
            return UnfoldedText(lambda: sys.stdin.buffer, "the standard input")
        codec = codec_of(file.address)
        return opened if codec is None else UnfoldedText.of_file(opened, codec, file.address)

    def _find_one(self, text: str, kind: Kind | None) -> list[SourceFile]:
        if text == STDIN:
            if kind is None or kind == "parquet":
                raise InvalidRequestError(
                    "say --kind csv or jsonl of the standard input", field="kind"
                )
            return [SourceFile(STDIN, kind, 0, self._now_ms)]
        if text.startswith("file://") and not self._filesystem.exists(Path(text[7:])):
            text = str(path_of_address(text))
        text = text.removeprefix("file://")
        if "://" in text:
            if not text.startswith(_OBJECT_URLS):
                raise InvalidRequestError(
                    f"{text} is no s3:// URL; fetch it, or give its rows to the standard input, `-`",
                    field="file",
                )
            return self._objects(text.replace("s3a://", "s3://", 1), kind)
        path = Path(text).absolute()
        if self._filesystem.exists(path):
            if self._filesystem.is_folder(path):
                return self._known(self._below(path, kind), kind, text)
            if not self._is_file(path):
                raise InvalidRequestError(
                    f"{path} is no regular file, and cannot be read again: give its rows to the standard "
                    "input, and `-` for the file",
                    field="file",
                )
            return [_of_kind(self._local(path), kind)]
        wild = _WILD.search(str(path))
        if wild is None:
            raise NotFoundError(f"there is no file {readable_name(str(path))}")
        return self._known(self._matching(str(path), str(path)[: wild.start()]), kind, text)

    def _matching(self, pattern: str, begin: str) -> list[_Seen]:
        """Return the files that a glob means; `begin` is all before its first wildcard."""
        if "**" in pattern:  # not by `glob`, which goes round where links lead back
            folder, matched = Path(begin.rpartition("/")[0] or "/"), _pattern(pattern, classes=True)
            if not self._filesystem.is_folder(folder):
                return []
            below = walk(self._filesystem, folder, lambda name: not _is_hidden(name)).files
            paths = [folder / file.name for file in below]
            return [self._local(path) for path in paths if matched.fullmatch(str(path))]
        found = [path for path in sorted(glob.glob(pattern)) if not _is_hidden_below(path, begin)]
        return [self._local(path) for path in map(Path, found) if self._is_file(path)]

    def _is_file(self, path: Path) -> bool:
        there = self._filesystem.stat(path)
        return there is not None and there.kind == "file"

    def _below(self, folder: Path, kind: Kind | None) -> list[_Seen]:
        found = walk(self._filesystem, folder, lambda name: not _is_hidden(name))
        for name, why in found.skipped.items():
            if kind or _suffix(name) in KINDS:
                self.not_files[readable_name(str(folder / name))] = why
        return [self._local(folder / file.name) for file in found.files]

    def _local(self, path: Path) -> _Seen:
        files = self._filesystem
        return _Seen(address_of_path(path), files.file_size(path), files.modified_ms(path))

    def _objects(self, url: str, kind: Kind | None) -> list[SourceFile]:
        url, question, rest = url.partition("?")
        parameters = question + rest
        root, key = bucket_and_key(url)
        store = self._store(root + parameters)
        if "*" not in key and key and not key.endswith("/"):
            one = store.head(key)
            return [_of_kind(_Seen(url, one.size, one.modified_ms, parameters), kind)]
        pattern = _pattern(key if "*" in key else key + "**")
        begin = key.partition("*")[0]
        return self._known(
            [
                _Seen(f"{root}/{one.key}", one.size, one.modified_ms, parameters)
                for one in store.list(begin)
                if pattern.fullmatch(one.key) and not _is_hidden_below(one.key, begin)
            ],
            kind,
            url,
        )

    def _known(self, seen: list[_Seen], kind: Kind | None, given: str) -> list[SourceFile]:
        """Return the files of a known format. Raises NotFoundError when there is none."""
        known = [file for file in seen if kind or _suffix(file.address) in KINDS]
        self.left_out += len(seen) - len(known)
        if not known:
            beside = f"; {len(seen)} end otherwise: say --kind" if seen else ""
            raise NotFoundError(f"{given} has no file that ends in {', '.join(KINDS)}{beside}")
        return [_of_kind(file, kind) for file in known]

    def _store(self, url: str) -> Store:
        if url not in self._stores:
            from tierdex.storage_layer.open import open_objects

            self._stores[url] = open_objects(url)
            self._closing.callback(self._stores[url].close)
        return self._stores[url]


def _of_kind(seen: _Seen, kind: Kind | None) -> SourceFile:
    found = kind or KINDS.get(_suffix(seen.address))
    if found is None:
        raise InvalidRequestError(
            f"cannot tell the format of {PurePosixPath(seen.address).name}: the name ends in none of "
            f"{', '.join(KINDS)}; say --kind",
            field="file",
        )
    return SourceFile(seen.address, found, seen.size, seen.changed_ms, seen.parameters)


def _suffix(address: str) -> str:
    """Return the end of a name that tells the format, in lower case."""
    path = PurePosixPath(address)
    if path.suffix.lower() in CODECS:
        path = PurePosixPath(path.stem)
    return path.suffix.lower()


def _is_hidden(path: str) -> bool:
    return any(part.startswith((".", "_")) for part in path.split("/"))


def _is_hidden_below(path: str, begin: str) -> bool:
    """Return whether what a glob found is hidden; `begin` is the glob before its first wildcard.

    A name of which the glob itself gives the begin is wanted, whatever it begins with.
    """
    folder, _, name = begin.rpartition("/")
    below = path[len(folder) + 1 :] if folder or begin.startswith("/") else path
    return _is_hidden(below.partition("/")[2] if name else below)


def _pattern(text: str, *, classes: bool = False) -> re.Pattern[str]:
    """Return what matches the paths that a glob means: `*` and `?` within a name, `**/` over folders.

    With `classes` also `[abc]` and `[!abc]`, which keys of objects have as plain text.
    """
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}

    def meant(part: str) -> str:
        if classes and len(part) > 2 and part[0] == "[" and part[-1] == "]":
            letters = part[1:-1].replace("\\", r"\\")
            return f"[^{letters[1:]}]" if letters[0] == "!" else f"[{letters}]"
        return parts.get(part) or re.escape(part)

    return re.compile("".join(map(meant, _PARTS.split(text))))
