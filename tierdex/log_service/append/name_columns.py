"""Keys and message IDs that come as Arrow columns -> the extras of all messages, without Python a row.

Only what is plain goes this way: strings without nulls, of legal lengths. Anything else is left to the
general path, which names what is wrong.

Depends on fileparts and logfile; pyarrow is loaded when a column comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tierdex.fileparts.memory import address
from tierdex.logfile.columns import BinaryColumn
from tierdex.logfile.kernels import names as k

if TYPE_CHECKING:
    from tierdex.settings import Settings

_TEXT_MOST = np.iinfo(np.uint16).max  # of an item of an extra


def plain_extras(
    settings: Settings, keys: Any, message_ids: Any, count: int
) -> BinaryColumn | None:
    """Return the extra of each of `count` messages; None for columns of another shape.

    `keys` is a column of strings, one a message, or of lists of strings; either may be None.
    """
    most = min(settings.max_key_bytes, _TEXT_MOST)
    columns = np.zeros(k.NAME_WORDS, np.int64)
    held: list[np.ndarray] = []

    def put(place: int, array: np.ndarray) -> None:
        held.append(array)
        columns[place] = address(array)

    if keys is not None:
        listed = _lists(keys, count)
        texts = None if listed is None else _texts(listed[1], most)
        if listed is None or texts is None:
            return None
        put(k.N_KEYS_OF_ROW, listed[0])
        put(k.N_KEY_OFFSETS, texts.offsets.astype(np.int64, copy=False))
        put(k.N_KEYS, texts.data)
    if message_ids is not None:
        texts = _texts(message_ids, most)
        if texts is None or len(texts) != count:
            return None
        put(k.N_ID_OFFSETS, texts.offsets.astype(np.int64, copy=False))
        put(k.N_IDS, texts.data)
    offsets = np.empty(count + 1, np.int64)
    k.measure_names(columns, count, address(offsets))
    data = np.empty(int(offsets[-1]), np.uint8)
    k.encode_names(columns, count, address(data))
    return BinaryColumn(offsets, data)


def _lists(keys: Any, count: int) -> tuple[np.ndarray, Any] | None:
    """Return (first key of each message i8, count + 1 of them; all keys), None for another shape."""
    import pyarrow as pa

    keys = _whole(keys)
    if keys is None or len(keys) != count or keys.null_count:
        return None
    if pa.types.is_list(keys.type) or pa.types.is_large_list(keys.type):
        offsets = np.asarray(keys.offsets).astype(np.int64)
        return offsets - offsets[0], keys.flatten()
    return np.arange(count + 1, dtype=np.int64), keys


def _texts(values: Any, most: int) -> BinaryColumn | None:
    """Return a column of legal texts, None unless all are."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = _whole(values)
    if values is None or values.null_count or values.type not in (pa.string(), pa.large_string()):
        return None
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return None
    if len(values):
        bounds = pc.min_max(pc.binary_length(values))
        if bounds["min"].as_py() < 1 or bounds["max"].as_py() > most:
            return None
    return BinaryColumn.from_arrow(values)


def _whole(values: Any) -> Any:
    """Return an Arrow column as one array, None for what is no Arrow column."""
    import pyarrow as pa

    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks()
    return values if isinstance(values, pa.Array) else None
