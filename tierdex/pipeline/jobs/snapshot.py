"""The input of a job: every node's published files at one moment, and their hidden entries.

It is taken once, when the job is planned. The manifest numbers identify it; the grace time keeps
the objects of files that leave the list meanwhile. Files that another node's merge replaced are
left out.

A job reads published files alone: `Snapshot.ages` says until when they are all that was acknowledged, and
which nodes hold more.

Depends on index_service, indexfile, lifecycle, log_service and logfile.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from tierdex.clock import SystemClock
from tierdex.errors import IncompleteAnswerError
from tierdex.ids import SystemIds
from tierdex.index_service.answer_age import check_age_limit, oldest_ms
from tierdex.index_service.view.node_ages import NodeAges
from tierdex.lifecycle.manifests.file_row import LOG_KIND, NOTES_KIND, FilePlace, FileRow
from tierdex.lifecycle.manifests.forgotten import (
    FORGOTTEN_NODE,
    NOTHING_FORGOTTEN,
    ForgottenEntries,
)
from tierdex.lifecycle.manifests.liveness import standings_of
from tierdex.lifecycle.manifests.manifest import is_replaced, replaced_by, unexplained_drops
from tierdex.lifecycle.manifests.manifest_log import ManifestLog, list_nodes
from tierdex.lifecycle.nodes.node_reading import (
    READING_ERRORS,
    NodeReading,
    forgotten_in,
    read_node,
    refuse_absent,
)
from tierdex.lifecycle.paths import make_file_id
from tierdex.lifecycle.retention import KEEP_FOR_EVER, begins_to_hide, is_expired, is_hidden
from tierdex.lifecycle.store_time import StoreTime
from tierdex.lifecycle.topic_set import may_hold
from tierdex.log_service.notes.stored_notes import read_stored_notes
from tierdex.logfile.forgotten import NOWHERE
from tierdex.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from tierdex.indexfile.compacted.file import CompactedFile
    from tierdex.lifecycle.manifests.file_row import FileRef
    from tierdex.lifecycle.manifests.manifest import ManifestState, Retention
    from tierdex.logfile.forgotten import ForgottenPlaces
    from tierdex.storage_layer.base import Store

_LOADS_AT_ONCE = 8
_PASSES_MAX = 4  # each sees what was committed before the one before ended


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A published file of a snapshot; `rules` tell which of its entries are hidden at `now_ms`."""

    node: str
    row: FileRow
    rules: Retention = KEEP_FOR_EVER
    now_ms: int = 0
    forgotten: ForgottenEntries = NOTHING_FORGOTTEN
    places: ForgottenPlaces = NOWHERE  # of forgotten messages, for a log file

    def remembered(self, file: CompactedFile, rows: np.ndarray) -> np.ndarray | None:
        """Return which rows (b1[n]) of the opened file are not forgotten; None: all."""
        place = FilePlace(self.node, self.row.number, self.row)
        gone = self.forgotten.hidden(place, file.schema, file.dictionaries, rows)
        return None if gone is None else ~gone

    @property
    def file_id(self) -> str:
        return make_file_id(self.row.number, self.node)

    @property
    def is_fading(self) -> bool:
        """Whether entries of any topic that the file may hold are hidden."""
        return begins_to_hide(self.rules, self.row, self.now_ms)

    @property
    def is_faded(self) -> bool:
        """Whether all entries of the file are hidden."""
        return is_expired(self.rules, self.row.topics, self.row.sealed_at_ms, self.now_ms)

    def shows(self, topic: str) -> bool:
        """Return whether the file may hold visible entries of `topic`."""
        return not self._is_past(topic) and may_hold(self.row.topics, topic)

    def hides(self, topic: str) -> bool:
        """Return whether the file may hold entries of `topic` that are hidden."""
        return self._is_past(topic) and may_hold(self.row.topics, topic)

    def _is_past(self, topic: str) -> bool:
        return is_hidden(self.rules, topic, self.row.sealed_at_ms, self.now_ms)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Files newest first, in the order of answers; each node's manifest number and rules.

    `log_nodes` are those of message logs.
    """

    files: tuple[ListedFile, ...]
    numbers: Mapping[str, int]
    retention: Mapping[str, Retention]
    forgotten: ForgottenEntries = NOTHING_FORGOTTEN
    ages: NodeAges = field(default_factory=NodeAges)
    log_nodes: frozenset[str] = frozenset()

    def too_old(self, fresh_within: float | None, *, is_partial: bool) -> list[str]:
        """Return the nodes that make it older than `fresh_within` seconds (None: the setting), and why.

        Raises IncompleteAnswerError unless `is_partial`, InvalidRequestError.
        """
        limit = load_settings().fresh_within if fresh_within is None else fresh_within
        if limit is None:
            return []
        older = self.ages.older_than(oldest_ms(self.ages.taken_ms, check_age_limit(limit)))
        if older and not is_partial:
            raise IncompleteAnswerError.too_old(older)
        return [f"{node}: {reason}" for node, reason in older]


def open_log(store: Store, node: str, time: StoreTime | None = None) -> ManifestLog:
    """Return a node's log, before its first read; `time` dates what is read."""
    settings = load_settings()
    return ManifestLog(
        store,
        node,
        clock=SystemClock(),
        ids=SystemIds(),
        checkpoint_every=settings.checkpoint_every,
        time=time,
    )


def take_snapshot(store: Store, nodes: Sequence[str] | None = None) -> Snapshot:
    """Read the newest manifests of all nodes, or of `nodes`.

    Raises NotFoundError for a store without any manifest, or without one of `nodes`, and what the
    logs raise: a manifest that cannot be read is never taken for an empty one.
    """
    time = _time_of(store)
    began_ms = time.now_ms()
    readings = read_store(store, nodes, time)
    for reading in readings:
        if reading.error is not None:
            raise reading.error
    states = {reading.node: reading.state for reading in readings}
    ages = NodeAges(
        taken_ms=time.now_ms(),
        is_dated=time.skew_ms is not None,
        listed_ms=began_ms if nodes is None else None,
        known_ms={reading.node: reading.read_ms for reading in readings},
        standings=standings_of(states, {reading.node: reading.live for reading in readings}),
        states=states,
    )
    return replace(snapshot_of([*states.values()], SystemClock().now_ms()), ages=ages)


def _time_of(store: Store) -> StoreTime:
    """Return the store's time; our own clock's where it tells none."""
    time = StoreTime(SystemClock())
    with suppress(*READING_ERRORS):
        store_ms = store.time_ms()
        if store_ms is not None:
            time.measure(store_ms)
    return time


def take_log_snapshot(
    store: Store, nodes: Sequence[str] | None = None
) -> tuple[tuple[ListedFile, ...], list[ManifestState]]:
    """Return the published files of message logs, and the manifests that list them.

    Files stand in order of nodes and, within one, of publication. Raises as `take_snapshot` does.
    """
    readings = read_store(store, nodes)
    for reading in readings:
        if reading.error is not None:
            raise reading.error
    states = [reading.state for reading in readings]
    now_ms = SystemClock().now_ms()
    files = (
        file
        for state in states
        if state.files_of(LOG_KIND)
        for file in log_files_of(state, now_ms, read_stored_notes(store, state).forgotten.places)
    )
    return tuple(files), states


def log_files_of(
    state: ManifestState, now_ms: int, places: ForgottenPlaces = NOWHERE
) -> list[ListedFile]:
    """Return a node's log files, oldest first; none counts as older than those before it."""
    rows = sorted(state.files_of(LOG_KIND).values(), key=lambda row: row.number)
    sealed = accumulate((row.sealed_at_ms for row in rows), max)
    return [
        ListedFile(
            state.node, replace(row, sealed_at_ms=sealed_ms), state.retention, now_ms, places=places
        )
        for row, sealed_ms in zip(rows, sealed, strict=True)
    ]


def notes_of(state: ManifestState) -> list[ListedFile]:
    """Return what a node's log noted of itself: one row at most."""
    return [ListedFile(state.node, row) for row in state.files_of(NOTES_KIND).values()]


def read_forgotten(store: Store) -> ForgottenEntries:
    """Return what is forgotten now. Raises what the log raises."""
    return forgotten_in([open_log(store, FORGOTTEN_NODE).load()])


def read_store(
    store: Store, nodes: Sequence[str] | None = None, time: StoreTime | None = None
) -> list[NodeReading]:
    """Read the manifests of all nodes, or of `nodes`; each reading has its error, and is of `time`.

    Raises NotFoundError as `take_snapshot`, and errors of listing the nodes.
    """
    known: frozenset[FileRef] = frozenset()
    for _ in range(_PASSES_MAX):
        readings = _read_nodes(store, nodes, time)
        unexplained = unexplained_drops([reading.state for reading in readings])
        if unexplained <= known:
            break
        known = unexplained
    return readings


def _read_nodes(
    store: Store, nodes: Sequence[str] | None, time: StoreTime | None
) -> list[NodeReading]:
    # Before all files, whichever nodes are read: a record goes after the last file that holds its entries.
    forgotten = read_node(open_log(store, FORGOTTEN_NODE, time))
    names = list_nodes(store) if nodes is None else list(nodes)
    others = [name for name in names if name != FORGOTTEN_NODE]
    with ThreadPoolExecutor(_LOADS_AT_ONCE) as pool:
        readings = list(pool.map(lambda name: read_node(open_log(store, name, time)), others))
    refuse_absent(readings, store.url, nodes)
    is_there = forgotten.error is not None or forgotten.state.number
    return [forgotten, *readings] if is_there else readings


def snapshot_of(states: Sequence[ManifestState], now_ms: int) -> Snapshot:
    """Return the files that these states list together, as of `now_ms`."""
    replaced = replaced_by(states)
    forgotten = forgotten_in(states)
    files = [
        ListedFile(
            state.node,
            row,
            state.retention,
            now_ms,
            forgotten
            if forgotten.may_be_in(FilePlace(state.node, row.number, row))
            else NOTHING_FORGOTTEN,
        )
        for state in states
        for row in state.index_files.values()
        if row.item_count and not is_replaced(row, state.node, replaced)
    ]
    files.sort(key=lambda file: (file.row.number, file.node), reverse=True)
    return Snapshot(
        tuple(files),
        {state.node: state.number for state in states},
        {state.node: state.retention for state in states},
        forgotten,
        log_nodes=frozenset(
            state.node for state in states if state.files_of(LOG_KIND) or state.files_of(NOTES_KIND)
        ),
    )
