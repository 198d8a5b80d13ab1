"""A log that is read from the store alone: what its node has published.

::

    manifests --rows of kind `log`--> the log's table    no request a file; its sidecar at its first use
              --row of kind `notes`--> what is gone      one request, when it was replaced
              --rows of the index--> `get`               what the published index lacks is walked

Nothing is written anywhere. What the owner has not published yet is not here: `end_offset` is that of the
published part. Manifests are looked at anew every `refresh_interval`.

Depends on errors, lifecycle and the rest of log_service.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tierdex.errors import (
    CorruptFileError,
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
)
from tierdex.lifecycle.manifests.file_row import LOG_KIND, NOTES_KIND
from tierdex.lifecycle.table.file_table import FileTable
from tierdex.log_service.answer import MissingMessages
from tierdex.log_service.files.log_row import LogRowMore
from tierdex.log_service.files.tier import Tier
from tierdex.log_service.keys.followed_index import FollowedIndex
from tierdex.log_service.keys.log_index import published_source
from tierdex.log_service.log_components import LogComponents
from tierdex.log_service.log_options import LogOptions
from tierdex.log_service.notes.carried_notes import fetch_notes, row_of_notes
from tierdex.log_service.notes.published_note import NotedFile, PublishedNote
from tierdex.log_service.notes.stored_notes import StoredNotes
from tierdex.log_service.read.reads import LogReads
from tierdex.log_service.read.tail_reads import TailReads

if TYPE_CHECKING:
    from tierdex.indexfile.source import Source
    from tierdex.lifecycle.manifests.manifest import ManifestState
    from tierdex.seams import Seams
    from tierdex.settings import Settings
    from tierdex.storage_layer.base import Store


class MountedIndex(FollowedIndex):
    """The published index of the log's node, and the manifests that both are listed in."""

    @property
    def state(self) -> ManifestState:
        """What the node's manifest said when it was read last."""
        return self._manifests.state_of(self.node)

    def nodes_with_logs(self) -> list[str]:
        """Return the nodes of the store that have published a log."""
        states = self._manifests.ages.states
        return sorted(
            n
            for n, state in states.items()
            if state.files_of(LOG_KIND) or state.files_of(NOTES_KIND)
        )

    def overdue(self) -> list[MissingMessages]:
        """Return what of the manifests is not known as newly as `max_staleness` asks for."""
        return [MissingMessages(each.file, each.reason) for each in self._manifests.missing()]

    def refuse_unread(self) -> None:
        """Raise UnavailableError, CorruptFileError while some node may be there that is not known."""
        unread = self._manifests.unread()
        if unread:
            raise UnavailableError(f"the logs of the store are not known: {unread[0]}")
        for each in self._manifests.damaged():
            raise CorruptFileError(each.file, each.reason)

    def _look(self) -> None:
        """Leave it to the log's own look at the manifests."""

    def _known(self) -> Source | None:
        return published_source(self._components, self.node)

    def _note(self) -> PublishedNote:
        files = {}
        for row in self.state.files_of(LOG_KIND).values():
            noted = NotedFile(row.number, LogRowMore.of(row).end)
            files.update(dict.fromkeys((row.uuid, *(part.uuid for part in row.parts)), noted))
        return PublishedNote(files=files)


class CarriedGone(StoredNotes):
    """What is gone, as the owner's notes in the store and the manifest's rules of retention say."""

    def __init__(self, seams: Seams, index: MountedIndex, tier: Tier) -> None:
        """Raises what the store raises."""
        self._index = index
        self._tier = tier
        self._last: bytes | None = None  # uuid of the notes that were read last
        super().__init__(seams)

    def refresh(self) -> None:
        """Read them anew if they were replaced. Raises CorruptFileError, and what the store raises."""
        state = self._index.state
        row = row_of_notes(state)
        if row is not None and row.uuid != self._last:
            self.read(fetch_notes(self._tier.store, row))
            self._last = row.uuid
        if self.current.rules != state.retention:
            self.current = replace(self.current, rules=state.retention)


class StoreFollower:
    """Looks at the manifests anew (`log_components.Follower`)."""

    is_quick = False

    def __init__(self, index: MountedIndex, gone: CarriedGone, every_s: float) -> None:
        self.every_s = every_s
        self._index = index
        self._gone = gone

    @property
    def unread(self) -> list[MissingMessages]:
        return self._index.overdue()

    def refresh(self) -> None:
        """Raises what the store raises for the notes of the log; manifests are named where they are old."""
        self._index.index.refresh()
        self._gone.refresh()


def mount_log(store: str | Store, settings: Settings, seams: Seams) -> LogComponents:
    """Return the components of a log whose node is `settings.node`, else the only one of the store.

    Raises NotFoundError without one, InvalidRequestError where several are, UnavailableError and
    CorruptFileError where not every manifest that tells so can be read, and what the store raises.
    """
    settings = settings.model_copy(update={"read_only": True})
    tier, index = _mount(store, settings, seams)
    try:
        nodes = index.nodes_with_logs()
        if "node" in settings.model_fields_set:
            nodes = [node for node in nodes if node == settings.node]
        elif len(nodes) == 1:
            index.refuse_unread()  # it may not be the only one
        if not nodes:
            index.refuse_unread()
            raise NotFoundError("no message log is published there: are store and node right?")
        if len(nodes) > 1:
            raise InvalidRequestError(f"is one of {', '.join(nodes)}: say which", field="node")
        if nodes[0] != settings.node:
            index.close()
            tier.close()
            settings = settings.model_copy(update={"node": nodes[0]})
            tier, index = _mount(store, settings, seams)
        gone = CarriedGone(seams, index, tier)
    except BaseException:
        index.close()
        tier.close()
        raise
    follower = StoreFollower(index, gone, settings.refresh_interval)
    reads = LogReads(
        tier.table,
        settings.node,
        lambda: follower.unread,
        gone,
        tier.memory,
        lambda: tier.unknown(),
    )
    return LogComponents(
        LogOptions(settings, 0), seams, tier.table, gone, reads, TailReads(tier.table, reads),
        follower=follower, tier=tier, open_index=lambda: index, followed_index=index,
    )  # fmt: skip


def _mount(store: str | Store, settings: Settings, seams: Seams) -> tuple[Tier, MountedIndex]:
    tier = Tier(seams, None, FileTable(), settings)
    try:
        return tier, MountedIndex(None, store, settings, seams, tier)
    except BaseException:
        tier.close()
        raise
