"""How the columns of one file are packed into its pages: the plan, from bounds or from the file.

For every column one of three frames: *constant* (no bits at all), *file* (base and width are the
file's: narrow columns, where a frame a page would cost more than it saves) or *page* (base, common
factor and width in each page). Tags are packed at the width that the file's topics and kinds need.
Offsets are relative to the least offset of their topic and queue where that is narrower. The number
of items a page is fixed for the file so that no page exceeds 4096 bytes whatever its values.

Depends on layout, schema, row_bounds, fileparts and page_codec.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tierdex.fileparts.checksums import part_seed
from tierdex.fileparts.layout import Part
from tierdex.indexfile import layout
from tierdex.indexfile.compacted.kernels import page_codec as codec
from tierdex.indexfile.row_bounds import KEYS, MESSAGE_IDS, RowBounds

if TYPE_CHECKING:
    from tierdex.indexfile.schema import Schema

_FILE_FRAME_BITS = 8  # a column at most this wide is not worth a frame a page
_DENSE_BASES_MAX = 1 << 18  # topics x queues above this: no relative offsets
_U64 = (1 << 64) - 1


class PagePlan:
    """The frames of a file's columns, and the numbers that the codec's kernels take by address.

    `columns` is an array of `layout.COLUMN`: tag, timestamp, then the schema's fields in order.
    Immutable after construction, safe to share; owns the arrays behind `address`.
    """

    def __init__(
        self, schema: Schema, columns: np.ndarray, queues: np.ndarray, items: int, uuid: bytes
    ) -> None:
        """Prepare the kernels' view. Raises ValueError when columns or queues are not plausible."""
        self.schema = schema
        self.columns = columns
        self.queues = queues
        self.items_per_page = items
        self._names = ("tag", "timestamp", *schema.field_names)
        _check_columns(columns, self._names, schema)
        numbers = np.zeros(codec.PLAN_LENGTH + codec.COLUMN_LENGTH * len(columns), np.int64)
        numbers[codec.COLUMN_COUNT] = len(columns)
        numbers[codec.ITEM_BYTES] = schema.item_bytes
        numbers[codec.ITEMS_PER_PAGE] = items
        numbers[codec.PAGE_SEED] = part_seed(uuid, Part.PAGE)
        self._bases = np.zeros(0, np.int64)
        if np.any(columns["flags"] & layout.COLUMN_RELATIVE):
            least, span = _queue_span(queues)
            self._bases = _dense_bases(queues, least, span)
            numbers[codec.QUEUE_POSITION] = schema.position("queue_id")
            numbers[codec.QUEUE_LEAST] = least
            numbers[codec.QUEUE_SPAN] = span
            numbers[codec.BASES] = self._bases.ctypes.data
            numbers[codec.BASES_COUNT] = len(self._bases)
        for i, name in enumerate(self._names):
            begin = codec.PLAN_LENGTH + codec.COLUMN_LENGTH * i
            kind = schema.dtype[name]
            flags = int(columns["flags"][i])
            numbers[begin : begin + codec.COLUMN_LENGTH] = (
                schema.position(name),
                kind.itemsize,
                kind.kind == "i",
                columns["frame"][i],
                columns["width"][i],
                columns["base"][i].astype(np.int64),
                flags & layout.COLUMN_ROTATED,
                flags & layout.COLUMN_RELATIVE,
            )
        self._numbers = numbers
        self.address = int(numbers.ctypes.data)

    @classmethod
    def from_bounds(cls, schema: Schema, bounds: RowBounds, uuid: bytes) -> PagePlan:
        """Choose frames for rows within `bounds`."""
        names = ("tag", "timestamp", *schema.field_names)
        columns = np.zeros(len(names), layout.COLUMN)
        bits = 64  # the hash
        if not bounds.is_empty:
            bits += _plan_tag(columns[0], bounds)
            for column, name in zip(columns[1:], names[1:], strict=True):
                low, high = bounds.least[name], bounds.greatest[name]
                width = _width(high - low)
                if name == "offset" and schema.has_end_offsets:
                    distance = _greatest_distance(bounds.queues)
                    if distance is not None and _width(distance) < width:
                        width = _width(distance)
                        column["flags"] = layout.COLUMN_RELATIVE
                        low = 0
                column["least"], column["greatest"] = low & _U64, high & _U64
                if column["flags"] & layout.COLUMN_RELATIVE:
                    column["least"] = bounds.least[name] & _U64
                bits += _plan_frame(column, low, width)
        framed = int(np.count_nonzero(columns["frame"] == layout.PAGE_FRAME))
        room = layout.PAGE_BYTES_MAX - layout.PAGE_HEADER_BYTES - layout.PAGE_PADDING_MAX
        room -= framed * layout.PAGE_COLUMN_BYTES + len(columns) + 1  # a byte for each rounding up
        return cls(schema, columns, bounds.queues, 8 * room // bits, uuid)

    def bounds(self) -> RowBounds:
        """Return the bounds that the plan was made for."""
        least: dict[str, int] = {}
        greatest: dict[str, int] = {}
        for column, name in zip(self.columns, self._names, strict=True):
            low, high = int(column["least"]), int(column["greatest"])
            if self.schema.dtype[name].kind == "i":
                low, high = _signed(low), _signed(high)
            least["topic" if name == "tag" else name] = low
            greatest["topic" if name == "tag" else name] = high
        kinds = MESSAGE_IDS if int(self.columns["base"][0]) & layout.KIND_BIT else KEYS
        if self.columns["flags"][0] & layout.COLUMN_ROTATED:
            kinds = KEYS | MESSAGE_IDS
        return RowBounds(kinds, least, greatest, self.queues)


def _plan_tag(column: np.void, bounds: RowBounds) -> int:
    """Fill in the tag's column: the file's frame, as wide as its topics and kinds need."""
    low, high = bounds.least["topic"], bounds.greatest["topic"]
    column["least"], column["greatest"] = low, high
    base, width = low, _width(high - low)
    if bounds.kinds == KEYS | MESSAGE_IDS:
        column["flags"] = layout.COLUMN_ROTATED
        base, width = 2 * low, _width(2 * (high - low) + 1)
    elif bounds.kinds == MESSAGE_IDS:
        base |= layout.KIND_BIT
    column["base"] = base
    column["width"] = width
    column["frame"] = layout.FILE_FRAME if width else layout.CONSTANT_FRAME
    return width


def _plan_frame(column: np.void, low: int, width: int) -> int:
    """Choose the frame of a column whose packed values need `width` bits in the file as a whole."""
    if width > _FILE_FRAME_BITS:
        column["frame"] = layout.PAGE_FRAME
    else:
        column["frame"] = layout.FILE_FRAME if width else layout.CONSTANT_FRAME
        column["width"] = width
        column["base"] = low & _U64
    return width


def _width(span: int) -> int:
    """Return the stored width of values 0..span: 0..56 or 64 bits."""
    bits = span.bit_length()
    return bits if bits <= 56 else 64


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _queue_span(queues: np.ndarray) -> tuple[int, int]:
    """Return the least queue id and how many ids there are from it to the greatest."""
    least = int(queues["queue_id"].min())
    return least, int(queues["queue_id"].max()) - least + 1


def _greatest_distance(queues: np.ndarray) -> int | None:
    """Return the longest way from a queue's base to its end; None: too many queues for bases."""
    if not len(queues):
        return None
    span = _queue_span(queues)[1]
    if (int(queues["topic"].max()) + 1) * span > _DENSE_BASES_MAX:
        return None
    ends, bases = queues["end"].astype(object), queues["base"].astype(object)
    return int((ends - bases).max())


def _dense_bases(queues: np.ndarray, least: int, span: int) -> np.ndarray:
    """Return the base (i8) of every topic and queue, by topic * span + queue - least."""
    count = (int(queues["topic"].max()) + 1) * span
    if count > _DENSE_BASES_MAX:
        raise ValueError(f"{count} bases of offsets, at most {_DENSE_BASES_MAX}")
    bases = np.zeros(count, np.int64)
    bases[queues["topic"].astype(np.int64) * span + queues["queue_id"] - least] = queues["base"]
    return bases


def _check_columns(columns: np.ndarray, names: tuple[str, ...], schema: Schema) -> None:
    """Raise ValueError when a column cannot be, so that no kernel meets it."""
    if len(columns) != len(names):
        raise ValueError(f"{len(columns)} columns, the schema has {len(names)}")
    for column, name in zip(columns, names, strict=True):
        frame, width, flags = (int(column[key]) for key in ("frame", "width", "flags"))
        if frame > layout.PAGE_FRAME or width > 64 or 56 < width < 64 or any(column["reserved"]):
            raise ValueError(f"implausible column {name}")
        if width and frame != layout.FILE_FRAME:
            raise ValueError(f"column {name} has a width without a frame")
        allowed = layout.COLUMN_ROTATED if name == "tag" else 0
        if name == "offset" and schema.has_end_offsets:
            allowed = layout.COLUMN_RELATIVE
        if flags & ~allowed:
            raise ValueError(f"column {name} has flags {flags}")


def identity_masks(schema: Schema) -> np.ndarray:
    """Return u8 words, from an item's time on, all ones where the time and the schema's fields lie.

    With the tag they are what makes an entry of a key one entry, and a repeat of it a repeat.
    """
    mask = np.zeros(schema.item_bytes, np.uint8)
    for name in ("timestamp", *schema.field_names):
        begin = schema.position(name)
        mask[begin : begin + schema.dtype[name].itemsize] = 0xFF
    return mask[layout.ITEM_TIME_POSITION :].view(np.uint64)
