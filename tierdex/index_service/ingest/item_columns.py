"""From entries to items: each key and each message ID of an entry becomes one item.

Pure. A batch of entries becomes at most two sets of item columns (its keys, its message IDs), so that
the kernels run over the caller's Arrow buffers without a copy. Each set keeps the order of the rows;
only items of one key are ever compared by arrival, and those are in one set.

Depends on indexfile.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tierdex.indexfile.columns import ItemColumns, StringColumn
from tierdex.indexfile.layout import KIND_KEY, KIND_MESSAGE_ID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.index_service.requests.put_columns import EntryColumns
    from tierdex.indexfile.columns import ItemRows


def items_of_columns(columns: EntryColumns, first: int, count: int) -> list[ItemColumns]:
    """Return the item columns of rows [first, first + count)."""
    rows = slice(first, first + count)
    items = []
    if columns.keys is not None:
        offsets = columns.key_offsets
        if offsets is None:
            items.append(_items(columns, KIND_KEY, columns.keys, columns.key_hashes, rows, rows))
        else:
            keys = slice(int(offsets[first]), int(offsets[first + count]))
            parents = np.repeat(
                np.arange(first, first + count), np.diff(offsets[first : first + count + 1])
            )
            items.append(_items(columns, KIND_KEY, columns.keys, columns.key_hashes, keys, parents))
    if columns.message_ids is not None:
        items.append(_items(columns, KIND_MESSAGE_ID, columns.message_ids, None, rows, rows))
    return items


def _items(
    columns: EntryColumns,
    kind: int,
    texts: Any,
    hashes: np.ndarray | None,
    names: slice,
    rows: slice | np.ndarray,
) -> ItemColumns:
    """Return the items of some names: `rows` are the batch's rows that have them."""
    fields: dict[str, np.ndarray] = {}
    dictionaries: dict[str, Sequence[str]] = {}
    for name, values in columns.fields.items():
        if isinstance(values, tuple):
            dictionaries[name], values = values
        fields[name] = values[rows]
    strings = None if hashes is not None else texts.slice(names.start, names.stop - names.start)
    return ItemColumns(
        strings=None if strings is None else StringColumn.from_values(strings),
        hashes=None if hashes is None else hashes[names],
        kind=kind,
        topics=columns.topics,
        topic_index=None if columns.topic_index is None else columns.topic_index[rows],
        timestamp=columns.timestamp[rows],
        fields=fields,
        dictionaries=dictionaries,
    )


def sliced(items: ItemColumns, first: int, count: int) -> ItemColumns:
    """Return rows [first, first + count) of items that are given by hash and by number alone."""
    assert items.hashes is not None
    rows = slice(first, first + count)
    return replace(
        items,
        hashes=items.hashes[rows],
        timestamp=items.timestamp[rows],
        fields={name: values[rows] for name, values in items.fields.items()},
        topic_index=None if items.topic_index is None else items.topic_index[rows],
    )


def item_count(items: Sequence[ItemColumns | ItemRows]) -> int:
    """Return how many items they hold at most (skipped rows count)."""
    return sum(each.row_count for each in items)
