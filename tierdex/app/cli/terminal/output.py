"""Results on stdout: a table, JSON, one JSON object a line, or CSV.

JSON is one object, whose member names what is listed. Integers stay exact in every form; only a table shows
times as dates.

Depends on rich, orjson, disk_errors, documents, options and times.
"""

from __future__ import annotations

import csv
import sys
from typing import TYPE_CHECKING, Any, Final

import orjson
import typer

from tierdex.app.cli.terminal.options import Form
from tierdex.app.documents import json_default
from tierdex.disk_errors import naming
from tierdex.times import format_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_STDOUT: Final = "the standard output"
_TIMES: Final = frozenset(  # names of int64 milliseconds since the epoch
    {
        "begin", "begin_ms", "created", "created_ms", "last_done_ms", "max_time", "min_time",
        "published_through", "sealed_at", "sealed_at_ms", "time_ms", "timestamp",
    }
)  # fmt: skip
# A terminal would obey them: a message could change its title, or hide lines.
_CONTROL: Final = {n: f"\\x{n:02x}" for n in (*range(32), *range(127, 160)) if n not in (9, 10)}


def write_rows(
    form: Form,
    rows: Iterable[Mapping[str, Any]],
    columns: Sequence[str],
    *,
    whole: Mapping[str, Any],
) -> None:
    """Write rows, `columns` of them as a table or CSV; JSON shows the document `whole`, which has them."""
    rows = list(rows)
    with naming(_STDOUT):
        if form is Form.JSON:
            typer.echo(orjson.dumps(whole, default=json_default, option=orjson.OPT_INDENT_2))
        elif form is Form.NDJSON:
            for row in rows:
                typer.echo(orjson.dumps(row, default=json_default))
        elif form is Form.CSV:
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows([_cell(row.get(name)) for name in columns] for row in rows)
        else:
            write_table(rows, columns)
        sys.stdout.flush()


def write_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Write an aligned table, numbers to the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        is_number = any(isinstance(_shown(name, row.get(name)), int | float) for row in rows)
        table.add_column(name, justify="right" if is_number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(printable(_cell(_shown(name, row.get(name))))) for name in columns))
    console = Console(file=sys.stdout, soft_wrap=True)
    if not sys.stdout.isatty():  # a pipe has no width: write every value in full
        console.width = 10_000
    console.print(table)


def printable(text: str) -> str:
    r"""Return a text for a terminal: control characters as `\x1b`, but for tabs and line breaks."""
    return text.translate(_CONTROL)


def write_fields(form: Form, fields: Mapping[str, Any]) -> None:
    """Write the fields of one thing: a name and a value a line, or JSON."""
    rows: list[Mapping[str, Any]] = [fields]
    if form in (Form.TABLE, Form.CSV):
        flat = list(_flatten("", fields))
        if form is Form.TABLE:  # buckets of histograms are for programs
            flat = [(name, value) for name, value in flat if ".at_most_s." not in name]
        rows = [
            {"field": name, "value": _shown(name, value) if form is Form.TABLE else value}
            for name, value in flat
        ]
    write_rows(form, rows, ("field", "value"), whole=fields)


def _flatten(prefix: str, value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _flatten(f"{prefix}.{name}" if prefix else str(name), inner)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for number, inner in enumerate(value):
            yield from _flatten(f"{prefix}[{number}]", inner)
    else:
        yield prefix, value


def _shown(name: str, value: Any) -> Any:
    """Return a time as a date; `name` may be a path of names."""
    if isinstance(value, int) and name.rpartition(".")[2] in _TIMES:
        return format_time(value)
    return value


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return orjson.dumps(value, default=json_default).decode()
    return str(value)
