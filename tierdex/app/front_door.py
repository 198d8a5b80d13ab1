"""The outermost layer: every request passes it once, whatever happens to it further in.

It gives the request an id, refuses a foreign Host header while there are no keys (a web page that
rebinds its name to 127.0.0.1 must not reach an open service), bounds the number of requests served
at one time, and counts and logs the one line that each request gets.

A route without a parameter in its path is found here, and its answer sent, without the framework's
layers, which cost as much as a lookup. Plain ASGI. Depends on starlette.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from starlette.datastructures import MutableHeaders
from starlette.requests import Request

from tierdex.app.doors import answer_error
from tierdex.app.problems import HttpRefusalError
from tierdex.errors import UnavailableError

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
        self.in_flight = 0
        service.metrics.show_in_flight(lambda: self.in_flight)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)
        else:  # nothing here speaks WebSocket
            await send({"type": "websocket.close", "code": 1000})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        service = self._service
        started = service.clock.monotonic()
        host, request_id = _host_and_request_id(scope)
        if not _REQUEST_ID.fullmatch(request_id):
            request_id = service.ids.token(9).encode()
        state: dict[str, Any] = {
            "request_id": request_id.decode(),
            "route": _UNROUTED,
            "status": 0,  # until an answer begins
            "bytes": 0,
        }
        scope["state"] = state
        self.in_flight += 1
        try:
            refusal = self._refusal(host)
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
            self._note(scope, state, service.clock.monotonic() - started)

    def _refusal(self, host: bytes) -> Exception | None:
        service = self._service
        if self.in_flight > service.settings.max_requests:
            return UnavailableError("too many requests at one time")
        is_open = not service.has_keys and service.settings.allow_anonymous is None
        if is_open and not is_own_host(host.decode("latin-1"), service.settings.allowed_hosts):
            return HttpRefusalError(
                421, "without keys the service answers only to localhost: "
                "see `tierdex keys create` and TIERDEX_ALLOWED_HOSTS",
            )  # fmt: skip
        return None

    def _note(self, scope: Scope, state: dict[str, Any], seconds: float) -> None:
        service = self._service
        status = state["status"] or 499  # nothing was sent: the caller went away
        method = scope["method"] if scope["method"] in _METHODS else "OTHER"
        service.metrics.count_request(state["route"], method, status, seconds)
        if service.settings.log_requests:
            fields = {name: state[name] for name in ("key_id", "problem") if name in state}
            service.logger.note(
                "request",
                method=method,
                route=state["route"],
                status=status,
                ms=round(seconds * 1000, 3),
                bytes=state["bytes"],
                request_id=state["request_id"],
                **fields,
            )


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"})


def _host_and_request_id(scope: Scope) -> tuple[bytes, bytes]:
    """Return the values of two headers, empty where they are not sent; the first of each counts."""
    host = request_id = None
    for name, value in scope["headers"]:
        if name == b"host" and host is None:
            host = value
        elif name == b"x-request-id" and request_id is None:
            request_id = value
    return host or b"", request_id or b""


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
