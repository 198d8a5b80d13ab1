"""`tierdex serve`: the HTTP service.

A damaged manifest, or logs of several nodes, stop no reader: the service answers from the index, names the
reason at its start and serves no log, unless `--set log=true` asks for one.

Depends on app.c_memory, app.http, app.load, show, index_service, lifecycle, log_service, resolving,
storage_layer and the rest of app.cli.
"""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from tierdex.app.c_memory import keep_few_arenas
from tierdex.app.cli.commands.keys import KeysPath, open_key_file
from tierdex.app.cli.inputs.opening import DEFAULT_DATA, Folder, holds_log, show_settings
from tierdex.app.cli.terminal import options
from tierdex.app.cli.terminal.exits import say
from tierdex.app.cli.terminal.options import ScopeName
from tierdex.errors import CorruptFileError, InvalidRequestError, NotFoundError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.app.http.server_settings import ServerSettings
    from tierdex.app.keys import KeyFile
    from tierdex.index_service.index import Index
    from tierdex.log_service.message_log import MessageLog
    from tierdex.resolving.message_fetcher import MessageFetcher
    from tierdex.resolving.show_settings import ShowSettings

_LOGGER = logging.getLogger(__name__)


class Listening(NamedTuple):
    """Where the service listens, and for which callers."""

    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None
    port: Annotated[int | None, typer.Option(help="Port; 0: any free port.")] = None
    allow_anonymous: Annotated[
        ScopeName | None,
        typer.Option(help="What callers without a key may do, on any address."),
    ] = None
    tls_cert: Annotated[
        Path | None, typer.Option(help="Certificate and chain (PEM): speak HTTPS.")
    ] = None
    tls_key: Annotated[Path | None, typer.Option(help="Its private key (PEM).")] = None


def serve(
    *,
    listening: Listening,
    folder: Folder,
    keys: KeysPath = None,
    read_only: Annotated[
        bool,
        typer.Option(
            "--read-only", help="Answer queries only; without --data the service keeps no state."
        ),
    ] = False,
    ownership: options.Ownership,
) -> None:
    """Serve the index over HTTP, with the console at `/`.

    A message log in the folder is served, too; `--set log=true` creates one.
    """
    data, store, settings = folder.data, folder.store, folder.target.settings
    scope = listening.allow_anonymous
    flags = {**listening._asdict(), "allow_anonymous": scope and scope.value}
    server = server_settings(flags, settings)
    showing = show_settings(settings)
    if read_only:
        if data is None and store is None:
            raise InvalidRequestError("give the store that is read", field="--store")
        settings = {"warm_up": True, **settings, "read_only": True}
    served = Served(
        data if read_only else data or DEFAULT_DATA,
        store,
        settings,
        *ownership,
        log=server.log,
        showing=showing,
    )
    run(served, server, open_key_file(data, keys))


def server_settings(flags: dict[str, Any], settings: dict[str, Any]) -> ServerSettings:
    """Return the service's settings, the flags on top; take those among `settings` out of it."""
    try:
        from tierdex.app.http.server_settings import ServerSettings, load_server_settings
    except ImportError as error:
        raise _without_server_extra(error) from error
    given = {
        name: settings.pop(name) for name in list(settings) if name in ServerSettings.model_fields
    }
    given |= {name: value for name, value in flags.items() if value is not None}
    return load_server_settings(**given)


class Served(NamedTuple):
    """What a service opens for writing: an index, or a message log with the index that it writes.

    The fields are arguments of `Index.open` and `MessageLog.open`; `log` as the setting says.
    """

    data: Path | None
    store: str | None
    settings: dict[str, Any]
    takeover: bool = False
    accept_rollback: bool = False
    log: bool | None = None
    showing: ShowSettings | None = None

    def is_new_store(self) -> bool:
        """Return whether the store was named and is empty."""
        if self.store is None or self.settings.get("read_only") or "memory:" in self.store:
            return False
        from tierdex.lifecycle.manifests.manifest_log import list_nodes
        from tierdex.storage_layer.open import open_store

        with closing(open_store(self.store)) as store:
            try:
                return not list_nodes(store)
            except UnavailableError:  # not known; the opening says what is wrong
                return False

    def open_messages(self, log: MessageLog | None = None) -> MessageFetcher:
        """Open what fetches messages of entries. Raises InvalidRequestError for a bad `resolvers.toml`.

        Files that entries name are not read, only those that were loaded here.
        """
        from tierdex.app.load.register import LoadRegister
        from tierdex.app.show import LoadedRows
        from tierdex.filesystem import LocalFileSystem
        from tierdex.resolving.message_fetcher import MessageFetcher

        rows = None
        if self.data is not None:
            files = LocalFileSystem()
            rows = LoadedRows(files, LoadRegister(files, self.data), named=False)
        return MessageFetcher(self.data, self.showing, log=log, others=rows)

    def _mount_log(self) -> MessageLog | None:
        """Return the log that the store has, to be read; None without one, or where it is not known which."""
        from tierdex.log_service.message_log import MessageLog

        try:
            return MessageLog.open(store=self.store, **{**self.settings, "read_only": True})
        except NotFoundError:
            if self.log:
                raise
        # Of several nodes, or a manifest is damaged: its node is named by all answers of the index.
        except (InvalidRequestError, CorruptFileError) as error:
            if self.log:
                raise
            say(f"no message log is served: {error}")
        return None

    def open(self) -> tuple[Index | None, MessageLog | None]:
        """Open it: the one that writes, or both for reading. Raises what the openings raise."""
        from tierdex.index_service.index import Index
        from tierdex.log_service.message_log import MessageLog

        has_log = self.data is not None and holds_log(self.data)
        is_reader = self.settings.get("read_only", False)
        if self.data is None or is_reader or not (has_log if self.log is None else self.log):
            index = Index.open(
                self.data, store=self.store, takeover=self.takeover,
                accept_rollback=self.accept_rollback, **self.settings,
            )  # fmt: skip
            if self.data is None and self.store is not None:
                return index, self._mount_log()
            if not (self.data is not None and is_reader and has_log):
                return index, None
            return index, MessageLog.open(self.data, store=self.store, **self.settings)
        if self.accept_rollback:
            raise InvalidRequestError(
                "is not for a message log: its offsets would be given twice",
                field="--accept-rollback",
            )
        return None, MessageLog.open(
            self.data, store=self.store, takeover=self.takeover, **self.settings
        )


def run(
    served: Served,
    server: ServerSettings,
    keys: KeyFile,
    announce: Callable[[str], None] = lambda url: say(f"serving on {url}"),
) -> None:
    """Open index or log and serve it until a signal arrives; call `announce` with the service's URL."""
    try:
        from tierdex.app.http.certificate import check_certificate
        from tierdex.app.http.first_kernels import FirstKernels
        from tierdex.app.http.server import check_exposure
        from tierdex.app.http.server import serve as serve_index
    except ImportError as error:
        raise _without_server_extra(error) from error
    from tierdex.settings import load_settings

    keep_few_arenas()
    check_exposure(server, keys)  # before the folder is locked and recovered
    check_certificate(server)
    if exposure := keys.exposure():
        say(exposure)
    limits = load_settings(**served.settings)
    served.open_messages().close()  # a `resolvers.toml` that cannot be is refused before, too
    if served.is_new_store():
        say(
            f"{served.store} holds no node yet: it begins now. Is the address right? What was put elsewhere "
            "is not found here"
        )
    index, log = served.open()
    messages = served.open_messages(log)
    writes = not served.settings.get("read_only", False)
    kernels = FirstKernels(
        writes_index=writes and index is not None, writes_log=writes and log is not None
    )
    kernels.start()
    serve_index(
        index, server, keys, limits=limits, log=log, messages=messages, announce=announce,
        loading=kernels.health,
    )  # fmt: skip


def _without_server_extra(error: ImportError) -> InvalidRequestError:
    return InvalidRequestError(f"pip install 'tierdex[server]' ({error})", field="serve")
