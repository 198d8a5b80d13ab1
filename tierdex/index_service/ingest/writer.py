"""Accepts all entries: buffer, append, roll, and the levels of acknowledgement.

::

    put ---> DirectPuts ---> rows that wait --+
    put_batch -------------------------------+--> ActiveFile --full or old--> rolled, sealed in background
             DirectPuts ---> message by message --^   |                  ^
    flush("os")  -----------+                        |                  |
    flush("disk") -------------------------- GroupCommit: msync       NextFile, made ahead of time

What makes each level true:

* received -- the entry is in this process's memory (the put buffer)
* os       -- its batch is in the page cache: items, links, slots, then the batch's checksum were
              stored into a shared mapping, so a killed process loses nothing
* disk     -- the rows were msync'ed and the folder's entry of the file was synced
* remote   -- its file is listed in the node's manifest

Lock order: `sync_lock` (shared with the compactor, which seals under it) before `_lock`, `_lock` before
the next file's. `_lock` guards the active file and is never held during a sync or anything that waits
for the store: a put waits for other puts and for a roll (one rename) only. Most single puts take no
lock at all (see DirectPuts): a thread that touches the active file shuts direct puts first.

Depends on disk_errors, health, indexfile and the rest of index_service. Must not import
compactor or storage_layer.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_right
from typing import TYPE_CHECKING

from tierdex.disk_errors import disk_error
from tierdex.errors import ClosedError, InvalidRequestError, UnavailableError
from tierdex.index_service.health import CLOSED, FENCED, NO_FILE, NotReady
from tierdex.index_service.ingest.active_file import ActiveFile
from tierdex.index_service.ingest.direct_puts import DirectPuts
from tierdex.index_service.ingest.disk_budget import DiskBudget, DiskRoom
from tierdex.index_service.ingest.group_commit import GroupCommit
from tierdex.index_service.ingest.item_columns import item_count, items_of_columns, sliced
from tierdex.index_service.ingest.next_file import NextFile, reserve_ahead
from tierdex.indexfile.chained.file import FileFullError
from tierdex.indexfile.columns import ItemRows
from tierdex.indexfile.schema import SEQUENCE_SCHEMA, message_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tierdex.index_service.ingest.put_folder import PutFolder
    from tierdex.index_service.requests.put import CheckedPut
    from tierdex.index_service.requests.put_columns import EntryColumns
    from tierdex.indexfile.chained.file import ChainedFile
    from tierdex.indexfile.columns import ItemColumns
    from tierdex.indexfile.schema import Schema
    from tierdex.indexfile.source import Source
    from tierdex.lifecycle.table.file_handle import FileHandle

logger = logging.getLogger(__name__)

_SPLIT_FRACTION = 4  # a batch above a quarter of a file is split over files instead of wasting room


class Writer:
    """Puts entries into the node's unsealed file.

    Thread safety: every method may be called from any thread.
    """

    def __init__(
        self,
        folder: PutFolder,
        *,
        on_rolled: Callable[[], None],
        on_short_of_room: Callable[[], None],
        is_led: bool = False,
    ) -> None:
        """Put into files of `folder`.

        `on_rolled` lets the compactor know of work; `on_short_of_room` asks for `prepare_next` soon.
        With `is_led` only a message log writes the index, through `append_led`.
        """
        self._is_led = is_led
        settings = folder.settings
        self._item_capacity = settings.item_capacity
        # Of single puts, of a log's messages, and of a batch that names no other.
        self._schema = SEQUENCE_SCHEMA if is_led else message_schema(settings.offsets)
        self._on_short_of_room = on_short_of_room
        self._is_asked_for_room = False
        self._lock = threading.RLock()
        # What `Index.put` goes through.
        self.puts = DirectPuts(
            settings.put_buffer_entries, settings.item_capacity, settings.max_key_bytes
        )
        self._budget = DiskBudget(folder)
        self._next_file = NextFile(folder)
        self.reuse = self._next_file.reuse  # what the compactor does with a compacted file's blocks
        self._disk = GroupCommit(folder, self._retire_suspect)
        self.note_loss = self._disk.note_loss
        self.durable_ends = self._disk.durable_ends
        self._active = ActiveFile(
            folder,
            next_file=self._next_file,
            disk=self._disk,
            puts=self.puts,
            on_rolled=on_rolled,
        )
        self._refusal: Exception | None = None
        self._unwritten: str | None = None

    def resume(self, handle: FileHandle | None) -> None:
        """Continue the newest unsealed file that recovery found, if there is one, at level `disk`."""
        if handle is None:
            return
        self._active.resume(handle)
        # Durable before: what earlier processes synced, which is not known. Recovery has
        # written every row over itself. Visible after: the watermark `disk` at all that is found.
        try:
            self._disk.sync()
        except UnavailableError as error:
            # As while running: the file is suspect and written anew, and until then each flush raises.
            # The index opens all the same, to do that and to answer.
            logger.warning("`disk` is not known", extra={"error": str(error)})

    @property
    def active(self) -> FileHandle | None:
        """Return the file that takes the next batch; it must not be sealed."""
        return self._active.handle

    # -- puts ------------------------------------------------------------------------------------

    def take(self, entry: CheckedPut, level: str) -> None:
        """Make room for one checked entry, and take it; an error means that it was not taken.

        What no room can be made for (a new topic in the file, more names than wait at once) is written.
        """
        with self._lock:
            self._admit(entry.topic)
            if self.puts.put(entry, level):
                return
            self._flush_locked()  # put order is kept
            if level == "os" or not self.puts.put(entry, level):
                self._append_locked([self.puts.items_of(entry)], self._schema)

    def _admit(self, topic: str) -> None:
        self._refuse_led()
        self.check_accepts()
        while not self.puts.learn(topic):
            self._flush_locked()
            self.puts.forget_topics()

    @property
    def has_buffered(self) -> bool:
        """Return whether entries wait in the put buffer."""
        return self.puts.waits[0] != 0

    def flush_buffer(self) -> None:
        """Bring every received entry to level `os`, also when no more are accepted.

        Raises BacklogFullError when the disk is full: the entries stay in the buffer and are
        written by the first flush after space returned.
        """
        with self._lock:
            self._flush_locked()

    def _flush_locked(self) -> None:
        rows = self.puts.gathered()
        if rows is not None:
            self._append_locked([rows], self._schema)
            self.puts.drop(rows.row_count)

    def show_buffered(self) -> None:
        """Write what was received before a query; what cannot be written is named by `unwritten`."""
        try:
            self.flush_buffer()
        except UnavailableError as error:
            self._unwritten = str(error)
        else:
            self._unwritten = None

    def unwritten(self) -> str | None:
        """Return why received entries could not be shown to the last query, None when they were."""
        if self._unwritten is None:
            return None
        return self._unwritten if self.has_buffered else None

    def append(self, columns: EntryColumns, schema: Schema) -> None:
        """Write a checked batch at level `os`: all of it, or an error and (usually) none.

        A batch too large for one file is split in order; when the disk fills up in between, an
        error is raised and a prefix of the batch, never acknowledged, may stay.
        """
        self._refuse_led()
        with self._lock:
            self.check_accepts()
            self._flush_locked()  # put order is kept
            before = columns.items_before()
            first = 0
            while first < columns.count:
                least, items = (
                    int(before[to] - before[first]) for to in (first + 1, columns.count)
                )
                room = self._room_for_next_append(items, schema, least=least)
                count = bisect_right(before, before[first] + room) - 1 - first
                self._append_locked(items_of_columns(columns, first, count), schema)
                first += count

    def append_led(self, items: Sequence[ItemColumns], source: Source) -> None:
        """Write the items of messages that a log has, up to `source`, at level `os`.

        Raises as a put does; then a prefix may be there, which the next attempt writes again.
        """
        with self._lock:
            self.check_accepts()
            count = item_count(items)
            if self._room_for_next_append(count, self._schema) == count:
                self._append_locked(items, self._schema, source)
                return
            partial = source._replace(partial=True)
            for each in items:
                first = 0
                while first < each.row_count:
                    left = each.row_count - first
                    count = self._room_for_next_append(left, self._schema)
                    is_last = count == left and each is items[-1]
                    self._append_locked(
                        [sliced(each, first, count)], self._schema, source if is_last else partial
                    )
                    first += count

    def _refuse_led(self) -> None:
        if self._is_led:
            raise InvalidRequestError(
                "a message log writes this index: append the message to the log (POST /v1/messages)",
                field="data",
            )

    def _room_for_next_append(self, items: int, schema: Schema, *, least: int = 1) -> int:
        """Return how many of `items` go into the active file, after rolling when that is better.

        `least` are those of one row, which an empty file has room for.
        """
        file = self._active.file_for(schema)
        if file is None:
            return min(items, self._item_capacity)
        self.puts.shut()  # or they would take the room that is counted here
        room = file.room()
        if items > room and (room < least or items * _SPLIT_FRACTION <= file.item_capacity):
            self._active.roll("full", schema)
            room = self._item_capacity
        return min(items, room)

    def _append_locked(
        self,
        items: Sequence[ItemColumns | ItemRows],
        schema: Schema,
        source: Source | None = None,
    ) -> None:
        """Write a batch, into the next file if the active one has no room for it."""
        self.puts.shut()
        try:
            file = self._append_to_active(items, schema, source)
        except OSError as error:
            raise disk_error(error) from error
        if schema == self._schema and not self._is_led:
            rows = items[0]
            self.puts.open_to(file, rows.topics if isinstance(rows, ItemRows) else ())
        if not self._is_asked_for_room and self._lacks_room(file):
            self._is_asked_for_room = True
            self._on_short_of_room()

    def _append_to_active(
        self,
        items: Sequence[ItemColumns | ItemRows],
        schema: Schema,
        source: Source | None,
    ) -> ChainedFile:
        """Append to the active file, or to a new one; return it. Raises OSError too."""
        if not isinstance(self._refusal, ClosedError):
            self._budget.check()  # closing: what was received is written if the disk takes it
        count = item_count(items)
        file = self._active.file_for(schema)
        if file is None or file.room() < count:
            file = self._active.roll("full", schema)
        try:
            file.append(items, source)
        except FileFullError:
            file = self._active.roll("full", schema)
            _append_to_fresh_file(file, items, count, source)
        return file

    def _lacks_room(self, file: ChainedFile) -> bool:
        """Return whether `prepare_next` has something to do that puts would else wait for."""
        return file.is_short_of_room or (not self._next_file.is_made and _is_half_full(file))

    # -- refusal ---------------------------------------------------------------------------------

    def refuse(self, error: Exception) -> None:
        """Refuse every further put with `error` (fenced)."""
        if not isinstance(self._refusal, ClosedError):
            self._refusal = error
            self.puts.refuse()

    def check_accepts(self) -> None:
        """Raise FencedError or ClosedError when no more puts are accepted."""
        refusal = self._refusal
        if refusal is not None:
            raise type(refusal)(*refusal.args)  # a new one each time: tracebacks add up

    def look_again(self) -> None:
        """Make the next put measure the room again: the compactor made some."""
        with self._lock:
            self._budget.look_again()
            self.puts.shut()

    def room(self) -> DiskRoom:
        """Return what waits for the store and what is free on the disk. Raises OSError."""
        return self._budget.room()

    def health(self) -> list[NotReady]:
        """Return why puts are refused until an operator repairs it; empty when they are not."""
        refusal, trouble = self._refusal, self._active.trouble
        reasons = []
        if refusal is not None:
            reason = CLOSED if isinstance(refusal, ClosedError) else FENCED
            reasons.append(NotReady(reason, str(refusal)))
        if trouble is not None:
            reasons.append(NotReady(NO_FILE, trouble))
        return reasons

    # -- roll ------------------------------------------------------------------------------------

    def roll(self) -> bool:
        """Close the active file for puts, when it holds anything; say whether it did."""
        with self._lock:
            self._flush_locked()
            return self._active.retire("asked for")

    def roll_when_old(self) -> bool:
        """Roll a file older than `roll_after` that holds anything."""
        with self._lock:
            return self._active.is_older_than(1) and self._active.retire("old")

    def prepare_next(self) -> None:
        """Reserve blocks and make the next file ahead of time, so that no put waits for the disk.

        Puts go on meanwhile: `_lock` is not held while the disk works, nor is `sync_lock` asked for,
        under which a seal may sync a whole file. Called every half a second, it has the next put
        look at the budget too, which may else take its time when puts are rare.
        """
        self._is_asked_for_room = False
        self.puts.shut()
        self.free_blocks_if_short()
        file = self._active.file
        if file is not None and self._refusal is None:
            reserve_ahead(file)
        with self._lock:
            if self._refusal is None:
                self._active.try_again()
            file, handle = self._active.file, self._active.handle
            if self._next_file.is_made or file is None or self._refusal is not None:
                return
            if not _is_half_full(file) and not self._active.is_older_than(0.5):
                return
        assert handle is not None
        with self._next_file.lock:
            ready = self._next_file.make_ahead(file.schema) if self._refusal is None else None
        if ready is not None:  # not under the lock: a roll may take it meanwhile
            reserve_ahead(ready, file.bytes_used // 4)
        try:
            self._disk.make_name_durable(handle.number)  # the next roll wants it so
        except OSError as error:
            raise disk_error(error) from error

    def free_blocks_if_short(self) -> None:
        """Keep no blocks for the next file that the disk lacks. Raises UnavailableError."""
        try:
            self._next_file.free_if_short()
        except OSError as error:
            raise disk_error(error) from error

    # -- durability ------------------------------------------------------------------------------

    def flush_disk(self) -> None:
        """Bring everything received to level `disk`; callers share one sync (group commit).

        Raises UnavailableError after a failed sync: the file takes no more batches, what it holds
        beyond the last good sync is acknowledged only once the compactor has re-read and rewritten
        it.
        """
        self.flush_buffer()
        self._disk.tell_loss()
        self._disk.sync()

    def _retire_suspect(self, handle: FileHandle) -> None:
        self.puts.shut()
        with self._lock:
            if self._active.handle is handle:
                self._active.let_go("a sync failed")

    # -- end -------------------------------------------------------------------------------------

    def close(self) -> None:
        """Refuse puts, then write and sync what was received. Raises what the flush raises."""
        with self._lock:
            if isinstance(self._refusal, ClosedError):
                return
            self._refusal = ClosedError("the index was closed")
            self.puts.refuse()
        try:
            # A fenced owner's too: its folder keeps them, and `tierdex adopt` publishes them.
            self.flush_disk()
        except UnavailableError as error:
            if not self.has_buffered:
                raise
            raise UnavailableError(
                f"{error}; closed all the same: what was only `received` is lost, put it again"
            ) from error
        finally:
            with self._lock, self._next_file.lock:
                self._next_file.close()


def _append_to_fresh_file(
    file: ChainedFile, items: Sequence[ItemColumns | ItemRows], count: int, source: Source | None
) -> None:
    try:
        file.append(items, source)
    except FileFullError as error:
        raise InvalidRequestError(
            f"{count} items in one entry do not fit into a file of {file.item_capacity} items; "
            "raise `item_capacity`",
            field="keys",
        ) from error


def _is_half_full(file: ChainedFile) -> bool:
    return file.item_count * 2 >= file.item_capacity
