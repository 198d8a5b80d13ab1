r"""A folder of growing files as a source: each file is a partition, each line a record.

::

    offset        0              81          171
                  | line ...... \n| line .... \n| a line that is being written
    record        | 0, 80 bytes   | 81, 89      not read before its \n is there

An offset is the byte at which the line begins, behind the byte order mark of a file that has one. Which file
is which partition, whatever happens to its name, says folder_files.py. The files that are read are held open:
what is renamed, moved away or deleted is read to its end.

With `pattern`, a regular expression with named groups, a line gives its groups as headers; a line that does
not match has none (it is the rest of another message, or of no interest).

Depends on errors, file_walk, options, folder_files, records, value_block, filesystem and numpy.
"""

from __future__ import annotations

import fnmatch
import re
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tierdex.clock import Bell
from tierdex.errors import InvalidRequestError, NotFoundError, PermissionDeniedError
from tierdex.file_walk import readable_name
from tierdex.following.records import Bounds, Record, RecordBatch
from tierdex.following.sources.folder_files import END_BYTES, FolderFiles, mark, open_file
from tierdex.following.value_block import BYTE_ORDER_MARK, ValueBlock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tierdex.clock import Clock
    from tierdex.filesystem import FileSystem, OpenFile
    from tierdex.following.records import Headers, Parts
    from tierdex.following.sources.options import Address

_BLOCK_BYTES: Final = 4 << 20
_LINE_BYTES_MAX: Final = 64 << 20
_NEWLINE, _RETURN = 10, 13
_POLL_S: Final = 0.1
_HELD_MOST: Final = 256  # files that are held open; of more, those that grew last


@dataclass
class _Reading:
    """How far a file is read. `first` and `last` are the bytes at its begin and before `position`."""

    position: int
    first: bytes
    last: bytes

    def move(self, data: bytes, count: int) -> None:
        """Skip the first `count` bytes at the position."""
        self.position += count
        if len(self.first) < END_BYTES:
            self.first = (self.first + data[: min(count, END_BYTES)])[:END_BYTES]
        self.last = (self.last + data[max(0, count - END_BYTES) : count])[-END_BYTES:]


class FolderSource:
    """Follows the files of one folder. See `Source`."""

    has_times = False
    is_dense = True

    def __init__(self, address: Address, filesystem: FileSystem, clock: Clock) -> None:
        """`address.path` is the folder; options: `files` (default ``*.jsonl``), `pattern`."""
        self._filesystem = filesystem
        self._clock = clock
        self._folder = Path(address.path).absolute()
        self._files = address.take("files", "*.jsonl")
        pattern = address.take("pattern")
        address.refuse_rest()
        try:
            self._pattern = re.compile(pattern.encode()) if pattern else None
        except re.error as error:
            raise InvalidRequestError(
                f"is not a regular expression: {error}", field="pattern"
            ) from error
        if self._pattern is not None and not self._pattern.groupindex:
            raise InvalidRequestError(
                "has no named group, as in (?P<order>[0-9]+)", field="pattern"
            )
        self.name = f"folder:{self._folder}"
        self.topic = self._folder.name
        self._file_table = FolderFiles(filesystem, self._folder, self._is_followed)
        self._recalled: set[int] = set()
        self._positions: dict[int, int] = {}  # where reading begins
        self._reading: dict[int, _Reading] = {}  # of files that were found since
        self._held: dict[int, OpenFile] = {}  # the one that grew last at the end
        self._sizes: dict[int, int] = {}  # of files that are held and gone, at the last look
        self._turn = 0

    def identity(self) -> str:
        return str(self._folder)

    @property
    def replaced(self) -> int:
        return self._file_table.replaced

    @property
    def skipped(self) -> Mapping[str, str]:
        return {readable_name(name): why for name, why in self._file_table.skipped.items()}

    def recall(self, memory: Mapping[str, Any]) -> None:
        self._file_table.recall(memory)
        self._recalled = {int(number) for number in memory}

    def remembers(self, partition: int) -> bool:
        return partition in self._recalled

    def memory(self, positions: Mapping[int, int]) -> dict[str, Any]:
        for partition, position in positions.items():
            reading = self._reading.get(partition)
            if reading is not None and reading.position == position:
                self._file_table.note(partition, position, mark(reading.first, reading.last))
        return self._file_table.memory()

    def partitions(self) -> Sequence[int]:
        if not self._filesystem.is_folder(self._folder):
            raise NotFoundError(f"there is no folder {readable_name(str(self._folder))}")
        try:
            self._file_table.look()
        except PermissionError as error:  # a folder below; files say it themselves
            path = readable_name(str(error.filename))
            raise PermissionDeniedError(f"{path} may not be read") from error
        self._let_go()
        return sorted({*self._file_table.numbers, *self._held})

    def name_of(self, partition: int) -> str:
        return readable_name(self._file_table.name_of(partition) or str(partition))

    def place_of(self, partition: int, offset: int) -> str:
        return f"{self.name_of(partition)}, byte {offset}"

    def bounds(self, positions: Mapping[int, int | None]) -> Mapping[int, Bounds]:
        """The end is behind the last whole line."""
        self._look_for(positions)
        found = {}
        for partition in positions:
            try:
                with self._opened(partition) as file:
                    found[partition] = Bounds(0, _end_of(file))
            except FileNotFoundError:
                continue
        return found

    def open(self, positions: Mapping[int, int], wanted: Parts) -> None:
        self._look_for(positions)
        self._positions, self._reading = dict(positions), {}

    def read(self, max_records: int, timeout_s: float) -> RecordBatch | None:
        give_up = self._clock.monotonic() + timeout_s
        while True:
            order = sorted(self._positions)
            for count in range(len(order)):
                partition = order[(self._turn + count) % len(order)]
                batch = self._read_file(partition, max_records)
                if batch is not None:
                    self._turn = (self._turn + count + 1) % len(order)
                    return batch
            if self._clock.monotonic() >= give_up:
                return None
            self._clock.wait(Bell(), _POLL_S)

    def fetch(self, partition: int, offset: int) -> Record | None:
        try:
            before, data = self._line_of(partition, offset)
        except FileNotFoundError:
            return None
        end = data.find(b"\n")
        if end < 0 or not before:
            return None
        line = data[:end].removesuffix(b"\r")
        return Record(partition, offset, 0, None, line, self._headers([line])[0] or ())

    def close(self) -> None:
        while self._held:
            self._held.popitem()[1].close()

    # -- files ---------------------------------------------------------------------------------------

    def _is_followed(self, path: str) -> bool:
        name = path.rpartition("/")[2]
        return fnmatch.fnmatchcase(path, self._files) or fnmatch.fnmatchcase(name, self._files)

    def _look_for(self, partitions: Mapping[int, Any]) -> None:
        if any(each not in self._file_table and each not in self._held for each in partitions):
            self.partitions()

    def _let_go(self) -> None:
        """Close what is held and no longer its partition's: replaced, or gone and read to its end."""
        for partition, file in list(self._held.items()):
            stat = file.stat()
            if partition in self._file_table:
                is_its = stat.identity == self._file_table.identity_of(partition)
            else:
                reading = self._reading.get(partition)
                grew = self._sizes.get(partition) != stat.size
                has_more = reading is not None and stat.size > reading.position
                is_its = (grew or has_more) and self._file_table.has_mark(partition, file)
                self._sizes[partition] = stat.size
            if not is_its:
                self._sizes.pop(partition, None)
                self._held.pop(partition).close()

    @contextmanager
    def _opened(self, partition: int) -> Iterator[OpenFile]:
        """Open a partition's file. Raises FileNotFoundError, also where another one has its name."""
        held = self._held.get(partition)
        if held is not None:
            yield held
            return
        with closing(open_file(self._filesystem, self._file_table.path_of(partition))) as file:
            if file.stat().identity != self._file_table.identity_of(partition):
                raise FileNotFoundError(partition)
            yield file

    def _hold(self, partition: int) -> OpenFile:
        """Return a partition's file, held open. Raises FileNotFoundError."""
        held = self._held.pop(partition, None)
        if held is None:
            file = open_file(self._filesystem, self._file_table.path_of(partition))
            if file.stat().identity != self._file_table.identity_of(partition):
                file.close()
                raise FileNotFoundError(partition)
            held = file
        self._held[partition] = held
        while len(self._held) > _HELD_MOST:
            self._held.pop(next(iter(self._held))).close()
        return held

    def _line_of(self, partition: int, offset: int) -> tuple[bool, bytes]:
        """Return as `_line_at`, of a partition's file as it is now. Raises FileNotFoundError."""
        for is_second in (False, True):
            if is_second or partition not in self._file_table:
                self.partitions()
            try:
                with self._opened(partition) as file:
                    if self._file_table.has_mark(partition, file):
                        return _line_at(file, offset)
            except FileNotFoundError:  # it has another name since the last look
                continue
        raise FileNotFoundError(partition)

    def _read_file(self, partition: int, max_records: int) -> RecordBatch | None:
        try:
            with self._opened(partition) as file:
                reading = self._reading.get(partition)
                if reading is None:
                    reading = _reading_from(file, _line_begin(file, self._positions[partition]))
                    self._reading[partition] = reading
                    if reading.position != self._positions[partition]:  # it was inside a line
                        return RecordBatch.without_records({partition: reading.position})
                if file.size() <= reading.position:
                    return None
            file = self._hold(partition)
        except FileNotFoundError:
            return None  # its partition goes at the next look, or has another name then
        data = _block(file, reading.position)
        length = len(reading.last)
        if file.read_at(reading.position - length, length) != reading.last:
            return None  # it was written anew in its place: the next look says what it is now
        batch = self._batch(partition, reading.position, data, max_records)
        if batch is not None:
            reading.move(data, batch.positions[partition] - reading.position)
        return batch

    def _batch(
        self, partition: int, position: int, data: bytes, max_records: int
    ) -> RecordBatch | None:
        """Return the whole lines of a block, None where there are none."""
        breaks = np.flatnonzero(np.frombuffer(data, np.uint8) == _NEWLINE)
        if not len(breaks):
            if len(data) < _LINE_BYTES_MAX:
                return None
            # The begin of a line that is too long: its rest has no place either.
            return RecordBatch.without_records({partition: position + len(data)}, passed_over=1)
        ends = breaks[:max_records].astype(np.int64)
        starts = np.append(0, ends[:-1] + 1)
        if position == 0 and data.startswith(BYTE_ORDER_MARK):
            starts[0] = len(BYTE_ORDER_MARK)
        behind = position + int(ends[-1]) + 1
        ends -= (np.frombuffer(data, np.uint8)[np.maximum(ends - 1, 0)] == _RETURN) & (
            ends > starts
        )
        if not (ends > starts).all():  # an empty line is no record
            starts, ends = starts[ends > starts], ends[ends > starts]
        lines = ValueBlock(data, starts, ends)
        return RecordBatch(
            np.full(len(lines), partition, np.int32),
            starts + position,
            (ends - starts).astype(np.uint32),
            np.full(len(lines), self._changed_ms(partition)),
            {partition: behind},
            [None] * len(lines),
            lines,
            self._headers(lines),
        )

    def _changed_ms(self, partition: int) -> int:
        """Return the time of lines that say none: their file's last change, as `tierdex load` takes it."""
        try:
            return self._filesystem.modified_ms(self._file_table.path_of(partition))
        except FileNotFoundError:  # gone since it was read
            return self._clock.now_ms()

    def _headers(self, lines: Sequence[bytes]) -> list[Headers | None]:
        if self._pattern is None:
            return [None] * len(lines)
        found = []
        for line in lines:
            match = self._pattern.search(line)
            groups = match.groupdict() if match else {}
            found.append([(name, text) for name, text in groups.items() if text is not None])
        return found  # type: ignore[return-value]


def _reading_from(file: OpenFile, position: int) -> _Reading:
    length = min(position, END_BYTES)
    return _Reading(position, file.read_at(0, length), file.read_at(position - length, length))


def _end_of(file: OpenFile) -> int:
    """Return the position behind the last line break."""
    end, wanted = file.size(), 1 << 12
    while end > 0:
        begin = max(0, end - wanted)
        found = file.read_at(begin, end - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end, wanted = begin, min(wanted * 8, _BLOCK_BYTES)
    return 0


def _line_begin(file: OpenFile, position: int) -> int:
    """Return the least begin of a line at or behind a position; that of a line being written its own."""
    is_begin, line = _line_at(file, position)
    return position if is_begin else position + line.find(b"\n") + 1


def _line_at(file: OpenFile, offset: int) -> tuple[bool, bytes]:
    """Return whether a line begins at an offset; return the bytes from there to a line break or the end."""
    begin = max(0, offset - 1)
    wanted = 1 << 12
    while True:
        data = file.read_at(begin, wanted)
        line = data[offset - begin :]
        if b"\n" in line or len(data) < wanted or wanted >= _LINE_BYTES_MAX:
            break
        wanted *= 8
    length = len(BYTE_ORDER_MARK)
    is_begin = (
        offset == 0
        or data.startswith(b"\n")
        or (offset == length and file.read_at(0, length) == BYTE_ORDER_MARK)
    )
    return is_begin, line


def _block(file: OpenFile, position: int) -> bytes:
    """Return what is from a position on: with a whole line, unless there is none, or it is too long."""
    wanted = _BLOCK_BYTES
    while True:
        data = file.read_at(position, wanted)
        if b"\n" in data or len(data) < wanted or wanted >= _LINE_BYTES_MAX:
            return data
        wanted = min(wanted * 8, _LINE_BYTES_MAX)
