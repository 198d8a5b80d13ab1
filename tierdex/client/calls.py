"""Each verb of the index as an HTTP call: the request, and the reading of its response.

Pure. The synchronous and the asynchronous client send the same calls.

Depends on orjson, pyarrow, answers and times.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import quote

import orjson

from tierdex.client import answers
from tierdex.errors import InvalidRequestError, NotFoundError
from tierdex.times import written_times

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from tierdex.index_service.answer import Answer
    from tierdex.index_service.file_info import FileInfo, NodeInfo
    from tierdex.index_service.journey import Journey
    from tierdex.index_service.receipt import Receipt
    from tierdex.times import Time

T = TypeVar("T")
JSON = "application/json"
ARROW_STREAM = "application/vnd.apache.arrow.stream"
_WAIT_STEP_S = 10.0


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request. `is_read`: it changes nothing, so it may be repeated."""

    method: str
    path: str
    read: Callable[[bytes], T]
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    media_type: str = JSON
    is_read: bool = True
    headers: Mapping[str, str] = field(default_factory=dict)


if TYPE_CHECKING:
    Steps = Generator[Call[T], T, T]  # calls of which each is answered before the next


def put(entry: Mapping[str, Any], durability: str) -> Call[str]:
    given = {name: value for name, value in entry.items() if value is not None}
    if "keys" in given and not isinstance(given["keys"], str):
        given["keys"] = list(given["keys"])
    body = {"entries": [given], "durability": durability}
    return Call("POST", "/v1/entries", _durability, body=json_body(body), is_read=False)


def put_batch(columns: Mapping[str, Any], durability: str) -> Call[str]:
    return Call(
        "POST",
        "/v1/entries",
        _durability,
        {"durability": durability},
        arrow_body(_table(columns)),
        ARROW_STREAM,
        is_read=False,
    )


def flush(durability: str) -> Call[str]:
    body = {"entries": [], "durability": durability}
    return Call("POST", "/v1/entries", _durability, body=json_body(body))


def query(**values: Any) -> Call[Answer]:
    return Call("GET", "/v1/entries", answers.read_answer, query_string(values))


def journey(**values: Any) -> Call[Journey]:
    return Call("GET", "/v1/journeys", answers.read_journey, query_string(values))


def query_batch(
    lookups: Sequence[Mapping[str, Any]],
    max_count: int | None,
    on_error: str,
    fresh_within: float | None,
) -> Call[list[Answer]]:
    body = json_body({"lookups": list(lookups)})
    asked = query_string(
        {"on_error": on_error, "max_count": max_count, "fresh_within": fresh_within}
    )
    return Call("POST", "/v1/entries:batchGet", answers.read_answers, asked, body)


def query_batch_arrow(
    lookups: Any, max_count: int, on_error: str, fresh_within: float | None
) -> Call[Any]:
    return Call(
        "POST",
        "/v1/entries:batchGet",
        read_table,
        query_string({"on_error": on_error, "max_count": max_count, "fresh_within": fresh_within}),
        arrow_body(lookups),
        ARROW_STREAM,
    )


def topics() -> Call[list[str]]:
    return Call("GET", "/v1/topics", lambda body: list(answers.read_json(body)["topics"]))


def watermark(topic: str, queue_id: int, node: str | None) -> Call[dict[str, int | None]]:
    levels = ("os", "disk", "remote") if node is None else ("published",)

    def read(body: bytes) -> dict[str, int | None]:
        document = answers.read_json(body)
        return {level: document[level] for level in levels}

    query = {"topic": topic, "queue_id": str(queue_id)}
    return Call("GET", "/v1/watermark", read, query if node is None else {**query, "node": node})


def files() -> Call[list[FileInfo]]:
    return Call("GET", "/v1/admin/files", answers.read_files)


def nodes() -> Call[list[NodeInfo]]:
    return Call("GET", "/v1/admin/nodes", answers.read_nodes)


def metrics() -> Call[str]:
    return Call("GET", "/metrics", bytes.decode)


def clock_skew() -> Call[float | None]:
    return Call("GET", "/v1/admin/nodes", lambda body: answers.read_json(body).get("clock_skew_s"))


def file(file_id: str) -> Call[FileInfo]:
    return Call("GET", f"/v1/admin/files/{quote(file_id, safe='')}", answers.read_file)


def verify_file(file_id: str) -> Call[list[str]]:
    path = f"/v1/admin/files/{quote(file_id, safe='')}:verify"
    return Call("POST", path, lambda body: list(answers.read_json(body)["problems"]))


def compaction_status() -> Call[dict[str, Any]]:
    return Call("GET", "/v1/admin/compaction", answers.read_json)


def run_compaction() -> Call[int]:
    path = "/v1/admin/compaction:run"
    return Call("POST", path, lambda body: int(answers.read_json(body)["done"]), is_read=False)


def roll() -> Call[bool]:
    path = "/v1/admin/roll"
    return Call("POST", path, lambda body: bool(answers.read_json(body)["rolled"]), is_read=False)


def refresh() -> Call[None]:
    return Call("POST", "/v1/admin/refresh", lambda _body: None)


def forget(order: Mapping[str, Any]) -> Call[Receipt]:
    body = json_body(order)
    return Call("POST", "/v1/admin/forget", answers.read_receipt, body=body, is_read=False)


def resume_forgetting(forgetting: str | Receipt, wait: float) -> Call[Receipt]:
    name = forgetting if isinstance(forgetting, str) else forgetting.forgetting
    body = json_body({"forgetting": name, "wait": wait})
    return Call("POST", "/v1/admin/forget:resume", answers.read_receipt, body=body, is_read=False)


def forget_through(order: Mapping[str, Any], wait: float) -> Steps[Receipt]:
    """Yield the calls of a request to forget, and of going on with it for `wait` seconds."""
    first, *later = waits_of(wait)
    return _see_through(forget({**order, "wait": first}), later)


def resume_through(forgetting: str | Receipt, wait: float) -> Steps[Receipt]:
    """Yield the calls of going on with a request to forget for `wait` seconds."""
    first, *later = waits_of(wait)
    return _see_through(resume_forgetting(forgetting, first), later)


def _see_through(call: Call[Receipt], waits: Sequence[float]) -> Steps[Receipt]:
    receipt = yield call
    for wait in waits:
        if receipt.is_complete:
            break
        try:
            receipt = yield resume_forgetting(receipt, wait)
        except NotFoundError:
            return answers.ended(receipt)
    return receipt


def waits_of(seconds: float) -> list[float]:
    """Split a wait into those of single requests, below the clients' timeout and that of a proxy."""
    steps = [_WAIT_STEP_S] * int(seconds // _WAIT_STEP_S)
    rest = seconds - sum(steps)
    return [*steps, rest] if rest or not steps else steps


def forgettings() -> Call[list[str]]:
    return Call("GET", "/v1/admin/forget", lambda body: answers.read_json(body)["forgettings"])


def expire(before: Time, dry_run: bool) -> Call[list[FileInfo]]:
    body = json_body({"before": before, "dry_run": dry_run})
    return Call("POST", "/v1/admin/expire", answers.read_files, body=body, is_read=False)


def json_body(document: Any) -> bytes:
    try:
        return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError as error:  # what JSON cannot say: a number beyond 64 bits, a lone surrogate
        raise InvalidRequestError(f"cannot be sent: {error}") from error


def _durability(body: bytes) -> str:
    return str(answers.read_json(body)["durability"])


def query_string(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the values that are set, as text; False is the default of the one flag there is."""
    return {
        name: "true" if value is True else _text(value)
        for name, value in values.items()
        if value is not None and value is not False
    }


def _text(value: Any) -> str:
    return str(value) if not isinstance(value, datetime) else value.isoformat()


def _table(columns: Mapping[str, Any]) -> Any:
    """Return an Arrow table; a single value stands for every row."""
    import pyarrow as pa

    given = {name: value for name, value in columns.items() if value is not None}
    given["timestamp"] = written_times(given.get("timestamp"), "entries[{}].timestamp".format)
    lengths = [len(value) for value in given.values() if not _is_single(value)]
    count = lengths[0] if lengths else 1
    arrays: dict[str, Any] = {}
    for name, value in given.items():
        try:
            arrays[name] = pa.repeat(value, count) if _is_single(value) else _column(value)
        except (pa.ArrowException, TypeError, OverflowError, UnicodeEncodeError) as error:
            raise InvalidRequestError(f"cannot be sent: {error}", field=name) from error
        if len(arrays[name]) != count:
            raise InvalidRequestError(
                f"has {len(arrays[name])} rows, another column has {count}", field=name
            )
    return pa.table(arrays)


def _column(value: Any) -> Any:
    import pyarrow as pa

    return value if isinstance(value, pa.Array | pa.ChunkedArray) else pa.array(value)


def _is_single(value: Any) -> bool:
    return isinstance(value, str | int | float | bytes) or not hasattr(value, "__len__")


def arrow_body(table: Any) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def read_table(body: bytes) -> Any:
    import pyarrow as pa

    with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
        return reader.read_all()


def entry_of(
    topic: str,
    keys: Iterable[str] | None,
    message_id: str | None,
    queue_id: int,
    offset: int,
    size: int,
    timestamp: Time,
) -> dict[str, Any]:
    """Return one entry as a JSON object, as every API takes it."""
    return {
        "topic": topic, "keys": keys, "message_id": message_id, "queue_id": queue_id,
        "offset": offset, "size": size, "timestamp": timestamp,
    }  # fmt: skip
