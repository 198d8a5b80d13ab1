"""Each verb of the index as both clients have it: its arguments, its request, the reading of its answer.

Pure: a function returns the call, or yields the calls of which each waits for the answer before it
(`Steps`). remote.py makes methods of them.

Depends on answers, arrow, call, errors, index_service.answer, receipt and value_rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tierdex.client import answers
from tierdex.client.arrow import arrow_body, entry_columns, read_table
from tierdex.client.call import ARROW_STREAM, Call, json_body, query_string
from tierdex.errors import NotFoundError
from tierdex.index_service.answer import DEFAULT_BUCKETS
from tierdex.index_service.forget.receipt import name_of_request
from tierdex.value_rules import check_text, one_or_many

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tierdex.client.call import Steps
    from tierdex.column_types import Integers, KeyLists, Lookup, Texts, Times
    from tierdex.index_service.answer import Answer, Histogram, KnownTopics
    from tierdex.index_service.file_info import FileInfo, NodeInfo, TableInfo, TopicInfo
    from tierdex.index_service.forget.receipt import Receipt
    from tierdex.index_service.journey import Journey
    from tierdex.times import Time
    from tierdex.value_rules import Durability, Keys, OnError

_WAIT_STEP_S = 10.0


def put(
    *,
    topic: str,
    key: str | None = None,
    keys: Keys | None = None,
    message_id: str | None = None,
    queue_id: int,
    offset: int,
    size: int,
    timestamp: Time,
    durability: Durability = "os",
) -> Call[str]:
    """Put one entry; return the level reached. Raises what `Index.put` raises."""
    one_or_many(key, keys)
    listed = keys
    if keys is not None:  # a set, say
        listed = [keys] if isinstance(keys, str) else list(keys)
    entry = {
        "topic": topic, "key": key, "keys": listed, "message_id": message_id, "queue_id": queue_id,
        "offset": offset, "size": size, "timestamp": timestamp,
    }  # fmt: skip
    given = {name: value for name, value in entry.items() if value is not None}
    body = {"entries": [given], "durability": durability}
    # Put twice it is found once: a lookup returns an entry of one key, location and time once.
    return Call("POST", "/v1/entries", _durability, body=json_body(body))


def put_batch(
    *,
    topic: Texts,
    key: Texts | None = None,
    keys: KeyLists | None = None,
    message_id: Texts | None = None,
    queue_id: Integers,
    offset: Integers,
    size: Integers,
    timestamp: Times,
    durability: Durability = "os",
) -> Call[str]:
    """Put columns (Arrow, numpy, lists, or one value for all rows), all or nothing."""
    columns = {
        "topic": topic, "keys": one_or_many(key, keys), "message_id": message_id,
        "queue_id": queue_id, "offset": offset, "size": size, "timestamp": timestamp,
    }  # fmt: skip
    body = arrow_body(entry_columns(columns))
    level = {"durability": durability}
    return Call("POST", "/v1/entries", _durability, level, body, ARROW_STREAM)


def flush(durability: Durability = "os") -> Call[str]:
    """Bring everything put so far to a level; return it."""
    body: dict[str, Any] = {"entries": [], "durability": durability}
    return Call("POST", "/v1/entries", _durability, body=json_body(body))


def _durability(body: bytes) -> str:
    return str(answers.read_json(body)["durability"])


def query(
    topic: str | None = None,
    *,
    key: str | None = None,
    message_id: str | None = None,
    begin: Time | None = None,
    end: Time | None = None,
    max_count: int | None = None,
    cursor: str | None = None,
    explain: bool = False,
    on_error: OnError = "partial",
    fresh_within: float | None = None,
    id_time: str | None = None,
    proof: bool = False,
    hints: bool = False,
    snapshot: str | int | None = None,
    message: bool = False,
    max_message_bytes: int | None = None,
    message_timeout: float | None = None,
) -> Call[Answer]:
    """Find the messages of one key or message ID; times are milliseconds or RFC 3339.

    With `message` each entry has its `message`, or why there is none, within the two limits. `snapshot` is
    one of a followed table's: its ID or version.
    """
    asked = query_string(
        topic=topic, key=key, message_id=message_id, begin=begin, end=end, max_count=max_count,
        cursor=cursor, explain=explain, on_error=on_error, fresh_within=fresh_within,
        id_time=id_time, proof=proof, hints=hints, snapshot=snapshot, message=message,
        max_message_bytes=max_message_bytes, message_timeout=message_timeout,
    )  # fmt: skip
    return Call("GET", "/v1/entries", answers.read_answer, asked)


def histogram(
    topic: str | None = None,
    *,
    key: str | None = None,
    message_id: str | None = None,
    begin: Time | None = None,
    end: Time | None = None,
    buckets: int = DEFAULT_BUCKETS,
    max_count: int | None = None,
    on_error: OnError = "partial",
    fresh_within: float | None = None,
) -> Call[Histogram]:
    """Count the entries of one key or message ID by time: those of all pages of `query` together."""
    asked = query_string(
        topic=topic, key=key, message_id=message_id, begin=begin, end=end, buckets=buckets,
        max_count=max_count, on_error=on_error, fresh_within=fresh_within,
    )  # fmt: skip
    return Call("GET", "/v1/histogram", answers.read_histogram, asked)


def journey(
    key: str,
    *,
    begin: Time | None = None,
    end: Time | None = None,
    max_count: int | None = None,
    on_error: OnError = "partial",
    fresh_within: float | None = None,
    message: bool = False,
) -> Call[Journey]:
    """Find one key in every topic, oldest entry first; `max_count` newest of each topic (None: 16)."""
    asked = query_string(
        key=key, begin=begin, end=end, max_count=max_count, on_error=on_error,
        fresh_within=fresh_within, message=message,
    )  # fmt: skip
    return Call("GET", "/v1/journeys", answers.read_journey, asked)


def query_batch(
    lookups: Sequence[Lookup],
    *,
    max_count: int | None = None,
    on_error: OnError = "partial",
    fresh_within: float | None = None,
    message: bool = False,
    max_message_bytes: int | None = None,
    message_timeout: float | None = None,
) -> Call[list[Answer]]:
    """Answer many lookups in order; `max_count` is for those that do not say it.

    `message` and its limits are as in `query`; `message_timeout` is for all of them together.
    """
    asked = query_string(
        on_error=on_error, max_count=max_count, fresh_within=fresh_within, message=message,
        max_message_bytes=max_message_bytes, message_timeout=message_timeout,
    )  # fmt: skip
    body = json_body({"lookups": list(lookups)})
    return Call("POST", "/v1/entries:batchGet", answers.read_answers, asked, body)


def query_batch_arrow(
    lookups: Any,
    *,
    max_count: int = 1,
    on_error: OnError = "fail",
    fresh_within: float | None = None,
) -> Call[Any]:
    """Answer a table of lookups as a table of entries with a column `lookup`.

    With ``on_error="partial"`` the metadata of its schema holds `missing`, as with the embedded
    `Index`.
    """
    asked = query_string(on_error=on_error, max_count=max_count, fresh_within=fresh_within)
    body = arrow_body(lookups)
    return Call("POST", "/v1/entries:batchGet", read_table, asked, body, ARROW_STREAM)


def topics() -> Call[list[str]]:
    """Return the topics that have entries, sorted."""
    return Call("GET", "/v1/topics", lambda body: list(answers.read_json(body)["topics"]))


def known_topics(*, fresh_within: float | None = None) -> Call[KnownTopics]:
    """Return the topics that have entries, until when these are all, and who may hold others."""
    asked = query_string(as_of=True, fresh_within=fresh_within)
    return Call("GET", "/v1/topics", answers.read_known_topics, asked)


def watermark(topic: str, queue_id: int, *, node: str | None = None) -> Call[dict[str, int | None]]:
    """Return the end offset of each level: `os`, `disk`, `remote`; with `node`, its `published`."""
    levels = ("os", "disk", "remote") if node is None else ("published",)

    def read(body: bytes) -> dict[str, int | None]:
        document = answers.read_json(body)
        return {level: document[level] for level in levels}

    asked = query_string(topic=topic, queue_id=queue_id, node=node)
    return Call("GET", "/v1/watermark", read, asked)


def files() -> Call[list[FileInfo]]:
    """Return every index file, newest first."""
    return Call("GET", "/v1/admin/files", answers.read_files)


def topic_infos() -> Call[list[TopicInfo]]:
    """Return the topics, sorted, with their counts and times; those of a message log, too."""
    return Call("GET", "/v1/topics", answers.read_topic_infos, query_string(details=True))


def tables() -> Call[list[TableInfo]]:
    """Return the lake's tables that topics of the service follow, by topic."""
    return Call("GET", "/v1/tables", answers.read_tables)


def nodes() -> Call[list[NodeInfo]]:
    """Return every node of the store; `problem` tells why one cannot be read."""
    return Call("GET", "/v1/admin/nodes", answers.read_nodes)


def metrics() -> Call[str]:
    """Return the service's metrics in Prometheus' text form."""
    return Call("GET", "/metrics", bytes.decode)


def clock_skew() -> Call[float | None]:
    """Return how many seconds the service's clock is ahead of the store's; None: not known."""
    return Call("GET", "/v1/admin/nodes", lambda body: answers.read_json(body).get("clock_skew_s"))


def _quoted(file_id: str) -> str:
    return quote(check_text(file_id, "file_id"), safe="")


def file(file_id: str) -> Call[FileInfo]:
    """Return one file. Raises NotFoundError."""
    return Call("GET", f"/v1/admin/files/{_quoted(file_id)}", answers.read_file)


def verify_file(file_id: str) -> Call[list[str]]:
    """Return the broken rules of a file, in words."""
    path = f"/v1/admin/files/{_quoted(file_id)}:verify"
    return Call("POST", path, lambda body: list(answers.read_json(body)["problems"]))


def compaction_status() -> Call[dict[str, Any]]:
    """Return backlog, running job, last error, totals, oldest unpublished age."""
    return Call("GET", "/v1/admin/compaction", answers.read_json)


def run_compaction() -> Call[int]:
    """Compact and publish all that is due; return the number of units done."""
    path = "/v1/admin/compaction:run"
    return Call(
        "POST", path, lambda body: int(answers.read_json(body)["done"]), is_repeatable=False
    )


def roll() -> Call[bool]:
    """Roll the file; return whether it held anything."""
    path = "/v1/admin/roll"
    return Call(
        "POST", path, lambda body: bool(answers.read_json(body)["rolled"]), is_repeatable=False
    )


def refresh() -> Call[None]:
    """Make the service read every node's manifest now."""
    return Call("POST", "/v1/admin/refresh", lambda _body: None)


def expire(*, before: Time, dry_run: bool = False) -> Call[list[FileInfo]]:
    """Drop (or only name) the files sealed before `before` (ms)."""
    body = json_body({"before": before, "dry_run": dry_run})
    return Call("POST", "/v1/admin/expire", answers.read_files, body=body, is_repeatable=False)


def forget(
    lookups: Sequence[Mapping[str, Any]],
    *,
    now: bool = False,
    only: Sequence[tuple[int, int]] | None = None,
    wait: float = 0.0,
    dry_run: bool = False,
) -> Steps[Receipt]:
    """Forget keys and message IDs on every node; see `Index.forget`."""
    first, *later = waits_of(0.0 if dry_run else wait)
    order = {"lookups": list(lookups), "now": now, "only": only, "dry_run": dry_run, "wait": first}
    body = json_body(order)
    call = Call("POST", "/v1/admin/forget", answers.read_receipt, body=body, is_repeatable=False)
    return _see_through(call, later)


def resume_forgetting(forgetting: str | Receipt, *, wait: float = 0.0) -> Steps[Receipt]:
    """Continue a request to forget. Raises NotFoundError once no object holds its entries."""
    first, *later = waits_of(wait)
    return _see_through(_resume(forgetting, first), later)


def _resume(forgetting: str | Receipt, wait: float) -> Call[Receipt]:
    body = json_body({"forgetting": name_of_request(forgetting), "wait": wait})
    return Call(
        "POST", "/v1/admin/forget:resume", answers.read_receipt, body=body, is_repeatable=False
    )


def _see_through(call: Call[Receipt], waits: Sequence[float]) -> Steps[Receipt]:
    receipt: Receipt = yield call
    for wait in waits:
        if receipt.is_complete:
            break
        try:
            receipt = yield _resume(receipt, wait)
        except NotFoundError:
            return answers.ended(receipt)
    return receipt


def waits_of(seconds: float) -> list[float]:
    """Split a wait into those of single requests, below the clients' timeout and that of a proxy."""
    steps = [_WAIT_STEP_S] * int(seconds // _WAIT_STEP_S)
    rest = seconds - sum(steps)
    return [*steps, rest] if rest or not steps else steps


def forgettings() -> Call[list[str]]:
    """Return the requests to forget of which some object may still hold entries, oldest first."""
    return Call("GET", "/v1/admin/forget", lambda body: answers.read_json(body)["forgettings"])
