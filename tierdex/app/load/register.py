"""The register of loaded files, `DATA/sources.json`: how each file was loaded, and how far.

`--show` reads a row again the way it was loaded. A later load of the same file under the same options goes on
from the note in `reached`, or skips the file. The order of a load::

    rows are put, and brought to disk    a crash from here on loads rows since the last note again, with
                                         the same locations and times: a lookup returns each of them once
    the note is written, durably         what it covers is on disk: no crash can lose it

So a crash between loading and noting neither loses an entry nor doubles an answer.

Depends on errors, records and whole_file.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tierdex.app.load.records import Mark
from tierdex.errors import CorruptFileError
from tierdex.whole_file import read_file, replace_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tierdex.filesystem import FileSystem

FILE_NAME: Final = "sources.json"


class Reached(NamedTuple):
    """How far a file was loaded: all of it, or to a mark of its text.

    `size` and `changed_ms` are the file's when the load began; -1 where it had changed a moment before, so
    that its time proves nothing. Of a Parquet file `position` counts rows, and `digest` is that of the whole
    file. `time_ms` is the time of entries without one.
    """

    size: int
    changed_ms: int
    is_whole: bool
    time_ms: int
    position: int = 0
    line: int = 1
    digest: str = ""

    @property
    def mark(self) -> Mark:
        return Mark(self.position, self.line, self.digest)


@dataclass(frozen=True)
class LoadedFile:
    """A loaded file and how its rows become entries; `columns` is a CSV's header.

    `path` is a URL without its `parameters` for an object. `how` are the options that no row is shown by.
    """

    path: str
    kind: str  # csv | jsonl | parquet
    topics: tuple[str, ...]
    keys: tuple[str, ...]
    message_id: str | None
    columns: tuple[str, ...] = ()
    delimiter: str = ","
    null_values: tuple[str, ...] = ("",)
    parameters: str = ""
    how: str = ""
    reached: Reached | None = None

    @property
    def identity(self) -> tuple[object, ...]:
        """What makes two loads one: the file, and the options."""
        return (
            self.path, self.kind, self.keys, self.message_id, self.delimiter, self.null_values, self.how,
        )  # fmt: skip


class LoadRegister:
    """The loaded files of one data folder, or of one service. One process at a time writes it."""

    def __init__(self, filesystem: FileSystem, data_folder: Path, name: str = FILE_NAME) -> None:
        self._filesystem = filesystem
        self._path = data_folder / name

    def files(self) -> list[LoadedFile]:
        """Return every loaded file, latest first. Raises CorruptFileError."""
        if not self._filesystem.exists(self._path):
            return []
        text = read_file(self._filesystem, self._path)
        try:
            return [_decode(row) for row in json.loads(text)["sources"]]
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptFileError(self._path, f"is not a list of sources: {error}") from error

    def holding(self, topic: str, source: str | None) -> list[LoadedFile]:
        """Return the files that may hold an entry's row, latest first. Raises CorruptFileError.

        `source` is the file that the entry names; entries of messages name none. A file of which nothing was
        noted yet but that its load began holds no row.
        """
        files = [file for file in self.files() if file.topics]
        if source is not None:
            return [file for file in files if file.path == source]
        return [file for file in files if topic in file.topics]

    def remember(self, files: Sequence[LoadedFile]) -> None:
        """Put files in front, each with the topics of an earlier load of it that read its rows alike."""
        others = {file.identity: file for file in self.files()}
        first = []
        for file in files:
            earlier = others.pop(file.identity, file)
            topics = tuple(sorted({*file.topics, *earlier.topics}))
            first.append(replace(file, topics=topics, columns=file.columns or earlier.columns))
        self._write([*first, *others.values()])

    def _write(self, files: Iterable[LoadedFile]) -> None:
        text = json.dumps({"sources": [asdict(file) for file in files]}, indent=1)
        replace_file(self._filesystem, self._path, text.encode())


def _decode(row: dict[str, Any]) -> LoadedFile:
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in row.items()
    }
    if values.get("reached") is not None:
        values["reached"] = Reached(*values["reached"])
    return LoadedFile(**values)
