"""Every node's published files in the file table, and how fresh that knowledge is.

::

    store: nodes/a, nodes/b, ...  --refresh-->  ManifestLog a, b, ...  --diff-->  FileTable (uploaded)

One manifest log a node. After each refresh the difference between what a node's manifest lists and
what the table shows is applied in one step, so that a query sees a merge whole or not at all. Files
that another node's merge replaced are left out; a local copy of a published file stays in place of
the published one until the compactor drops it.

A node whose manifest could not be read for `max_staleness` makes answers incomplete and is named.

Locks: `_refreshing` is held while the store is asked, `_lock` while the table is changed and never
longer, so that nobody who only wants to show a commit of his own waits for the store.

Depends on answer, file_info, readers and lifecycle.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from tierdex.index_service.answer import Missing, Unasked
from tierdex.index_service.file_info import NodeInfo
from tierdex.index_service.readers.published_file import PublishedFile
from tierdex.lifecycle.file_handle import FileHandle
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.live_record import OwnerAddress
from tierdex.lifecycle.manifest import (
    ManifestState,
    NodeOwner,
    RemoveReason,
    is_replaced,
    replaced_by,
    unexplained_drops,
)
from tierdex.lifecycle.manifest_log import ManifestLog, list_nodes
from tierdex.lifecycle.node_reading import (
    READING_ERRORS,
    NodeReading,
    read_node,
    refuse_absent,
)
from tierdex.lifecycle.retention import KEEP_FOR_EVER, is_hidden
from tierdex.lifecycle.standing import LIVE, UNKNOWN, Standing, standing_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tierdex.clock import Clock
    from tierdex.ids import IdSource
    from tierdex.index_service.readers.page_cache import PageCache
    from tierdex.index_service.readers.sidecar_cache import SidecarCache
    from tierdex.lifecycle.file_table import FileTable
    from tierdex.lifecycle.manifest import FileRef, FileRow
    from tierdex.settings import Settings
    from tierdex.storage_layer.base import Store

logger = logging.getLogger(__name__)

_PASSES_MAX = 4  # each sees what was committed before the one before ended


@dataclass(frozen=True, slots=True)
class Freshness:
    """Up to `until` (ms) every manifest is fresh enough, and hides no entry. And nobody misses a file.

    Everything acknowledged before `as_of` (ms) is in the files then; `unasked` nodes hold what came after.
    To be read before the files are asked, for what it promises, and again after them: a file is named
    as missing before it leaves the table.
    """

    as_of: int
    until: int
    until_s: float
    unasked: tuple[Unasked, ...] = ()


NOT_FRESH = Freshness(0, 0, 0.0)
NOBODY: Final[Mapping[str, int]] = MappingProxyType({})


class LocalFiles(NamedTuple):
    """A node whose unpublished files are in the table, too, as long as `is_of` its newest manifest.

    `read_ms` is when they were last read; None: whenever they are asked, they are as of now.
    """

    node: str
    is_of: Callable[[ManifestState], bool]
    read_ms: Callable[[], int | None]


class TellMissing(Protocol):
    """Hears from a part of the view whether it misses files; see `ManifestFollower.report_missing`."""

    def __call__(self, *, is_missing: bool) -> None: ...


def tell_nobody(*, is_missing: bool) -> None:
    """Begin like this: a part that is in no view yet."""


class ManifestFollower:
    """Follows the manifests of all nodes under the store. Safe to share between threads."""

    def __init__(
        self,
        *,
        settings: Settings,
        clock: Clock,
        ids: IdSource,
        store: Store,
        table: FileTable,
        sidecars: SidecarCache,
        pages: PageCache,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._ids = ids
        self._store = store
        self._table = table
        self._sidecars = sidecars
        self._pages = pages
        self._refreshing = threading.Lock()
        self._lock = threading.Lock()
        self._logs: dict[str, ManifestLog] = {}  # replaced, never changed: read without a lock
        self._shown_ms: dict[
            str, int
        ] = {}  # as of when the table shows a node; replaced, never changed
        self._absent_ms: dict[str, int] = {}  # until when a node was known not to exist
        self._errors: dict[str, Exception] = {}
        self._listing_error: str | None = None
        self._listed_ms = 0
        self._found: frozenset[str] = frozenset()  # by the last listing, or by `read_nodes`
        self._hidden: tuple[Missing, ...] = ()
        self._unexplained: frozenset[FileRef] = frozenset()  # dropped for merges that nobody lists
        self._missing_reporters: set[object] = set()  # who else misses something
        self._local: LocalFiles | None = None
        self._standings: Mapping[
            str, Standing
        ] = {}  # of what the table shows; replaced, never changed
        self._as_of = 0
        self._local_nodes: frozenset[str] = (
            frozenset()
        )  # whose files that are not published are here
        self._unasked: tuple[Unasked, ...] = ()
        self._shown: Mapping[str, ManifestState] = {}  # the states that the table shows
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
                )
                self._logs = {**self._logs, node: log}
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
        """Hear of the node whose own files are in the table, too."""
        self._local = local

    def now_ms(self) -> int:
        return self._clock.now_ms()

    # -- following -------------------------------------------------------------------------------

    @property
    def refresh_interval(self) -> float:
        """Return the seconds between two refreshes."""
        return self._settings.refresh_interval

    def refresh(self, vanished: Sequence[FileHandle] = ()) -> int:
        """Look at every node's manifest now and update the table; return a lower bound of requests.

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
        for node, log in self._logs.items():
            requests += 1
            reading = read_node(log)
            if reading.error is None:
                self._errors.pop(node, None)
            else:
                logger.warning("manifest not read", extra={"node": node, "error": reading.problem})
                self._errors[node] = reading.error
        return requests

    def _lacks_replacements(self) -> bool:
        """Say whether a node has newly dropped a file for a merge that no manifest read so far lists."""
        unexplained = unexplained_drops([log.state for log in self._logs.values()])
        known, self._unexplained = self._unexplained, unexplained
        return not unexplained <= known

    def _list_nodes(self) -> int:
        wanted = self._settings.read_nodes
        before, began_ms = self._listed_ms, self._clock.now_ms()
        try:
            found = wanted if wanted is not None else list_nodes(self._store)
            self._listing_error = None
            self._found = frozenset(found)
            self._listed_ms = began_ms  # a node that came meanwhile may not be in it
        except READING_ERRORS as error:
            logger.warning("nodes not listed", extra={"error": str(error)})
            self._listing_error = str(error)
            found = []
        for node in found:
            if node not in self._logs and wanted is None:
                self._absent_ms[node] = before
            self.log_of(node)
        return 1 if wanted is None else 0

    def _is_known_now(self, node: str) -> bool:
        """Say whether the refresh under way has read the node's manifest, or found that it has none."""
        return node not in self._errors and (node in self._logs or self._listing_error is None)

    def show(self, gone: Iterable[FileHandle] = ()) -> None:
        """Bring the table up to what the logs know, after a commit of our own; take out `gone`."""
        self._show(gone)

    def _show(self, vanished: Iterable[FileHandle]) -> None:
        with self._lock:
            # The files before the manifests: what is shown as published then is listed now, unless
            # it was dropped. The other way round, a file published in between would look dropped.
            with self._table.snapshot() as snapshot:
                shown = {handle.key: handle for handle in snapshot.files}
            # A log may have been read, or committed to, by the owner's claim since: an answer knows only
            # what is in the table. The times before the states, which are then as new or newer.
            known_ms = {node: log.read_ms for node, log in self._logs.items()}
            lives = {node: log.live for node, log in self._logs.items()}
            states = {node: log.state for node, log in self._logs.items()}
            listed = self._listed(states)
            gone = [handle for handle in vanished if shown.get(handle.key) is handle]
            for handle in gone:
                del shown[handle.key]
            hidden: list[Missing] = []
            for key, handle in shown.items():
                if handle.state is not FileState.UPLOADED:
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
                self.handle_of(row, node)
                for (number, node), row in listed.items()
                if (before := shown.get((number, node))) is None or before.uuid != row.uuid
            ]
            if gone or fresh:
                self._table.change(remove=gone, add=fresh)
            self._hidden = tuple(hidden)
            self._shown_ms = known_ms
            adopted = frozenset[NodeOwner]().union(*(state.adopted for state in states.values()))
            self._standings = {
                node: standing_of(state, lives[node], adopted) for node, state in states.items()
            }
            local = self._local
            is_here = local is not None and local.node in states and local.is_of(states[local.node])
            self._local_nodes = frozenset((local.node,) if local is not None and is_here else ())
            self._shown = states
            self._as_of = self._look_how_old()
            self._unasked = self._find_unasked()
            self.freshness = self._freshness()
        for handle in gone:
            if handle.row is not None:
                self._sidecars.forget(handle.uuid)

    def _awaits_replacement(self, handle: FileHandle) -> bool:
        """Say whether a shown file was dropped for a merge that is not known here yet.

        Its object lives on for the grace time: it answers until the merge is shown in its place.
        """
        state = self._logs[handle.node].state
        dropped = state.dropped.get(handle.uuid)
        if dropped is None or dropped.reason is not RemoveReason.REPLACED or handle.row is None:
            return False
        replaced = replaced_by(log.state for log in self._logs.values())
        return not is_replaced(handle.row, handle.node, replaced)

    def report_missing(self, who: object, *, is_missing: bool) -> None:
        """Hear that `who` misses files, or no more; it says so before they leave the table."""
        with self._lock:
            (self._missing_reporters.add if is_missing else self._missing_reporters.discard)(who)
            self.freshness = self._freshness()

    def _freshness(self) -> Freshness:
        """Return how long answers may leave the manifests unasked; the caller holds the lock."""
        known_ms = self._least_known_ms()
        rules = [log.state.retention for log in self._logs.values()]
        if (
            self._missing_reporters
            or self._hidden
            or known_ms == 0
            or any(rule != KEEP_FOR_EVER for rule in rules)
        ):
            return NOT_FRESH
        until = known_ms + round(self._settings.max_staleness * 1000)
        return Freshness(self._as_of, until, until / 1000, self._unasked)

    def _look_how_old(self, answered: Mapping[str, int] = NOBODY) -> int:
        """Return the time (ms) before which everything acknowledged is in what the table shows now.

        Nodes that nobody knows of when they were listed are none that acknowledged anything before. Of a
        node with local files these answer for what is not published; they lie here or were read before.
        """
        times = [self._listed_ms] if self._settings.read_nodes is None else []
        for node, log in self._logs.items():
            standing = self._standings.get(node)
            asked_ms = answered.get(node)
            times.append(self._known_ms(log) if asked_ms is None else asked_ms)
            if standing is None:
                continue
            if node in self._local_nodes and self._local is not None:
                times += [
                    ms for ms in (self._local.read_ms(), standing.lost_through) if ms is not None
                ]
            elif asked_ms is not None:
                times += [ms for ms in (standing.lost_through,) if ms is not None]
            elif standing.bound is not None:
                times.append(standing.bound)
        return min(times, default=self._clock.now_ms())

    def _listed(self, states: Mapping[str, ManifestState]) -> dict[tuple[int, str], FileRow]:
        """Return every row that readers see, by file number and node."""
        replaced = replaced_by(states.values())
        return {
            (row.number, node): row
            for node, state in states.items()
            for row in state.index_files.values()
            if not is_replaced(row, node, replaced)
        }

    def reader_of(self, row: FileRow, node: str) -> PublishedFile:
        return PublishedFile(
            row, node, self._store, self._sidecars, self._pages, self._settings.max_get_bytes
        )

    def handle_of(self, row: FileRow, node: str) -> FileHandle:
        return FileHandle.of_row(row, node, self.reader_of(row, node))

    # -- what answers say ------------------------------------------------------------------------

    @property
    def is_overdue(self) -> bool:
        """Say whether a manifest is older than `max_staleness` though nothing failed at it."""
        if self._listing_error is not None:
            return False
        oldest = self._oldest_ms()
        return any(
            self._known_ms(log) < oldest and node not in self._errors
            for node, log in self._logs.items()
        )

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

    def _reading(self, node: str) -> NodeReading:
        """Return what the last refresh found of a node, with what was committed since."""
        return NodeReading(node, self.state_of(node), self._errors.get(node))

    def describe(self) -> list[NodeInfo]:
        """Return every node as of the last refresh, by name; one that cannot be read has a problem.

        When nodes cannot be listed, a row without a name says so: others may be there.
        """
        shown = []
        if self._listing_error is not None:
            problem = f"nodes cannot be listed: {self._listing_error}"
            shown.append(NodeInfo("", 0, 0, problem, UNKNOWN))
        for node, log in sorted(self._logs.items()):
            if log.state.number or node in self._found or node in self._errors:
                reading = self._reading(node)
                shown.append(self._describe(reading))
        return shown

    def _describe(self, reading: NodeReading) -> NodeInfo:
        node, state = reading.node, reading.state
        standing = self._standings.get(node) or Standing(node, UNKNOWN, None)
        now_ms, is_local = self._clock.now_ms(), node in self._local_nodes
        through = standing.bound
        if is_local or (through is None and standing.standing != UNKNOWN):
            through = self._shown_ms.get(node) if standing.lost_through is None else through
        return NodeInfo(
            node=node,
            number=state.number,
            files=len(state.files),
            problem=reading.problem,
            standing=standing.at(now_ms),
            published_through=through,
            lag_s=None if through is None else max(0, now_ms - through) / 1000,
            skew_s=None if standing.skew_ms is None else standing.skew_ms / 1000,
            holds_unpublished=standing.holds_unpublished,
            url=standing.advertise_url,
        )

    def refuse_absent(self) -> None:
        """Raise NotFoundError when the last refresh found that there is nothing to read."""
        if self._listing_error is None:
            readings = [self._reading(node) for node in self._logs]
            refuse_absent(readings, self._store.url, self._settings.read_nodes)

    def live_peers(self) -> list[OwnerAddress]:
        """Return the live owners of other nodes that say where they serve, as of what the table shows."""
        now_ms, states = self._clock.now_ms(), self._shown
        return [
            OwnerAddress(
                node,
                states[node].epoch,
                states[node].owner.hex(),
                states[node].number,
                standing.advertise_url,
            )
            for node, standing in sorted(self._standings.items())
            if standing.advertise_url is not None
            and standing.at(now_ms) == LIVE
            and node not in self._local_nodes
        ]

    def as_of_with(self, answered: Mapping[str, int]) -> int:
        """Return `as_of` of an answer to which owners of nodes added what they have, asked then (ms)."""
        return self._look_how_old(answered)

    def as_of(self) -> int:
        """Return the time (ms) before which everything acknowledged anywhere is in what the table shows.

        Nodes of programs that never said how far they have published are left out: see `unasked`.
        """
        return self._as_of

    def unasked(self, answered: Mapping[str, int] = NOBODY) -> tuple[Unasked, ...]:
        """Return the nodes that hold entries which are not published, for all that is known, by name.

        Of a node that `answered` itself only what a lost folder held is out of reach.
        """
        if not answered:
            return self._unasked
        standings = self._standings
        return tuple(
            each
            for each in self._unasked
            if each.node not in answered
            or ((known := standings.get(each.node)) and known.lost_through is not None)
        )

    def _find_unasked(self) -> tuple[Unasked, ...]:
        return tuple(
            Unasked(node, standing.at(self._clock.now_ms()), standing.bound)
            for node, standing in sorted(self._standings.items())
            if self._may_hold_unpublished(standing)
        )

    def _may_hold_unpublished(self, standing: Standing) -> bool:
        if standing.node in self._local_nodes:
            return standing.lost_through is not None
        if standing.at(self._clock.now_ms()) == LIVE:
            return standing.holds_unpublished
        return standing.bound is not None or standing.standing == UNKNOWN

    def older_than(
        self, fresh_within_s: float, answered: Mapping[str, int] = NOBODY
    ) -> list[Missing]:
        """Return the nodes because of which answers are older than so many seconds, for all that is known."""
        oldest = self._clock.now_ms() - round(fresh_within_s * 1000)
        found = []
        if self._settings.read_nodes is None and self._listed_ms < oldest:
            found.append(Missing("store", "nodes were not listed lately"))
        for node, log in sorted(self._logs.items()):
            standing = self._standings.get(node)
            reason = None
            if node in answered and (standing is None or standing.lost_through is None):
                continue
            if standing is None or self._known_ms(log) < oldest:
                reason = "manifest not read lately"
            elif node not in self._local_nodes or (standing.lost_through or oldest) < oldest:
                reason = _why_older(standing, oldest)
            if reason is not None:
                found.append(Missing(f"node:{node}", reason))
        return found

    def read_ms(self) -> int:
        """Return when (ms) what answers are made of was last read: manifests, the list of nodes, a folder."""
        times = [self._least_known_ms()]
        if self._settings.read_nodes is None:
            times.append(self._listed_ms)
        if self._local is not None and (folder_ms := self._local.read_ms()) is not None:
            times.append(folder_ms)
        return min(times)

    def _least_known_ms(self) -> int:
        """Return the time (ms) up to which every node's manifest is known; now without a node."""
        return min(
            (self._known_ms(log) for log in self._logs.values()),
            default=self._listed_ms or self._clock.now_ms(),
        )

    def _oldest_ms(self) -> int:
        return self._clock.now_ms() - round(self._settings.max_staleness * 1000)

    def _known_ms(self, log: ManifestLog) -> int:
        """Return until when a node is known: its files are shown, or the node did not exist yet."""
        return self._shown_ms.get(log.node, 0) or self._absent_ms.get(log.node, 0)

    def hides(self, handle: FileHandle, topic: str) -> bool:
        """Say whether the topic's own retention, counted from the file's sealing, has passed."""
        if handle.sealed_at_ms is None or (log := self._logs.get(handle.node)) is None:
            return False
        return is_hidden(log.state.retention, topic, handle.sealed_at_ms, self._clock.now_ms())


def _why_older(standing: Standing, oldest: int) -> str | None:
    """Return why a node's answer may be older than `oldest` (ms), None when it is not."""
    if standing.standing == UNKNOWN:
        return "never said how far it has published: a program of before"
    if not standing.is_proven():
        return "its clock was never compared with the store's"
    if standing.bound is None or standing.bound >= oldest:
        return None
    behind_s = (oldest - standing.bound) / 1000
    return f"has published what is {behind_s:.0f} s older than asked for; it was not asked itself"
