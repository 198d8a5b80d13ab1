"""Options that several commands share, declared once. Depends on typer."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


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


AskedTopic = Annotated[str | None, typer.Option("--topic", "-t", help="Topic of the key.")]
AskedKey = Annotated[str | None, typer.Option("--key", "-k", help="Key to look up.")]
AskedId = Annotated[str | None, typer.Option("--message-id", "-i", help="Message ID to look up.")]
Begin = Annotated[
    str | None,
    typer.Option("--begin", "-b", help="Earliest time: RFC 3339, a day, `7d` ago, ms."),
]
End = Annotated[str | None, typer.Option("--end", "-e", help="Latest time, inclusive.")]
Cursor = Annotated[
    str | None, typer.Option(help="Continue after the next_cursor of an earlier answer.")
]
Data = Annotated[
    Path | None,
    typer.Option(help="Data folder (default: ./data).", envvar="TIERDEX_DATA", show_default=False),
]
Store = Annotated[
    str | None,
    typer.Option(
        help="Store: a folder, or a file://, s3:// URL (default: the store of the data folder; if new "
        "DATA/store).",
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
TakeOver = Annotated[
    bool,
    typer.Option("--take-over", help="Fence the node's owner, even if its heartbeat is recent."),
]
AcceptRollback = Annotated[
    bool,
    typer.Option(
        "--accept-rollback",
        help="The store was restored from an older copy on purpose: continue without what it lost.",
    ),
]
