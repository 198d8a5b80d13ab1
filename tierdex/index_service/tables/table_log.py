"""`DATA/tables/TOPIC.table`: the log of a followed table's state, a record a line.

::

    {checksum} {"kind": "head", ...}      what is followed: the first line
    {checksum} {"kind": "files", ...}     numbers that data files have from now on
    {checksum} {"kind": "indexed", ...}   files whose entries are durable
    {checksum} {"kind": "step", ...}      a snapshot: files that begin and end to be part of the table
    {checksum} {"kind": "kept", ...}      the oldest snapshot that is kept from now on
    {checksum} {"kind": "forgotten", ...} files that no kept snapshot has: their numbers are used up
    {checksum} {"kind": "base", ...}      all of the above, of a log that was written anew: the second line

Order of writing, by the process that holds the data folder::

    files     synced before the first entry that carries such a number is put
    entries   put, and brought to the disk
    deletes   deleted rows of the step, in a file of their own, synced
    step      appended, synced: visible from here on, the whole snapshot at once

A crash before the last leaves entries whose files are in no step, which no lookup shows; the next run gives
the same files the same numbers. A last line that a crash cut short is no record, and the next write takes its
place. A wrong line before the last is damage: then nothing of the topic is called complete. A log of which
most is history is written anew, as a whole file in its place. A head in the middle begins another table.

The checksum is CRC-32 of the JSON, eight hexadecimal digits. Depends on errors, table_state and whole_file.
"""

from __future__ import annotations

import json
import zlib
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.index_service.tables.table_state import DeletesPlace, TableHead, TableState
from tierdex.whole_file import replace_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from tierdex.filesystem import FileSystem

FOLDER: Final = "tables"
_SUFFIX: Final = ".table"
_LOOK: Final = ".look"
DELETES: Final = ".deletes"
_SHORT_BYTES: Final = 1 << 20  # a log that is never written anew


def path_of_topic(folder: Path, topic: str) -> Path:
    """Return the log of a topic's table; `folder` is `DATA/tables`."""
    return folder / (quote(topic, safe="") + _SUFFIX)


def topics_of(names: Iterable[str]) -> list[str]:
    """Return the topics whose logs are among the names of a folder."""
    return sorted(unquote(name.removesuffix(_SUFFIX)) for name in names if name.endswith(_SUFFIX))


def encode_record(record: Mapping[str, Any]) -> bytes:
    """Return the line of a record."""
    text = json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def encode_state(state: TableState, node: str | None = None) -> bytes:
    """Return the log of a state without its history; `node` follows the table, None: no one but jobs."""
    head, base = state.records()
    return encode_record(head if node is None else {**head, "node": node}) + encode_record(base)


def node_of_log(data: bytes) -> str | None:
    """Return the node that follows the table of a log, as `encode_state` wrote it."""
    record = _decode(data.partition(b"\n")[0])
    return None if record is None else record.get("node")


def places_of(file: str, parts: list[np.ndarray]) -> tuple[list[DeletesPlace], bytes]:
    """Return where deleted rows (u8, rising) lie in a file of them, and the file's bytes."""
    places, data, offset = [], [], 0
    for part in parts:
        raw = np.ascontiguousarray(part, "<u8").tobytes()
        places.append(DeletesPlace(file, offset, len(raw), len(part), zlib.crc32(raw)))
        data.append(raw)
        offset += len(raw)
    return places, b"".join(data)


class TableLog:
    """One table's log: reads what was appended since it last looked, or appends. Not thread-safe."""

    def __init__(self, filesystem: FileSystem, folder: Path, topic: str) -> None:
        self._filesystem = filesystem
        self._folder = folder
        self.path = path_of_topic(folder, topic)
        self._end = 0  # of the last whole line that was read
        self._inode: tuple[int, int] | None = None
        self._base_bytes = 0  # of the state, when the log was last measured
        self._needless: set[str] = set()
        self.state: TableState | None = None

    # -- reading ---------------------------------------------------------------------------------

    def refresh(self) -> TableState | None:
        """Return the state as the log has it now; None when there is none.

        Raises CorruptFileError when a line is damaged, OSError.
        """
        stat = self._filesystem.stat(self.path)
        if stat is None:
            self.state, self._end, self._inode = None, 0, None
            return None
        identity = (stat.device, stat.inode)
        if identity == self._inode and stat.size == self._end:
            return self.state
        if identity != self._inode or stat.size < self._end:  # written anew, or another one
            self.state, self._end, self._inode = None, 0, identity
        with closing(self._filesystem.open(self.path)) as file:
            data = file.read_at(self._end, max(0, file.size() - self._end))
        self._take(data)
        return self.state

    def _take(self, data: bytes) -> None:
        self.state, taken = _with_lines(self.state, data, self.path)
        self._end += taken

    def read_file(self, name: str) -> bytes:
        """Return a file of the table's with deleted rows. Raises OSError."""
        with closing(self._filesystem.open(self._folder / name)) as file:
            return file.read_at(0, file.size())

    # -- writing ---------------------------------------------------------------------------------

    def begin(self, head: TableHead) -> TableState:
        """Make the log of a table that was never followed, durably; return its empty state."""
        return self._replace(encode_record(head.as_record()))

    def adopt(self, state: TableState, deletes: Mapping[str, bytes]) -> TableState:
        """Make the log of a state that a job has made, durably; `deletes` are its files of deleted rows."""
        for name, data in deletes.items():
            replace_file(self._filesystem, self._folder / name, data)
        return self._replace(encode_state(state))

    def _replace(self, data: bytes) -> TableState:
        replace_file(self._filesystem, self.path, data)
        self.state, self._end, self._inode = None, 0, None
        state = self.refresh()
        assert state is not None
        return state

    def tidy(self) -> TableState:
        """Write the log anew where most of it is history; remove deleted rows that no step has.

        Those that the last call found needless are removed: a reader may be at them for a while yet.
        """
        assert self.state is not None
        if self._end > max(_SHORT_BYTES, 2 * self._base_bytes):
            data = encode_state(self.state)
            self._base_bytes = len(data)
            if self._end > max(_SHORT_BYTES, 2 * len(data)):
                self._replace(data)
        needed = self.state.deletes_files()
        begin = self.path.name.removesuffix(_SUFFIX) + "."
        needless = {
            name for name in self._filesystem.list_folder(self._folder)
            if name.startswith(begin) and name.endswith(DELETES) and name not in needed
        }  # fmt: skip
        for name in needless & self._needless:
            self._filesystem.unlink(self._folder / name)
        self._needless = needless - self._needless
        return self.state

    def append(self, *records: Mapping[str, Any]) -> TableState:
        """Append records and sync them; return the state that they make."""
        assert self.state is not None
        state = self.state
        for record in records:
            state = state.with_record(record)
        data = b"".join(map(encode_record, records))
        with closing(self._filesystem.open(self.path, writable=True)) as file:
            if file.size() != self._end:  # a line that was cut off
                file.truncate(self._end)
            file.write_at(self._end, data)
            file.sync()
        self.state, self._end = state, self._end + len(data)
        return state

    def write_deletes(self, step: int, parts: list[np.ndarray]) -> list[DeletesPlace]:
        """Write the deleted rows (u8, rising) of a step's files, synced; return where each lies."""
        if not parts:
            return []
        path = self.path.with_suffix(f".{step}{DELETES}")
        places, data = places_of(path.name, parts)
        replace_file(self._filesystem, path, data)
        return places

    def read_deletes(self, place: DeletesPlace) -> np.ndarray:
        """Return deleted rows (u8, rising). Raises CorruptFileError, OSError."""
        path = self._folder / place.file
        with closing(self._filesystem.open(path)) as file:
            raw = file.read_at(place.offset, place.size)
        if len(raw) != place.size or zlib.crc32(raw) != place.crc:
            raise CorruptFileError(path, f"the deleted rows at byte {place.offset} are damaged")
        return np.frombuffer(raw, "<u8")

    # -- looks -----------------------------------------------------------------------------------

    def note_look(self, look: Mapping[str, Any]) -> None:
        """Replace what the last look at the table saw: not synced, the next look writes it again."""
        path = self.path.with_suffix(_LOOK)
        temporary = path.with_suffix(_LOOK + ".tmp")
        with closing(self._filesystem.open(temporary, writable=True, create=True)) as file:
            file.truncate(0)
            file.write_at(0, json.dumps(dict(look)).encode())
        self._filesystem.rename(temporary, path)

    def last_look(self) -> dict[str, Any]:
        """Return what the last look saw; nothing when none was noted, or what is there is no look."""
        path = self.path.with_suffix(_LOOK)
        if not self._filesystem.exists(path):
            return {}
        with closing(self._filesystem.open(path)) as file:
            try:
                said = json.loads(file.read_at(0, file.size()))
            except ValueError:
                return {}
        return said if isinstance(said, dict) else {}


def state_of_log(data: bytes, where: str) -> TableState:
    """Return the state that the bytes of a whole log make. Raises CorruptFileError."""
    state, _ = _with_lines(None, data, where)
    if state is None:
        raise CorruptFileError(where, "is no table's log: it has no head")
    return state


def _with_lines(
    state: TableState | None, data: bytes, where: str | Path
) -> tuple[TableState | None, int]:
    """Return the state after the whole lines of some bytes, and how many bytes these are."""
    whole = data[: data.rfind(b"\n") + 1]
    lines = whole.splitlines()
    for number, line in enumerate(lines):
        record = _decode(line)
        if record is None:
            if number == len(lines) - 1 and len(whole) == len(data):
                whole = whole[: -len(line) - 1]  # cut by a crash, where a line break was left
                break
            raise CorruptFileError(where, f"line {number + 1} of the last {len(lines)} is damaged")
        try:
            state = (
                TableState(TableHead.of_record(record))
                if state is None
                else state.with_record(record)
            )
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise CorruptFileError(
                where, f"line {number + 1} of the last {len(lines)}: {error}"
            ) from error
    return state, len(whole)


def _decode(line: bytes) -> dict[str, Any] | None:
    """Return the record of a line, None for one that is not whole."""
    checksum, _, text = line.partition(b" ")
    if b"%08x" % zlib.crc32(text) != checksum:
        return None
    record = json.loads(text)
    return record if isinstance(record, dict) else None
