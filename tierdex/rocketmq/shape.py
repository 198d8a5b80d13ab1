"""Finds out how many slots and items a RocketMQ index file has: the file does not say.

Compacted: slot 0 names the position of the first run, which is where the slots end, and the length
must be just that plus 28 bytes an item that the header counts. Two independent ways, one answer.

Local: the length gives S + 4*M, a family of shapes four slots apart. But every member of it puts the
items on the same grid of 32-byte cells, counted from the end of the file, and beyond the last item
all is zero. So the last cell that is not zero is the newest item; the header (or, beside a live or
crashed writer, the number of cells without a gap) says its number; that fixes M, hence S. A shape
that is one item off is refuted by item 0, which is always zero, and items 1 to n, which never are.

What was found is then held against the content (hashes in the right slots, links that point
backwards); a file that fits no shape, or two, is refused: a guess could answer wrongly.

Depends on numpy, errors and layout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.rocketmq.layout import (
    HEADER,
    LOCAL_ITEM,
    LOCAL_SLOT,
    MAGIC_ENDED,
    NO_ITEM,
    RUN_ITEM,
    RUN_SLOT,
    SLOTS_AT,
    SMALLEST_INT,
    Form,
    Shape,
    slot_of,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tierdex.filesystem import OpenFile

_BLOCK = 4 << 20
_CELL = LOCAL_ITEM.itemsize
_UNCOUNTED = 64  # items that a writer may have placed and not yet counted in the header
_SAMPLE = 256


def find_shape(
    file: OpenFile,
    path: Path,
    header: np.void,
    *,
    form: Form | None,
    slot_capacity: int | None,
    item_capacity: int | None,
) -> Shape:
    """Return the shape of an open file; what is given is checked against the content, not believed.

    Raises CorruptFileError when no shape fits (truncated, damaged, or other capacities were given)
    or when more than one does.
    """
    length = file.size()
    shapes = []
    if form != "local" and header["magic"] == MAGIC_ENDED:
        shapes += _compacted_shapes(file, header, length)
    if form != "compacted":
        shapes += _local_shapes(file, header, length, slot_capacity, item_capacity)
    if slot_capacity is not None:
        shapes = [shape for shape in shapes if shape.slot_capacity in (0, slot_capacity)]
    if len(shapes) == 1:
        return shapes[0]
    if shapes:
        listed = ", ".join(f"{s.form} with {s.slot_capacity} slots" for s in shapes)
        raise CorruptFileError(path, f"could be {listed}: name the form and the slot capacity")
    raise CorruptFileError(
        path,
        f"{length} bytes with {header['item_count']} items fit no shape of a RocketMQ index file: "
        "truncated, damaged, or of other capacities than given",
    )


def read_records(file: OpenFile, position: int, dtype: np.dtype, count: int) -> np.ndarray:
    """Return `count` records; fewer when the file ends before."""
    data = file.read_at(position, count * dtype.itemsize)
    return np.frombuffer(data, dtype, len(data) // dtype.itemsize)


def _compacted_shapes(file: OpenFile, header: np.void, length: int) -> list[Shape]:
    count = int(header["item_count"])
    slot_bytes = length - SLOTS_AT - RUN_ITEM.itemsize * count
    if count < 0 or slot_bytes <= 0 or slot_bytes % RUN_SLOT.itemsize:
        return []
    shape = Shape("compacted", slot_bytes // RUN_SLOT.itemsize, count)
    first = read_records(file, SLOTS_AT, RUN_SLOT, 1)[0]
    last = read_records(file, shape.items_at - RUN_SLOT.itemsize, RUN_SLOT, 1)[0]
    if first["position"] != shape.items_at or int(last["position"]) + int(last["length"]) != length:
        return []
    return [shape] if _runs_fit(file, shape) else []


def _runs_fit(file: OpenFile, shape: Shape) -> bool:
    """Check blocks of slots spread over the file: do runs touch, do hashes belong?"""
    starts = np.unique(np.linspace(0, max(shape.slot_capacity - 64, 0), 16).astype(np.int64))
    for start in starts.tolist():
        count = min(64, shape.slot_capacity - start)
        slots = read_records(file, SLOTS_AT + start * RUN_SLOT.itemsize, RUN_SLOT, count)
        position, length = slots["position"].astype(np.int64), slots["length"].astype(np.int64)
        if (length < 0).any() or (length % RUN_ITEM.itemsize).any():
            return False
        if (position[:-1] + length[:-1] != position[1:]).any():
            return False
        newest = int(np.argmax(length > 0))
        if length[newest]:
            item = read_records(file, int(position[newest]), RUN_ITEM, 1)
            if slot_of(item["hash"], shape.slot_capacity)[0] != start + newest:
                return False
    return True


def _local_shapes(
    file: OpenFile,
    header: np.void,
    length: int,
    slot_capacity: int | None,
    item_capacity: int | None,
) -> list[Shape]:
    count = int(header["item_count"])
    family, rest = divmod(length - SLOTS_AT, LOCAL_SLOT.itemsize)  # S + 4*M
    if rest or family < 5 or count < 0:
        return []
    if item_capacity is None and slot_capacity is not None:
        item_capacity = (family - slot_capacity) // 4
    if item_capacity is not None:
        given = Shape("local", family - 4 * item_capacity, item_capacity)
        return [given] if _local_fits(file, given, count, count) else []
    last = _last_used_cell(file, length, count)
    if last is None:
        return [] if count else [Shape("local", 0, 0)]
    shapes = []
    for newest in range(max(count, 1), count + _UNCOUNTED + 1):
        capacity = newest + last + 1
        shape = Shape("local", family - 4 * capacity, capacity)
        if _local_fits(file, shape, count, newest):
            shapes.append(shape)
    return shapes


def _last_used_cell(file: OpenFile, length: int, count: int) -> int | None:
    """Return how many all-zero cells follow the last used one; None when all cells are zero.

    The items are a run of at least `count` used cells, so probes `count` cells apart cannot miss it.
    """
    cells = (length - HEADER.itemsize) // _CELL
    step = max(count, 1)
    if step * _CELL < 1 << 16:
        return _scan_backward(file, length, 0, cells)
    for probe in range(step - 1, cells, step):
        if any(file.read_at(length - (probe + 1) * _CELL, _CELL)):
            return _scan_backward(file, length, probe - step + 1, probe + 1)
    return None


def _scan_backward(file: OpenFile, length: int, first: int, beyond: int) -> int | None:
    """Return the first used cell among `first` to `beyond`, counted backward from the file's end."""
    while first < beyond:
        count = min(_BLOCK // _CELL, beyond - first)
        block = np.frombuffer(
            file.read_at(length - (first + count) * _CELL, count * _CELL), np.uint8
        )
        if block.any():
            used = block.reshape(-1, _CELL)[::-1].any(axis=1)
            return first + int(np.argmax(used))
        first += count
    return None


def _local_fits(file: OpenFile, shape: Shape, count: int, newest: int) -> bool:
    """Hold a shape against item 0, the first and last items and some between.

    Items up to `count` are counted by the header; up to `newest` they are only placed, and their
    slots and links may not be there yet.
    """
    if shape.slot_capacity <= 0 or newest >= shape.item_capacity:
        return False
    if any(file.read_at(shape.items_at, _CELL)):  # item 0
        return False
    for start in {1, max(1, newest - _UNCOUNTED + 1)}:
        size = min(_UNCOUNTED, newest - start + 1)
        cells = np.frombuffer(file.read_at(shape.items_at + start * _CELL, size * _CELL), np.uint8)
        if not cells.reshape(-1, _CELL).any(axis=1).all():
            return False
    spread = np.linspace(1, max(count - _SAMPLE, 1), 8).astype(np.int64)
    for start in np.unique(spread).tolist():
        size = min(_SAMPLE, count - start + 1)
        if size > 0 and not _items_fit(file, shape, start, size):
            return False
    return True


def _items_fit(file: OpenFile, shape: Shape, start: int, size: int) -> bool:
    items = read_records(file, shape.items_at + start * _CELL, LOCAL_ITEM, size)
    numbers = np.arange(start, start + size)
    previous, hashes = items["previous"].astype(np.int64), items["hash"].astype(np.int64)
    if (previous < 0).any() or (previous >= numbers).any():
        return False
    if ((hashes < 0) & (hashes != SMALLEST_INT)).any():
        return False
    slots = slot_of(items["hash"], shape.slot_capacity)
    for where in np.unique(np.linspace(0, size - 1, 32).astype(np.int64)).tolist():
        slot, link = int(slots[where]), int(previous[where])
        if slot < 0:
            continue
        head = read_records(file, SLOTS_AT + slot * LOCAL_SLOT.itemsize, LOCAL_SLOT, 1)[0]
        if not numbers[where] <= head["newest"] < shape.item_capacity or head["unused"]:
            return False
        if link != NO_ITEM:
            older = read_records(file, shape.items_at + link * _CELL, LOCAL_ITEM, 1)
            if slot_of(older["hash"], shape.slot_capacity)[0] != slot:
                return False
    return True
