"""Options of `format("tierdex-log")`, parsed and checked once, on the driver.

| batch and stream | |
|---|---|
| `columns` | names to return, separated by commas or a JSON list; Spark prunes none by itself |
| `topic`, `queueId` | only messages of these topics; of these queues of each |
| `beginOffset`, `endOffset` | of each queue: from this offset on; up to the one before this |
| `beginTime`, `endTime` | inclusive: milliseconds or RFC 3339 |
| `nodes` | read these nodes' logs only |
| `bytesPerPartition` | larger files are split into ranges of pages |

| stream | |
|---|---|
| `maxMessagesPerTrigger` | most messages of one batch |
| `startingPosition` | of a query without a checkpoint: `earliest` (default) or `latest` |
| `failOnDataLoss` | `false`: go on behind messages that expired before they were read |

Depends on errors, options and job_store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tierdex.errors import InvalidRequestError
from tierdex.pipeline.jobs.job_store import StoreLink
from tierdex.pipeline.jobs.options import (
    MAX_TIME,
    MIN_TIME,
    credentials_of,
    known_options,
    names_of,
    number_of,
    time_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

BYTES_PER_PARTITION: Final = 128 << 20
_NAMES: Final = (
    "columns",
    "topic",
    "queueId",
    "beginOffset",
    "endOffset",
    "beginTime",
    "endTime",
    "nodes",
    "bytesPerPartition",
)
_STREAM_NAMES: Final = ("maxMessagesPerTrigger", "startingPosition", "failOnDataLoss")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSelection:
    """Which messages are asked for. None: any. Times are inclusive, `end_offset` is not."""

    topics: tuple[str, ...] | None = None
    queue_ids: tuple[int, ...] | None = None
    begin_offset: int = 0
    end_offset: int = MAX_TIME
    begin: int = MIN_TIME
    end: int = MAX_TIME


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """The options of a scan of message logs. `columns` None: the default ones."""

    link: StoreLink
    selection: LogSelection
    columns: tuple[str, ...] | None = None
    nodes: tuple[str, ...] | None = None
    bytes_per_partition: int = BYTES_PER_PARTITION
    max_messages: int | None = None
    starts_at_end: bool = False
    fails_on_data_loss: bool = True

    @classmethod
    def parse(cls, options: Mapping[str, str], *, is_stream: bool = False) -> LogOptions:
        """Raises InvalidRequestError naming the option."""
        given = known_options(options, (*_NAMES, *(_STREAM_NAMES if is_stream else ())))
        most = number_of(given, "maxMessagesPerTrigger", 0)
        starting = _one_of(given, "startingPosition", "earliest", "latest")
        return cls(
            link=StoreLink.of(given.get("path"), credentials_of(options)),
            selection=_selection(given),
            columns=names_of(given, "columns"),
            nodes=names_of(given, "nodes"),
            bytes_per_partition=number_of(given, "bytesPerPartition", BYTES_PER_PARTITION),
            max_messages=most or None,
            starts_at_end=starting == "latest",
            fails_on_data_loss=_one_of(given, "failOnDataLoss", "true", "false") == "true",
        )


def _selection(given: Mapping[str, str]) -> LogSelection:
    queue_ids = names_of(given, "queueId")
    selection = LogSelection(
        topics=names_of(given, "topic"),
        queue_ids=None if queue_ids is None else tuple(_queue_id(text) for text in queue_ids),
        begin_offset=_offset(given, "beginOffset", 0),
        end_offset=_offset(given, "endOffset", MAX_TIME),
        begin=time_of(given, "beginTime", MIN_TIME),
        end=time_of(given, "endTime", MAX_TIME),
    )
    if selection.begin > selection.end:
        raise InvalidRequestError("lies after endTime", field="beginTime")
    if selection.begin_offset > selection.end_offset:
        raise InvalidRequestError("lies after endOffset", field="beginOffset")
    return selection


def _queue_id(text: str) -> int:
    if not text.isdecimal() or int(text) >= 1 << 31:
        raise InvalidRequestError("must be numbers from 0 to 2147483647", field="queueId")
    return int(text)


def _offset(given: Mapping[str, str], name: str, default: int) -> int:
    if name not in given:
        return default
    if not given[name].isdecimal() or int(given[name]) > MAX_TIME:
        raise InvalidRequestError("must be an offset: a number from 0 on", field=name)
    return int(given[name])


def _one_of(given: Mapping[str, str], name: str, *allowed: str) -> str:
    value = given.get(name, allowed[0]).lower()
    if value not in allowed:
        raise InvalidRequestError(f"must be {' or '.join(allowed)}", field=name)
    return value
