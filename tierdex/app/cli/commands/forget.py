"""`tierdex forget`: hide the entries of keys and message IDs, omit them from new files, print the receipt.

Depends on files, times and the rest of app.cli.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import orjson
import typer

from tierdex.app.cli.inputs.opening import (
    DEFAULT_DATA,
    Target,
    holds_log,
    opened_for_reading,
    opened_for_writing,
    opened_log,
)
from tierdex.app.cli.terminal import options
from tierdex.app.cli.terminal.exits import Exit, say
from tierdex.app.cli.terminal.options import Form
from tierdex.app.cli.terminal.output import write_rows
from tierdex.errors import FolderInUseError, InvalidRequestError
from tierdex.files.object_file import address_of
from tierdex.times import format_time

if TYPE_CHECKING:
    from collections.abc import Iterator

MESSAGE_COLUMNS = ("topic", "queue_id", "offset")
COLUMNS = ("topic", "queue_id", "offset", "size", "timestamp", "file_id", "node")


class Named(NamedTuple):
    """The keys and message IDs to forget."""

    topic: Annotated[str | None, typer.Option("--topic", "-t", help="Topic of the keys.")] = None
    key: Annotated[list[str] | None, typer.Option("--key", "-k", help="Key; repeatable.")] = None
    message_id: Annotated[
        list[str] | None, typer.Option("--message-id", "-i", help="Message ID; repeatable.")
    ] = None
    file: Annotated[
        Path | None,
        typer.Option(help="One name per line: a key of --topic, or {topic, key} or {message_id}."),
    ] = None


class How(NamedTuple):
    """Whether and when files are written anew."""

    now: Annotated[bool, typer.Option("--now", help="Rewrite the files at once.")] = False
    wait: Annotated[float, typer.Option(help="Seconds to wait for other owners.")] = 120.0
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the entries.")] = False


def forget(
    *,
    named: Named,
    source: Annotated[
        list[str] | None,
        typer.Option(help="A source file or its URL: forget all entries of its rows; repeatable."),
    ] = None,
    at: Annotated[
        list[str] | None,
        typer.Option(
            metavar="QUEUE:OFFSET", help="Forget only the entry at this location; repeatable."
        ),
    ] = None,
    how: How,
    resume: Annotated[
        str | None, typer.Option(metavar="REQUEST", help="Continue this request.")
    ] = None,
    target: Target,
    output: options.Output = Form.TABLE,
) -> None:
    """Forget keys and message IDs on every node; entries that are put later stay visible.

    Prints the locations of the entries, so that the messages themselves can be erased elsewhere. A message
    log on this node forgets the messages too, and they are printed. Exit code 4 while an owner has not
    acknowledged the request, while --now has not rewritten a file (continue with --resume), or while another
    node holds entries.
    """
    names = _names(named)
    if [bool(names), bool(source), resume is not None].count(True) != 1:
        raise InvalidRequestError(
            "give --key, --message-id or --file; or --source; or --resume", field="--key"
        )
    if source and (target.url is not None or named.topic is not None or at is not None):
        raise InvalidRequestError(
            "must be given alone, and without --url: the data folder knows the source files",
            field="--source",
        )
    with _opened(target, target.settings, how.wait) as (index, waiting):
        if resume is not None:
            receipt = index.resume_forgetting(resume, **waiting)
        elif source:
            files = [address_of(each) for each in source]
            receipt = _forgetting_sources(index)(files, now=how.now, dry_run=how.dry_run, **waiting)
        else:
            only = None if at is None else [_place(each) for each in at]
            receipt = index.forget(
                lookups=names, now=how.now, only=only, dry_run=how.dry_run, **waiting
            )
    _tell(output, receipt, of_sources=bool(source), dry_run=how.dry_run)


def _tell(output: Form, receipt: Any, *, of_sources: bool, dry_run: bool) -> None:
    """Print what is, or would be, forgotten; end with exit code 4 while it is not done."""
    document = receipt.document()
    messages = document.get("messages")
    if messages is None:
        write_rows(output, document["entries"], COLUMNS, whole=document)
    else:
        write_rows(output, messages, MESSAGE_COLUMNS, whole=document)
    if output is Form.TABLE:
        found = "entries" if messages is None else "messages"
        if of_sources:
            found = "index files with some"
            say(f"request {receipt.forgetting}, {found}: {len(receipt.holding)}, {receipt.digest}")
        else:
            say(f"request {receipt.forgetting}, {len(document[found])} {found}, {receipt.digest}")
        if document.get("held_count"):
            say(f"{document['held_count']} messages that wait, or waited, for their hour")
        for gone in receipt.rewritten:
            say(f"written anew: {gone.file_id}, now in {gone.object_key or 'no object'}")
        for each in receipt.lingering:
            say(f"until {format_time(each.until_ms)} at least: {each.object_key}")
    for missing in receipt.waiting:
        say(f"incomplete: {missing.file}: {missing.reason}")
    elsewhere = document.get("elsewhere", ())
    for node in elsewhere:
        say(f"node {node} has messages of these names in a log of its own: ask there")
    if elsewhere and receipt.is_complete:
        raise typer.Exit(Exit.INCOMPLETE)
    if not receipt.is_complete and not dry_run:
        say(f"go on with: tierdex forget --resume {receipt.forgetting}")
        raise typer.Exit(Exit.INCOMPLETE)


def _forgetting_sources(index: Any) -> Any:
    if not hasattr(index, "forget_sources"):
        raise InvalidRequestError("a message log has no entries of files", field="--source")
    return index.forget_sources


@contextmanager
def _opened(
    target: Target, settings: dict[str, Any], wait: float
) -> Iterator[tuple[Any, dict[str, float]]]:
    """Open as the folder's owner if the folder exists and has no owner; else beside its owner.

    Yields what has the verbs, and what they are to be told of waiting.

    A message log is its owner's alone to forget: while that runs, ask it (--url).
    """
    if target.url is None and holds_log(target.data or DEFAULT_DATA):
        with opened_log(target, {"background": False, **settings}, writing=True) as log:
            yield log, {}  # it is forgotten when the call returns
        return
    if target.url is None and (target.data is not None or target.store is None):
        if not (target.data or DEFAULT_DATA).is_dir():
            raise InvalidRequestError("there is no such data folder", field="--data")
        opening = opened_for_writing(target, {"background": False, **settings})
        try:
            index = opening.__enter__()
        except FolderInUseError:
            say("the folder's owner runs: it is asked to acknowledge")
        else:
            with index:
                yield index, {"wait": wait}
            return
    with opened_for_reading(target, settings) as index:
        yield index, {"wait": wait}


def _names(named: Named) -> list[dict[str, Any]]:
    topic, file = named.topic, named.file
    names = [_with_topic({"key": key}, topic) for key in named.key or []]
    names += [_with_topic({"message_id": each}, topic) for each in named.message_id or []]
    if file is not None:
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError as error:
            raise InvalidRequestError(f"{file} is not UTF-8: {error}", field="--file") from error
        names += [_name_of_line(line, topic) for line in lines if line.strip()]
    return names


def _name_of_line(line: str, topic: str | None) -> dict[str, Any]:
    if not line.startswith("{"):
        return _with_topic({"key": line}, topic)
    try:
        return dict(orjson.loads(line))
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError(f"{line[:60]!r}: {error}", field="--file") from error


def _with_topic(name: dict[str, Any], topic: str | None) -> dict[str, Any]:
    return name if topic is None else {"topic": topic, **name}


def _place(text: str) -> tuple[int, int]:
    queue, colon, offset = text.partition(":")
    if not colon or not queue.isdecimal() or not offset.isdecimal():
        raise InvalidRequestError(f"{text!r} is not QUEUE:OFFSET", field="--at")
    return int(queue), int(offset)
