"""The register of loaded files, `DATA/sources.json`: `--show` reads an entry's bytes with it.

An entry of a CSV or JSONL file is a message: topic, offset, size, and no file name. The register tells
which files were loaded under a topic and how their rows were read. `--show` reads the row at the offset
again and compares its key, so that of two files under one topic the right one is shown.

Depends on the ground.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from tierdex.errors import CorruptFileError
from tierdex.whole_file import replace_file

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tierdex.filesystem import FileSystem

FILE_NAME: Final = "sources.json"


@dataclass(frozen=True)
class LoadedFile:
    """A loaded file and how its rows become entries; `columns` is a CSV's header."""

    path: str
    kind: str  # csv | jsonl | parquet
    topics: tuple[str, ...]
    keys: tuple[str, ...]
    message_id: str | None
    columns: tuple[str, ...] = ()
    delimiter: str = ","
    null_values: tuple[str, ...] = ("",)


class LoadRegister:
    """The loaded files of one data folder. Only the process that holds the folder writes it."""

    def __init__(self, filesystem: FileSystem, data_folder: Path) -> None:
        self._filesystem = filesystem
        self._path = data_folder / FILE_NAME

    def files(self) -> list[LoadedFile]:
        """Return every loaded file, latest first. Raises CorruptFileError."""
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

    def of_topic(self, topic: str) -> list[LoadedFile]:
        """Return the files that were loaded under a topic, latest first. Raises CorruptFileError."""
        return [file for file in self.files() if topic in file.topics]

    def remember(self, file: LoadedFile) -> None:
        """Put a file in front, with the topics of an earlier load of it that read its rows alike."""
        others, topics = [], set(file.topics)
        for known in self.files():
            if replace(known, topics=()) == replace(file, topics=()):
                topics |= set(known.topics)
            else:
                others.append(known)
        self._write([replace(file, topics=tuple(sorted(topics))), *others])

    def _write(self, files: Iterable[LoadedFile]) -> None:
        text = json.dumps({"sources": [asdict(file) for file in files]}, indent=1)
        replace_file(self._filesystem, self._path, text.encode())


def _decode(row: dict[str, Any]) -> LoadedFile:
    tuples: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in row.items()
    }
    return LoadedFile(**tuples)
