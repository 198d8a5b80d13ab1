"""What every route shares: the parts of the service, and how a route is declared.

A `RouteSpec` says everything about a route in one place: method, path, scope, handler, and its
documentation. `guard` turns it into an endpoint: the caller is identified, its scope compared,
then the handler runs, and whatever it raises becomes a problem. A route cannot be declared without
a scope.

Depends on starlette, anyio, and the parts it names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import orjson
from anyio import CapacityLimiter
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the endpoint's annotation
from starlette.responses import Response

from tierdex.app.documents import json_default
from tierdex.app.headers import find_header
from tierdex.app.keys import Scope
from tierdex.app.problems import forget_frames, kind_of, problem_response
from tierdex.app.request_body import JSON
from tierdex.errors import AuthenticationError, PermissionDeniedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tierdex.app.index_port import IndexPort
    from tierdex.app.keys import KeyFile
    from tierdex.app.logs import JsonLogger
    from tierdex.app.metrics import Metrics
    from tierdex.app.readiness import Readiness
    from tierdex.app.request_body import BodyReader
    from tierdex.app.server_settings import ServerSettings
    from tierdex.clock import Clock
    from tierdex.ids import IdSource
    from tierdex.settings import Settings

    Handler = Callable[["Service", Request], Awaitable[Response]]
    Endpoint = Callable[[Request], Awaitable[Response]]

_SCOPES = {scope.name.lower(): scope for scope in Scope}
_QUICK_THREADS = 40
_SLOW_THREADS = 16


@dataclass(slots=True)
class Service:
    """The parts of one service. `limits` are the settings of the index behind it."""

    index: IndexPort
    settings: ServerSettings
    limits: Settings
    keys: KeyFile | None
    metrics: Metrics
    bodies: BodyReader
    readiness: Readiness
    logger: JsonLogger
    clock: Clock
    ids: IdSource
    # Calls that may wait for the store for long have threads of their own, so that any number of
    # them never keeps a lookup or an ordinary put waiting.
    quick: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(_QUICK_THREADS))
    slow: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(_SLOW_THREADS))

    @property
    def anonymous_scope(self) -> Scope:
        """What a caller without a key may do: as told, else everything while there are no keys."""
        told = self.settings.allow_anonymous
        if told is not None:
            return _SCOPES[told]
        return Scope.NONE if self.has_keys else Scope.ADMIN

    @property
    def has_keys(self) -> bool:
        """Say whether keys decide: since the first one was seen, until the service starts anew."""
        return self.keys is not None and self.keys.had_keys

    async def in_thread(self, call: Callable[..., Any], *arguments: Any, slow: bool = False) -> Any:
        """Run a call of the index off the event loop.

        A slow one is left behind when its request is cancelled (a stop must not wait for the
        store): nobody was told that it succeeded.
        """
        limiter = self.slow if slow else self.quick
        return await anyio.to_thread.run_sync(
            call, *arguments, limiter=limiter, abandon_on_cancel=slow
        )


@dataclass(frozen=True, slots=True)
class RouteSpec:
    """One route, declared. `operation` holds its members in openapi.yaml."""

    method: str
    path: str
    scope: Scope
    handler: Handler
    summary: str
    operation: dict[str, Any]

    @property
    def name(self) -> str:
        """Return the route as logs and metrics name it: no ids, no query."""
        return self.path.replace(":file_id", "")


def guard(service: Service, spec: RouteSpec) -> Endpoint:
    """Return the endpoint: identify, compare the scope, handle, turn errors into problems."""
    name = spec.name

    async def endpoint(request: Request) -> Response:
        state = request.scope["state"]
        state["route"] = name
        try:
            check_scope(service, request, spec.scope)
            return await spec.handler(service, request)
        except Exception as error:  # noqa: BLE001 - the boundary: every error becomes a problem
            return answer_error(service, error, state)

    endpoint.__name__ = spec.handler.__name__
    return endpoint


def check_scope(service: Service, request: Request, needed: Scope) -> None:
    """Raise AuthenticationError without a valid key, PermissionDeniedError with too small a one."""
    if needed is Scope.NONE:
        return
    header = find_header(request.scope, b"authorization")
    if header is None:
        scope = service.anonymous_scope
        if scope is Scope.NONE:
            raise AuthenticationError("send `Authorization: Bearer <key>`")
    else:
        kind, _, key = header.decode("latin-1").partition(" ")
        if kind.lower() != "bearer" or service.keys is None:
            raise AuthenticationError("no such key: send `Authorization: Bearer <key>`")
        row = service.keys.identify(key.strip())
        request.scope["state"]["key_id"] = row.id
        scope = row.scope
    if scope < needed:
        raise PermissionDeniedError(f"this takes a key of scope {needed.name.lower()}")


def answer_error(service: Service, error: Exception, state: dict[str, Any]) -> Response:
    """Return the problem, and log what is our own fault with its cause."""
    request_id = state.get("request_id", "")
    kind = kind_of(error)
    state["problem"] = kind.name
    if kind.status == 500:
        service.logger.error(
            "request failed", request_id=request_id, error=type(error).__name__, exc_info=error
        )
    response = problem_response(error, request_id)
    forget_frames(error)
    return response


class WholeResponse(Response):
    """A response of bytes that are there: what Starlette would make of them, at less cost."""

    def __init__(self, body: bytes | memoryview, media_type: str, status: int = 200) -> None:
        self.status_code = status
        self.background = None
        self.body = body
        self.raw_headers = [
            (b"content-length", b"%d" % len(body)),
            (b"content-type", media_type.encode()),
        ]


def json_response(document: Any, status: int = 200) -> Response:
    body = orjson.dumps(document, default=json_default, option=orjson.OPT_NON_STR_KEYS)
    return WholeResponse(body, JSON, status)
