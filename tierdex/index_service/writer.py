"""The one place that accepts entries: buffer, append, roll, and the levels of acknowledgement.

::

    put ------> PutBuffer --+
    put_batch --------------+--> unsealed file (append) --full or old--> rolled, sealed in background
                            |           |                        ^
    flush("os")  -----------+           |                        |
    flush("disk") ----------------------+-- msync         next.ready, made ahead of time

What makes each level true:

* received -- the entry is in this process's memory (the put buffer)
* os       -- its batch is in the page cache: items, links, slots, then the batch's checksum were
              stored into a shared mapping, so a killed process loses nothing
* disk     -- the rows were msync'ed and the folder's entry of the file was synced
* remote   -- its file is listed in the node's manifest

Lock order: `sync_lock` (shared with the compactor, which seals under it) before `_lock`. `_lock`
guards the unsealed file and is never held during a sync or anything that waits for the store: a put
waits for other puts and for a roll (one rename) only.

Depends on lifecycle, indexfile, settings, seams. Must not import compactor or storage_layer.
"""

from __future__ import annotations

import errno
import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from xxhash import xxh64_intdigest

from tierdex.errors import (
    BacklogFullError,
    ClosedError,
    InvalidRequestError,
    UnavailableError,
)
from tierdex.index_service.item_parts import item_count, parts_of_buffer, parts_of_columns
from tierdex.index_service.put_buffer import ENTRY_VALUES, BufferedPut, PutBuffer
from tierdex.indexfile.chained import ChainedFile, FileFullError
from tierdex.indexfile.hashing import topic_seed
from tierdex.indexfile.predecessor import NO_PREDECESSOR
from tierdex.indexfile.schema import MESSAGE_SCHEMA
from tierdex.lifecycle.file_handle import FileHandle, live_handle
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.paths import LOCAL_STATES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tierdex.clock import Clock
    from tierdex.filesystem import FileSystem
    from tierdex.ids import IdSource
    from tierdex.index_service.entry_columns import EntryColumns
    from tierdex.indexfile.columns import ItemColumns
    from tierdex.indexfile.schema import Schema
    from tierdex.lifecycle.file_number import NextNumber
    from tierdex.lifecycle.file_table import FileTable
    from tierdex.lifecycle.paths import DataPaths
    from tierdex.settings import Settings

logger = logging.getLogger(__name__)

_FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_SPLIT_FRACTION = 4  # a batch above a quarter of a file is split over files instead of wasting room
_BUDGET_CHECK_S = 0.25
_SEEDS_REMEMBERED = 65_536


class Writer:
    """Puts entries into the node's unsealed file.

    Thread safety: every method may be called from any thread.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        filesystem: FileSystem,
        clock: Clock,
        ids: IdSource,
        paths: DataPaths,
        table: FileTable,
        numbers: NextNumber,
        schema: Schema,
        sync_lock: threading.Lock,
        on_rolled: Callable[[], None],
        on_short_of_room: Callable[[], None],
    ) -> None:
        """Put into files of `paths`.

        `on_rolled` lets the compactor know of work; `on_short_of_room` asks for `prepare_next` soon.
        """
        self._settings = settings
        self._filesystem = filesystem
        self._clock = clock
        self._monotonic = clock.monotonic
        self._ids = ids
        self._paths = paths
        self._table = table
        self._numbers = numbers
        self._schema = schema
        self._on_rolled = on_rolled
        self._on_short_of_room = on_short_of_room
        self._is_asked_for_room = False
        self._lock = threading.RLock()
        self._sync_lock = sync_lock
        self._buffer = PutBuffer()
        self.received = self._buffer.values  # what `Index.put` appends to
        # Below so many values; 0: no more are accepted.
        self.received_limit = settings.put_buffer_entries * ENTRY_VALUES
        self._handle: FileHandle | None = None
        self._file: ChainedFile | None = None
        self._plain_file: ChainedFile | None = None  # the same, if it is one of messages
        self._seeds: dict[str, int] = {}
        self._opened_at = 0.0
        self._last_end = NO_PREDECESSOR  # where the batches of the last rolled file ended
        self._last_number: int | None = None
        self._ready: ChainedFile | None = None
        self._ready_lock = threading.Lock()  # after _lock; held while the next file is made
        self._folder_synced_for: set[int] = set()
        self._durable_ends: dict[int, Mapping[tuple[str, int], int]] = {}
        self._refusal: Exception | None = None
        self._unwritten: str | None = None
        self._loss: str | None = None
        self._budget_checked_at = float("-inf")
        self._budget_error: str | None = None

    # -- construction ----------------------------------------------------------------------------

    def resume(self, handle: FileHandle | None) -> None:
        """Go on with the newest unsealed file that recovery found, if there is one."""
        if handle is not None:
            age_s = max(0, self._clock.now_ms() - handle.begin_ms) / 1000  # also of earlier runs
            self._adopt(handle, handle.reader, min(age_s, self._settings.roll_after))

    @property
    def active(self) -> FileHandle | None:
        """Return the file that takes the next batch; it must not be sealed."""
        return self._handle

    # -- puts ------------------------------------------------------------------------------------

    def receive(self, entry: BufferedPut) -> None:
        """Take one checked entry at level `received`; an error means that it was not taken."""
        if self._refusal is not None:
            self.check_accepts()
        if len(self._buffer) >= self._settings.put_buffer_entries:
            self.flush_buffer()
        self._buffer.add(entry)

    def write(self, entry: BufferedPut) -> None:
        """Write one checked entry at level `os`; an error means that it was not taken."""
        with self._lock:
            if self._refusal is not None:
                self.check_accepts()
            if self.received:
                self.flush_buffer()  # put order is kept
            topic, key, timestamp, offset, size, queue_id = entry
            file, seed = self._plain_file, self._seeds.get(topic)
            if file is None or file.suspect or seed is None or type(key) is not str:
                self._write_slowly(entry)
                return
            if self._budget_error or self._monotonic() - self._budget_checked_at >= _BUDGET_CHECK_S:
                self._refuse_over_budget()
            key_hash = xxh64_intdigest(key.encode(), seed)
            try:
                file.append_message(key_hash, topic, timestamp, offset, size, queue_id)
            except FileFullError:
                self._write_slowly(entry)
            except OSError as error:
                raise _put_error(error) from error

    def _write_slowly(self, entry: BufferedPut) -> None:
        """Write one entry as any other batch, and remember the seed of its topic."""
        topic = entry[0]
        if topic not in self._seeds:
            if len(self._seeds) >= _SEEDS_REMEMBERED:
                self._seeds.clear()
            self._seeds[topic] = topic_seed(topic)
        self._append_parts(parts_of_buffer(list(entry), self._schema), self._schema)

    @property
    def has_buffered(self) -> bool:
        """Say whether entries wait in the put buffer."""
        return len(self._buffer) > 0

    def flush_buffer(self) -> None:
        """Bring every received entry to level `os`, also when no more are accepted.

        Raises BacklogFullError when the disk is full: the entries stay in the buffer and are
        written by the first flush after space returned.
        """
        with self._lock:
            limit = self._settings.put_buffer_entries
            while values := self._buffer.peek(limit):
                parts = parts_of_buffer(values, self._schema)
                entries = len(values) // ENTRY_VALUES
                if entries > 1 and item_count(parts) > self._settings.item_capacity:
                    limit = entries // 2  # many keys each: no file takes them in one batch
                    continue
                self._append_parts(parts, self._schema)
                self._buffer.drop(entries)

    def show_buffered(self) -> None:
        """Write what was received before a query; what cannot be written is named by `unwritten`."""
        try:
            self.flush_buffer()
        except UnavailableError as error:
            self._unwritten = str(error)
        else:
            self._unwritten = None

    def look_again(self) -> None:
        """Let the next put find out anew whether there is room: the compactor made some."""
        self._budget_checked_at = float("-inf")

    def unwritten(self) -> str | None:
        """Return why received entries could not be shown to the last query, None when they were."""
        return self._unwritten if self.has_buffered else None

    def append(self, columns: EntryColumns, schema: Schema) -> None:
        """Write a checked batch at level `os`: all of it, or an error and (usually) none.

        A batch too large for one file is split in order; when the disk fills up in between, an
        error is raised and a prefix of the batch, never acknowledged, may stay.
        """
        with self._lock:
            self.check_accepts()
            self.flush_buffer()  # put order is kept
            first = 0
            while first < columns.count:
                count = self._rows_for_next_append(columns, columns.count - first, schema)
                self._append_parts(parts_of_columns(columns, first, count), schema)
                first += count

    def _rows_for_next_append(self, columns: EntryColumns, rows: int, schema: Schema) -> int:
        """Return how many of `rows` go into the unsealed file, after rolling when that is better."""
        items_per_row = (columns.keys is not None) + (columns.message_ids is not None)
        if self._file is None or not self._fits(schema):
            return min(rows, max(1, self._settings.item_capacity // items_per_row))
        room = self._file.room() // items_per_row
        if rows <= room:
            return rows
        if room == 0 or rows * items_per_row * _SPLIT_FRACTION <= self._file.item_capacity:
            self._roll_locked("full", schema)
            room = self._settings.item_capacity // items_per_row
        return min(rows, max(1, room))

    def _append_parts(self, parts: list[ItemColumns], schema: Schema) -> None:
        self._refuse_over_budget()
        if self._file is None or not self._fits(schema) or self._file.room() < item_count(parts):
            self._roll_locked("full", schema)
        assert self._file is not None
        try:
            self._file.append(parts)
        except FileFullError:
            self._roll_locked("full", schema)
            self._append_to_fresh_file(parts)
        except OSError as error:
            raise _put_error(error) from error
        if not self._is_asked_for_room and self._lacks_room():
            self._is_asked_for_room = True
            self._on_short_of_room()

    def _lacks_room(self) -> bool:
        """Say whether `prepare_next` has something to do that puts would else wait for."""
        file = self._file
        if file is None:
            return False
        return file.is_short_of_room or (self._ready is None and _is_half_full(file))

    def _append_to_fresh_file(self, parts: list[ItemColumns]) -> None:
        assert self._file is not None
        try:
            self._file.append(parts)
        except FileFullError as error:
            raise InvalidRequestError(
                f"{item_count(parts)} items in one entry do not fit into a file of "
                f"{self._settings.item_capacity} items; raise `item_capacity`",
                field="keys",
            ) from error
        except OSError as error:
            raise _put_error(error) from error

    def _fits(self, schema: Schema) -> bool:
        assert self._file is not None
        return self._file.schema == schema and not self._file.suspect

    # -- refusal ---------------------------------------------------------------------------------

    def refuse(self, error: Exception) -> None:
        """Refuse every further put with `error` (fenced)."""
        if not isinstance(self._refusal, ClosedError):
            self._refusal = error
            self.received_limit = 0

    def check_accepts(self) -> None:
        """Raise FencedError or ClosedError when no more puts are accepted."""
        refusal = self._refusal
        if refusal is not None:
            raise type(refusal)(*refusal.args)  # a new one each time: tracebacks add up

    def _refuse_over_budget(self) -> None:
        if self._refusal is not None and isinstance(self._refusal, ClosedError):
            return  # closing: what was received is written if the disk takes it
        now = self._monotonic()
        if now - self._budget_checked_at >= _BUDGET_CHECK_S:
            self._budget_checked_at = now
            self._budget_error = self._over_budget()
        if self._budget_error is not None:
            raise BacklogFullError(self._budget_error, retry_after_s=5.0)

    def _over_budget(self) -> str | None:
        with self._table.snapshot() as snapshot:
            waiting = sum(handle.bytes for handle in snapshot.files if handle.state in LOCAL_STATES)
        if waiting > self._settings.disk_budget_bytes:
            return (
                f"{waiting} bytes of index files wait for the store, above `disk_budget_bytes` "
                f"({self._settings.disk_budget_bytes}); mend the store or raise the budget"
            )
        free = self._filesystem.free_bytes(self._paths.root)
        if free < self._settings.disk_reserve_bytes:
            return (
                f"{free} bytes are free on the disk of {self._paths.root}, below "
                f"`disk_reserve_bytes` ({self._settings.disk_reserve_bytes}); free some space"
            )
        return None

    # -- roll ------------------------------------------------------------------------------------

    def roll(self) -> bool:
        """Close the unsealed file for puts, when it holds anything; say whether it did."""
        with self._lock:
            self.flush_buffer()
            if self._file is None or self._file.item_count == 0:
                return False
            self._retire("asked for")
            return True

    def roll_when_old(self) -> bool:
        """Roll a file older than `roll_after` that holds anything."""
        with self._lock:
            if self._file is None or self._file.item_count == 0:
                return False
            if self._clock.monotonic() - self._opened_at < self._settings.roll_after:
                return False
            self._retire("old")
            return True

    def _roll_locked(self, reason: str, schema: Schema) -> None:
        self._retire(reason)
        with self._ready_lock:  # until the rename: nobody else may make a file of that name
            self._open_next(self._take_ready(schema))

    def _open_next(self, file: ChainedFile) -> None:
        """Let the ready-made file take the puts from here on."""
        number = self._numbers.take()
        while self._table.get(number, self._settings.node) is not None:
            number = self._numbers.take()  # an owner that took over published under that number
        path = self._paths.path_of(FileState.UNSEALED, number)
        self._forget_sealed()
        # Durable before: the file's header (synced when it was made), the name of the file before.
        # Visible after: an empty unsealed file, which says where the one before it ended. Its own
        # name is made durable by the first flush("disk"), the next roll, or the seal.
        try:
            file.follow(self._last_end)
            if self._last_number is not None:
                self._make_name_durable(self._last_number)
            self._filesystem.rename(self._paths.ready, path)
        except OSError as error:
            self._ready = file
            raise _put_error(error) from error
        handle = live_handle(
            number=number,
            node=self._settings.node,
            uuid=file.uuid,
            path=path,
            reader=file,
            slot_count=file.slot_count,
            begin_ms=file.created_ms,
        )
        self._adopt(handle, file)  # before it is seen: the compactor seals what is not active
        self._table.insert(handle)

    def _make_name_durable(self, number: int) -> None:
        """Sync the folder's entry of an unsealed file. Raises OSError."""
        if number not in self._folder_synced_for:
            self._filesystem.sync_folder(self._paths.folder(FileState.UNSEALED))
            self._folder_synced_for.add(number)

    def _forget_sealed(self) -> None:
        """Forget what was remembered of files that are sealed by now."""
        for number in list(self._folder_synced_for | self._durable_ends.keys()):
            handle = self._table.get(number, self._settings.node)
            if handle is None or handle.state is not FileState.UNSEALED:
                self._folder_synced_for.discard(number)
                self._durable_ends.pop(number, None)

    def _adopt(self, handle: FileHandle, file: ChainedFile, age_s: float = 0.0) -> None:
        self._handle, self._file = handle, file
        self._plain_file = file if file.schema == MESSAGE_SCHEMA else None
        self._opened_at = self._clock.monotonic() - age_s

    def _retire(self, reason: str) -> None:
        """Let go of the unsealed file: from here on the compactor may seal it."""
        if self._file is None:
            return
        self._last_end = self._file.end_of_batches
        handle, self._handle, self._file = self._handle, None, None
        self._plain_file = None
        assert handle is not None
        self._last_number = handle.number
        logger.info("roll", extra={"file_id": handle.file_id, "reason": reason})
        self._on_rolled()

    def _take_ready(self, schema: Schema) -> ChainedFile:
        """Return the file that was made ahead of time, or make one now. Holding `_ready_lock`."""
        ready, self._ready = self._ready, None
        if ready is not None and ready.schema == schema:
            return ready
        if ready is not None:
            ready.close()
        return self._make_ready(schema)

    def _make_ready(self, schema: Schema) -> ChainedFile:
        path = self._paths.ready
        try:
            self._filesystem.unlink(path)
            return ChainedFile.create(
                self._filesystem,
                path,
                uuid=self._ids.uuid(),
                schema=schema,
                slot_count=self._settings.slot_count,
                item_capacity=self._settings.item_capacity,
                created_ms=self._clock.now_ms(),
            )
        except OSError as error:
            raise _put_error(error) from error

    def prepare_next(self) -> None:
        """Reserve blocks and make the next file ahead of time, so that no put waits for the disk.

        Puts go on meanwhile: `_lock` is not held while the disk works, nor is `sync_lock` asked for,
        under which a seal may sync a whole file.
        """
        self._is_asked_for_room = False
        file = self._file
        if file is not None and self._refusal is None:
            with suppress(OSError):  # a full disk: told to the put that finds no block
                file.reserve_ahead()
        with self._lock:
            file, handle = self._file, self._handle
            if self._ready is not None or file is None or self._refusal is not None:
                return
            half_full = _is_half_full(file)
            half_old = (self._clock.monotonic() - self._opened_at) * 2 >= self._settings.roll_after
        if not half_full and not half_old:
            return
        assert handle is not None
        with self._ready_lock:
            if self._ready is None and self._refusal is None:
                self._ready = self._make_ready(file.schema)
            ready = self._ready
        if ready is not None:  # not under the lock: a roll may take it meanwhile
            with suppress(OSError):
                ready.reserve_ahead(file.bytes_used // 4)
        try:
            self._make_name_durable(handle.number)  # the next roll wants it so
        except OSError as error:
            raise _put_error(error) from error

    # -- durability ------------------------------------------------------------------------------

    def flush_disk(self) -> None:
        """Bring everything received to level `disk`; callers share one sync (group commit).

        Raises UnavailableError after a failed sync: the file takes no more batches, what it holds
        beyond the last good sync is acknowledged only once the compactor has re-read and rewritten
        it. A failed sync is never tried again into a success: the kernel may have dropped the pages.
        """
        self.flush_buffer()
        self._tell_loss()
        self._sync_unsealed()

    def note_loss(self, what: str) -> None:
        """Remember that the device lost entries that were put and not yet acknowledged at `disk`."""
        self._loss = what

    def _tell_loss(self) -> None:
        loss, self._loss = self._loss, None
        if loss is not None:
            raise UnavailableError(
                f"{loss}; put again what was not acknowledged at `disk`, from the watermark on"
            )

    def _sync_unsealed(self) -> None:
        with self._table.snapshot() as snapshot:
            unsealed = snapshot.by_state(FileState.UNSEALED)[::-1]  # oldest first: put order
            pending = [(handle, handle.reader.published) for handle in unsealed]
            for handle, published in pending:
                with self._sync_lock:
                    self._sync_one(handle, published)

    def _sync_one(self, handle: FileHandle, published: int) -> None:
        newest = self._table.get(*handle.key)
        if newest is None and published:
            raise UnavailableError(
                f"{handle.file_id} left before it was synced: quarantined, see `missing` of answers"
            )
        if newest is None or newest.state is not FileState.UNSEALED:
            return  # sealed meanwhile: a seal syncs first
        file: ChainedFile = handle.reader
        if file.suspect:
            raise UnavailableError(
                f"a sync of {handle.path} failed; it is being re-read and rewritten: try again",
                retry_after_s=2.0,
            )
        if file.synced >= published and handle.number in self._folder_synced_for:
            return  # another caller's sync covered us
        ends = file.end_offsets()  # before the sync: what it covers, or less
        try:
            file.sync()
            self._make_name_durable(handle.number)
            self._durable_ends[handle.number] = ends
        except OSError as error:
            file.suspect = True
            logger.error("sync failed", extra={"file_id": handle.file_id, "error": str(error)})
            self._retire_suspect(handle)
            raise UnavailableError(
                f"syncing {handle.path} failed ({error}); nothing more is acknowledged in that "
                "file, it is re-read and rewritten: try again",
                retry_after_s=2.0,
            ) from error

    def durable_ends(self, number: int) -> Mapping[tuple[str, int], int]:
        """Return the end offsets of a still unsealed file that its last sync covered."""
        return self._durable_ends.get(number, {})

    def _retire_suspect(self, handle: FileHandle) -> None:
        with self._lock:
            if self._handle is handle:
                self._retire("a sync failed")

    # -- end -------------------------------------------------------------------------------------

    def close(self) -> None:
        """Refuse puts, then write and sync what was received. Raises what the flush raises."""
        with self._lock:
            if isinstance(self._refusal, ClosedError):
                return
            self._refusal = ClosedError("the index was closed")
            self.received_limit = 0
        try:
            # A fenced owner's too: its folder keeps them, and `tierdex adopt` publishes them.
            self.flush_disk()
        finally:
            with self._lock, self._ready_lock:
                if self._ready is not None:
                    self._ready.close()
                    self._filesystem.unlink(self._paths.ready)
                    self._ready = None


def _is_half_full(file: ChainedFile) -> bool:
    return file.item_count * 2 >= file.item_capacity


def _put_error(error: OSError) -> Exception:
    """Say what a failed system call means for the caller of a put: nothing was applied."""
    if error.errno in _FULL_DISK:
        return BacklogFullError(f"the disk is full: {error}; free some space", retry_after_s=5.0)
    return UnavailableError(f"the index file cannot be written: {error}", retry_after_s=5.0)
