"""A published file in a task: only the parts of its sidecar that the task needs.

A sidecar is mostly filter. A scan needs none of it, a lookup only the partitions of its own range
of hashes. So the small parts and the directory come with one request, and filter partitions by
ranges, when needed. The rest of the buffer stays zero, which costs no memory; a partition that was
not fetched would fail its checksum.

::

    [ small parts | directory | filter partitions ......................... | part table, footer ]
      ^ always                    ^ those of the lookup's hashes              ^ always

Files stay open in the worker process for later tasks.

Depends on indexfile, worker_process, the store and fileparts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts.filter import partitions_of
from tierdex.fileparts.footer import read_footer
from tierdex.fileparts.layout import Part
from tierdex.indexfile.compacted.file import CompactedFile
from tierdex.pipeline.jobs.worker_process import OpenFiles

if TYPE_CHECKING:
    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.pipeline.jobs.job_store import StoreLink
    from tierdex.storage_layer.base import Store

_WHOLE_BYTES: Final = 256 * 1024  # a sidecar up to this size is fetched whole, with one request
_END_BYTES: Final = 4096  # holds part table and footer


class RemoteFile:
    """One published file. `compacted` answers; pages are read from `store`. One thread at a time.

    Invariant: of the filter, exactly the partitions in `_fetched` are in the buffer.
    """

    def __init__(self, store: Store, row: FileRow, head: tuple[bytes, bytes] | None = None) -> None:
        """Fetch the head, or take (small parts and directory, end) that was fetched before.

        Raises what the store raises, CorruptFileError.
        """
        self.store = store
        self.row = row
        self.loaded_bytes = 0
        length = row.bytes - row.sidecar_position
        self._sidecar = np.zeros(length, np.uint8)
        whole = head is None and length <= _WHOLE_BYTES
        if whole:
            self._fill(
                row.sidecar_position, store.get(row.object_key, row.sidecar_position, length)
            )
        else:
            begin, end = head or fetch_head(store, row)
            self._fill(row.sidecar_position, begin)
            self._fill(row.bytes - len(end), end)
        self.compacted = CompactedFile.from_sidecar(
            self._sidecar.data, self.read, position=row.sidecar_position, name=row.object_key
        )
        if self.compacted.uuid != row.uuid or self.compacted.footer_crc != row.tail_crc:
            raise CorruptFileError(row.object_key, "is not the file that the manifest lists")
        partitions = self.compacted.filter.partitions
        self._fetched = np.full(len(partitions), whole)
        self._check_directory()

    def read(self, position: int, length: int) -> bytes:
        """Return a range of the object, with one request."""
        return self.store.get(self.row.object_key, position, length)

    @property
    def head(self) -> tuple[bytes, bytes]:
        """(small parts and directory, end): another process opens the file with them."""
        cut = self._filter_position - self.row.sidecar_position
        end = min(_END_BYTES, len(self._sidecar) - cut)
        return self._sidecar[:cut].tobytes(), self._sidecar[len(self._sidecar) - end :].tobytes()

    def need_filter(self, hashes: np.ndarray) -> None:
        """Fetch the filter partitions of sorted `hashes` (u8[n]). Raises what the store raises."""
        table = self.compacted.filter.partitions
        bits = self.compacted.filter.bits
        if not bits or not len(hashes):
            return
        wanted = np.zeros(len(table), bool)
        wanted[partitions_of(hashes, len(table))] = True
        wanted &= ~self._fetched & (table["key_count"] > 0)
        numbers = np.flatnonzero(wanted)
        if not len(numbers):
            return
        # Neighbours come with one request.
        for group in np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1):
            last = table[group[-1]]
            begin = int(table["position"][group[0]])
            slots = int(last["segment_length"]) * (int(last["segment_count"]) + 3)
            end = int(last["position"]) + slots * bits // 8
            position = self._filter_position + begin
            self._fill(position, self.read(position, end - begin))
            self._fetched[group] = True

    @property
    def _filter_position(self) -> int:
        return self.compacted.footer.part(Part.FILTER, self.row.object_key).position

    def _fill(self, position: int, data: bytes) -> None:
        start = position - self.row.sidecar_position
        self._sidecar[start : start + len(data)] = np.frombuffer(data, np.uint8)
        self.loaded_bytes += len(data)

    def _check_directory(self) -> None:
        """Verify the directory: it is searched by numpy here, not by verifying kernels."""
        damaged = self.compacted.directory.damaged_blocks(self.compacted.uuid)
        if damaged:
            raise CorruptFileError(
                self.row.object_key, f"checksum of directory block {damaged[0]} differs"
            )


def fetch_head(store: Store, row: FileRow) -> tuple[bytes, bytes]:
    """Return (small parts and directory, end) of a sidecar, with two requests."""
    begin = max(row.sidecar_position, row.bytes - _END_BYTES)
    end = store.get(row.object_key, begin, row.bytes - begin)

    def read_at(position: int, length: int) -> bytes:
        if position < begin:
            raise CorruptFileError(row.object_key, "the part table is implausibly long")
        return end[position - begin : position - begin + length]

    footer = read_footer(read_at, row.bytes, row.object_key, uuid=row.uuid)
    filter_position = footer.part(Part.FILTER, row.object_key).position
    length = filter_position - row.sidecar_position
    return store.get(row.object_key, row.sidecar_position, max(0, length)), end


_open_files: OpenFiles[RemoteFile] = OpenFiles(lambda file: file.loaded_bytes)


def open_remote(link: StoreLink, store: Store, row: FileRow) -> RemoteFile:
    """Return the file, from this process's cache when an earlier task left it there."""
    found = _open_files.get((link, row.object_key), lambda: RemoteFile(store, row))
    found.store = store  # the task's own view, which counts its requests
    return found
