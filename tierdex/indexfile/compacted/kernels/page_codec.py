"""What a page looks like to a kernel, and unpacking: a page, or one item, all columns in one call.

A page is `layout.PAGE_HEADER`, one `layout.PAGE_COLUMN` for each column with a frame of its own, then
the columns one after the other, each bit-packed at one width from a byte boundary, least significant
bit first, then 7 to 14 zero bytes, so that an 8-byte load of the last value stays inside. Widths are
0 to 56 or 64 bits, so that one unaligned load holds any value. Row i of the hash column is
`hash_base + i * hash_slope + packed` (hashes are close to evenly spaced, the line saves four bits an
item); any other column is `base + scale * packed`; both modulo 2**64.

Everything comes by address. `plan` is the i8 array of `pages.PagePlan`: PLAN_LENGTH numbers of the
file, then COLUMN_LENGTH numbers a column. Offsets of a column marked RELATIVE are packed as distances
from a base for their topic and queue.

Depends on the kernel decorator, bits, intrinsics, checksum, page_fields and layout only.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tierdex.fileparts.kernels.bits import packed_value
from tierdex.fileparts.kernels.checksum import crc32c, numbered_seed
from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.intrinsics import (
    load_i32,
    load_i64,
    load_u32,
    load_u64,
    store_u8,
    store_u16,
    store_u32,
    store_u64,
)
from tierdex.indexfile import layout
from tierdex.indexfile.compacted.kernels.page_fields import (
    frame_base,
    frame_scale,
    frame_width,
    framed_count,
    hash_base,
    hash_slope,
    hash_width,
    item_count,
    page_crc,
)

# The plan: numbers of the file, then numbers of each column (i8 each).
COLUMN_COUNT, ITEM_BYTES, ITEMS_PER_PAGE, QUEUE_POSITION, QUEUE_LEAST, QUEUE_SPAN = range(6)
BASES, BASES_COUNT, PAGE_SEED = range(6, 9)
PLAN_LENGTH = 16
POSITION, BYTES, SIGNED, FRAME, WIDTH, BASE, ROTATED, RELATIVE = range(8)
COLUMN_LENGTH = 8

CONSTANT_FRAME = layout.CONSTANT_FRAME
PAGE_FRAME = layout.PAGE_FRAME
PAGE_HEADER_BYTES = layout.PAGE_HEADER_BYTES
PAGE_COLUMN_BYTES = layout.PAGE_COLUMN_BYTES
_BEHIND_CRC = layout.PAGE_ITEM_COUNT_POSITION
_TAG_POSITION = layout.ITEM_TAG_POSITION
_U0 = np.uint64(0)
_U1 = np.uint64(1)
_U31 = np.uint64(31)
_TOPIC_MASK = np.int64(layout.TOPIC_MASK)


@kernel
def plan_number(plan: int, place: int) -> Any:
    return load_i64(plan + 8 * place)


@kernel
def column_number(plan: int, column: int, place: int) -> Any:
    return load_i64(plan + 8 * (PLAN_LENGTH + COLUMN_LENGTH * column + place))


@kernel
def _store(field: int, size: int, value: Any) -> None:
    """Store the low `size` bytes of u8 `value`."""
    if size == 8:
        store_u64(field, value)
    elif size == 4:
        store_u32(field, np.uint32(value))
    elif size == 2:
        store_u16(field, np.uint16(value))
    else:
        store_u8(field, np.uint8(value))


class Frame(NamedTuple):
    """How a column's values are packed: base + i * slope + scale * packed, `width` bits each."""

    width: Any
    base: Any
    scale: Any
    slope: Any


class Target(NamedTuple):
    """Where a column's values go: a field's address in the first row, bytes a row, bytes of the field."""

    field: Any
    step: Any
    size: Any


@kernel
def _unpack(column: int, count: int, frame: Any, target: Any) -> Any:
    """Store `count` packed values where `target` says; return the column's bytes."""
    width, base, scale, slope = frame
    field, step, size = target
    mask = ~_U0 if width == 64 else (_U1 << np.uint64(width)) - _U1
    bit = np.int64(0)
    if width == 0 and size == 4:
        for i in range(count):
            store_u32(field + i * step, np.uint32(base))
    elif size == 8:  # a loop for each size: what is decided here is not decided for every value
        for _ in range(count):
            packed = (load_u64(column + (bit >> 3)) >> np.uint64(bit & 7)) & mask
            store_u64(field, base + scale * packed)
            base += slope
            bit += width
            field += step
    elif size == 4:
        for _ in range(count):
            packed = (load_u64(column + (bit >> 3)) >> np.uint64(bit & 7)) & mask
            store_u32(field, np.uint32(base + scale * packed))
            bit += width
            field += step
    else:
        for i in range(count):
            packed = (load_u64(column + (bit >> 3)) >> np.uint64(bit & 7)) & mask
            _store(field, size, base + scale * packed + np.uint64(i) * slope)
            bit += width
            field += step
    return (count * width + 7) >> 3


@kernel
def queue_base(row: int, plan: int) -> Any:
    """Return where in the bases the row's topic and queue stand, or -1: nowhere."""
    topic = np.int64(load_u32(row + _TAG_POSITION)) & _TOPIC_MASK
    queue = np.int64(load_i32(row + plan_number(plan, QUEUE_POSITION))) - plan_number(
        plan, QUEUE_LEAST
    )
    span = plan_number(plan, QUEUE_SPAN)
    at = topic * span + queue
    return at if 0 <= queue < span and at < plan_number(plan, BASES_COUNT) else -1


@kernel
def page_checksum(page: int, length: int, seed: Any) -> Any:
    """Return the checksum of all of a page but the field that holds it."""
    return crc32c(page + _BEHIND_CRC, length - _BEHIND_CRC, seed)


@kernel
def page_item_count(page: int, length: int, plan: int, number: int) -> Any:
    """Return the items of page `number`, whose `length` bytes lie at `page`; -1 when it is damaged.

    After the checksum the shape is checked too, so that no load can leave the page.
    """
    column_count = plan_number(plan, COLUMN_COUNT)
    if length < PAGE_HEADER_BYTES or length > layout.PAGE_BYTES_MAX:
        return -1
    seed = numbered_seed(np.uint32(plan_number(plan, PAGE_SEED)), np.uint64(number))
    if page_checksum(page, length, seed) != page_crc(page):
        return -1
    count = item_count(page)
    framed = 0
    for c in range(column_count):
        framed += column_number(plan, c, FRAME) == PAGE_FRAME
    if count < 1 or count > plan_number(plan, ITEMS_PER_PAGE) or framed != framed_count(page):
        return -1
    header = page + PAGE_HEADER_BYTES
    end = PAGE_HEADER_BYTES + PAGE_COLUMN_BYTES * framed
    if end > length:
        return -1
    width: Any = hash_width(page)
    wide = width
    end += (count * width + 7) >> 3
    for c in range(column_count):
        if column_number(plan, c, FRAME) == PAGE_FRAME:
            width = frame_width(header)
            header += PAGE_COLUMN_BYTES
        else:
            width = column_number(plan, c, WIDTH)
        wide = max(wide, 57 if 56 < width < 64 else width)
        end += (count * width + 7) >> 3
    return (
        count
        if (wide <= 56 or wide == 64) and ((end + layout.PAGE_PADDING_MAX) >> 3) << 3 == length
        else -1
    )


@kernel
def hash_at(page: int, column: int, index: int, width: int) -> Any:
    """Return hash `index` (u8) of the page whose hash column begins at `column`."""
    line = hash_base(page) + np.uint64(index) * hash_slope(page)
    return line + packed_value(column, index, width)


@kernel
def hash_column(page: int) -> Any:
    """Return the address of the page's hash column."""
    return page + PAGE_HEADER_BYTES + PAGE_COLUMN_BYTES * framed_count(page)


@kernel
def unpack_hashes(page: int, count: int, field: int, step: int) -> Any:
    """Store the page's `count` hashes at `field`, `step` bytes apart; return where its columns begin."""
    at = hash_column(page)
    frame = Frame(hash_width(page), hash_base(page), _U1, hash_slope(page))
    return at + _unpack(at, count, frame, Target(field, step, 8))


@kernel
def unpack_column(plan: int, c: int, header: int, at: int, count: int, target: Any) -> Any:
    """Store `count` values of column `c` where `target` says; return (next header, next column).

    `header` is where the page's next column frame stands, `at` where the column's bits begin. Offsets
    that are relative to their queue stay so.
    """
    if column_number(plan, c, FRAME) == PAGE_FRAME:
        frame = Frame(frame_width(header), frame_base(header), frame_scale(header), _U0)
        header += PAGE_COLUMN_BYTES
    else:
        base = np.uint64(column_number(plan, c, BASE))
        frame = Frame(column_number(plan, c, WIDTH), base, _U1, _U0)
    at += _unpack(at, count, frame, target)
    if column_number(plan, c, ROTATED) != 0:
        for i in range(count):
            place = target.field + i * target.step
            tag = load_u32(place)
            store_u32(place, (tag >> np.uint32(1)) | (tag << np.uint32(31)))
    return header, at


@kernel
def decode_page(page: int, plan: int, rows: int) -> Any:
    """Unpack all items of a verified page into the rows at `rows`, zeroed; return their number."""
    item_bytes = plan_number(plan, ITEM_BYTES)
    count = item_count(page)
    header = page + PAGE_HEADER_BYTES
    at = unpack_hashes(page, count, rows, item_bytes)
    relative = np.int64(-1)
    for c in range(plan_number(plan, COLUMN_COUNT)):
        position, size = column_number(plan, c, POSITION), column_number(plan, c, BYTES)
        target = Target(rows + position, item_bytes, size)
        header, at = unpack_column(plan, c, header, at, count, target)
        if column_number(plan, c, RELATIVE) != 0:
            relative = position
    if relative >= 0:
        _add_bases(rows, item_bytes, count, plan, relative)
    return count


@kernel
def _add_bases(rows: int, item_bytes: int, count: int, plan: int, relative: int) -> None:
    """Do for all rows what `_add_base` does; the plan's numbers are read once."""
    bases, bases_count = plan_number(plan, BASES), plan_number(plan, BASES_COUNT)
    position, least = plan_number(plan, QUEUE_POSITION), plan_number(plan, QUEUE_LEAST)
    span = plan_number(plan, QUEUE_SPAN)
    for row in range(rows, rows + count * item_bytes, item_bytes):
        topic = np.int64(load_u32(row + _TAG_POSITION)) & _TOPIC_MASK
        queue = np.int64(load_i32(row + position)) - least
        at = topic * span + queue
        if 0 <= queue < span and at < bases_count:
            store_u64(row + relative, load_u64(row + relative) + load_u64(bases + 8 * at))


@kernel
def _add_base(row: int, plan: int, relative: int) -> None:
    """Turn the distance in the field at byte `relative` back into an offset."""
    at = queue_base(row, plan)
    if at >= 0:
        base = load_u64(plan_number(plan, BASES) + 8 * at)
        store_u64(row + relative, load_u64(row + relative) + base)


@kernel
def decode_item(page: int, plan: int, index: int, row: int) -> None:
    """Unpack item `index` of a verified page into the zeroed row at `row`."""
    count = item_count(page)
    header = page + PAGE_HEADER_BYTES
    at = header + PAGE_COLUMN_BYTES * framed_count(page)
    width = hash_width(page)
    store_u64(row, hash_at(page, at, index, width))
    at += (count * width + 7) >> 3
    relative = np.int64(-1)
    for c in range(plan_number(plan, COLUMN_COUNT)):
        if column_number(plan, c, FRAME) == PAGE_FRAME:
            width = frame_width(header)
            scale = frame_scale(header)
            value = frame_base(header) + scale * packed_value(at, index, width)
            header += PAGE_COLUMN_BYTES
        else:
            width = column_number(plan, c, WIDTH)
            value = np.uint64(column_number(plan, c, BASE)) + packed_value(at, index, width)
            if column_number(plan, c, ROTATED) != 0:
                value = (value >> _U1) | ((value & _U1) << _U31)
        at += (count * width + 7) >> 3
        position = column_number(plan, c, POSITION)
        size = column_number(plan, c, BYTES)
        if column_number(plan, c, RELATIVE) != 0:
            relative = position
        _store(row + position, size, value)
    if relative >= 0:
        _add_base(row, plan, relative)
