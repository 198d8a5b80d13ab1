"""Middleware of every request: its id, its log line and metrics, and its admission.

Plain ASGI classes, added by `add_middleware`. Middleware that a service owner adds (CORS, tracing)
goes around them. `BodyLimits` is the third.

Depends on starlette, problems, rights, same_origin, service, errors and connections.
"""

from __future__ import annotations

import re
from itertools import count
from typing import TYPE_CHECKING, Any

from tierdex.app.http.problems import HttpRefusalError, forget_frames, kind_of, problem_response
from tierdex.app.http.same_origin import (
    PAGE_HEADERS,
    READING_METHODS,
    is_own_host,
    refuse_foreign_page,
)
from tierdex.app.http.service import RequestRecord, header_of
from tierdex.app.rights import Scope as KeyScope
from tierdex.connections import carry_trace, trace_id_of
from tierdex.errors import InvalidRequestError, PermissionDeniedError, UnavailableError

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from tierdex.app.http.service import Service
    from tierdex.app.http.spans import Spans

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_UNROUTED = "(none)"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"})
_PAGE_HEADERS = frozenset(name.encode() for name in PAGE_HEADERS)
_NOTHING_SENT = 499  # the caller went away


class RequestLog:
    """Gives a request its id, one log line and a place in the metrics; handles errors last."""

    def __init__(self, app: ASGIApp, *, service: Service) -> None:
        self._app = app
        self._service = service
        # An id is no secret: a random name for this run, and a number.
        self._id_prefix = service.ids.token(6)
        self._id_numbers = count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        service = self._service
        method = scope["method"]
        is_head = method == "HEAD"
        if is_head:  # routes know GET; what they answer loses its body here
            scope = {**scope, "method": "GET"}
        started = service.clock.monotonic()
        request_id = header_of(scope, b"x-request-id") or ""
        if not _REQUEST_ID.fullmatch(request_id):
            request_id = f"{self._id_prefix}-{next(self._id_numbers):08x}"
        traceparent = header_of(scope, b"traceparent")
        carry_trace(traceparent)
        record = scope["tierdex"] = RequestRecord(service, request_id)
        record.trace_id = trace_id_of(traceparent)
        id_header = (b"x-request-id", request_id.encode())

        async def send_counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._audit(method, scope, record, message["status"])  # before the first byte
                record.status = message["status"]
                message["headers"] = [*message.get("headers", ()), id_header]
            elif message["type"] == "http.response.body":
                if is_head:
                    message["body"] = b""
                record.bytes += len(message.get("body", b""))
            await send(message)

        try:
            if service.spans is None:
                await self._app(scope, receive, send_counted)
            else:
                await self._traced(service.spans, method, scope, receive, send_counted)
        except Exception as error:  # a fault in the framework, or in a handler
            if record.status:
                raise
            response = answer_error(record, error)
            await response(scope, receive, send_counted)
        finally:
            self._audit(method, scope, record, _NOTHING_SENT)  # of a caller that went away
            self._note(method, scope, record, service.clock.monotonic() - started)

    async def _traced(
        self, spans: Spans, method: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer within a span of the request."""
        record: RequestRecord = scope["tierdex"]
        method = method if method in _METHODS else "OTHER"
        with spans.of_request(method, scope) as span:
            record.trace_id = spans.trace_id(span) or record.trace_id
            fault = 500
            try:
                await self._app(scope, receive, send)
                fault = _NOTHING_SENT
            finally:
                status = record.status or fault
                spans.end(span, f"{method} {_route_name(scope)}", status, record.caller)

    def _audit(self, method: str, scope: Scope, record: RequestRecord, status: int) -> None:
        notes, record.notes = record.notes, None
        if notes is not None and self._service.audit is not None:
            self._service.audit.write(
                record.caller,
                notes,
                route=f"{method} {_route_name(scope)}",
                status=status,
                request_id=record.request_id,
            )

    def _note(self, method: str, scope: Scope, record: RequestRecord, seconds: float) -> None:
        service = self._service
        method = method if method in _METHODS else "OTHER"
        route = _route_name(scope)
        status = record.status or _NOTHING_SENT
        service.metrics.count_request(route, method, status, seconds)
        if service.settings.log_requests:
            line: dict[str, Any] = {
                "event": "request",
                "level": "info",
                "method": method,
                "route": route,
                "status": status,
                "ms": round(seconds * 1000, 3),
                "bytes": record.bytes,
                "request_id": record.request_id,
            }
            if record.caller.kind == "key":
                line["key_id"] = record.caller.name
            elif record.caller.name:
                line["subject"] = record.caller.name
            if record.trace_id is not None:
                line["trace_id"] = record.trace_id
            if record.problem is not None:
                line["problem"] = record.problem
            service.logger.put(line)


def _route_name(scope: Scope) -> str:
    """Return the route's path as declared: without ids or query, for logs and metrics."""
    route = scope.get("route")
    return _UNROUTED if route is None else str(route.path).replace(":file_id", "")


class Admission:
    """Refuses foreign requests and too many requests, before a route is searched.

    Refused are: without keys, a foreign Host header (a web page that rebinds its name to 127.0.0.1
    must not reach an open service); a POST without a key from a page of another origin; requests
    above `max_requests`.
    """

    def __init__(self, app: ASGIApp, *, service: Service) -> None:
        self._app = app
        self._service = service
        self._in_flight = 0
        service.metrics.show_in_flight(lambda: self._in_flight)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":  # nothing here speaks it
            await send({"type": "websocket.close", "code": 1000})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self._in_flight += 1
        try:
            refusal = self._refusal(scope)
            if refusal is None:
                await self._app(scope, receive, send)
            else:
                response = answer_error(scope["tierdex"], refusal)
                await response(scope, receive, send)
        finally:
            self._in_flight -= 1

    def _refusal(self, scope: Scope) -> Exception | None:
        service = self._service
        settings = service.settings
        if self._in_flight > settings.max_requests:
            return UnavailableError("too many requests at one time")
        host, *others = [value for name, value in scope["headers"] if name == b"host"] or [b""]
        if (others or not host) and scope["http_version"] != "1.0":
            return InvalidRequestError("one Host header is needed", field="host")
        if scope["method"] not in READING_METHODS:
            # The first value of a name counts, as in starlette's Headers, which takes five times as long.
            headers = {
                str(name, "latin-1"): str(value, "latin-1")
                for name, value in reversed(scope["headers"])
                if name in _PAGE_HEADERS
            }
            try:
                refuse_foreign_page(headers, settings.allowed_origins)
            except PermissionDeniedError as error:
                return error
        is_open = settings.allow_anonymous is None and not service.has_keys
        if is_open and not is_own_host(host.decode("latin-1"), settings.allowed_hosts):
            return HttpRefusalError(
                421, "without keys the service answers only to localhost: "
                "see `tierdex keys create` and TIERDEX_ALLOWED_HOSTS",
            )  # fmt: skip
        return None


def answer_error(record: RequestRecord, error: Exception) -> Response:
    """Return the problem, log an internal error with its cause, and release the error's frames."""
    kind = kind_of(error)
    record.problem = kind.name
    if kind.status == 500:
        record.service.logger.error(
            "request failed",
            request_id=record.request_id,
            error=type(error).__name__,
            exc_info=error,
        )
    tells_places = record.caller.rights.anywhere(KeyScope.ADMIN)
    response = problem_response(error, record.request_id, tells_places=tells_places)
    forget_frames(error)
    return response
