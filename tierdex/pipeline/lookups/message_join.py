"""The messages of looked-up entries: places -> log files -> whole pages -> headers and bodies beside entries.

::

    entries by queue and run of offsets     places of one page come to one task
    a task, each log file of their node     sidecar -> queues, messages, pages of all places, by numpy
                                            near pages by one request

An entry's hash says only that a key may be meant: a message that lacks the key is not its message. A place
that no listed file has is of a message that has expired, or of no log: its body is null. Bodies are not read
in the lookup's own tasks: these have ranges of hashes, so each would fetch nearly every page.

Depends on errors, log_columns, log_file_scan, log_index_node, remote_log and scan_report.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tierdex.errors import InvalidRequestError
from tierdex.pipeline.jobs.scan_report import ScanReport
from tierdex.pipeline.logs.log_columns import log_ddl_of, log_schema_of
from tierdex.pipeline.logs.log_index_node import log_node_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tierdex.pipeline.jobs.job_store import StoreLink
    from tierdex.pipeline.jobs.snapshot import ListedFile

MESSAGE_COLUMNS: Final = ("headers", "body")
PLACE_COLUMNS: Final = ("node", "topic", "queue_id", "offset")
_READ: Final = ("headers", "body", "keys", "message_id")
_RUN: Final = 1 << 16  # offsets of a queue that go to one task
_ROWS: Final = 4096  # whose bodies are in memory together


@dataclass(frozen=True)
class MessageJoin:
    """What tasks need: the log files of each node, and what columns mean."""

    link: StoreLink
    files: Mapping[str, Sequence[ListedFile]]
    name_column: str  # key, or message_id
    entry_columns: tuple[str, ...]
    is_left: bool

    def join_all(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows with `MESSAGE_COLUMNS`. Raises what the store raises, CorruptFileError."""
        for batch in batches:
            for begin in range(0, batch.num_rows, _ROWS):
                yield self._join(batch.slice(begin, _ROWS))

    def _join(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        read = self._messages_of(batch)
        is_other = _is_other(batch.column(self.name_column), read[self.name_column + "_read"])
        columns = {name: batch.column(name) for name in batch.schema.names}
        columns |= {name: read[name] for name in MESSAGE_COLUMNS}
        if is_other.any():
            gone = pa.array(is_other)
            for name in (*self.entry_columns, *MESSAGE_COLUMNS):
                column = columns[name]
                columns[name] = pc.if_else(gone, pa.scalar(None, column.type), column)
        joined = pa.RecordBatch.from_pydict(columns)
        return joined if self.is_left else joined.filter(pa.array(~is_other))

    def _messages_of(self, batch: pa.RecordBatch) -> dict[str, Any]:
        """Return the columns of the messages that the rows point at, null where there is none."""
        tables, rows = [log_schema_of(_READ).empty_table()], [np.empty(0, np.int64)]
        for node, mine in _rows_by_node(batch.column("node")):
            places = [batch.column(name).take(pa.array(mine)) for name in PLACE_COLUMNS[1:]]
            for listed in self.files.get(log_node_of(node, self.files), ()):
                found, table = self._read(listed, *places)
                tables.append(table)
                rows.append(mine[found])
        place = np.full(batch.num_rows, -1, np.int64)
        place[np.concatenate(rows)] = np.arange(sum(map(len, rows)))
        taken = pa.concat_tables(tables).take(pa.array(place, mask=place < 0))
        columns = {name: taken[name].combine_chunks() for name in _READ}
        return columns | {"key_read": columns["keys"], "message_id_read": columns["message_id"]}

    def _read(
        self, listed: ListedFile, topics: Any, queue_ids: Any, offsets: Any
    ) -> tuple[np.ndarray, pa.Table]:
        """Return which of these places a file has, and their messages in the same order."""
        from tierdex.pipeline.logs.log_file_scan import ChosenMessages, read_messages
        from tierdex.pipeline.logs.remote_log import open_log_file

        store = self.link.open()
        file = open_log_file(self.link, store, listed.row)
        chosen = ChosenMessages(file, listed)
        found, messages = chosen.find(topics, np.asarray(queue_ids), np.asarray(offsets))
        schema = log_schema_of(_READ)
        if not len(found):
            return found, schema.empty_table()

        def fetch(position: int, length: int) -> bytes:
            return store.get(listed.row.object_key, position, length)

        numbers = chosen.choose(messages)
        batches = read_messages(
            file, chosen, chosen.chosen_pages(), listed, fetch, _READ, ScanReport()
        )
        read = pa.Table.from_batches(batches, schema)
        return found, read.take(pa.array(np.searchsorted(numbers, messages)))


def _rows_by_node(nodes: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Yield (node, its rows i8); rows without an entry have none."""
    coded = nodes.dictionary_encode()
    numbers = np.asarray(coded.indices.fill_null(-1))
    for number, node in enumerate(coded.dictionary.to_pylist()):
        yield node, np.flatnonzero(numbers == number)


def _is_other(names: Any, read: Any) -> np.ndarray:
    """Return which rows have a message that has not the name: a key among its keys, or its ID."""
    is_there = np.asarray(pc.is_valid(read))
    if pa.types.is_list(read.type):
        parents = pc.list_parent_indices(read)
        same = pc.equal(pc.list_flatten(read), names.cast(pa.string()).take(parents))
        has = np.zeros(len(read), bool)
        has[np.asarray(parents.filter(same))] = True
    else:
        has = np.asarray(pc.fill_null(pc.equal(read, names.cast(pa.string())), fill_value=False))
    return is_there & ~has


def with_messages(frame: Any, join: MessageJoin, wanted: Sequence[str], tasks: int) -> Any:
    """Return a lookup's answer with `MESSAGE_COLUMNS`, of its entries' columns those `wanted`."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    run = F.shiftright(F.col("offset"), _RUN.bit_length() - 1)
    near = frame.repartition(tasks, F.col("node"), F.col("topic"), F.col("queue_id"), run)
    near = near.sortWithinPartitions(*PLACE_COLUMNS)
    added: Any = StructType.fromDDL(log_ddl_of(MESSAGE_COLUMNS))
    schema = StructType([*frame.schema.fields, *added.fields])
    joined = near.mapInArrow(join.join_all, schema)
    dropped = [name for name in join.entry_columns if name not in wanted]
    return joined.drop(*dropped)


def check_messages(keys_columns: Sequence[str]) -> None:
    """Raise InvalidRequestError for a column of the keys that a message has as well."""
    for name in chain(MESSAGE_COLUMNS, ("node", "queue_id", "offset")):
        if name in keys_columns:
            raise InvalidRequestError(
                "is a column of keys_df and of the messages: rename it", field=name
            )
