"""Opens the index or message log that a command works on: a data folder, a store, or a service.

Depends on options, client, errors, index_service, lifecycle, log_service, pipeline, app.load, show,
resolving and storage_layer.
"""

from __future__ import annotations

from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from tierdex.app.cli.terminal import options
from tierdex.app.cli.terminal.options import Ownership
from tierdex.errors import InvalidRequestError, NotFoundError
from tierdex.index_service.file_info import FileInfo
from tierdex.lifecycle.paths import LOG_FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tierdex.client.remote import Client
    from tierdex.index_service.answer import LostOffsets
    from tierdex.index_service.tables.followed_tables import FollowedTables
    from tierdex.lifecycle.nodes.node_reading import NodeReading
    from tierdex.log_service.message_log import MessageLog
    from tierdex.resolving.message_fetcher import MessageFetcher
    from tierdex.resolving.show_settings import ShowSettings
    from tierdex.storage_layer.base import Store

DEFAULT_DATA = Path("data")
_NO_OTHER_OWNER = Ownership()
_MESSAGE_PATIENCE_S = (
    60.0  # a new process loads kernels first, on a busy machine for longer than 5 s
)


def parse_settings(pairs: list[str] | None) -> dict[str, Any]:
    """Return NAME=VALUE pairs as settings. A value is JSON where it parses as JSON, else text."""
    settings: dict[str, Any] = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InvalidRequestError(f"{pair!r} is not NAME=VALUE", field="--set")
        try:
            settings[name] = orjson.loads(value)
        except orjson.JSONDecodeError:
            settings[name] = value
    return settings


class Target(NamedTuple):
    """Where a command works: a data folder and its store, a store alone, or a service (`url`)."""

    data: options.Data = None
    store: options.Store = None
    url: options.Url = None
    api_key: options.ApiKey = None
    setting: options.Set = None
    rocketmq: Path | None = None  # no option of every command

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that were given."""
        return parse_settings(self.setting)

    @property
    def folder(self) -> Path | None:
        """The data folder whose entries are asked; None where a store or RocketMQ's files are named alone."""
        if self.data is None and self.store is None and self.rocketmq is None:
            return DEFAULT_DATA
        return self.data

    @property
    def message_folder(self) -> Path | None:
        """The data folder that knows the messages of these entries.

        For a store that is named alone it is the one of the working folder, if that is the store's own: else
        its rows and messages say nothing of these entries.
        """
        if self.folder is not None or self.store is None:
            return self.folder
        from tierdex.filesystem import LocalFileSystem
        from tierdex.index_service.opening.folder_store import belongs_to

        is_its = DEFAULT_DATA.is_dir() and belongs_to(
            LocalFileSystem(), DEFAULT_DATA.absolute(), self.store
        )
        return DEFAULT_DATA if is_its else None

    @property
    def store_place(self) -> str:
        """The store that is named, else that of the data folder."""
        if self.store is not None:
            return self.store
        from tierdex.filesystem import LocalFileSystem
        from tierdex.index_service.opening.folder_store import store_of_folder

        return store_of_folder(LocalFileSystem(), (self.data or DEFAULT_DATA).absolute())


class Folder(NamedTuple):
    """Where a command works that no service does: a data folder and its store."""

    data: options.Data = None
    store: options.Store = None
    setting: options.Set = None

    @property
    def target(self) -> Target:
        """The same, for what works at a service, too."""
        return Target(data=self.data, store=self.store, setting=self.setting)


@contextmanager
def opened_for_reading(target: Target, settings: dict[str, Any] | None = None) -> Iterator[Any]:
    """Open a read-only index or a client, and close it at the end. Raises NotFoundError."""
    if target.url is not None:
        with _client(target) as client:
            yield client
        return
    from tierdex.index_service.index import Index

    data = target.folder
    if data is not None and not data.is_dir():
        raise NotFoundError(f"there is no data folder {data}")
    given = {**(settings or {}), "read_only": True, "background": False}
    with Index.open(data, store=target.store, rocketmq=target.rocketmq, **given) as index:
        yield index


@contextmanager
def opened_for_writing(
    target: Target,
    settings: dict[str, Any] | None = None,
    ownership: Ownership = _NO_OTHER_OWNER,
) -> Iterator[Any]:
    """Open the index as the folder's owner, or a client, and close it at the end."""
    if target.url is not None:
        if any(ownership):
            raise InvalidRequestError(
                "--take-over and --accept-rollback are for the folder's owner: not with --url",
                field="--url",
            )
        with _client(target) as client:
            yield client
        return
    from tierdex.index_service.index import Index

    with Index.open(
        target.data or DEFAULT_DATA,
        store=target.store,
        takeover=ownership.take_over,
        accept_rollback=ownership.accept_rollback,
        **(settings or {}),
    ) as index:
        yield index


@contextmanager
def opened_owner(
    target: Target, settings: dict[str, Any], ownership: Ownership
) -> Iterator[tuple[Any, MessageLog | None]]:
    """Open the writer of a data folder, or a client: the index, and its message log or None."""
    if target.url is not None or not holds_log(target.data or DEFAULT_DATA):
        with opened_for_writing(target, settings, ownership) as index:
            yield index, None
        return
    if ownership.accept_rollback:
        raise InvalidRequestError(
            "is not for a message log: its offsets would be given twice", field="--accept-rollback"
        )
    with opened_log(target, {**settings, "takeover": ownership.take_over}, writing=True) as log:
        yield log.index, log


@contextmanager
def opened_log(
    target: Target, settings: dict[str, Any] | None = None, *, writing: bool = False
) -> Iterator[Any]:
    """Open the message log of a data folder, or a client, and close it at the end.

    For writing, a missing folder is created; a store alone is only read. Raises NotFoundError,
    FolderInUseError.
    """
    if target.url is not None:
        with _client(target) as client:
            yield client
        return
    from tierdex.log_service.message_log import MessageLog

    is_mounted = not writing and target.message_folder is None
    data = None if is_mounted else target.data or DEFAULT_DATA
    given = dict(settings or {}) if writing else {**(settings or {}), "read_only": True}
    with MessageLog.open(data, store=target.store, **given) as log:
        yield log


def show_settings(settings: dict[str, Any]) -> ShowSettings:
    """Return the settings of showing messages; take those among `settings` out of it.

    The default of `message_timeout` is longer for a terminal than for a service.
    """
    from tierdex.resolving.show_settings import ShowSettings, load_show_settings

    names = [name for name in settings if name in ShowSettings.model_fields]
    showing = load_show_settings(**{name: settings.pop(name) for name in names})
    if "message_timeout" in showing.model_fields_set:
        return showing
    return showing.model_copy(update={"message_timeout": _MESSAGE_PATIENCE_S})


@contextmanager
def opened_messages(
    target: Target, showing: ShowSettings, log: MessageLog | None = None
) -> Iterator[MessageFetcher]:
    """Open what fetches the messages of entries of a data folder or a store, and close it at the end.

    `log` is its message log, if the caller has it open: it is opened here otherwise.
    Files that entries name are read as well: the user is at this machine. Without a data folder nothing says
    how rows of messages were loaded or which log was followed; the store's own message log is asked, and the
    tables whose states it has.
    """
    from tierdex.app.load.register import LoadRegister
    from tierdex.app.show import LoadedRows
    from tierdex.filesystem import LocalFileSystem
    from tierdex.resolving.message_fetcher import MessageFetcher

    data = target.message_folder
    register = None if data is None else LoadRegister(LocalFileSystem(), data)
    rows = LoadedRows(LocalFileSystem(), register, named=True)
    with ExitStack() as exits:
        if log is None and (holds_log(data) if data is not None else stores_log(target)):
            log = exits.enter_context(opened_log(target, {}))
        tables = None
        if data is None and target.store is not None:
            from tierdex.storage_layer.open import open_store

            tables = tables_of(exits.enter_context(closing(open_store(target.store))))
        yield exits.enter_context(
            MessageFetcher(data, showing, log=log, others=rows, tables=tables)
        )


def tables_of(store: Store) -> FollowedTables:
    """Return the tables of which a store has the states. Raises what the store raises."""
    from tierdex.filesystem import LocalFileSystem
    from tierdex.index_service.tables.followed_tables import FollowedTables
    from tierdex.index_service.tables.table_objects import TableObjects

    tables = FollowedTables(LocalFileSystem(), None, TableObjects(store))
    tables.learn()
    return tables


def lost_offsets(target: Target, topic: str | None) -> tuple[LostOffsets, ...]:
    """Return what the followed log of a topic lost unread, of every topic for None."""
    from tierdex.clock import SystemClock
    from tierdex.filesystem import LocalFileSystem
    from tierdex.resolving.followed_rules import FollowedRules

    return FollowedRules(LocalFileSystem(), target.message_folder, SystemClock()).lost(topic)


def opened_store(place: str | Path) -> Store:
    """Return the store of a URL, or of a folder that is there, without a request. Raises NotFoundError."""
    from tierdex.pipeline.jobs.job_store import StoreLink

    if "://" not in str(place) and not Path(place).is_dir():
        raise NotFoundError(f"there is no folder {place}")
    return StoreLink.of(place if "://" in str(place) else str(Path(place).absolute())).open()


def stored_manifests(target: Target) -> list[NodeReading]:
    """Return what the manifests say; nothing for a service, and while there is no node.

    Nodes whose manifest cannot be read are left to who names them. Raises what listing the nodes raises.
    """
    if target.url is not None:
        return []
    from tierdex.pipeline.jobs.snapshot import read_store

    try:
        return read_store(opened_store(target.store_place))
    except NotFoundError:
        return []


def stored_logs(readings: list[NodeReading], *, notes: bool = False) -> list[FileInfo]:
    """Return the published log files, newest first; a service shows its own among its files.

    With `notes` also what logs noted of themselves, as rows of that kind.
    """
    if not readings:
        return []
    from tierdex.pipeline.jobs.snapshot import log_files_of, notes_of

    files = [file for reading in readings for file in log_files_of(reading.state, 0)]
    if notes:
        files += [file for reading in readings for file in notes_of(reading.state)]
    files.sort(key=lambda file: (file.row.number, file.node), reverse=True)
    return [
        FileInfo(
            file.file_id, "uploaded", row.begin_ms, row.min_time, row.max_time, row.item_count, 0,
            row.bytes, file.node, row.sealed_at_ms, None, None, kind=row.kind,
        )
        for file in files
        for row in (file.row,)
    ]  # fmt: skip


def stores_log(target: Target) -> bool:
    """Return whether exactly one node of the store has published a message log: that can be mounted."""
    from tierdex.pipeline.jobs.snapshot import log_files_of

    return sum(bool(log_files_of(each.state, 0)) for each in stored_manifests(target)) == 1


def holds_log(data: Path) -> bool:
    """Return whether a data folder holds a message log, which then writes the index as well."""
    return (data / LOG_FOLDER).is_dir()


def _client(target: Target) -> Client:
    if target.data is not None or target.store is not None or target.rocketmq is not None:
        raise InvalidRequestError(
            "give --url, or --data and --store (see also TIERDEX_DATA, TIERDEX_STORE)",
            field="--url",
        )
    from tierdex.client.remote import Client

    assert target.url is not None
    return Client(target.url, api_key=target.api_key)
