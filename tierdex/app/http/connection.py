"""One caller's connection: uvicorn's HTTP/1.1 over httptools, with the limits that uvicorn lacks.

* A request's head must arrive within `connection_timeout` and have at most 32 KiB. A caller must
  keep reading its answer. There are at most `max_connections`.
* A caller that closes its sending half after a whole request still gets its answer.
* A connection whose caller is still sending is closed slowly: first our sending half, later both.
  Closing both at once makes the caller's system discard the answer (a TCP reset).
* Bytes that are not HTTP are answered with a problem, after the answers to the requests before
  them.

Limits take two timers a connection and none a request. Beyond uvicorn's settings this module relies
on the class `HttpToolsProtocol`, its attributes `cycle` (the newest request) and `pipeline`
(waiting requests, newest first), and `send_400_response`.

Depends on uvicorn, request_parser and problems.
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

    uvicorn writes head and body one by one, which takes a system call and a packet more: longer
    than a lookup.
    """

    def __init__(self, transport: asyncio.Transport, connection: Connection) -> None:
        self._connection = connection
        self._write = transport.write
        self._head = b""  # kept until body bytes follow, or the answer is complete
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
        self._unanswered: deque[RequestResponseCycle] = (
            deque()
        )  # requests without an answer, oldest first
        self._is_in_message = False  # a request has begun to arrive and is not complete
        self._is_in_head = False
        self._messages_begun = 0  # within the bytes that are being parsed
        self._head_parsed = 0  # bytes of the begun head that the parser has reported
        self._head_received = 0  # and that have arrived: the parser reports no unfinished line
        self._idle_since = 0.0  # since the connection was made, or its last answer was complete
        self._has_ended = False  # the caller sends no more; its requests are still answered
        self._is_lingering = False  # all is written; further bytes are discarded
        self._refusal: Exception | None = None  # sent after the answers that are due
        self._unsent = 0
        self._watch: asyncio.TimerHandle | None = None

    # -- called by the event loop ------------------------------------------------------------------

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
        while self._unanswered:
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
        ):  # all of the data belongs to this head
            self._head_received += len(data)
            self._check_head(self._head_received)

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Keep the sending half open while whole requests wait for their answers."""
        self._has_ended = True
        if self._is_in_message and not self._is_in_head:
            self._let_go_of_newest()
        # Else the loop closes the connection, as TLS does in any case.
        return bool(self._unanswered) and not self._is_lingering and self._socket.can_write_eof()

    # -- called by the parser ----------------------------------------------------------------------

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
            self._unanswered.append(self.cycle)

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

    # -- called by uvicorn -------------------------------------------------------------------------

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not HTTP; called where the parser's error is being handled."""
        reason = sys.exception() or msg
        self._refuse(InvalidRequestError(f"is not HTTP/1.1: {reason}", field="request"))

    def on_response_complete(self) -> None:
        self._idle_since = self.loop.time()
        self._unanswered.popleft()
        self._uvicorn_transport.flush()
        super().on_response_complete()  # starts the next request, if it has arrived
        if self._unanswered or self.is_closing():
            return
        if self._refusal is not None:
            self._write_refusal()
        elif self._has_ended or (self.expect_100_continue and self._is_in_message):
            # The next bytes may be the body that the caller asked about, or its next request: unknown.
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
        self._socket.resume_reading()  # arriving bytes are discarded
        if self._socket.can_write_eof():  # TLS has no end of one half
            self._socket.write_eof()  # after what was written
        if self._watch is not None:
            self._watch.cancel()
        linger_s = min(_LINGER_S, self._timeout_s)
        self._watch = self.loop.call_later(linger_s, self._end_lingering)

    # -- limits -------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Close the connection when it is idle, or its caller reads nothing, for too long."""
        unsent = self._socket.get_write_buffer_size()
        if unsent and 0 < self._unsent <= unsent:
            self._socket.abort()
            return
        self._unsent = unsent
        self._watch = self.loop.call_later(self._timeout_s / 2, self._look)
        if self._unanswered or unsent or self.loop.time() - self._idle_since <= self._timeout_s:
            return
        if self._is_in_head:
            self._refuse(HttpRefusalError(408, f"no whole request within {self._timeout_s:g} s"))
        else:
            self.close()  # also while the body of an answered request arrives

    def _end_lingering(self) -> None:
        """Close what the caller left open; at once when the caller read nothing."""
        if self._socket.get_write_buffer_size():
            self._watch = self.loop.call_later(self._timeout_s / 2, self._socket.abort)
        else:
            self._socket.close()

    def _refuse(self, error: Exception) -> None:
        """Answer with a problem after the answers that are due, and read no more."""
        if self._refusal is not None or self.is_closing():
            return
        self._refusal = error
        if self._is_in_message and not self._is_in_head:
            self._let_go_of_newest()  # its body is broken, so the refusal is its answer
        if not self._unanswered:
            self._write_refusal()

    def _let_go_of_newest(self) -> None:
        """Drop the newest request; tell the application that its caller has left."""
        if not self._unanswered:
            return
        cycle = self._unanswered.pop()
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
