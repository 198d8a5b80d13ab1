"""What waits for the store on this disk: files, bytes, and since when. Depends on lifecycle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tierdex.lifecycle.table.file_handle import FileHandle


def describe_backlog(
    local: Iterable[FileHandle], is_active: Callable[[FileHandle], bool], now_ms: int
) -> dict[str, Any]:
    """Return the backlog of local files, for the compaction status.

    The file that is being written is not part of the backlog, but its oldest entry waits, too.
    """
    filled = [handle for handle in local if handle.item_count]
    waiting = [handle for handle in filled if not is_active(handle)]
    oldest = min((handle.begin_ms for handle in filled), default=None)
    return {
        "backlog_files": len(waiting),
        "backlog_bytes": sum(handle.bytes for handle in waiting),
        "oldest_unpublished_age_s": 0.0 if oldest is None else max(0, now_ms - oldest) / 1000,
    }
