"""The brokers of RabbitMQ's streams: connections, chunks of messages, and errors of ours for theirs.

The client is asynchronous. Its event loop belongs to one source and runs only inside its calls, in the thread
that makes them; between two calls the brokers keep what was asked for. Each stream is asked at its leader:
another broker may not yet have what was read before.

A *chunk* is what a broker delivers: messages that were written together, at successive offsets. What is asked
of one connection is answered in order, so that an answer behind a subscription tells that no chunk is there.

Depends on connections, errors, options and rstream.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from rstream import exceptions, schema
from rstream.client import Client
from rstream.constants import OffsetType

from tierdex.connections import trusting
from tierdex.errors import NotFoundError, PermissionDeniedError, UnavailableError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from tierdex.following.sources.options import Address

FIRST: Final = schema.OffsetSpec(OffsetType.FIRST)
LAST: Final = schema.OffsetSpec(OffsetType.LAST)
SUBSCRIPTIONS: Final = 200  # of one connection at most
_PROBE: Final = 255  # the subscription that takes one chunk
_CREDIT: Final = 20  # chunks that a broker may be ahead of us
_FRAME_MAX: Final = 1 << 20
_CLOSING_S: Final = 1.0
_DENIED: Final = (
    exceptions.AuthenticationFailure,
    exceptions.SASLError,
    exceptions.SASLAuthenticationFailureLoopback,
    exceptions.VirtualHostAccessFailure,
    exceptions.AccessRefused,
)
# Its lines would show logins (as frames that were sent), and errors that our callers hear of anyway.
logging.getLogger("rstream").setLevel(logging.CRITICAL)


def behind(offset: int) -> schema.OffsetSpec:
    """Return where the chunk with this offset is, else the first one behind it."""
    return schema.OffsetSpecOffset(OffsetType.OFFSET, offset)


class Brokers:
    """The connections of one source, made when they are first needed. `chunks` came, and were not taken."""

    def __init__(
        self, address: Address, servers: Sequence[str], vhost: str, trusted: str | None
    ) -> None:
        """`trusted` is a file of authorities, "" for the system's; None: without TLS."""
        self._address = address
        self._servers = [each.rpartition(":")[::2] for each in servers]
        self._vhost = vhost
        self._ssl = None if trusted is None else trusting(trusted or None, field="ca_file")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Future[str] | None = None  # by why; of any connection
        self._connections: dict[tuple[str, int] | None, _Connection] = {}  # None: the first one
        self._readers: dict[int, _Connection] = {}  # by subscription
        self._probed: Any = None
        self._came = asyncio.Event()
        self.chunks: deque[Any] = deque()

    # -- calls ---------------------------------------------------------------------------------------

    def ask(self, call: Coroutine[Any, Any, Any]) -> Any:
        """Run a call to its end. Raises UnavailableError, NotFoundError, PermissionDeniedError."""
        if self._loop is None:
            self._loop, self._came = asyncio.new_event_loop(), asyncio.Event()
            self._loop.set_exception_handler(lambda _, told: self.end(str(told.get("exception"))))
        if self._ended is None:
            self._ended = self._loop.create_future()
        try:
            return self._loop.run_until_complete(self._until_ended(call, self._ended))
        except exceptions.StreamDoesNotExist:
            raise NotFoundError(f"{self._address.shown}: there is no such stream") from None
        except _DENIED as error:
            self.drop()
            raise PermissionDeniedError(self._said(error)) from None
        except (
            exceptions.ServerError, exceptions.ClientError, OSError, EOFError,
            AssertionError, LookupError, ValueError,  # of an answer that the client does not expect
        ) as error:  # fmt: skip
            self.drop()
            raise UnavailableError(self._said(error)) from None

    def drop(self) -> None:
        """End every connection, and with it what was subscribed."""
        connections, self._connections = list(self._connections.values()), {}
        self._readers.clear()
        self.chunks.clear()
        self._ended = None
        if self._loop is not None:
            self._loop.run_until_complete(_end_all(connections))

    def close(self) -> None:
        """End everything. Idempotent."""
        self.drop()
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    def end(self, why: str) -> None:
        """Note that a connection ended, or what came by it is not understood: nothing more will come."""
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(why)

    @property
    def is_subscribed(self) -> bool:
        return bool(self._readers)

    # -- what is asked; each to be run by `ask` ----------------------------------------------------------

    async def leader_of(self, stream: str) -> _Connection:
        """Return the connection to a stream's leader."""
        if None not in self._connections:
            self._connections[None] = await self._connect_any()
        first = self._connections[None]
        leader, _ = await first.query_leader_and_replicas(stream)
        place = (leader.host, leader.port)
        if place == first.advertised:  # however it is reached from here
            return first
        if place not in self._connections:
            self._connections[place] = await self._connect(*place)
        return self._connections[place]

    async def subscribe(self, positions: Mapping[int, tuple[str, int]]) -> None:
        """Subscribe to chunks of some streams: {subscription: (stream, position)}."""
        for number, (stream, position) in positions.items():
            connection = await self.leader_of(stream)
            self._readers[number] = connection
            await connection.subscribe(stream, number, behind(position), _CREDIT)

    async def one_chunk(
        self, stream: str, where: schema.OffsetSpec, patience_s: float = 0.0
    ) -> Any:
        """Return the chunk there; None where there is none, after some patience."""
        connection = await self.leader_of(stream)
        await connection.subscribe(stream, _PROBE, where, 1)
        await connection.stream_exists(stream)  # answered behind the chunk
        found = await self._arrived(lambda: self._probed, patience_s)
        await connection.unsubscribe(_PROBE)
        self._probed = None
        return found

    async def take_chunk(self, patience_s: float) -> Any:
        """Return the next chunk of what is subscribed, and let another one come; None: none came in time."""
        if not await self._arrived(lambda: self.chunks, patience_s):
            return None
        chunk = self.chunks.popleft()
        await self._readers[chunk.subscription_id].credit(chunk.subscription_id, 1)
        return chunk

    async def _arrived(self, look: Callable[[], Any], patience_s: float) -> Any:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                while not look():
                    self._came.clear()
                    await self._came.wait()
        return look()

    def deliver(self, chunk: Any) -> None:
        """Keep a chunk that came."""
        if chunk.subscription_id == _PROBE:
            self._probed = chunk
        elif chunk.subscription_id in self._readers:
            self.chunks.append(chunk)
        self._came.set()

    # -- connections ---------------------------------------------------------------------------------

    async def _until_ended(self, call: Coroutine[Any, Any, Any], ended: asyncio.Future[str]) -> Any:
        task = asyncio.ensure_future(call)
        await asyncio.wait((task, ended), return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait((task,), timeout=_CLOSING_S)  # it may be about to tell why it ended
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise EOFError(ended.result())
        return task.result()

    async def _connect_any(self) -> _Connection:
        failed: OSError | None = None
        for host, port in self._servers:
            try:
                return await self._connect(host.strip("[]"), int(port))
            except OSError as error:
                failed = error
        assert failed is not None
        raise failed

    async def _connect(self, host: str, port: int) -> _Connection:
        connection = _Connection(host, port, self._ssl, self)
        user, password = self._address.user or "guest", self._address.password or "guest"
        try:
            await connection.start()
            await connection.authenticate(self._vhost, user, password)
        except BaseException:
            await connection.cut()
            raise
        return connection

    def _said(self, error: BaseException) -> str:
        said = str(error) or type(error).__name__
        return f"{self._address.shown}: {self._address.without_secrets(said)}"


class _Connection(Client):  # type: ignore[misc]
    """A connection to one broker. It sends no heartbeats: its loop stands still between calls."""

    def __init__(
        self, host: str, port: int, context: ssl.SSLContext | None, brokers: Brokers
    ) -> None:
        super().__init__(
            host, port, ssl_context=context, frame_max=_FRAME_MAX, heartbeat=0,
            connection_name="tierdex", connection_closed_handler=lambda told: brokers.end(told.reason),
        )  # fmt: skip
        self._deliver = brokers.deliver
        self.add_stream("tierdex")  # else its end goes unnoticed
        self.add_handler(schema.Deliver, self._deliver, name="0")
        self.add_handler(schema.MetadataUpdate, lambda _: brokers.end("a stream moved"), name="0")

    async def start(self) -> None:
        await super().start()
        await self.run_queue_listener_task(0, self._deliver)

    @property
    def advertised(self) -> tuple[str, int]:
        """What the broker calls itself."""
        told = self.server_properties or {}
        return told.get("advertised_host", ""), int(told.get("advertised_port", 0))

    async def end(self) -> None:
        """Close it by a frame. The client's own `close` would wait in vain."""
        if self.is_connection_alive():
            said = schema.Close(self._corr_id_seq.next(), code=1, reason="OK")
            with contextlib.suppress(TimeoutError, OSError, exceptions.ServerError):
                await asyncio.wait_for(self.sync_request(said, schema.CloseResponse), _CLOSING_S)
        await self.cut()

    async def cut(self) -> None:
        """End it without a word."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._conn is not None and self._conn._writer is not None:
            with contextlib.suppress(OSError):
                await self._conn.close()


async def _end_all(connections: Sequence[_Connection]) -> None:
    await asyncio.gather(*[each.end() for each in connections])
