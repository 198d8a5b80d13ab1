"""`tierdex keys`: make, list and remove API keys.

Depends on app.keys, times and the other modules of this folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tierdex.app.cli import options
from tierdex.app.cli.exits import reporting, say
from tierdex.app.cli.opening import DEFAULT_DATA
from tierdex.app.cli.options import Form, ScopeName
from tierdex.app.cli.output import write_rows
from tierdex.app.keys import FILE_NAME, KeyFile, parse_scope
from tierdex.clock import SystemClock
from tierdex.filesystem import LocalFileSystem
from tierdex.ids import SystemIds
from tierdex.times import format_time

KeysPath = Annotated[
    Path | None,
    typer.Option("--keys", help="Key file (default: DATA/keys.json).", envvar="TIERDEX_KEYS"),
]


def make_cli() -> typer.Typer:
    """Return the command group."""
    cli = typer.Typer(help="Make, list and remove API keys.", no_args_is_help=True)
    cli.command("create")(reporting(create))
    cli.command("list")(reporting(list_keys))
    cli.command("remove")(reporting(remove))
    return cli


def open_key_file(data: Path | None, keys: Path | None) -> KeyFile:
    """Open the key file of a data folder, or the one at `keys`."""
    path = keys or (data or DEFAULT_DATA) / FILE_NAME
    return KeyFile(LocalFileSystem(), path, clock=SystemClock(), ids=SystemIds())


def create(
    scope: Annotated[ScopeName, typer.Option(help="What the key may do: read < write < admin.")],
    name: Annotated[str, typer.Option(help="Whose key it is, for the list.")] = "",
    data: options.Data = None,
    keys: KeysPath = None,
) -> None:
    """Make a key and print it, once: the file keeps only its hash."""
    typer.echo(open_key_file(data, keys).create(parse_scope(scope.value), name=name))
    say("this is the only time that the key is shown; send it as `Authorization: Bearer KEY`")


def list_keys(
    data: options.Data = None, keys: KeysPath = None, output: options.Output = Form.TABLE
) -> None:
    """List the keys by their ids; the keys themselves are not kept."""
    rows = [
        {
            "id": row.id,
            "scope": row.scope.name.lower(),
            "created": format_time(row.created_ms),
            "name": row.name,
        }
        for row in open_key_file(data, keys).rows()
    ]
    write_rows(output, rows, ("id", "scope", "created", "name"), whole={"keys": rows})


def remove(
    key_id: Annotated[str, typer.Argument(help="The key's id, as in the list.")],
    data: options.Data = None,
    keys: KeysPath = None,
) -> None:
    """Remove a key. A running service refuses it within a second."""
    open_key_file(data, keys).remove(key_id)
