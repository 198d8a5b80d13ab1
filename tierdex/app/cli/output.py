"""Results on stdout: a table, JSON, one JSON object a line, or CSV.

Integers stay exact in every form.

Depends on rich, orjson, options and documents.
"""

from __future__ import annotations

import csv
import sys
from typing import TYPE_CHECKING, Any

import orjson
import typer

from tierdex.app.cli.options import Form
from tierdex.app.documents import json_default

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def write_rows(
    form: Form, rows: Iterable[Mapping[str, Any]], columns: Sequence[str], *, whole: Any = None
) -> None:
    """Write rows; with `whole`, JSON shows that document instead of the list of rows."""
    rows = list(rows)
    if form is Form.JSON:
        write_json(rows if whole is None else whole)
    elif form is Form.NDJSON:
        for row in rows:
            typer.echo(orjson.dumps(row, default=json_default))
    elif form is Form.CSV:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_cell(row.get(name)) for name in columns] for row in rows)
    else:
        write_table(rows, columns)


def write_json(document: Any) -> None:
    typer.echo(orjson.dumps(document, default=json_default, option=orjson.OPT_INDENT_2))


def write_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Write an aligned table, numbers to the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        is_number = any(isinstance(row.get(name), int | float) for row in rows)
        table.add_column(name, justify="right" if is_number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(_cell(row.get(name))) for name in columns))
    console = Console(file=sys.stdout, soft_wrap=True)
    if not sys.stdout.isatty():  # a pipe has no width: write every value in full
        console.width = 10_000
    console.print(table)


def write_fields(form: Form, fields: Mapping[str, Any]) -> None:
    """Write the fields of one thing: a name and a value a line, or JSON."""
    if form in (Form.JSON, Form.NDJSON):
        write_json(fields) if form is Form.JSON else typer.echo(
            orjson.dumps(fields, default=json_default)
        )
        return
    flat = list(_flatten("", fields))
    write_rows(form, [{"field": name, "value": value} for name, value in flat], ("field", "value"))


def _flatten(prefix: str, value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _flatten(f"{prefix}.{name}" if prefix else str(name), inner)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for number, inner in enumerate(value):
            yield from _flatten(f"{prefix}[{number}]", inner)
    else:
        yield prefix, value


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return orjson.dumps(value, default=json_default).decode()
    return str(value)
