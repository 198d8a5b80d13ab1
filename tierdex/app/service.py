"""The HTTP service: one application made of the index, its settings and its keys.

::

    FrontDoor            request id, Host, load, one log line, metrics
      (FastAPI)          routes with parameters in their path, 404 and 405
        guard            key and scope, errors to problems
          handler        one route's work; the index is called off the event loop

The index is opened and closed by whoever calls `create_app`. Nothing in a request names a path, a
URL or a bucket. Depends on fastapi and the modules beside this one.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.routing import Match, Route

from tierdex import __version__
from tierdex.app import routes_admin, routes_entries, routes_service
from tierdex.app.console import console_router
from tierdex.app.description import describe_service
from tierdex.app.doors import Service, answer_error, guard
from tierdex.app.front_door import FrontDoor
from tierdex.app.logs import make_logger
from tierdex.app.metrics import Metrics
from tierdex.app.problems import HTTP_KINDS, HttpRefusalError
from tierdex.app.readiness import Readiness
from tierdex.app.request_body import BodyReader
from tierdex.app.server_settings import load_server_settings
from tierdex.clock import SystemClock
from tierdex.errors import InvalidRequestError
from tierdex.ids import SystemIds
from tierdex.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

    from tierdex.app.doors import Endpoint
    from tierdex.app.index_port import IndexPort
    from tierdex.app.keys import KeyFile
    from tierdex.app.logs import JsonLogger
    from tierdex.app.server_settings import ServerSettings
    from tierdex.clock import Clock
    from tierdex.ids import IdSource
    from tierdex.settings import Settings

ROUTES = [*routes_entries.ROUTES, *routes_admin.ROUTES, *routes_service.ROUTES]


class _FileIdConvertor(Convertor[str]):
    """A file id in a path: no slash, and no colon, which begins a verb (`{id}:verify`)."""

    regex = "[^/:]+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("file_id", _FileIdConvertor())


class _Application(FastAPI):
    """FastAPI with the front door outside of everything: most requests end there."""

    front_door: FrontDoor

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self
        await self.front_door(scope, receive, send)

    async def behind_front_door(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve what needs the router and the framework's middleware."""
        await super().__call__(scope, receive, send)

    def build_middleware_stack(self) -> ASGIApp:
        """Leave the framework's own answer to faults out: the front door's is a problem."""
        stack = super().build_middleware_stack()
        assert isinstance(stack, ServerErrorMiddleware)
        return stack.app


def create_app(
    index: IndexPort,
    settings: ServerSettings | None = None,
    keys: KeyFile | None = None,
    *,
    limits: Settings | None = None,
    logger: JsonLogger | None = None,
    clock: Clock | None = None,
    ids: IdSource | None = None,
) -> FastAPI:
    """Return the application. `limits` are the settings that `index` was opened with."""
    settings = settings or load_server_settings()
    logger = logger or make_logger()
    service = Service(
        index=index,
        settings=settings,
        limits=limits or load_settings(),
        keys=keys,
        metrics=Metrics(index, __version__),
        bodies=BodyReader(settings),
        readiness=Readiness(index, logger),
        logger=logger,
        clock=clock or SystemClock(),
        ids=ids or SystemIds(),
    )

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        service.readiness.is_serving = True
        yield
        service.readiness.is_serving = False

    direct: dict[tuple[str, str], Endpoint] = {}
    app = _Application(
        title="Tierdex",
        version=__version__,
        openapi_url=None,  # ours stand among the routes, with a scope
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.front_door = FrontDoor(app.behind_front_door, service, direct)
    app.state.service = service
    for spec in ROUTES:
        # Plain routes: our endpoints read the request themselves, and what FastAPI would do between
        # (dependencies, parameters, models) costs as much as a lookup. Those without a parameter in
        # their path do not even need a router: the front door finds them in `direct`.
        endpoint = guard(service, spec)
        if "{" not in spec.path:
            direct[spec.method, spec.path] = endpoint
        route = Route(spec.path, endpoint, methods=[spec.method], name=spec.handler.__name__)
        route.methods = {spec.method}  # HEAD is not added to GET: it is no part of the API
        app.router.routes.append(route)
    app.include_router(console_router())
    app.add_exception_handler(HTTPException, _answer_http_exception)
    app.add_exception_handler(RequestValidationError, _answer_framework_validation)
    app.openapi = lambda: describe_service(ROUTES)  # type: ignore[method-assign]
    return app


async def _answer_http_exception(request: Request, error: Exception) -> Response:
    """Turn what the framework refuses (no such path, not this method) into a problem."""
    assert isinstance(error, HTTPException)
    headers = {name.lower(): value for name, value in (error.headers or {}).items()}
    status = error.status_code if error.status_code in HTTP_KINDS else 400
    detail = str(error.detail)
    if status == 404:
        detail = "there is nothing at this path; see /docs"
    elif status == 405:
        headers["allow"] = ", ".join(_allowed_methods(request)) or headers.get("allow", "GET")
        detail = f"{request.method} is not allowed here: {headers['allow']}"
    return _problem(request, HttpRefusalError(status, detail, headers))


async def _answer_framework_validation(request: Request, error: Exception) -> Response:
    return _problem(request, InvalidRequestError(str(error)))


def _problem(request: Request, error: Exception) -> Response:
    return answer_error(request.app.state.service, error, request.scope["state"])


def _allowed_methods(request: Request) -> list[str]:
    """Return the methods of every route at this path: a path may have several."""
    scope: Any = {**request.scope, "path_params": {}}
    methods: set[str] = set()
    for route in request.app.routes:
        match, _ = route.matches(scope)
        if match is not Match.NONE:
            methods |= getattr(route, "methods", None) or set()
    return sorted(methods)
