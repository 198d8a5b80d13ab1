"""One caller's connection: HTTP/1.1 as uvicorn and h11 speak it, with limits on what they leave open.

* A request's head must arrive within `connection_timeout`, an answer must be taken at some speed, and
  there are at most `max_connections`: a caller who does neither, many times over, costs nothing.
* A caller that closes its sending half after a whole request gets its answer all the same.
* Bytes that are not HTTP are answered as every other error: with a problem.

How it watches: one timer a connection, not one a request. Depends on uvicorn, h11, problems.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import h11
import orjson
from uvicorn.protocols.http.h11_impl import H11Protocol

from tierdex.app.problems import PROBLEM_JSON, HttpRefusalError, problem_document
from tierdex.errors import InvalidRequestError, UnavailableError

if TYPE_CHECKING:
    import asyncio

    from uvicorn.config import Config
    from uvicorn.server import ServerState

    from tierdex.app.doors import Service

LARGEST_HEAD_BYTES = 32 * 1024
_CAN_ANSWER = (h11.IDLE, h11.SEND_RESPONSE)


class _OneWrite(h11.Connection):
    """Keeps an answer's head until some of its body is there: one system call, one packet for both."""

    _head = b""

    def send(self, event: h11.Event) -> bytes | None:  # type: ignore[override]
        data = super().send(event)
        if isinstance(event, h11.Response):
            self._head = data or b""
            return b""
        if self._head:
            data, self._head = self._head + (data or b""), b""
        return data


class Connection(H11Protocol):
    """A connection of the service whose application is `config.app`."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.conn = _OneWrite(h11.SERVER, LARGEST_HEAD_BYTES)
        self._service: Service = config.app.state.service  # type: ignore[union-attr]
        self._timeout_s = self._service.settings.connection_timeout
        self._idle_since = 0.0  # when it was made, or its last answer was complete
        self._has_ended = False  # nothing more will come; what came is still answered
        self._is_refused = False  # an answer was given that ends it; what still comes is not read
        self._unsent = 0
        self._watch: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._idle_since = self.loop.time()
        if len(self.connections) > self._service.settings.max_connections:
            self._refuse(UnavailableError("too many connections"))
            self.transport.close()
        self._watch = self.loop.call_later(self._timeout_s / 2, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch is not None:
            self._watch.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        if len(data) <= LARGEST_HEAD_BYTES:
            super().data_received(data)
            return
        # In pieces, since h11 measures a head only while it is not whole.
        piece = LARGEST_HEAD_BYTES + 1
        for begin in range(0, len(data), piece):
            if not self._is_refused:
                super().data_received(data[begin : begin + piece])

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Keep the sending half open while a whole request waits for its answer."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body:
            return None  # asyncio closes the connection
        self._has_ended = True
        return True

    def on_response_complete(self) -> None:
        self._idle_since = self.loop.time()
        super().on_response_complete()  # takes up the next request, when it is here already
        if not self._has_ended:
            return
        if self.cycle.response_complete:
            self.transport.close()
        elif self.cycle.more_body:
            self._let_go_of_request()

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not HTTP; called where h11's error is being handled."""
        error = sys.exception()
        hint = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
        if hint == 431:
            self._refuse(HttpRefusalError(431, "the request's head is too large"))
        else:
            self._refuse(InvalidRequestError(f"is not HTTP/1.1: {error or msg}", field="request"))

    def _look(self) -> None:
        """End the connection when it is idle, or its caller takes nothing, for too long."""
        unsent = self.transport.get_write_buffer_size()
        if self._is_refused or (unsent and 0 < self._unsent <= unsent):
            self.transport.abort()
            return
        self._unsent = unsent
        is_idle = self.cycle is None or self.cycle.response_complete
        if is_idle and self.loop.time() - self._idle_since > self._timeout_s and not unsent:
            if self.conn.trailing_data[0]:  # some of a request is here
                self._refuse(
                    HttpRefusalError(408, f"no whole request within {self._timeout_s:g} s")
                )
            else:
                self.transport.close()
        self._watch = self.loop.call_later(self._timeout_s / 2, self._look)

    def shutdown(self) -> None:
        if self._is_refused:
            self.transport.abort()
        else:
            super().shutdown()

    def _refuse(self, error: Exception) -> None:
        """Answer with a problem where an answer has not begun, and say no more.

        The caller is given until the next look to read it: closing at once, with bytes of it unread,
        would make its system throw the answer away.
        """
        if self._is_refused or self.transport.is_closing():
            return
        self._is_refused = True
        self._let_go_of_request()
        if self.conn.our_state in _CAN_ANSWER:
            document = problem_document(error, self._service.ids.token(9))
            body = orjson.dumps(document)
            headers = [
                (b"content-type", PROBLEM_JSON.encode()),
                (b"content-length", str(len(body)).encode()),
                (b"connection", b"close"),
            ]
            response = h11.Response(status_code=document["status"], headers=headers)
            for event in (response, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.flow.resume_reading()
        self.transport.write_eof()

    def _let_go_of_request(self) -> None:
        """Tell the application, if it works for this connection, that nobody waits any more."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
