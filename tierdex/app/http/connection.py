"""One caller's connection: HTTP/1.1 as uvicorn and httptools speak it, with limits on what they leave open.

* A request's head must arrive within `connection_timeout` and be no longer than 32 KiB, an answer must be
  taken at some speed, and there are at most `max_connections`.
* A caller that closes its sending half after a whole request gets its answer all the same.
* A connection whose caller has bytes on their way is closed slowly: closing at once would make its system
  throw the answer away (a TCP reset). So first our sending half, then all of it.
* Bytes that are not HTTP are answered as every other error: with a problem, after the answers that are
  owed for the requests before them.

How it watches: two timers a connection, none a request. What it relies on in uvicorn beyond its settings:
the class `HttpToolsProtocol`, its attributes `cycle` (the newest request) and `pipeline` (those that wait,
the newest first), and `send_400_response`. Depends on uvicorn, request_parser, problems.
"""

from __future__ import annotations

import sys
from collections import deque
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tierdex.app.http.problems import PROBLEM_JSON, HttpRefusalError, problem_document
from tierdex.app.http.request_parser import RequestParser
from tierdex.errors import InvalidRequestError, UnavailableError

if TYPE_CHECKING:
    import asyncio

    from uvicorn.config import Config
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
    from uvicorn.server import ServerState

    from tierdex.app.http.service import Service

LARGEST_HEAD_BYTES = 32 * 1024
_JOINED_BYTES = 64 * 1024  # of a body: copying more costs more than a system call
_HEAD_BEGIN = (b"HTTP/1.1 2", b"HTTP/1.1 3", b"HTTP/1.1 4", b"HTTP/1.1 5")  # not 100
_LINGER_S = 2.0  # at most, for a caller to read the last answer and to close


class _Transport:
    """The transport that uvicorn sees: it joins an answer's head and body, and closes slowly.

    uvicorn writes them one by one, which costs a system call and a packet more; a lookup takes less.
    """

    def __init__(self, transport: asyncio.Transport, connection: Connection) -> None:
        self._connection = connection
        self._write = transport.write
        self._head = b""  # kept until some of the body is there, or the answer is complete
        self.is_closing = connection.is_closing
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading
        self.get_extra_info = transport.get_extra_info

    def write(self, data: bytes) -> None:
        if self._head:
            if len(data) <= _JOINED_BYTES:
                data, self._head = b"".join((self._head, data)), b""
            else:
                self.flush()
        elif data.startswith(_HEAD_BEGIN):
            self._head = data
            return
        self._write(data)

    def flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._write(head)

    def close(self) -> None:
        self.flush()
        self._connection.close()


class Connection(HttpToolsProtocol):
    """A connection of the service whose application is `config.app`."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._service: Service = config.app.state.service  # type: ignore[union-attr]
        self._timeout_s = self._service.settings.connection_timeout
        self.parser = RequestParser(self)  # type: ignore[assignment]
        self._socket: asyncio.Transport
        self._owed: deque[RequestResponseCycle] = (
            deque()
        )  # requests without an answer, oldest first
        self._is_in_message = False  # some of a request is here, and more is to come
        self._is_in_head = False
        self._messages_begun = 0  # in the bytes that are being parsed
        self._head_parsed = 0  # bytes of the head that has begun, as the parser told
        self._head_received = 0  # and as they came: a line that does not end is not told
        self._idle_since = 0.0  # when it was made, or its last answer was complete
        self._has_ended = False  # nothing more will come; what came is still answered
        self._is_lingering = False  # all is written; what still comes is not read
        self._refusal: Exception | None = None  # to be answered behind all that is owed
        self._unsent = 0
        self._watch: asyncio.TimerHandle | None = None

    # -- what the event loop calls ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._socket = transport
        self._uvicorn_transport = _Transport(transport, self)
        super().connection_made(self._uvicorn_transport)  # type: ignore[arg-type]
        self._idle_since = self.loop.time()
        self._watch = self.loop.call_later(self._timeout_s / 2, self._look)
        if len(self.connections) > self._service.settings.max_connections:
            self._refuse(UnavailableError("too many connections"))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch is not None:
            self._watch.cancel()
        while self._owed:
            self._let_go_of_newest()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_lingering or self._refusal is not None:
            return
        begins_with_head = not self._is_in_message
        self._messages_begun = 0
        super().data_received(data)
        if (
            self._is_in_head and self._messages_begun == begins_with_head
        ):  # all of it is of this head
            self._head_received += len(data)
            self._check_head(self._head_received)

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Keep the sending half open while whole requests wait for their answers."""
        self._has_ended = True
        if self._is_in_message and not self._is_in_head:
            self._let_go_of_newest()
        return bool(self._owed) and not self._is_lingering  # else the loop closes the connection

    # -- what the parser calls ----------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._is_in_message = self._is_in_head = True
        self._head_parsed = self._head_received = 0
        self._messages_begun += 1
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._head_parsed += len(url)
        self._check_head(self._head_parsed)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_parsed += len(name) + len(value)
        self._check_head(self._head_parsed)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._refusal is not None or self.is_closing():
            return
        self._is_in_head = False
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before:
            self._owed.append(self.cycle)

    def on_body(self, body: bytes) -> None:
        if self._refusal is None and not self.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self._refusal is None and not self.is_closing():
            self._is_in_message = False
            super().on_message_complete()

    def _check_head(self, size: int) -> None:
        if size > LARGEST_HEAD_BYTES:
            self._refuse(HttpRefusalError(431, "the request's head is too large"))

    # -- what uvicorn calls -------------------------------------------------------------------------

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not HTTP; called where the parser's error is being handled."""
        reason = sys.exception() or msg
        self._refuse(InvalidRequestError(f"is not HTTP/1.1: {reason}", field="request"))

    def on_response_complete(self) -> None:
        self._idle_since = self.loop.time()
        self._owed.popleft()
        self._uvicorn_transport.flush()
        super().on_response_complete()  # takes up the next request, when it is here already
        if self._owed or self.is_closing():
            return
        if self._refusal is not None:
            self._write_refusal()
        elif self._has_ended or (self.expect_100_continue and self._is_in_message):
            # The caller may send the body that it asked about, or the next request: who knows.
            self.close()

    def shutdown(self) -> None:
        if self._is_lingering:
            self._socket.abort()
        else:
            super().shutdown()

    def is_closing(self) -> bool:
        return self._is_lingering or self._socket.is_closing()

    def close(self) -> None:
        """Close the connection; slowly, where bytes of the caller are not read."""
        if self.is_closing():
            return
        if self._has_ended or not (self._is_in_message or self._refusal is not None):
            self._socket.close()
            return
        self._is_lingering = True
        self._socket.resume_reading()  # what comes is dropped
        self._socket.write_eof()  # behind what was written
        if self._watch is not None:
            self._watch.cancel()
        linger_s = min(_LINGER_S, self._timeout_s)
        self._watch = self.loop.call_later(linger_s, self._end_lingering)

    # -- limits -------------------------------------------------------------------------------------

    def _look(self) -> None:
        """End the connection when it is idle, or its caller takes nothing, for too long."""
        unsent = self._socket.get_write_buffer_size()
        if unsent and 0 < self._unsent <= unsent:
            self._socket.abort()
            return
        self._unsent = unsent
        self._watch = self.loop.call_later(self._timeout_s / 2, self._look)
        if self._owed or unsent or self.loop.time() - self._idle_since <= self._timeout_s:
            return
        if self._is_in_head:
            self._refuse(HttpRefusalError(408, f"no whole request within {self._timeout_s:g} s"))
        else:
            self.close()  # also while a body comes that was answered long ago

    def _end_lingering(self) -> None:
        """Close what the caller did not; at once where it did not even read."""
        if self._socket.get_write_buffer_size():
            self._watch = self.loop.call_later(self._timeout_s / 2, self._socket.abort)
        else:
            self._socket.close()

    def _refuse(self, error: Exception) -> None:
        """Answer with a problem behind the answers that are owed, and read no more."""
        if self._refusal is not None or self.is_closing():
            return
        self._refusal = error
        if self._is_in_message and not self._is_in_head:
            self._let_go_of_newest()  # its body is broken: the refusal is its answer
        if not self._owed:
            self._write_refusal()

    def _let_go_of_newest(self) -> None:
        """Forget the newest request; tell the application, if it works on it, that nobody waits."""
        if not self._owed:
            return
        cycle = self._owed.pop()
        if self.pipeline and self.pipeline[0][0] is cycle:
            self.pipeline.popleft()
        cycle.disconnected = True
        cycle.message_event.set()

    def _write_refusal(self) -> None:
        assert self._refusal is not None
        document = problem_document(self._refusal, self._service.ids.token(9))
        status = HTTPStatus(document["status"])
        body = orjson.dumps(document)
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: {PROBLEM_JSON}\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self._socket.write(head.encode() + body)
        self.close()
