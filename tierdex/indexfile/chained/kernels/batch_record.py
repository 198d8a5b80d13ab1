"""The record of a batch: the one place that lays it out, and that says whether bytes are one.

::

    | record, padded to rows | [source] dictionary entries, padded to rows | items | (the next record)
      magic crc number ...

    begin_batch    record without its crc, dictionary entries     -> items are written behind them
    end_batch      the next record zeroed, then the crc           -> the batch is real
    batch_length, batch_crc    the same, read

Order: an append stores everything of a batch before its crc, the last store of all. A crash before it
leaves a record that does not verify, so recovery ends at the batch before. What an older, cut-off batch
left behind this one is zeroed first: it might verify as the batch after it.

Depends on batch_statistics, checksum, intrinsics, compile and layout.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tierdex.fileparts.kernels.checksum import crc32c, crc_of, crc_state, crc_step
from tierdex.fileparts.kernels.compile import kernel, primitive
from tierdex.fileparts.kernels.intrinsics import (
    join_u32,
    load_u8,
    load_u32,
    load_u64,
    store_slot,
    store_u8,
    store_u64,
)
from tierdex.fileparts.layout import UUID_BYTES
from tierdex.indexfile import layout
from tierdex.indexfile.chained.kernels.batch_statistics import (
    B_BATCHES,
    B_CRC,
    B_ITEM_BYTES,
    B_NEXT_ROW,
    B_ROWS,
    B_UUID,
)

_MAGIC = np.uint32(layout.BATCH_MAGIC)
_RECORD_BYTES = layout.BATCH_RECORD_BYTES
_MAGIC_AT = layout.BATCH_MAGIC_POSITION
_CRC_AT = layout.BATCH_CRC_POSITION
_NUMBER_AT = layout.BATCH_NUMBER_POSITION
_ITEM_COUNT_AT = layout.BATCH_ITEM_COUNT_POSITION
_DICTIONARY_BYTES_AT = layout.BATCH_DICTIONARY_BYTES_POSITION
_FLAGS_AT = layout.BATCH_FLAGS_POSITION
_UUID_AT = layout.BATCH_UUID_POSITION
_UUID_HALF = UUID_BYTES // 2
_UUID_END_AT = _UUID_AT + _UUID_HALF
_BEHIND_CRC = _CRC_AT + 4
_HAS_SOURCE = np.uint32(layout.BATCH_HAS_SOURCE)
_SOURCE_BYTES = layout.SOURCE_BYTES
_U0 = np.uint64(0)
# Each line of `_write_record` is one word of 8 bytes; the checksum steps from word to word.
_WORDS = (_MAGIC_AT, _NUMBER_AT, _DICTIONARY_BYTES_AT, _UUID_AT, _UUID_END_AT, _RECORD_BYTES)
assert _WORDS == (0, 8, 16, 24, 32, 40), _WORDS
assert (_CRC_AT, _ITEM_COUNT_AT, _FLAGS_AT) == (
    _MAGIC_AT + 4,
    _NUMBER_AT + 4,
    _DICTIONARY_BYTES_AT + 4,
)


@primitive
def place_of_row(statistics: Any, row: int) -> Any:
    return statistics[B_ROWS] + (row - 1) * statistics[B_ITEM_BYTES]


@primitive
def rows_for(length: int, item_bytes: int) -> Any:
    """Return how many rows `length` bytes take."""
    return (length + item_bytes - 1) // item_bytes


# -- writing ----------------------------------------------------------------------------------------


@primitive
def write_record(
    statistics: Any, record: int, item_count: int, dictionary_bytes: int, flags: Any
) -> Any:
    """Write the next batch's record at `record`, its crc zero; return the state of its checksum."""
    first = join_u32(_MAGIC, np.uint32(0))
    second = join_u32(np.uint32(statistics[B_BATCHES]), np.uint32(item_count))
    third = join_u32(np.uint32(dictionary_bytes), np.uint32(flags))
    uuid, uuid_end = load_u64(statistics[B_UUID]), load_u64(statistics[B_UUID] + _UUID_HALF)
    store_u64(record + _MAGIC_AT, first)
    store_u64(record + _NUMBER_AT, second)
    store_u64(record + _DICTIONARY_BYTES_AT, third)
    store_u64(record + _UUID_AT, uuid)
    store_u64(record + _UUID_END_AT, uuid_end)
    state = crc_step(crc_step(crc_state(statistics[B_CRC]), first), second)
    return crc_step(crc_step(crc_step(state, third), uuid), uuid_end)


@kernel
def begin_batch(
    statistics: Any, item_count: int, dictionary: int, dictionary_bytes: int, flags: int
) -> Any:
    """Write what comes before the items of the batch at B_NEXT_ROW; return the row of the first item.

    `dictionary` is the address of its new dictionary entries, behind its source position when `flags`
    (0 or BATCH_HAS_SOURCE) says that it has one. B_CRC goes on behind them.
    """
    item_bytes, row = statistics[B_ITEM_BYTES], statistics[B_NEXT_ROW]
    record = place_of_row(statistics, row)
    entries = record + rows_for(_RECORD_BYTES, item_bytes) * item_bytes
    items = entries + rows_for(dictionary_bytes, item_bytes) * item_bytes
    state = write_record(statistics, record, item_count, dictionary_bytes, flags)
    behind = record + _RECORD_BYTES
    for place in range(behind, items, 8):  # rows are multiples of 8 bytes, and so is the record
        store_u64(place, _U0)
    for i in range(dictionary_bytes):
        store_u8(entries + i, load_u8(dictionary + i))
    statistics[B_CRC] = np.int64(crc32c(behind, items - behind, crc_of(state)))
    return row + (items - record) // item_bytes


@primitive
def end_batch(statistics: Any, row_count: int, row_limit: int) -> None:
    """Make the batch of `row_count` rows at B_NEXT_ROW real; its checksum is B_CRC.

    The file has room for rows up to `row_limit`.
    """
    item_bytes, row = statistics[B_ITEM_BYTES], statistics[B_NEXT_ROW]
    record = place_of_row(statistics, row)
    if row + row_count - 1 + rows_for(_RECORD_BYTES, item_bytes) <= row_limit:
        after = record + row_count * item_bytes
        for place in range(after, after + _RECORD_BYTES, 8):
            store_u64(place, _U0)
    # Everything of the batch is in place before this; recovery finds the batch from here on.
    store_slot(record + _CRC_AT, np.uint32(statistics[B_CRC]))
    statistics[B_BATCHES] += 1
    statistics[B_NEXT_ROW] = row + row_count


@kernel
def finish_batch(statistics: Any, row_count: int, row_limit: int) -> None:
    """Do as `end_batch` does, for Python."""
    end_batch(statistics, row_count, row_limit)


# -- reading ----------------------------------------------------------------------------------------


@primitive
def item_count_of(record: int) -> Any:
    return np.int64(load_u32(record + _ITEM_COUNT_AT))


@primitive
def dictionary_bytes_of(record: int) -> Any:
    return np.int64(load_u32(record + _DICTIONARY_BYTES_AT))


@primitive
def has_source(record: int) -> Any:
    """Return whether the batch's dictionary bytes begin with a source position."""
    return load_u32(record + _FLAGS_AT) == _HAS_SOURCE


@primitive
def crc_of_record(record: int) -> Any:
    return load_u32(record + _CRC_AT)


@primitive
def record_rows(statistics: Any) -> Any:
    """Return the rows of a record: dictionary entries begin behind them."""
    return rows_for(_RECORD_BYTES, statistics[B_ITEM_BYTES])


@kernel
def batch_length(statistics: Any, record: int, rows_left: int) -> Any:
    """Return the rows of the batch whose record is at `record`; 0 when it is no next batch here.

    `rows_left` rows may be read from `record` on; a longer batch counts as none.
    """
    if rows_left < record_rows(statistics):
        return 0
    uuid = statistics[B_UUID]
    items, dictionary_bytes = item_count_of(record), dictionary_bytes_of(record)
    length = record_rows(statistics) + rows_for(dictionary_bytes, statistics[B_ITEM_BYTES]) + items
    if (
        load_u32(record + _MAGIC_AT) != _MAGIC
        or np.int64(load_u32(record + _NUMBER_AT)) != statistics[B_BATCHES]
        or items == 0
        or load_u32(record + _FLAGS_AT) > _HAS_SOURCE
        or (has_source(record) and dictionary_bytes < _SOURCE_BYTES)
        or load_u64(record + _UUID_AT) != load_u64(uuid)
        or load_u64(record + _UUID_END_AT) != load_u64(uuid + _UUID_HALF)
        or length > rows_left
    ):
        return 0
    return np.int64(length)


@kernel
def batch_crc(record: int, length: int, crc: Any) -> Any:
    """Return the checksum of the `length` bytes of a batch at `record`, its crc field taken as zero."""
    first = join_u32(load_u32(record + _MAGIC_AT), np.uint32(0))
    return crc32c(
        record + _BEHIND_CRC, length - _BEHIND_CRC, crc_of(crc_step(crc_state(crc), first))
    )
