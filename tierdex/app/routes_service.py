"""Routes about the service itself: health, readiness, version, metrics, documentation.

Depends on doors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import HTMLResponse, Response

from tierdex import __version__
from tierdex.app import operations
from tierdex.app.docs_page import render_docs
from tierdex.app.doors import RouteSpec, json_response
from tierdex.app.keys import Scope
from tierdex.app.metrics import METRICS_TYPE
from tierdex.errors import UnavailableError

if TYPE_CHECKING:
    from starlette.requests import Request

    from tierdex.app.doors import Service


async def healthz(service: Service, request: Request) -> Response:
    """Say that the process answers."""
    return json_response({"status": "ok"})


async def readyz(service: Service, request: Request) -> Response:
    """Say whether requests may be sent here: the service runs, owns its node, and can take puts."""
    reasons = service.readiness.reasons()
    if reasons:
        raise UnavailableError("; ".join(f"{found.reason}: {found.detail}" for found in reasons))
    return json_response({"status": "ready"})


async def version(service: Service, request: Request) -> Response:
    """Say which version runs."""
    return json_response({"name": "tierdex", "version": __version__})


async def metrics(service: Service, request: Request) -> Response:
    """Return the counters in Prometheus' text form."""
    text = await service.in_thread(service.metrics.render)
    return Response(text, media_type=METRICS_TYPE)


async def openapi(service: Service, request: Request) -> Response:
    """Return this description of the service."""
    return json_response(request.app.openapi())


async def docs(service: Service, request: Request) -> Response:
    """Show the description as a page; it asks no other host for anything."""
    return HTMLResponse(
        render_docs(request.app.openapi()),
        headers={"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"},
    )


ROUTES = [
    RouteSpec("GET", "/healthz", Scope.NONE, healthz, "Alive?", operations.HEALTHZ),
    RouteSpec("GET", "/readyz", Scope.NONE, readyz, "Ready?", operations.READYZ),
    RouteSpec("GET", "/version", Scope.NONE, version, "Version", operations.VERSION),
    RouteSpec("GET", "/metrics", Scope.READ, metrics, "Metrics", operations.METRICS),
    RouteSpec("GET", "/openapi.json", Scope.READ, openapi, "This description", operations.OPENAPI),
    RouteSpec("GET", "/docs", Scope.READ, docs, "This description as a page", operations.DOCS),
]
