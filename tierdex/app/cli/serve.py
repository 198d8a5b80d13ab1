"""`tierdex serve`: the HTTP service.

Depends on app.http, index_service and the other modules of this folder.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tierdex.app.cli import options
from tierdex.app.cli.exits import say
from tierdex.app.cli.keys import KeysPath, open_key_file
from tierdex.app.cli.opening import DEFAULT_DATA, parse_settings
from tierdex.app.cli.options import ScopeName
from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tierdex.app.http.server_settings import ServerSettings
    from tierdex.app.keys import KeyFile


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0: any free one.")] = None,
    allow_anonymous: Annotated[
        ScopeName | None,
        typer.Option(help="What callers without a key may do, on any address."),
    ] = None,
    data: options.Data = None,
    store: options.Store = None,
    keys: KeysPath = None,
    setting: options.Set = None,
    take_over: options.TakeOver = False,
    accept_rollback: options.AcceptRollback = False,
) -> None:
    """Serve the index over HTTP, with the console at `/`."""
    settings = parse_settings(setting)
    server = server_settings(host, port, allow_anonymous, settings)
    run(
        data or DEFAULT_DATA, store, open_key_file(data, keys), server, settings,
        takeover=take_over, accept_rollback=accept_rollback,
    )  # fmt: skip


def server_settings(
    host: str | None, port: int | None, allow_anonymous: ScopeName | None, settings: dict[str, Any]
) -> ServerSettings:
    """Return the service's settings, taking those out of `settings` that are the service's."""
    try:
        from tierdex.app.http.server_settings import ServerSettings, load_server_settings
    except ImportError as error:
        raise _without_server_extra(error) from error
    given = {
        name: settings.pop(name) for name in list(settings) if name in ServerSettings.model_fields
    }
    flags = {
        "host": host,
        "port": port,
        "allow_anonymous": allow_anonymous and allow_anonymous.value,
    }
    given |= {name: value for name, value in flags.items() if value is not None}
    return load_server_settings(**given)


def run(
    data: Path,
    store: str | None,
    keys: KeyFile,
    server: ServerSettings,
    settings: dict[str, Any],
    announce: Callable[[str], None] = lambda url: say(f"serving on {url}"),
    *,
    takeover: bool = False,
    accept_rollback: bool = False,
) -> None:
    """Open the index and serve it until a signal comes; `announce` gets the URL that it listens on."""
    try:
        from tierdex.app.http.server import check_exposure
        from tierdex.app.http.server import serve as serve_index
    except ImportError as error:
        raise _without_server_extra(error) from error
    from tierdex.index_service.index import Index
    from tierdex.index_service.warm_up import warm_up
    from tierdex.settings import load_settings

    check_exposure(server, keys)  # before the folder is locked and recovered
    limits = load_settings(**settings)
    index = Index.open(
        data, store=store, takeover=takeover, accept_rollback=accept_rollback, **settings
    )
    # Beside the first requests: what they need of it they wait for, and no longer than that.
    threading.Thread(target=warm_up, name="tierdex-warm-up", daemon=True).start()
    serve_index(index, server, keys, limits=limits, announce=announce)


def _without_server_extra(error: ImportError) -> InvalidRequestError:
    return InvalidRequestError(f"pip install 'tierdex[server]' ({error})", field="serve")
