"""Arrow columns of the texts at JSON paths: by a kernel where it is sure, by json_paths.py otherwise.

::

    values --> one block --> find_texts --> places of texts --> gather --> column
                                  |                                          ^
                                  odd records --> read_paths ----------------+ put in

The kernel takes paths of names alone, and pays from some dozens of values on.

Depends on json_paths, selectors, value_block, kernels, fileparts, numpy and pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute

from tierdex.fileparts.memory import address
from tierdex.following.json_paths import read_paths
from tierdex.following.value_block import ValueBlock, gathered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.following.selectors import JsonPart

pc: Any = pyarrow.compute
_FEW: Final = 64  # values: a process that shows one message need not load kernels
_PATHS_MAX: Final = 63  # bits of a mask


def read_columns(
    values: Sequence[bytes | None], paths: Sequence[JsonPart]
) -> tuple[list[Any], list[np.ndarray | None], np.ndarray]:
    """Return, for each path, its texts as Arrow strings and the rows that they are of, rising.

    Rows are None for a path without ``[*]``: it has one text a value, null where nothing is. The third are
    the values that cannot be read: bool[n].
    """
    if len(values) < _FEW or len(paths) > _PATHS_MAX or not all(map(_is_plain, paths)):
        return _general(values, paths)
    block = ValueBlock.of(values)
    places, is_odd = _find(block, paths)
    try:
        columns = [gathered(block.data, each) for each in places]
    except OverflowError:
        return _general(values, paths)
    unreadable = np.zeros(len(values), bool)
    odd = np.flatnonzero(is_odd)
    if len(odd):
        found = read_paths([values[row] for row in odd.tolist()], paths)
        unreadable[odd] = found.unreadable
        columns = [
            pc.replace_with_mask(column, pa.array(is_odd), pa.array(texts, pa.string()))
            for column, texts in zip(columns, found.texts, strict=True)
        ]
    return columns, [None] * len(paths), unreadable


def _is_plain(path: JsonPart) -> bool:
    return bool(path.steps) and all(type(step) is str for step in path.steps)


def _general(
    values: Sequence[bytes | None], paths: Sequence[JsonPart]
) -> tuple[list[Any], list[np.ndarray | None], np.ndarray]:
    found = read_paths(values, paths)
    columns = [pa.array(texts, pa.string()) for texts in found.texts]
    rows = [
        np.array(each, np.int64) if path.gives_several else None
        for path, each in zip(paths, found.rows, strict=True)
    ]
    return columns, rows, found.unreadable


def _find(block: ValueBlock, paths: Sequence[JsonPart]) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of texts, i8[paths, n, 2], and which values are odd."""
    from tierdex.following.kernels.json_scan import find_texts

    names = [str(step).encode("utf-8", "surrogatepass") for path in paths for step in path.steps]
    name_bounds = np.cumsum([0, *map(len, names)])
    path_bounds = np.cumsum([0, *(len(path.steps) for path in paths)])
    name_bytes = np.frombuffer(b"".join(names) or b"\0", np.uint8)
    data = np.frombuffer(block.data, np.uint8)
    places = np.empty((len(paths), len(block), 2), np.int64)
    is_odd = np.empty(len(block), bool)
    find_texts(
        address(data), block.starts, block.ends, address(name_bytes), name_bounds, path_bounds,
        _is_utf8(block), places, is_odd,
    )  # fmt: skip
    places[:, is_odd, 0] = -1
    return places, is_odd


def _is_utf8(block: ValueBlock) -> bool:
    """Return whether all that lies between the first value and the end of the last is UTF-8."""
    bounds = pa.py_buffer(np.array([block.starts[0], block.ends[-1]], np.int64))
    data = pa.py_buffer(block.data)
    try:
        pa.Array.from_buffers(pa.large_string(), 1, [None, bounds, data]).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
