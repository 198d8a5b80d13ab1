"""Byte ranges of published files' tails on disk, for readers that have no data folder.

::

    CACHE/<tail crc>-<uuid>-<position>-<length>     header of 128 bytes, then the bytes of the range

A published file never changes: an entry is never stale, and may be missing at any time. So nothing is
synced. An entry is written under a temporary name and renamed. What a crash tore, and what is another
file's, does not verify, and is dropped and fetched again.

Processes may share a folder: an entry is whole under its name, one that another process evicted is fetched
again, and a process that is over the budget counts again what is there. A disk that fails costs speed and no
answer.

Nothing else is kept: any number of such readers behind a balancer answer alike, and a cursor holds at each.

Depends on fileparts and errors; every file operation goes through the seams.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts.checksums import checksum

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.seams import Seams

logger = logging.getLogger(__name__)

_HEADER_BYTES: Final = 128  # a line of text: version, key, checksum of the bytes
_MAPPED_BYTES: Final = 1 << 20  # longer ranges are mapped: pages of the disk, not memory of ours
_LEFTOVER_AGE_MS: Final = 3_600_000  # a temporary file of that age has lost its writer
_TEMPORARY: Final = ".tmp-"
_KEPT_SHARE: Final = 0.9  # of the budget, after an eviction
_COUNT_SHARE: Final = 16  # after this part of the budget was written, others' entries are counted


class _Key(NamedTuple):
    """What an entry holds: a range of the object with this uuid and footer."""

    uuid: bytes
    tail_crc: int
    position: int
    length: int

    @property
    def name(self) -> str:
        return f"{self.tail_crc:08x}-{self.uuid.hex()}-{self.position}-{self.length}"

    @classmethod
    def parse(cls, name: str) -> _Key | None:
        """Return the key of an entry's name; None for a file that is none of ours."""
        crc, _, rest = name.partition("-")
        uuid, _, numbers = rest.partition("-")
        position, _, length = numbers.partition("-")
        try:
            key = cls(bytes.fromhex(uuid), int(crc, 16), int(position), int(length))
        except ValueError:
            return None
        return key if key.name == name else None


class RangeCache:
    """Keeps ranges below a byte budget, the least recently used go first. Safe to share between threads."""

    def __init__(self, folder: Path, budget_bytes: int, seams: Seams) -> None:
        """Find the entries that are there. Raises OSError when the folder cannot be made or listed."""
        self._folder = folder
        self._budget = budget_bytes
        self._seams = seams
        self._filesystem = seams.filesystem
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, int] = (
            OrderedDict()
        )  # name: bytes; least recently used first
        self._bytes = 0
        self._uncounted = 0  # written since the folder was listed
        self._filesystem.make_folder(folder)
        self._count()

    def get(
        self, row: FileRow, position: int, length: int, fetch: Callable[[], bytes]
    ) -> bytes | memoryview:
        """Return a range of the row's object: bytes, or a view of the mapped entry if it is long.

        Raises what `fetch` raises.
        """
        key = _Key(row.uuid, row.tail_crc, position, length)
        found = self._read(key)
        if found is not None:
            return found
        data = fetch()
        if not self._write(key, data):
            return data
        mapped = self._read(key) if length >= _MAPPED_BYTES else None
        return data if mapped is None else mapped

    def has(self, row: FileRow, position: int, length: int) -> bool:
        """Return whether a range is here; it may turn out to be damaged, or be evicted by then."""
        return _Key(row.uuid, row.tail_crc, position, length).name in self._entries

    def has_room(self, length: int) -> bool:
        """Return whether a range would be kept without another going."""
        return self._bytes + length + _HEADER_BYTES <= self._budget

    def forget(self, uuid: bytes) -> None:
        """Drop all ranges of a file: it is gone, or what was read here did not verify."""
        part = f"-{uuid.hex()}-"
        with self._lock:
            names = [name for name in self._entries if part in name]
        for name in names:
            self._drop(name)

    # -- entries -----------------------------------------------------------------------------------

    def _read(self, key: _Key) -> bytes | memoryview | None:
        path, name = self._folder / key.name, key.name
        try:
            whole: bytes | memoryview
            with closing(self._filesystem.open(path)) as file:
                size = _HEADER_BYTES + key.length
                if file.size() != size:
                    raise CorruptFileError(path, "is cut, or holds another range")
                if key.length >= _MAPPED_BYTES:
                    whole = file.map(size, writable=False).array.data
                else:
                    whole = file.read_at(0, size)
            data = whole[_HEADER_BYTES:]
            if whole[:_HEADER_BYTES] != _header_of(key, data):
                raise CorruptFileError(path, "does not verify")
        except FileNotFoundError:
            self._leave(name)  # never here, or another process evicted it
            return None
        except (CorruptFileError, OSError) as error:
            extra = {"path": str(path), "error": str(error)}
            logger.warning("cached range fetched again", extra=extra)
            self._drop(name)
            return None
        with self._lock:
            if name not in self._entries:  # of another process
                self._bytes += size
            self._entries[name] = size
            self._entries.move_to_end(name)
        return data

    def _write(self, key: _Key, data: bytes) -> bool:
        """Keep a range; say whether it is there now."""
        size = _HEADER_BYTES + len(data)
        if size > self._budget or len(data) != key.length:
            return False
        temporary = self._folder / f"{_TEMPORARY}{self._seams.ids.uuid().hex()}"
        try:
            with closing(
                self._filesystem.open(temporary, writable=True, create=True, exclusive=True)
            ) as file:
                file.write_at(0, _header_of(key, data))
                file.write_at(_HEADER_BYTES, data)
            # Visible from here on, to every process; after a crash it is whole, or does not verify.
            self._filesystem.rename(temporary, self._folder / key.name)
        except OSError as error:
            logger.warning("range not kept", extra={"path": key.name, "error": str(error)})
            with suppress(OSError):  # the first error is the one to tell
                self._filesystem.unlink(temporary)
            return False
        with self._lock:
            self._bytes += size - self._entries.pop(key.name, 0)
            self._entries[key.name] = size
            self._uncounted += size
            is_due = max(self._bytes - self._budget, self._uncounted - self._budget // _COUNT_SHARE)
        if is_due > 0:
            self._evict(key.name)
        return True

    def _evict(self, newest: str) -> None:
        """Learn what other processes keep; over the budget, drop the least recently used for some room."""
        self._count()
        if self._bytes <= self._budget:
            return
        for name in list(self._entries):
            if self._bytes <= _KEPT_SHARE * self._budget:
                return
            if name != newest:
                self._drop(name)

    def _count(self) -> None:
        """Learn what is in the folder: entries that are new to us count as the oldest."""
        sizes: dict[str, int] = {}
        for name in self._filesystem.list_folder(self._folder):
            path = self._folder / name
            with suppress(OSError):  # another process has dropped it since the listing
                if _Key.parse(name) is not None:
                    sizes[name] = self._filesystem.file_size(path)
                elif name.startswith(_TEMPORARY):
                    age_ms = self._seams.clock.now_ms() - self._filesystem.modified_ms(path)
                    if age_ms > _LEFTOVER_AGE_MS:
                        self._filesystem.unlink(path)
        with self._lock:
            kept = {name: sizes.pop(name) for name in self._entries if name in sizes}
            self._entries = OrderedDict(sizes | kept)
            self._bytes, self._uncounted = sum(self._entries.values()), 0

    def _drop(self, name: str) -> None:
        self._leave(name)
        try:
            self._filesystem.unlink(self._folder / name)
        except OSError as error:  # the next count finds it again
            logger.warning("range stays", extra={"path": name, "error": str(error)})

    def _leave(self, name: str) -> None:
        with self._lock:
            self._bytes -= self._entries.pop(name, 0)


def _header_of(key: _Key, data: bytes | memoryview) -> bytes:
    crc = checksum(np.frombuffer(data, np.uint8), 0)
    return f"tierdex range 1 {key.name} {crc:08x}\n".encode().ljust(_HEADER_BYTES)
