"""The records of an owner: how far it has published, where it serves, whom it adopts.

Depends on store_time; on manifest and manifest_log for their types only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from tierdex.lifecycle.store_time import StoreTime

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.lifecycle.manifests.manifest import ManifestState, NodeOwner
    from tierdex.lifecycle.manifests.manifest_log import ManifestLog


class Published(NamedTuple):
    """Every entry acknowledged before `through` (ms, owner's time) is published; are others waiting?"""

    through: int
    holds_unpublished: bool


class Unpublished(Protocol):
    """The entries that the owner's process holds and has not published."""

    def begin(self, through: int, *, holds_unpublished: bool) -> None:
        """Take, before the claim is committed, the time up to which all earlier entries are published."""
        ...

    def look(self, state: ManifestState, added: Sequence[FileRow] = ()) -> Published:
        """Return how far all is published once `state` and the rows `added` are committed."""
        ...


class NothingUnpublished:
    """Of an owner that publishes every entry before it acknowledges it."""

    def __init__(self, time: StoreTime) -> None:
        self._time = time

    def begin(self, through: int, *, holds_unpublished: bool) -> None:
        """Do nothing: no entry waits."""

    def look(self, state: ManifestState, added: Sequence[FileRow] = ()) -> Published:
        return Published(self._time.now_ms(), holds_unpublished=False)


class OwnerRecord(NamedTuple):
    """The content of an owner's records. `adopts` are owners whose folder's files it publishes.

    `adopted_through` is the time up to which those had published, None if they never told.
    `folder_from` is a time before everything in the folder's files, None when it has none.
    """

    time: StoreTime
    unpublished: Unpublished
    interval_s: float = 60.0
    advertise_url: str | None = None
    adopts: tuple[NodeOwner, ...] = ()
    adopted_through: int | None = None
    folder_from: int | None = None


def make_owner_record(log: ManifestLog) -> OwnerRecord:
    """Return the voice of an owner without a folder."""
    time = StoreTime(log.clock)
    return OwnerRecord(time, NothingUnpublished(time))
