"""`tierdex follow SOURCE`: indexes a log of another system, as it grows.

Depends on app.c_memory, following, filesystem and the rest of app.cli.
"""

from __future__ import annotations

import signal
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from tierdex.app.c_memory import keep_few_arenas
from tierdex.app.cli.inputs.opening import Folder, opened_for_writing, opened_log
from tierdex.app.cli.terminal import options
from tierdex.app.cli.terminal.exits import say
from tierdex.app.cli.terminal.follow_display import follow_display
from tierdex.app.cli.terminal.follow_metrics import follow_metrics
from tierdex.app.cli.terminal.options import Form
from tierdex.app.cli.terminal.output import write_fields
from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tierdex.following.follower import Follower
    from tierdex.following.tables.table_follower import TableFollower


class OnMissing(StrEnum):
    """What to do about a message that lacks a wanted key."""

    SKIP = "skip"
    FAIL = "fail"


class Indexed(NamedTuple):
    """What of the log, and of each message, is indexed."""

    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key",
            "-k",
            help="key, header:NAME, $.json.path, {template}, each word with [*]; of a table a column; "
            "repeatable. RocketMQ's messages have names: default its KEYS.",
        ),
    ] = None
    message_id: Annotated[
        str | None, typer.Option("--message-id", "-i", help="The same, for the message ID.")
    ] = None
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="Topic (default: the source's name).")
    ] = None
    time: Annotated[
        str | None, typer.Option(help="Field that holds the time (default: the record's own time).")
    ] = None
    timezone: Annotated[str, typer.Option(help="Time zone of times that name none.")] = "UTC"
    partitions: Annotated[
        str | None,
        typer.Option(help="Partitions to index: 0,1,5; of a table country=DE,country=FR."),
    ] = None
    ordinal: Annotated[
        str, typer.Option(help="i/n: index the i-th of n shares of the partitions, i from 0.")
    ] = "0/1"
    on_missing: Annotated[
        OnMissing, typer.Option(help="A message without a wanted key: skip (and count) or fail.")
    ] = OnMissing.SKIP


class Work(NamedTuple):
    """For how long the command runs, and what it does beside indexing."""

    once: Annotated[bool, typer.Option("--once", help="Stop at the present end of the log.")] = (
        False
    )
    keep: Annotated[
        bool,
        typer.Option(
            "--keep", help="Store the messages, too, in a message log of the data folder."
        ),
    ] = False
    metrics_port: Annotated[
        int | None,
        typer.Option(
            help="Serve /metrics on this port of 127.0.0.1 while it runs; 0: any free port."
        ),
    ] = None


class SourceIs(NamedTuple):
    """What is said of the source."""

    accept_other_log: Annotated[
        bool,
        typer.Option(
            "--accept-other-log",
            help="Accept that the source is another log than before, and index it from its beginning.",
        ),
    ] = False
    snapshot: Annotated[
        str | None,
        typer.Option(help="Of a table: the last snapshot to index, by its ID or version."),
    ] = None
    source_option: Annotated[
        list[str] | None,
        typer.Option(
            "--source-option", metavar="NAME=VALUE", help="Option of the source; repeatable."
        ),
    ] = None
    source_config: Annotated[
        Path | None, typer.Option(help="File of NAME=VALUE lines: the place for passwords.")
    ] = None


def follow(
    *,
    source: Annotated[
        str,
        typer.Argument(
            help="folder:PATH, kafka://HOST:PORT/TOPIC, redis://HOST:PORT/DB/STREAM, nats:// or "
            "rabbitmq://HOST:PORT/STREAM, rocketmq://HOST:PORT/TOPIC; a lake's table: delta:PATH, "
            "iceberg://CATALOG/NAMESPACE.TABLE."
        ),
    ],
    indexed: Indexed,
    work: Work,
    source_is: SourceIs,
    folder: Folder,
    output: options.Output = Form.TABLE,
    ownership: options.Ownership,
) -> None:
    """Index the log of another system from the last indexed record on.

    Runs until a signal, or with --once to the end of the log.
    """
    from tierdex.following.follow import follow as follow_source

    keep_few_arenas()
    said = _source_options(source_is.source_option, source_is.source_config)
    target = folder.target
    if work.keep and any(ownership):
        raise InvalidRequestError(
            "takes no --take-over and no --accept-rollback: `tierdex log take-over` comes first",
            field="--keep",
        )
    opening = (
        opened_log(target, target.settings, writing=True)
        if work.keep
        else opened_for_writing(target, target.settings, ownership)
    )
    with opening as into:
        follower = follow_source(
            into,
            source,
            keys=indexed.key or (),
            message_id=indexed.message_id,
            time=indexed.time,
            timezone=indexed.timezone,
            topic=indexed.topic,
            options=said,
            partitions=_partitions(indexed.partitions),
            ordinal=_ordinal(indexed.ordinal),
            once=work.once,
            on_missing=indexed.on_missing.value,
            accept_other_log=source_is.accept_other_log,
            snapshot=source_is.snapshot,
        )
        with (
            follow_metrics(follower.status, work.metrics_port) as port,
            _stopped_by_signals(follower),
            follow_display(follower.status, say),
        ):
            if port is not None:
                say(f"metrics on http://127.0.0.1:{port}/metrics")
            status = follower.run()
    write_fields(output, {"topic": status.topic, **status.counts()})


@contextmanager
def _stopped_by_signals(follower: Follower | TableFollower) -> Iterator[None]:
    """Let SIGTERM and SIGINT stop the follower, which saves its entries first."""
    caught = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(each, lambda *_: follower.stop()) for each in caught]
    try:
        yield
    finally:
        for each, handler in zip(caught, before, strict=True):
            signal.signal(each, handler)


def _source_options(pairs: list[str] | None, config: Path | None) -> dict[str, str]:
    from tierdex.filesystem import LocalFileSystem
    from tierdex.following.sources.options import read_options

    said = {} if config is None else read_options(LocalFileSystem(), config)
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InvalidRequestError("is not NAME=VALUE", field="--source-option")
        said[name] = value
    return said


def _partitions(text: str | None) -> list[int] | list[str] | None:
    if text is None:
        return None
    if "=" in text:
        return text.split(",")
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise InvalidRequestError(
            f"{text!r} is not a list of numbers, as in 0,1,5", field="--partitions"
        ) from error


def _ordinal(text: str) -> tuple[int, int]:
    number, _, count = text.partition("/")
    try:
        return int(number), int(count)
    except ValueError as error:
        raise InvalidRequestError(f"{text!r} is not i/n: 0/3", field="--ordinal") from error
