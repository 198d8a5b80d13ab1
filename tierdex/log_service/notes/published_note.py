"""What only the store has of the log: a small file `DATA/log/PUBLISHED`, older than any copy that goes.

It has the end offset of every queue that is published, so that offsets go on while the store cannot be
reached, and the files that were published from here, so that the index knows what the log has. The manifest
knows both as well: a note that is missing or damaged is made anew from the store.

::

    one line of text    checksum of all that follows it, then JSON: generation, files
    queue table         where queues end (`logfile.queue_ends`)

The small file `DATA/log/INDEXED` notes how far the published index of the log goes. Index files note it
themselves (`indexfile.source`), but a published one may be merged away, into the files of another node, and
then this folder does not have it. It is written, durably, before the local copy of an index file goes.

Depends on errors, fileparts, indexfile, lifecycle, logfile and whole_file.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import google_crc32c

from tierdex.errors import CorruptFileError, InvalidRequestError
from tierdex.fileparts.predecessor import Predecessor
from tierdex.indexfile.source import decode_source
from tierdex.lifecycle.paths import PUBLISHED_NOTE
from tierdex.logfile.queue_ends import NO_QUEUES, QueueEnds
from tierdex.whole_file import read_file, read_head, replace_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from tierdex.filesystem import FileSystem
    from tierdex.indexfile.source import Source

_CRC_DIGITS: Final = 8


class FileContents(NamedTuple):
    """What one file adds: the end offsets of its queues, and its generation."""

    ends: QueueEnds
    generation: int


class NotedFile(NamedTuple):
    """A file that is published: its number, and where its batches end."""

    number: int
    end: Predecessor


@dataclass(frozen=True)
class PublishedNote:
    """The published part of a folder's log: where its queues end, and its files by uuid. A value."""

    ends: QueueEnds = NO_QUEUES
    files: Mapping[bytes, NotedFile] = field(default_factory=dict)
    generation: int = 0

    @property
    def end(self) -> Predecessor | None:
        """Where the batches of the newest file end, None without one."""
        newest = max(self.files.values(), key=lambda file: file.number, default=None)
        return None if newest is None else newest.end

    def with_file(
        self, uuids: Iterable[bytes], file: NotedFile, contents: FileContents
    ) -> PublishedNote:
        """Return the note with one more file: under its uuid, and those of the files merged into it."""
        return PublishedNote(
            self.ends.joined(contents.ends),
            {**self.files, **dict.fromkeys(uuids, file)},
            max(self.generation, contents.generation),
        )

    def without(self, is_gone: Callable[[bytes], bool]) -> PublishedNote:
        """Return the note without files that are not needed any more; their ends and the newest one stay."""
        newest = max((file.number for file in self.files.values()), default=0)
        files = {u: f for u, f in self.files.items() if f.number == newest or not is_gone(u)}
        return replace(self, files=files)

    def number_before(self, source: Source | None) -> int:
        """Return up to which number an index has all files whole that goes as far as `source`; -1: none."""
        file = None if source is None else self.files.get(source.uuid)
        if source is None or file is None:
            return -1
        is_last = file.end.uuid == source.uuid  # of the journals in it
        is_whole = not source.partial and source.batch_count >= file.end.batch_count
        return file.number if is_last and is_whole else file.number - 1

    def write(self, filesystem: FileSystem, root: Path) -> None:
        """Replace the note in the folder `root`, durably. Raises OSError."""
        line = {
            "generation": self.generation,
            "files": [
                [number, uuid.hex(), end.uuid.hex(), end.batch_count, end.batch_crc]
                for uuid, (number, end) in self.files.items()
            ],
        }
        data = json.dumps(line).encode() + b"\n" + self.ends.encode()
        replace_file(filesystem, root / PUBLISHED_NOTE, b"%08x " % google_crc32c.value(data) + data)

    @classmethod
    def read(cls, filesystem: FileSystem, root: Path) -> PublishedNote | None:
        """Return the note of the folder `root`, None without one. Raises OSError, CorruptFileError."""
        path = root / PUBLISHED_NOTE
        try:
            found = read_file(filesystem, path)
        except FileNotFoundError:
            return None
        return cls.decode(found, path)

    @classmethod
    def decode(cls, found: bytes, path: object) -> PublishedNote:
        """Return the note whose bytes these are. Raises CorruptFileError."""
        crc, _, rest = found.partition(b" ")
        if crc != b"%08x" % google_crc32c.value(rest):
            raise CorruptFileError(path, "does not verify")
        line, _, data = rest.partition(b"\n")
        try:
            return cls._decode(json.loads(line), data)
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptFileError(path, f"is not a note of published files: {error}") from error

    @classmethod
    def _decode(cls, line: Any, data: bytes) -> PublishedNote:
        return cls(
            QueueEnds.decode(data, PUBLISHED_NOTE),
            {
                bytes.fromhex(uuid): NotedFile(number, Predecessor(bytes.fromhex(last), count, crc))
                for number, uuid, last, count, crc in line["files"]
            },
            int(line["generation"]),
        )


def mark_of_note(filesystem: FileSystem, root: Path) -> bytes | None:
    """Return what tells this note of the folder `root` from another, None without one. Raises OSError."""
    return read_head(filesystem, root / PUBLISHED_NOTE, _CRC_DIGITS)


def refuse_published(filesystem: FileSystem, root: Path) -> None:
    """Raise InvalidRequestError for a log of which a part lies in a store, to be opened without it."""
    if mark_of_note(filesystem, root) is not None:
        raise InvalidRequestError(
            "a part of this log is published: open it with `index=True` and its `store`",
            field="index",
        )


_INDEXED_NAME: Final = "INDEXED"
_BYTES_MAX: Final = 400


def note_indexed(filesystem: FileSystem, root: Path, source: Source) -> None:
    """Note that everything up to `source` is in published index files. Raises OSError."""
    replace_file(filesystem, root / _INDEXED_NAME, _encode_source(source.encode()))


def read_indexed(filesystem: FileSystem, root: Path) -> Source | None:
    """Return the position, None where none was noted, or it does not verify. Raises OSError."""
    found = read_head(filesystem, root / _INDEXED_NAME, _BYTES_MAX)
    if found is None:
        return None
    try:
        data = bytes.fromhex(found.partition(b" ")[0].decode())
        return decode_source(data) if found == _encode_source(data) else None
    except ValueError:
        return None


def _encode_source(data: bytes) -> bytes:
    return f"{data.hex()} {zlib.crc32(data):08x}\n".encode()
