"""What a service owner adds to the application stands around every route, and around every refusal."""

from __future__ import annotations

import pytest
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotation

from tests.app.conftest import assert_problem
from tests.security.test_scopes import MATRIX
from tierdex.app.rights import Scope

UI = "https://ui.example"
PATHS = [(method, path.replace("{file_id:file_id}", "x")) for method, path in MATRIX]


class Tracing:
    """A tracer as they all are: an ASGI class that sees a request begin, and its answer end."""

    def __init__(self, app, spans):
        self._app = app
        self._spans = spans

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        span = [scope["method"], scope["path"], None]
        self._spans.append(span)

        async def send_traced(message):
            if message["type"] == "http.response.start":
                span[2] = message["status"]
            await send(message)

        await self._app(scope, receive, send_traced)


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_cors_and_tracing_added_in_two_lines_work_for_every_route(make_caller, keys, method, path):
    key = keys.create(Scope.ADMIN)
    caller = make_caller(keys=keys)
    spans = []
    caller.app.add_middleware(
        CORSMiddleware,
        allow_origins=[UI],
        allow_methods=["GET", "POST"],
        allow_headers=["Authorization"],
    )
    caller.app.add_middleware(Tracing, spans=spans)
    asks = {
        "origin": UI,
        "access-control-request-method": method,
        "access-control-request-headers": "authorization",
    }
    preflight = caller.request("OPTIONS", path, headers=asks)
    assert (preflight.status_code, preflight.headers["access-control-allow-origin"]) == (200, UI)
    for given in (key, None):
        headers = {"origin": UI, "content-type": "application/json"}
        response = caller.request(method, path, headers=headers, key=given)
        assert response.headers["access-control-allow-origin"] == UI
        assert spans[-1] == [method, path, response.status_code]
        assert response.headers["x-request-id"]


def test_page_that_cors_does_not_name_is_told_nothing(make_caller, keys):
    caller = make_caller(keys=keys)
    caller.app.add_middleware(CORSMiddleware, allow_origins=[UI])
    response = caller.get("/v1/topics", headers={"origin": "https://evil.example"})
    assert "access-control-allow-origin" not in response.headers
    response = caller.get("/nothing", headers={"origin": UI})
    assert_problem(response, 404, "not-found")
    assert response.headers["access-control-allow-origin"] == UI


class Tenant:
    """Middleware that hands a value on by `request.state`, as an owner's own does."""

    def __init__(self, app):
        self._app = app

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http":
            scope.setdefault("state", {})["status"] = "gold"
        await self._app(scope, receive, send)


def test_state_of_an_owners_middleware_reaches_the_owners_route(make_caller):
    caller = make_caller()

    @caller.app.get("/tenant")
    async def tenant(request: Request) -> str:
        return request.state.status

    caller.app.add_middleware(Tenant)
    assert caller.get("/tenant").json() == "gold"
    assert caller.log_lines()[-1]["status"] == 200
