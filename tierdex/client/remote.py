"""`Client` and `AsyncClient`: the verbs of `Index` and `MessageLog`, over HTTP.

Names, classes of answers and errors are those of the embedded index; `received` means the service's
memory. Both clients send the calls of calls.py and differ only in how they wait. Reads are repeated
when the service or the network fails, puts are not (see retrying.py).

Depends on httpx2, client.calls, fork, refusals, remote_log and retrying. Async lives here
and in app/ only.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import httpx2

from tierdex import __version__
from tierdex.client import calls
from tierdex.client.refusals import error_of
from tierdex.client.remote_log import AsyncLogVerbs, LogVerbs
from tierdex.client.retrying import Retry
from tierdex.clock import Bell, SystemClock
from tierdex.errors import InvalidRequestError, NotFoundError, UnavailableError
from tierdex.fork import tell_child
from tierdex.ids import SystemIds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from tierdex.client.calls import Call, Steps
    from tierdex.clock import Clock
    from tierdex.ids import IdSource
    from tierdex.index_service.answer import Answer
    from tierdex.index_service.file_info import FileInfo, NodeInfo
    from tierdex.index_service.journey import Journey
    from tierdex.index_service.receipt import Receipt
    from tierdex.times import Time
    from tierdex.value_rules import Durability, Keys, OnError

T = TypeVar("T")
_DEFAULT_TIMEOUT_S = 30.0
_DEFAULT_ATTEMPTS = 4


class _Connection:
    """The common part of both clients: address, headers, and the reading of a response."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout_s: float = _DEFAULT_TIMEOUT_S,
        attempts: int = _DEFAULT_ATTEMPTS,
        transport: Any = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
    ) -> None:
        """Make a client; nothing is sent yet. `attempts` counts the first one.

        `transport` stands in for the network in tests. Raises InvalidRequestError for a bad URL.
        """
        if not url.startswith(("http://", "https://")):
            raise InvalidRequestError("an address like http://host:8080", field="url")
        self.url = url.rstrip("/")
        self._attempts = attempts
        self._clock = clock or SystemClock()
        self._ids = ids or SystemIds()
        headers = {"user-agent": f"tierdex/{__version__}"}
        if api_key is not None:
            headers["authorization"] = f"Bearer {api_key}"
        self._options: dict[str, Any] = {
            "base_url": self.url,
            "headers": headers,
            "timeout": timeout_s,
            "transport": transport,
        }
        self._connecting = threading.Lock()
        self._http: Any = None  # made at the first call of each process
        self._of_parent: Any = None
        tell_child(self._after_fork)

    def _after_fork(self) -> None:
        """Connect anew: two processes that share a connection read each other's answers."""
        self._connecting = threading.Lock()
        self._of_parent, self._http = (
            self._http,
            None,
        )  # kept alive: a child of fork may call no library

    def _connected(self) -> Any:
        """Return the HTTP client of this process."""
        if self._http is None:
            with self._connecting:
                if self._http is None:
                    self._http = self._connect()
        return self._http

    def _connect(self) -> Any:
        raise NotImplementedError

    def _retry(self, call: Call[Any]) -> Retry:
        return Retry(self._attempts, is_read=call.is_read, ids=self._ids)


def _request(call: Call[Any]) -> dict[str, Any]:
    headers = {"content-type": call.media_type} if call.method == "POST" else {}
    return {
        "method": call.method,
        "url": call.path,
        "params": dict(call.query) or None,
        "content": call.body or None,
        "headers": {**headers, **call.headers},
    }


def _read(call: Call[T], response: httpx2.Response) -> T:
    if response.status_code != 200:
        raise error_of(response.status_code, response.headers, response.content)
    try:
        return call.read(response.content)
    except (ValueError, LookupError, TypeError) as error:  # a proxy's page, say
        raise UnavailableError(
            f"{call.path} was answered with 200, but not by the service: check for a proxy in between"
        ) from error


class Client(_Connection, LogVerbs):
    """A service, called synchronously. Safe to share between threads, and with children of fork."""

    def _connect(self) -> httpx2.Client:
        return httpx2.Client(**self._options)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._connected().close()

    def _send(self, call: Call[T]) -> T:
        retry = self._retry(call)
        while True:
            try:
                return _read(call, self._connected().request(**_request(call)))
            except Exception as error:  # noqa: BLE001 - Retry raises what is not to be tried again
                pause_s = retry.pause_after(error)
            self._clock.wait(Bell(), pause_s)

    def _follow(self, steps: Steps[T]) -> T:
        """Send the calls that come, each after the answer to the one before; return what they come to."""
        advance: Callable[[], Call[T]] = partial(next, steps)
        while True:
            try:
                call = advance()
            except StopIteration as end:
                result: T = end.value
                return result
            try:
                advance = partial(steps.send, self._send(call))
            except NotFoundError as error:
                advance = partial(steps.throw, error)

    def put(
        self,
        *,
        topic: str,
        keys: Keys | None = None,
        message_id: str | None = None,
        queue_id: int,
        offset: int,
        size: int,
        timestamp: Time,
        durability: Durability = "os",
    ) -> str:
        """Put one entry; return the level reached. Raises what `Index.put` raises."""
        entry = calls.entry_of(topic, keys, message_id, queue_id, offset, size, timestamp)
        return self._send(calls.put(entry, durability))

    def put_batch(
        self,
        *,
        topic: Any,
        keys: Any = None,
        message_id: Any = None,
        queue_id: Any,
        offset: Any,
        size: Any,
        timestamp: Any,
        durability: Durability = "os",
    ) -> str:
        """Put columns (Arrow, numpy, lists, or one value for all rows), all or nothing."""
        columns = {
            "topic": topic, "keys": keys, "message_id": message_id, "queue_id": queue_id,
            "offset": offset, "size": size, "timestamp": timestamp,
        }  # fmt: skip
        return self._send(calls.put_batch(columns, durability))

    def flush(self, durability: Durability = "os") -> str:
        """Bring everything put so far to a level; return it."""
        return self._send(calls.flush(durability))

    def query(
        self,
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
        message: bool = False,
        max_message_bytes: int | None = None,
        message_timeout: float | None = None,
    ) -> Answer:
        """Find the messages of one key or message ID; times are milliseconds or RFC 3339.

        With `message` each entry has its `message`, or why there is none, within the two limits.
        """
        call = calls.query(
            topic=topic, key=key, message_id=message_id, begin=begin, end=end,
            max_count=max_count, cursor=cursor, explain=explain, on_error=on_error,
            fresh_within=fresh_within, id_time=id_time, proof=proof, message=message,
            max_message_bytes=max_message_bytes, message_timeout=message_timeout,
        )  # fmt: skip
        return self._send(call)

    def journey(
        self,
        key: str,
        *,
        begin: int | str | None = None,
        end: int | str | None = None,
        max_count: int | None = None,
        on_error: OnError = "partial",
        message: bool = False,
    ) -> Journey:
        """Find one key in every topic, oldest entry first; `max_count` newest of each topic (None: 16)."""
        call = calls.journey(
            key=key, begin=begin, end=end, max_count=max_count, on_error=on_error, message=message
        )
        return self._send(call)

    def query_batch(
        self,
        lookups: Sequence[Mapping[str, Any]],
        *,
        max_count: int | None = None,
        on_error: OnError = "partial",
        fresh_within: float | None = None,
    ) -> list[Answer]:
        """Answer many lookups in order; `max_count` is for those that do not say it."""
        return self._send(calls.query_batch(lookups, max_count, on_error, fresh_within))

    def query_batch_arrow(
        self,
        lookups: Any,
        *,
        max_count: int = 1,
        on_error: OnError = "fail",
        fresh_within: float | None = None,
    ) -> Any:
        """Answer a table of lookups as a table of entries with a column `lookup`.

        With ``on_error="partial"`` the metadata of its schema holds `missing`, as with the embedded
        `Index`.
        """
        return self._send(calls.query_batch_arrow(lookups, max_count, on_error, fresh_within))

    def topics(self) -> list[str]:
        """Return the topics that have entries, sorted."""
        return self._send(calls.topics())

    def watermark(
        self, topic: str, queue_id: int, *, node: str | None = None
    ) -> dict[str, int | None]:
        """Return the end offset of each level: `os`, `disk`, `remote`; with `node`, its `published`."""
        return self._send(calls.watermark(topic, queue_id, node))

    def files(self) -> list[FileInfo]:
        """Return every index file, newest first."""
        return self._send(calls.files())

    def nodes(self) -> list[NodeInfo]:
        """Return every node of the store; `problem` tells why one cannot be read."""
        return self._send(calls.nodes())

    def metrics(self) -> str:
        """Return the service's metrics in Prometheus' text form."""
        return self._send(calls.metrics())

    def clock_skew(self) -> float | None:
        """Return how many seconds the service's clock is ahead of the store's; None: not known."""
        return self._send(calls.clock_skew())

    def file(self, file_id: str) -> FileInfo:
        """Return one file. Raises NotFoundError."""
        return self._send(calls.file(file_id))

    def verify_file(self, file_id: str) -> list[str]:
        """Return the broken rules of a file, in words."""
        return self._send(calls.verify_file(file_id))

    def compaction_status(self) -> dict[str, Any]:
        """Return backlog, running job, last error, totals, oldest unpublished age."""
        return self._send(calls.compaction_status())

    def run_compaction(self) -> int:
        """Compact and publish all that is due; return the number of units done."""
        return self._send(calls.run_compaction())

    def roll(self) -> bool:
        """Go on in the next file; return whether there was anything to roll."""
        return self._send(calls.roll())

    def refresh(self) -> None:
        """Let the service read every node's manifest now."""
        self._send(calls.refresh())

    def expire(self, *, before: Time, dry_run: bool = False) -> list[FileInfo]:
        """Drop (or only name) the files sealed before `before` (ms)."""
        return self._send(calls.expire(before, dry_run))

    def forget(
        self,
        lookups: Sequence[Mapping[str, Any]],
        *,
        now: bool = False,
        only: Sequence[tuple[int, int]] | None = None,
        wait: float = 0.0,
        dry_run: bool = False,
    ) -> Receipt:
        """Forget keys and message IDs on every node; see `Index.forget`."""
        order = {"lookups": list(lookups), "now": now, "only": only, "dry_run": dry_run}
        return self._follow(calls.forget_through(order, 0.0 if dry_run else wait))

    def resume_forgetting(self, forgetting: str | Receipt, *, wait: float = 0.0) -> Receipt:
        """Go on with a request to forget. Raises NotFoundError once no object holds its entries."""
        return self._follow(calls.resume_through(forgetting, wait))

    def forgettings(self) -> list[str]:
        """Return the requests to forget of which some object may still hold entries, oldest first."""
        return self._send(calls.forgettings())


class AsyncClient(_Connection, AsyncLogVerbs):
    """A service, called from a coroutine: the same verbs, awaited."""

    def _connect(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(**self._options)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._connected().aclose()

    async def _send(self, call: Call[T]) -> T:
        retry = self._retry(call)
        while True:
            try:
                return _read(call, await self._connected().request(**_request(call)))
            except Exception as error:  # noqa: BLE001 - Retry raises what is not to be tried again
                pause_s = retry.pause_after(error)
            await anyio.sleep(pause_s)

    async def _follow(self, steps: Steps[T]) -> T:
        """Send the calls that come, each after the answer to the one before; return what they come to."""
        advance: Callable[[], Call[T]] = partial(next, steps)
        while True:
            try:
                call = advance()
            except StopIteration as end:
                result: T = end.value
                return result
            try:
                advance = partial(steps.send, await self._send(call))
            except NotFoundError as error:
                advance = partial(steps.throw, error)

    async def put(
        self,
        *,
        topic: str,
        keys: Keys | None = None,
        message_id: str | None = None,
        queue_id: int,
        offset: int,
        size: int,
        timestamp: Time,
        durability: Durability = "os",
    ) -> str:
        """Put one entry; return the level reached. Raises what `Index.put` raises."""
        entry = calls.entry_of(topic, keys, message_id, queue_id, offset, size, timestamp)
        return await self._send(calls.put(entry, durability))

    async def put_batch(
        self,
        *,
        topic: Any,
        keys: Any = None,
        message_id: Any = None,
        queue_id: Any,
        offset: Any,
        size: Any,
        timestamp: Any,
        durability: Durability = "os",
    ) -> str:
        """Put columns (Arrow, numpy, lists, or one value for all rows), all or nothing."""
        columns = {
            "topic": topic, "keys": keys, "message_id": message_id, "queue_id": queue_id,
            "offset": offset, "size": size, "timestamp": timestamp,
        }  # fmt: skip
        return await self._send(calls.put_batch(columns, durability))

    async def flush(self, durability: Durability = "os") -> str:
        """Bring everything put so far to a level; return it."""
        return await self._send(calls.flush(durability))

    async def query(
        self,
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
        message: bool = False,
        max_message_bytes: int | None = None,
        message_timeout: float | None = None,
    ) -> Answer:
        """Find the messages of one key or message ID; times are milliseconds or RFC 3339.

        With `message` each entry has its `message`, or why there is none, within the two limits.
        """
        call = calls.query(
            topic=topic, key=key, message_id=message_id, begin=begin, end=end,
            max_count=max_count, cursor=cursor, explain=explain, on_error=on_error,
            fresh_within=fresh_within, id_time=id_time, proof=proof, message=message,
            max_message_bytes=max_message_bytes, message_timeout=message_timeout,
        )  # fmt: skip
        return await self._send(call)

    async def journey(
        self,
        key: str,
        *,
        begin: int | str | None = None,
        end: int | str | None = None,
        max_count: int | None = None,
        on_error: OnError = "partial",
        message: bool = False,
    ) -> Journey:
        """Find one key in every topic, oldest entry first; `max_count` newest of each topic (None: 16)."""
        call = calls.journey(
            key=key, begin=begin, end=end, max_count=max_count, on_error=on_error, message=message
        )
        return await self._send(call)

    async def query_batch(
        self,
        lookups: Sequence[Mapping[str, Any]],
        *,
        max_count: int | None = None,
        on_error: OnError = "partial",
        fresh_within: float | None = None,
    ) -> list[Answer]:
        """Answer many lookups in order; `max_count` is for those that do not say it."""
        return await self._send(calls.query_batch(lookups, max_count, on_error, fresh_within))

    async def query_batch_arrow(
        self,
        lookups: Any,
        *,
        max_count: int = 1,
        on_error: OnError = "fail",
        fresh_within: float | None = None,
    ) -> Any:
        """Answer a table of lookups as a table of entries with a column `lookup`.

        With ``on_error="partial"`` the metadata of its schema holds `missing`, as with the embedded
        `Index`.
        """
        return await self._send(calls.query_batch_arrow(lookups, max_count, on_error, fresh_within))

    async def topics(self) -> list[str]:
        """Return the topics that have entries, sorted."""
        return await self._send(calls.topics())

    async def watermark(
        self, topic: str, queue_id: int, *, node: str | None = None
    ) -> dict[str, int | None]:
        """Return the end offset of each level: `os`, `disk`, `remote`; with `node`, its `published`."""
        return await self._send(calls.watermark(topic, queue_id, node))

    async def files(self) -> list[FileInfo]:
        """Return every index file, newest first."""
        return await self._send(calls.files())

    async def nodes(self) -> list[NodeInfo]:
        """Return every node of the store; `problem` tells why one cannot be read."""
        return await self._send(calls.nodes())

    async def metrics(self) -> str:
        """Return the service's metrics in Prometheus' text form."""
        return await self._send(calls.metrics())

    async def clock_skew(self) -> float | None:
        """Return how many seconds the service's clock is ahead of the store's; None: not known."""
        return await self._send(calls.clock_skew())

    async def file(self, file_id: str) -> FileInfo:
        """Return one file. Raises NotFoundError."""
        return await self._send(calls.file(file_id))

    async def verify_file(self, file_id: str) -> list[str]:
        """Return the broken rules of a file, in words."""
        return await self._send(calls.verify_file(file_id))

    async def compaction_status(self) -> dict[str, Any]:
        """Return backlog, running job, last error, totals, oldest unpublished age."""
        return await self._send(calls.compaction_status())

    async def run_compaction(self) -> int:
        """Compact and publish all that is due; return the number of units done."""
        return await self._send(calls.run_compaction())

    async def roll(self) -> bool:
        """Go on in the next file; return whether there was anything to roll."""
        return await self._send(calls.roll())

    async def refresh(self) -> None:
        """Let the service read every node's manifest now."""
        await self._send(calls.refresh())

    async def expire(self, *, before: Time, dry_run: bool = False) -> list[FileInfo]:
        """Drop (or only name) the files sealed before `before` (ms)."""
        return await self._send(calls.expire(before, dry_run))

    async def forget(
        self,
        lookups: Sequence[Mapping[str, Any]],
        *,
        now: bool = False,
        only: Sequence[tuple[int, int]] | None = None,
        wait: float = 0.0,
        dry_run: bool = False,
    ) -> Receipt:
        """Forget keys and message IDs on every node; see `Index.forget`."""
        order = {"lookups": list(lookups), "now": now, "only": only, "dry_run": dry_run}
        return await self._follow(calls.forget_through(order, 0.0 if dry_run else wait))

    async def resume_forgetting(self, forgetting: str | Receipt, *, wait: float = 0.0) -> Receipt:
        """Go on with a request to forget. Raises NotFoundError once no object holds its entries."""
        return await self._follow(calls.resume_through(forgetting, wait))

    async def forgettings(self) -> list[str]:
        """Return the requests to forget of which some object may still hold entries, oldest first."""
        return await self._send(calls.forgettings())
