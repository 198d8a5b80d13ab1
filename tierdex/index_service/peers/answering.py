"""Answers a reader elsewhere from this process's unpublished files. It asks no other peer.

::

    received puts written -> snapshot of the local files -> the manifest's number -> search

The number is read after the snapshot. A file leaves the local ones only after it was listed: if nothing was
listed since the number that the reader names, whatever is not listed there is in the snapshot. Else the
reader is told to read the manifest first.

Depends on messages, readers, indexfile and errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tierdex.errors import CorruptFileError, OwnershipError, TierdexError, reason_of, without_places
from tierdex.index_service.peers.messages import Owner, PeerAnswer, PeerFile
from tierdex.index_service.readers.file_reader import Budget, FileMeter, FileSearch
from tierdex.index_service.readers.local_file import query_reader
from tierdex.indexfile.layout import TOPIC_MASK
from tierdex.indexfile.lookup import DONE
from tierdex.indexfile.schema import TOPIC_DICTIONARY

if TYPE_CHECKING:
    from tierdex.compactor.claim import NodeClaim
    from tierdex.index_service.ingest.writer import Writer
    from tierdex.index_service.peers.messages import Question
    from tierdex.index_service.view.read_view import ReadView
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.lifecycle.table.file_table import FileTable
    from tierdex.settings import Settings

_LEAST_ITEMS: Final = 256  # that each lookup may look at in a file


class UnpublishedEntries:
    """Answers from the local files of the node that this process owns. Safe to share between threads."""

    def __init__(
        self,
        settings: Settings,
        table: FileTable,
        read_view: ReadView,
        writer: Writer,
        claim: NodeClaim,
    ) -> None:
        self._settings = settings
        self._table = table
        self._read_view = read_view
        self._writer = writer
        self._claim = claim

    def answer(self, question: Question) -> PeerAnswer:
        """Answer from what is here. Raises OwnershipError when the node is not ours, or not any more."""
        self._writer.show_buffered()
        with self._table.snapshot() as snapshot:
            handles = [
                handle
                for handle in snapshot.file_list.local()
                if handle.node == self._settings.node and handle.item_count
            ]
            given_by = self._owner()  # after the snapshot: see the module's page
            asked = question.asked
            if (given_by.node, given_by.epoch, given_by.owner) != (
                asked.node,
                asked.epoch,
                asked.owner,
            ):
                raise OwnershipError(f"this is epoch {given_by.epoch} of node {given_by.node}")
            if given_by.number > asked.number:
                return PeerAnswer(given_by, refresh_to=given_by.number)
            missing = [(m.file, without_places(m.reason)) for m in self._read_view.missing_here()]
            files = []
            for handle in reversed(handles):
                try:
                    files.append(self._search(handle, question, len(handles)))
                except (TierdexError, OSError) as error:
                    missing.append((handle.file_id, reason_of(error)))
        return PeerAnswer(
            given_by, [file for file in files if len(file.lookups) or file.cut], missing
        )

    def _owner(self) -> Owner:
        node = self._claim.get() if self._claim.is_claimed else None
        if node is None or not node.owns(node.state):
            raise OwnershipError(f"node {self._settings.node} is not owned here")
        state = node.state
        return Owner(state.node, state.epoch, state.owner.hex(), state.number)

    def _search(self, handle: FileHandle, question: Question, files: int) -> PeerFile:
        lookups = question.lookups
        share = self._settings.query_max_items // max(1, lookups.count * files)
        limits = np.full(lookups.count, question.limit, np.int64)
        wanted = np.arange(lookups.count)
        search = FileSearch(lookups, wanted, limits, None, max(_LEAST_ITEMS, share))
        budget = Budget(requests=0, items=self._settings.query_max_items)
        answer = query_reader(handle.reader).search(search, FileMeter(budget))
        if not answer.schema.is_message:
            raise CorruptFileError(handle.file_id, "locations of another schema: not published yet")
        rows = answer.found.rows
        numbers = np.repeat(answer.wanted, np.diff(answer.found.offsets))
        order = np.argsort(numbers, kind="stable")
        rows, numbers = rows[order], numbers[order]
        names = answer.dictionaries.strings(TOPIC_DICTIONARY)
        cut = answer.wanted[answer.found.following != DONE]
        return PeerFile(
            handle.number,
            handle.uuid,
            handle.state.value,
            handle.min_time,
            handle.max_time,
            numbers,
            answer.found.places[order],
            [names[tag] for tag in (rows["tag"] & np.uint32(TOPIC_MASK)).tolist()],
            {n: np.ascontiguousarray(rows[n]) for n in ("queue_id", "offset", "size", "timestamp")},
            frozenset(cut.tolist()),
        )
