"""`/mcp`: the Model Context Protocol for assistants, without sessions: each POST is a request of its own.

The route admits callers that may read anything. Each tool then asks this very application with the caller's
key, so that the rights, masks and audit lines are those of the routes that it asks.

Depends on fastapi, starlette, httpx2, mcp, app.mcp, app.rights, http.security, http.service and tierdex.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import httpx2
from fastapi import APIRouter
from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import Request  # noqa: TC002 -- FastAPI reads the annotation
from starlette.responses import Response

from tierdex import __version__
from tierdex.app.http.security import require
from tierdex.app.http.service import header_of
from tierdex.app.mcp.server import TIMEOUT_S, asking, authorization, make_server
from tierdex.app.rights import Scope

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fastapi import FastAPI
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from starlette.types import Receive, Send
    from starlette.types import Scope as AsgiScope

_PATH: Final = "/mcp"


class Assistants:
    """The route, and what has to run beside the service for it."""

    def __init__(self, app: FastAPI) -> None:
        self._client = httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=app), base_url="http://localhost", timeout=TIMEOUT_S
        )
        server = make_server(asking(self._client), __version__)
        # The service itself checks the Host and the Origin of each request.
        unguarded = TransportSecuritySettings(enable_dns_rebinding_protection=False)
        server.streamable_http_app(
            stateless_http=True, json_response=True, transport_security=unguarded
        )
        self._manager = manager = server.session_manager
        router = APIRouter()

        @router.api_route(
            _PATH,
            methods=["POST"],
            dependencies=[require(Scope.READ, any_query=True, in_route=True)],
            include_in_schema=False,
        )
        async def answer(request: Request) -> Response:
            authorization.set(header_of(request.scope, b"authorization"))
            return _Passed(manager)

        app.router.routes.extend(router.routes)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Answer requests until the scope ends."""
        async with self._client, self._manager.run():
            yield


class _Passed(Response):
    """An answer that the protocol's own implementation sends."""

    def __init__(self, manager: StreamableHTTPSessionManager) -> None:
        super().__init__()
        self._manager = manager

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        await self._manager.handle_request(scope, receive, send)
