"""A published log file read whole from the store, in order, for merges, verification and jobs.

::

    tail      one request: queues, directory, topics          kept in memory, whole
    pages     windows of some MiB, one request each           a window at a time in memory

Depends on errors, fileparts, lifecycle, logfile, log_row, log_file and the store.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from tierdex.errors import CorruptFileError
from tierdex.fileparts.layout import HEADER_BYTES
from tierdex.log_service.files.log_file import GroupedLogFile
from tierdex.log_service.files.log_row import LogRowMore
from tierdex.logfile.grouped.file import GroupedFile
from tierdex.logfile.header import decode_log_header
from tierdex.logfile.layout import Form

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.storage_layer.base import Store

WINDOW_BYTES: Final = 4 << 20


class ReadsInOrder:
    """Cuts reads that go on in a file out of windows, of which each is one fetch. For one thread."""

    def __init__(self, fetch: Callable[[int, int], Buffer], end: int, window_bytes: int) -> None:
        """`fetch(position, length)` gives bytes before `end`."""
        self._fetch = fetch
        self._end = end
        self._window_bytes = window_bytes
        self._position = 0
        self._window = memoryview(b"")

    def __call__(self, position: int, length: int) -> memoryview:
        """Return a range; raises what the fetch raises."""
        begin = position - self._position
        if begin < 0 or begin + length > len(self._window):
            wanted = max(length, min(self._window_bytes, self._end - position))
            self._window = memoryview(self._fetch(position, wanted))
            self._position, begin = position, 0
        return self._window[begin : begin + length]


def open_grouped_tail(store: Store, row: FileRow, window_bytes: int = 0) -> GroupedFile:
    """Open a published log file to read all of it; sends one request, for its tail.

    With `window_bytes` it is for one thread that reads page after page; else each read is a request.
    Raises what the store raises, and CorruptFileError when the object is not the row's.
    """
    position = row.sidecar_position
    read = partial(store.get, row.object_key)
    tail = read(position, row.bytes - position)
    pages = ReadsInOrder(read, position, window_bytes) if window_bytes else read
    file = GroupedFile(tail, pages, position=position, name=row.object_key)
    if file.uuid != row.uuid or file.footer_crc != row.tail_crc:
        raise CorruptFileError(row.object_key, "is not the file that the manifest lists")
    return file


def check_object(store: Store, row: FileRow) -> list[str]:
    """Return every broken rule of a published file, in words: all of its bytes, and its row beside them.

    Raises what the store raises.
    """
    try:
        file = open_grouped_tail(store, row, WINDOW_BYTES)
        head = store.get(row.object_key, 0, HEADER_BYTES)
        faults = file.check()
        if decode_log_header(head, row.object_key, form=Form.GROUPED) != file.header:
            faults.append("header and its copy differ")
        return faults + _row_faults(GroupedLogFile(file), row)
    except CorruptFileError as error:
        return [error.reason]


def _row_faults(reader: GroupedLogFile, row: FileRow) -> list[str]:
    """Compare what the manifest says of a file with what the file says."""
    dates = {"begin_ms": row.begin_ms, "sealed_at_ms": row.sealed_at_ms}
    known = LogRowMore.of(row)
    told = reader.make_row(row.object_key, dates, known.follows)
    faults = [
        f"the manifest says {name} {getattr(row, name)}, the object {getattr(told, name)}"
        for name in ("bytes", "item_count", "min_time", "max_time")
        if getattr(row, name) != getattr(told, name)
    ]
    more = LogRowMore.of(told)
    if known != more:
        faults.append(f"the manifest says {row.schema}, the object {told.schema}")
    return faults
