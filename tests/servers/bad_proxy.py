"""A bad network and a bad server over a real socket: an HTTP proxy in front of a sound S3 server.

::

    with running_bad_proxy(s3_server.endpoint_url) as proxy:
        proxy.plan = SeededFaults(seed=7, chance=0.2)      # or a function: Request -> Fault | None
        Index.open(data, store=proxy.url_of("s3://bucket/prefix"), store_timeout=0.3)

*After* means that the request reached the server and took effect, and that the caller cannot know.
`history` lists what struck. One thread, an event loop of its own; every request goes to the server on
a connection of its own, so that no fault leaks into the next request.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import socket
import struct
import threading
from enum import Enum
from typing import NamedTuple
from urllib.parse import quote, urlsplit

CRAWL_PIECES = 6


class Fault(Enum):
    """What happens to one request."""

    STATUS_500 = "500"
    STATUS_503 = "503"
    STATUS_429 = "429"
    STATUS_403 = "403"
    STATUS_500_AFTER = "500 after"
    TIMEOUT_BEFORE = "time-out before"
    TIMEOUT_AFTER = "time-out after"
    RESET_BEFORE = "reset before"
    RESET_AFTER = "reset after"
    TRUNCATED = "truncated"  # the connection ends somewhere in head or body
    CUT_HEAD = "cut head"  # it ends behind the first header, so that no length is known
    SHORT = "short"  # a shorter body, declared as such
    ALTERED = "altered"  # one bit of the body
    CONFLICT = "409"  # nothing applied
    CONFLICT_AFTER = "409 on our own success"
    TAKEN_AFTER = "412 on our own success"
    CRAWL = "crawl"


_ONLY_READS = {Fault.SHORT, Fault.ALTERED}  # of objects: a listing has no checksum, from any server
_ONLY_CONDITIONAL = {Fault.CONFLICT, Fault.CONFLICT_AFTER, Fault.TAKEN_AFTER}
_REFUSALS = {
    Fault.STATUS_500: (500, "InternalError"),
    Fault.STATUS_503: (503, "SlowDown"),
    Fault.STATUS_429: (429, "TooManyRequests"),
    Fault.STATUS_403: (403, "AccessDenied"),
    Fault.STATUS_500_AFTER: (500, "InternalError"),
    Fault.CONFLICT: (409, "ConditionalRequestConflict"),
    Fault.CONFLICT_AFTER: (409, "ConditionalRequestConflict"),
    Fault.TAKEN_AFTER: (412, "PreconditionFailed"),
}
_TAKES_EFFECT = {
    Fault.STATUS_500_AFTER, Fault.TIMEOUT_AFTER, Fault.RESET_AFTER, Fault.CONFLICT_AFTER,
    Fault.TAKEN_AFTER, Fault.TRUNCATED, Fault.CUT_HEAD, Fault.SHORT, Fault.ALTERED, Fault.CRAWL,
}  # fmt: skip


class Struck(NamedTuple):
    """One fault that happened."""

    method: str
    target: str
    fault: Fault


class Request(NamedTuple):
    """One request as it arrived; `head` is everything before the body, the blank line included."""

    method: str
    target: str
    head: bytes
    body: bytes

    def allows(self, fault):
        """Say whether this request can meet this fault."""
        if fault in _ONLY_CONDITIONAL:
            return b"if-none-match" in self.head.lower()
        if fault in _ONLY_READS:
            return self.method == "GET" and "list-type" not in self.target
        return True


class SeededFaults:
    """Each request meets, by `chance`, one of the faults that it can meet; `most` bounds them all."""

    def __init__(self, seed, chance=0.2, most=None, faults=tuple(Fault)):
        self._rng = random.Random(seed)
        self._chance = chance
        self._most = most
        self._faults = faults

    def __call__(self, request):
        if self._most == 0 or self._rng.random() >= self._chance:
            return None
        allowed = [fault for fault in self._faults if request.allows(fault)]
        # Conditional writes are few and decide most: half of their faults are their own kind.
        own = [fault for fault in allowed if fault in _ONLY_CONDITIONAL]
        fault = self._rng.choice(own if own and self._rng.random() < 0.5 else allowed)
        if self._most is not None:
            self._most -= 1
        return fault


class BadProxy:
    """`plan` decides each request's fate; `outage` true: nothing gets through, connections are reset."""

    def __init__(self, upstream, *, stall_s, crawl_s):
        parts = urlsplit(upstream)
        self._upstream = (parts.hostname, parts.port)
        self._stall_s = stall_s
        self._crawl_s = crawl_s
        self._rng = random.Random(0)
        self._tasks = set()
        self.plan = lambda _request: None
        self.outage = False
        self.history = []
        self.requests = 0
        self.endpoint_url = ""

    def url_of(self, url):
        """Return a store's url with this proxy for its address."""
        plain = url.partition("?")[0]
        return f"{plain}?endpoint_url={quote(self.endpoint_url, safe='')}"

    async def serve(self, reader, writer):
        """Serve one connection until either side ends it."""
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            while (request := await _read_request(reader, writer)) is not None:
                self.requests += 1
                if not await self._answer(request, writer):
                    break
        except (OSError, EOFError, asyncio.CancelledError):
            pass  # the caller gave up, which is what these faults are for; or it is all over
        finally:
            self._tasks.discard(task)
            writer.close()

    def cancel_all(self):
        for task in self._tasks:
            task.cancel()

    async def _answer(self, request, writer):
        """Answer one request; say whether the connection can serve another one."""
        fault = self.plan(request)
        if self.outage:
            fault = Fault.RESET_BEFORE
        if fault is not None:
            self.history.append(Struck(request.method, request.target, fault))
        head, body = b"", b""
        if fault is None or fault in _TAKES_EFFECT:
            head, body = await self._forward(request)
        if fault in _REFUSALS:
            head, body = _refusal(*_REFUSALS[fault])
        elif fault in (Fault.TIMEOUT_BEFORE, Fault.TIMEOUT_AFTER):
            await asyncio.sleep(self._stall_s)
            return False
        elif fault in (Fault.RESET_BEFORE, Fault.RESET_AFTER):
            _reset(writer)
            return False
        elif fault is Fault.SHORT:
            body = body[: self._rng.randrange(len(body) or 1)]
        elif fault is Fault.ALTERED and body:
            altered = bytearray(body)
            altered[self._rng.randrange(len(altered))] ^= 1 << self._rng.randrange(8)
            body = bytes(altered)
        if request.method != "HEAD":
            head = _with_length(head, len(body))
        if fault is Fault.TRUNCATED:
            whole = head + body
            writer.write(whole[: self._rng.randrange(len(whole))])
            await writer.drain()
            return False
        if fault is Fault.CUT_HEAD:
            writer.write(b"\r\n".join(head.split(b"\r\n")[:2]) + b"\r\n")
            await writer.drain()
            return False
        await self._write(writer, head + body, crawls=fault is Fault.CRAWL)
        return True

    async def _write(self, writer, data, *, crawls):
        size = -(-len(data) // CRAWL_PIECES) if crawls else len(data)
        for begin in range(0, len(data), size):
            if begin:
                await asyncio.sleep(self._crawl_s / CRAWL_PIECES)
            writer.write(data[begin : begin + size])
            await writer.drain()

    async def _forward(self, request):
        """Return the sound server's answer: head with the blank line, and the plain body."""
        reader, writer = await asyncio.open_connection(*self._upstream)
        try:
            writer.write(_without(request.head, b"expect", b"connection", add=b"Connection: close"))
            writer.write(request.body)
            await writer.drain()
            head = await _read_head(reader)
            while re.match(rb"HTTP/1\.1 1\d\d", head):
                head = await _read_head(reader)
            if request.method == "HEAD":
                return _without(head, b"connection"), b""
            body = await reader.read()
            if re.search(rb"\r\ntransfer-encoding: *chunked", head.lower()):
                body = _unchunked(body)
            return _without(head, b"connection", b"transfer-encoding"), body
        finally:
            writer.close()


async def _read_head(reader):
    return await reader.readuntil(b"\r\n\r\n")


async def _read_request(reader, writer):
    try:
        head = await _read_head(reader)
    except asyncio.IncompleteReadError:
        return None
    method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    if b"expect: 100-continue" in head.lower():
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    found = re.search(rb"\r\ncontent-length: *(\d+)", head.lower())
    body = await reader.readexactly(int(found[1])) if found else b""
    return Request(method, target, head, body)


def _without(head, *names, add=None):
    """Return the head without these headers, and with the line `add`."""
    lines = head.rstrip(b"\r\n").split(b"\r\n")
    kept = [line for line in lines if line.partition(b":")[0].lower() not in names]
    return b"\r\n".join([*kept, *([add] if add else []), b"", b""])


def _with_length(head, length):
    return _without(head, b"content-length", add=b"Content-Length: %d" % length)


def _unchunked(data):
    body = b""
    while data:
        size, _, rest = data.partition(b"\r\n")
        length = int(size.partition(b";")[0], 16)
        if not length:
            break
        body, data = body + rest[:length], rest[length + 2 :]
    return body


def _refusal(status, code):
    body = f"<Error><Code>{code}</Code><Message>as planned</Message></Error>".encode()
    return f"HTTP/1.1 {status} Planned\r\nContent-Type: application/xml\r\n\r\n".encode(), body


def _reset(writer):
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@contextlib.contextmanager
def running_bad_proxy(upstream, *, stall_s=1.0, crawl_s=0.12):
    """Run a proxy in front of the server at url `upstream`; yield it.

    A request that times out is held for `stall_s`; one that crawls takes `crawl_s` longer.
    """
    proxy = BadProxy(upstream, stall_s=stall_s, crawl_s=crawl_s)
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(
        asyncio.start_server(proxy.serve, "127.0.0.1", 0, limit=1 << 20)
    )
    proxy.endpoint_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    thread = threading.Thread(target=loop.run_forever, name="bad-proxy")
    thread.start()
    try:
        yield proxy
    finally:
        asyncio.run_coroutine_threadsafe(_end(proxy, server), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _end(proxy, server):
    server.close()
    proxy.cancel_all()
    await asyncio.sleep(0.01)  # the cancelled ones close their connections
