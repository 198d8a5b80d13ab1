"""The interface of an index to the message log beside it: the log leads, always.

::

    open     node may be claimed, and is    `check_claim`
             node claimed --> log recovered --> index cut to what the log has    `recover`, `holds`
    entry    pwrite of a group commit --> index batch, which notes it
    seal     log synced --> index file sealed                   `make_durable`
    publish  log file listed --> index files that cover it      `publication`, `may_publish`
    fenced   neither is written or published any more           `refuse`

So no entry names an offset that the log does not hold, whatever a crash takes: offsets that were given and
lost are given again. Only the log may put into such an index. Both share the folder's lock, the node, its
epoch, its manifest and its numbers.

Depends on compactor, indexfile, lifecycle, view and the ground.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tierdex.compactor.components import CompactorComponents
    from tierdex.compactor.kind import Publication
    from tierdex.compactor.unit import FileClaims
    from tierdex.errors import FencedError
    from tierdex.filesystem import FolderLock
    from tierdex.index_service.opening.open_view import View
    from tierdex.index_service.view.published_view import PublishedView
    from tierdex.indexfile.source import Source
    from tierdex.lifecycle.file_number import NextNumber
    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.lifecycle.manifests.manifest import ManifestState
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.lifecycle.table.file_table import FileTable


class LogOwner(Protocol):
    """The log of the data folder."""

    def share_lock(self) -> FolderLock:
        """Return the data folder's lock once more: given back by the log, too."""
        ...

    @property
    def numbers(self) -> NextNumber:
        """Of the node's files, log and index."""
        ...

    @property
    def claims(self) -> FileClaims:
        """Of the files that are worked on, log and index."""
        ...

    @property
    def table(self) -> FileTable:
        """The log's files."""
        ...

    def check_claim(self, view: View, state: ManifestState, is_ours: bool, is_over: bool) -> None:
        """Called before the claim, whether this folder had it last, or its owner left nothing.

        Raises LossyTakeoverError, OwnershipError when the log cannot go on from there; then nothing is.
        """
        ...

    def recover(self, view: View, state: ManifestState | None) -> PublishedView:
        """Recover the log, which may do so once, with what its node has published (None: unknown).

        Returns where its published files are shown. Raises what the store raises, OwnershipError.
        """
        ...

    def note_claim(self, state: ManifestState) -> None:
        """Called after the claim of the node. Raises FencedError when the log began from an old state."""
        ...

    def holds(self, source: Source) -> bool:
        """Return whether the log has all batches up to there."""
        ...

    def make_durable(self) -> None:
        """Sync everything that was written, before an index file is sealed."""
        ...

    def publication(self, components: CompactorComponents) -> Publication:
        """Return the log's files as the compactor publishes them; `components` are the index's."""
        ...

    def may_publish(self, handle: FileHandle) -> bool:
        """Return whether all of the log that an index file covers is published."""
        ...

    def note_published(self, handle: FileHandle) -> None:
        """Note, durably, how far a published index file goes, before its local copy does."""
        ...

    def dated(self, row: FileRow) -> FileRow:
        """Return an index file's row, sealed when the last log file was whose messages it may name."""
        ...

    def refuse(self, error: FencedError) -> None:
        """Take no more appends: another owner has the node."""
        ...
