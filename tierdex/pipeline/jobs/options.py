"""Options of `spark.read` and `df.write`, parsed and checked once, on the driver.

| read | |
|---|---|
| `columns` | names to return, separated by commas or a JSON list; Spark prunes none by itself |
| `topic`, `keys` | only entries of these topics; of these keys (one topic then; adds a column `key`) |
| `messageIds` | only the entries of these message IDs (adds a column `message_id`) |
| `beginTime`, `endTime` | inclusive: milliseconds or RFC 3339 |
| `onError` | `fail` (default) or `partial`: leave unreadable files out and name them in `last_scan()` |
| `freshWithin` | seconds: fail, or with `partial` name the nodes, when some published less lately |
| `nodes` | answer from these nodes only |
| `itemsPerPartition` | larger files are split into page ranges |

| write | |
|---|---|
| `node` | the shared node that publishes (default `spark`) |
| `targetEntries` | most entries of one file |
| `timeBucket` | milliseconds; a new file at each step of time (rows must come sorted by time) |
| `filterBits` | 16, 8 or 0 |
| `offsets` | `bytes` (default) or `sequence`: what a message's offset is, see the setting `offsets` |
| `mergeSmall` | streaming only: `false` leaves small files as they are |
| `table` | a name that the node publishes once: of a table that `index_table` indexes |

Names are matched without regard to case, as everywhere in Spark. Depends on job_store,
index_service, lifecycle and times.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tierdex.errors import InvalidRequestError
from tierdex.index_service.answer_age import check_age_limit
from tierdex.lifecycle.paths import StorePaths
from tierdex.pipeline.jobs.job_store import CREDENTIAL_OPTIONS, StoreLink
from tierdex.times import to_ms

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_NODE: Final = "spark"
TARGET_ENTRIES: Final = 5_000_000
ITEMS_PER_PARTITION: Final = 5_000_000
_READ_NAMES: Final = (
    "columns",
    "topic",
    "keys",
    "messageIds",
    "beginTime",
    "endTime",
    "onError",
    "freshWithin",
    "nodes",
    "itemsPerPartition",
)
_WRITE_NAMES: Final = (
    "node",
    "targetEntries",
    "timeBucket",
    "filterBits",
    "offsets",
    "mergeSmall",
    "table",
)
_SPARK_NAMES: Final = ("path", "checkpointLocation", "queryName")
MIN_TIME: Final = -(1 << 63)
MAX_TIME: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The options of a scan. `columns` None: the default ones."""

    link: StoreLink
    columns: tuple[str, ...] | None = None
    topics: tuple[str, ...] | None = None
    keys: tuple[str, ...] | None = None
    message_ids: tuple[str, ...] | None = None
    begin: int = MIN_TIME
    end: int = MAX_TIME
    is_partial: bool = False
    fresh_within: float | None = None
    nodes: tuple[str, ...] | None = None
    items_per_partition: int = ITEMS_PER_PARTITION

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Raises InvalidRequestError naming the option."""
        given = known_options(options, _READ_NAMES)
        topics = names_of(given, "topic")
        keys = names_of(given, "keys")
        if keys is not None and (topics is None or len(topics) != 1):
            raise InvalidRequestError("needs the option topic, one topic", field="keys")
        message_ids = names_of(given, "messageIds")
        if keys is not None and message_ids is not None:
            raise InvalidRequestError("choose keys or messageIds", field="messageIds")
        on_error = given.get("onError", "fail")
        if on_error not in {"fail", "partial"}:
            raise InvalidRequestError("must be fail or partial", field="onError")
        begin = time_of(given, "beginTime", MIN_TIME)
        end = time_of(given, "endTime", MAX_TIME)
        if begin > end:
            raise InvalidRequestError("lies after endTime", field="beginTime")
        return cls(
            link=StoreLink.of(given.get("path"), credentials_of(options)),
            columns=names_of(given, "columns"),
            topics=topics,
            keys=keys,
            message_ids=message_ids,
            begin=begin,
            end=end,
            is_partial=on_error == "partial",
            fresh_within=_seconds_of(given, "freshWithin"),
            nodes=names_of(given, "nodes"),
            items_per_partition=number_of(given, "itemsPerPartition", ITEMS_PER_PARTITION),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The options of a sink. `time_bucket_ms` 0: times never end a file."""

    link: StoreLink
    node: str = DEFAULT_NODE
    target_entries: int = TARGET_ENTRIES
    time_bucket_ms: int = 0
    filter_bits: int = 16
    offsets: str = "bytes"
    merge_small: bool = True
    table: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """Raises InvalidRequestError naming the option."""
        given = known_options(options, _WRITE_NAMES)
        filter_bits = number_of(given, "filterBits", 16, least=0)
        if filter_bits not in {0, 8, 16}:
            raise InvalidRequestError("must be 16, 8 or 0", field="filterBits")
        node = given.get("node", DEFAULT_NODE)
        StorePaths(node)  # checks the name
        merge_small = given.get("mergeSmall", "true").lower()
        if merge_small not in {"true", "false"}:
            raise InvalidRequestError("must be true or false", field="mergeSmall")
        offsets = given.get("offsets", "bytes")
        if offsets not in {"bytes", "sequence"}:
            raise InvalidRequestError("must be bytes or sequence", field="offsets")
        return cls(
            link=StoreLink.of(given.get("path"), credentials_of(options)),
            node=node,
            target_entries=number_of(given, "targetEntries", TARGET_ENTRIES),
            time_bucket_ms=number_of(given, "timeBucket", 0, least=0),
            filter_bits=filter_bits,
            offsets=offsets,
            merge_small=merge_small == "true",
            table=given.get("table"),
        )


def known_options(options: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    """Return the options under the spelling of `names`. Raises InvalidRequestError for an unknown one."""
    spelling = {name.lower(): name for name in (*names, *_SPARK_NAMES, *CREDENTIAL_OPTIONS)}
    known = {}
    for name, value in options.items():
        if name.lower() not in spelling:
            raise InvalidRequestError(
                f"there is no such option; known: {', '.join(names)}", field=name
            )
        known[spelling[name.lower()]] = value
    return known


def credentials_of(options: Mapping[str, str]) -> dict[str, str]:
    spelling = {name.lower(): name for name in CREDENTIAL_OPTIONS}
    return {
        spelling[name.lower()]: value for name, value in options.items() if name.lower() in spelling
    }


def names_of(given: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    text = given.get(name)
    if text is None:
        return None
    names = _json_names(text, name) if text.lstrip().startswith("[") else text.split(",")
    names = [one.strip() for one in names] if not text.lstrip().startswith("[") else names
    if not names or not all(names):
        raise InvalidRequestError("an empty name", field=name)
    return tuple(dict.fromkeys(names))


def _json_names(text: str, name: str) -> list[str]:
    try:
        names = json.loads(text)
    except ValueError as error:
        raise InvalidRequestError(f"is not a JSON list: {error}", field=name) from error
    if not all(isinstance(one, str) for one in names):
        raise InvalidRequestError("must be a list of strings", field=name)
    return list(names)


def time_of(given: Mapping[str, str], name: str, default: int) -> int:
    return to_ms(given[name], name, is_end=name.startswith("end")) if name in given else default


def _seconds_of(given: Mapping[str, str], name: str) -> float | None:
    if name not in given:
        return None
    try:
        return check_age_limit(float(given[name]))
    except (ValueError, InvalidRequestError) as error:
        raise InvalidRequestError("must be a number of seconds above 0", field=name) from error


def number_of(given: Mapping[str, str], name: str, default: int, *, least: int = 1) -> int:
    if name not in given:
        return default
    try:
        number = int(given[name])
    except ValueError:
        number = least - 1
    if not least <= number < 1 << 31:
        raise InvalidRequestError(f"must be a number from {least} to 2147483647", field=name)
    return number
