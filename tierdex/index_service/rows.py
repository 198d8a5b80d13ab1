"""From rows (structured arrays of a file) to locations with the file's dictionaries resolved.

Depends on indexfile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierdex.index_service.reader import Candidate
from tierdex.indexfile.layout import TOPIC_MASK
from tierdex.indexfile.schema import TOPIC_DICTIONARY

if TYPE_CHECKING:
    import numpy as np

    from tierdex.indexfile.dictionary import Dictionaries
    from tierdex.indexfile.schema import Schema


class RowDecoder:
    """Decodes rows of one file. The dictionaries may grow meanwhile; indices never change."""

    __slots__ = ("_columns", "_topics", "names")

    def __init__(self, schema: Schema, dictionaries: Dictionaries) -> None:
        self.names = schema.field_names
        self._topics = dictionaries.strings(TOPIC_DICTIONARY)
        self._columns = [
            (field.name, dictionaries.strings(field.name) if field.dictionary else None)
            for field in schema.fields
        ]

    def decode(self, rows: np.ndarray) -> list[Candidate]:
        """Return each row's location (topic, then the schema's fields) and time."""
        topics = self._topics
        columns: list[list[object]] = [[topics[tag & TOPIC_MASK] for tag in rows["tag"].tolist()]]
        for name, strings in self._columns:
            values = rows[name].tolist()
            columns.append(values if strings is None else [strings[value] for value in values])
        return list(map(Candidate, zip(*columns, strict=True), rows["timestamp"].tolist()))
