"""Searches every file that may hold entries of a request to forget.

::

    bounds    the last file of each node that grows no more       files up to there are searched
    waiting   nodes that may hold more: not published, not rolled, not readable
    unseen    nodes whose files within the bounds are in a folder that is not seen here

Depends on forgotten_search, receipt, answer, view, lifecycle and errors.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from operator import is_
from typing import TYPE_CHECKING, Final, NamedTuple

from tierdex.errors import InvalidRequestError, UnavailableError
from tierdex.index_service.answer import Missing
from tierdex.index_service.forget.forgotten_search import (
    Occurrences,
    search_all,
    search_sources,
    union,
)
from tierdex.index_service.forget.receipt import RewrittenFile, holder_of
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.manifests.file_row import FileRef
from tierdex.lifecycle.manifests.forgotten import ENTRY, Forgetting
from tierdex.lifecycle.paths import make_file_id

if TYPE_CHECKING:
    from tierdex.index_service.ingest.writer import Writer
    from tierdex.index_service.view.node_ages import NodeAges
    from tierdex.index_service.view.read_view import ReadView
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.lifecycle.table.file_table import FileList, FileTable

ENTRIES_MAX: Final = 1_000_000  # of one request: a record is 32 bytes of manifest an entry


class ScanResult(NamedTuple):
    """What one scan of everything found for a record."""

    ages: NodeAges
    found: Occurrences
    bounds: dict[str, int]  # the last file of each node that was looked at
    waiting: list[tuple[str, Missing]]  # nodes that may hold more

    def unseen(self, record: Forgetting) -> list[str]:
        """Return the nodes of which files within a record's bounds may be in a folder that we do not see.

        Their owner has rolled and not published them: it hides the entries; no other node can tell.
        """
        return [
            node
            for node, bound in {**record.bounds, **self.bounds}.items()
            if node not in self.ages.local and self._hides(node, bound)
        ]

    def rewritten(self, record: Forgetting) -> list[RewrittenFile]:
        """Return the files of a record that hold its entries no more, each with what came in its place."""
        held = {f.handle.uuid for f in self.found.holding}
        return [
            RewrittenFile(
                make_file_id(ref.number, ref.node), ref.node, ref.uuid.hex(),
                holder_of(ref.uuid, self.ages.states),
            )
            for ref in record.files
            if ref.uuid not in held
        ]  # fmt: skip

    def advance(self, record: Forgetting) -> Forgetting:
        """Return the record with what was found. The bound of a node that waits no more stays."""
        fixed = fixed_bounds(record)
        waits = {node for node, _ in self.waiting if node not in fixed}
        refs = {
            FileRef(f.handle.node, f.handle.uuid, f.handle.number) for f in self.found.holding
        }.union(record.files)
        return replace(
            record,
            waits=tuple(sorted(waits)),
            entries=union(record.entries, self.found.packed()),
            bounds=self.bounds,
            files=tuple(sorted(refs)),
        )

    def _hides(self, node: str, bound: int) -> bool:
        state, standing = self.ages.states.get(node), self.ages.standings.get(node)
        if state is None or standing is None:
            return True
        return state.highest_number < bound and standing.bound is not None


class RequestScan:
    """Scans files for the entries of requests. Safe to share between threads."""

    def __init__(self, table: FileTable, read_view: ReadView, writer: Writer | None) -> None:
        self._table = table
        self._read_view = read_view
        self._writer = writer
        self._holds: dict[tuple[bytes, int, bytes], bool] = {}  # record, its number, published file

    def scan(self, record: Forgetting) -> ScanResult:
        """Search every file that may hold what was put before the record for its entries."""
        ages = self._read_view.ages  # before the files: these are as new, or newer
        with self._table.snapshot() as snapshot:
            handles = list(snapshot.file_list)
            bounds, waiting = self._bounds(record, ages, handles)
            fixed = fixed_bounds(record)
            waiting = [(node, missing) for node, missing in waiting if node not in fixed]
            limits = {**bounds, **fixed}
            if record.bounds and not record.is_open:
                limits = dict(record.bounds)  # no node that came since held any of it
            within = replace(record, bounds=limits)
            grows = record.is_open or not record.number
            if record.sources:
                found = search_sources(
                    snapshot.file_list,
                    record.sources,
                    lambda handle: (
                        within.may_find_in(handle.place) and not within.is_left_out_of(handle.place)
                    ),
                )
            else:
                found = search_all(
                    snapshot.file_list,
                    record,
                    lambda handle: within.may_be_in(handle.place),
                    lambda handle: grows and within.may_find_in(handle.place),
                )
        waiting += [(handle.node, missing) for handle, missing in found.missing]
        if sum(len(file.packed) for file in found.holding) > ENTRIES_MAX * ENTRY.itemsize:
            raise InvalidRequestError(
                f"more than {ENTRIES_MAX:,} entries: forget fewer keys at a time", field="lookups"
            )
        return ScanResult(ages, found, limits, waiting)

    def _bounds(
        self, record: Forgetting, ages: NodeAges, handles: list[FileHandle]
    ) -> tuple[dict[str, int], list[tuple[str, Missing]]]:
        """Return the last file of each node that grows no more, and the nodes that may hold more."""
        older = ages.older_than(record.time_ms)
        for missing in older:
            if not missing.file.startswith("node:"):  # the nodes are not known
                raise UnavailableError(f"{missing.file}: {missing.reason}; try again")
        waiting = [(missing.file.removeprefix("node:"), missing) for missing in older]
        bounds = {node: state.highest_number for node, state in ages.states.items()}
        active = None if self._writer is None else self._writer.active
        for handle in handles:
            if handle.row is not None:
                # Perhaps published since the manifests were read: it was looked at all the same.
                bounds[handle.node] = max(bounds.get(handle.node, 0), handle.number)
                continue
            if handle.node not in ages.local:
                continue
            if active is not None and handle.key == active.key:
                continue  # ours, begun after the roll
            if handle.state is FileState.UNSEALED:  # its owner may go on with it, perhaps restarted
                if handle.item_count and handle.begin_ms <= record.time_ms:
                    reason = f"{handle.file_id} began before: its owner has not sealed it yet"
                    waiting.append((handle.node, Missing(f"node:{handle.node}", reason)))
                continue
            bounds[handle.node] = max(bounds.get(handle.node, 0), handle.number)
        if record.only_node is not None:
            meant = record.only_node
            bounds = {node: bound for node, bound in bounds.items() if node == meant}
            waiting = [(node, missing) for node, missing in waiting if node == meant]
        return bounds, waiting

    def holding(self, record: Forgetting) -> list[FileHandle]:
        """Return the files that hold some of a record's entries, or cannot be read, newest first.

        What a published file holds is remembered: it never changes, and a record at a number neither.
        """
        holding = []
        with self._table.snapshot() as snapshot:
            for handle in snapshot.file_list:
                if not record.may_be_in(handle.place):
                    continue
                key = record.uuid, record.number, handle.uuid
                holds = None if handle.row is None else self._holds.get(key)
                if holds is None:
                    found = _search_one(snapshot.file_list, record, handle)
                    holds = bool(found.holding)
                    if handle.row is not None and not found.missing:
                        self._holds[key] = holds
                    holds |= bool(found.missing)
                if holds:
                    holding.append(handle)
        return holding


def _search_one(files: FileList, record: Forgetting, handle: FileHandle) -> Occurrences:
    one, nothing = partial(is_, handle), lambda _: False
    if record.sources:
        is_clean = record.is_left_out_of(handle.place)
        return Occurrences() if is_clean else search_sources(files, record.sources, one)
    return search_all(files, record, one, nothing)


def fixed_bounds(record: Forgetting) -> dict[str, int]:
    """Return the bounds of the nodes that wait no more."""
    return {node: bound for node, bound in record.bounds.items() if node not in record.waits}
