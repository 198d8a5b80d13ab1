"""`format("tierdex")` for Spark: schema, reader, writer, streaming writer.

Spark makes one of these in several processes (planner, committer). It holds options only, and each
process loads just the modules that it needs.

Depends on options, reader, writers, arrow_columns, entry_form and plain_refusals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.datasource import DataSource

from tierdex.errors import InvalidRequestError
from tierdex.pipeline.jobs.options import ReadOptions, WriteOptions
from tierdex.pipeline.jobs.plain_refusals import refusing_plainly
from tierdex.pipeline.scan.arrow_columns import DEFAULT_COLUMNS, ddl_of
from tierdex.pipeline.sink.entry_form import EntryForm

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from tierdex.pipeline.scan.reader import TierdexReader
    from tierdex.pipeline.sink.writers import BatchWriter, StreamWriter


class TierdexDataSource(DataSource):
    """Reads and writes the index files of a store."""

    notes_folder: ClassVar[str | None] = None

    @classmethod
    def name(cls) -> str:
        return "tierdex"

    @refusing_plainly
    def schema(self) -> str:
        """Return the columns of a scan. Raises InvalidRequestError for a bad option."""
        return ddl_of(_columns(ReadOptions.parse(self.options)))

    @refusing_plainly
    def reader(self, schema: StructType) -> TierdexReader:
        """Return a scan; a schema given by the user chooses columns by name."""
        from tierdex.pipeline.scan.reader import TierdexReader

        return TierdexReader(
            ReadOptions.parse(self.options), tuple(schema.names), self.notes_folder
        )

    @refusing_plainly
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return a sink. Raises InvalidRequestError for a bad column or option, or overwriting."""
        if overwrite:
            raise InvalidRequestError(
                "overwrite would drop other jobs' files; use append", field="mode"
            )
        from tierdex.pipeline.sink.writers import BatchWriter

        options = WriteOptions.parse(self.options)
        return BatchWriter(options, _form(schema, options.offsets))

    @refusing_plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """Return a streaming sink; only appending is supported, since entries are facts."""
        if overwrite:
            raise InvalidRequestError("is refused: entries are only appended", field="outputMode")
        from tierdex.pipeline.sink.writers import StreamWriter

        options = WriteOptions.parse(self.options)
        return StreamWriter(options, _form(schema, options.offsets))


def _columns(options: ReadOptions) -> tuple[str, ...]:
    columns = options.columns or DEFAULT_COLUMNS
    for name, option, asked in (
        ("key", "keys", options.keys),
        ("message_id", "messageIds", options.message_ids),
    ):
        if asked is not None and name not in columns:
            columns = (*columns, name)
        elif asked is None and name in columns:
            raise InvalidRequestError(
                f"there is no column {name} without the option {option}: files hold hashes",
                field="columns",
            )
    return columns


def _form(schema: StructType, offsets: str) -> EntryForm:
    types = {one.name: one.dataType.simpleString() for one in schema.fields}
    return EntryForm.of(types, offsets)
