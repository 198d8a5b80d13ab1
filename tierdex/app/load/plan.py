"""How the columns of a file's rows become entries: the options of a load, and their plan for one file.

Depends on csv_rows, errors, files, indexfile and text_times.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tierdex.app.load.csv_rows import CsvFormat
from tierdex.errors import InvalidRequestError
from tierdex.files.row_templates import Template
from tierdex.indexfile.schema import (
    PARQUET_ROW_SCHEMA,
    QUEUED_LINE_SCHEMA,
    TEXT_LINE_SCHEMA,
)
from tierdex.text_times import check_timezone

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tierdex.app.load.sources import Kind
    from tierdex.indexfile.schema import Schema


@dataclass(frozen=True)
class LoadOptions:
    """How the columns of a row become the fields of an entry.

    `topic` is a name, or a template when it has braces. `keys`, `message_id` and `timestamp` are
    columns or templates (see load/columns.py); a last line without a line break waits, but for
    `take_last_line`; without `timestamp` an entry has the time of the file's
    last change when its load began. `queue` is a whole number, a column or a template; `queue_names`
    numbers its texts.
    """

    topic: str
    keys: tuple[str, ...] = ()
    message_id: str | None = None
    timestamp: str | None = None
    timezone: str | None = None
    queue: str | None = None
    queue_names: Mapping[str, int] | None = None
    kind: Kind | None = None
    delimiter: str | None = None
    null_values: tuple[str, ...] = ("",)
    take_last_line: bool = False

    @property
    def how(self) -> str:
        """What two loads of a file must have in common, beside what `LoadedFile` says, to be one."""
        names = sorted((self.queue_names or {}).items())
        return json.dumps([self.topic, self.timestamp, self.timezone, self.queue, names])


@dataclass(frozen=True)
class Plan:
    """The options for one kind of file, parsed and checked before the file is touched.

    `time_ms` is the time of entries whose rows have none. `names_source`: a location names its file.
    """

    options: LoadOptions
    kind: Kind
    topic: Template
    keys: tuple[Template, ...]
    message_id: Template | None
    timestamp: Template | None
    queue: Template | int
    time_ms: int
    names_source: bool

    @classmethod
    def make(cls, options: LoadOptions, kind: Kind, time_ms: int, *, names_source: bool) -> Plan:
        """Raises InvalidRequestError naming the option."""
        if not options.keys and options.message_id is None:
            raise InvalidRequestError("give --key, --message-id or both", field="key")
        if options.timezone is not None:
            check_timezone(options.timezone)
        if kind == "parquet" and not names_source:
            raise InvalidRequestError(
                "a service takes messages only, not rows of Parquet: load them where the data folder is",
                field="kind",
            )
        if kind == "parquet" and options.queue is not None:
            raise InvalidRequestError("a row of a Parquet file has no queue", field="queue")
        topic = Template.parse(options.topic, field="topic")
        if not topic.columns or topic.columns == [options.topic]:
            topic = Template(options.topic, ((options.topic, None, 0, None),))
        queue: Template | int = 0
        if options.queue is not None:
            is_number = options.queue.isascii() and options.queue.isdigit()
            queue = (
                int(options.queue) if is_number else Template.parse(options.queue, field="queue")
            )
        return cls(
            options,
            kind,
            topic,
            tuple(Template.parse(key, field="key") for key in options.keys),
            _optional(options.message_id, "message-id"),
            _optional(options.timestamp, "timestamp"),
            queue,
            time_ms,
            names_source,
        )

    @property
    def columns(self) -> list[str]:
        """Every column that is needed, once."""
        templates = [self.topic, *self.keys, self.message_id, self.timestamp, self.queue]
        names = [n for t in templates if isinstance(t, Template) for n in t.columns]
        return list(dict.fromkeys(names))

    def csv_format(self, *, tabs: bool) -> CsvFormat:
        """Return how to read a CSV file, whose header names the columns."""
        delimiter = self.options.delimiter or ("\t" if tabs else ",")
        if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n':
            raise InvalidRequestError("is one ASCII character", field="delimiter")
        return CsvFormat(delimiter, self.options.null_values)

    @property
    def schema(self) -> Schema:
        """The schema of locations that name their file."""
        if self.kind == "parquet":
            return PARQUET_ROW_SCHEMA
        return TEXT_LINE_SCHEMA if self.options.queue is None else QUEUED_LINE_SCHEMA


def _optional(text: str | None, field: str) -> Template | None:
    return Template.parse(text, field=field) if text is not None else None
