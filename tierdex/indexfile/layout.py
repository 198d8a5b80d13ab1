"""Byte layout of an index file: the only place where an offset, a dtype or a magic is written down.

An index file is one header, its form's own region, parts, and a footer at the very end::

    chained    | HEADER 4096 | slots, padded to 4096 | rows ...            | parts | part table | FOOTER |
    compacted  | HEADER 4096 | page 0 | page 1 | ...                       | parts | part table | FOOTER |

Parts, part table and footer exist once the file is immutable. A *row* is `item_bytes` bytes of the
chained form's item region: one item, or a part of a batch record and its dictionary bytes. Row
numbers start at 1, so that a zero-filled slot is an empty one.

All integers are little-endian. Reserved bytes are written as zero and refused otherwise. A reader
refuses a newer `format_version`. Every CRC32C is seeded with (file uuid, part, number), so that the
right bytes in the wrong place fail. The tables of docs/format.md are rendered from these tuples.

Depends on fileparts only.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from tierdex.fileparts.layout import (
    BLOCK_BYTES,
    DICTIONARY_ENTRY_FIELDS,
    FILTER_PARTITION_FIELDS,
    FOOTER_FIELDS,
    PART_ENTRY_FIELDS,
    PREDECESSOR_FIELDS,
    Field,
    Part,
    describe_struct,
    make_dtype,
    position_of,
    round_up,
)
from tierdex.fileparts.layout import HEADER_BYTES as HEADER_BYTES
from tierdex.fileparts.layout import PREDECESSOR_POSITION as PREDECESSOR_POSITION

# ---- both forms: header -----------------------------------------------------------------------------

HEADER_MAGIC: Final = b"TIERDEX1"
HASH_XXH64_TOPIC_SEEDED: Final = 1  # XXH64(key, seed = XXH64(topic, seed = hash_seed))
HASH_SEED: Final = 42


class Form(IntEnum):
    """Which of the two forms a file has. On disk: never renumber."""

    CHAINED = 1
    COMPACTED = 2


HEADER_FIELDS: Final = (
    Field("magic", "S8", "`TIERDEX1`; anything else is not an index file"),
    Field("format_version", "<u2", "layout revision; a reader refuses a newer one"),
    Field("form", "u1", "1 chained, 2 compacted"),
    Field("hash_function", "u1", "1 = XXH64 of the key, seeded with the XXH64 of its topic"),
    Field("crc", "<u4", "CRC32C of these 4096 bytes, this field and the predecessor taken as zero"),
    Field("uuid", "V16", "the file's identity, the same in all its forms"),
    Field("hash_seed", "<u8", "seed of the topic's hash"),
    Field("slot_count", "<u8", "slots of the chained form; slot = upper half of hash * slot_count"),
    Field("item_capacity", "<u8", "items that the chained form may hold"),
    Field("row_capacity", "<u8", "rows that the chained form has room for; 0 when compacted"),
    Field("created_ms", "<i8", "wall time of the file's birth, ms since the epoch"),
    Field("item_bytes", "<u4", "bytes of an item, a multiple of 8; equals the schema's"),
    Field("schema_bytes", "<u4", "length of the schema, JSON in UTF-8, which begins at byte 128"),
    Field("reserved", "V48", "zero"),
)
HEADER: Final = make_dtype(HEADER_FIELDS)
SCHEMA_POSITION: Final = 128

SCHEMA_BYTES_MAX: Final = PREDECESSOR_POSITION - SCHEMA_POSITION
assert HEADER.itemsize == SCHEMA_POSITION, HEADER.itemsize

SLOT_BYTES: Final = 4  # a row number, u4
SLOT_COUNT_MAX: Final = 1 << 31
ITEM_CAPACITY_MAX: Final = 1 << 31
ROW_COUNT_MAX: Final = (1 << 32) - 1  # row numbers are u4, 0 is "no row"

# ---- both forms: items as arrays in memory, and the columns of every schema --------------------------

ITEM_FIELDS: Final = (
    Field("key_hash", "<u8", "hash of topic and key, or of a message ID"),
    Field("link", "<u4", "row number of the next older item in this slot's chain; 0 ends it"),
    Field("tag", "<u4", "topic's index in the dictionary (31 bits), kind in the top bit"),
    Field("timestamp", "<i8", "entry time, ms since the epoch; any value"),
)
ITEM_HASH_POSITION: Final = 0
ITEM_LINK_POSITION: Final = 8
ITEM_TAG_POSITION: Final = 12
ITEM_TIME_POSITION: Final = 16
ITEM_FIELDS_POSITION: Final = 24  # the schema's own fields follow, each aligned to its width
ITEM_BYTES_MAX: Final = 1024
SEQUENCE_FORMAT_VERSION: Final = 2  # in the header of a file whose offsets are a sequence; else 1
_ITEM: Final = make_dtype(ITEM_FIELDS)
assert _ITEM.itemsize == ITEM_FIELDS_POSITION
assert [_ITEM.fields[f.name][1] for f in ITEM_FIELDS] == [0, 8, 12, 16]  # type: ignore[index]

KIND_KEY: Final = 0
KIND_MESSAGE_ID: Final = 1
KIND_BIT: Final = 0x8000_0000
TOPIC_MASK: Final = 0x7FFF_FFFF
# Tags of lookups only, never of items: topic index 2**31 - 1 is never given out.
TAG_NONE: Final = TOPIC_MASK  # matches no item: the topic is not in the dictionary
TAG_ANY_MESSAGE_ID: Final = KIND_BIT | TOPIC_MASK  # matches a message ID of any topic
TOPIC_COUNT_MAX: Final = TOPIC_MASK

# ---- both forms: dictionary entries ------------------------------------------------------------------


# ---- both forms: part table and footer -----------------------------------------------------------------


# ---- chained form: batch records ------------------------------------------------------------------------

BATCH_MAGIC: Final = 0x48435442  # "BTCH"
BATCH_RECORD_FIELDS: Final = (
    Field("magic", "<u4", "`BTCH`"),
    Field("crc", "<u4", "CRC32C of record (this field zero), dictionary rows and items, continued"),
    Field("number", "<u4", "0, 1, 2 ... in this file"),
    Field("item_count", "<u4", "items of the batch, at least 1"),
    Field("dictionary_bytes", "<u4", "bytes of new dictionary entries, before rounding up to rows"),
    Field("flags", "<u4", "1: the dictionary bytes begin with a source position; else zero"),
    Field("uuid", "V16", "as in the header"),
)
BATCH_RECORD: Final = make_dtype(BATCH_RECORD_FIELDS)
BATCH_RECORD_BYTES: Final = BATCH_RECORD.itemsize
BATCH_MAGIC_POSITION: Final = position_of(BATCH_RECORD, "magic")
BATCH_CRC_POSITION: Final = position_of(BATCH_RECORD, "crc")
BATCH_NUMBER_POSITION: Final = position_of(BATCH_RECORD, "number")
BATCH_ITEM_COUNT_POSITION: Final = position_of(BATCH_RECORD, "item_count")
BATCH_DICTIONARY_BYTES_POSITION: Final = position_of(BATCH_RECORD, "dictionary_bytes")
BATCH_FLAGS_POSITION: Final = position_of(BATCH_RECORD, "flags")
BATCH_UUID_POSITION: Final = position_of(BATCH_RECORD, "uuid")
assert BATCH_RECORD_BYTES == 40
BATCH_HAS_SOURCE: Final = 1

SOURCE_FIELDS: Final = (
    Field("uuid", "V16", "of the log file whose messages the batch indexes"),
    Field("batch_count", "<u8", "batches of it that the items up to here come from: it has them"),
    Field("batch_crc", "<u4", "checksum of the last of these"),
    Field("partial", "<u4", "1: not all items of the last of these are here yet; else 0"),
)
SOURCE: Final = make_dtype(SOURCE_FIELDS)
SOURCE_BYTES: Final = SOURCE.itemsize
assert SOURCE_BYTES == 32


# ---- compacted form ---------------------------------------------------------------------------------------

PAGE_FIELDS: Final = (
    Field("crc", "<u4", "CRC32C of the rest of the page, seeded with (uuid, 10, page number)"),
    Field("item_count", "<u2", "items of the page, at least 1; only the last page may be short"),
    Field("hash_width", "u1", "bits of a packed hash: 0..56 or 64"),
    Field("column_count", "u1", "columns with a frame of the page's own; as many heads follow"),
    Field("hash_base", "<u8", "hash i = hash_base + i * hash_slope + packed value i, modulo 2^64"),
    Field("hash_slope", "<u8", "step of the line that the hashes follow; 0 when that is no use"),
)
PAGE_HEADER: Final = make_dtype(PAGE_FIELDS)
PAGE_HEADER_BYTES: Final = PAGE_HEADER.itemsize
PAGE_CRC_POSITION: Final = position_of(PAGE_HEADER, "crc")
PAGE_ITEM_COUNT_POSITION: Final = position_of(PAGE_HEADER, "item_count")
PAGE_HASH_WIDTH_POSITION: Final = position_of(PAGE_HEADER, "hash_width")
PAGE_COLUMN_COUNT_POSITION: Final = position_of(PAGE_HEADER, "column_count")
PAGE_HASH_BASE_POSITION: Final = position_of(PAGE_HEADER, "hash_base")
PAGE_HASH_SLOPE_POSITION: Final = position_of(PAGE_HEADER, "hash_slope")
assert PAGE_HEADER_BYTES == 24
PAGE_COLUMN_FIELDS: Final = (
    Field("base", "<u8", "value = base + scale * packed value, modulo 2^64"),
    Field("scale", "<u4", "common factor of the page's distances from the base, at least 1"),
    Field("width", "u1", "bits of a packed value: 0..56 or 64"),
)
PAGE_COLUMN: Final = make_dtype(PAGE_COLUMN_FIELDS)
PAGE_COLUMN_BYTES: Final = PAGE_COLUMN.itemsize
PAGE_COLUMN_BASE_POSITION: Final = position_of(PAGE_COLUMN, "base")
PAGE_COLUMN_SCALE_POSITION: Final = position_of(PAGE_COLUMN, "scale")
PAGE_COLUMN_WIDTH_POSITION: Final = position_of(PAGE_COLUMN, "width")
assert PAGE_COLUMN_BYTES == 13
PAGE_BYTES_MAX: Final = 4096
PAGE_PADDING_MAX: Final = 14  # 7 to 14 zero bytes end a page, so that 8-byte loads stay inside

CONSTANT_FRAME: Final = 0  # every item has the base; no bits
FILE_FRAME: Final = 1  # base and width are the file's
PAGE_FRAME: Final = 2  # base, scale and width stand in each page
COLUMN_ROTATED: Final = 1  # a tag whose kind bit became the lowest bit
COLUMN_RELATIVE: Final = 2  # an offset packed relative to the base of its topic and queue
COLUMN_FIELDS: Final = (
    Field("frame", "u1", "0 constant, 1 the file's frame, 2 the page's frame"),
    Field("width", "u1", "bits of a packed value in the file's frame, else 0"),
    Field("flags", "u1", "1 kind bit rotated to the lowest bit, 2 relative to the queue's base"),
    Field("reserved", "V5", "zero"),
    Field("base", "<u8", "base of the file's frame, else 0"),
    Field("least", "<u8", "least value of the column (bit pattern of its sign-extended 64 bits)"),
    Field("greatest", "<u8", "greatest value of the column, likewise"),
)
COLUMN: Final = make_dtype(COLUMN_FIELDS)
assert COLUMN.itemsize == 32

QUEUE_FIELDS: Final = (
    Field("topic", "<u4", "index of the topic"),
    Field("queue_id", "<i4", "queue of the topic"),
    Field("base", "<i8", "not above any offset of the queue; relative offsets start here"),
    Field("end", "<i8", "greatest offset + size of the queue"),
)
QUEUE: Final = make_dtype(QUEUE_FIELDS)
assert QUEUE.itemsize == 24

TOPIC_FIELDS: Final = (
    Field("item_count", "<u8", "items of the topic; topics stand in the dictionary's order"),
    Field("min_time", "<i8", "least time of the topic's items; 0 when there are none"),
    Field("max_time", "<i8", "greatest time of the topic's items; -1 when there are none"),
)
TOPIC: Final = make_dtype(TOPIC_FIELDS)
assert TOPIC.itemsize == 24

STATISTICS_FIELDS: Final = (
    Field("item_count", "<u8", "items in the pages"),
    Field("distinct_count", "<u8", "distinct hashes among them: the filter's keys"),
    Field("min_time", "<i8", "least time; 0 in a file without items"),
    Field("max_time", "<i8", "greatest time; -1 in a file without items"),
    Field("longest_run", "<u8", "items of the most frequent hash"),
    Field("page_count", "<u4", "pages; the directory has one entry more"),
    Field("items_per_page", "<u2", "items of every page but the last"),
    Field("filter_bits", "u1", "bits of a fingerprint: 16, 8, or 0 without a filter"),
    Field("reserved", "u1", "zero"),
)
STATISTICS: Final = make_dtype(STATISTICS_FIELDS)
assert STATISTICS.itemsize == 48

DIRECTORY_FIELDS: Final = (
    Field("first_hash", "<u8", "hash of the page's first item; all ones in the closing entry"),
    Field("position", "<u8", "first byte of the page; the closing entry: end of the last page"),
    Field("min_time", "<i8", "least time in the page; the closing entry: in the file"),
    Field("max_time", "<i8", "greatest time in the page; the closing entry: in the file"),
)
DIRECTORY_ENTRY: Final = make_dtype(DIRECTORY_FIELDS)
DIRECTORY_ENTRY_BYTES: Final = DIRECTORY_ENTRY.itemsize
DIRECTORY_FIRST_HASH_POSITION: Final = position_of(DIRECTORY_ENTRY, "first_hash")
DIRECTORY_POSITION_POSITION: Final = position_of(DIRECTORY_ENTRY, "position")
DIRECTORY_MIN_TIME_POSITION: Final = position_of(DIRECTORY_ENTRY, "min_time")
DIRECTORY_MAX_TIME_POSITION: Final = position_of(DIRECTORY_ENTRY, "max_time")
assert DIRECTORY_ENTRY_BYTES == 32
DIRECTORY_BLOCK_BYTES: Final = 4096  # unit of the directory's checksums: 128 entries

# A hash group is what the sidecar knows of one range of hashes, so that a reader needs no more of it.
HASH_GROUP_FIELDS: Final = (
    Field("crc", "<u4", "CRC32C of the rest of the group, seeded with (uuid, 22, group number)"),
    Field("length", "<u4", "bytes of the group, this header included; zeros end its place"),
    Field("group_count", "<u4", "groups of the file; number = upper half of hash * group_count"),
    Field("filter_bits", "u1", "bits of a fingerprint, as in the statistics"),
    Field("part_count", "u1", "part table entries behind this header: the head's, the directory's"),
    Field("reserved", "V2", "zero"),
    Field("first_page", "<u4", "page of the first directory entry"),
    Field("entry_count", "<u4", "entries of the group's pages, and the one behind them"),
    Field("entries_here", "<u4", "entry_count, or 0 when they are too many: see the directory"),
    Field("entries_crc", "<u4", "CRC32C of these entries, seeded with (uuid, 22, group number)"),
    *(
        Field(f"partition_{name}", code, f"`{name}` of the filter partition of this number")
        for name, code, _ in FILTER_PARTITION_FIELDS
    ),
)
HASH_GROUP: Final = make_dtype(HASH_GROUP_FIELDS)
HASH_GROUP_BYTES: Final = HASH_GROUP.itemsize
HASH_GROUP_PARTITION_POSITION: Final = position_of(HASH_GROUP, "partition_position")
HASH_GROUP_UNIT: Final = 64  # groups lie at multiples of it, all at one distance
assert HASH_GROUP_BYTES == 64


def slots_bytes(slot_count: int) -> int:
    """Return the bytes of the slot region, padding included."""
    return round_up(SLOT_BYTES * slot_count, BLOCK_BYTES)


def rows_position(slot_count: int) -> int:
    """Return the first byte of row 1."""
    return HEADER_BYTES + slots_bytes(slot_count)


def batch_rows(item_bytes: int, dictionary_bytes: int, item_count: int) -> int:
    """Return the rows of a batch: its record, its dictionary entries, its items."""
    record = round_up(BATCH_RECORD_BYTES, item_bytes) // item_bytes
    return record + round_up(dictionary_bytes, item_bytes) // item_bytes + item_count


# ---- both forms: the documentation of shared structs -----------------------------------------------------

SHARED_STRUCTS: Final = {
    "Header": HEADER_FIELDS,
    "Predecessor (chained form, the last bytes of the header)": PREDECESSOR_FIELDS,
    "Item (fields of every schema)": ITEM_FIELDS,
    "Dictionary entry": DICTIONARY_ENTRY_FIELDS,
    "Part table entry": PART_ENTRY_FIELDS,
    "Footer": FOOTER_FIELDS,
    "Batch record (chained form)": BATCH_RECORD_FIELDS,
    "Source position (chained form)": SOURCE_FIELDS,
    "Page header (compacted form)": PAGE_FIELDS,
    "Page column (compacted form)": PAGE_COLUMN_FIELDS,
    "Column (compacted form)": COLUMN_FIELDS,
    "Queue (compacted form)": QUEUE_FIELDS,
    "Topic (compacted form)": TOPIC_FIELDS,
    "Statistics (compacted form)": STATISTICS_FIELDS,
    "Directory entry (compacted form)": DIRECTORY_FIELDS,
    "Filter partition (compacted form)": FILTER_PARTITION_FIELDS,
    "Hash group (compacted form)": HASH_GROUP_FIELDS,
}


def describe() -> str:
    """Return the tables of docs/format.md, in Markdown, from the same tuples as the dtypes."""
    parts = ["### Parts", "", "| number | part |", "|--:|---|"]
    parts += [f"| {part.value} | {part.name.lower().replace('_', ' ')} |" for part in Part]
    tables = [describe_struct(title, fields) for title, fields in SHARED_STRUCTS.items()]
    return "\n\n".join([*tables, "\n".join(parts)]) + "\n"
