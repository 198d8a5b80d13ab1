"""The service that `benchmarks.service` asks: Tierdex's own, and beside it an empty route declared alike.

python -m benchmarks.serve DATA SCALE      prints its port; ends with SIGTERM
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Query
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotation

from tierdex import Index
from tierdex.app.cli.commands.keys import open_key_file
from tierdex.app.http.application import create_app
from tierdex.app.http.schemas.models import Answer
from tierdex.app.http.schemas.parameters import EntriesQuery  # noqa: TC001 - FastAPI reads the annotation
from tierdex.app.http.server import serve_app
from tierdex.app.http.server_settings import load_server_settings
from tierdex.settings import load_settings

if TYPE_CHECKING:
    from tierdex.setting_keywords import SettingKeywords

PREFIX = "/empty"


def empty_service() -> FastAPI:
    """Return an application with one route: the parameters and the answer of ours, and no work.

    What it answers is what was last sent to it by PUT: as long as an answer of ours.
    """
    app = FastAPI()

    @app.get(f"{PREFIX}/v1/entries")
    async def get_entries(query: Annotated[EntriesQuery, Query()]) -> Answer:
        return app.state.answer  # type: ignore[no-any-return]

    @app.put(f"{PREFIX}/answer")
    async def put_answer(request: Request) -> int:
        app.state.answer = Answer.model_validate_json(await request.body())
        return 0

    return app


class WithEmptyService:
    """The application, and outside of all of its middleware the empty one."""

    def __init__(self, app: Any) -> None:
        self.state = app.state
        self._app = app
        self._empty = empty_service()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        is_empty = scope["type"] == "http" and scope["path"].startswith(PREFIX)
        await (self._empty if is_empty else self._app)(scope, receive, send)


def main() -> None:
    data, scale = Path(sys.argv[1]), float(sys.argv[2])
    sizes: SettingKeywords = {
        "slot_count": int(5_000_000 * scale),
        "item_capacity": int(20_000_000 * scale),
    }
    app = create_app(
        Index.open(data, **sizes),
        load_server_settings(port=0, allow_anonymous="admin"),
        open_key_file(data, None),
        limits=load_settings(**sizes),
    )
    serve_app(
        WithEmptyService(app),  # type: ignore[arg-type]
        announce=lambda url: print(url.rpartition(":")[2], flush=True),
    )


if __name__ == "__main__":
    main()
