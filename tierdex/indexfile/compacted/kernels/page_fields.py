"""The fields of a page, of its columns' frames and of its directory entry, read by name.

::

    page       | crc, item count, hash width, framed columns, hash base and slope | frame | frame ... | bits
    frame      base, scale, width of one column
    entry      first hash, position, least and greatest time of one page

Everything comes by address, and is compiled into the kernel that asks. Places come from layout only.

Depends on intrinsics, compile and layout.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tierdex.fileparts.kernels.compile import primitive
from tierdex.fileparts.kernels.intrinsics import load_i64, load_u8, load_u16, load_u32, load_u64
from tierdex.indexfile import layout

_CRC = layout.PAGE_CRC_POSITION
_ITEM_COUNT = layout.PAGE_ITEM_COUNT_POSITION
_HASH_WIDTH = layout.PAGE_HASH_WIDTH_POSITION
_COLUMN_COUNT = layout.PAGE_COLUMN_COUNT_POSITION
_HASH_BASE = layout.PAGE_HASH_BASE_POSITION
_HASH_SLOPE = layout.PAGE_HASH_SLOPE_POSITION
_FRAME_BASE = layout.PAGE_COLUMN_BASE_POSITION
_FRAME_SCALE = layout.PAGE_COLUMN_SCALE_POSITION
_FRAME_WIDTH = layout.PAGE_COLUMN_WIDTH_POSITION
_FIRST_HASH = layout.DIRECTORY_FIRST_HASH_POSITION
_POSITION = layout.DIRECTORY_POSITION_POSITION
_MIN_TIME = layout.DIRECTORY_MIN_TIME_POSITION
_MAX_TIME = layout.DIRECTORY_MAX_TIME_POSITION
_ENTRY = layout.DIRECTORY_ENTRY_BYTES

# -- a page ------------------------------------------------------------------------------------------


@primitive
def page_crc(page: int) -> Any:
    return load_u32(page + _CRC)


@primitive
def item_count(page: int) -> Any:
    return np.int64(load_u16(page + _ITEM_COUNT))


@primitive
def hash_width(page: int) -> Any:
    return np.int64(load_u8(page + _HASH_WIDTH))


@primitive
def framed_count(page: int) -> Any:
    """Return how many columns have a frame of the page's own."""
    return np.int64(load_u8(page + _COLUMN_COUNT))


@primitive
def hash_base(page: int) -> Any:
    return load_u64(page + _HASH_BASE)


@primitive
def hash_slope(page: int) -> Any:
    return load_u64(page + _HASH_SLOPE)


# -- a frame -----------------------------------------------------------------------------------------


@primitive
def frame_base(frame: int) -> Any:
    return load_u64(frame + _FRAME_BASE)


@primitive
def frame_scale(frame: int) -> Any:
    return np.uint64(load_u32(frame + _FRAME_SCALE))


@primitive
def frame_width(frame: int) -> Any:
    return np.int64(load_u8(frame + _FRAME_WIDTH))


# -- the directory -----------------------------------------------------------------------------------


@primitive
def entry_of(directory: int, page: Any) -> Any:
    """Return the address of a page's entry in the directory at `directory`."""
    return directory + _ENTRY * page


@primitive
def first_hash(entry: int) -> Any:
    return load_u64(entry + _FIRST_HASH)


@primitive
def page_position(entry: int) -> Any:
    return load_i64(entry + _POSITION)


@primitive
def min_time(entry: int) -> Any:
    return load_i64(entry + _MIN_TIME)


@primitive
def max_time(entry: int) -> Any:
    return load_i64(entry + _MAX_TIME)
