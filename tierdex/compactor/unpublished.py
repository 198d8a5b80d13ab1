"""The time before which everything that this process acknowledged is published.

::

    put --> waits in memory --> a local file --> listed in the manifest        the way of an entry
              1 read first      2 read next      3 known before                the way of a look

Beside a message log an entry is a message first, in the log's files, whose table is read before.

A *look* takes the time first and then reads the places along the way of entries. An entry
acknowledged before that time is in one of the places, since it was there before it was
acknowledged, and it can only have moved to a place that is read later, or be listed. So a look that
finds nothing proves its own time. A look that finds a file proves the time of the look before,
which had not found it: everything in the file was acknowledged after that. A look delays no put and
takes no lock of puts.

A file counts until the manifest lists it with all its items, in every state: sealed, compacted,
renumbered, in quarantine. A file that an operator removes from quarantine is given up and counts no
more.

Invariant: `_since` is at or before the acknowledgement of every entry that is not listed and in no
file of `_found`. Times are the owner's, int64 ms.

Depends on lifecycle.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, NamedTuple

from tierdex.lifecycle.nodes.owner_record import Published

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.lifecycle.manifests.manifest import ManifestState
    from tierdex.lifecycle.store_time import StoreTime
    from tierdex.lifecycle.table.file_table import FileTable


_ANY_ITEMS: Final = 1 << 63  # of a file that could not be read


class _Found(NamedTuple):
    """A file that holds unlisted entries, and a time before all of them."""

    number: int
    items: int
    since: int


class UnpublishedFiles:
    """The unpublished entries of a data folder's owner. Safe to share between threads."""

    def __init__(self, tables: Sequence[FileTable], node: str, time: StoreTime) -> None:
        """`tables` are along the way of an entry: the log's, if there is one, then the index's."""
        self._tables = tables
        self._node = node
        self._time = time
        self._lock = threading.Lock()
        self._has_received: Callable[[], bool] | None = None  # None: the folder is not open yet
        self._quarantined: Callable[[], Collection[int]] = tuple
        self._began = Published(0, holds_unpublished=True)
        self._through = 0
        self._since = 0
        self._found: dict[bytes, _Found] = {}

    def watch(
        self, has_received: Callable[[], bool], quarantined: Callable[[], Collection[int]]
    ) -> None:
        """Begin scans: the table shows the folder. `has_received`: do entries wait in memory?"""
        with self._lock:
            self._quarantined = quarantined
            self._has_received = has_received

    def begin(self, through: int, *, holds_unpublished: bool) -> None:
        """Begin at the end of the folder's past: its entries were acknowledged after `through`."""
        with self._lock:
            self._began = Published(through, holds_unpublished)
            self._through = self._since = through
            self._found = {}

    def look(self, state: ManifestState, added: Sequence[FileRow] = ()) -> Published:
        """Return how far all is published once `state`, with the rows `added`, is committed. No I/O.

        The result is remembered without `added`, since their commit may fail.
        """
        with self._lock:
            if self._has_received is None:
                return self._began
            now = self._time.now_ms()
            has_received = self._has_received()
            self._found = self._look_at_files(state)
            if not has_received:
                self._since = now
            # Never back: each file counts from a look, and what was said then holds for ever.
            self._through = max(self._through, self._oldest(self._found))
            items = {row.uuid: row.item_count for row in added}
            left = {u: each for u, each in self._found.items() if each.items > items.get(u, -1)}
            through = max(self._through, self._oldest(left))
            return Published(through, has_received or bool(left))

    def _oldest(self, found: Mapping[bytes, _Found]) -> int:
        return min([self._since, *(each.since for each in found.values())])

    def _look_at_files(self, state: ManifestState) -> dict[bytes, _Found]:
        """Return the files that hold what is not listed: those of the table, then those in quarantine."""
        found: dict[bytes, _Found] = {}
        for table in self._tables:
            with table.snapshot() as snapshot:
                for handle in snapshot.file_list.local():
                    items = handle.item_count
                    is_ours = handle.node == self._node and items
                    if not is_ours or _is_listed(state, handle.uuid, items):
                        continue
                    before = self._found.get(handle.uuid)
                    since = self._since if before is None else before.since
                    found[handle.uuid] = _Found(handle.number, items, since)
        # After the tables: a file is named here before it leaves it.
        for number in self._quarantined():
            of_number = ((u, each) for u, each in self._found.items() if each.number == number)
            known = {u: each for u, each in of_number if each.items != _ANY_ITEMS}
            if known:
                found |= {
                    u: each for u, each in known.items() if not _is_listed(state, u, each.items)
                }
            elif not state.lists_number(number):
                key = b"quarantined %d" % number
                found[key] = self._found.get(key) or self._of_quarantine(number, found)
        return found

    def _of_quarantine(self, number: int, found: Mapping[bytes, _Found]) -> _Found:
        """Return a file that was found like that, or was renumbered since the look before.

        Nothing that has gone from the table since was acknowledged before the time that it had there.
        """
        gone = (each.since for uuid, each in self._found.items() if uuid not in found)
        return _Found(number, _ANY_ITEMS, min([self._since, *gone]))


def _is_listed(state: ManifestState, uuid: bytes, items: int) -> bool:
    """Return whether the manifest lists, or did list, a file with all of its items."""
    row = state.files.get(uuid)
    return state.knows(uuid) if row is None else row.item_count >= items
