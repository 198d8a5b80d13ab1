"""One caller's connection: HTTP/1.1 as uvicorn and h11 speak it, with limits on what they leave open.

* A request's head must arrive within `connection_timeout`, an answer must be taken at some speed, and
  there are at most `max_connections`: a caller who does neither, many times over, costs nothing.
* A caller that closes its sending half after a whole request gets its answer all the same.
* Bytes that are not HTTP are answered as every other error: with a problem.

A request in its plainest form passes h11 by (`plain_request`, `plain_cycle`). What else comes is
h11's to read, and to refuse; both begin only where the request before is over.

How it watches: two timers a connection, none a request. Depends on uvicorn, h11, problems.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import h11
import orjson
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.h11_impl import H11Protocol

from tierdex.app.plain_cycle import PlainCycle
from tierdex.app.plain_request import PlainRequest, read_plain_request
from tierdex.app.problems import PROBLEM_JSON, HttpRefusalError, problem_document
from tierdex.app.request_body import WHOLE_BODY
from tierdex.errors import InvalidRequestError, UnavailableError

if TYPE_CHECKING:
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
        self._plain: PlainCycle | None = None  # the plain request that is not over yet
        self._body_left = 0  # bytes of its body that have not come
        self._behind = b""  # what came behind it
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
        if self._plain is None:
            request = read_plain_request(data, LARGEST_HEAD_BYTES) if self._is_between() else None
            if request is None:
                self._give_to_h11(data)
                return
            self._begin(request)
            data = data[request.head_bytes :]
        self._take(data)

    def _give_to_h11(self, data: bytes) -> None:
        if len(data) <= LARGEST_HEAD_BYTES:
            super().data_received(data)
            return
        # In pieces, since h11 measures a head only while it is not whole.
        piece = LARGEST_HEAD_BYTES + 1
        for begin in range(0, len(data), piece):
            if not self._is_refused:
                super().data_received(data[begin : begin + piece])

    def _is_between(self) -> bool:
        """Say whether h11 is done with all that it was given."""
        conn = self.conn
        return conn.their_state is h11.IDLE is conn.our_state and not conn.trailing_data[0]

    def _begin(self, request: PlainRequest) -> None:
        """Let the application work on a plain request, as H11Protocol does for others."""
        raw_path, _, query_string = request.target.partition(b"?")
        self.scope = {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": "1.1",
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,  # type: ignore[typeddict-item]
            "method": request.method,
            "root_path": self.root_path,
            "path": self.root_path + unquote(raw_path.decode()),
            "raw_path": self.root_path.encode() + raw_path,
            "query_string": query_string,
            "headers": request.headers,
            "state": self.app_state.copy(),
        }
        self._plain = self.cycle = PlainCycle(
            scope=self.scope,
            conn=self.conn,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            on_response=self._plain_answered,
        )
        self._body_left = request.body_bytes
        if self._body_left:
            self.scope["extensions"] = {WHOLE_BODY: {"take": self._plain.whole_body}}
        else:
            self._plain.take(b"", more=False)
        self._plain.start(self.loop, self.app, self.tasks)

    def _take(self, data: bytes) -> None:
        """Take what comes while a plain request is not over: its body, then what is behind it."""
        cycle = self._plain
        assert cycle is not None
        if self._body_left:
            piece, data = data[: self._body_left], data[self._body_left :]
            self._body_left -= len(piece)
            if not cycle.response_complete:  # else nobody reads it any more
                cycle.take(piece, more=self._body_left > 0)
                if len(cycle.body) > HIGH_WATER_LIMIT:
                    self.flow.pause_reading()
        if data:
            self._behind += data
            self.flow.pause_reading()
        if cycle.response_complete and not self._body_left:
            self._take_up_next()

    def _take_up_next(self) -> None:
        self._plain = None
        data, self._behind = self._behind, b""
        self.flow.resume_reading()
        if data:
            self.data_received(data)

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
        self._end_when_last()

    def _plain_answered(self) -> None:
        self._idle_since = self.loop.time()
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self.timeout_keep_alive_task is None:
            self._keep_alive_for(self.timeout_keep_alive)
        self.flow.resume_reading()
        if not self._body_left:
            self._take_up_next()
        self._end_when_last()

    def _keep_alive_for(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(
            seconds, self.timeout_keep_alive_handler
        )

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection when it is idle for long; plain answers do not set the timer anew."""
        self.timeout_keep_alive_task = None
        if self._plain is not None and not self._plain.response_complete:
            return  # its answer sets the timer
        rest = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if rest > 0:
            self._keep_alive_for(rest)
        else:
            super().timeout_keep_alive_handler()

    def _end_when_last(self) -> None:
        """Close a connection that nothing more comes on, once all that came is answered."""
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
