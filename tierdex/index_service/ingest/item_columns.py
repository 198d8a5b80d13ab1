"""From entries to items: each key and each message ID of an entry becomes one item.

Pure. A batch of entries becomes at most two sets of item columns (its keys, its message IDs), so that
the kernels run over the caller's Arrow buffers without a copy. Each set keeps the order of the rows;
only items of one key are ever compared by arrival, and those are in one set.

Depends on indexfile.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tierdex.indexfile.columns import ItemColumns, StringColumn
from tierdex.indexfile.layout import KIND_KEY, KIND_MESSAGE_ID

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from tierdex.index_service.requests.put_columns import EntryColumns
    from tierdex.indexfile.columns import ItemRows


def items_of_columns(columns: EntryColumns, first: int, count: int) -> list[ItemColumns]:
    """Return the item columns of rows [first, first + count)."""
    rows = slice(first, first + count)
    fields: dict[str, np.ndarray] = {}
    dictionaries: dict[str, Sequence[str]] = {}
    for name, values in columns.fields.items():
        if isinstance(values, tuple):
            dictionaries[name], values = values
        fields[name] = values[rows]
    topic_index = None if columns.topic_index is None else columns.topic_index[rows]
    items = []
    for kind, texts, hashes in (
        (KIND_KEY, columns.keys, columns.key_hashes),
        (KIND_MESSAGE_ID, columns.message_ids, None),
    ):
        if texts is None:
            continue
        strings = None if hashes is not None else texts.slice(first, count)
        items.append(
            ItemColumns(
                strings=None if strings is None else StringColumn.from_values(strings),
                hashes=None if hashes is None else hashes[rows],
                kind=kind,
                topics=columns.topics,
                topic_index=topic_index,
                timestamp=columns.timestamp[rows],
                fields=fields,
                dictionaries=dictionaries,
            )
        )
    return items


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
