"""Small chained files for tests, and a brute-force model of what they must answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tests.indexfile.searches import find_all
from tierdex.filesystem import LocalFileSystem
from tierdex.indexfile.chained.file import ChainedFile, Lookup
from tierdex.indexfile.columns import ItemColumns, StringColumn
from tierdex.indexfile.hashing import key_hash, message_id_hash
from tierdex.indexfile.layout import KIND_KEY, KIND_MESSAGE_ID
from tierdex.indexfile.schema import MESSAGE_SCHEMA

if TYPE_CHECKING:
    from pathlib import Path

FILESYSTEM = LocalFileSystem()
UUID = bytes(range(16))


def make_file(path: Path, *, slot_count: int = 64, item_capacity: int = 10_000, **other):
    return ChainedFile.create(
        other.pop("filesystem", FILESYSTEM),
        path,
        uuid=other.pop("uuid", UUID),
        schema=other.pop("schema", MESSAGE_SCHEMA),
        slot_count=slot_count,
        item_capacity=item_capacity,
        created_ms=1_700_000_000_000,
    )


def make_part(keys, *, topic="orders", first=0, kind=KIND_KEY, queue_id=0, **other) -> ItemColumns:
    """A part whose row i has offset 100 * (first + i), size 100 and time 1000 + first + i."""
    rows = np.arange(first, first + len(keys))
    return ItemColumns(
        strings=StringColumn.from_values(keys),
        topics=topic,
        timestamp=other.pop("timestamp", rows + 1000),
        fields={"offset": rows * 100, "size": 100, "queue_id": queue_id},
        kind=kind,
        **other,
    )


def offsets_of(file: ChainedFile, lookup: Lookup, **times) -> list[int]:
    return [int(v) for v in find_all(file, lookup, **times)["offset"]]


def key(text: str, topic: str = "orders") -> Lookup:
    return Lookup(key_hash(topic, text), KIND_KEY, topic)


def message_id(text: str) -> Lookup:
    return Lookup(message_id_hash(text), KIND_MESSAGE_ID, None)
