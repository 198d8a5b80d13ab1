"""The outermost layer: every request passes it once, whatever happens to it further in.

It gives the request an id, refuses a foreign Host header while there are no keys (a web page that
rebinds its name to 127.0.0.1 must not reach an open service), bounds the number of requests served
at one time, and counts and logs the one line that each request gets.

Plain ASGI: a response passes through untouched. Depends on starlette.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request

from tierdex.app.doors import answer_error
from tierdex.app.problems import HttpRefusalError
from tierdex.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from tierdex.app.doors import Endpoint, Service

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
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
        self._direct = direct or {}
        self._in_flight = 0

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
        headers = Headers(scope=scope)
        request_id = headers.get("x-request-id", "")
        if not _REQUEST_ID.fullmatch(request_id):
            request_id = service.ids.token(9)
        state: dict[str, Any] = {
            "request_id": request_id,
            "route": _UNROUTED,
            "status": 0,
            "bytes": 0,
        }
        scope["state"] = state
        has_started = False

        async def send_noting(message: Message) -> None:
            nonlocal has_started
            if message["type"] == "http.response.start":
                has_started = True
                state["status"] = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = request_id
            elif message["type"] == "http.response.body":
                state["bytes"] += len(message.get("body", b""))
            await send(message)

        self._in_flight += 1
        service.metrics.in_flight.inc()
        try:
            refusal = self._refusal(headers)
            endpoint = self._direct.get((scope["method"], scope["path"]))
            if refusal is None and endpoint is not None:
                response = await endpoint(Request(scope, receive))
                await response(scope, receive, send_noting)
            elif refusal is None:
                await self._app(scope, receive, send_noting)
            else:
                await answer_error(service, refusal, state)(scope, receive, send_noting)
        except Exception as error:  # the last boundary: a fault in the framework or in a handler
            if has_started:
                raise
            await answer_error(service, error, state)(scope, receive, send_noting)
        finally:
            self._in_flight -= 1
            service.metrics.in_flight.dec()
            self._note(scope, state, service.clock.monotonic() - started)

    def _refusal(self, headers: Headers) -> Exception | None:
        service = self._service
        if self._in_flight > service.settings.max_requests:
            return UnavailableError("too many requests at one time")
        if not service.has_keys and service.settings.allow_anonymous is None:
            host = headers.get("host", "")
            if not is_own_host(host, service.settings.allowed_hosts):
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
            service.logger.info(
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
