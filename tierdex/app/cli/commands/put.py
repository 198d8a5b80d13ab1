"""`tierdex put`: put one entry, or many from JSON lines.

Depends on opening, options, output, codecs and times.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from tierdex.app.cli.inputs.opening import Target, opened_for_writing
from tierdex.app.cli.terminal import options
from tierdex.app.cli.terminal.options import Form, Level
from tierdex.app.cli.terminal.output import write_fields
from tierdex.errors import InvalidRequestError
from tierdex.times import parse_time
from tierdex.value_rules import Durability, check_durability


class NewEntry(NamedTuple):
    """One entry."""

    topic: Annotated[str | None, typer.Option("--topic", "-t", help="Topic.")] = None
    key: Annotated[list[str] | None, typer.Option("--key", "-k", help="Key; repeatable.")] = None
    message_id: Annotated[str | None, typer.Option("--message-id", "-i", help="Message ID.")] = None
    queue_id: Annotated[int, typer.Option(help="Queue.")] = 0
    offset: Annotated[int | None, typer.Option(help="Offset of the message in its queue.")] = None
    size: Annotated[int, typer.Option(help="Size of the message in bytes.")] = 0
    timestamp: Annotated[
        str | None, typer.Option(help="Time: milliseconds or RFC 3339 (default: now).")
    ] = None


def put(
    *,
    new: NewEntry,
    lines: Annotated[
        Path | None,
        typer.Option("--lines", help="Read entries as JSON lines from this file; `-` is stdin."),
    ] = None,
    durability: Annotated[Level, typer.Option(help="Level of the acknowledgement.")] = Level.DISK,
    target: Target,
    output: options.Output = Form.TABLE,
    ownership: options.Ownership,
) -> None:
    """Put one entry, or many as JSON lines: all or none."""
    entries = _read_lines(lines) if lines is not None else None
    entry: dict[str, Any] = {}
    if entries is None:
        if new.topic is None or new.offset is None:
            raise InvalidRequestError("--topic and --offset are needed", field="put")
        entry = {**new._asdict(), "timestamp": _time(new.timestamp)}
        entry["keys"] = entry.pop("key") or None
    with opened_for_writing(target, target.settings, ownership) as index:
        if entries is None:
            level, count = index.put(**entry, durability=durability.value), 1
        else:
            level, count = _put_all(index, entries, check_durability(durability.value))
    write_fields(output, {"accepted": count, "durability": level})


def _time(text: str | None) -> int:
    if text is not None:
        return parse_time(text, field="--timestamp")
    from tierdex.clock import SystemClock

    return SystemClock().now_ms()


def _read_lines(path: Path) -> bytes:
    return sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()


def _put_all(index: Any, lines: bytes, durability: Durability) -> tuple[str, int]:
    from tierdex.app.http.codecs.json_entries import read_lines
    from tierdex.settings import load_settings

    rows = read_lines(lines, load_settings())
    return rows.put_into(index, durability), rows.count
