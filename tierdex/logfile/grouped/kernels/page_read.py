"""A page's payload -> messages. The page's checksum was verified; its structure is checked here all the same.

    open_page     whether head and payload fit each other; where its columns lie; open_pages: of many
    unpack_pages  payloads that LZ4 packed, of many pages, one behind the other
    find_run      a queue's messages in it
    measure_page  how many of them fit a budget, and where they begin
    copy_page     their columns
    expand_page   all of its messages as rows, for a merge

Depends on bits, lz4, page_write, checksum, intrinsics and layout.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tierdex.fileparts.kernels.bits import packed_value
from tierdex.fileparts.kernels.checksum import crc32c, numbered_seed
from tierdex.fileparts.kernels.compile import kernel, primitive
from tierdex.fileparts.kernels.intrinsics import (
    copy_bytes,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    load_u64,
    store_i64,
    store_u8,
)
from tierdex.fileparts.kernels.lz4 import SLACK_BYTES, unpack_lz4
from tierdex.logfile import layout
from tierdex.logfile.grouped.kernels.page_write import store_row

# Words of an open page.
(
    P_COUNT, P_RUNS, P_SIZE_BASE, P_EXTRA_BASE, P_TIME_BASE,
    P_QUEUE_WIDTH, P_COUNT_WIDTH, P_SIZE_WIDTH, P_TIME_WIDTH, P_FLAG_WIDTH, P_EXTRA_WIDTH,
    P_QUEUES, P_COUNTS, P_SIZES, P_TIMES, P_FLAGS, P_EXTRAS,  # addresses of the columns
    P_EXTRA_BYTES, P_BODY_BYTES,  # addresses of the bytes themselves
) = range(19)  # fmt: skip
PAGE_WORDS: Final = 20
# A page in what was fetched: where it lies, its bytes (none: it is not known), its number.
Z_ADDRESS, Z_LENGTH, Z_NUMBER = range(3)
PLACE_WORDS: Final = 3
# What is known of a payload: its codec, bytes before that, where it lies as it was fetched, its bytes there,
# and where it lies plain; 0: not yet, or never.
Y_CODEC, Y_RAW_BYTES, Y_STORED, Y_LENGTH, Y_ADDRESS = range(5)
PAYLOAD_WORDS: Final = 5

_PAGE = layout.places(layout.PAGE_HEADER)
_P_CRC, _P_RAW, _P_STORED = _PAGE["crc"], _PAGE["raw_bytes"], _PAGE["stored_bytes"]
_P_COUNT, _P_RUNS = _PAGE["message_count"], _PAGE["run_count"]
_P_SIZE, _P_EXTRA, _P_TIME = _PAGE["size_base"], _PAGE["extra_base"], _PAGE["time_base"]
_P_QUEUE_WIDTH, _P_RESERVED = _PAGE["queue_width"], _PAGE["reserved"]
_HEAD: Final = layout.PAGE_HEADER_BYTES
_PADDING: Final = layout.COLUMNS_PADDING
_MOST: Final = layout.PAGE_MESSAGES_MAX
_FLAGS: Final = layout.MESSAGE_FORGOTTEN | layout.MESSAGE_HELD
_WIDTHS: Final = 6
_P_CODEC: Final = _PAGE["codec"]
_PLAIN: Final = int(layout.Codec.PLAIN)
_LZ4: Final = int(layout.Codec.LZ4)
_RAW_MOST: Final = layout.PAYLOAD_BYTES_MAX


@kernel
def page_is_sound(at: int, length: int, seed: Any, number: int) -> bool:
    """Return whether the `length` bytes at `at` are page `number`: length and checksum."""
    if length < _HEAD or load_u32(at + _P_STORED) != length - _HEAD:
        return False
    begin = numbered_seed(np.uint32(seed), np.uint64(number))
    return bool(crc32c(at + _P_RAW, np.int64(length - _P_RAW), begin) == load_u32(at + _P_CRC))


@kernel
def open_page(p: Any, head: int, raw: int, raw_bytes: int) -> Any:
    """Fill the words of a page; False when head and payload do not fit each other.

    After it, no read of the page's messages leaves the payload.
    """
    p[P_COUNT], p[P_RUNS] = np.int64(load_u16(head + _P_COUNT)), np.int64(load_u16(head + _P_RUNS))
    p[P_SIZE_BASE] = np.int64(load_u32(head + _P_SIZE))
    p[P_EXTRA_BASE] = np.int64(load_u32(head + _P_EXTRA))
    p[P_TIME_BASE] = load_i64(head + _P_TIME)
    if load_u32(head + _P_RAW) != raw_bytes or not 1 <= p[P_RUNS] <= p[P_COUNT] <= _MOST:
        return False
    for reserved in range(_P_RESERVED, _HEAD):
        if load_u8(head + reserved) != 0:
            return False
    place = np.int64(raw)
    for w in range(_WIDTHS):
        width = np.int64(load_u8(head + _P_QUEUE_WIDTH + w))
        if width > 64 or 56 < width < 64:
            return False
        p[P_QUEUE_WIDTH + w] = width
        p[P_QUEUES + w] = place
        place += ((p[P_RUNS] if w < 2 else p[P_COUNT]) * width + 7) >> 3
    if place + _PADDING > raw + raw_bytes or load_u64(place) != np.uint64(0):
        return False
    p[P_EXTRA_BYTES] = place + _PADDING
    return _lengths_fit(p, raw + raw_bytes)


@kernel
def look_at_pages(places: Any, seed: Any, payloads: Any) -> None:
    """Write what is known of the payload of each page (Y_*), nothing of one that is damaged.

    `places` has a row (Z_*) a page. A plain payload has its address at once.
    """
    for i in range(payloads.shape[0]):
        at, length = places[i, Z_ADDRESS], places[i, Z_LENGTH]
        if not page_is_sound(at, length, seed, places[i, Z_NUMBER]):
            continue
        payloads[i, Y_CODEC] = np.int64(load_u8(at + _P_CODEC))
        payloads[i, Y_RAW_BYTES] = np.int64(load_u32(at + _P_RAW))
        payloads[i, Y_STORED], payloads[i, Y_LENGTH] = at + _HEAD, length - _HEAD
        if payloads[i, Y_CODEC] == _PLAIN and payloads[i, Y_RAW_BYTES] == length - _HEAD:
            payloads[i, Y_ADDRESS] = at + _HEAD


@kernel
def unpacked_bytes(payloads: Any) -> Any:
    """Return the bytes that `unpack_pages` takes."""
    total = np.int64(0)
    for i in range(payloads.shape[0]):
        if payloads[i, Y_CODEC] == _LZ4 and payloads[i, Y_RAW_BYTES] <= _RAW_MOST:
            total += _room(payloads[i, Y_RAW_BYTES])
    return total


@primitive
def _room(raw_bytes: int) -> Any:
    return (raw_bytes + SLACK_BYTES + 7) & ~np.int64(7)


@kernel
def unpack_pages(payloads: Any, memory: int) -> None:
    """Unpack what LZ4 packed to `memory`, and write the addresses; none of what does not let itself be."""
    for i in range(payloads.shape[0]):
        raw_bytes = payloads[i, Y_RAW_BYTES]
        if payloads[i, Y_CODEC] == _LZ4 and raw_bytes <= _RAW_MOST:
            if unpack_lz4(payloads[i, Y_STORED], payloads[i, Y_LENGTH], memory, raw_bytes):
                payloads[i, Y_ADDRESS] = memory
            memory += _room(raw_bytes)


@kernel
def open_pages(pages: Any, places: Any, payloads: Any) -> None:
    """Fill the words of each page whose payload has an address; zeros where they do not fit each other."""
    for i in range(payloads.shape[0]):
        raw, p = payloads[i, Y_ADDRESS], pages[i]
        if raw != 0 and not open_page(p, places[i, Z_ADDRESS], raw, payloads[i, Y_RAW_BYTES]):
            p[P_COUNT] = 0


@kernel
def move_page(p: Any, payload: int, memory: int, length: int) -> None:
    """Copy the payload of an open page to `memory`, and point its words there."""
    copy_bytes(memory, payload, length)
    for word in range(P_QUEUES, P_BODY_BYTES + 1):
        p[word] += memory - payload


@kernel
def _lengths_fit(p: Any, end: int) -> bool:
    """Return whether counts and sizes add up to what the payload has."""
    messages, last = np.int64(0), np.int64(-1)
    for run in range(p[P_RUNS]):
        queue = np.int64(packed_value(p[P_QUEUES], run, p[P_QUEUE_WIDTH]))
        count = np.int64(packed_value(p[P_COUNTS], run, p[P_COUNT_WIDTH]))
        if queue <= last or not 0 <= count < _MOST:
            return False
        last = queue
        messages += count + 1
    left = end - p[P_EXTRA_BYTES]
    if p[P_FLAG_WIDTH] != 0:
        for i in range(p[P_COUNT]):
            if packed_value(p[P_FLAGS], i, p[P_FLAG_WIDTH]) > np.uint64(_FLAGS):
                return False
    extras = _length_of(p[P_EXTRAS], p[P_EXTRA_WIDTH], p[P_EXTRA_BASE], p[P_COUNT], left)
    bodies = _length_of(p[P_SIZES], p[P_SIZE_WIDTH], p[P_SIZE_BASE], p[P_COUNT], left)
    p[P_BODY_BYTES] = p[P_EXTRA_BYTES] + extras
    is_whole = p[P_EXTRA_BYTES] + extras + bodies == end
    return bool(messages == p[P_COUNT] and extras >= 0 and bodies >= 0 and is_whole)


@primitive
def _length_of(column: int, width: int, base: int, count: int, most: int) -> Any:
    """Return the sum of `count` lengths, -1 when one is not from 0 to `most`."""
    if width == 0:
        return base * count if base <= most else np.int64(-1)
    total = np.int64(0)
    for i in range(count):
        length = base + np.int64(packed_value(column, i, width))
        if not 0 <= length <= most:
            return np.int64(-1)
        total += length
    return total


@primitive
def sum_of(column: int, width: int, base: int, first: int, end: int) -> Any:
    """Return the sum of the values [first, end) of a column of lengths."""
    total = np.int64(base * (end - first))
    if width != 0:
        for i in range(first, end):
            total += np.int64(packed_value(column, i, width))
    return total


@primitive
def bodies_of(p: Any, first: int, end: int) -> Any:
    """Return the bytes of the bodies of messages [first, end)."""
    return sum_of(p[P_SIZES], p[P_SIZE_WIDTH], p[P_SIZE_BASE], first, end)


@primitive
def extras_of(p: Any, first: int, end: int) -> Any:
    """Return the bytes of their extras."""
    return sum_of(p[P_EXTRAS], p[P_EXTRA_WIDTH], p[P_EXTRA_BASE], first, end)


@primitive
def body_size(p: Any, i: int) -> Any:
    return p[P_SIZE_BASE] + np.int64(packed_value(p[P_SIZES], i, p[P_SIZE_WIDTH]))


@primitive
def extra_size(p: Any, i: int) -> Any:
    return p[P_EXTRA_BASE] + np.int64(packed_value(p[P_EXTRAS], i, p[P_EXTRA_WIDTH]))


@primitive
def message_time(p: Any, i: int) -> Any:
    packed = packed_value(p[P_TIMES], i, p[P_TIME_WIDTH])
    return np.int64(np.uint64(p[P_TIME_BASE]) + packed)


@primitive
def message_flags(p: Any, i: int) -> Any:
    return np.int64(packed_value(p[P_FLAGS], i, p[P_FLAG_WIDTH]))


@primitive
def run_at(p: Any, run: int) -> Any:
    """Return (queue less the page's first, messages) of a run."""
    queue = np.int64(packed_value(p[P_QUEUES], run, p[P_QUEUE_WIDTH]))
    return queue, np.int64(packed_value(p[P_COUNTS], run, p[P_COUNT_WIDTH])) + 1


@kernel
def find_run(p: Any, queue: int) -> Any:
    """Return (first message, messages) of the queue `queue` above the page's first; 0 without any."""
    first = np.int64(0)
    for run in range(p[P_RUNS]):
        found, count = run_at(p, run)
        if found == queue:
            return first, count
        if found > queue:
            break
        first += count
    return first, np.int64(0)


@kernel
def measure_page(p: Any, first: int, count: int, most_bytes: int, is_first: bool) -> Any:
    """Return (messages, bodies, extras, where these begin) of the messages that fit `most_bytes`.

    With `is_first` the first one always does.
    """
    body_at = p[P_BODY_BYTES] + bodies_of(p, 0, first)
    extra_at = p[P_EXTRA_BYTES] + extras_of(p, 0, first)
    bodies, extras = np.int64(0), np.int64(0)
    for i in range(count):
        body, extra = body_size(p, first + i), extra_size(p, first + i)
        if bodies + extras + body + extra > most_bytes and not (is_first and i == 0):
            return np.int64(i), bodies, extras, body_at, extra_at
        bodies += body
        extras += extra
    return np.int64(count), bodies, extras, body_at, extra_at


@kernel
def copy_page(p: Any, first: int, count: int, body_at: int, extra_at: int, columns: Any) -> None:
    """Write the columns (addresses: `rows.column_places`) of `count` messages from `first` on, measured."""
    times, body_offsets, extra_offsets, flags, bodies, extras = columns
    body_end, extra_end = np.int64(0), np.int64(0)
    store_i64(body_offsets, 0)
    store_i64(extra_offsets, 0)
    for i in range(count):
        store_i64(times + 8 * i, message_time(p, first + i))
        store_u8(flags + i, np.uint8(message_flags(p, first + i)))
        body_end += body_size(p, first + i)
        extra_end += extra_size(p, first + i)
        store_i64(body_offsets + 8 * (i + 1), body_end)
        store_i64(extra_offsets + 8 * (i + 1), extra_end)
    copy_bytes(bodies, body_at, body_end)
    copy_bytes(extras, extra_at, extra_end)


@kernel
def expanded_bytes(p: Any) -> Any:
    """Return the bytes that `expand_page` takes at most."""
    total = np.int64(0)
    for i in range(p[P_COUNT]):
        total += body_size(p, i) + extra_size(p, i) + layout.ROW_BYTES + 16
    return total


@kernel
def expand_page(p: Any, at: int, addresses: int) -> None:
    """Write all messages as rows at `at`, their addresses (i8) to `addresses`."""
    body_at, extra_at = p[P_BODY_BYTES], p[P_EXTRA_BYTES]
    for i in range(p[P_COUNT]):
        body, extra = body_size(p, i), extra_size(p, i)
        store_i64(addresses + 8 * i, at)
        at += store_row(at, message_time(p, i), message_flags(p, i), body_at, body, extra_at, extra)
        body_at += body
        extra_at += extra


@kernel
def totals(p: Any, first: int, count: int) -> Any:
    """Return (bytes of bodies, least time, greatest time) of `count` messages from `first` on."""
    least, greatest, bodies = message_time(p, first), message_time(p, first), np.int64(0)
    for i in range(first, first + count):
        time = message_time(p, i)
        least, greatest = min(least, time), max(greatest, time)
        bodies += body_size(p, i)
    return bodies, least, greatest
