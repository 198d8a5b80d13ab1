"""The manifest row of a compacted file that was written.

Depends on lifecycle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tierdex.lifecycle.manifests.file_row import FileRow, HashGroups
from tierdex.lifecycle.topic_set import listed_topics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tierdex.indexfile.compacted.hash_group import GroupPlaces
    from tierdex.indexfile.schema import Schema


class WrittenFile(Protocol):
    """A compacted file that was written: the file, opened, or the writer's summary."""

    @property
    def schema(self) -> Schema: ...
    @property
    def slot_count(self) -> int: ...
    @property
    def item_count(self) -> int: ...
    @property
    def min_time(self) -> int: ...
    @property
    def max_time(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def sidecar_position(self) -> int: ...
    @property
    def topics(self) -> list[str]: ...
    @property
    def footer_crc(self) -> int: ...
    @property
    def groups(self) -> GroupPlaces | None: ...


def make_row(
    written: WrittenFile, uuid: bytes, object_key: str, dates: Mapping[str, int]
) -> FileRow:
    """Return the row; `dates` are `begin_ms` and `sealed_at_ms`. Its number is 0 until it has one."""
    return FileRow(
        uuid=uuid,
        number=0,
        object_key=object_key,
        bytes=written.bytes,
        item_count=written.item_count,
        slot_count=written.slot_count,
        min_time=written.min_time,
        max_time=written.max_time,
        begin_ms=dates["begin_ms"],
        sealed_at_ms=dates["sealed_at_ms"],
        sidecar_position=written.sidecar_position,
        tail_crc=written.footer_crc,
        topics=listed_topics(written.topics),
        schema=written.schema.encode().decode(),
        groups=None if written.groups is None else HashGroups(*written.groups),
    )
