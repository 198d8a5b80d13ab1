"""What an operator sees of a file. Depends on lifecycle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tierdex.lifecycle.file_handle import FileHandle


class FileInfo(NamedTuple):
    """One file of the view. Times are int64 ms; `begin` is the file's birth, not its entries'."""

    file_id: str
    state: str
    begin: int
    min_time: int | None
    max_time: int | None
    item_count: int
    slot_count: int
    bytes: int
    node: str
    sealed_at: int | None = None
    topics: list[str] | None = None
    reason: str | None = None  # of a quarantined file

    def to_dict(self) -> dict[str, Any]:
        return self._asdict()


def describe_handle(handle: FileHandle, topics: list[str] | None) -> FileInfo:
    """Return what is shown of a file in the table; `topics` None: not known without its sidecar."""
    items = handle.item_count
    return FileInfo(
        file_id=handle.file_id,
        state=handle.state.value,
        begin=handle.begin_ms,
        min_time=handle.min_time if items else None,
        max_time=handle.max_time if items else None,
        item_count=items,
        slot_count=handle.slot_count,
        bytes=handle.bytes,
        node=handle.node,
        sealed_at=handle.sealed_at_ms,
        topics=topics,
    )
