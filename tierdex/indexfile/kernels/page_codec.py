"""Packing rows into pages and back, a page at a time, all columns in one call.

A page is `layout.PAGE_HEADER`, one `layout.PAGE_COLUMN` for each column with a frame of its own, then
the columns one after the other, each bit-packed at one width from a byte boundary, least significant
bit first, then 7 to 14 zero bytes, so that an 8-byte load of the last value stays inside. Widths are
0 to 56 or 64 bits, so that one unaligned load holds any value. Row i of the hash column is
`hash_base + i * hash_slope + packed` (hashes are close to evenly spaced, the line saves four bits an
item); any other column is `base + scale * packed`; both modulo 2**64.

Everything comes by address. `plan` is the i8 array of `pages.PagePlan`: PLAN_WORDS numbers of the
file, then COLUMN_WORDS numbers a column. Offsets of a column marked RELATIVE are packed as distances
from a base for their topic and queue.

Depends on the kernel decorator, intrinsics, checksum and layout's numbers only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tierdex.indexfile import layout
from tierdex.indexfile.kernels.checksum import crc32c, numbered_seed
from tierdex.indexfile.kernels.compile import kernel
from tierdex.indexfile.kernels.intrinsics import (
    load_i32,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    load_u64,
    store_u8,
    store_u16,
    store_u32,
    store_u64,
)

# The plan: words of the file, then words of each column.
COLUMN_COUNT, ITEM_BYTES, ITEMS_PER_PAGE, QUEUE_POSITION, QUEUE_LEAST, QUEUE_SPAN = range(6)
BASES, BASES_COUNT, PAGE_SEED = range(6, 9)
PLAN_WORDS = 16
POSITION, BYTES, SIGNED, FRAME, WIDTH, BASE, ROTATED, RELATIVE = range(8)
COLUMN_WORDS = 8

CONSTANT_FRAME = layout.CONSTANT_FRAME
PAGE_FRAME = layout.PAGE_FRAME
PAGE_HEADER_BYTES = layout.PAGE_HEADER_BYTES
PAGE_COLUMN_BYTES = layout.PAGE_COLUMN_BYTES
TAG_POSITION = layout.ITEM_TAG_POSITION
TIME_POSITION = layout.ITEM_TIME_POSITION
OUT_OF_BOUNDS = -1
"""What `encode_pages` returns when a value is outside what the plan allows."""

_WIDTH_MAX = 56  # above it, 64
_SCALE_MAX = np.uint64(0xFFFFFFFF)
_SLOPE_SPAN_MAX = np.uint64(1 << 62)  # residuals of a steeper page might not fit an i8
_U0 = np.uint64(0)
_U1 = np.uint64(1)
_U31 = np.uint64(31)
_U64 = np.uint64(64)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_LOW32 = np.uint64(0xFFFFFFFF)
_SIGN = np.uint64(0x8000000000000000)
_TOPIC_MASK = np.int64(layout.TOPIC_MASK)


@kernel
def bit_width(value: Any) -> int:
    """Return the stored width in bits of u8 `value`: 0..56 or 64."""
    width = 0
    while value > _U0:
        value >>= _U1
        width += 1
    return width if width <= _WIDTH_MAX else 64


@kernel
def plan_word(plan: int, word: int) -> int:
    return load_i64(plan + 8 * word)


@kernel
def column_word(plan: int, column: int, word: int) -> int:
    return load_i64(plan + 8 * (PLAN_WORDS + COLUMN_WORDS * column + word))


@kernel
def _gather(field: int, item_bytes: int, count: int, size: int, signed: bool, values: Any) -> None:
    """Load one field of `count` rows into `values` (u8), sign-extended when `signed`."""
    if size == 8:
        for i in range(count):
            values[i] = load_u64(field + i * item_bytes)
    elif size == 4:
        if signed:
            for i in range(count):
                values[i] = np.uint64(np.int64(load_i32(field + i * item_bytes)))
        else:
            for i in range(count):
                values[i] = np.uint64(load_u32(field + i * item_bytes))
    elif size == 2:
        for i in range(count):
            value = np.int64(load_u16(field + i * item_bytes))
            values[i] = np.uint64(value - 65536 if signed and value > 32767 else value)
    else:
        for i in range(count):
            value = np.int64(load_u8(field + i * item_bytes))
            values[i] = np.uint64(value - 256 if signed and value > 127 else value)


@kernel
def _pack(values: Any, count: int, width: int, at: int) -> int:
    """Bit-pack `values` (u8, below 2**width) at address `at`; return the bytes that they take."""
    if width == 0:
        return 0
    if width == 64:
        for i in range(count):
            store_u64(at + 8 * i, values[i])
        return 8 * count
    gathered = _U0
    used = _U0
    step = np.uint64(width)
    for i in range(count):
        value = values[i]
        gathered |= value << used
        used += step
        if used >= _U64:
            store_u64(at, gathered)
            at += 8
            used -= _U64
            gathered = value >> (step - used)
    store_u64(at, gathered)
    return (count * width + 7) >> 3


@kernel
def packed_value(column: int, index: int, width: int) -> Any:
    """Return packed value `index` (u8) of the column that begins at address `column`."""
    if width == 64:
        return load_u64(column + 8 * index)
    bit = index * width
    mask = (_U1 << np.uint64(width)) - _U1
    return (load_u64(column + (bit >> 3)) >> np.uint64(bit & 7)) & mask


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


@kernel
def _unpack(
    column: int,
    count: int,
    width: int,
    base: Any,
    scale: Any,
    slope: Any,
    field: int,
    step: int,
    size: int,
) -> int:
    """Store base + scale * packed + i * slope in a field of `count` rows; return the column's bytes.

    `field` is its address in the first row, `step` the bytes of a row, `size` those of the field.
    """
    if width == 64:
        for i in range(count):
            packed = load_u64(column + 8 * i)
            _store(field + i * step, size, base + scale * packed + np.uint64(i) * slope)
    else:
        mask = (_U1 << np.uint64(width)) - _U1
        for i in range(count):
            bit = i * width
            packed = (load_u64(column + (bit >> 3)) >> np.uint64(bit & 7)) & mask
            _store(field + i * step, size, base + scale * packed + np.uint64(i) * slope)
    return (count * width + 7) >> 3


@kernel
def _common_factor(values: Any, count: int) -> Any:
    """Return the greatest common factor of `values` (u8), 1 when there is none or it is too great."""
    factor = _U0
    for i in range(count):
        value = values[i]
        if factor == _U0:
            factor = value
        elif factor == _U1:
            break
        elif value % factor != _U0:
            rest = value
            while rest != _U0:
                factor, rest = rest, factor % rest
    return factor if _U0 < factor <= _SCALE_MAX else _U1


@kernel
def _encode_hashes(values: Any, count: int, page: int) -> int:
    """Fill in the header's hash fields and turn `values` into what is packed; return the width.

    The line through the first and the last hash is taken when it gives a narrower column.
    """
    first = values[0]
    span = values[count - 1] - first
    slope = _U0
    base = first
    width = bit_width(span)
    if count > 2 and span < _SLOPE_SPAN_MAX:
        candidate = span // np.uint64(count - 1)
        low = np.int64(0)
        high = np.int64(0)
        for i in range(count):
            rest = np.int64(values[i] - first - np.uint64(i) * candidate)
            low = min(low, rest)
            high = max(high, rest)
        sloped = bit_width(np.uint64(high - low))
        if sloped < width:
            width = sloped
            slope = candidate
            base = first + np.uint64(low)
    for i in range(count):
        values[i] -= base + np.uint64(i) * slope
    store_u8(page + 6, np.uint8(width))
    store_u64(page + 8, base)
    store_u64(page + 16, slope)
    return width


@kernel
def _encode_page_frame(values: Any, count: int, signed: bool, header: int) -> int:
    """Subtract the least value, divide by the common factor, fill in `header`; return the width."""
    flip = _SIGN if signed else _U0
    low = _ALL
    high = _U0
    for i in range(count):
        ordered = values[i] ^ flip
        low = min(low, ordered)
        high = max(high, ordered)
    for i in range(count):
        values[i] = (values[i] ^ flip) - low
    factor = _common_factor(values, count)
    if factor > _U1:
        for i in range(count):
            values[i] //= factor
    width = bit_width((high - low) // factor)
    store_u64(header, low ^ flip)
    store_u32(header + 8, np.uint32(factor))
    store_u8(header + 12, np.uint8(width))
    return width


@kernel
def _encode_file_frame(values: Any, count: int, width: int, base: Any, rotated: bool) -> bool:
    """Turn `values` into distances from the file's base; say whether all fit in `width` bits."""
    used = _U0
    for i in range(count):
        value = values[i]
        if rotated:  # the kind becomes the lowest bit
            value = ((value << _U1) | (value >> _U31)) & _LOW32
        value -= base
        values[i] = value
        used |= value
    return width == 64 or (used >> np.uint64(width)) == _U0


@kernel
def queue_base(row: int, plan: int) -> int:
    """Return where in the bases the row's topic and queue stand, or -1: nowhere."""
    topic = np.int64(load_u32(row + TAG_POSITION)) & _TOPIC_MASK
    queue = np.int64(load_i32(row + plan_word(plan, QUEUE_POSITION))) - plan_word(plan, QUEUE_LEAST)
    span = plan_word(plan, QUEUE_SPAN)
    at = topic * span + queue
    return at if 0 <= queue < span and at < plan_word(plan, BASES_COUNT) else -1


@kernel
def _make_relative(values: Any, count: int, rows: int, plan: int) -> bool:
    """Turn offsets into distances from their queue's base; say whether none lies below it."""
    item_bytes = plan_word(plan, ITEM_BYTES)
    bases = plan_word(plan, BASES)
    for i in range(count):
        at = queue_base(rows + i * item_bytes, plan)
        if at < 0:
            return False
        distance = np.int64(values[i]) - load_i64(bases + 8 * at)
        if distance < 0:
            return False
        values[i] = np.uint64(distance)
    return True


@kernel
def _encode_page(rows: int, count: int, plan: int, values: Any, page: int) -> int:
    """Write one page but for its checksum at `page`; return its bytes or OUT_OF_BOUNDS."""
    item_bytes = plan_word(plan, ITEM_BYTES)
    column_count = plan_word(plan, COLUMN_COUNT)
    framed = 0
    for c in range(column_count):
        framed += column_word(plan, c, FRAME) == PAGE_FRAME
    store_u16(page + 4, np.uint16(count))
    store_u8(page + 7, np.uint8(framed))
    header = page + PAGE_HEADER_BYTES
    at = header + PAGE_COLUMN_BYTES * framed
    _gather(rows, item_bytes, count, 8, False, values)
    at += _pack(values, count, _encode_hashes(values, count, page), at)
    for c in range(column_count):
        signed = column_word(plan, c, SIGNED) != 0
        field = rows + column_word(plan, c, POSITION)
        _gather(field, item_bytes, count, column_word(plan, c, BYTES), signed, values)
        if column_word(plan, c, RELATIVE) != 0 and not _make_relative(values, count, rows, plan):
            return OUT_OF_BOUNDS
        if column_word(plan, c, FRAME) == PAGE_FRAME:
            width = _encode_page_frame(values, count, signed, header)
            header += PAGE_COLUMN_BYTES
        else:
            width = column_word(plan, c, WIDTH)
            base = np.uint64(column_word(plan, c, BASE))
            rotated = column_word(plan, c, ROTATED) != 0
            if not _encode_file_frame(values, count, width, base, rotated):
                return OUT_OF_BOUNDS
        at += _pack(values, count, width, at)
    store_u64(at, _U0)
    store_u64(at + 8, _U0)
    return ((at - page + 14) >> 3) << 3


@kernel
def encode_pages(
    rows: int, count: int, plan: int, page: int, position: int, out: int, directory: int
) -> int:
    """Pack the `count` rows at `rows` into pages at `out`; all but the last are full.

    Page numbers begin with `page`; the first page lies at `position` in the file. `directory` takes
    32 bytes a page: first hash, position, least and greatest time. Returns the bytes written, or
    OUT_OF_BOUNDS. `out` has 4096 bytes a page and 16 spare.
    """
    item_bytes = plan_word(plan, ITEM_BYTES)
    items_per_page = plan_word(plan, ITEMS_PER_PAGE)
    seed = np.uint32(plan_word(plan, PAGE_SEED))
    values = np.empty(items_per_page, np.uint64)
    written = 0
    done = 0
    while done < count:
        take = min(items_per_page, count - done)
        start = rows + done * item_bytes
        begin = out + written
        length = _encode_page(start, take, plan, values, begin)
        if length < 0:
            return length
        crc = crc32c(begin + 4, length - 4, numbered_seed(seed, np.uint64(page)))
        store_u32(begin, crc)
        low = load_i64(start + TIME_POSITION)
        high = low
        for i in range(1, take):
            time = load_i64(start + i * item_bytes + TIME_POSITION)
            low = min(low, time)
            high = max(high, time)
        store_u64(directory, load_u64(start))
        store_u64(directory + 8, np.uint64(position + written))
        store_u64(directory + 16, np.uint64(low))
        store_u64(directory + 24, np.uint64(high))
        directory += 32
        done += take
        written += length
        page += 1
    return written


@kernel
def page_item_count(page: int, length: int, plan: int, number: int) -> int:
    """Return the items of page `number`, whose `length` bytes lie at `page`; -1 when it is damaged.

    After the checksum the shape is checked too, so that no load can leave the page.
    """
    column_count = plan_word(plan, COLUMN_COUNT)
    if length < PAGE_HEADER_BYTES or length > layout.PAGE_BYTES_MAX:
        return -1
    seed = numbered_seed(np.uint32(plan_word(plan, PAGE_SEED)), np.uint64(number))
    if crc32c(page + 4, length - 4, seed) != load_u32(page):
        return -1
    count = np.int64(load_u16(page + 4))
    framed = 0
    for c in range(column_count):
        framed += column_word(plan, c, FRAME) == PAGE_FRAME
    if (
        count < 1
        or count > plan_word(plan, ITEMS_PER_PAGE)
        or framed != np.int64(load_u8(page + 7))
    ):
        return -1
    header = page + PAGE_HEADER_BYTES
    end = PAGE_HEADER_BYTES + PAGE_COLUMN_BYTES * framed
    if end > length:
        return -1
    width = np.int64(load_u8(page + 6))
    wide = width
    end += (count * width + 7) >> 3
    for c in range(column_count):
        if column_word(plan, c, FRAME) == PAGE_FRAME:
            width = np.int64(load_u8(header + 12))
            header += PAGE_COLUMN_BYTES
        else:
            width = column_word(plan, c, WIDTH)
        wide = max(wide, 57 if 56 < width < 64 else width)
        end += (count * width + 7) >> 3
    return count if (wide <= 56 or wide == 64) and ((end + 14) >> 3) << 3 == length else -1


@kernel
def hash_at(page: int, column: int, index: int, width: int) -> Any:
    """Return hash `index` (u8) of the page whose hash column begins at `column`."""
    line = load_u64(page + 8) + np.uint64(index) * load_u64(page + 16)
    return line + packed_value(column, index, width)


@kernel
def hash_column(page: int) -> int:
    """Return the address of the page's hash column."""
    return page + PAGE_HEADER_BYTES + PAGE_COLUMN_BYTES * np.int64(load_u8(page + 7))


@kernel
def decode_page(page: int, plan: int, rows: int) -> int:
    """Unpack all items of a verified page into the rows at `rows`, zeroed; return their number."""
    item_bytes = plan_word(plan, ITEM_BYTES)
    count = np.int64(load_u16(page + 4))
    header = page + PAGE_HEADER_BYTES
    at = hash_column(page)
    width = np.int64(load_u8(page + 6))
    slope = load_u64(page + 16)
    at += _unpack(at, count, width, load_u64(page + 8), _U1, slope, rows, item_bytes, 8)
    relative = np.int64(-1)
    for c in range(plan_word(plan, COLUMN_COUNT)):
        if column_word(plan, c, FRAME) == PAGE_FRAME:
            base = load_u64(header)
            scale = np.uint64(load_u32(header + 8))
            width = np.int64(load_u8(header + 12))
            header += PAGE_COLUMN_BYTES
        else:
            base = np.uint64(column_word(plan, c, BASE))
            scale = _U1
            width = column_word(plan, c, WIDTH)
        position = column_word(plan, c, POSITION)
        size = column_word(plan, c, BYTES)
        at += _unpack(at, count, width, base, scale, _U0, rows + position, item_bytes, size)
        if column_word(plan, c, ROTATED) != 0:
            for i in range(count):
                field = rows + i * item_bytes + position
                tag = load_u32(field)
                store_u32(field, (tag >> np.uint32(1)) | (tag << np.uint32(31)))
        if column_word(plan, c, RELATIVE) != 0:
            relative = position
    if relative >= 0:
        for i in range(count):
            _add_base(rows + i * item_bytes, plan, relative)
    return count


@kernel
def _add_base(row: int, plan: int, relative: int) -> None:
    """Turn the distance in the field at byte `relative` back into an offset."""
    at = queue_base(row, plan)
    if at >= 0:
        base = load_u64(plan_word(plan, BASES) + 8 * at)
        store_u64(row + relative, load_u64(row + relative) + base)


@kernel
def decode_item(page: int, plan: int, index: int, row: int) -> None:
    """Unpack item `index` of a verified page into the zeroed row at `row`."""
    count = np.int64(load_u16(page + 4))
    header = page + PAGE_HEADER_BYTES
    at = header + PAGE_COLUMN_BYTES * np.int64(load_u8(page + 7))
    width = np.int64(load_u8(page + 6))
    store_u64(row, hash_at(page, at, index, width))
    at += (count * width + 7) >> 3
    relative = np.int64(-1)
    for c in range(plan_word(plan, COLUMN_COUNT)):
        if column_word(plan, c, FRAME) == PAGE_FRAME:
            width = np.int64(load_u8(header + 12))
            scale = np.uint64(load_u32(header + 8))
            value = load_u64(header) + scale * packed_value(at, index, width)
            header += PAGE_COLUMN_BYTES
        else:
            width = column_word(plan, c, WIDTH)
            value = np.uint64(column_word(plan, c, BASE)) + packed_value(at, index, width)
            if column_word(plan, c, ROTATED) != 0:
                value = (value >> _U1) | ((value & _U1) << _U31)
        at += (count * width + 7) >> 3
        position = column_word(plan, c, POSITION)
        size = column_word(plan, c, BYTES)
        if column_word(plan, c, RELATIVE) != 0:
            relative = position
        _store(row + position, size, value)
    if relative >= 0:
        _add_base(row, plan, relative)
