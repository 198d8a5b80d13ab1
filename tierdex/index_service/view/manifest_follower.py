"""Every node's published files in the file table, and how fresh that knowledge is.

::

    store: nodes/a, nodes/b, ...  --refresh-->  ManifestLog a, b, ...  --diff-->  FileTable (uploaded)

One manifest log a node. After each refresh the difference between what a node's manifest lists and
what the table shows is applied in one step, so that a query sees a merge whole or not at all. Files
that another node's merge replaced are left out; a local copy of a published file stays in place of
the published one until the compactor drops it. Files of another kind (a message log's) are shown in the same
way in a table of their own, a `PublishedView`.

All of it is dated in the store's time, as owners date what they acknowledge: our own clock may be
minutes off.

A node whose manifest could not be read for `max_staleness` makes answers incomplete and is named.

Locks: `_refreshing` is held while the store is asked, `_lock` while the table is changed and never
longer, so that a thread that only shows its own commit does not wait for the store.

Depends on freshness, node_ages, published_view, answer, file_info, readers, lifecycle and errors.
"""

from __future__ import annotations

import logging
import threading
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from tierdex.errors import NotFoundError, UnavailableError
from tierdex.index_service.answer import Missing
from tierdex.index_service.file_info import NodeInfo
from tierdex.index_service.readers.published_file import PublishedFile
from tierdex.index_service.view.freshness import NOT_FRESH, Freshness
from tierdex.index_service.view.node_ages import NO_NODES, UNREAD, NodeAges
from tierdex.index_service.view.published_view import PublishedView
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.manifests.file_row import INDEX_KIND
from tierdex.lifecycle.manifests.forgotten import (
    FORGOTTEN_NODE,
    NOTHING_FORGOTTEN,
    ForgottenEntries,
)
from tierdex.lifecycle.manifests.liveness import UNKNOWN, standings_of
from tierdex.lifecycle.manifests.manifest import (
    ManifestState,
    RemoveReason,
    is_replaced,
    replaced_by,
    unexplained_drops,
)
from tierdex.lifecycle.manifests.manifest_log import ManifestLog, list_nodes
from tierdex.lifecycle.nodes.node_reading import (
    READING_ERRORS,
    NodeReading,
    forgotten_in,
    read_node,
    refuse_absent,
)
from tierdex.lifecycle.retention import KEEP_FOR_EVER, hidden_from
from tierdex.lifecycle.store_time import StoreTime
from tierdex.lifecycle.table.file_handle import FileHandle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tierdex.index_service.readers.page_cache import PageCache
    from tierdex.index_service.readers.sidecar_cache import SidecarCache
    from tierdex.index_service.view.published_view import LocalFiles
    from tierdex.lifecycle.manifests.file_row import FileRef, FileRow
    from tierdex.lifecycle.manifests.live_record import LiveRecord
    from tierdex.lifecycle.table.file_table import FileTable
    from tierdex.seams import Seams
    from tierdex.settings import Settings
    from tierdex.storage_layer.base import Store

logger = logging.getLogger(__name__)

COMPARE_CLOCKS_S: Final = 60.0
_SKEW_TOLD_MS: Final = 10_000
_PASSES_MAX = 4  # each sees what was committed before the one before ended


class ManifestFollower:
    """Follows the manifests of all nodes under the store. Safe to share between threads."""

    def __init__(
        self,
        *,
        settings: Settings,
        seams: Seams,
        store: Store,
        files: Store,
        table: FileTable,
        sidecars: SidecarCache,
        pages: PageCache,
    ) -> None:
        """Read manifests from `store`; published files are read from `files`, the same one."""
        self._settings = settings
        self._clock = seams.clock
        self._time = StoreTime(seams.clock)
        self._ids = seams.ids
        self._store = store
        self._files = files
        self._table = table
        self._sidecars = sidecars
        self._pages = pages
        self._refreshing = threading.Lock()
        self._lock = threading.Lock()
        self._logs: dict[str, ManifestLog] = {}  # replaced, never changed: read without a lock
        self._absent_ms: dict[str, int] = {}  # until when a node was known not to exist
        self._errors: dict[str, Exception] = {}
        self._listing_error: str | None = None
        self._listed_ms = 0
        self._found: frozenset[str] = frozenset()  # by the last listing, or by `read_nodes`
        self._hidden: tuple[Missing, ...] = ()
        self._shelves = [
            PublishedView(
                INDEX_KIND, table, self.handle_of, sidecars.forget, sidecars.forget_others
            )
        ]
        self._tidied: set[str] = (
            set()
        )  # kinds of which nothing is kept that went before the opening
        self._unexplained: frozenset[FileRef] = (
            frozenset()
        )  # dropped for merges that no manifest lists
        self._missing_reporters: set[object] = set()  # who else misses something
        self._local: LocalFiles | None = None
        self.is_taken = False  # another owner has the node of the files beside, as far as is shown
        self.ages = NodeAges()  # of what the table shows; replaced, never changed
        self.freshness = NOT_FRESH  # replaced, never changed: read without a lock

    def log_of(self, node: str) -> ManifestLog:
        """Return the one log of a node in this process; the node is followed from now on."""
        with self._lock:
            if node not in self._logs:
                log = ManifestLog(
                    self._store,
                    node,
                    clock=self._clock,
                    ids=self._ids,
                    checkpoint_every=self._settings.checkpoint_every,
                    time=self._time,
                )
                self._logs = {**self._logs, node: log}
                if self._settings.read_nodes is None and node not in self._found:
                    # It is made now: when nodes were listed last there was none of this name.
                    self._absent_ms.setdefault(node, self._listed_ms)
            return self._logs[node]

    def state_of(self, node: str) -> ManifestState:
        """Return what a node's manifest says as far as it is known; an empty state if it is not."""
        log = self._logs.get(node)
        return ManifestState(node=node) if log is None else log.state

    @property
    def logs(self) -> list[ManifestLog]:
        """Return the logs of all nodes known so far."""
        return list(self._logs.values())

    def show_beside(self, local: LocalFiles) -> None:
        """Set the node whose own files are in the table, too."""
        self._local = local

    def show_on(self, shelf: PublishedView) -> None:
        """Show the files of one more kind, from the next refresh on."""
        self._shelves.append(shelf)

    def now_ms(self) -> int:
        """Return the store's time, in which everything here is dated; our own while it is not known."""
        return self._time.now_ms()

    @property
    def skew_ms(self) -> int | None:
        """Return how far our clock was ahead of the store's when they were compared; None: never."""
        return self._time.skew_ms

    def compare_clocks(self) -> None:
        """Ask the store for its time once a minute; say so when ours is another."""
        if not self._time.is_due(COMPARE_CLOCKS_S):
            return
        before = self._time.skew_ms
        try:
            store_ms = self._store.time_ms()
        except READING_ERRORS as error:
            logger.warning("clocks not compared", extra={"error": str(error)})
            return
        if store_ms is None:
            return
        self._time.measure(store_ms)
        skew_ms = self._time.skew_ms or 0
        if abs(skew_ms) >= _SKEW_TOLD_MS and abs(skew_ms - (before or 0)) >= _SKEW_TOLD_MS:
            extra = {"skew_s": skew_ms / 1000}
            logger.warning("this machine's clock is not the store's", extra=extra)

    # -- following -------------------------------------------------------------------------------

    @property
    def refresh_interval(self) -> float:
        """Return the seconds between two refreshes."""
        return self._settings.refresh_interval

    def refresh(self, vanished: Sequence[FileHandle] = ()) -> int:
        """Read every node's manifest now and update the table; return a lower bound of requests.

        `vanished` are local files, in the table, that their writer has dropped since: each is taken
        out together with showing what its node's manifest lists, once that could be read.
        Errors of single nodes are remembered and named by `missing`; they raise nothing here.
        """
        with self._refreshing:
            requests = 0
            for _ in range(_PASSES_MAX):
                requests += self._read_manifests()
                if not self._lacks_replacements():
                    break
            gone = [handle for handle in vanished if self._is_known_now(handle.node)]
            self._show(gone)
            return requests

    def _read_manifests(self) -> int:
        requests = self._list_nodes()
        # What is forgotten before all files: a record goes after the last file that holds its entries.
        for node, log in sorted(self._logs.items(), key=lambda each: each[0] != FORGOTTEN_NODE):
            requests += 1
            reading = read_node(log)
            if reading.error is None:
                self._errors.pop(node, None)
            else:
                logger.warning("manifest not read", extra={"node": node, "error": reading.problem})
                self._errors[node] = reading.error
        return requests

    def _lacks_replacements(self) -> bool:
        """Return whether a node has newly dropped a file for a merge that no manifest read so far lists."""
        unexplained = unexplained_drops([log.state for log in self._logs.values()])
        known, self._unexplained = self._unexplained, unexplained
        return not unexplained <= known

    def _list_nodes(self) -> int:
        wanted = self._settings.read_nodes
        before, began_ms = self._listed_ms, self.now_ms()
        try:
            found = wanted if wanted is not None else list_nodes(self._store)
            self._listing_error = None
            self._found = frozenset(found)
        except READING_ERRORS as error:
            logger.warning("nodes not listed", extra={"error": str(error)})
            self._listing_error = str(error)
            return 1
        for node in found:
            if node not in self._logs and wanted is None:
                self._absent_ms[node] = before
            self.log_of(node)
        if wanted is not None:
            self.log_of(FORGOTTEN_NODE)  # whichever nodes are read: it hides entries of theirs
        self._listed_ms = began_ms  # a node that came meanwhile may not be in it
        return 1 if wanted is None else 0

    def _is_known_now(self, node: str) -> bool:
        """Return whether the refresh under way has read the node's manifest, or found that it has none."""
        return node not in self._errors and (node in self._logs or self._listing_error is None)

    def show(self, gone: Iterable[FileHandle] = ()) -> None:
        """Bring the table up to what the logs know, after a commit of our own; take out `gone`."""
        self._show(gone)

    def _show(self, vanished: Iterable[FileHandle]) -> None:
        with self._lock:
            # The files before the manifests: what is shown as published then is listed now, unless
            # it was dropped. The other way round, a file published in between would look dropped.
            shown = [_shown_in(shelf.table) for shelf in self._shelves]
            # A log may have been read, or committed to, by the owner's claim since: an answer knows only
            # what is in the table. The times before the states, which are then as new or newer.
            known_ms = {node: log.read_ms for node, log in self._logs.items()}
            lives = {node: log.live for node, log in self._logs.items()}
            states = {node: log.state for node, log in self._logs.items()}
            local = self._local
            self.is_taken = local is not None and local.is_taken(self.state_of(local.node))
            hidden: list[Missing] = []
            gone = list(vanished)
            removed = [
                self._bring_up_to(shelf, files, states, gone, hidden)
                for shelf, files in zip(self._shelves, shown, strict=True)
            ]
            self._hidden = tuple(hidden)
            self.ages = self._make_ages(states, lives, known_ms)
            self.freshness = self._freshness()
        for shelf, handles in zip(self._shelves, removed, strict=True):
            for handle in handles:
                if handle.row is not None:
                    shelf.forget(handle.uuid)
        if not self._errors and not self.unread():
            self._tidy(states)

    def _tidy(self, states: Mapping[str, ManifestState]) -> None:
        """Drop what is kept of files that went while this folder was closed; the caller knows every node."""
        for shelf in self._shelves:
            if shelf.kind not in self._tidied:
                self._tidied.add(shelf.kind)
                shown = {handle.uuid for handle in _shown_in(shelf.table).values()}
                shelf.forget_others(
                    shown | {row.uuid for row in _listed(states, shelf.kind).values()}
                )

    def _bring_up_to(
        self, shelf: PublishedView, shown: dict[tuple[int, str], FileHandle],
        states: Mapping[str, ManifestState], vanished: Sequence[FileHandle], hidden: list[Missing],
    ) -> list[FileHandle]:  # fmt: skip
        """Show what the manifests list of one kind; return what was taken out of its table."""
        if shelf.of_one_owner and self.is_taken:
            return []
        listed = _listed(states, shelf.kind)
        gone = [handle for handle in vanished if shown.get(handle.key) is handle]
        for handle in gone:
            del shown[handle.key]
        merged = _merged_over(shown, listed)
        for key, handle in shown.items():
            if handle.uuid in merged:
                gone.append(handle)
            elif handle.state is not FileState.UPLOADED:
                # the local copy answers until the compactor drops it
                row = listed.pop(key, None)
                if row is not None and row.uuid != handle.uuid:
                    reason = "published, and a local file has the same number"
                    hidden.append(Missing(handle.file_id, reason))
            elif handle.row is not None:  # else of another system: not in any manifest
                row = listed.get(key)
                if row is None and self._awaits_replacement(handle):
                    continue
                if row is None or row.uuid != handle.uuid:
                    gone.append(handle)
        fresh = [
            shelf.handle_of(row, node)
            for (number, node), row in listed.items()
            if (before := shown.get((number, node))) is None or before.uuid != row.uuid
        ]
        if gone or fresh:
            shelf.table.change(remove=gone, add=fresh)
        return gone

    def _awaits_replacement(self, handle: FileHandle) -> bool:
        """Return whether a shown file was dropped for a merge that is not known here yet.

        Its object lives on for the grace time: it answers until the merge is shown in its place.
        """
        state = self._logs[handle.node].state
        dropped = state.dropped.get(handle.uuid)
        if dropped is None or dropped.reason is not RemoveReason.REPLACED or handle.row is None:
            return False
        replaced = replaced_by(log.state for log in self._logs.values())
        return not is_replaced(handle.row, handle.node, replaced)

    def report_missing(self, who: object, *, is_missing: bool) -> None:
        """Record that `who` misses files, or no more; called before they leave the table."""
        with self._lock:
            (self._missing_reporters.add if is_missing else self._missing_reporters.discard)(who)
            self.freshness = self._freshness()

    def _freshness(self) -> Freshness:
        """Return how long answers may leave the manifests unasked; the caller holds the lock."""
        known_ms = self._least_known_ms()
        if self._missing_reporters or self._hidden or known_ms == 0:
            return NOT_FRESH
        left_ms = known_ms + round(self._settings.max_staleness * 1000) - self.now_ms()
        until = self._clock.now_ms() + left_ms  # queries look at our own clock
        ages = self.ages
        forgotten = ages.forgotten or NOTHING_FORGOTTEN  # whose identity is asked on the fast path
        rules = tuple(
            (node, log.state.retention)
            for node, log in self._logs.items()
            if log.state.retention != KEEP_FOR_EVER
        )
        if rules == self.freshness.rules:
            rules = self.freshness.rules  # whose identity is asked there, too
        return Freshness(ages.as_of(), until, until / 1000, ages.unasked(), forgotten, rules)

    def _make_ages(
        self,
        states: Mapping[str, ManifestState],
        lives: Mapping[str, LiveRecord | None],
        known_ms: Mapping[str, int],
    ) -> NodeAges:
        local = self._local
        is_here = local is not None and local.node in states and local.is_of(states[local.node])
        return NodeAges(
            taken_ms=self.now_ms(),
            is_dated=self._time.skew_ms is not None,
            listed_ms=self._listed_ms if self._settings.read_nodes is None else None,
            known_ms={n: ms or self._absent_ms.get(n, UNREAD) for n, ms in known_ms.items()},
            standings=standings_of(states, lives),
            states=states,
            local=frozenset((local.node,)) if local is not None and is_here else NO_NODES,
            local_ms=None if local is None else local.read_ms(),
            forgotten=self._forgotten(states),
        )

    def _forgotten(self, states: Mapping[str, ManifestState]) -> ForgottenEntries:
        fresh, known = forgotten_in(states.values()), self.ages.forgotten
        return known if known.number == fresh.number else fresh

    def reader_of(self, row: FileRow, node: str) -> PublishedFile:
        return PublishedFile(row, node, self._files, self._sidecars, self._pages)

    def handle_of(self, row: FileRow, node: str) -> FileHandle:
        return FileHandle.of_row(row, node, self.reader_of(row, node))

    # -- what answers say ------------------------------------------------------------------------

    @property
    def is_overdue(self) -> bool:
        """Return whether a manifest is nearly as old as `max_staleness`, though nothing failed at it.

        Nearly, since time goes by until the question that asks this is answered. A manifest of half that age
        is, unless threads read it again before long.
        """
        if self._listing_error is not None:
            return False
        longest = self._settings.max_staleness
        due_s = min(0.9 * longest, max(0.5 * longest, 2 * self._settings.refresh_interval))
        oldest = self.now_ms() - round(due_s * 1000)
        return self._listed_before(oldest) or any(
            self._known_ms(log) < oldest and node not in self._errors
            for node, log in self._logs.items()
        )

    def _listed_before(self, oldest: int) -> bool:
        return self._settings.read_nodes is None and self._listed_ms < oldest

    def missing(self) -> list[Missing]:
        """Return the nodes whose manifest is older than `max_staleness`, or was never read."""
        oldest = self._oldest_ms()
        found = list(self._hidden)
        if self._listing_error is not None and self._listed_ms < oldest:
            found.append(Missing("store", f"nodes cannot be listed: {self._listing_error}"))
        for node, log in self._logs.items():
            if self._known_ms(log) >= oldest:
                continue
            reason = self._reading(node).problem or "not refreshed"
            found.append(Missing(f"node:{node}", f"manifest not read lately: {reason}"))
        return found

    def damaged(self) -> list[Missing]:
        """Return the nodes whose manifest came and cannot be read, by name, however lately that was tried."""
        return [
            Missing(f"node:{node}", str(error))
            for node, error in sorted(self._errors.items())
            if not isinstance(error, UnavailableError)
        ]

    def unread(self) -> list[str]:
        """Return what could not be read once since the opening, in words: the store did not answer.

        A node that is damaged was read: answers name it.
        """
        found = []
        if self._settings.read_nodes is None and not self._listed_ms:
            found.append(f"nodes cannot be listed: {self._listing_error or 'not tried yet'}")
        for node, log in sorted(self._logs.items()):
            error = self._errors.get(node)
            if not self._known_ms(log) and (error is None or isinstance(error, UnavailableError)):
                found.append(f"node {node}: {error or 'not read yet'}")
        return found

    def _reading(self, node: str) -> NodeReading:
        """Return what the last refresh found of a node, with what was committed since."""
        return NodeReading(node, self.state_of(node), self._errors.get(node))

    def describe(self) -> list[NodeInfo]:
        """Return every node as of the last refresh, by name; one that cannot be read has a problem.

        When nodes cannot be listed, a row without a name says so: others may be there.
        """
        return self._describing()()

    def describing(self) -> Callable[[], list[dict[str, Any]]]:
        """Return what describes, whenever it is called, each node as it is known now, as plain values."""
        describe = self._describing()
        return lambda: [node._asdict() for node in describe()]

    def _describing(self) -> Callable[[], list[NodeInfo]]:
        problem, ages, now_ms = self._listing_error, self.ages, self.now_ms()
        found, errors = self._found, self._errors
        readings = [
            NodeReading(node, log.state, errors.get(node))
            for node, log in self._logs.items()
            if log.state.number or node in found or node in errors
        ]

        def describe() -> list[NodeInfo]:
            shown = []
            if problem is not None:
                text = f"nodes cannot be listed: {problem}"
                shown.append(NodeInfo("", 0, 0, text, UNKNOWN))
            return shown + [
                ages.describe(reading, now_ms) for reading in sorted(readings, key=_node_of)
            ]

        return describe

    def refuse_absent(self) -> None:
        """Raise NotFoundError when the last refresh found that there is nothing to read."""
        if self._listing_error is None:
            readings = [self._reading(node) for node in self._logs]
            refuse_absent(readings, self._store.url, self._settings.read_nodes)

    def refuse_unknown(self, node: str) -> None:
        """Raise NotFoundError when nothing of a node was read, UnavailableError when it could not be."""
        if self.state_of(node).number:
            return
        error = self._errors.get(node)
        if error is not None:
            raise UnavailableError(
                f"the manifest of node {node} cannot be read: {error}"
            ) from error
        raise NotFoundError(f"no node {node} is read from {self._store.url}: is its name right?")

    def _least_known_ms(self) -> int:
        """Return the time (ms) up to which all nodes, and the manifest of each, are known; 0: never."""
        known = [self._known_ms(log) for log in self._logs.values()]
        if self._settings.read_nodes is None:
            known.append(self._listed_ms)  # others may have come since, or were never seen
        return min(known, default=self.now_ms())

    def _oldest_ms(self) -> int:
        return self.now_ms() - round(self._settings.max_staleness * 1000)

    def _known_ms(self, log: ManifestLog) -> int:
        """Return until when a node is known: its files are shown, or the node did not exist yet."""
        return self.ages.known_ms.get(log.node) or self._absent_ms.get(log.node, UNREAD)

    def hides(self, handle: FileHandle, topic: str) -> bool:
        """Return whether the topic's own retention, counted from the file's sealing, has passed."""
        since = self.hidden_from(handle, topic)
        return since is not None and self._clock.now_ms() >= since

    def hidden_from(self, handle: FileHandle, topic: str) -> int | None:
        """Return since when (ms) a file does not show a topic, None: it does, for ever."""
        if handle.sealed_at_ms is None or (log := self._logs.get(handle.node)) is None:
            return None
        return hidden_from(log.state.retention, topic, handle.sealed_at_ms)


def _shown_in(table: FileTable) -> dict[tuple[int, str], FileHandle]:
    with table.snapshot() as snapshot:
        return {handle.key: handle for handle in snapshot.files}


def _merged_over(
    shown: Mapping[tuple[int, str], FileHandle], listed: Mapping[tuple[int, str], FileRow]
) -> set[bytes]:
    """Return the local files that went into a published one of the same number, all of those parts.

    Of a folder that another process writes: it dropped them, which is not seen here yet.
    """
    found: set[bytes] = set()
    for key, handle in shown.items():
        if handle.state is not FileState.UPLOADED and (row := listed.get(key)) is not None:
            parts = {part.uuid for part in row.parts if part.node == handle.node}
            if row.uuid != handle.uuid and handle.uuid in parts:
                found |= parts
    return found


def _listed(states: Mapping[str, ManifestState], kind: str) -> dict[tuple[int, str], FileRow]:
    """Return every row of a kind that readers see, by file number and node."""
    replaced = replaced_by(states.values())
    return {
        (row.number, node): row
        for node, state in states.items()
        for row in state.files_of(kind).values()
        if not is_replaced(row, node, replaced)
    }


_node_of = attrgetter("node")
