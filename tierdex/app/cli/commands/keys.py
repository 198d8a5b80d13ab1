"""`tierdex keys`: make, list and remove API keys.

Depends on app.audit, app.keys, app.rights and the rest of app.cli.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tierdex.app.audit import digest_of
from tierdex.app.cli.inputs.opening import DEFAULT_DATA
from tierdex.app.cli.terminal import options
from tierdex.app.cli.terminal.exits import reporting, say
from tierdex.app.cli.terminal.options import Form
from tierdex.app.cli.terminal.output import write_rows
from tierdex.app.keys import FILE_NAME, KeyFile
from tierdex.app.rights import parse_grant
from tierdex.clock import SystemClock
from tierdex.filesystem import LocalFileSystem
from tierdex.ids import SystemIds

KeysPath = Annotated[
    Path | None,
    typer.Option("--keys", help="Key file (default: DATA/keys.json).", envvar="TIERDEX_KEYS"),
]


def make_cli() -> typer.Typer:
    """Return the command group."""
    cli = typer.Typer(help="Create, list and remove API keys.", no_args_is_help=True)
    cli.command("create")(reporting(create))
    cli.command("list")(reporting(list_keys))
    cli.command("remove")(reporting(remove))
    cli.command("digest")(reporting(digest))
    return cli


def open_key_file(data: Path | None, keys: Path | None) -> KeyFile:
    """Open the key file of a data folder, or the one at `keys`."""
    path = keys or (data or DEFAULT_DATA) / FILE_NAME
    return KeyFile(LocalFileSystem(), path, clock=SystemClock(), ids=SystemIds())


def create(
    scope: Annotated[
        list[str],
        typer.Option(
            metavar="SCOPE[:TOPICS]",
            help="What the key may do: read, message, write or admin, in all topics or in those of a pattern "
            "(`read:orders.*`); repeatable.",
        ),
    ],
    name: Annotated[str, typer.Option(help="Name of the user, for the list.")] = "",
    rate_limit: Annotated[
        float | None,
        typer.Option(min=0.001, help="Requests a second (default: the service's setting)."),
    ] = None,
    data: options.Data = None,
    keys: KeysPath = None,
) -> None:
    """Create a key and print it once: the file keeps only its hash."""
    grants = [parse_grant(text) for text in scope]
    typer.echo(open_key_file(data, keys).create(*grants, name=name, rate_limit=rate_limit))
    say("this is the only time that the key is shown; send it as `Authorization: Bearer KEY`")


def list_keys(
    data: options.Data = None, keys: KeysPath = None, output: options.Output = Form.TABLE
) -> None:
    """List the ids of the keys; the file does not keep the keys themselves."""
    rows = [
        {
            "id": row.id,
            "scope": str(row.rights),
            "created": row.created_ms,
            "name": row.name,
            "rate_limit": row.rate_limit,
        }
        for row in open_key_file(data, keys).rows()
    ]
    columns = ("id", "scope", "created", "name", "rate_limit")
    write_rows(output, rows, columns, whole={"keys": rows})


def remove(
    key_id: Annotated[str, typer.Argument(help="Id of the key, from `keys list`.")],
    data: options.Data = None,
    keys: KeysPath = None,
) -> None:
    """Remove a key. A running service refuses it within a second."""
    open_key_file(data, keys).remove(key_id)


def digest(
    audit_secret: Annotated[
        str, typer.Option(envvar="TIERDEX_AUDIT_SECRET", help="The service's audit secret.")
    ],
    name: Annotated[
        str | None, typer.Argument(help="A key or message ID (default: each line of stdin).")
    ] = None,
) -> None:
    """Print the digest that audit lines contain in place of a key."""
    lines = sys.stdin if name is None else [name]
    for line in lines:
        typer.echo(digest_of(audit_secret, line.rstrip("\n")))
