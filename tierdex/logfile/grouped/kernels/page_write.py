"""Rows of a journal -> pages: which rows a page takes, and its payload.

    choose_page  rows by address -> how many fit, bases and widths of the columns
    write_page   head and payload of the chosen rows
    finish_page  codec, length and checksum of a page whose payload is stored
    keep_rows    rows that wait for their page -> memory of the writer's own
    blank_rows   rows that were forgotten -> rows with their time and flags alone

A payload's bytes are known exactly while rows are chosen: widths only grow within a page. Depends on bits,
rows, totals, checksum, intrinsics and layout.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tierdex.fileparts.kernels.bits import pack_values
from tierdex.fileparts.kernels.checksum import crc32c, numbered_seed
from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.intrinsics import (
    copy_bytes,
    load_i64,
    load_u32,
    prefetch,
    store_i64,
    store_u8,
    store_u16,
    store_u32,
    store_u64,
)
from tierdex.logfile import layout
from tierdex.logfile.kernels.rows import open_row
from tierdex.logfile.kernels.totals import TIME_MAX, TIME_MIN, TOTALS_BYTES, count_messages

# Words of a writer: where it is among the queues, and what the last chosen page is like.
(
    G_COUNTS, G_TOPICS, G_TOTALS,  # addresses: u4 a queue, u4 a queue, four i8 a topic
    G_QUEUE, G_ORDINAL,  # of the message that comes next
    G_PAGE_BYTES,
    G_TAKEN, G_RUNS, G_RAW,  # the chosen page: messages, runs, bytes of the payload
    G_SIZE_BASE, G_EXTRA_BASE, G_TIME_BASE, G_MAX_TIME,
    G_QUEUE_WIDTH, G_COUNT_WIDTH, G_SIZE_WIDTH, G_TIME_WIDTH, G_FLAG_WIDTH, G_EXTRA_WIDTH,
    G_BODIES, G_EXTRAS,
) = range(21)  # fmt: skip
WRITER_WORDS: Final = 24

# Rows of the scratch array, u8 each: what is known of a chosen message or run.
X_SIZE, X_TIME, X_FLAGS, X_EXTRA, X_BODY_AT, X_EXTRA_AT, X_RUN_QUEUE, X_RUN_COUNT, X_PACKED = range(
    9
)
SCRATCH_ROWS: Final = 9
MOST: Final = layout.PAGE_MESSAGES_MAX

_PAGE = layout.places(layout.PAGE_HEADER)
_P_CRC, _P_RAW, _P_STORED = _PAGE["crc"], _PAGE["raw_bytes"], _PAGE["stored_bytes"]
_P_COUNT, _P_RUNS = _PAGE["message_count"], _PAGE["run_count"]
_P_SIZE, _P_EXTRA, _P_TIME = _PAGE["size_base"], _PAGE["extra_base"], _PAGE["time_base"]
_P_CODEC, _P_QUEUE_WIDTH = _PAGE["codec"], _PAGE["queue_width"]
_P_RESERVED: Final = _PAGE["reserved"]
_HEAD: Final = layout.PAGE_HEADER_BYTES
_PADDING: Final = layout.COLUMNS_PADDING
_WIDTHS: Final = 6
_ROW = layout.places(layout.ROW)
_SIZE, _QUEUE, _TIME = _ROW["size"], _ROW["queue"], _ROW["time"]
_ROW_BYTES: Final = layout.ROW_BYTES
_LONG, _HAS_EXTRA = layout.ROW_LONG_TIME, layout.ROW_HAS_EXTRA
_LONG_BYTES, _EXTRA_LENGTH = layout.LONG_TIME_BYTES, layout.EXTRA_LENGTH_BYTES
_FLAGS_SHIFT: Final = layout.MESSAGE_FLAGS_SHIFT
_UNIT: Final = layout.POSITION_UNIT
_FORGOTTEN: Final = layout.MESSAGE_FORGOTTEN
BLANK_BYTES: Final = _ROW_BYTES + _LONG_BYTES  # of a row without extra and body
_AHEAD: Final = 24
_U0, _U1 = np.uint64(0), np.uint64(1)
_INT64_MIN, _INT64_MAX = np.int64(-0x8000000000000000), np.int64(0x7FFFFFFFFFFFFFFF)


@kernel
def _widened(width: int, span: Any) -> Any:
    """Return the stored width for values up to u8 `span`, which is at least `width`."""
    while width < 64 and (span >> np.uint64(width)) != _U0:
        width += 1
    return width if width <= 56 else np.int64(64)


@kernel
def _column_bytes(count: int, width: int) -> Any:
    return (count * width + 7) >> 3


@kernel
def choose_page(g: Any, addresses: int, bases: int, count: int, scratch: Any, is_last: bool) -> Any:
    """Choose the rows of the next page among `count`; return how many, 0 when more have to come first.

    Fills the scratch and the words from G_TAKEN on.
    """
    size_least, size_most = _INT64_MAX, np.int64(0)
    extra_least, extra_most = _INT64_MAX, np.int64(0)
    time_least, time_most = _INT64_MAX, _INT64_MIN
    all_flags = np.int64(0)
    widths = np.zeros(_WIDTHS, np.int64)  # queue, count, size, time, flags, extra
    g[G_TAKEN] = 0
    if count == 0:
        return np.int64(0)
    queue = g[G_QUEUE]
    left = np.int64(load_u32(g[G_COUNTS] + 4 * queue)) - g[G_ORDINAL]
    while left == 0:
        queue += 1
        left = np.int64(load_u32(g[G_COUNTS] + 4 * queue))
        g[G_QUEUE], g[G_ORDINAL] = queue, 0
    first_queue = queue
    runs, run_most, bodies, extras = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    for i in range(count):
        if i == MOST:
            return np.int64(i)
        if i + _AHEAD < count:
            prefetch(load_i64(addresses + 8 * (i + _AHEAD)))
        opened = open_row(load_i64(addresses + 8 * i), load_i64(bases + 8 * i))
        time, flags, body_at, body, extra_at, extra = opened
        is_new = left == 0 or i == 0
        next_queue = queue
        if left == 0:
            next_queue += 1
            while load_u32(g[G_COUNTS] + 4 * next_queue) == 0:
                next_queue += 1
        new_runs = runs + 1 if is_new else runs
        run = np.int64(1) if is_new else np.int64(scratch[X_RUN_COUNT, runs - 1]) + 1
        size_low, size_high = min(size_least, body), max(size_most, body)
        extra_low, extra_high = min(extra_least, extra), max(extra_most, extra)
        time_low, time_high = min(time_least, time), max(time_most, time)
        most = max(run_most, run)
        w0 = _widened(widths[0], np.uint64(next_queue - first_queue))
        w1 = _widened(widths[1], np.uint64(most - 1))
        w2 = _widened(widths[2], np.uint64(size_high - size_low))
        w3 = _widened(widths[3], np.uint64(time_high) - np.uint64(time_low))
        w4 = _widened(widths[4], np.uint64(all_flags | flags))
        w5 = _widened(widths[5], np.uint64(extra_high - extra_low))
        raw = _column_bytes(new_runs, w0) + _column_bytes(new_runs, w1) + _column_bytes(i + 1, w2)
        raw += _column_bytes(i + 1, w3) + _column_bytes(i + 1, w4) + _column_bytes(i + 1, w5)
        raw += _PADDING + bodies + extras + body + extra
        if i > 0 and raw > g[G_PAGE_BYTES]:
            return np.int64(i)
        widths[0], widths[1], widths[2], widths[3], widths[4], widths[5] = w0, w1, w2, w3, w4, w5
        size_least, size_most, extra_least, extra_most = size_low, size_high, extra_low, extra_high
        time_least, time_most, run_most, all_flags = time_low, time_high, most, all_flags | flags
        if left == 0:
            queue, left = next_queue, np.int64(load_u32(g[G_COUNTS] + 4 * next_queue))
        left -= 1
        runs = new_runs
        scratch[X_RUN_QUEUE, runs - 1] = np.uint64(queue - first_queue)
        scratch[X_RUN_COUNT, runs - 1] = np.uint64(run)
        scratch[X_SIZE, i], scratch[X_TIME, i] = np.uint64(body), np.uint64(time)
        scratch[X_FLAGS, i], scratch[X_EXTRA, i] = np.uint64(flags), np.uint64(extra)
        scratch[X_BODY_AT, i], scratch[X_EXTRA_AT, i] = np.uint64(body_at), np.uint64(extra_at)
        bodies += body
        extras += extra
        g[G_TAKEN], g[G_RUNS], g[G_RAW], g[G_BODIES], g[G_EXTRAS] = i + 1, runs, raw, bodies, extras
        g[G_SIZE_BASE], g[G_EXTRA_BASE], g[G_TIME_BASE] = size_low, extra_low, time_low
        g[G_MAX_TIME] = time_high
        for w in range(_WIDTHS):
            g[G_QUEUE_WIDTH + w] = widths[w]
    return g[G_TAKEN] if is_last else np.int64(0)


@kernel
def _pack_column(scratch: Any, row: int, count: int, base: Any, width: int, at: int) -> Any:
    """Pack one row of the scratch, less `base` (u8, modulo 2**64); return its bytes."""
    packed = scratch[X_PACKED]
    for i in range(count):
        packed[i] = scratch[row, i] - base
    return pack_values(packed, count, width, at)


@kernel
def write_page(g: Any, scratch: Any, at: int) -> None:
    """Write head and payload of the chosen page at `at`, and go on behind it.

    There is room for the head, G_RAW bytes and 8 more.
    """
    count, runs = g[G_TAKEN], g[G_RUNS]
    for place in range(0, _HEAD, 8):
        store_u64(at + place, _U0)
    store_u32(at + _P_RAW, np.uint32(g[G_RAW]))
    store_u16(at + _P_COUNT, np.uint16(count))
    store_u16(at + _P_RUNS, np.uint16(runs))
    store_u32(at + _P_SIZE, np.uint32(g[G_SIZE_BASE]))
    store_u32(at + _P_EXTRA, np.uint32(g[G_EXTRA_BASE]))
    store_i64(at + _P_TIME, g[G_TIME_BASE])
    for w in range(_WIDTHS):
        store_u8(at + _P_QUEUE_WIDTH + w, np.uint8(g[G_QUEUE_WIDTH + w]))
    place = at + _HEAD
    place += _pack_column(scratch, X_RUN_QUEUE, runs, _U0, g[G_QUEUE_WIDTH], place)
    place += _pack_column(scratch, X_RUN_COUNT, runs, _U1, g[G_COUNT_WIDTH], place)
    place += _pack_column(scratch, X_SIZE, count, np.uint64(g[G_SIZE_BASE]), g[G_SIZE_WIDTH], place)
    place += _pack_column(scratch, X_TIME, count, np.uint64(g[G_TIME_BASE]), g[G_TIME_WIDTH], place)
    place += _pack_column(scratch, X_FLAGS, count, _U0, g[G_FLAG_WIDTH], place)
    place += _pack_column(
        scratch, X_EXTRA, count, np.uint64(g[G_EXTRA_BASE]), g[G_EXTRA_WIDTH], place
    )  # fmt: skip
    store_u64(place, _U0)
    place += _PADDING
    for i in range(count):
        copy_bytes(place, np.int64(scratch[X_EXTRA_AT, i]), np.int64(scratch[X_EXTRA, i]))
        place += np.int64(scratch[X_EXTRA, i])
    for i in range(count):
        copy_bytes(place, np.int64(scratch[X_BODY_AT, i]), np.int64(scratch[X_SIZE, i]))
        place += np.int64(scratch[X_SIZE, i])
    _count_topics(g, scratch)


@kernel
def _count_topics(g: Any, scratch: Any) -> None:
    """Count the page's messages for their topics, and go on behind its last one."""
    first, i = g[G_QUEUE], np.int64(0)
    for run in range(g[G_RUNS]):
        queue = first + np.int64(scratch[X_RUN_QUEUE, run])
        totals = g[G_TOTALS] + TOTALS_BYTES * np.int64(load_u32(g[G_TOPICS] + 4 * queue))
        bodies = np.int64(0)
        least, greatest = TIME_MAX, TIME_MIN
        size = np.int64(scratch[X_RUN_COUNT, run])
        for _ in range(size):
            bodies += np.int64(scratch[X_SIZE, i])
            least = min(least, np.int64(scratch[X_TIME, i]))
            greatest = max(greatest, np.int64(scratch[X_TIME, i]))
            i += 1
        count_messages(totals, size, bodies, least, greatest)
        if queue != g[G_QUEUE]:
            g[G_QUEUE], g[G_ORDINAL] = queue, 0
        g[G_ORDINAL] += size


@kernel
def finish_page(at: int, stored: int, codec: int, seed: Any, number: int) -> None:
    """Complete the head of a page whose payload lies behind it, `stored` bytes long."""
    store_u32(at + _P_STORED, np.uint32(stored))
    store_u8(at + _P_CODEC, np.uint8(codec))
    begin = numbered_seed(np.uint32(seed), np.uint64(number))
    crc = crc32c(at + _P_RAW, np.int64(_HEAD - _P_RAW + stored), begin)
    store_u32(at + _P_CRC, crc)


@kernel
def kept_bytes(addresses: int, count: int) -> Any:
    """Return the bytes that `keep_rows` takes for rows at most."""
    total = np.int64(0)
    for i in range(count):
        _, _, _, body, _, extra = open_row(load_i64(addresses + 8 * i), 0)
        total += (_ROW_BYTES + _LONG_BYTES + _EXTRA_LENGTH + body + extra + 3) & ~np.int64(3)
    return total


@kernel
def store_row(
    at: int, time: int, flags: int, body_at: int, body: int, extra_at: int, extra: int
) -> Any:
    """Write a message as a row whose time needs no base; return the row's bytes."""
    size = np.int64(body) | (np.int64(flags) << _FLAGS_SHIFT) | _LONG
    place = at + _ROW_BYTES + _LONG_BYTES
    store_i64(at + _ROW_BYTES, time)
    store_u32(at + _QUEUE, np.uint32(0))
    store_u32(at + _TIME, np.uint32(0))
    if extra > 0:
        size |= _HAS_EXTRA
        store_u32(place, np.uint32(extra))
        copy_bytes(place + _EXTRA_LENGTH, extra_at, extra)
        place += _EXTRA_LENGTH + extra
    store_u32(at + _SIZE, np.uint32(size))
    copy_bytes(place, body_at, body)
    return (place + body - at + (_UNIT - 1)) & ~np.int64(_UNIT - 1)


@kernel
def keep_rows(addresses: int, bases: int, count: int, at: int, kept: int) -> None:
    """Copy `count` rows to `at`; their new addresses (i8) go to `kept`. Their times need no base then."""
    for i in range(count):
        opened = open_row(load_i64(addresses + 8 * i), load_i64(bases + 8 * i))
        time, flags, body_at, body, extra_at, extra = opened
        store_i64(kept + 8 * i, at)
        at += store_row(at, time, flags, body_at, body, extra_at, extra)


@kernel
def blank_rows(addresses: int, bases: int, places: int, count: int, at: int) -> None:
    """Replace the rows at `count` positions (i8) of the list by empty ones at `at`, flagged as forgotten."""
    for i in range(count):
        place = load_i64(places + 8 * i)
        row = addresses + 8 * place
        opened = open_row(load_i64(row), load_i64(bases + 8 * place))
        store_i64(row, at)
        at += store_row(at, opened[0], opened[1] | _FORGOTTEN, at, 0, at, 0)
