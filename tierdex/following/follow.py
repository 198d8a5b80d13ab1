"""`tierdex.follow`: follows a log from a program, into an index that the program has open.

Depends on errors, log_service, seams and the other modules of this folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierdex.errors import InvalidRequestError
from tierdex.following.extraction import Extraction
from tierdex.following.follower import Follower, FollowPlan
from tierdex.following.kept_messages import KeepingTarget
from tierdex.following.open_source import open_source
from tierdex.following.positions import FollowedSource
from tierdex.following.selectors import Selector
from tierdex.following.source import NamingSource
from tierdex.following.sources.options import Address
from tierdex.following.tables.follow_table import TableAsked, follow_table, is_table
from tierdex.following.target import IndexTarget
from tierdex.log_service.message_log import MessageLog
from tierdex.seams import Seams
from tierdex.value_rules import check_topic

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tierdex.following.follower import OnMissing
    from tierdex.following.source import Source
    from tierdex.following.tables.table_follower import TableFollower
    from tierdex.following.target import Target
    from tierdex.index_service.index import Index


def follow(
    into: Index | MessageLog,
    source: str | Source,
    *,
    keys: Sequence[str] = (),
    message_id: str | None = None,
    time: str | None = None,
    timezone: str = "UTC",
    topic: str | None = None,
    options: Mapping[str, str] | None = None,
    partitions: Collection[int] | Collection[str] | None = None,
    ordinal: tuple[int, int] = (0, 1),
    once: bool = False,
    on_missing: OnMissing = "skip",
    accept_other_log: bool = False,
    snapshot: str | int | None = None,
    seams: Seams | None = None,
) -> Follower | TableFollower:
    """Return a follower of `source`, an address or an object of one's own; `run` it.

    An index gets the places of its messages; a message log keeps the messages as well, at offsets of its own.

    `keys`, `message_id` and `time` are places in a record (``key``, ``header:region``, ``$.order.id``, a
    ``{template}``); without `time` it is the record's own, in `timezone` where a time names none. Of a source
    that has names of its own (`NamingSource`) these are the default. `topic` is the source's name by default.
    `options` are the source's. With `once`, `run` returns at the present end. `ordinal` (i, n) shares the
    partitions among n followers.

    Of a table of a lake (``delta:``, ``iceberg:``) keys are columns, `snapshot` is the last that is indexed,
    and `partitions` are ``NAME=VALUE``, of one name alternatives. Raises InvalidRequestError.
    """
    seams = seams or Seams.of()
    if isinstance(source, str) and is_table(source):
        if isinstance(into, MessageLog):
            raise InvalidRequestError(
                "a table's rows stay in the table: no log keeps them", field="keep"
            )
        asked = TableAsked(
            keys, message_id, time, timezone, topic, options, once,
            None if snapshot is None else str(snapshot), accept_other_log,
            () if partitions is None else tuple(map(str, partitions)),
        )  # fmt: skip
        return follow_table(into, source, asked, seams)
    if snapshot is not None:
        raise InvalidRequestError("a log has no snapshots", field="snapshot")
    index = into.index if isinstance(into, MessageLog) else into
    if isinstance(keys, str):
        raise InvalidRequestError("is a list of places in a record", field="keys")
    opened = open_source(source, options, seams) if isinstance(source, str) else source
    if not keys and message_id is None and isinstance(opened, NamingSource):
        keys, message_id = opened.usual_keys, opened.usual_message_id
    extraction = Extraction(
        tuple(Selector.parse(key, field="key") for key in keys),
        None if message_id is None else Selector.parse(message_id, field="message-id"),
        None if time is None else Selector.parse(time, field="time"),
        timezone,
        index.settings.max_key_bytes,
        opened.has_times,
    )
    if extraction.time is None and not opened.has_times:
        raise InvalidRequestError(
            f"messages of {opened.name} have no time: name its place, as in $.time",
            field="time",
        )
    plan = FollowPlan(
        check_topic(topic or opened.topic, "topic"),
        _numbers(partitions),
        ordinal,
        once,
        on_missing,
        accept_other_log,
        # the archive of a message log has the messages itself, at offsets of its own
        _followed(source, opened, options, keys, message_id) if into is index else None,
    )
    target: Target = (
        KeepingTarget(into, plan.topic, seams)
        if isinstance(into, MessageLog)
        else IndexTarget(into, plan.topic)
    )
    return Follower(opened, target, extraction, plan, seams)


def _numbers(partitions: Collection[int] | Collection[str] | None) -> list[int] | None:
    """Return the partitions of a log. Raises InvalidRequestError for those of a table."""
    if partitions is None:
        return None
    numbers = [each for each in partitions if isinstance(each, int)]
    if len(numbers) != len(partitions):
        raise InvalidRequestError("of a log are numbers, as in 0,1,5", field="partitions")
    return numbers


def _followed(
    source: str | Source,
    opened: Source,
    options: Mapping[str, str] | None,
    keys: Sequence[str],
    message_id: str | None,
) -> FollowedSource | None:
    """Return where the log is, without secrets; None for a source that has no address."""
    if not isinstance(source, str):
        return None
    address = Address.parse(source, options)
    return FollowedSource(
        opened.name, list(keys), message_id, address.plain_options, address.has_secrets
    )
