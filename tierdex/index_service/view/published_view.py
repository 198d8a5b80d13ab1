"""Where the file table shows files beside the published ones of an index: local files, files of other kinds.

Depends on lifecycle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.lifecycle.manifests.manifest import ManifestState
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.lifecycle.table.file_table import FileTable


class LocalFiles(NamedTuple):
    """A node whose unpublished files are in the table, too, as long as `is_of` its newest manifest.

    `is_taken` says that another owner wrote it, after the one whose files these are. `read_ms` is when they
    were last read; None: whenever they are asked, they are as of now.
    """

    node: str
    is_of: Callable[[ManifestState], bool]
    is_taken: Callable[[ManifestState], bool]
    read_ms: Callable[[], int | None]


class PublishedView(NamedTuple):
    """Where the published files of one kind are shown.

    `handle_of` makes a handle of a row and its node; `forget` drops what is kept of a file that is gone,
    `forget_others` of all but these files: once, of what went while another had the node. One that is
    `of_one_owner` shows nothing of who takes the node from the owner of the files beside: the offsets of
    both are others' messages.
    """

    kind: str
    table: FileTable
    handle_of: Callable[[FileRow, str], FileHandle]
    forget: Callable[[bytes], None]
    forget_others: Callable[[Container[bytes]], None]
    of_one_owner: bool = False
