"""Local copies of published files' tails: filter, directory, dictionaries, statistics.

One file a sidecar under `DATA/uploaded/`; where there is no data folder, or a read-only one, the
`RangeCache` has them if there is one, else memory. A cache: any of them may be missing or evicted,
and is then fetched again, whole, with one range read. A copy is believed only when its footer's
checksum is the one in the manifest row; its blocks are verified when first used. One that does not open is
fetched a second time: it may have been altered on its way. The byte budget drops the least recently used
first.

Open sidecars are mapped, not read: memory does not grow with what is published. `parts` has those of
sidecars that no lookup needs whole. Depends on range_cache, sidecar_parts, indexfile and lifecycle.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.index_service.readers.sidecar_parts import SidecarParts
from tierdex.indexfile.compacted.file import CompactedFile
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.paths import is_temporary, parse_sidecar_name
from tierdex.whole_file import temporary_beside

if TYPE_CHECKING:
    from collections.abc import Callable, Container
    from pathlib import Path

    from typing_extensions import Buffer

    from tierdex.filesystem import FileSystem
    from tierdex.index_service.readers.range_cache import RangeCache
    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.lifecycle.paths import DataPaths

logger = logging.getLogger(__name__)

_OPEN_LIMIT = 8192  # mapped sidecars; a process may have 65,530 mappings


class PublishedTail(Protocol):
    """The open tail of a file, of whichever kind."""

    @property
    def uuid(self) -> bytes: ...
    @property
    def footer_crc(self) -> int: ...


TailT = TypeVar("TailT", bound=PublishedTail)


class _Open(NamedTuple, Generic[TailT]):
    file: TailT
    size: int
    mapping: object | None  # that keeps it from taking memory of ours


class TailCache(Generic[TailT]):
    """Opens sidecars of one kind of file by manifest row. Safe to share between threads."""

    def __init__(
        self,
        filesystem: FileSystem,
        paths: DataPaths | None,
        budget_bytes: int,
        *,
        read_only: bool = False,
        memory_bytes: int = 256 << 20,
        ranges: RangeCache | None = None,
    ) -> None:
        """`read_only` uses the copies that are there; what it fetches is kept in `ranges`, else in memory."""
        self._filesystem = filesystem
        self._paths = paths
        self._read_only = read_only or paths is None
        self._budget = budget_bytes
        self._memory_budget = min(budget_bytes, memory_bytes)
        self._ranges = ranges
        # Parts of sidecars that are not here whole; what arrives damaged leaves the cache below, too.
        self.parts = SidecarParts(self._memory_budget, self.forget)
        self._lock = threading.Lock()
        self._keeping = threading.Lock()  # one writer of copies: a temporary name is used once
        self._fetching: dict[bytes, threading.Lock] = {}
        self._open: OrderedDict[bytes, _Open[TailT]] = (
            OrderedDict()
        )  # both: least recently used first
        self._on_disk: OrderedDict[bytes, tuple[Path, int]] = OrderedDict()
        self._bytes = 0
        self._fetches = 0
        if paths is not None:
            self._find_copies(paths)

    def _find_copies(self, paths: DataPaths) -> None:
        """Learn which copies are there; what the disk does not tell is fetched again."""
        folder = paths.folder(FileState.UPLOADED)
        try:
            names = self._filesystem.list_folder(folder)
        except OSError as error:
            logger.warning("sidecars not listed", extra={"error": str(error)})
            return
        for name in names:
            parsed = parse_sidecar_name(name)
            if parsed is not None:
                try:
                    size = self._filesystem.file_size(folder / name)
                except FileNotFoundError:
                    continue  # its writer has dropped it since the listing
                except OSError as error:
                    logger.warning("sidecar not used", extra={"path": name, "error": str(error)})
                    continue
                self._on_disk[parsed.uuid] = (folder / name, size)
                self._bytes += size
            elif is_temporary(name) and not self._read_only:
                self._remove(folder / name)

    def get(self, row: FileRow, node: str, fetch: Callable[[int, int], bytes]) -> TailT:
        """Return the open sidecar of `row`, fetching it with one `fetch(position, length)` if need be.

        Raises what `fetch` raises, and CorruptFileError when the store's bytes are not the row's.
        """
        with self._lock:
            found = self._used(row.uuid)
            if found is not None:
                return found.file
            lock = self._fetching.setdefault(row.uuid, threading.Lock())
        with lock:  # one fetch a sidecar, however many queries want it
            try:
                with self._lock:
                    if (found := self._used(row.uuid)) is not None:
                        return found.file
                opened = self._open_copy(row) or self._fetch(row, node, fetch)
                with self._lock:
                    self._open[row.uuid] = opened
                    self._used(row.uuid)
                    self._close_surplus()
                return opened.file
            finally:
                with self._lock:
                    self._fetching.pop(row.uuid, None)

    def _used(self, uuid: bytes) -> _Open[TailT] | None:
        """Return the open sidecar, and remember that it was wanted now. The caller holds the lock."""
        found = self._open.get(uuid)
        if found is not None:
            self._open.move_to_end(uuid)
            if uuid in self._on_disk:
                self._on_disk.move_to_end(uuid)
        return found

    def kept(self, row: FileRow) -> TailT | None:
        """Return the sidecar when it is here, open or as a copy; sends no request."""
        with self._lock:
            found = self._open.get(row.uuid)
        opened = found or self._open_copy(row)
        return None if opened is None else opened.file

    @property
    def fetches(self) -> int:
        """How many sidecars were not here when they were wanted."""
        return self._fetches

    def scrub(self, row: FileRow) -> bool:
        """Verify the sidecar if it is here; drop a damaged one, and say so: False. Sends no request."""
        tail = self.kept(row)
        if tail is None or not self._is_damaged(tail):
            return True
        self.forget(row.uuid)
        return False

    def opened(self, uuid: bytes) -> TailT | None:
        """Return a sidecar that is open now; without a lock, a request or a file being opened."""
        found = self._open.get(uuid)
        return None if found is None else found.file

    def _open_copy(self, row: FileRow) -> _Open[TailT] | None:
        """Open the local copy; one that is not the row's is removed and counts as absent."""
        with self._lock:
            known = self._on_disk.get(row.uuid)
        if known is None:
            return None
        path, size = known
        try:
            if size != row.bytes - row.sidecar_position:
                raise CorruptFileError(
                    path, f"{size} bytes where the manifest's row says otherwise"
                )
            with closing(self._filesystem.open(path)) as file:
                mapping = file.map(size, writable=False)
            return _Open(self._parse(row, mapping.array, str(path)), size, mapping)
        except (CorruptFileError, OSError) as error:
            logger.warning("sidecar dropped", extra={"path": str(path), "error": str(error)})
            self.forget(row.uuid)
            return None

    def _fetch(self, row: FileRow, node: str, fetch: Callable[[int, int], bytes]) -> _Open[TailT]:
        try:
            data, opened = self._fetch_once(row, fetch)
        except CorruptFileError as error:
            # It may have been altered in transit; an object damaged in the store stays damaged.
            logger.warning("sidecar fetched again", extra={"error": str(error)})
            self.forget(row.uuid)
            data, opened = self._fetch_once(row, fetch)
        self.parts.forget(row.uuid)
        if not self.keep(row, node, data):
            return opened
        return self._open_copy(row) or opened

    def _fetch_once(
        self, row: FileRow, fetch: Callable[[int, int], bytes]
    ) -> tuple[bytes | memoryview, _Open[TailT]]:
        size = row.bytes - row.sidecar_position
        with self._lock:
            self._fetches += 1
        data = self.read(row, row.sidecar_position, size, fetch)
        mapping = None if isinstance(data, bytes) else data
        tail = self._parse(row, np.frombuffer(data, np.uint8), row.object_key)
        return data, _Open(tail, size, mapping)

    def read(
        self, row: FileRow, position: int, length: int, fetch: Callable[[int, int], bytes]
    ) -> bytes | memoryview:
        """Return a range of the file's tail, from the `RangeCache` if there is one. Raises as `fetch`."""
        if self._ranges is None:
            return fetch(position, length)
        return self._ranges.get(row, position, length, lambda: fetch(position, length))

    def is_here(self, row: FileRow) -> bool:
        """Return whether a whole sidecar needs no request, for all that is known without opening it."""
        if row.uuid in self._open or row.uuid in self._on_disk:
            return True
        size = row.bytes - row.sidecar_position
        return self._ranges is not None and self._ranges.has(row, row.sidecar_position, size)

    def has_room(self, row: FileRow) -> bool:
        """Return whether one more sidecar is kept without another going."""
        size = row.bytes - row.sidecar_position
        if not self._read_only:
            return self._bytes + size <= self._budget
        if self._ranges is not None:
            return self._ranges.has_room(size)
        with self._lock:
            held = sum(opened.size for opened in self._open.values() if opened.mapping is None)
        return held + size <= self._memory_budget

    def keep(self, row: FileRow, node: str, data: Buffer) -> bool:
        """Store a copy; say whether there was room. A cache needs no sync: a torn copy is refused."""
        size = memoryview(data).nbytes
        if self._read_only or self._paths is None or size > self._budget:
            return False
        path = self._paths.sidecar(row.number, node, row.uuid)
        temporary = temporary_beside(path)
        with self._keeping:
            try:
                self._write(temporary, path, data)
            except OSError as error:
                logger.warning("sidecar not kept", extra={"path": str(path), "error": str(error)})
                return False
            with self._lock:
                _, before = self._on_disk.pop(row.uuid, (path, 0))
                self._on_disk[row.uuid] = (path, size)
                self._bytes += size - before
        self._evict()
        return True

    def _write(self, temporary: Path, path: Path, data: Buffer) -> None:
        """Write a copy under its name. A fresh file each time: an older one may be mapped."""
        self._remove(temporary)
        try:
            with closing(
                self._filesystem.open(temporary, writable=True, create=True, exclusive=True)
            ) as file:
                file.write_at(0, data)
            self._filesystem.rename(temporary, path)
        except OSError:
            with suppress(OSError):  # the first error is the one to tell
                self._remove(temporary)
            raise

    def forget(self, uuid: bytes) -> None:
        """Drop a sidecar: its file expired or was merged away, or the copy is damaged."""
        self.parts.forget(uuid)
        if self._ranges is not None:
            self._ranges.forget(uuid)
        with self._lock:
            self._open.pop(uuid, None)
            known = self._on_disk.pop(uuid, None)
            if known is not None:
                self._bytes -= known[1]
        if known is not None and not self._read_only:
            self._remove(known[0])

    def forget_others(self, listed: Container[bytes]) -> None:
        """Drop the copies of files that are not listed any more."""
        if self._read_only:
            return
        with self._lock:
            others = [uuid for uuid in self._on_disk if uuid not in listed]
        for uuid in others:
            self.forget(uuid)

    def close(self) -> None:
        """Release all sidecars; the copies stay for the next start."""
        with self._lock:
            self._open.clear()

    def _remove(self, path: Path) -> None:
        """Unlink a copy. One that stays is harmless: the next start counts it again and evicts it."""
        try:
            self._filesystem.unlink(path)
        except OSError as error:
            logger.warning("sidecar stays", extra={"path": str(path), "error": str(error)})

    def _evict(self) -> None:
        while True:
            with self._lock:
                if self._bytes <= self._budget or len(self._on_disk) <= 1:
                    return
                uuid = next(iter(self._on_disk))
            self.forget(uuid)

    def _close_surplus(self) -> None:
        """Close the least recently used beyond the limits. The caller holds the lock.

        A query that still uses one keeps its arrays, and with them the mapping, alive.
        """
        while len(self._open) > _OPEN_LIMIT:
            self._open.popitem(last=False)
        in_memory = [(u, opened.size) for u, opened in self._open.items() if opened.mapping is None]
        total = sum(size for _, size in in_memory)
        for uuid, size in in_memory[:-1]:  # the newest is in use
            if total <= self._memory_budget:
                break
            del self._open[uuid]
            total -= size

    def _open_tail(self, row: FileRow, tail: memoryview, name: str) -> TailT:
        """Open the bytes of a tail; errors name it `name`. Raises CorruptFileError."""
        raise NotImplementedError

    def _is_damaged(self, tail: TailT) -> bool:
        """Verify all of a tail that its opening did not. Raises nothing."""
        raise NotImplementedError

    def _parse(self, row: FileRow, tail: np.ndarray, name: str) -> TailT:
        file = self._open_tail(row, tail.data, name)
        if file.footer_crc != row.tail_crc or file.uuid != row.uuid:
            raise CorruptFileError(name, "the sidecar is not the one that the manifest's row names")
        return file


class SidecarCache(TailCache[CompactedFile]):
    """Opens sidecars of index files."""

    def _open_tail(self, row: FileRow, tail: memoryview, name: str) -> CompactedFile:
        return CompactedFile.from_sidecar(tail, position=row.sidecar_position, name=name)

    def _is_damaged(self, tail: CompactedFile) -> bool:
        return bool(tail.directory.damaged_blocks(tail.uuid) or tail.filter.damaged_partitions())
