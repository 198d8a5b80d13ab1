"""Packing rows into pages: `encode_pages` writes as many as the rows fill, in one call.

The page's picture and the places of a plan stand in page_codec. Frames are found here: for the hash
the line through the first and last one, for a column with a frame of its own the least value and the
greatest common factor of the distances from it.

Depends on the kernel decorator, bits, intrinsics, checksum, page_codec, row_scan and layout.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tierdex.fileparts.kernels.bits import bit_width, pack_values
from tierdex.fileparts.kernels.checksum import numbered_seed
from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.intrinsics import (
    load_i64,
    load_u64,
    store_u8,
    store_u16,
    store_u32,
    store_u64,
)
from tierdex.indexfile import layout
from tierdex.indexfile.compacted.kernels.page_codec import (
    BASE,
    BASES,
    BYTES,
    COLUMN_COUNT,
    FRAME,
    ITEM_BYTES,
    ITEMS_PER_PAGE,
    PAGE_COLUMN_BYTES,
    PAGE_FRAME,
    PAGE_HEADER_BYTES,
    PAGE_SEED,
    POSITION,
    RELATIVE,
    ROTATED,
    SIGNED,
    WIDTH,
    column_number,
    page_checksum,
    plan_number,
    queue_base,
)
from tierdex.indexfile.kernels.row_scan import gather_field

OUT_OF_BOUNDS = -1
"""What `encode_pages` returns when a value is outside what the plan allows."""

_HASH_POSITION = layout.ITEM_HASH_POSITION
_TIME_POSITION = layout.ITEM_TIME_POSITION
_PADDING_STORED = 16  # bytes zeroed behind the last column, which `out` has room for
_FIRST_GUESS = 4  # values whose common factor is tried on the others
_SCALE_MAX = np.uint64(0xFFFFFFFF)
_SLOPE_SPAN_MAX = np.uint64(1 << 62)  # residuals of a steeper page might not fit an i8
_U0 = np.uint64(0)
_U1 = np.uint64(1)
_U2 = np.uint64(2)
_U31 = np.uint64(31)
_U64 = np.uint64(64)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_LOW32 = np.uint64(0xFFFFFFFF)
_SIGN = np.uint64(0x8000000000000000)


@kernel
def _greatest_common_factor(a: Any, b: Any) -> Any:
    while b != _U0:
        a, b = b, a % b
    return a


@kernel
def _divide_exactly(values: Any, count: int, factor: Any, high: Any, quotients: Any) -> Any:
    """Write every value / `factor` to `quotients`; return which value (at most `high`) has a rest, or -1.

    A division takes as long as all else that a page does to a value. Modulo 2**64 an odd number has an
    inverse: the product is the quotient where the division is exact, and above `high / factor` elsewhere.
    """
    shift = _U0
    while (factor >> shift) & _U1 == _U0:
        shift += _U1
    odd = factor >> shift
    inverse = odd  # right in its lowest 3 bits; each step doubles them
    for _ in range(5):
        inverse *= _U2 - odd * inverse
    greatest = high // factor
    low_bits = (_U1 << shift) - _U1
    rest = False
    for i in range(count):
        quotient = (values[i] >> shift) * inverse
        quotients[i] = quotient
        rest |= (quotient > greatest) | ((values[i] & low_bits) != _U0)
    if rest:
        for i in range(count):
            if values[i] % factor != _U0:
                return i
    return -1


@kernel
def _divide_by_common_factor(values: Any, count: int, high: Any, quotients: Any) -> Any:
    """Divide `values` (u8, at most `high`) by their greatest common factor, and return it.

    It is 1, and nothing is divided, when it is too great, or all are zero. `quotients` is scratch.
    """
    factor = _U0
    for i in range(count):
        factor = _greatest_common_factor(values[i], factor)
        if factor == _U1 or (i >= _FIRST_GUESS and factor != _U0):
            break
    while _U1 < factor <= high:
        stranger = _divide_exactly(values, count, factor, high, quotients)
        if stranger < 0:
            break
        factor = _greatest_common_factor(factor, values[stranger])
    if not _U1 < factor <= _SCALE_MAX:
        return _U1
    for i in range(count):
        values[i] = quotients[i]
    return factor


@kernel
def _encode_hashes(values: Any, count: int, page: int) -> Any:
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
    store_u8(page + layout.PAGE_HASH_WIDTH_POSITION, np.uint8(width))
    store_u64(page + layout.PAGE_HASH_BASE_POSITION, base)
    store_u64(page + layout.PAGE_HASH_SLOPE_POSITION, slope)
    return width


@kernel
def _encode_page_frame(values: Any, count: int, signed: bool, header: int, quotients: Any) -> Any:
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
    factor = _divide_by_common_factor(values, count, high - low, quotients)
    width = bit_width((high - low) // factor)
    store_u64(header + layout.PAGE_COLUMN_BASE_POSITION, low ^ flip)
    store_u32(header + layout.PAGE_COLUMN_SCALE_POSITION, np.uint32(factor))
    store_u8(header + layout.PAGE_COLUMN_WIDTH_POSITION, np.uint8(width))
    return width


@kernel
def _encode_file_frame(values: Any, count: int, width: int, base: Any, rotated: bool) -> Any:
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
def _make_relative(values: Any, count: int, rows: int, plan: int) -> Any:
    """Turn offsets into distances from their queue's base; say whether none lies below it."""
    item_bytes = plan_number(plan, ITEM_BYTES)
    bases = plan_number(plan, BASES)
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
def _encode_page(rows: int, count: int, plan: int, values: Any, quotients: Any, page: int) -> Any:
    """Write one page but for its checksum at `page`; return its bytes or OUT_OF_BOUNDS."""
    item_bytes = plan_number(plan, ITEM_BYTES)
    column_count = plan_number(plan, COLUMN_COUNT)
    framed = 0
    for c in range(column_count):
        framed += column_number(plan, c, FRAME) == PAGE_FRAME
    store_u16(page + layout.PAGE_ITEM_COUNT_POSITION, np.uint16(count))
    store_u8(page + layout.PAGE_COLUMN_COUNT_POSITION, np.uint8(framed))
    header = page + PAGE_HEADER_BYTES
    at = header + PAGE_COLUMN_BYTES * framed
    gather_field(rows + _HASH_POSITION, item_bytes, count, 8, False, values)
    at += pack_values(values, count, _encode_hashes(values, count, page), at)
    for c in range(column_count):
        signed = column_number(plan, c, SIGNED) != 0
        field = rows + column_number(plan, c, POSITION)
        gather_field(field, item_bytes, count, column_number(plan, c, BYTES), signed, values)
        if column_number(plan, c, RELATIVE) != 0 and not _make_relative(values, count, rows, plan):
            return OUT_OF_BOUNDS
        if column_number(plan, c, FRAME) == PAGE_FRAME:
            width = _encode_page_frame(values, count, signed, header, quotients)
            header += PAGE_COLUMN_BYTES
        else:
            width = column_number(plan, c, WIDTH)
            base = np.uint64(column_number(plan, c, BASE))
            rotated = column_number(plan, c, ROTATED) != 0
            if not _encode_file_frame(values, count, width, base, rotated):
                return OUT_OF_BOUNDS
        at += pack_values(values, count, width, at)
    for place in range(at, at + _PADDING_STORED, 8):
        store_u64(place, _U0)
    return ((at - page + layout.PAGE_PADDING_MAX) >> 3) << 3


@kernel
def encode_pages(
    rows: int, count: int, plan: int, page: int, position: int, out: int, directory: int
) -> Any:
    """Pack the `count` rows at `rows` into pages at `out`; all but the last are full.

    Page numbers begin with `page`; the first page lies at `position` in the file. `directory` takes
    32 bytes a page: first hash, position, least and greatest time. Returns the bytes written, or
    OUT_OF_BOUNDS. `out` has 4096 bytes a page and 16 spare.
    """
    item_bytes = plan_number(plan, ITEM_BYTES)
    items_per_page = plan_number(plan, ITEMS_PER_PAGE)
    seed = np.uint32(plan_number(plan, PAGE_SEED))
    values = np.empty(items_per_page, np.uint64)
    quotients = np.empty(items_per_page, np.uint64)
    written = 0
    done = 0
    while done < count:
        take = min(items_per_page, count - done)
        start = rows + done * item_bytes
        begin = out + written
        length = _encode_page(start, take, plan, values, quotients, begin)
        if length < 0:
            return length
        crc = page_checksum(begin, length, numbered_seed(seed, np.uint64(page)))
        store_u32(begin + layout.PAGE_CRC_POSITION, crc)
        low = load_i64(start + _TIME_POSITION)
        high = low
        for i in range(1, take):
            time = load_i64(start + i * item_bytes + _TIME_POSITION)
            low = min(low, time)
            high = max(high, time)
        store_u64(
            directory + layout.DIRECTORY_FIRST_HASH_POSITION, load_u64(start + _HASH_POSITION)
        )
        store_u64(directory + layout.DIRECTORY_POSITION_POSITION, np.uint64(position + written))
        store_u64(directory + layout.DIRECTORY_MIN_TIME_POSITION, np.uint64(low))
        store_u64(directory + layout.DIRECTORY_MAX_TIME_POSITION, np.uint64(high))
        directory += layout.DIRECTORY_ENTRY_BYTES
        done += take
        written += length
        page += 1
    return written
