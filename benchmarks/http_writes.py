"""What a POST of one entry, or of one message, takes beside an empty route that is declared alike.

The same application with the same middleware, rights and limits; the empty route names the same body model,
parameters, rights and answer, and does no work. CPU of one request, called as a server does (ASGI), without
sockets: they would take the same on both sides. A part of "One way".
"""

from __future__ import annotations

import asyncio
import gc
import io
import json
import time
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query

from benchmarks.measure import Row
from tierdex import Index, MessageLog
from tierdex.app.http.application import create_app
from tierdex.app.http.schemas.message_models import Appended, MessagesToAppend
from tierdex.app.http.schemas.models import EntriesToPut, PutAnswer
from tierdex.app.http.schemas.parameters import AppendQuery, PutQuery
from tierdex.app.http.security import require
from tierdex.app.logs import JsonLogger
from tierdex.app.rights import Scope
from tierdex.clock import SystemClock

if TYPE_CHECKING:
    from benchmarks.bench import Bench

ROUNDS, REQUESTS = 9, 300
WHEN = 1_700_000_000_000
ENTRY = {
    "topic": "t", "keys": ["ORDER-8841", "CUSTOMER-7"], "message_id": "m-1", "queue_id": 0, "offset": 4096,
    "size": 512, "timestamp": WHEN,
}  # fmt: skip
MESSAGE = {
    "topic": "t", "queue_id": 0, "body": '{"id": 8841}', "keys": ["ORDER-8841", "CUSTOMER-7"],
    "headers": [{"name": "trace", "value": "4bf92f35"}, {"name": "source", "value": "shop"}],
}  # fmt: skip
REQUESTS_OF = {
    "POST of one entry with two keys": ("/v1/entries", "durability=os", {"entries": [ENTRY]}),
    "POST of one message with two headers": (
        "/v1/messages",
        "durability=os",
        {"messages": [MESSAGE]},
    ),
}

router = APIRouter()


@router.post("/empty/v1/entries", dependencies=[require(Scope.WRITE, PutQuery)])
async def put_nothing(body: EntriesToPut, query: Annotated[PutQuery, Query()]) -> PutAnswer:
    return PutAnswer(accepted=len(body.entries), durability=query.durability or body.durability)


@router.post("/empty/v1/messages", dependencies=[require(Scope.WRITE, AppendQuery)])
async def append_nothing(
    body: MessagesToAppend, query: Annotated[AppendQuery, Query()]
) -> Appended:
    return Appended(offsets=[0 for _ in body.messages], durability=query.durability)


class App:
    """The application over an index and a log, with the empty routes right behind those they are like."""

    def __init__(self, index: Index, log: MessageLog) -> None:
        self.app = create_app(index, log=log, logger=JsonLogger(io.BytesIO(), SystemClock()))
        routes = self.app.router.routes
        empty: list[Any] = list(router.routes)
        for route in empty:
            alike = next(
                each for each in routes if _is_post(each, route.path.removeprefix("/empty"))
            )
            routes.insert(routes.index(alike) + 1, route)

    async def post(self, path: str, query: str, body: bytes) -> tuple[int, bytes]:
        """Return status and body of an answer."""
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST",
            "scheme": "http", "path": path, "raw_path": path.encode(), "query_string": query.encode(),
            "root_path": "", "client": ("127.0.0.1", 50000), "server": ("127.0.0.1", 8080), "state": {},
            "headers": [
                (b"host", b"localhost"), (b"content-type", b"application/json"),
                (b"content-length", str(len(body)).encode()),
            ],
        }  # fmt: skip
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        return sent[0]["status"], sent[1]["body"]


def _is_post(route: Any, path: str) -> bool:
    return getattr(route, "path", None) == path and "POST" in getattr(route, "methods", ())


def run(bench: Bench, target: int) -> None:
    """Add a row for each request."""
    with (
        bench.folder() as folder,
        Index.open(folder / "index") as index,
        MessageLog.open(folder / "log") as log,
    ):
        app = App(index, log)
        for name, request in REQUESTS_OF.items():
            ours, empty = asyncio.run(_cpu_us(app, *request))
            bench.add(Row(target, name, "us", ours, "empty route", empty, ours / empty, 1.5))


async def _cpu_us(app: App, path: str, query: str, given: dict[str, Any]) -> tuple[float, float]:
    """Return CPU of a request and of its like, the best of the rounds, in turn."""
    body = json.dumps(given).encode()
    best = dict.fromkeys((path, f"/empty{path}"), float("inf"))
    for each in best:
        status, answer = await app.post(each, query, body)
        assert status == 200, answer
    for _ in range(ROUNDS):
        for each in best:
            gc.disable()
            begin = time.process_time()
            for _ in range(REQUESTS):
                await app.post(each, query, body)
            best[each] = min(best[each], (time.process_time() - begin) / REQUESTS * 1e6)
            gc.enable()
    ours, empty = best.values()
    return ours, empty
