"""`Client` and `AsyncClient`: the verbs of `Index` and `MessageLog`, over HTTP.

Names, classes of answers and errors are those of the embedded index; `received` means the service's
memory. Each verb is described once, in calls.py and message_calls.py (see verbs.py); the clients differ only
in how they wait. Reads and puts are repeated when the service or the network fails, appends are not (see
retrying.py).

Depends on httpx2, anyio, clock, connections, errors, ids, fork and the other modules of this folder.
Async lives here and in app/ only.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import httpx2

from tierdex.client import calls
from tierdex.client.call import Call
from tierdex.client.refusals import error_of
from tierdex.client.remote_log import AsyncLogReading, LogReading
from tierdex.client.retrying import Retry
from tierdex.client.verbs import Verb
from tierdex.clock import Bell, SystemClock
from tierdex.connections import trace_headers, trusting
from tierdex.errors import InvalidRequestError, NotFoundError, UnavailableError
from tierdex.fork import tell_child
from tierdex.ids import SystemIds, __version__

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from tierdex.client.call import Pause, Work
    from tierdex.clock import Clock
    from tierdex.ids import IdSource

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
        compressed: bool = False,
        timeout_s: float = _DEFAULT_TIMEOUT_S,
        attempts: int = _DEFAULT_ATTEMPTS,
        ca: str | None = None,
        transport: Any = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
    ) -> None:
        """Make a client; nothing is sent yet. `attempts` counts the first one.

        `compressed` asks for compressed answers: for slow lines; in one network it costs more than it saves.
        `ca` is a file (PEM) of the authorities that an `https://` service is believed with, instead of the
        system's. `api_key` may also be a token (JWT), where the service takes tokens.

        `transport` stands in for the network in tests. Raises InvalidRequestError for a bad URL.
        """
        if not url.startswith(("http://", "https://")):
            raise InvalidRequestError("must be an address like http://host:8080", field="url")
        self.url = url.rstrip("/")
        self._attempts = attempts
        self._clock = clock or SystemClock()
        self._ids = ids or SystemIds()
        headers = {"user-agent": f"tierdex/{__version__}"}
        if not compressed:
            headers["accept-encoding"] = "identity"
        if api_key is not None:
            if not (isinstance(api_key, str) and api_key.isascii()):
                raise InvalidRequestError("must be ASCII text", field="api_key")
            headers["authorization"] = f"Bearer {api_key}"
        self._options: dict[str, Any] = {
            "base_url": self.url,
            "headers": headers,
            "timeout": timeout_s,
            "transport": transport,
        }
        if ca is not None:
            self._options["verify"] = trusting(ca, field="ca")
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
        return Retry(self._attempts, is_repeatable=call.is_repeatable, ids=self._ids)


def _request(call: Call[Any]) -> dict[str, Any]:
    headers = {"content-type": call.media_type} if call.method == "POST" else {}
    return {
        "method": call.method,
        "url": call.path,
        "params": dict(call.query) or None,
        "content": call.body or None,
        "headers": {**headers, **trace_headers(), **call.headers},
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


class _IndexVerbs:
    """The verbs of an index that both clients have."""

    put = Verb(calls.put)
    put_batch = Verb(calls.put_batch)
    flush = Verb(calls.flush)
    query = Verb(calls.query)
    histogram = Verb(calls.histogram)
    journey = Verb(calls.journey)
    query_batch = Verb(calls.query_batch)
    query_batch_arrow = Verb(calls.query_batch_arrow)
    topics = Verb(calls.topics)
    known_topics = Verb(calls.known_topics)
    topic_infos = Verb(calls.topic_infos)
    watermark = Verb(calls.watermark)
    files = Verb(calls.files)
    nodes = Verb(calls.nodes)
    tables = Verb(calls.tables)
    metrics = Verb(calls.metrics)
    clock_skew = Verb(calls.clock_skew)
    file = Verb(calls.file)
    verify_file = Verb(calls.verify_file)
    compaction_status = Verb(calls.compaction_status)
    run_compaction = Verb(calls.run_compaction)
    roll = Verb(calls.roll)
    refresh = Verb(calls.refresh)
    expire = Verb(calls.expire)
    forget = Verb(calls.forget)
    resume_forgetting = Verb(calls.resume_forgetting)
    forgettings = Verb(calls.forgettings)


class Client(_Connection, _IndexVerbs, LogReading):
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

    def _do(self, work: Work[T]) -> T:
        """Send a call, or the steps that come, each after the answer to the one before."""
        if isinstance(work, Call):
            return self._send(work)
        advance: Callable[[], Call[Any] | Pause] = partial(next, work)
        while True:
            try:
                step = advance()
            except StopIteration as end:
                result: T = end.value
                return result
            try:
                advance = partial(work.send, self._answer(step))
            except NotFoundError as error:
                advance = partial(work.throw, error)

    def _answer(self, step: Call[Any] | Pause) -> Any:
        if isinstance(step, Call):
            return self._send(step)
        return self._pause(step.seconds)

    def _send(self, call: Call[T]) -> T:
        retry = self._retry(call)
        while True:
            try:
                return _read(call, self._connected().request(**_request(call)))
            except Exception as error:  # noqa: BLE001 - Retry raises what is not to be tried again
                pause_s = retry.pause_after(error)
            self._pause(pause_s)

    def _pause(self, seconds: float) -> float:
        if seconds:
            self._clock.wait(Bell(), seconds)
        return self._clock.monotonic()


class AsyncClient(_Connection, _IndexVerbs, AsyncLogReading):
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

    async def _do(self, work: Work[T]) -> T:
        """Send a call, or the steps that come, each after the answer to the one before."""
        if isinstance(work, Call):
            return await self._send(work)
        advance: Callable[[], Call[Any] | Pause] = partial(next, work)
        while True:
            try:
                step = advance()
            except StopIteration as end:
                result: T = end.value
                return result
            try:
                advance = partial(work.send, await self._answer(step))
            except NotFoundError as error:
                advance = partial(work.throw, error)

    async def _answer(self, step: Call[Any] | Pause) -> Any:
        if isinstance(step, Call):
            return await self._send(step)
        return await self._pause(step.seconds)

    async def _send(self, call: Call[T]) -> T:
        retry = self._retry(call)
        while True:
            try:
                return _read(call, await self._connected().request(**_request(call)))
            except Exception as error:  # noqa: BLE001 - Retry raises what is not to be tried again
                pause_s = retry.pause_after(error)
            await self._pause(pause_s)

    async def _pause(self, seconds: float) -> float:
        if seconds:
            await anyio.sleep(seconds)
        return self._clock.monotonic()
