"""`DATA/sources.json`: which local files were loaded, so that an entry's bytes can be shown again.

An entry of a CSV or JSONL file is a message: topic, offset, size, and no file name. This file says
which files were loaded under a topic and how their rows were read; with that, the row at the offset
is read anew and its key compared, so that of two files under one topic the right one answers.

Written whole to a temporary name, synced, renamed.

Depends on the ground.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from tierdex.errors import CorruptFileError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tierdex.filesystem import FileSystem

FILE_NAME: Final = "sources.json"


@dataclass(frozen=True)
class Source:
    """A loaded file and how its rows become entries; `columns` is a CSV's header."""

    path: str
    kind: str  # csv | jsonl | parquet
    topics: tuple[str, ...]
    keys: tuple[str, ...]
    message_id: str | None
    columns: tuple[str, ...] = ()
    delimiter: str = ","
    null_values: tuple[str, ...] = ("",)


class SourceRegister:
    """The sources of one data folder. One process writes it: the one that holds the folder."""

    def __init__(self, filesystem: FileSystem, data_folder: Path) -> None:
        self._filesystem = filesystem
        self._folder = data_folder
        self._path = data_folder / FILE_NAME

    def sources(self) -> list[Source]:
        """Return every source, latest first. Raises CorruptFileError."""
        if not self._filesystem.exists(self._path):
            return []
        file = self._filesystem.open(self._path)
        try:
            text = file.read_at(0, file.size())
        finally:
            file.close()
        try:
            return [_decode(row) for row in json.loads(text)["sources"]]
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptFileError(self._path, f"is no list of sources: {error}") from error

    def of_topic(self, topic: str) -> list[Source]:
        """Return the sources that were loaded under a topic, latest first."""
        return [source for source in self.sources() if topic in source.topics]

    def remember(self, source: Source) -> None:
        """Put a source in front; one that was loaded the same way before joins its topics."""
        others, topics = [], set(source.topics)
        for known in self.sources():
            if replace(known, topics=()) == replace(source, topics=()):
                topics |= set(known.topics)
            else:
                others.append(known)
        self._write([replace(source, topics=tuple(sorted(topics))), *others])

    def _write(self, sources: Iterable[Source]) -> None:
        text = json.dumps({"sources": [asdict(source) for source in sources]}, indent=1)
        self._filesystem.make_folder(self._folder)
        temporary = self._path.with_suffix(".json.new")
        self._filesystem.unlink(temporary)
        file = self._filesystem.open(temporary, create=True, exclusive=True)
        try:
            file.write_at(0, text.encode())
            file.sync()
        finally:
            file.close()
        self._filesystem.rename(temporary, self._path)
        self._filesystem.sync_folder(self._folder)


def _decode(row: dict[str, Any]) -> Source:
    tuples: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in row.items()
    }
    return Source(**tuples)
