"""Byte layout of a log file: the only place where an offset, a dtype or a magic is written down.

A log file is one header, its form's own region, parts, and a footer at the very end::

    journal  | HEADER 4096 | batch | batch | ... to 4096 | slots | queues | parts | part table | FOOTER |
    grouped  | HEADER 4096 | page | page | ...           | parts          | part table | FOOTER |

    batch    | RECORD 64 | row | row | ... | entry | entry | ... | zeros to 8 |
    page     | PAGE HEADER 48 | payload: plain, lz4 or zstd |
    payload  | queues | counts | sizes | times | flags | extra sizes | 8 zeros | extras | bodies |

An unsealed journal has no parts and is exactly `capacity` bytes long; a sealed one never is. A *row* is
one message of a journal and begins at a multiple of 4; its *slot* is its position / 4. A queue's number
in a journal counts the queues of that file in order of their first message.

All integers are little-endian. Reserved bytes are written as zero and refused otherwise. A reader
refuses a newer `format_version`. Every CRC32C is seeded with (file uuid, part, number), so that the
right bytes in the wrong place fail. The tables of docs/log_format.md are rendered from these tuples.

Depends on fileparts only.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from tierdex.fileparts.layout import (
    FILTER_PARTITION_FIELDS,
    FOOTER_FIELDS,
    HEADER_BYTES,
    PART_ENTRY_FIELDS,
    PREDECESSOR_FIELDS,
    Field,
    describe_struct,
    make_dtype,
)

if TYPE_CHECKING:
    import numpy as np


def places(dtype: np.dtype) -> dict[str, int]:
    """Return where each field begins, for kernels."""
    assert dtype.fields is not None
    return {name: int(dtype.fields[name][1]) for name in dtype.fields}


# ---- both forms: header -------------------------------------------------------------------------------

HEADER_MAGIC: Final = b"TIERDXL1"


class Form(IntEnum):
    """Which of the two forms a file has. On disk: never renumber."""

    JOURNAL = 1
    GROUPED = 2


class Codec(IntEnum):
    """How a page's payload is stored. On disk: never renumber."""

    PLAIN = 0
    LZ4 = 1
    ZSTD = 2


HEADER_FIELDS: Final = (
    Field("magic", "S8", "`TIERDXL1`; anything else is not a log file"),
    Field("format_version", "<u2", "layout revision; a reader refuses a newer one"),
    Field("form", "u1", "1 journal, 2 grouped"),
    Field("codec", "u1", "of a grouped file's pages: 0 plain, 1 lz4 (raw block), 2 zstd"),
    Field("crc", "<u4", "CRC32C of these 4096 bytes, this field and the predecessor taken as zero"),
    Field("uuid", "V16", "the file's identity, the same in all its forms"),
    Field("created_ms", "<i8", "wall time of the file's birth, ms since the epoch"),
    Field("capacity", "<u8", "length of the journal while it is unsealed; 0 when grouped"),
    Field("generation", "<u8", "rises whenever a recovery took offsets back"),
    Field("page_bytes", "<u4", "greatest payload of a page with several messages; 0 in a journal"),
    Field("lanes", "u1", "zero: kept for several journals side by side"),
    Field("reserved", "V3", "zero"),
)
HEADER: Final = make_dtype(HEADER_FIELDS)
assert HEADER.itemsize == 64, HEADER.itemsize

POSITION_UNIT: Final = 4  # of rows: a slot is u4
JOURNAL_BYTES_MAX: Final = POSITION_UNIT << 32
JOURNAL_BYTES_MIN: Final = 2 * HEADER_BYTES
TOPIC_BYTES_MAX: Final = 255
QUEUE_ID_MAX: Final = 0x7FFF_FFFF

# ---- journal: batches ---------------------------------------------------------------------------------

RECORD_MAGIC: Final = 0x4843424C  # "LBCH"
RECORD_FIELDS: Final = (
    Field("magic", "<u4", "`LBCH`"),
    Field("crc", "<u4", "CRC32C of all that follows in the batch, seeded with (uuid, 4, number) and "
          "then the crc of the batch before, as 8 bytes (0 for the first)"),
    Field("number", "<u8", "0, 1, 2 ... in this file"),
    Field("message_count", "<u4", "rows of the batch; 0 when it brings entries only"),
    Field("entry_bytes", "<u4", "bytes of the queue entries"),
    Field("row_bytes", "<u8", "bytes of the rows"),
    Field("base_time", "<i8", "of rows' times: the file's first message's, in all records; 0 before it"),
    Field("uuid", "V16", "as in the header"),
    Field("flags", "<u4", "zero"),
    Field("synced_to", "<u4", "blocks of 4096 that were known to be durable when this was written"),
)  # fmt: skip
RECORD: Final = make_dtype(RECORD_FIELDS)
RECORD_BYTES: Final = RECORD.itemsize
assert RECORD_BYTES == 64, RECORD_BYTES
BATCH_UNIT: Final = 8

ENTRY_FIELDS: Final = (
    Field("queue", "<u4", "the queue's number in this file: one more than the entry's before it"),
    Field("topic", "<u4", "its topic's number in this file, likewise; at most one more than known"),
    Field("queue_id", "<i4", "queue of the topic"),
    Field("name_bytes", "<u2", "bytes of the topic's name, which follows; 0 once it is known"),
    Field("reserved", "<u2", "zero"),
    Field("first_offset", "<i8", "offset of the queue's first message in this file"),
)
ENTRY: Final = make_dtype(ENTRY_FIELDS)
ENTRY_BYTES: Final = ENTRY.itemsize
assert ENTRY_BYTES == 24, ENTRY_BYTES

ROW_FIELDS: Final = (
    Field("size", "<u4", "bytes of the body (26 bits), flags in the upper bits"),
    Field("queue", "<u4", "the queue's number in this file"),
    Field("time", "<i4", "time - base time, ms; 0 when the time follows as i8"),
)
ROW: Final = make_dtype(ROW_FIELDS)
ROW_BYTES: Final = ROW.itemsize
assert ROW_BYTES == 12, ROW_BYTES
BODY_BITS: Final = 26
BODY_BYTES_MAX: Final = (1 << BODY_BITS) - 1
ROW_HAS_EXTRA: Final = 1 << 26  # extra_bytes u4 and the extra stand before the body
ROW_LONG_TIME: Final = 1 << 27  # time i8 stands after the row's head
ROW_FORGOTTEN: Final = 1 << 28  # the body was taken away; the offset stays
ROW_HELD: Final = 1 << 29  # waits for the timer
ROW_FLAGS: Final = ROW_HAS_EXTRA | ROW_LONG_TIME | ROW_FORGOTTEN | ROW_HELD
LONG_TIME_BYTES: Final = 8
EXTRA_LENGTH_BYTES: Final = 4
EXTRA_BYTES_MAX: Final = 1 << 24

MESSAGE_FORGOTTEN: Final = 1  # flags of a message, in pages and in memory
MESSAGE_HELD: Final = 2
MESSAGE_FLAGS_SHIFT: Final = 28  # from a row's flags to these


class ExtraTag(IntEnum):
    """What an item of an extra is; items stand in this order. On disk: never renumber."""

    MESSAGE_ID = 1
    KEY = 2
    HEADER = 3
    DELIVER_AT = 4
    TARGET = 5


EXTRA_FIELDS: Final = (
    Field("tag", "u1", "1 message ID, 2 key, 3 header, 4 deliver_at (8 bytes, int64 ms), 5 target"),
    Field("name_bytes", "u1", "bytes of a header's name, which follows; else 0"),
    Field("value_bytes", "<u2", "bytes of the value, which follows the name"),
)
EXTRA: Final = make_dtype(EXTRA_FIELDS)
EXTRA_ITEM_BYTES: Final = EXTRA.itemsize
EXTRA_STRUCT: Final = struct.Struct("<BBH")  # the same, for items that are taken one by one
assert EXTRA_STRUCT.size == EXTRA_ITEM_BYTES == 4
TARGET_FIELDS: Final = (
    Field("timestamp", "<i8", "of the message; that of its row is its deliver_at"),
    Field("queue_id", "<i4", "queue that it is delivered to; the topic's name follows"),
)
TARGET: Final = make_dtype(TARGET_FIELDS)
TARGET_BYTES: Final = TARGET.itemsize
TARGET_STRUCT: Final = struct.Struct("<qi")
assert TARGET_STRUCT.size == TARGET_BYTES == 12
# Held messages lie here, in a queue an hour; no caller can name it (a control character).
TIMER_TOPIC: Final = b"\x00timer"
HOUR_MS: Final = 3_600_000
MARKS_QUEUE: Final = (1 << 31) - 1  # of that topic: how far messages were delivered, as MARK says
MARK_FIELDS: Final = (
    Field("deliver_at", "<i8", "of the message delivered last; all due before are delivered"),
    Field(
        "offset", "<i8", "its offset in its hour's queue: of several due together, those up to it"
    ),
)
MARK: Final = make_dtype(MARK_FIELDS)
assert MARK.itemsize == 16

# ---- journal: what a sealed one has more ------------------------------------------------------------------

SLOT_BYTES: Final = 4
JOURNAL_QUEUE_FIELDS: Final = (
    Field("topic", "<u4", "index of the topic, in order of names"),
    Field("queue_id", "<i4", "queue of the topic"),
    Field("first_offset", "<i8", "offset of its first message here"),
    Field("first_slot", "<u8", "index of that message's slot"),
    Field("count", "<u4", "messages, whose offsets follow each other"),
    Field("number", "<u4", "the queue's number in rows and entries"),
)
JOURNAL_QUEUE: Final = make_dtype(JOURNAL_QUEUE_FIELDS)
assert JOURNAL_QUEUE.itemsize == 32

CHECKPOINT_BATCHES: Final = 256
CHECKPOINT_FIELDS: Final = (
    Field("position", "<u8", "first byte of batch 256 * i"),
    Field("crc", "<u8", "crc of the batch before it, where a scan goes on; 0 for the first"),
    Field("message_count", "<u8", "messages before it"),
    Field(
        "max_time", "<i8", "greatest time of the messages before it; the least int64 for the first"
    ),
)
CHECKPOINT: Final = make_dtype(CHECKPOINT_FIELDS)
assert CHECKPOINT.itemsize == 32

JOURNAL_STATISTICS_FIELDS: Final = (
    Field("message_count", "<u8", "messages in the file"),
    Field("body_bytes", "<u8", "bytes of their bodies"),
    Field("batch_count", "<u8", "batches"),
    Field("batch_crc", "<u8", "crc of the last batch; 0 without one"),
    Field("end", "<u8", "the byte behind the last batch"),
    Field("queue_count", "<u4", "queues with a message here"),
    Field("topic_count", "<u4", "topics with a message here"),
    Field("base_time", "<i8", "of the rows' times; 0 without a message"),
    Field("min_time", "<i8", "least time; 0 without a message"),
    Field("max_time", "<i8", "greatest time; -1 without a message"),
)
JOURNAL_STATISTICS: Final = make_dtype(JOURNAL_STATISTICS_FIELDS)
assert JOURNAL_STATISTICS.itemsize == 72

# ---- both forms: topics -----------------------------------------------------------------------------------

TOPIC_FIELDS: Final = (
    Field("name_end", "<u8", "where its name ends in the dictionary, and the next one begins"),
    Field("first_queue", "<u4", "index of its first queue; topics stand in order of names"),
    Field("queue_count", "<u4", "its queues, in order of queue_id"),
    Field("message_count", "<u8", "messages of the topic"),
    Field("body_bytes", "<u8", "bytes of their bodies"),
    Field("min_time", "<i8", "least time of its messages"),
    Field("max_time", "<i8", "greatest time of its messages"),
)
TOPIC: Final = make_dtype(TOPIC_FIELDS)
TOPIC_ROW_BYTES: Final = TOPIC.itemsize
assert TOPIC_ROW_BYTES == 48

# ---- grouped form -----------------------------------------------------------------------------------------

PAGE_FIELDS: Final = (
    Field("crc", "<u4", "CRC32C of the rest of the page, seeded with (uuid, 10, page number)"),
    Field("raw_bytes", "<u4", "bytes of the payload before it was compressed"),
    Field("stored_bytes", "<u4", "bytes of the payload as it follows"),
    Field("message_count", "<u2", "messages, 1 to 4096"),
    Field("run_count", "<u2", "queues that they are of"),
    Field("size_base", "<u4", "least body size; the packed sizes are above it"),
    Field("extra_base", "<u4", "least bytes of an extra; the packed ones are above it"),
    Field("time_base", "<i8", "least time; the packed times are above it, modulo 2^64"),
    Field("codec", "u1", "0 plain, 1 lz4 (raw block), 2 zstd"),
    Field("queue_width", "u1", "bits of a packed queue: its index less the page's first"),
    Field("count_width", "u1", "bits of a packed count: messages of the run, less one"),
    Field("size_width", "u1", "bits of a packed size"),
    Field("time_width", "u1", "bits of a packed time: 0..56 or 64"),
    Field("flag_width", "u1", "bits of a message's flags: 1 forgotten, 2 held for the timer"),
    Field("extra_width", "u1", "bits of a packed extra size"),
    Field("reserved", "V9", "zero"),
)
PAGE_HEADER: Final = make_dtype(PAGE_FIELDS)
PAGE_HEADER_BYTES: Final = PAGE_HEADER.itemsize
assert PAGE_HEADER_BYTES == 48, PAGE_HEADER_BYTES
PAGE_MESSAGES_MAX: Final = 4096
PAGE_BYTES_DEFAULT: Final = 16 << 10
COLD_PAGE_BYTES: Final = 64 << 10  # of a merged file, which is read seldom
PAGE_BYTES_MIN: Final = 256
PAGE_BYTES_MAX: Final = 1 << 20
PAYLOAD_BYTES_MAX: Final = BODY_BYTES_MAX + EXTRA_BYTES_MAX + (1 << 12)  # of one message, alone
COLUMNS_PADDING: Final = 8  # so that an 8-byte load of the last packed value stays inside

DIRECTORY_FIELDS: Final = (
    Field("position", "<u8", "first byte of the page; the closing entry: end of the last page"),
    Field(
        "first_queue", "<u4", "index of the queue of its first message; the closing entry: queues"
    ),
    Field("first_ordinal", "<u4", "that message's place in its queue here, from 0"),
    Field("min_time", "<i8", "least time in the page; the closing entry: in the file"),
    Field("max_time", "<i8", "greatest time in the page; the closing entry: in the file"),
)
DIRECTORY_ENTRY: Final = make_dtype(DIRECTORY_FIELDS)
assert DIRECTORY_ENTRY.itemsize == 32

QUEUE_GROUP: Final = 512  # queues whose columns are packed together
QUEUE_GROUP_FIELDS: Final = (
    Field(
        "position", "<u8", "first byte of the group in the part queues: ids, first offsets, counts"
    ),
    Field("offset_base", "<i8", "least first offset of the group's queues"),
    Field("id_base", "<i4", "least queue_id"),
    Field("count_base", "<u4", "least count"),
    Field("id_width", "u1", "bits of a packed queue_id"),
    Field("offset_width", "u1", "bits of a packed first offset: 0..56 or 64"),
    Field("count_width", "u1", "bits of a packed count"),
    Field("reserved", "V5", "zero"),
)
QUEUE_GROUP_ROW: Final = make_dtype(QUEUE_GROUP_FIELDS)
assert QUEUE_GROUP_ROW.itemsize == 32

GROUPED_STATISTICS_FIELDS: Final = (
    Field("message_count", "<u8", "messages in the pages"),
    Field("body_bytes", "<u8", "bytes of their bodies"),
    Field("payload_bytes", "<u8", "bytes of all payloads before they were compressed"),
    Field("queue_count", "<u4", "queues"),
    Field("topic_count", "<u4", "topics"),
    Field("page_count", "<u4", "pages; the directory has one entry more"),
    Field(
        "filter_bits", "u1", "bits of a fingerprint of the queues' filter: 16, 8, or 0 without one"
    ),
    Field("reserved", "V3", "zero"),
    Field("min_time", "<i8", "least time; 0 in a file without messages"),
    Field("max_time", "<i8", "greatest time; -1 in a file without messages"),
)
GROUPED_STATISTICS: Final = make_dtype(GROUPED_STATISTICS_FIELDS)
assert GROUPED_STATISTICS.itemsize == 56

QUEUE_HASH_SEED: Final = 42  # hash of a queue: XXH64(queue_id as i8, seed = XXH64(topic, this))

QUEUE_TABLE_HEAD_FIELDS: Final = (
    Field("topic_count", "<u4", "topics, in order of names"),
    Field("reserved", "V4", "zero"),
    Field("queue_count", "<u8", "queues, in order of (topic's name, queue_id)"),
    Field("names_bytes", "<u8", "bytes of the topics' names, which follow; then zeros to 8"),
)
QUEUE_TABLE_HEAD: Final = make_dtype(QUEUE_TABLE_HEAD_FIELDS)
QUEUE_TABLE_FIELDS: Final = (
    Field("topic", "<u4", "index of its topic in the table's own names"),
    Field("queue_id", "<i4", "queue of the topic"),
    Field("next_offset", "<i8", "offset of the message that comes next"),
    Field("last_file", "<i8", "number of the last file that holds messages of it; -1: none"),
)
QUEUE_TABLE_ROW: Final = make_dtype(QUEUE_TABLE_FIELDS)
assert QUEUE_TABLE_ROW.itemsize == 24

SHARES_HEAD_FIELDS: Final = (
    Field(
        "share_count",
        "<u4",
        "files that were merged: their uuids follow, 16 bytes each, oldest first",
    ),
    Field(
        "queue_count",
        "<u4",
        "queues of the file; then, as zstd, the messages u4 of each, share by share",
    ),
)
SHARES_HEAD: Final = make_dtype(SHARES_HEAD_FIELDS)
assert SHARES_HEAD.itemsize == 8

# ---- the documentation ------------------------------------------------------------------------------------

STRUCTS: Final = {
    "Header": HEADER_FIELDS,
    "Predecessor (journal, the last bytes of the header)": PREDECESSOR_FIELDS,
    "Batch record (journal)": RECORD_FIELDS,
    "Queue entry (journal)": ENTRY_FIELDS,
    "Row (journal)": ROW_FIELDS,
    "Item of an extra": EXTRA_FIELDS,
    "Target of a held message": TARGET_FIELDS,
    "Mark of the timer": MARK_FIELDS,
    "Queue (sealed journal)": JOURNAL_QUEUE_FIELDS,
    "Checkpoint (sealed journal)": CHECKPOINT_FIELDS,
    "Statistics (sealed journal)": JOURNAL_STATISTICS_FIELDS,
    "Topic (sealed journal, grouped form)": TOPIC_FIELDS,
    "Page header (grouped form)": PAGE_FIELDS,
    "Directory entry (grouped form)": DIRECTORY_FIELDS,
    "Group of queues (grouped form)": QUEUE_GROUP_FIELDS,
    "Statistics (grouped form)": GROUPED_STATISTICS_FIELDS,
    "Head of a queue table": QUEUE_TABLE_HEAD_FIELDS,
    "Row of a queue table": QUEUE_TABLE_FIELDS,
    "Head of the shares (merged file)": SHARES_HEAD_FIELDS,
    "Filter partition (grouped form)": FILTER_PARTITION_FIELDS,
    "Part table entry": PART_ENTRY_FIELDS,
    "Footer": FOOTER_FIELDS,
}


def describe() -> str:
    """Return the tables of docs/log_format.md, in Markdown, from the same tuples as the dtypes."""
    return "\n\n".join(describe_struct(title, fields) for title, fields in STRUCTS.items()) + "\n"
