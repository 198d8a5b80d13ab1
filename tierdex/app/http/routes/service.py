"""Routes about the service itself: health, readiness, version, metrics, documentation.

Depends on app.http and app.rights.
"""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotation
from starlette.responses import HTMLResponse, Response

from tierdex import __version__
from tierdex.app.http.docs_page import render_docs
from tierdex.app.http.metrics import METRICS_TYPE
from tierdex.app.http.openapi import open_refusals, operation_id, refusals
from tierdex.app.http.schemas.admin_models import Access, Status, Version
from tierdex.app.http.security import require
from tierdex.app.http.service import json_response, record_of, service_of, tagged_response
from tierdex.app.rights import Scope
from tierdex.errors import UnavailableError

router = APIRouter(tags=["service"], generate_unique_id_function=operation_id)


@router.get("/healthz", summary="Alive?", response_model=Status, responses=open_refusals())
async def healthz() -> Response:
    """Answer that the process runs."""
    return json_response({"status": "ok"})


@router.get("/readyz", summary="Ready?", response_model=Status, responses=open_refusals())
async def readyz(request: Request) -> Response:
    """Answer whether requests may be sent here: the service runs, owns its node, and can take puts."""
    reasons = service_of(request).readiness.reasons()
    if reasons:
        raise UnavailableError("; ".join(f"{found.reason}: {found.detail}" for found in reasons))
    return json_response({"status": "ready"})


@router.get("/version", summary="Version", response_model=Version, responses=open_refusals())
async def version() -> Response:
    """Return the running version."""
    return json_response({"name": "tierdex", "version": __version__})


@router.get(
    "/v1/access",
    summary="What may I do?",
    response_model=Access,
    dependencies=[require(Scope.READ, in_route=True)],
    responses=refusals(),
)
async def access(request: Request) -> Response:
    """Return the caller and its rights, and whether this service has a message log and shows messages."""
    caller, service = record_of(request).caller, service_of(request)
    return json_response(
        {
            "kind": caller.kind,
            "name": caller.name,
            "rights": [str(grant) for grant in caller.rights.grants],
            "admin": caller.rights.everywhere(Scope.ADMIN),
            "log": service.log is not None,
            "messages": service.messages is not None,
        }
    )


@router.get(
    "/metrics",
    summary="Metrics",
    response_class=Response,
    dependencies=[require(Scope.READ, any_query=True, in_route=True)],
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **refusals()},
)
async def metrics(request: Request) -> Response:
    """Return the counters in Prometheus' text form."""
    service = service_of(request)
    return Response(await service.in_thread(service.metrics.render), media_type=METRICS_TYPE)


@router.get(
    "/openapi.json",
    summary="This description",
    dependencies=[require(Scope.READ, any_query=True, in_route=True)],
    responses={
        200: {"content": {"application/json": {"schema": {"type": "object"}}}},
        **refusals(304),
    },
)
async def openapi(request: Request) -> Response:
    """Return this description of the service."""
    return tagged_response(request, request.app.openapi())


@router.get(
    "/docs",
    summary="This description as a page",
    response_class=HTMLResponse,
    dependencies=[require(Scope.READ, any_query=True, in_route=True)],
    responses=refusals(),
)
async def docs(request: Request) -> Response:
    """Show the description as a page; it asks no other host for anything."""
    return HTMLResponse(
        render_docs(request.app.openapi()),
        headers={"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"},
    )
