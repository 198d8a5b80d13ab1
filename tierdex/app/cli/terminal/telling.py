"""What a command prints about an answer beside its rows: messages as text, completeness, age.

Depends on times, index_service, log_service, pipeline and the rest of app.cli.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from tierdex.app.cli.terminal.exits import Exit, say
from tierdex.times import format_time

if TYPE_CHECKING:
    from tierdex.index_service.answer import Answer, Entry, TableSeen
    from tierdex.index_service.journey import Journey
    from tierdex.log_service.answer import FoundMessages
    from tierdex.pipeline.jobs.scan_report import ScanReport


def tell_standing(answer: Answer | Journey) -> None:
    """Print what the answer lacks, and end with its code: 3 not found, 4 incomplete."""
    for name, queue_id, first, behind, noticed in answer.lost:
        say(
            f"the followed log lost offsets {first} to below {behind} of {name} {queue_id} before they "
            f"were indexed (seen {format_time(noticed)})"
        )
    table = getattr(answer, "table", None)
    if table is not None:
        tell_table(table)
    if not (answer.complete and answer.entries):
        tell_age(answer)
    if not answer.complete:
        for file, reason in answer.missing:
            say(f"incomplete: {file} could not be asked: {reason}")
        raise typer.Exit(Exit.INCOMPLETE)
    if not answer.entries:
        raise typer.Exit(Exit.NOT_FOUND)


def tell_table(table: TableSeen) -> None:
    """Say which snapshot of a lake's table an answer is of."""
    behind = f"; {table.behind} newer ones are not indexed" if table.behind else ""
    said = f"snapshot {table.snapshot} of {format_time(table.time_ms)}"
    say(f"{table.table} at {said}{behind}")


def tell_age(answer: Answer | Journey | FoundMessages | ScanReport) -> None:
    """Print the age of the answer, and the nodes that may hold newer entries."""
    say(f"everything acknowledged before {format_time(answer.as_of)} was looked at")
    for node, standing, through, holds, _ in answer.unasked:
        since = "any time" if through is None else format_time(through)
        what = "holds" if holds else "may hold"
        say(
            f"not asked: node {node} ({standing}), which {what} entries of {since} and later that are "
            "not published"
        )


def tell_hints(answer: Answer | FoundMessages) -> None:
    """Print the hints of a lookup that found nothing."""
    for hint in answer.hints:
        say(f"hint: {hint.text}")


def shown_text(entry: Entry) -> str:
    """Return a message as text for a terminal or a cell: decoded, or in hex, or why there is none."""
    message = entry.message
    assert message is not None
    if message.outcome != "shown":
        reason = message.reason or ""
        says_it = reason.startswith(message.outcome)
        return f"({reason})" if says_it else f"({message.outcome}: {reason})"
    lines = [] if message.reason is None else [f"({message.reason})"]
    if message.masked:
        lines.append(f"(masked: {', '.join(message.masked)})")
    if message.text is not None:
        lines.append(message.text)
    elif message.body is None:
        lines.append("(no value)")
    else:
        lines.append(message.body.hex(" "))
    return "\n".join(lines)
