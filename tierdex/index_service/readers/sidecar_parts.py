"""Parts of published files' sidecars, in memory: hash groups, and the heads that decode pages.

A part is a range of an immutable object, known by its file's uuid: it never goes stale. It is verified when
it arrives, and fetched a second time before the file is called corrupt: the fault may lie in between. The
byte budget drops the least recently used first.

Depends on fileparts, indexfile and lifecycle.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from tierdex.errors import CorruptFileError
from tierdex.fileparts.layout import Part
from tierdex.indexfile.compacted.file import CompactedFile
from tierdex.indexfile.compacted.hash_group import HashGroup
from tierdex.indexfile.layout import DIRECTORY_ENTRY_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

    from tierdex.lifecycle.manifests.file_row import FileRow

    Fetch = Callable[[int, int], bytes | memoryview]  # position and length in the object

logger = logging.getLogger(__name__)

PartT = TypeVar("PartT", HashGroup, CompactedFile)
_HEAD: Final = -1  # in place of a group's number


class _Kept(NamedTuple):
    part: HashGroup | CompactedFile
    size: int


class SidecarParts:
    """Opens parts by manifest row and number. Safe to share between threads."""

    def __init__(self, budget_bytes: int, discard: Callable[[bytes], None]) -> None:
        """`discard` drops what is kept elsewhere of a file's tail, before it is fetched again."""
        self._budget = budget_bytes
        self._discard = discard
        self._lock = threading.Lock()
        self._bytes = 0
        self._kept: OrderedDict[tuple[bytes, int], _Kept] = (
            OrderedDict()
        )  # least recently used first
        self._numbers: dict[bytes, set[int]] = {}  # of each file

    def group(self, row: FileRow, number: int, fetch: Fetch) -> HashGroup:
        """Return a group, fetching it if need be. Raises what `fetch` raises, CorruptFileError."""
        kept = self.kept_group(row.uuid, number)
        if kept is not None:
            return kept
        assert row.groups is not None
        position, stride, _, _ = row.groups

        def fetched() -> HashGroup:
            return _open_group(row, number, fetch(position + number * stride, stride))

        group = self._twice(row, fetched)
        return self._keep(row, number, group, group.bytes)

    def with_entries(self, row: FileRow, group: HashGroup, fetch: Fetch) -> HashGroup:
        """Return the group with the directory entries that it does not hold itself.

        They are those of a hot key's many pages. Raises what `fetch` raises, CorruptFileError.
        """
        if group.has_entries:
            return group
        position = group.parts[Part.DIRECTORY].position + DIRECTORY_ENTRY_BYTES * group.first_page

        def fetched() -> HashGroup:
            entries = fetch(position, DIRECTORY_ENTRY_BYTES * group.entry_count)
            return _open_group(row, group.number, group.data.data, entries)

        whole = self._twice(row, fetched)
        return self._keep(row, group.number, whole, whole.bytes)

    def head(self, row: FileRow, group: HashGroup, fetch: Fetch) -> CompactedFile:
        """Return the file's head, which any of its groups describes, fetching it if need be."""
        kept = self.kept_head(row.uuid)
        if kept is not None:
            return kept
        assert row.groups is not None
        position, length = row.sidecar_position, row.groups.head_end - row.sidecar_position

        def fetched() -> CompactedFile:
            return CompactedFile.from_head(
                fetch(position, length),
                group,
                position=position,
                file_bytes=row.bytes,
                item_count=row.item_count,
                name=row.object_key,
            )

        return self._keep(row, _HEAD, self._twice(row, fetched), length)

    def kept_group(self, uuid: bytes, number: int) -> HashGroup | None:
        """Return a group that is here; sends no request."""
        kept = self._used(uuid, number)
        assert not isinstance(kept, CompactedFile)
        return kept

    def kept_head(self, uuid: bytes) -> CompactedFile | None:
        """Return a head that is here; sends no request."""
        kept = self._used(uuid, _HEAD)
        assert not isinstance(kept, HashGroup)
        return kept

    def numbers(self, uuid: bytes) -> frozenset[int]:
        """Return the numbers of the file's groups that are here."""
        with self._lock:
            return frozenset(self._numbers.get(uuid, ())) - {_HEAD}

    def forget(self, uuid: bytes) -> None:
        """Drop all parts of a file: it is gone, or its sidecar is here whole."""
        with self._lock:
            for number in self._numbers.pop(uuid, ()):
                self._bytes -= self._kept.pop((uuid, number)).size

    def _twice(self, row: FileRow, fetched: Callable[[], PartT]) -> PartT:
        """Return what `fetched` returns; what arrives damaged is fetched again, once."""
        try:
            return fetched()
        except CorruptFileError as error:
            logger.warning("part of a sidecar fetched again", extra={"error": str(error)})
            self._discard(row.uuid)
            return fetched()

    def _used(self, uuid: bytes, number: int) -> HashGroup | CompactedFile | None:
        with self._lock:
            kept = self._kept.get((uuid, number))
            if kept is None:
                return None
            self._kept.move_to_end((uuid, number))
            return kept.part

    def _keep(self, row: FileRow, number: int, part: PartT, size: int) -> PartT:
        key = row.uuid, number
        with self._lock:
            before = self._kept.pop(key, None)
            self._kept[key] = _Kept(part, size)
            self._numbers.setdefault(row.uuid, set()).add(number)
            self._bytes += size - (0 if before is None else before.size)
            while self._bytes > self._budget and len(self._kept) > 1:
                (uuid, dropped), kept = self._kept.popitem(last=False)
                self._bytes -= kept.size
                self._numbers[uuid].discard(dropped)
                if not self._numbers[uuid]:
                    del self._numbers[uuid]
        return part


def _open_group(
    row: FileRow, number: int, data: Buffer, entries: Buffer | None = None
) -> HashGroup:
    assert row.groups is not None
    return HashGroup(
        data,
        uuid=row.uuid,
        number=number,
        count=row.groups.group_count,
        pages_end=row.sidecar_position,
        name=row.object_key,
        entries=entries,
    )
