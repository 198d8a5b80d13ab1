"""`tierdex journey`: one key over all topics, in the order of time.

Depends on times, index_service and the rest of app.cli.
"""

from __future__ import annotations

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
from tierdex.app.cli.terminal.output import printable, write_rows
from tierdex.app.cli.terminal.telling import shown_text, tell_standing
from tierdex.times import format_duration, format_time

if TYPE_CHECKING:
    from tierdex.index_service.journey import Journey

COLUMNS = ("time", "after", "topic", "queue_id", "offset", "size", "state", "node")
CSV_COLUMNS = (
    "timestamp",
    "gap_ms",
    "topic",
    "queue_id",
    "offset",
    "size",
    "state",
    "node",
    "file_id",
)


class Limits(NamedTuple):
    """How much an answer holds, how complete it must be, and how new."""

    max_count: Annotated[
        int, typer.Option("--max-count", "-m", help="Maximum number of entries of a topic.")
    ] = 16
    on_error: Annotated[
        str, typer.Option(help="What an unreadable file causes: partial or fail.")
    ] = "partial"
    fresh_within: options.FreshWithin = None


def journey(
    *,
    key: Annotated[str, typer.Argument(help="Key to look up in every topic.")],
    begin: options.Begin = None,
    end: options.End = None,
    show: Annotated[bool, typer.Option("--show", help="Print the messages, too.")] = False,
    limits: Limits,
    target: Target,
    output: options.Output = Form.TABLE,
) -> None:
    """Follow one key over all topics, with the time between its messages.

    Exit code 0 found, 3 not found, 4 incomplete.
    """
    values: dict[str, Any] = {**asked_range(begin, end), **limits._asdict()}
    settings = target.settings
    showing = show_settings(settings) if show else None
    found = _found(target, settings, key, values, show=show)
    if target.url is None:
        found.lost = lost_offsets(target, None)
        if showing is not None:
            with opened_messages(target, showing) as messages:
                found = messages.with_messages(found, key=key)
    for topic in found.by_arrival:
        say(
            f"{topic} has very many entries: these are its newest arrivals, and newer ones may be left out. "
            "Narrow the times: --begin"
        )
    _write(output, found, with_messages=show)
    for topic in found.more:
        if topic in found.by_arrival:
            continue
        say(f"{topic} has older entries: --max-count, or `tierdex query -t {topic}`")
    if found.restricted:
        say("only topics that the key may read were asked")
    tell_standing(found)


def _found(
    target: Target, settings: dict[str, Any], key: str, values: dict[str, Any], *, show: bool
) -> Journey:
    with opened_for_reading(target, settings) as index:
        if target.url is not None:  # the service shows what it may
            answered: Journey = index.journey(key, message=show, **values)
            return answered
        from tierdex.index_service.journey import find_journey

        return find_journey(index, key, **values)


def _write(form: Form, found: Journey, *, with_messages: bool) -> None:
    document = found.to_dict()
    rows: list[dict[str, Any]] = document["entries"]
    columns: tuple[str, ...] = CSV_COLUMNS if form is Form.CSV else COLUMNS
    for entry, row in zip(found.entries, rows, strict=True):
        if form is Form.TABLE:
            row["time"] = format_time(row["timestamp"])
            row["after"] = None if row["gap_ms"] is None else format_duration(row["gap_ms"])
        elif with_messages and form is Form.CSV:
            row["shown"] = shown_text(entry)
            columns = (*CSV_COLUMNS, "shown")
    if form is not Form.TABLE:
        write_rows(form, rows, columns, whole=document)
        return
    if not rows:
        say("not found" if found.complete else "nothing in what could be asked")
        return
    write_rows(form, rows, columns, whole=document)
    assert found.duration_ms is not None
    say(f"{len(rows)} entries in {format_duration(found.duration_ms)}, {found.topics} topics asked")
    if with_messages:
        for entry in found.entries:
            typer.echo(f"{format_time(entry.timestamp)}  {entry.topic}")
            typer.echo(printable(shown_text(entry)))
