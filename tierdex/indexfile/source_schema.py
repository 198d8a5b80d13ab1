"""Schemas of locations that are no messages: a row of a Parquet file, a line of a text file.

`source` is the path or URL of the file, as its dictionary spells it; of a compressed file, `offset` and
`size` count the bytes of its text. Depends on schema.
"""

from __future__ import annotations

from typing import Final

from tierdex.indexfile.schema import Schema, SchemaField

PARQUET_ROW_SCHEMA: Final = Schema(
    (
        SchemaField("source", "<u4", dictionary=True),
        SchemaField("row_group", "<u4"),
        SchemaField("row", "<u8"),
    )
)
TEXT_LINE_SCHEMA: Final = Schema(
    (
        SchemaField("source", "<u4", dictionary=True),
        SchemaField("size", "<u4"),
        SchemaField("offset", "<i8"),
    )
)
# A line that belongs to a queue as well.
QUEUED_LINE_SCHEMA: Final = Schema((*TEXT_LINE_SCHEMA.fields, SchemaField("queue_id", "<i4")))
# A row of a lake's table: the file by its number in the table's state, the row by its place in the file.
TABLE_ROW_SCHEMA: Final = Schema(
    (
        SchemaField("table_file", "<u4"),
        SchemaField("position", "<u8"),
    )
)
