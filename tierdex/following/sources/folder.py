r"""A folder of growing files as a source: each file is a partition, each line a record.

::

    offset        0              81          171
                  | line ...... \n| line .... \n| a line that is being written
    record        | 0, 80 bytes   | 81, 89      not read before its \n is there

An offset is the byte at which the line begins. A partition's number is a hash of the file's path below the
folder, so it needs no register and is the same after everything else was lost; two files with one number
are refused. A file is known by its path: name files by date and let them be, or leave renamed ones out with
`files`. A file that became shorter is read anew.

With `pattern`, a regular expression with named groups, a line gives its groups as headers; a line that does
not match has none (it is the rest of another message, or of no interest).

Depends on errors, options, records, value_block, filesystem, numpy and xxhash.
"""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import xxhash

from tierdex.clock import Bell
from tierdex.errors import InvalidRequestError, NotFoundError, PermissionDeniedError
from tierdex.following.records import Bounds, Record, RecordBatch
from tierdex.following.value_block import ValueBlock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tierdex.clock import Clock
    from tierdex.filesystem import FileSystem, OpenFile
    from tierdex.following.records import Headers, Parts
    from tierdex.following.sources.options import Address

_BLOCK_BYTES: Final = 4 << 20
_LINE_BYTES_MAX: Final = 64 << 20
_NEWLINE, _RETURN = 10, 13
_POLL_S: Final = 0.1


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
        self._names: dict[int, str] = {}
        self._positions: dict[int, int] = {}
        self._turn = 0

    def identity(self) -> str:
        return str(self._folder)

    def partitions(self) -> Sequence[int]:
        if not self._filesystem.is_folder(self._folder):
            raise NotFoundError(f"there is no folder {self._folder}")
        names: dict[int, str] = {}
        for name in self._list(""):
            number = xxhash.xxh64_intdigest(name.encode("utf-8", "surrogateescape")) & 0x7FFFFFFF
            other = names.setdefault(number, name)
            if other != name:
                raise InvalidRequestError(
                    f"the files {other!r} and {name!r} have the same number {number}: rename one",
                    field="source",
                )
        self._names = names
        return sorted(names)

    def name_of(self, partition: int) -> str:
        return self._names.get(partition, str(partition))

    def place_of(self, partition: int, offset: int) -> str:
        return f"{self.name_of(partition)}, byte {offset}"

    def bounds(self, positions: Mapping[int, int | None]) -> Mapping[int, Bounds]:
        """The end is behind the last whole line."""
        if any(partition not in self._names for partition in positions):
            self.partitions()
        found = {}
        for partition in positions:
            try:
                found[partition] = Bounds(0, self._end_of(self._path(partition)))
            except FileNotFoundError:
                continue
        return found

    def open(self, positions: Mapping[int, int], wanted: Parts) -> None:
        if any(partition not in self._names for partition in positions):
            self.partitions()
        self._positions = {each: self._line_begin(each, at) for each, at in positions.items()}

    def read(self, max_records: int, timeout_s: float) -> RecordBatch | None:
        give_up = self._clock.monotonic() + timeout_s
        while True:
            order = sorted(self._positions)
            for partition in order[self._turn :] + order[: self._turn]:
                self._turn = (order.index(partition) + 1) % len(order)
                batch = self._read_file(partition, max_records)
                if batch is not None:
                    return batch
            if self._clock.monotonic() >= give_up:
                return None
            self._clock.wait(Bell(), _POLL_S)

    def fetch(self, partition: int, offset: int) -> Record | None:
        if partition not in self._names:
            self.partitions()
        if partition not in self._names:
            return None
        try:
            before, data = self._line_at(self._path(partition), offset)
        except FileNotFoundError:
            return None
        end = data.find(b"\n")
        if end < 0 or before not in (b"", b"\n"):
            return None
        line = data[:end].removesuffix(b"\r")
        return Record(partition, offset, 0, None, line, self._headers([line])[0] or ())

    def close(self) -> None:
        pass

    # -- files ---------------------------------------------------------------------------------------

    def _list(self, below: str) -> list[str]:
        names = []
        for name in self._filesystem.list_folder(self._folder / below):
            path = f"{below}{name}"
            if self._filesystem.is_folder(self._folder / path):
                names += self._list(f"{path}/")
            elif fnmatch.fnmatchcase(path, self._files) or fnmatch.fnmatchcase(name, self._files):
                names.append(path)
        return names

    def _path(self, partition: int) -> Path:
        name = self._names.get(partition)
        if name is None:
            raise FileNotFoundError(partition)
        return self._folder / name

    def _end_of(self, path: Path) -> int:
        """Return the position behind the last line break."""
        file = self._opened(path)
        try:
            end, wanted = file.size(), 1 << 12
            while end > 0:
                begin = max(0, end - wanted)
                found = file.read_at(begin, end - begin).rfind(b"\n")
                if found >= 0:
                    return begin + found + 1
                end, wanted = begin, min(wanted * 8, _BLOCK_BYTES)
            return 0
        finally:
            file.close()

    def _line_begin(self, partition: int, position: int) -> int:
        """Return the least begin of a line at or behind a position; that of a line being written its own."""
        try:
            before, line = self._line_at(self._path(partition), position)
        except FileNotFoundError:
            return position
        if before in (b"", b"\n"):
            return position
        return position + line.find(b"\n") + 1

    def _line_at(self, path: Path, offset: int) -> tuple[bytes, bytes]:
        """Return the byte before an offset, and the bytes from there to a line break or the end."""
        file = self._opened(path)
        try:
            begin = max(0, offset - 1)
            wanted = 1 << 12
            while True:
                data = file.read_at(begin, wanted)
                line = data[offset - begin :]
                if b"\n" in line or len(data) < wanted or wanted >= _LINE_BYTES_MAX:
                    return data[: offset - begin], line
                wanted *= 8
        finally:
            file.close()

    def _opened(self, path: Path) -> OpenFile:
        try:
            return self._filesystem.open(path)
        except PermissionError as error:
            raise PermissionDeniedError(f"{path} may not be read") from error

    def _read_file(self, partition: int, max_records: int) -> RecordBatch | None:
        position = self._positions[partition]
        try:
            data = self._block(self._path(partition), position)
        except FileNotFoundError:
            return None  # its partition goes at the next look
        batch = self._batch(partition, position, data, max_records)
        if batch is not None:
            self._positions.update(batch.positions)
        return batch

    def _block(self, path: Path, position: int) -> bytes:
        """Return what is from a position on: with a whole line, unless there is none, or it is too long."""
        file = self._opened(path)
        try:
            wanted = _BLOCK_BYTES
            while True:
                data = file.read_at(position, wanted)
                if b"\n" in data or len(data) < wanted or wanted >= _LINE_BYTES_MAX:
                    return data
                wanted = min(wanted * 8, _LINE_BYTES_MAX)
        finally:
            file.close()

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
            np.zeros(len(lines), np.int64),
            {partition: behind},
            [None] * len(lines),
            lines,
            self._headers(lines),
        )

    def _headers(self, lines: Sequence[bytes]) -> list[Headers | None]:
        if self._pattern is None:
            return [None] * len(lines)
        found = []
        for line in lines:
            match = self._pattern.search(line)
            groups = match.groupdict() if match else {}
            found.append([(name, text) for name, text in groups.items() if text is not None])
        return found  # type: ignore[return-value]
