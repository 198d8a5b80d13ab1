"""`tierdex log append`, `read`, `tail` and `get`: messages of a message log, by offset or by key.

Depends on times, codecs, log_service, settings and the rest of app.cli.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import orjson
import typer

from tierdex.app.cli.inputs.opening import (
    DEFAULT_DATA,
    Target,
    holds_log,
    opened_log,
)
from tierdex.app.cli.terminal import options
from tierdex.app.cli.terminal.exits import Exit, say
from tierdex.app.cli.terminal.options import Encoding, Form, Level, asked_range
from tierdex.app.cli.terminal.output import printable, write_fields, write_rows
from tierdex.app.cli.terminal.telling import tell_age, tell_hints
from tierdex.errors import InvalidRequestError, NotFoundError
from tierdex.log_service.read_policy import ReadPolicy
from tierdex.times import format_time, parse_time

if TYPE_CHECKING:
    from tierdex.log_service.answer import Message, ReadAnswer

QueueId = Annotated[int, typer.Option("--queue-id", "-q", help="Queue of the topic.")]
Offset = Annotated[int, typer.Option(help="First offset.")]
MaxCount = Annotated[int, typer.Option("--max-count", "-m", help="Maximum number of messages.")]
COLUMNS = ("offset", "time", "keys", "message_id", "body")
CSV_COLUMNS = (
    "topic", "queue_id", "offset", "timestamp", "keys", "message_id", "headers", "encoding", "body",
)  # fmt: skip
_FOLLOW_S = 3600.0  # of one read that waits


class Queue(NamedTuple):
    """A queue."""

    topic: Annotated[str, typer.Option("--topic", "-t", help="Topic.")]
    queue_id: QueueId = 0


class Reading(NamedTuple):
    """Which messages are read, from where, and how they are printed."""

    visible: Annotated[
        Level, typer.Option(help="Read only messages that have reached this level.")
    ] = Level.DISK
    policy: Annotated[
        ReadPolicy | None,
        typer.Option(help="Where published messages are read from (default: the setting)."),
    ] = None
    encoding: Annotated[
        Encoding,
        typer.Option(help="How bodies are printed; a body that is not UTF-8 is printed as base64."),
    ] = Encoding.TEXT

    def options(self) -> dict[str, Any]:
        """Return what the verbs of a log are told."""
        return {"visible": self.visible.value, "policy": self.policy}


class NewMessage(NamedTuple):
    """One message, without its body."""

    topic: Annotated[str | None, typer.Option("--topic", "-t", help="Topic.")] = None
    queue_id: QueueId = 0
    key: Annotated[list[str] | None, typer.Option("--key", "-k", help="Key; repeatable.")] = None
    message_id: Annotated[str | None, typer.Option("--message-id", "-i", help="Message ID.")] = None
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Header; repeatable.")
    ] = None
    timestamp: Annotated[
        str | None, typer.Option(help="Time: milliseconds or RFC 3339 (default: now).")
    ] = None
    deliver_at: Annotated[
        str | None,
        typer.Option(help="Delay the message until this time: milliseconds or RFC 3339."),
    ] = None
    expect_offset: Annotated[
        int | None, typer.Option(help="Append only if this offset is next in the queue.")
    ] = None

    def columns(self) -> dict[str, Any]:
        """Return the arguments of `append`. Raises InvalidRequestError."""
        when, due = self.timestamp, self.deliver_at
        return {
            "topic": self.topic, "queue_id": self.queue_id, "keys": self.key or None,
            "message_id": self.message_id, "headers": [_header(each) for each in self.header or ()] or None,
            "timestamp": None if when is None else parse_time(when, field="--timestamp"),
            "deliver_at": None if due is None else parse_time(due, field="--deliver-at"),
            "expect_offset": self.expect_offset,
        }  # fmt: skip


def append(
    *,
    body: Annotated[str | None, typer.Argument(help="Body as text.")] = None,
    new: NewMessage,
    file: Annotated[
        Path | None, typer.Option(help="Read the body from this file; `-` is stdin.")
    ] = None,
    lines: Annotated[
        Path | None,
        typer.Option("--lines", help="Read messages as JSON lines from this file; `-` is stdin."),
    ] = None,
    durability: Annotated[Level, typer.Option(help="Level of the acknowledgement.")] = Level.DISK,
    target: Target,
    output: options.Output = Form.TABLE,
) -> None:
    """Append one message, or many as JSON lines: all or none."""
    level, settings = durability.value, target.settings
    if sum(each is not None for each in (body, file, lines)) != 1:
        raise InvalidRequestError("give a BODY, --file or --lines", field="append")
    if lines is not None:
        columns = _read_lines(lines, settings)
        with opened_log(target, settings, writing=True) as log:
            receipt = log.append_batch(**columns, durability=level)
        rows = [
            {"topic": topic, "queue_id": queue_id, "offset": _offset(offset)}
            for topic, queue_id, offset in zip(
                columns["topic"], columns["queue_id"], receipt.offsets.tolist(), strict=True
            )
        ]
        write_rows(output, rows, ("topic", "queue_id", "offset"), whole={"appended": rows})
        return
    if new.topic is None:
        raise InvalidRequestError("--topic is needed", field="append")
    message = {**new.columns(), "body": _body(body, file)}
    with opened_log(target, settings, writing=True) as log:
        offset = log.append(**message, durability=level)
    row = {
        "topic": new.topic, "queue_id": new.queue_id, "offset": _offset(offset), "durability": level,
    }  # fmt: skip
    write_fields(output, row)


def _offset(offset: int) -> int | None:
    return None if offset < 0 else offset  # it waits for its `deliver_at`


def _body(text: str | None, file: Path | None) -> bytes:
    if file is None:
        return (text or "").encode("utf-8", "surrogateescape")
    return _bytes_of(file)


def _bytes_of(path: Path) -> bytes:
    return sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()


def _header(pair: str) -> tuple[str, bytes]:
    name, equals, value = pair.partition("=")
    if not equals:
        raise InvalidRequestError(f"{pair!r} is not NAME=VALUE", field="--header")
    return name, value.encode("utf-8", "surrogateescape")


def _read_lines(path: Path, settings: dict[str, Any]) -> dict[str, Any]:
    from tierdex.app.http.codecs.messages_in import read_message_lines
    from tierdex.clock import SystemClock
    from tierdex.settings import load_settings

    lines = _bytes_of(path)
    messages = read_message_lines(lines, load_settings(**settings), SystemClock().now_ms())
    return dict(messages.batch)


def read(
    *,
    queue: Queue,
    offset: Offset = 0,
    max_count: MaxCount = 100,
    max_bytes: Annotated[
        int, typer.Option(help="Maximum bytes of bodies, after the first message.")
    ] = 1 << 20,
    reading: Reading,
    target: Target,
    output: options.Output = Form.TABLE,
) -> None:
    """Read messages of a queue from an offset on.

    Exit code 0 found, 3 not found, 4 incomplete.
    """
    with opened_log(target, target.settings) as log:
        answer: ReadAnswer = log.read(
            *queue, offset, max_count=max_count, max_bytes=max_bytes, **reading.options()
        )
    from tierdex.app.http.codecs.messages_out import messages_document

    document = messages_document(answer, reading.encoding.value)
    _write(output, document["messages"], whole=document)
    if answer.from_begin:
        say(f"the queue begins at offset {answer.begin_offset}")
    if len(answer) and answer.next_offset < answer.end_offset:
        say(f"there is more: --offset {answer.next_offset} (the end is {answer.end_offset})")
    if not answer.complete:
        _tell_missing(answer)
        raise typer.Exit(Exit.INCOMPLETE)
    if not len(answer):
        say(f"no message at offset {offset}: the queue ends at {answer.end_offset}")
        raise typer.Exit(Exit.NOT_FOUND)


def _tell_missing(answer: ReadAnswer) -> None:
    for file, reason, *_ in answer.missing:
        say(f"incomplete: offset {answer.next_offset} could not be read: {file}: {reason}")


def _write(
    form: Form, rows: list[dict[str, Any]], *, whole: Any, columns: tuple[str, ...] = COLUMNS
) -> None:
    if form is Form.TABLE:
        if rows:
            for row in rows:
                row["time"] = format_time(row["timestamp"])
            write_rows(form, rows, columns, whole=whole)
        return
    write_rows(form, rows, CSV_COLUMNS if form is Form.CSV else COLUMNS, whole=whole)


def tail(
    *,
    queue: Queue,
    last: Annotated[
        int, typer.Option("--last", "-n", min=0, help="Begin this many messages before the end.")
    ] = 10,
    follow: Annotated[bool, typer.Option(help="Wait for new messages until interrupted.")] = True,
    reading: Reading,
    target: Target,
    output: options.Output = Form.TABLE,
) -> None:
    """Print the newest messages of a queue, one per line, then new messages as they arrive.

    A line has offset, time and body, or with `--output ndjson` a JSON object.
    """
    if output not in (Form.TABLE, Form.NDJSON):
        raise InvalidRequestError("table or ndjson", field="--output")
    with opened_log(target, target.settings) as log:
        end = log.end_offset(*queue, level=reading.visible.value)
        reader = log.reader(
            *queue, max(0, end - last), wait=_FOLLOW_S if follow else 0.0, **reading.options()
        )
        while True:
            for message in reader:
                typer.echo(_line(output, message, reading.encoding.value))
            if not follow:
                return


def _line(form: Form, message: Message, encoding: str) -> bytes:
    from tierdex.app.http.codecs.messages_out import message_document

    if form is Form.NDJSON:
        return orjson.dumps(message_document(message, encoding))
    written = printable(message_document(message, encoding)["body"]).encode()
    return b"%d %s %s" % (message.offset, format_time(message.timestamp).encode(), written)


def get(
    *,
    asked: options.Lookup,
    max_count: MaxCount = 64,
    reading: Reading,
    target: Target,
    output: options.Output = Form.TABLE,
) -> None:
    """Find the messages of a key or message ID, newest arrival first, with their bodies.

    Exit code 0 found, 3 not found, 4 incomplete. The command opens a folder as its owner: while a service
    owns the folder, use --url.
    """
    times = asked_range(asked.begin, asked.end)
    is_mounted = target.url is None and target.message_folder is None
    data = target.data or DEFAULT_DATA
    if target.url is None and not is_mounted and not holds_log(data):  # a question makes none
        raise NotFoundError(f"{data} holds no message log: is the path right?")
    with opened_log(target, target.settings, writing=not is_mounted) as log:
        found = log.get(
            asked.topic, key=asked.key, message_id=asked.message_id, max_count=max_count,
            cursor=asked.cursor, fresh_within=asked.fresh_within, hints=True, **times,
            **reading.options(),
        )  # fmt: skip
    from tierdex.app.http.codecs.messages_out import found_document

    document = found_document(found, reading.encoding.value)
    if found.next_cursor is not None and output is not Form.JSON:
        say("the newest arrivals first; messages that are newer in time may be on a later page")
    _write(output, document["messages"], whole=document, columns=("topic", "queue_id", *COLUMNS))
    if found.next_cursor is not None and output is not Form.JSON:
        say(f"there may be more: --cursor {found.next_cursor}")
    for name, queue_id, offset in found.expired:
        say(f"gone from the log by its age: {name} queue {queue_id} offset {offset}")
    if not len(found):
        say("nothing in what could be asked" if found.missing else "not found")
    tell_hints(found)
    if found.missing or not len(found):
        tell_age(found)
    for file, reason, *_ in found.missing:
        say(f"incomplete: {file}: {reason}")
    if found.missing:
        raise typer.Exit(Exit.INCOMPLETE)
    if not len(found):
        raise typer.Exit(Exit.NOT_FOUND)
