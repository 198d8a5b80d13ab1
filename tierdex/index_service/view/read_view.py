"""The state that a query reads beside its files: other nodes, quarantine, freshness.

Depends on freshness, manifest_follower, answer and file_info.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

from tierdex.index_service.answer import Missing
from tierdex.index_service.file_info import FileInfo, unreadable_file
from tierdex.index_service.view.freshness import NOT_FRESH

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.index_service.tables.followed_tables import FollowedTables
    from tierdex.index_service.view.folder_follower import FolderFollower
    from tierdex.index_service.view.freshness import Freshness
    from tierdex.index_service.view.manifest_follower import ManifestFollower
    from tierdex.index_service.view.node_ages import NodeAges
    from tierdex.index_service.view.quarantine import Quarantine
    from tierdex.index_service.view.rocketmq_source import RocketmqView
    from tierdex.lifecycle.manifests.manifest import ManifestState
    from tierdex.lifecycle.table.file_handle import FileHandle

_PATIENCE = 1.0  # seconds


class ReadView:
    """Joins what the components of one view know. Safe to share."""

    name = "refresh"

    def __init__(
        self,
        manifests: ManifestFollower,
        *,
        quarantine: Quarantine | None = None,
        folder_follower: FolderFollower | None = None,
        rocketmq: RocketmqView | None = None,
        unwritten: Callable[[], str | None] = lambda: None,
        led_node: str | None = None,
        tables: FollowedTables | None = None,
    ) -> None:
        """`unwritten` says why received entries cannot be shown, if they cannot.

        Of `led_node` a message log beside the index says which messages are too old: none is hidden here.
        """
        self.manifests = manifests
        self._quarantine = quarantine
        self.folder_follower = folder_follower
        self._rocketmq = rocketmq
        self._unwritten = unwritten
        self._led_node = led_node
        self._tables = tables
        self.folder_read_ms = 0  # when the folder that is followed was last read whole
        self._with_missing = tuple(
            p for p in (quarantine, folder_follower, rocketmq) if p is not None
        )
        for each in self._with_missing:
            each.tell = partial(manifests.report_missing, each)
            manifests.report_missing(each, is_missing=bool(each.missing()))
        self._refreshing = threading.Lock()

    def step(self) -> float:
        """Refresh once, for a background thread; what fails is named by `missing`."""
        self.refresh()
        return self.manifests.refresh_interval

    def refresh(self) -> int:
        """Read the folder (of a reader), the quarantine and every manifest."""
        with self._refreshing:
            return self._refresh()

    def catch_up(self) -> int:
        """Refresh before a query, if the last refresh is too old though the store answered.

        Returns the requests that took.
        There are no threads, they were starved, or the process was stopped: a query should not be
        incomplete for a reason that one look mends. Waits no longer than `_PATIENCE` for a refresh
        that is under way, since the store may crawl, and leaves a store that is ill to `step`.
        """
        if self.manifests.is_overdue and self._refreshing.acquire(timeout=_PATIENCE):
            try:
                if self.manifests.is_overdue:  # the thread that held the lock may have refreshed
                    return self._refresh()
            finally:
                self._refreshing.release()
        return 0

    def _refresh(self) -> int:
        self.manifests.compare_clocks()
        began_ms = self.manifests.now_ms()
        if self._tables is not None:
            self._tables.refresh()  # before the files: what a state calls live is in these then
        vanished = () if self.folder_follower is None else self.folder_follower.refresh()
        if self.folder_follower is not None and self.folder_follower.is_read:
            self.folder_read_ms = began_ms
        if self._rocketmq is not None:
            self._rocketmq.refresh()
        if self._quarantine is not None:
            self._quarantine.refresh()
        if self._tables is not None:
            self._tables.note_new()
        return self.manifests.refresh(vanished)

    def missing(self) -> list[Missing]:
        missing = self.manifests.missing()
        for each in self._with_missing:
            missing += each.missing()
        if (reason := self._unwritten()) is not None:
            missing.append(Missing("put buffer", reason))
        return missing

    def unreadable_files(self) -> list[FileInfo]:
        """Return the files of the folder that no query can ask, with the reason."""
        return [
            unreadable_file(
                found.file, "quarantine" if each is self._quarantine else "unreadable", found.reason
            )
            for each in self._with_missing
            for found in each.missing()
        ]

    @property
    def freshness(self) -> Freshness:
        """Return until when nothing is missing for any query, as far as is known now."""
        return NOT_FRESH if self._unwritten() is not None else self.manifests.freshness

    def states(self) -> dict[str, ManifestState]:
        """Return what every node's manifest says as far as it was read: as new as the files, or newer."""
        return {log.node: log.state for log in self.manifests.logs}

    def lost_numbers(self, node: str) -> list[int]:
        """Return the numbers of the node's local files that cannot be read and are not published."""
        missing_files = (
            each for each in (self._quarantine, self.folder_follower) if each is not None
        )
        published = self.manifests.state_of(node).lists_number
        return [
            number for each in missing_files for number in each.numbers() if not published(number)
        ]

    @property
    def ages(self) -> NodeAges:
        """Return how old answers are from the files that the table shows now, or from newer ones."""
        return self.manifests.ages

    def now_ms(self) -> int:
        return self.manifests.now_ms()

    @property
    def skew_ms(self) -> int | None:
        return self.manifests.skew_ms

    def unread(self) -> list[str]:
        return self.manifests.unread()

    def missing_here(self) -> list[Missing]:
        """Return what of this process's own node cannot be read."""
        missing = [found for each in self._with_missing for found in each.missing()]
        if (reason := self._unwritten()) is not None:
            missing.append(Missing("put buffer", reason))
        return missing

    def hides(self, handle: FileHandle, topic: str) -> bool:
        """Return whether the topic's own retention has passed for a file."""
        return handle.node != self._led_node and self.manifests.hides(handle, topic)

    def hidden_from(self, handle: FileHandle, topic: str) -> int | None:
        """Return since when (ms) retention hides a topic in a file, None: never."""
        return None if handle.node == self._led_node else self.manifests.hidden_from(handle, topic)
