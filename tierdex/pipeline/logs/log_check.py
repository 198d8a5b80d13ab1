"""Verification of a store's log files: each object and its row, and the offsets of queues from file to file.

::

    object    every checksum, every rule of the form, the header's copy, the manifest's row
    notes     what the log's folder noted of itself, for the next owner of the node
    offsets   a queue goes on in the next file where it ended: nothing is missing, nothing there twice
    entries   on demand: the place that an index entry names lies below the end of its queue

What merges left out is told by queue tables. What retention hides may have gone with a younger file before an
older one, which other topics keep: no fault. In memory: 32 bytes a queue. Depends on snapshot, compactor,
errors, indexfile, lifecycle, logfile and log_service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tierdex.clock import SystemClock
from tierdex.compactor.merged_file import open_published
from tierdex.errors import TierdexError
from tierdex.indexfile.layout import TOPIC_MASK
from tierdex.indexfile.schema import TOPIC_DICTIONARY
from tierdex.lifecycle.paths import make_file_id
from tierdex.log_service.files.log_file import left_out_before
from tierdex.log_service.files.whole_object import check_object, open_grouped_tail
from tierdex.log_service.notes.stored_notes import check_notes, read_stored_notes
from tierdex.logfile.queue_ends import NO_QUEUES, QueueEnds
from tierdex.pipeline.jobs.snapshot import log_files_of, notes_of, read_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tierdex.indexfile.compacted.file import CompactedFile
    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.lifecycle.manifests.manifest import ManifestState, Retention
    from tierdex.logfile.grouped.file import GroupedFile
    from tierdex.pipeline.jobs.snapshot import ListedFile
    from tierdex.storage_layer.base import Store

_NAMED = 3  # queues of one file that a finding names


class Finding(NamedTuple):
    """One file, and what is wrong with it, in words."""

    file_id: str
    problems: list[str]


class QueueTally:
    """Where the queues of one node's log end, file after file, oldest first."""

    def __init__(self, rules: Retention, now_ms: int, gone: QueueEnds = NO_QUEUES) -> None:
        """`gone` are where queues end of files that were let go."""
        self._rules = rules
        self._now_ms = now_ms
        self._topics: dict[str, int] = {}
        self._keys = np.empty(0, np.int64)  # (topic << 32) | queue_id, rising
        self._ends = np.empty(0, np.int64)
        self._sealed = np.empty(0, np.int64)  # of the last file that has the queue
        keys, ends = self._columns_of(gone)
        order = np.argsort(keys)
        self._gone_keys, self._gone_ends = keys[order], ends[order]

    def take(self, file: GroupedFile, sealed_at_ms: int) -> list[str]:
        """Continue behind a file; return its queues that do not begin where they ended. CorruptFileError."""
        self._raise(*self._columns_of(left_out_before(file)), sealed_at_ms)
        rows = file.queues()
        names = [file.topics.name(i) for i in range(len(file.topics))]
        keys = self._keys_of(names, rows.topics, rows.queue_ids)
        known = self.ends_of(keys)
        # Let go, by hand or by its age, while an older file is kept for what waits in it.
        gone = _ends_in(keys, self._gone_keys, self._gone_ends)
        known = np.where(known < 0, known, np.maximum(known, np.minimum(gone, rows.first_offsets)))
        is_wrong = (known >= 0) & (known != rows.first_offsets)
        is_wrong &= ~((rows.first_offsets > known) & self._are_hidden(keys))
        wrong = np.flatnonzero(is_wrong)
        faults = [
            self._fault(keys[i], int(known[i]), int(rows.first_offsets[i])) for i in wrong[:_NAMED]
        ]
        if len(wrong) > _NAMED:
            faults.append(
                f"and {len(wrong) - _NAMED} more queues that do not go on where they ended"
            )
        self._raise(keys, rows.first_offsets + rows.counts, sealed_at_ms)
        return faults

    def ends_of(self, keys: np.ndarray) -> np.ndarray:
        """Return where queues end, -1 for those that no file has (i8)."""
        return _ends_in(keys, self._keys, self._ends)

    def check_entries(self, file: CompactedFile) -> list[str]:
        """Return how many entries name messages that no file has, nor had. Raises as its rows do."""
        topics = np.array(
            [self._topics.get(name, -1) for name in file.dictionaries.strings(TOPIC_DICTIONARY)],
            np.int64,
        )
        strange, example = 0, ""
        for rows in file.rows_in_hash_order():
            own = topics[(rows["tag"] & np.uint32(TOPIC_MASK)).astype(np.int64)]
            keys = (own << 32) | rows["queue_id"].astype(np.int64)
            gone = _ends_in(keys, self._gone_keys, self._gone_ends)
            ends = np.maximum(self.ends_of(keys), gone)
            beyond = np.flatnonzero(
                (own >= 0) & (ends >= 0) & (rows["offset"].astype(np.int64) >= ends)
            )
            if len(beyond) and not strange:
                first = rows[beyond[0]]
                example = f"queue {first['queue_id']}, offset {first['offset']}"
            strange += len(beyond)
        return (
            [f"{strange} entries name messages that the log does not have: {example}"]
            if strange
            else []
        )

    # -- private -----------------------------------------------------------------------------------------

    def _columns_of(self, told: QueueEnds) -> tuple[np.ndarray, np.ndarray]:
        """Return the keys and ends (i8 each) of the queues that a table tells of."""
        rows = told.rows
        keys = self._keys_of(told.names(), rows["topic"], rows["queue_id"])
        return keys, rows["next_offset"].astype(np.int64)

    def _keys_of(
        self, names: Sequence[bytes], topics: np.ndarray, queue_ids: np.ndarray
    ) -> np.ndarray:
        numbers = [self._topics.setdefault(name.decode(), len(self._topics)) for name in names]
        mapped = np.array(numbers, np.int64)
        keys: np.ndarray = (mapped[topics.astype(np.int64)] << 32) | queue_ids.astype(np.int64)
        return keys

    def _raise(self, keys: np.ndarray, ends: np.ndarray, sealed_at_ms: int) -> None:
        """Set the ends of queues, unless they are higher already."""
        all_keys = np.union1d(self._keys, keys)
        all_ends, sealed = np.full(len(all_keys), -1, np.int64), np.zeros(len(all_keys), np.int64)
        at = np.searchsorted(all_keys, self._keys)
        all_ends[at], sealed[at] = self._ends, self._sealed
        at = np.searchsorted(all_keys, keys)
        all_ends[at], sealed[at] = np.maximum(all_ends[at], ends), sealed_at_ms
        self._keys, self._ends, self._sealed = all_keys, all_ends, sealed

    def _are_hidden(self, keys: np.ndarray) -> np.ndarray:
        """Return of known queues whether retention hides what the files had of them so far (b1)."""
        limits = [self._rules.of(name) for name in self._topics]
        never = np.iinfo(np.int64).max
        kept_ms = np.array([never if limit is None else limit for limit in limits], np.int64)
        if not len(self._keys):
            return np.zeros(len(keys), bool)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        hidden: np.ndarray = self._now_ms - self._sealed[at] >= kept_ms[keys >> 32]
        return hidden

    def _fault(self, key: np.int64, end: int, first: int) -> str:
        topic, queue_id = list(self._topics)[int(key) >> 32], int(key) & 0xFFFFFFFF
        if first > end:
            return f"topic {topic!r}, queue {queue_id}: offsets {end} to {first - 1} are in no file"
        return f"topic {topic!r}, queue {queue_id}: offsets from {first} on are there twice"


def _ends_in(keys: np.ndarray, of: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the ends of the queues `keys`, -1 of those that are not in `of`, which rises (i8)."""
    found, at = np.full(len(keys), -1, np.int64), np.searchsorted(of, keys)
    if len(of):
        at = np.minimum(at, len(of) - 1)
        is_known = of[at] == keys
        found[is_known] = ends[at[is_known]]
    return found


def check_stored_logs(store: Store, *, entries: bool = False) -> Iterator[Finding]:
    """Verify the log files of all nodes, oldest first; with `entries` the index files beside them, too.

    Nodes whose manifest cannot be read are left to who names them. Raises NotFoundError, and what listing
    the nodes raises.
    """
    now_ms = SystemClock().now_ms()
    for reading in read_store(store):
        files = log_files_of(reading.state, now_ms)
        for notes in notes_of(reading.state):
            yield Finding(f"{notes.file_id} notes", _check_notes(store, notes.row))
        if not files:
            continue
        tally = QueueTally(reading.state.retention, now_ms, _gone_of(store, reading.state))
        for file in files:
            yield Finding(file.file_id, _check_file(store, file, tally))
        if entries:
            yield from _check_entries(store, reading.state, tally)


def _check_notes(store: Store, row: FileRow) -> list[str]:
    try:
        return check_notes(store, row)
    except TierdexError as error:
        return [str(error)]


def _gone_of(store: Store, state: ManifestState) -> QueueEnds:
    try:
        return read_stored_notes(store, state).current.ends
    except TierdexError:  # not swallowed: the finding of the notes says it
        return NO_QUEUES


def _check_file(store: Store, file: ListedFile, tally: QueueTally) -> list[str]:
    try:
        problems = check_object(store, file.row)
        return problems + tally.take(open_grouped_tail(store, file.row), file.row.sealed_at_ms)
    except TierdexError as error:  # one file that cannot be read must not hide the others
        return [str(error)]


def _check_entries(store: Store, state: ManifestState, tally: QueueTally) -> Iterator[Finding]:
    for row in sorted(state.index_files.values(), key=lambda row: row.number):
        try:
            problems = tally.check_entries(open_published(store, row))
        except TierdexError as error:
            problems = [str(error)]
        yield Finding(f"{make_file_id(row.number, state.node)} entries", problems)
