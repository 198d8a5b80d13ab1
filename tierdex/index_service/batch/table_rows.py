"""Answers of topics that follow tables as one Arrow table: as `arrow_table.SCHEMA`, and where each row lies.

Depends on answer, arrow_table and pyarrow.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tierdex.index_service.batch.arrow_table import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.index_service.answer import Answer, Missing

ROW_FIELDS: Final = (
    pa.field("source", pa.dictionary(pa.int32(), pa.string())),
    pa.field("position", pa.uint64()),
)


def rows_of_answers(answers: Sequence[Answer]) -> Any:
    """Return entries as rows: `lookup`, the entry's columns, and of live rows `source` and `position`."""
    columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
    sources: list[str | None] = []
    positions: list[int | None] = []
    missing: dict[Missing, list[int]] = {}
    for number, answer in enumerate(answers):
        for entry in answer.entries:
            columns["lookup"].append(number)
            for name in SCHEMA.names[1:]:
                columns[name].append(getattr(entry, name))
            sources.append(entry.source)
            positions.append(None if entry.location is None else entry.location.get("position"))
        for each in answer.missing:
            missing.setdefault(each, []).append(number)
    arrays = [pa.array(columns[field.name], field.type) for field in SCHEMA]
    of_rows = zip(ROW_FIELDS, (sources, positions), strict=True)
    arrays += [pa.array(values, field.type) for field, values in of_rows]
    metadata = {"as_of": str(min((each.as_of for each in answers), default=0))}
    if missing:
        told = [{**each.to_dict(), "lookups": numbers} for each, numbers in missing.items()]
        metadata["missing"] = json.dumps(told, separators=(",", ":"))
    schema = pa.schema([*SCHEMA, *ROW_FIELDS], metadata)
    return pa.Table.from_arrays(arrays, schema=schema)
