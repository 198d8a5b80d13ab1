"""The index of a log that another process writes, and the messages that it lacks so far.

::

    index    | batch, source | batch, source |      looked at anew for every question
    log      | batch | batch | batch | batch | batch |
                                     `---- walked here: its keys are compared by hash, in memory

A writer dispatches within moments; after a crash it does so when it is opened next. What it did not yet
would look absent, so it is found here. Depends on answer, dispatcher, errors, index_service,
indexfile, lifecycle, log_index, published_note and reads.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tierdex.errors import CorruptFileError, InvalidRequestError, TierdexError
from tierdex.index_service.index import Index
from tierdex.index_service.opening.folder_owner import Claiming
from tierdex.index_service.opening.open import open_components
from tierdex.indexfile.hashing import key_hash, message_id_hash
from tierdex.indexfile.layout import KIND_KEY, KIND_MESSAGE_ID
from tierdex.lifecycle.paths import LOG_FOLDER
from tierdex.log_service.answer import MissingMessages
from tierdex.log_service.keys.dispatcher import Dispatcher
from tierdex.log_service.keys.log_index import NOT_KNOWN, source_of
from tierdex.log_service.notes.published_note import PublishedNote, read_indexed
from tierdex.log_service.read.reads import QueuePosition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tierdex.index_service.opening.open_view import View
    from tierdex.index_service.view.node_ages import NodeAges
    from tierdex.index_service.view.published_view import PublishedView
    from tierdex.indexfile.columns import ItemColumns
    from tierdex.indexfile.source import Source
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.log_service.files.tier import Tier
    from tierdex.log_service.keys.key_lookups import Lookup
    from tierdex.seams import Seams
    from tierdex.settings import Settings
    from tierdex.storage_layer.base import Store

TAKEN = "another owner has the node: what it published is not this folder's"
_TAIL_ITEMS_MAX = 4_000_000  # that are held in memory: 150 MB


class FollowedIndex:
    """Answers keys for a log that was opened for reading. Safe to share between threads."""

    def __init__(
        self, data: Path | None, store: str | Store | None, settings: Settings, seams: Seams, tier: Tier
    ) -> None:  # fmt: skip
        """Open the index read-only; `tier` shows what is published. NotFoundError where there is none."""
        self._tier = tier
        self._components = open_components(
            data, store, None, settings=settings, seams=seams,
            claiming=Claiming(),
            shelf_of=self._bind,
        )  # fmt: skip
        self.index = Index(self._components)
        self.node = settings.node
        self._lock = threading.Lock()
        self._tail: list[tuple[list[ItemColumns], Source]] = []  # oldest first
        self._root = Path() if data is None else data / LOG_FOLDER
        self._filesystem = seams.filesystem
        self._dispatcher: Dispatcher | None = None  # made by the first question

    def lag(self) -> MissingMessages | None:
        """Read index and log again; return why some written messages are not known here."""
        with self._lock:
            self._look()
            try:
                try:
                    self._catch_up()
                except TierdexError:
                    # The file that was walked may have been merged into another one meanwhile: anew, once.
                    self._dispatcher, self._tail = None, []
                    self._look()
                    self._catch_up()
            except TierdexError as error:
                return MissingMessages("index", f"messages are not indexed yet: {error}")
        return None

    def _catch_up(self) -> None:
        known = self._known()  # before the log is read: what follows covers the rest
        if self._dispatcher is None:
            behind = self._note().number_before(known)
            self._dispatcher = Dispatcher(
                self._tier.table, self.node, self._hold, known, behind=behind
            )
        self._dispatcher.catch_up()
        self._tail = self._behind(known)

    @property
    def ages(self) -> NodeAges:
        """What is known of the log's node now."""
        return self._components.read_view.ages.of_node(self.node)

    def unindexed(self, lookup: Lookup) -> list[QueuePosition]:
        """Return where messages lie that the index may not have, newest first, by their key's hash."""
        if lookup.message_id is not None:
            kind, wanted = KIND_MESSAGE_ID, message_id_hash(lookup.message_id)
        else:
            assert lookup.topic is not None
            assert lookup.key is not None
            kind, wanted = KIND_KEY, key_hash(lookup.topic, lookup.key)
        with self._lock:
            return [
                place
                for items, _ in reversed(self._tail)
                for each in reversed(items)
                if each.kind == kind
                for place in _places(each, wanted, lookup)
            ]

    def show_published(self, gone: list[FileHandle]) -> None:
        """Show what manifests list; take out files that are gone, as far as these could be read."""
        self._manifests.refresh(gone)

    def close(self) -> None:
        self.index.close()

    # -- private ------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Read the index's files again."""
        self.index.refresh()

    def _known(self) -> Source | None:
        """Return up to where the index has everything, as its files say, or the note of published ones."""
        return source_of(self._components) or read_indexed(self._filesystem, self._root)

    def _note(self) -> PublishedNote:
        """Return which files are published; none where that does not verify: they are walked then."""
        with suppress(CorruptFileError):
            return PublishedNote.read(self._filesystem, self._root) or PublishedNote()
        return PublishedNote()

    def _bind(self, view: View) -> PublishedView:
        self._manifests = view.manifests
        self._tier.unknown = self._unknown
        return self._tier.bind(view.store)

    def _unknown(self) -> str | None:
        """Return why the owner's published files are not in the table: the store was not reached yet."""
        if self._manifests.is_taken:
            return TAKEN
        return None if self._manifests.state_of(self.node).number else NOT_KNOWN

    def _hold(self, items: list[ItemColumns], source: Source) -> None:
        held = sum(each.row_count for piece, _ in self._tail for each in piece)
        if held > _TAIL_ITEMS_MAX:
            raise InvalidRequestError(
                "too much of the log is not indexed: open it for writing once", field="key"
            )
        self._tail.append((items, source))

    def _behind(self, known: Source | None) -> list[tuple[list[ItemColumns], Source]]:
        """Return the pieces that the index has not got, `known` being where it ends."""
        if known is None:
            return self._tail
        for place in reversed(range(len(self._tail))):
            source = self._tail[place][1]
            if source.uuid == known.uuid and source.batch_count <= known.batch_count:
                return self._tail[place + 1 :]
        return self._tail


def _places(items: ItemColumns, wanted: int, lookup: Lookup) -> Iterator[QueuePosition]:
    """Yield where the items of one hash lie, newest first."""
    assert items.hashes is not None
    for row in reversed(np.flatnonzero(items.hashes == np.uint64(wanted)).tolist()):
        time = int(items.timestamp[row])
        if lookup.begin is not None and time < lookup.begin:
            continue
        if lookup.end is not None and time > lookup.end:
            continue
        topic = items.topic_list[0 if items.topic_index is None else int(items.topic_index[row])]
        if lookup.topic in (None, topic):
            queue_id, offset = items.fields["queue_id"][row], items.fields["offset"][row]
            yield QueuePosition(topic, int(queue_id), int(offset))
