"""Answers of topics that follow tables as one Arrow table: as `arrow_table.SCHEMA`, and where each row lies.

The rows of all lookups are filtered together, by numpy, file by file: those of files that the snapshot has,
without the deleted ones. A lookup of which a full page left too few live rows is answered again by itself.

Depends on answer, arrow_table, errors, query, tables, indexfile, numpy and pyarrow.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from tierdex.errors import CorruptFileError
from tierdex.index_service.answer import Missing
from tierdex.index_service.batch.arrow_table import SCHEMA, table_of
from tierdex.index_service.tables.live_entries import address_of_file
from tierdex.indexfile.layout import TOPIC_MASK
from tierdex.indexfile.schema import TABLE_ROW_SCHEMA, TOPIC_DICTIONARY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tierdex.index_service.answer import Answer
    from tierdex.index_service.query.executor import Result
    from tierdex.index_service.query.matches import FileMatches
    from tierdex.index_service.tables.followed_tables import FollowedTables
    from tierdex.index_service.tables.live_entries import View

ROW_FIELDS: Final = (
    pa.field("source", pa.dictionary(pa.int32(), pa.string())),
    pa.field("position", pa.uint64()),
)


class LiveRows:
    """The live rows of one result, and what is missing because of tables."""

    def __init__(self, tables: FollowedTables, views: Mapping[str, View]) -> None:
        self._tables = tables
        self._views = views
        self.missing: dict[Missing, list[int]] = {}
        self._sources: dict[str, int] = {}

    def taken(self, result: Result, max_count: int) -> tuple[Any, np.ndarray]:
        """Return the table of live rows, and the lookups (rising) that have to be asked again.

        Of each lookup at most `max_count` rows are in it.
        """
        matches = result.matches
        full = matches.counts >= matches.lookups.max_count
        kept = [self._live(found) for found in matches.files]
        matches.files = [found for found, _ in kept if len(found.rows)]
        matches.counts = np.zeros_like(matches.counts)
        for found in matches.files:
            matches.counts += np.bincount(found.numbers, minlength=len(matches.counts))
        short = np.flatnonzero(full & (matches.counts < max_count))
        table = table_of(result)
        sources = [source for found, source in kept if len(found.rows)]
        columns = self._columns(matches.files, sources)
        for field, column in zip(ROW_FIELDS, columns, strict=True):
            table = table.append_column(field, column)
        numbers = table.column("lookup").to_numpy()
        first = np.searchsorted(numbers, numbers)  # of the same lookup
        ranks = np.arange(len(numbers)) - first
        shown = (ranks < max_count) & ~np.isin(numbers, short)
        return (table if shown.all() else table.filter(pa.array(shown))), short

    def _live(self, found: FileMatches) -> tuple[FileMatches, np.ndarray]:
        """Return the live rows of a file, and the number of each one's source (-1: of no table)."""
        sources = np.full(len(found.rows), -1, np.int32)
        if found.schema != TABLE_ROW_SCHEMA:
            return found, sources
        tags = found.rows["tag"] & np.uint32(TOPIC_MASK)
        names = found.dictionaries.strings(TOPIC_DICTIONARY)
        kept = np.zeros(len(found.rows), bool)
        for tag in np.unique(tags).tolist():
            view = self._views.get(names[tag])
            if view is not None and view.state is not None:
                own = np.flatnonzero(tags == tag)
                kept[own] = self._of_table(view, found, own, sources)
        return found.taken(kept), sources[kept]

    def _of_table(
        self, view: View, found: FileMatches, own: np.ndarray, sources: np.ndarray
    ) -> np.ndarray:
        """Return which of a table's rows, by their places in `found`, are live; note their sources."""
        assert view.state is not None
        numbers, positions = found.rows["table_file"][own], found.rows["position"][own]
        live = np.zeros(len(own), bool)
        for number in np.unique(numbers).tolist():
            file = view.state.files[number] if number < len(view.state.files) else None
            life = None if file is None else file.life_at(view.step)
            if file is None or life is None:
                continue
            which = np.flatnonzero(numbers == number)
            address = address_of_file(view.state, file)
            sources[own[which]] = self._sources.setdefault(address, len(self._sources))
            if life.deletes is None:
                live[which] = True
                continue
            try:
                deleted = self._tables.deletes(view.topic, life.deletes)
            except (CorruptFileError, OSError) as error:
                told = Missing(file.path, f"its deleted rows cannot be read: {error}")
                lookups = np.unique(found.numbers[own[which]]).tolist()
                self.missing.setdefault(told, []).extend(lookups)
                continue
            live[which] = ~np.isin(positions[which], deleted)
        return live

    def _columns(self, files: list[FileMatches], sources: list[np.ndarray]) -> list[Any]:
        """Return the columns of ROW_FIELDS, in the order of `table_of`."""
        if not files:
            return [pa.array([], field.type) for field in ROW_FIELDS]
        order = np.argsort(np.concatenate([found.numbers for found in files]), kind="stable")
        numbers = np.concatenate(sources)[order]
        positions = np.concatenate(
            [
                found.rows["position"]
                if found.schema == TABLE_ROW_SCHEMA
                else np.zeros(len(found.rows), np.uint64)
                for found in files
            ]
        )[order]
        is_other = numbers < 0
        indices = pa.array(numbers, mask=is_other)
        texts = pa.array(list(self._sources), pa.string())
        return [
            pa.DictionaryArray.from_arrays(indices, texts),
            pa.array(positions, mask=is_other),
        ]


def rows_of_answers(answers: Sequence[tuple[int, Answer]]) -> Any:
    """Return the entries of some lookups, by their numbers, as rows of such a table."""
    columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
    sources: list[str | None] = []
    positions: list[int | None] = []
    for number, answer in answers:
        for entry in answer.entries:
            columns["lookup"].append(number)
            for name in SCHEMA.names[1:]:
                columns[name].append(getattr(entry, name))
            sources.append(entry.source)
            positions.append(None if entry.location is None else entry.location.get("position"))
    arrays = [pa.array(columns[field.name], field.type) for field in SCHEMA]
    of_rows = zip(ROW_FIELDS, (sources, positions), strict=True)
    arrays += [pa.array(values).cast(field.type) for field, values in of_rows]
    return pa.Table.from_arrays(arrays, schema=pa.schema([*SCHEMA, *ROW_FIELDS]))


def joined(
    table: Any, answers: Sequence[tuple[int, Answer]], missing: Mapping[Missing, list[int] | None]
) -> Any:
    """Return a table of live rows with the rows of lookups that were asked again, in their order."""
    metadata = dict(table.schema.metadata or {})
    if answers:
        more = rows_of_answers(answers)
        whole = pa.concat_tables([table.replace_schema_metadata(None), more]).unify_dictionaries()
        order = np.argsort(whole.column("lookup").to_numpy(), kind="stable")
        table = whole.take(pa.array(order))
    told = json.loads(metadata.get(b"missing", b"[]"))
    told += [{**each.to_dict(), "lookups": numbers} for each, numbers in missing.items()]
    for number, answer in answers:
        told += [{**each.to_dict(), "lookups": [number]} for each in answer.missing]
    if told:
        metadata[b"missing"] = json.dumps(told, separators=(",", ":")).encode()
    return table.replace_schema_metadata(metadata)


def with_as_of(result: Result, as_of: int) -> Result:
    """Return a result that is no newer than the snapshots of its tables."""
    return result._replace(as_of=min(result.as_of, as_of))
