"""What a sidecar knows of one range of hashes, in one place: filter partition and directory entries.

A reader that is asked for one key needs no more of a file's sidecar. Groups lie at one distance from each
other inside the part *filter*, so that the manifest row and the hash say where a group is::

    filter  | group 0 | group 1 | ...                     group = upper half of hash x group count
    group   | header 64 | part entries | fingerprints | directory entries | zeros |

The *head* are the small parts in front of the sidecar, which decode a page; a group says where each of
them lies and what its checksum is. So a key that is absent takes one read, its group; one that is there a
second round: its page, and the head if that is not here yet. A group has a checksum of its own, and is
verified whole when it arrives. The entries of a hot key's many pages are left to the directory: the group
tells their place and checksum. A sidecar of less than 64 KiB has no groups: it is read whole.

Depends on errors, fileparts, layout, page_lookup and page_range.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts.checksums import checksum, unit_seed
from tierdex.fileparts.filter import FuseFilter, partition_ends
from tierdex.fileparts.footer import encode_entries, read_entries
from tierdex.fileparts.layout import (
    FILTER_PARTITION,
    FILTER_PARTITION_BYTES,
    PART_ENTRY,
    Part,
    round_up,
)
from tierdex.indexfile import layout
from tierdex.indexfile.compacted.kernels import page_lookup as k
from tierdex.indexfile.compacted.page_range import PageRanges, file_numbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from typing_extensions import Buffer

    from tierdex.fileparts.footer import Footer, PartEntry

# What a group tells the place and the checksum of: the head, and the directory behind it.
HEAD_PARTS: Final = (
    Part.HEADER_COPY,
    Part.STATISTICS,
    Part.DICTIONARIES,
    Part.COLUMNS,
    Part.QUEUES,
    Part.TOPICS,
    Part.EXTRA,
)
PARTS_TOLD: Final = (*HEAD_PARTS, Part.DIRECTORY)
_CRC_BYTES: Final = 4
_PARTITION: Final = slice(
    layout.HASH_GROUP_PARTITION_POSITION,
    layout.HASH_GROUP_PARTITION_POSITION + FILTER_PARTITION_BYTES,
)


class GroupSizes(NamedTuple):
    """How a sidecar is divided."""

    keys: int = 3 << 12  # of a group, about: 12,288 are 30 KiB of fingerprints of 16 bits
    whole_bytes: int = 64 * 1024  # a sidecar below this has no groups


GROUP_SIZES: Final = GroupSizes()


class GroupPlaces(NamedTuple):
    """Where the groups of one file lie, for a reader that has nothing else of it."""

    position: int  # of group 0 in the file
    stride: int  # bytes from one group to the next
    group_count: int
    head_end: int  # header, columns, queues and dictionaries lie from the sidecar's begin to here

    @classmethod
    def of(cls, parts: Mapping[Part, PartEntry]) -> GroupPlaces | None:
        """Return what the part table says; None in a file without groups."""
        place = parts.get(Part.FILTER)
        if place is None or not place.detail or Part.CHECKSUMS not in parts:
            return None
        head_end = parts[Part.CHECKSUMS].position
        return cls(place.position, place.detail, place.length // place.detail, head_end)


class HashGroup(PageRanges):
    """One group of a file, verified: answers for the hashes of its range. Immutable, safe to share."""

    def __init__(
        self,
        data: Buffer,
        *,
        uuid: bytes,
        number: int,
        count: int,
        pages_end: int,
        name: object,
        entries: Buffer | None = None,
    ) -> None:
        """Open group `number` of `count`. `entries` are those of the directory that it does not hold.

        `pages_end` is where the file's sidecar begins. Raises CorruptFileError.
        """
        self.path = name
        self.data = np.frombuffer(memoryview(data), np.uint8)
        self.uuid, self.number = uuid, number
        header = self._verified_header(count)
        self.first_page = int(header["first_page"])
        self.entry_count = int(header["entry_count"])
        size = layout.DIRECTORY_ENTRY_BYTES * int(header["entries_here"])
        end = self.length = int(header["length"])
        begin = _fingerprints_at(int(header["part_count"]))
        self.parts = read_entries(self.data[layout.HASH_GROUP_BYTES : begin].tobytes(), name)
        own = self.data[_PARTITION].view(FILTER_PARTITION)
        fingerprints = self.data[begin : end - size]
        self.filter = FuseFilter.of_partition(
            own,
            fingerprints,
            number=number,
            count=count,
            bits=int(header["filter_bits"]),
            path=name,
        )
        found = self.data[end - size : end]
        if entries is not None:
            found = np.frombuffer(memoryview(entries), np.uint8)
        self.has_entries = len(found) == layout.DIRECTORY_ENTRY_BYTES * self.entry_count
        is_wrong = self.has_entries and self._seeded(found) != int(header["entries_crc"])
        if is_wrong or (entries is not None and not self.has_entries):
            raise self.damage(k.DAMAGED_DIRECTORY, number)
        self.entries = found.view(layout.DIRECTORY_ENTRY)
        self._numbers, self._verified = file_numbers(
            self.entries, self.first_page, self.entry_count, pages_end
        )
        self._numbers[k.FILTER] = self.filter.address
        self.address = int(self._numbers.ctypes.data)

    def _seeded(self, data: np.ndarray) -> int:
        return checksum(data, unit_seed(self.uuid, Part.HASH_GROUP, self.number))

    def _verified_header(self, count: int) -> np.void:
        data = self.data
        if len(data) < layout.HASH_GROUP_BYTES:
            raise self.damage(k.DAMAGED_FILTER, self.number)
        header: np.void = data[: layout.HASH_GROUP_BYTES].view(layout.HASH_GROUP)[0]
        end = int(header["length"])
        rest = layout.DIRECTORY_ENTRY_BYTES * int(header["entries_here"])
        sound = (
            _fingerprints_at(int(header["part_count"])) + rest <= end <= len(data)
            and self._seeded(data[_CRC_BYTES:end]) == int(header["crc"])
            and int(header["group_count"]) == count
            and int(header["entry_count"]) >= 1
            and int(header["entries_here"]) in (0, int(header["entry_count"]))
            and int(header["filter_bits"]) in (8, 16)
        )
        if not sound:
            raise self.damage(k.DAMAGED_FILTER, self.number)
        return header

    @property
    def numbers(self) -> np.ndarray:
        """What kernels know of the file by this group alone (i8[FILE_LENGTH]); not to be changed."""
        return self._numbers

    @property
    def bytes(self) -> int:
        """The memory that the group takes."""
        return len(self.data) + self.entries.nbytes

    def may_contain(self, key_hash: int) -> bool:
        return self.filter.may_contain(key_hash)

    def may_contain_many(self, hashes: np.ndarray) -> np.ndarray:
        return self.filter.may_contain_many(hashes)

    def damage(self, what: int, number: int) -> CorruptFileError:
        """Return the error for a group whose bytes are not the file's."""
        del what, number
        return CorruptFileError(self.path, f"checksum of hash group {self.number} differs")


class _Entries(NamedTuple):
    """The directory entries of each group: where they begin, how many, how many a group holds itself."""

    first: np.ndarray
    counts: np.ndarray
    here: np.ndarray


def entries_of_groups(directory: np.ndarray, group_count: int) -> _Entries:
    """Return which entries (i8[group_count] each) of `directory`, closing entry included, a group needs.

    A group holds at most twice as many as the mean, and eight: beyond that a hot key's pages would make
    every group large.
    """
    firsts, ends = directory["first_hash"][:-1], partition_ends(group_count)
    begins = np.concatenate([np.zeros(1, np.uint64), ends])
    first = np.maximum(0, np.searchsorted(firsts, begins, side="left") - 1)
    behind = np.append(np.searchsorted(firsts, ends, side="left"), len(firsts))
    count = behind - first + 1
    most = 2 * int(count.mean()) + 8
    return _Entries(first, count, np.where(count <= most, count, 0))


def _fingerprints_at(part_count: int) -> int:
    return layout.HASH_GROUP_BYTES + PART_ENTRY.itemsize * part_count


class GroupWriter:
    """Makes the part *filter* of a file out of groups; its partition table is known before."""

    def __init__(
        self,
        uuid: bytes,
        bits: int,
        table: np.ndarray,
        fingerprints: Sequence[np.ndarray],
        directory: np.ndarray,
    ) -> None:
        """`fingerprints` are those of the partitions that have keys, in order."""
        self._uuid, self._bits, self._directory = uuid, bits, directory
        count = len(table)
        self._entries = entries_of_groups(directory, count)
        given = iter(fingerprints)
        self._prints = [
            next(given) if keys else np.zeros(0, np.uint8) for keys in table["key_count"]
        ]
        self._begin = _fingerprints_at(len(PARTS_TOLD))
        sizes = np.array([len(one) for one in self._prints], np.int64)
        self._lengths = self._begin + sizes + layout.DIRECTORY_ENTRY_BYTES * self._entries.here
        self.stride = round_up(int(self._lengths.max()), layout.HASH_GROUP_UNIT)
        self.table = table.copy()
        self.table["position"] = np.arange(count) * self.stride + self._begin

    def pieces(self, parts: Mapping[Part, PartEntry]) -> Iterator[np.ndarray]:
        """Yield the groups' bytes (u1[stride]); `parts` are those that were written before."""
        told = encode_entries([parts[kind] for kind in PARTS_TOLD])
        for number in range(len(self.table)):
            yield self._encode(number, np.frombuffer(told, np.uint8))

    def _encode(self, number: int, told: np.ndarray) -> np.ndarray:
        entries, length = self._entries, int(self._lengths[number])
        seed = unit_seed(self._uuid, Part.HASH_GROUP, number)
        first = int(entries.first[number])
        own = self._directory[first : first + int(entries.counts[number])].view(np.uint8)
        header = np.zeros(1, layout.HASH_GROUP)
        header["length"], header["group_count"] = length, len(self.table)
        header["filter_bits"], header["part_count"] = self._bits, len(PARTS_TOLD)
        header["first_page"], header["entry_count"] = first, entries.counts[number]
        header["entries_here"] = entries.here[number]
        header["entries_crc"] = checksum(own, seed)
        place = np.zeros(self.stride, np.uint8)
        place[: layout.HASH_GROUP_BYTES] = header.view(np.uint8)
        place[_PARTITION] = self.table[number : number + 1].view(np.uint8)
        place[layout.HASH_GROUP_BYTES : self._begin] = told
        end = self._begin + len(self._prints[number])
        place[self._begin : end] = self._prints[number]
        if entries.here[number]:
            place[end:length] = own
        crc = checksum(place[_CRC_BYTES:length], seed)
        place[:_CRC_BYTES] = np.frombuffer(crc.to_bytes(_CRC_BYTES, "little"), np.uint8)
        return place


def find_group_damage(
    filter_part: np.ndarray, footer: Footer, table: np.ndarray, directory: np.ndarray
) -> list[str]:
    """Return which groups differ from part table, filter table and directory, in words."""
    stride, uuid = footer.parts[Part.FILTER].detail, footer.uuid
    told = {kind: footer.parts[kind] for kind in PARTS_TOLD if kind in footer.parts}
    if stride * len(table) != len(filter_part) or stride % layout.HASH_GROUP_UNIT:
        return ["the hash groups do not fit the filter"]
    entries = entries_of_groups(directory, len(table))
    faults = []
    for number, row in enumerate(table):
        place = filter_part[number * stride : (number + 1) * stride]
        try:
            group = HashGroup(
                place.tobytes(), uuid=uuid, number=number, count=len(table), pages_end=0, name=""
            )
        except CorruptFileError as error:
            faults.append(error.reason)
            continue
        first, count = int(entries.first[number]), int(entries.counts[number])
        here = directory[first : first + int(entries.here[number])]
        agrees = (
            place[_PARTITION].tobytes() == row.tobytes()
            and (group.first_page, group.entry_count) == (first, count)
            and group.entries.tobytes() == here.tobytes()
            and group.parts == told
        )
        if not agrees or place[group.length :].any():
            faults.append(f"hash group {number} differs from filter and directory")
    return faults
