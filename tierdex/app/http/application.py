"""The FastAPI application of one index, its settings and its keys.

::

    (the owner's)           CORS, tracing: `create_app(index).add_middleware(...)`
    RequestLog              request id, one log line, metrics; the last handler of errors
    Admission               Host, Origin, number of requests at one time
    BodyLimits              size, time and memory of bodies
      FastAPI               routes: the scope's dependency, parameters, body; errors to problems
        a route             its work; it calls the index off the event loop

The caller of `create_app` opens and closes index, log and `messages`. Nothing in a request names a path,
a URL or a bucket.

Depends on fastapi, app.audit, app.console, app.rate_limits, app.tokens, routes, logs and the other modules
of this folder.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from tierdex import __version__
from tierdex.app.audit import AuditTrail
from tierdex.app.console import console_router
from tierdex.app.http.arrivals import Arrivals
from tierdex.app.http.body_limits import BodyBudget, BodyLimits
from tierdex.app.http.compression import Compression
from tierdex.app.http.metrics import Metrics
from tierdex.app.http.middleware import Admission, RequestLog, answer_error
from tierdex.app.http.openapi import describe_service
from tierdex.app.http.problems import HTTP_KINDS, HttpRefusalError
from tierdex.app.http.readiness import Readiness
from tierdex.app.http.routes import admin, entries, lookups, topics
from tierdex.app.http.routes import messages as log_routes
from tierdex.app.http.routes import service as about
from tierdex.app.http.schemas.validation import invalid_request
from tierdex.app.http.server_settings import load_server_settings
from tierdex.app.http.service import Service, record_of
from tierdex.app.http.spans import Spans
from tierdex.app.logs import make_logger
from tierdex.app.rate_limits import RateLimits
from tierdex.app.tokens import Tokens
from tierdex.clock import SystemClock
from tierdex.errors import InvalidRequestError, TierdexError
from tierdex.ids import SystemIds
from tierdex.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

    from tierdex.app.http.routes.assistants import Assistants
    from tierdex.app.http.server_settings import ServerSettings
    from tierdex.app.keys import KeyFile
    from tierdex.app.logs import JsonLogger
    from tierdex.clock import Clock
    from tierdex.ids import IdSource
    from tierdex.index_service.health import NotReady
    from tierdex.index_service.index import Index
    from tierdex.log_service.message_log import MessageLog
    from tierdex.resolving.message_fetcher import MessageFetcher
    from tierdex.settings import Settings


def create_app(
    index: Index | None,
    settings: ServerSettings | None = None,
    keys: KeyFile | None = None,
    *,
    limits: Settings | None = None,
    log: MessageLog | None = None,
    messages: MessageFetcher | None = None,
    loading: Callable[[], list[NotReady]] = list,
    logger: JsonLogger | None = None,
    clock: Clock | None = None,
    ids: IdSource | None = None,
) -> FastAPI:
    """Return the application. `limits` are the settings with which index and log were opened.

    Without `index` the one of `log` is served, which the log itself writes. `messages` fetches the messages
    of entries; without it `message=true` is refused. `loading` returns why the service is not ready yet.

    `add_middleware` of the application puts CORS or tracing around all routes.
    """
    settings = settings or load_server_settings()
    logger = logger or make_logger()
    clock = clock or SystemClock()
    secret = settings.audit_secret
    service = Service(
        own_index=index,
        settings=settings,
        limits=limits or load_settings(),
        keys=keys,
        metrics=Metrics(lambda: service.index, __version__, log),
        readiness=Readiness(lambda: service.health() + loading(), logger),
        logger=logger,
        clock=clock,
        ids=ids or SystemIds(),
        log=log,
        messages=messages,
        arrivals=None if log is None else Arrivals(log, settings.max_waits),
        rate_limits=RateLimits(clock, rate=settings.rate_limit, burst=settings.rate_burst),
        spans=Spans(__version__) if settings.trace_spans else None,
        tokens=None if settings.jwt_jwks is None else Tokens(settings, clock, logger),
        audit=None if secret is None else AuditTrail(logger, secret.get_secret_value()),
    )

    if service.arrivals is not None:
        arrivals = service.arrivals
        service.metrics.show_waiting(lambda: arrivals.waiting)

    app = FastAPI(
        title="Tierdex HTTP API",
        version=__version__,
        openapi_url=None,  # routes/service.py has these three, with a scope
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_serving,
    )
    app.state.service = service
    app.state.assistants = _assistants(app) if settings.mcp else None
    if settings.traces:
        app.router.routes.extend(_trace_routes())
    for routes in (entries, lookups, topics, log_routes, admin, about):
        # Not `include_router`: it would match each request twice, and hide the methods of a path.
        app.router.routes.extend(routes.router.routes)
    app.router.routes.extend(console_router().routes)
    _add_middleware(app, service)
    app.add_exception_handler(TierdexError, _answer_error)
    app.add_exception_handler(HttpRefusalError, _answer_error)
    app.add_exception_handler(HTTPException, _answer_http_exception)
    app.add_exception_handler(RequestValidationError, _answer_validation)
    app.openapi = lambda: describe_service(app)  # type: ignore[method-assign]
    return app


@asynccontextmanager
async def _serving(app: FastAPI) -> AsyncIterator[None]:
    async with AsyncExitStack() as running:
        app.state.service.readiness.is_serving = True
        if app.state.assistants is not None:
            await running.enter_async_context(app.state.assistants.run())
        yield
    app.state.service.readiness.is_serving = False


def _assistants(app: FastAPI) -> Assistants:
    """Add the route of assistants, whose tools ask this application. Raises InvalidRequestError."""
    try:
        from tierdex.app.http.routes.assistants import Assistants
    except ModuleNotFoundError as error:
        raise InvalidRequestError(f"pip install 'tierdex[mcp]' ({error})", field="mcp") from error
    return Assistants(app)


def _trace_routes() -> list[BaseRoute]:
    """Return the routes of traces. Raises InvalidRequestError."""
    try:
        from tierdex.app.http.routes.traces import router
    except ModuleNotFoundError as error:
        raise InvalidRequestError(
            f"pip install 'tierdex[traces]' ({error})", field="traces"
        ) from error
    return router.routes


def _add_middleware(app: FastAPI, service: Service) -> None:
    """Add what is around the routes; the last added is the outermost."""
    settings = service.settings
    budget = app.state.body_budget = BodyBudget(settings.max_bodies_bytes)
    app.add_middleware(BodyLimits, settings=settings, budget=budget)
    app.add_middleware(Admission, service=service)
    if settings.compress_above is not None:
        app.add_middleware(Compression, above=settings.compress_above)
    app.add_middleware(RequestLog, service=service)


async def _answer_error(request: Request, error: Exception) -> Response:
    return answer_error(record_of(request), error)


async def _answer_validation(request: Request, error: Exception) -> Response:
    """Answer FastAPI's refusal of a parameter with a problem that names the first one."""
    assert isinstance(error, RequestValidationError)
    found = [{**wrong, "loc": wrong["loc"][1:]} for wrong in error.errors()]
    return await _answer_error(request, invalid_request(found, "query"))


async def _answer_http_exception(request: Request, error: Exception) -> Response:
    """Answer the framework's refusal (no such path, method not allowed) with a problem."""
    assert isinstance(error, HTTPException)
    headers = {name.lower(): value for name, value in (error.headers or {}).items()}
    status = error.status_code if error.status_code in HTTP_KINDS else 400
    detail = str(error.detail)
    if status == 404:
        detail = "there is nothing at this path; see /docs"
    elif status == 405:
        headers["allow"] = ", ".join(_allowed_methods(request)) or headers.get("allow", "GET")
        detail = f"{request.method} is not allowed here: {headers['allow']}"
    return await _answer_error(request, HttpRefusalError(status, detail, headers))


def _allowed_methods(request: Request) -> list[str]:
    """Return the methods of every route at this path: a path may have several."""
    scope: Any = {**request.scope, "path_params": {}}
    methods: set[str] = set()
    for route in request.app.routes:
        if route.matches(scope)[0] is not Match.NONE:
            methods |= route.methods or set()
    if "GET" in methods:
        methods.add("HEAD")  # RequestLog lets it be a GET
    return sorted(methods)
