"""Who may continue a log, and from where: checked before its node is claimed, so a refusal changes nothing.

::

    this folder had the node last      goes on, as after any end
    it was handed over, or "lossy",    the folder's notes are void: the store tells where queues go on
    or ended with all published
    neither                            LossyTakeoverError: some may lie on the old disk alone
    this folder holds unpublished      OwnershipError: its offsets are, or will be, others' messages: adopt it
    `adopt`                            what the old node lists goes, the rest is a log of the new node

An adopted folder's index is removed: it is made anew from the messages that stay, so no entry of it names a
message that only the old node has.

Depends on errors, lifecycle, logfile, carried_notes, trim_record, log_recovery, repair and
published_note.
"""

from __future__ import annotations

import logging
from functools import reduce
from typing import TYPE_CHECKING

from tierdex.errors import CorruptFileError, LossyTakeoverError, NodeInUseError, OwnershipError
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.folders.folder_listing import list_folders
from tierdex.lifecycle.paths import LOCAL_STATES, LOG_FOLDER, DataPaths
from tierdex.log_service.notes.carried_notes import (
    is_released,
    void_adopted,
    void_forgotten,
    void_notes,
)
from tierdex.log_service.notes.published_note import PublishedNote
from tierdex.log_service.notes.trim_record import TrimRecord
from tierdex.log_service.recovery.log_recovery import JournalMending, open_immutable, remove_gone
from tierdex.log_service.recovery.repair import ends_of
from tierdex.logfile.journal.file import Journal
from tierdex.logfile.queue_ends import NO_QUEUES, QueueEnds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tierdex.lifecycle.folders.folder_listing import FolderListing, FoundFile
    from tierdex.lifecycle.manifests.manifest import ManifestState
    from tierdex.seams import Seams

logger = logging.getLogger(__name__)


class Succession:
    """The claim of one data folder's log. For one thread, which opens it."""

    def __init__(self, seams: Seams, data: Path, *, is_lossy: bool) -> None:
        self._seams = seams
        self._filesystem = seams.filesystem
        self._data = DataPaths(data)
        self._paths = DataPaths(data / LOG_FOLDER)
        self._is_lossy = is_lossy

    def succeed(self, state: ManifestState, *, is_over: bool) -> None:
        """Prepare to follow another owner; `is_over`: one that ended with everything published.

        Raises LossyTakeoverError, OwnershipError, OSError.
        """
        waiting = self._unpublished(state.knows)
        if waiting:
            raise OwnershipError(
                f"{self._data.root} holds {len(waiting)} files of messages that node {state.node} has not "
                "published, and another owner had it since: publish them under a node of their own with "
                "`tierdex adopt`, then take the node over with an empty folder"
            )
        if not (self._is_lossy or is_over or is_released(state)):
            raise LossyTakeoverError(
                f"node {state.node} was not handed over: what its owner acknowledged and did not publish "
                "lies in its data folder alone. Open the log there (`hand_over` or `tierdex log hand-over` "
                "publishes everything), or bring that folder here. If it is gone for good, or is to be "
                'adopted later, say takeover="lossy" (`tierdex log take-over --lossy`): offsets that were '
                "given and not published are given anew, under a higher generation",
                node=state.node,
            )
        void_forgotten(self._filesystem, self._paths.root)
        void_notes(self._filesystem, self._paths.root)  # durable before the claim is
        logger.warning(
            "log taken over",
            extra={"node": state.node, "epoch": state.epoch + 1, "is_lossy": self._is_lossy},
        )

    def adopt(self, state: ManifestState, old: ManifestState, *, is_ours: bool) -> None:
        """Keep what the `old` node does not have, for another node in this `state`. Raises OSError.

        Done again, it does what is left: until the node's claim is committed the folder is the old one's.
        """
        if not is_ours:
            raise NodeInUseError(
                f"node {state.node} is, or was, another log's: adopt the folder under a name that is unused",
                node=state.node,
            )
        left = [f for f in self._list(lambda uuid: not old.knows(uuid)) if f.identity is not None]
        gone = TrimRecord(self._filesystem, self._paths.root, self._seams.clock)
        ends = reduce(QueueEnds.joined, map(self._ends_of, left), self._published_ends())
        if len(ends):
            # Durable before the old node's part goes: no offset that the folder gave is given again.
            gone.keep(gone.current.joined(ends, ()))
        for file in left:  # one without identity is put by recovery where it is named
            self._remove(file.path)
        remove_gone(self._filesystem, self._listing(), gone.current.files)
        for folder in (self._data.folder(each) for each in LOCAL_STATES):
            for name in self._filesystem.list_folder(folder):
                self._remove(folder / name)
        void_adopted(self._filesystem, self._paths.root)

    # -- private -----------------------------------------------------------------------------------------

    def _published_ends(self) -> QueueEnds:
        """Return where queues end that were published from here; nothing where the note is void."""
        try:
            note = PublishedNote.read(self._filesystem, self._paths.root)
        except CorruptFileError:
            return NO_QUEUES
        return NO_QUEUES if note is None else note.ends

    def _ends_of(self, file: FoundFile) -> QueueEnds:
        """Return where the queues of a file end that is published, and not noted yet."""
        if file.state is FileState.UNSEALED:
            return NO_QUEUES
        try:
            handle = open_immutable(self._filesystem, "", file.state, file.number, file.path)
        except CorruptFileError:
            return NO_QUEUES
        try:
            return QueueEnds.of(*ends_of(handle.reader), last_file=file.number)
        except CorruptFileError:
            return NO_QUEUES
        finally:
            handle.release()

    def _listing(self) -> FolderListing:
        mending = JournalMending(self._filesystem, self._seams.clock)
        return list_folders(self._filesystem, self._paths, mending.identify)

    def _list(self, is_left_out: Callable[[bytes], bool]) -> list[FoundFile]:
        files = self._listing().files
        return [f for f in files if f.identity is None or not is_left_out(f.identity.uuid)]

    def _unpublished(self, is_known: Callable[[bytes], bool]) -> list[FoundFile]:
        """Return the files that hold, or may hold, messages that the node does not know."""
        return [file for file in self._list(is_known) if not self._is_empty(file)]

    def _is_empty(self, file: FoundFile) -> bool:
        if file.state is not FileState.UNSEALED:
            return False
        try:
            journal = Journal.open_for_reading(self._filesystem, file.path)
        except CorruptFileError:
            return False
        try:
            return not journal.message_count
        finally:
            journal.close()

    def _remove(self, path: Path) -> None:
        self._filesystem.unlink(path)
        self._filesystem.sync_folder(path.parent)
