"""Byte layout of what every file of ours has: part table, footer, dictionaries, the filter's partitions.

A format (an index file, a log file) is one header, its own regions, parts, the part table, and a footer
at the very end::

    | header | the format's own regions | parts | part table | FOOTER |

All integers are little-endian. Reserved bytes are written as zero and refused otherwise. Every CRC32C
is seeded with (file uuid, part, number), so that the right bytes in the wrong place fail. The tables of
docs/format.md are rendered from these tuples.

Depends on numpy only.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence


class Field(NamedTuple):
    """One field of a struct: the dtype and the documentation both come from here."""

    name: str
    code: str
    meaning: str


def make_dtype(fields: Sequence[Field]) -> np.dtype:
    """Return the packed dtype of `fields`, in order, without gaps."""
    return np.dtype([(field.name, field.code) for field in fields])


def position_of(dtype: np.dtype, name: str) -> int:
    """Return the byte of a field inside its struct."""
    fields: Any = dtype.fields
    return int(fields[name][1])


FORMAT_VERSION: Final = 1
FOOTER_MAGIC: Final = b"TDXFOOT1"
UUID_BYTES: Final = 16
BLOCK_BYTES: Final = 4096  # unit of the checksums of what is read in place
HEADER_BYTES: Final = BLOCK_BYTES  # of every format
DICTIONARY_ENTRY_FIELDS: Final = (
    Field("dictionary", "u1", "0 topics, then 1.. for the schema's fields with a dictionary"),
    Field("reserved", "u1", "zero"),
    Field("length", "<u2", "bytes of UTF-8 that follow; the entry's index is its place in order"),
)
DICTIONARY_ENTRY: Final = make_dtype(DICTIONARY_ENTRY_FIELDS)
assert DICTIONARY_ENTRY.itemsize == 4
DICTIONARY_STRING_BYTES_MAX: Final = 65_535
STRING_COUNT_MAX: Final = 0x7FFF_FFFF  # an index leaves the top bit of its 32 to others


class Part(IntEnum):
    """What a part, or a checksummed unit, is. On disk (and in CRC seeds): never renumber."""

    HEADER = 0
    DICTIONARIES = 1
    STATISTICS = 2
    BLOCK_CHECKSUMS = 3
    BATCH = 4
    PART_TABLE = 5
    FOOTER = 6
    HEADER_COPY = 7
    DIRECTORY = 8
    FILTER = 9
    PAGE = 10
    CHECKSUMS = 11
    EXTRA = 12
    COLUMNS = 13
    QUEUES = 14
    TOPICS = 15
    FILTER_PARTITIONS = 16
    PREDECESSOR = 17
    SLOTS = 18
    CHECKPOINTS = 19
    QUEUE_TABLE = 20
    QUEUE_GROUPS = 21
    HASH_GROUP = 22
    SHARES = 23


PART_ENTRY_FIELDS: Final = (
    Field("kind", "<u4", "which part (see the list of parts)"),
    Field("crc", "<u4", "CRC32C of the part's bytes, seeded with (uuid, kind, 0)"),
    Field("position", "<u8", "first byte of the part in the file"),
    Field("length", "<u8", "bytes of the part"),
    Field("detail", "<u8", "the part's own: e.g. count of its elements"),
)
PART_ENTRY: Final = make_dtype(PART_ENTRY_FIELDS)
assert PART_ENTRY.itemsize == 32
PART_COUNT_MAX: Final = 64
FOOTER_FIELDS: Final = (
    Field("magic", "S8", "`TDXFOOT1`"),
    Field("format_version", "<u2", "of parts and footer: 1, whatever the header's is"),
    Field("form", "u1", "as in the header"),
    Field("reserved", "u1", "zero"),
    Field("part_count", "<u4", "entries of the part table, which ends where the footer begins"),
    Field("uuid", "V16", "as in the header"),
    Field("item_count", "<u8", "items in the file"),
    Field("file_bytes", "<u8", "length of the whole file, footer included"),
    Field("table_position", "<u8", "first byte of the part table"),
    Field("table_crc", "<u4", "CRC32C of the part table, seeded with (uuid, 5, 0)"),
    Field("crc", "<u4", "CRC32C of this footer with this field zero, seeded with (uuid, 6, 0)"),
)
FOOTER: Final = make_dtype(FOOTER_FIELDS)
FOOTER_BYTES: Final = FOOTER.itemsize
assert FOOTER_BYTES == 64, FOOTER_BYTES
PREDECESSOR_FIELDS: Final = (
    Field(
        "magic", "<u4", "`PRED`; all 64 bytes are zero until the file is the one that is written"
    ),
    Field("crc", "<u4", "CRC32C of this record (this field zero), seeded with (this uuid, 17, 0)"),
    Field("batch_count", "<u8", "batches that the file before had when this one took over"),
    Field("batch_crc", "<u4", "crc of its last batch"),
    Field("reserved", "<u4", "zero"),
    Field("uuid", "V16", "of the file before; zero when none was being written"),
    Field("reserved_end", "V24", "zero"),
)
PREDECESSOR: Final = make_dtype(PREDECESSOR_FIELDS)
PREDECESSOR_MAGIC: Final = 0x44455250  # "PRED"
PREDECESSOR_BYTES: Final = PREDECESSOR.itemsize
# The header's last bytes, in one sector, under a checksum of their own: written when a file begins.
PREDECESSOR_POSITION: Final = HEADER_BYTES - PREDECESSOR_BYTES
assert PREDECESSOR_BYTES == 64
FILTER_PARTITION_FIELDS: Final = (
    Field("position", "<u8", "first byte of the partition's fingerprints inside the filter part"),
    Field("seed", "<u8", "mixed into every hash before it names positions"),
    Field("segment_length", "<u4", "fingerprints of a segment, a power of two"),
    Field("segment_count", "<u4", "segments that a first position may lie in; 3 more follow"),
    Field("key_count", "<u4", "keys of the partition; 0: no fingerprints, no key"),
    Field("crc", "<u4", "CRC32C of the fingerprints, seeded with (uuid, 9, partition number)"),
)
FILTER_PARTITION: Final = make_dtype(FILTER_PARTITION_FIELDS)
FILTER_PARTITION_BYTES: Final = FILTER_PARTITION.itemsize
PARTITION_POSITION_POSITION: Final = position_of(FILTER_PARTITION, "position")
PARTITION_SEED_POSITION: Final = position_of(FILTER_PARTITION, "seed")
PARTITION_SEGMENT_LENGTH_POSITION: Final = position_of(FILTER_PARTITION, "segment_length")
PARTITION_SEGMENT_COUNT_POSITION: Final = position_of(FILTER_PARTITION, "segment_count")
PARTITION_KEY_COUNT_POSITION: Final = position_of(FILTER_PARTITION, "key_count")
PARTITION_CRC_POSITION: Final = position_of(FILTER_PARTITION, "crc")
assert FILTER_PARTITION_BYTES == 32


def round_up(value: int, unit: int) -> int:
    """Return the least multiple of `unit` that is not below `value`."""
    return -(-value // unit) * unit


def describe_struct(title: str, fields: Sequence[Field]) -> str:
    """Return one struct as a Markdown table: offset, size, type, field, meaning."""
    dtype = make_dtype(fields)
    lines = [f"### {title}", "", f"{dtype.itemsize} bytes.", ""]
    lines += ["| offset | size | type | field | meaning |", "|--:|--:|---|---|---|"]
    for field in fields:
        kind, offset = dtype.fields[field.name][:2]  # type: ignore[index]
        code = field.code.lstrip("<")
        lines.append(f"| {offset} | {kind.itemsize} | {code} | `{field.name}` | {field.meaning} |")
    return "\n".join(lines)
