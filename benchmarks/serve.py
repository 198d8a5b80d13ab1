"""The service that `benchmarks.service` asks: Tierdex's own, and beside it one bare Starlette route.

python -m benchmarks.serve DATA SCALE      prints its port; ends with SIGTERM
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.responses import Response
from starlette.routing import Route

from tierdex import Index
from tierdex.app import server
from tierdex.app.cli.keys import open_key_file
from tierdex.app.server_settings import load_server_settings
from tierdex.settings import load_settings

if TYPE_CHECKING:
    from starlette.requests import Request


class WithBareRoute:
    """The application, and outside of all of its middleware `/bare`: what the server alone can do."""

    def __init__(self, app: Any) -> None:
        self.state = app.state
        self._app = app
        self._route = Route("/bare", self._answer)
        self._length = 300

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] == "/bare":
            await self._route.handle(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        """Answer as many bytes as our own answer had; `?length=` sets how many."""
        if "length" in request.query_params:
            self._length = int(request.query_params["length"])
        return Response(b"x" * self._length, media_type="application/json")


def main() -> None:
    data, scale = Path(sys.argv[1]), float(sys.argv[2])
    sizes = {"slot_count": int(5_000_000 * scale), "item_capacity": int(20_000_000 * scale)}
    create_app = server.create_app
    server.create_app = lambda *given, **named: WithBareRoute(create_app(*given, **named))
    server.serve(
        Index.open(data, **sizes),
        load_server_settings(port=0, allow_anonymous="admin"),
        open_key_file(data, None),
        limits=load_settings(**sizes),
        announce=lambda url: print(url.rpartition(":")[2], flush=True),
    )


if __name__ == "__main__":
    main()
