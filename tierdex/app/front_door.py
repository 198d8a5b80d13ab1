"""The outermost layer: every request passes it once, whatever happens to it further in.

It gives the request an id, refuses a foreign Host header while there are no keys (a web page that
rebinds its name to 127.0.0.1 must not reach an open service), bounds the number of requests served
at one time, and counts and logs the one line that each request gets. A line is written at once, but
those of a busy service are written together, a hundred times a second: a write each would take as
long as a lookup.

A route without a parameter in its path is found here, and its answer sent, without the framework's
layers, which cost as much as a lookup. Plain ASGI. Depends on starlette.
"""

from __future__ import annotations

import re
from asyncio import get_running_loop
from datetime import UTC, datetime
from ipaddress import ip_address
from itertools import count
from typing import TYPE_CHECKING, Any

from starlette.datastructures import MutableHeaders
from starlette.requests import Request

from tierdex.app.doors import answer_error
from tierdex.app.headers import find_header
from tierdex.app.problems import HttpRefusalError
from tierdex.app.same_origin import refuse_foreign_page
from tierdex.errors import PermissionDeniedError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from tierdex.app.doors import Endpoint, Service

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_UNROUTED = "(none)"


class FrontDoor:
    """ASGI middleware around the whole application."""

    def __init__(
        self,
        app: ASGIApp,
        service: Service,
        direct: Mapping[tuple[str, str], Endpoint] | None = None,
    ) -> None:
        """Stand before `app`. `direct` maps (method, path) to endpoints that need no router."""
        self._app = app
        self._service = service
        self._direct = {} if direct is None else direct
        # An id says which of our requests it is, and is no secret: a name for this run, and a number.
        self._id_prefix = service.ids.token(6).encode()
        self._id_numbers = count(1)
        self._unwritten: list[tuple[str, dict[str, Any], float, int]] = []
        self._next_write_s = 0.0  # of the loop's time
        self.in_flight = 0
        service.metrics.show_in_flight(lambda: self.in_flight)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            try:
                await self._app(scope, receive, send)
            finally:
                self._write_lines()  # the loop may end before their time comes
            return
        if scope["type"] != "http":  # nothing here speaks WebSocket
            await send({"type": "websocket.close", "code": 1000})
            return
        service = self._service
        started = service.clock.monotonic()
        request_id = find_header(scope, b"x-request-id")
        if request_id is None or not _REQUEST_ID.fullmatch(request_id):
            request_id = b"%b-%08x" % (self._id_prefix, next(self._id_numbers))
        state: dict[str, Any] = {
            "request_id": request_id.decode(),
            "route": _UNROUTED,
            "status": 0,  # until an answer begins
            "bytes": 0,
        }
        scope["state"] = state
        self.in_flight += 1
        try:
            refusal = self._refusal(scope)
            if refusal is not None:
                await _send_whole(answer_error(service, refusal, state), state, send)
                return
            endpoint = self._direct.get((scope["method"], scope["path"]))
            if endpoint is not None:
                await _send_whole(await endpoint(Request(scope, receive)), state, send)
            else:
                await self._app(scope, receive, _noting(state, send))
        except Exception as error:  # the last boundary: a fault in the framework or in a handler
            if state["status"]:
                raise
            await _send_whole(answer_error(service, error, state), state, send)
        finally:
            self.in_flight -= 1
            self._served(scope["method"], state, service.clock.monotonic() - started)

    def _refusal(self, scope: Scope) -> Exception | None:
        service = self._service
        if self.in_flight > service.settings.max_requests:
            return UnavailableError("too many requests at one time")
        try:
            refuse_foreign_page(scope, service.settings.allowed_origins)
        except PermissionDeniedError as error:
            return error
        is_open = not service.has_keys and service.settings.allow_anonymous is None
        if not is_open:
            return None
        host = find_header(scope, b"host") or b""
        if is_own_host(host.decode("latin-1"), service.settings.allowed_hosts):
            return None
        return HttpRefusalError(
            421, "without keys the service answers only to localhost: "
            "see `tierdex keys create` and TIERDEX_ALLOWED_HOSTS",
        )  # fmt: skip

    def _served(self, method: str, state: dict[str, Any], seconds: float) -> None:
        """Count a request that is over, and write its line, or keep it for a moment."""
        service = self._service
        if method not in _METHODS:
            method = "OTHER"
        status = state["status"] = state["status"] or 499  # nothing was sent: the caller went away
        service.metrics.count_request(state["route"], method, status, seconds)
        if not service.settings.log_requests:
            return
        loop = get_running_loop()
        left_s = self._next_write_s - loop.time()
        if left_s > 0 and not self._unwritten:
            loop.call_later(left_s, self._write_lines)
        self._unwritten.append((method, state, seconds, service.clock.now_ms()))
        if left_s <= 0:
            self._next_write_s = loop.time() + _BETWEEN_WRITES_S
            self._write_lines()

    def _write_lines(self) -> None:
        unwritten, self._unwritten = self._unwritten, []
        if unwritten:
            self._service.logger.note_all([_line(*request) for request in unwritten])


def _line(method: str, state: dict[str, Any], seconds: float, now_ms: int) -> dict[str, Any]:
    """Return the log line of a request that was over at `now_ms`."""
    line = {
        "event": "request",
        "method": method,
        "route": state["route"],
        "status": state["status"],
        "ms": round(seconds * 1000, 3),
        "bytes": state["bytes"],
        "request_id": state["request_id"],
        "time": datetime.fromtimestamp(now_ms / 1000, UTC),
    }
    return line | {name: state[name] for name in _IF_THERE if name in state}


_BETWEEN_WRITES_S = 0.01
_IF_THERE = ("key_id", "problem")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"})


async def _send_whole(response: Response, state: dict[str, Any], send: Send) -> None:
    """Send a response that has its whole body, without the layers that others pass."""
    body = response.body
    state["status"], state["bytes"] = response.status_code, len(body)
    headers = [*response.raw_headers, (b"x-request-id", state["request_id"].encode())]
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _noting(state: dict[str, Any], send: Send) -> Send:
    """Return `send`, giving the answer the request's id and noting what goes out."""

    async def send_noting(message: Message) -> None:
        if message["type"] == "http.response.start":
            state["status"] = message["status"]
            MutableHeaders(scope=message)["x-request-id"] = state["request_id"]
        elif message["type"] == "http.response.body":
            state["bytes"] += len(message.get("body", b""))
        await send(message)

    return send_noting


def is_own_host(host: str, allowed: list[str]) -> bool:
    """Say whether a Host header names this machine's loopback, or a name that was allowed."""
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    name = name.strip("[]").lower()
    if name == "localhost" or name in allowed:
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
