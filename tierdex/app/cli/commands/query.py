"""`tierdex query`: look up a key or a message ID.

Depends on times, errors, index_service and the rest of app.cli.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from tierdex.app.cli.inputs.opening import (
    Target,
    lost_offsets,
    opened_for_reading,
    opened_messages,
    show_settings,
)
from tierdex.app.cli.terminal import options
from tierdex.app.cli.terminal.exits import say
from tierdex.app.cli.terminal.options import Form, asked_range
from tierdex.app.cli.terminal.output import printable, write_rows, write_table
from tierdex.app.cli.terminal.telling import shown_text, tell_hints, tell_standing
from tierdex.errors import InvalidRequestError
from tierdex.times import format_time

if TYPE_CHECKING:
    from tierdex.index_service.answer import Answer

COLUMNS = ("time", "topic", "queue_id", "offset", "size", "state", "node", "file_id")
CSV_COLUMNS = (
    "topic", "queue_id", "offset", "size", "timestamp", "file_id", "state", "node", "location",
    "source",
)  # fmt: skip


class Wanted(NamedTuple):
    """How an answer is made and printed."""

    explain: Annotated[bool, typer.Option("--explain", help="Print the plan that ran.")] = False
    proof: Annotated[
        bool,
        typer.Option(
            "--proof", help="With --explain -o json: the proof of absence, for `verify --proof`."
        ),
    ] = False
    show: Annotated[
        bool,
        typer.Option("--show", help="Print the messages or file rows that the entries locate."),
    ] = False
    on_error: Annotated[
        str, typer.Option(help="What an unreadable file causes: partial or fail.")
    ] = "partial"
    id_time: Annotated[
        str | None,
        typer.Option(
            help="Time that the message ID contains: uuidv7, ulid, snowflake:EPOCH_MS or off."
        ),
    ] = None
    snapshot: Annotated[
        str | None,
        typer.Option(help="Of a followed table: as it was at this snapshot, by ID or version."),
    ] = None
    rocketmq: Annotated[
        Path | None, typer.Option(help="Query the RocketMQ tiered index files in this folder.")
    ] = None


def query(
    *,
    asked: options.Lookup,
    max_count: Annotated[
        int, typer.Option("--max-count", "-m", help="Maximum number of entries.")
    ] = 64,
    wanted: Wanted,
    target: Target,
    output: options.Output = Form.TABLE,
) -> None:
    """Look up a key or a message ID.

    Exit code 0 found, 3 not found, 4 incomplete.
    """
    values = asked_range(asked.begin, asked.end)
    if wanted.proof and output is not Form.JSON:
        raise InvalidRequestError("is JSON: add -o json", field="--proof")
    target, settings = target._replace(rocketmq=wanted.rocketmq), target.settings
    showing = show_settings(settings) if wanted.show else None
    if target.url is not None:  # the service shows what it may
        values["message"] = wanted.show
    with opened_for_reading(target, settings) as index:
        answer: Answer = index.query(
            asked.topic, key=asked.key, message_id=asked.message_id, **values, max_count=max_count,
            cursor=asked.cursor, explain=wanted.explain, on_error=wanted.on_error,
            fresh_within=asked.fresh_within, id_time=wanted.id_time, proof=wanted.proof, hints=True,
            **({} if wanted.snapshot is None else {"snapshot": wanted.snapshot}),
        )  # fmt: skip
    if target.url is None:
        answer.lost = lost_offsets(target, asked.topic)
        if showing is not None:
            with opened_messages(target, showing) as messages:
                answer = messages.with_messages(answer, key=asked.key, message_id=asked.message_id)
    if answer.next_cursor is not None and output is not Form.JSON:
        say("the newest arrivals first; entries that are newer in time may be on a later page")
    _write(output, answer, with_messages=wanted.show)
    if answer.explain is not None and output is not Form.JSON:
        _write_explain(answer)
    if answer.next_cursor is not None and output is not Form.JSON:
        say(f"there may be more: --cursor {answer.next_cursor}")
    tell_hints(answer)
    tell_standing(answer)


def _write(form: Form, answer: Answer, *, with_messages: bool) -> None:
    document = answer.to_dict()
    rows: list[dict[str, Any]] = document["entries"]
    for number, row in enumerate(rows):
        if with_messages and form is Form.CSV:
            row["shown"] = shown_text(answer.entries[number])
        if form is Form.TABLE and answer.table is not None and "location" in row:
            row["row"] = row["location"].get("position")
        if form is Form.TABLE:
            row["time"] = format_time(row["timestamp"])
    has_location = any("location" in row for row in rows)
    columns: tuple[str, ...] = CSV_COLUMNS if form is Form.CSV else COLUMNS
    if form is Form.TABLE and has_location:
        columns = ("time", "topic", "location", "state", "node", "file_id")
        if answer.table is not None:
            columns = ("time", "topic", "source", "row", "state", "node")
    if form is Form.TABLE and not rows:
        say("not found" if answer.complete else "nothing in what could be asked")
        return
    if with_messages and form is Form.CSV:
        columns = (*columns, "shown")
    write_rows(form, rows, columns, whole=document)
    if with_messages and form is Form.TABLE:
        for entry in answer.entries:
            typer.echo(printable(shown_text(entry)))


def _write_explain(answer: Answer) -> None:
    """Write the cost of the query to stderr: totals, stages, and a line for each file."""
    assert answer.explain is not None
    told = answer.explain.to_dict()
    files, stages, nodes = told.pop("files"), told.pop("stages"), told.pop("nodes")
    told = {name: value for name, value in told.items() if value is not None}
    say("  ".join(f"{name}={_short(value)}" for name, value in told.items()))
    say("  ".join(f"{stage['name']}={stage['ms']:.3f}ms" for stage in stages))
    import contextlib
    import sys

    with contextlib.redirect_stdout(sys.stderr):
        write_table(nodes, ("node", "standing", "published_through", "lag_s", "skew_s", "url"))
        write_table(
            [
                {**file, "ms": _short(file["ms"]), "start_ms": _short(file["start_ms"])}
                for file in files
            ],
            (
                "file_id",
                "state",
                "outcome",
                "start_ms",
                "ms",
                "requests",
                "bytes",
                "items",
                "entries",
            ),
        )


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
