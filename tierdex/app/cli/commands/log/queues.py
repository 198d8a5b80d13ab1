"""`tierdex log queues`, `offsets` and `timers`: what a message log holds, by queue and by hour.

Depends on messages and the rest of app.cli.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tierdex.app.cli.commands.log.messages import Queue
from tierdex.app.cli.inputs.opening import Target, opened_log
from tierdex.app.cli.terminal import options
from tierdex.app.cli.terminal.options import Form, asked_time
from tierdex.app.cli.terminal.output import write_fields, write_rows


def queues(
    *,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="Topic whose queues to list.")
    ] = None,
    target: Target,
    output: options.Output = Form.TABLE,
) -> None:
    """List the topics of a message log, or the queues of one topic with their offsets."""
    with opened_log(target, target.settings) as log:
        if topic is None:
            topics = log.topics() if target.url is None else log.log_topics()
            rows: list[dict[str, Any]] = [{"topic": name} for name in topics]
        else:
            rows = [
                {
                    "queue_id": each,
                    "begin_offset": log.begin_offset(topic, each),
                    "end_offset": log.end_offset(topic, each),
                }
                for each in log.queues(topic)
            ]
    columns = ("topic",) if topic is None else ("queue_id", "begin_offset", "end_offset")
    whole = {"topics": [row["topic"] for row in rows]} if topic is None else {"queues": rows}
    write_rows(output, rows, columns, whole=whole)


def offsets(
    *,
    queue: Queue,
    timestamp: Annotated[
        str | None,
        typer.Option(help="Print the least offset whose message is not older than this time."),
    ] = None,
    target: Target,
    output: options.Output = Form.TABLE,
) -> None:
    """Print the first offset of a queue, and its end at each level."""
    with opened_log(target, target.settings) as log:
        told: dict[str, Any] = {
            "begin_offset": log.begin_offset(*queue),
            "end_offsets": log.end_offsets(*queue),
        }
        if timestamp is not None:
            told["offset"] = log.offset_at(*queue, asked_time(timestamp, "--timestamp"))
    write_fields(output, told)


def timers(
    *,
    target: Target,
    output: options.Output = Form.TABLE,
) -> None:
    """Count the delayed messages (`deliver_at`) by the hour in which they are due."""
    with opened_log(target, target.settings) as log:
        rows: list[dict[str, Any]] = [hour._asdict() for hour in log.timers()]
    write_rows(output, rows, ("begin", "message_count"), whole={"hours": rows})
