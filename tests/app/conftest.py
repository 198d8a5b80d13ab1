from __future__ import annotations

import io

import httpx2
import orjson
import pytest

from tests.app.small_index import SmallIndex
from tierdex.app.http.application import create_app
from tierdex.app.http.server_settings import ServerSettings
from tierdex.app.keys import KeyFile
from tierdex.app.logs import make_logger
from tierdex.clock import ManualClock
from tierdex.filesystem import LocalFileSystem
from tierdex.ids import SeededIds
from tierdex.index_service.index import Index
from tierdex.settings import Settings


class Caller:
    """An app with its parts, and requests to it without a socket."""

    def __init__(self, index, keys=None, limits=None, log=None, messages=None, **settings) -> None:
        self.index = index
        self.log = io.BytesIO()  # the lines
        self.app = create_app(
            index,
            ServerSettings(**settings),
            keys,
            limits=limits or Settings(),
            log=log,
            messages=messages,
            logger=make_logger(self.log),
        )

    def request(self, method, path, *, key=None, base_url="http://localhost", **arguments):
        import anyio

        headers = dict(arguments.pop("headers", {}))
        if key is not None:
            headers["authorization"] = f"Bearer {key}"

        async def send():
            transport = httpx2.ASGITransport(app=self.app, raise_app_exceptions=True)
            async with httpx2.AsyncClient(transport=transport, base_url=base_url) as client:
                return await client.request(method, path, headers=headers, **arguments)

        return anyio.run(send)

    def get(self, path, **arguments):
        return self.request("GET", path, **arguments)

    def post(self, path, **arguments):
        return self.request("POST", path, **arguments)

    def log_lines(self):
        return [orjson.loads(line) for line in self.log.getvalue().splitlines()]


def open_small_files(data, **more):
    small = {"slot_count": 1024, "item_capacity": 4096, "background": False, "remote_interval": 0.0}
    return Index.open(data, **small, **more)


@pytest.fixture
def index(tmp_path):
    with open_small_files(tmp_path / "data") as index:
        yield index


@pytest.fixture
def caller(index):
    """A service over a real index."""
    return Caller(index)


@pytest.fixture(scope="module")
def shared_door(tmp_path_factory):
    """A service over a real index into which nothing is ever put."""
    with open_small_files(tmp_path_factory.mktemp("shared")) as index:
        yield Caller(index)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def keys(tmp_path, clock):
    return KeyFile(LocalFileSystem(), tmp_path / "keys.json", clock=clock, ids=SeededIds(1))


@pytest.fixture
def make_caller():
    """Make services with other settings, over a small index with knobs."""

    def make(**arguments):
        return Caller(SmallIndex(), **arguments)

    return make


def assert_problem(response, status, kind, field=None):
    document = orjson.loads(response.content)
    assert response.headers["content-type"] == "application/problem+json", response.text
    assert (response.status_code, document["status"]) == (status, status), response.text
    assert document["type"] == f"urn:tierdex:problem:{kind}"
    assert document["request_id"] == response.headers["x-request-id"]
    assert document.get("field") == field, response.text
    return document


ENTRY = {
    "topic": "orders",
    "keys": ["ORDER-1"],
    "queue_id": 0,
    "offset": 4096,
    "size": 512,
    "timestamp": 1_700_000_000_000,
}
