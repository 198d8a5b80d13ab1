"""Options that several commands share, declared once; those that belong together, as one value; times.

Such a value is a named tuple whose annotated fields are the options; `spread` puts them in its place, where
typer looks for them::

    class Ownership(NamedTuple):                         def expire(*, before: ..., ownership: Ownership)
        take_over: Annotated[bool, typer.Option(...)]    tierdex expire --before 7d --take-over

Depends on typer, clock and times.
"""

from __future__ import annotations

from enum import StrEnum
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_origin, get_type_hints

import typer

from tierdex.clock import SystemClock
from tierdex.times import parse_time

if TYPE_CHECKING:
    from collections.abc import Callable


class Form(StrEnum):
    """Forms of results."""

    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"
    CSV = "csv"


class Level(StrEnum):
    """Levels of acknowledgement."""

    RECEIVED = "received"
    OS = "os"
    DISK = "disk"
    REMOTE = "remote"


class Encoding(StrEnum):
    """How bytes are written."""

    TEXT = "text"
    BASE64 = "base64"


class ScopeName(StrEnum):
    """Scopes of a key: message and write include read, admin includes all."""

    READ = "read"
    MESSAGE = "message"
    WRITE = "write"
    ADMIN = "admin"


Begin = Annotated[
    str | None,
    typer.Option("--begin", "-b", help="Earliest time: RFC 3339, a day, `7d` ago, ms."),
]
End = Annotated[str | None, typer.Option("--end", "-e", help="Latest time, inclusive.")]
Data = Annotated[
    Path | None,
    typer.Option(help="Data folder (default: ./data).", envvar="TIERDEX_DATA", show_default=False),
]
Store = Annotated[
    str | None,
    typer.Option(
        help="Store: a folder, or a file://, s3://, gs://, az:// URL (default: that of the data folder; "
        "if new DATA/store).",
        envvar="TIERDEX_STORE",
        show_default=False,
    ),
]
Url = Annotated[
    str | None,
    typer.Option(help="Use this service instead of a data folder.", envvar="TIERDEX_URL"),
]
ApiKey = Annotated[
    str | None,
    typer.Option(help="API key for --url; better in the environment.", envvar="TIERDEX_API_KEY"),
]
FreshWithin = Annotated[
    float | None,
    typer.Option(help="Seconds; an answer from older manifests is incomplete and names the nodes."),
]
Output = Annotated[Form, typer.Option("--output", "-o", help="Form of the results.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A setting of the index; repeatable."),
]


class Ownership(NamedTuple):
    """How the writer of a node that has, or had, another owner opens it."""

    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over", help="Fence the node's owner, even if its heartbeat is recent."
        ),
    ] = False
    accept_rollback: Annotated[
        bool,
        typer.Option(
            "--accept-rollback",
            help="The store was restored from an older copy on purpose: continue without what it lost.",
        ),
    ] = False


class Lookup(NamedTuple):
    """What is looked up, and from where on answers continue."""

    topic: Annotated[str | None, typer.Option("--topic", "-t", help="Topic of the key.")] = None
    key: Annotated[str | None, typer.Option("--key", "-k", help="Key to look up.")] = None
    message_id: Annotated[
        str | None, typer.Option("--message-id", "-i", help="Message ID to look up.")
    ] = None
    begin: Begin = None
    end: End = None
    cursor: Annotated[
        str | None, typer.Option(help="Continue after the next_cursor of an earlier answer.")
    ] = None
    fresh_within: FreshWithin = None


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """Return `command` with the fields of its groups as parameters of their own."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: _options_of(hint) for name, hint in hints.items() if hasattr(hint, "_fields")}
    parameters = []
    for parameter in signature(command).parameters.values():
        own = parameter.replace(annotation=hints[parameter.name], kind=Parameter.KEYWORD_ONLY)
        parameters += groups.get(parameter.name, [own])

    @wraps(command)
    def run(**given: Any) -> None:
        for name, options in groups.items():
            given[name] = hints[name](**{each.name: given.pop(each.name) for each in options})
        command(**given)

    # typer reads both.
    run.__signature__ = signature(command).replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _options_of(group: Any) -> list[Parameter]:
    return [
        Parameter(
            name, Parameter.KEYWORD_ONLY, annotation=hint,
            default=group._field_defaults.get(name, Parameter.empty),
        )
        for name, hint in get_type_hints(group, include_extras=True).items()
        if get_origin(hint) is Annotated
    ]  # fmt: skip


def asked_time(text: str, option: str, *, is_end: bool = False) -> int:
    """Return milliseconds. Raises InvalidRequestError that names the option."""
    return parse_time(text, field=option, now_ms=SystemClock().now_ms, is_end=is_end)


def asked_range(begin: str | None, end: str | None) -> dict[str, Any]:
    """Return `begin` and `end` of a query."""
    return {
        "begin": None if begin is None else asked_time(begin, "--begin"),
        "end": None if end is None else asked_time(end, "--end", is_end=True),
    }
