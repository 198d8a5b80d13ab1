"""`format("tierdex-log")` for Spark: schema, reader, streaming reader. No sink: offsets have one owner.

Depends on log_options, log_reader, log_stream, log_columns and plain_refusals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.datasource import DataSource

from tierdex.pipeline.jobs.plain_refusals import refusing_plainly
from tierdex.pipeline.logs.log_columns import DEFAULT_LOG_COLUMNS, log_ddl_of
from tierdex.pipeline.logs.log_options import LogOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from tierdex.pipeline.logs.log_reader import LogReader
    from tierdex.pipeline.logs.log_stream import LogStreamReader


class TierdexLogSource(DataSource):
    """Reads the messages that the logs of a store have published."""

    notes_folder: ClassVar[str | None] = None

    @classmethod
    def name(cls) -> str:
        return "tierdex-log"

    @refusing_plainly
    def schema(self) -> str:
        """Return the columns of a scan. Raises InvalidRequestError for a bad option."""
        options = LogOptions.parse(self.options, is_stream=True)
        return log_ddl_of(options.columns or DEFAULT_LOG_COLUMNS)

    @refusing_plainly
    def reader(self, schema: StructType) -> LogReader:
        """Return a scan; a schema given by the user chooses columns by name."""
        from tierdex.pipeline.logs.log_reader import LogReader

        return LogReader(LogOptions.parse(self.options), tuple(schema.names), self.notes_folder)

    @refusing_plainly
    def streamReader(self, schema: StructType) -> LogStreamReader:
        """Return the source of a streaming query."""
        from tierdex.pipeline.logs.log_stream import LogStreamReader

        return LogStreamReader(LogOptions.parse(self.options, is_stream=True), tuple(schema.names))
