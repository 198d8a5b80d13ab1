"""Opens a table by its address, and makes its follower: `delta:PATH`, `iceberg://CATALOG/NAMESPACE.TABLE`.

Depends on errors, files, following.sources, index_service, seams, storage_layer and the other modules of this
folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tierdex.errors import InvalidRequestError
from tierdex.files.folder import with_parameters
from tierdex.files.row_templates import Template
from tierdex.following.sources.options import Address
from tierdex.following.tables.table_follower import TableFollower, TablePlan
from tierdex.following.tables.table_rows import RowNames
from tierdex.following.tables.table_source import prefixes_of
from tierdex.following.tables.table_steps import check_head
from tierdex.index_service.tables.table_state import TableHead
from tierdex.storage_layer.open import S3_PARAMETERS
from tierdex.value_rules import check_topic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tierdex.following.tables.table_source import TableSource
    from tierdex.index_service.index import Index
    from tierdex.seams import Seams

KINDS: Final = ("delta", "iceberg")
_OPTIONS: Final = ("history", "max_staleness", "look_interval", "prefixes")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def is_table(source: object) -> bool:
    """Say whether an address is that of a table."""
    return isinstance(source, str) and source.partition(":")[0] in KINDS


def open_table(text: str, options: Mapping[str, str] | None, seams: Seams) -> TableSource:
    """Return the table at an address; it connects when it is first asked. Raises InvalidRequestError."""
    address = Address.parse(text, options)
    said = {name: value for name, value in address.options.items() if name not in _OPTIONS}
    if address.kind == "delta":
        from tierdex.following.tables.delta_table import DeltaTable

        unknown = sorted(set(said) - set(S3_PARAMETERS))
        if unknown:
            raise InvalidRequestError(
                f"a Delta table has no option {unknown[0]!r}", field="source-option"
            )
        if not address.path:
            raise InvalidRequestError("is delta:PATH or delta:s3://BUCKET/PATH", field="source")
        return DeltaTable(
            seams.filesystem, with_parameters(address.path, said), prefixes_of(address.options)
        )
    try:
        from tierdex.following.tables.iceberg_table import IcebergTable
    except ImportError as error:
        raise InvalidRequestError(
            f"pip install 'tierdex[iceberg]' ({error})", field="source"
        ) from error
    return IcebergTable(address, said, prefixes_of(address.options))


class TableAsked(NamedTuple):
    """How a caller of `follow` wants a table to be followed."""

    keys: Sequence[str]
    message_id: str | None
    time: str | None
    timezone: str
    topic: str | None
    options: Mapping[str, str] | None
    once: bool
    snapshot: str | None
    accept_other_log: bool
    partitions: tuple[str, ...] = ()


def follow_table(index: Index, source: str, asked: TableAsked, seams: Seams) -> TableFollower:
    """Return a follower of a table: `keys` are columns or templates of them. Raises InvalidRequestError."""
    options = asked.options
    if not asked.keys and asked.message_id is None:
        raise InvalidRequestError("name a column of the table, or a {template}", field="key")
    settings = index.settings
    address = Address.parse(source, options)
    table = open_table(source, options, seams)
    head = head_of(table, source, asked)
    if settings.retention is not None or head.topic in settings.topic_retention:
        raise InvalidRequestError(
            f"entries of topic {head.topic!r} would expire by time while their rows live: leave `retention` "
            "out, rows leave with the table's snapshots",
            field="retention",
        )
    names = names_of(asked)
    plan = TablePlan(
        head,
        names,
        once=asked.once,
        snapshot=asked.snapshot,
        history_ms=round(seconds_of(address.options.get("history", "7d"), "history") * 1000),
        look_interval_s=seconds_of(address.options.get("look_interval", "5s"), "look_interval"),
    )
    follower = TableFollower(index, table, plan, seams)
    check_head(
        index.followed_tables.state_of(head.topic), head, accept_other_log=asked.accept_other_log
    )
    return follower


def head_of(table: TableSource, source: str, asked: TableAsked) -> TableHead:
    """Return what a topic follows. Raises InvalidRequestError, and what the table raises."""
    address = Address.parse(source, asked.options)
    return TableHead(
        check_topic(asked.topic or table.topic, "topic"),
        address.shown, table.name, table.identity(), table.root, tuple(asked.keys), asked.message_id,
        asked.time, address.plain_options, tuple(sorted(asked.partitions)),
    )  # fmt: skip


def names_of(asked: TableAsked) -> RowNames:
    """Return the templates of keys, ID and time. Raises InvalidRequestError."""
    return RowNames(
        tuple(Template.parse(key, field="key") for key in asked.keys),
        None if asked.message_id is None else Template.parse(asked.message_id, field="message-id"),
        None if asked.time is None else Template.parse(asked.time, field="time"),
        asked.timezone,
    )


def seconds_of(text: str, name: str) -> float:
    """Return the seconds of ``7d``, ``12h``, ``5m``, ``30s`` or a number. Raises InvalidRequestError."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS else (text, "s")
    try:
        seconds = float(number) * _UNITS[unit]
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise InvalidRequestError(f"{text!r} is no time, as in 7d, 12h or 30s", field=name)
    return seconds
