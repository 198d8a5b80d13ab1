"""Who may call what: every route of the application, by every kind of caller.

The table below is the promise. A route that is not in it fails the test, so that none is added
without saying who may call it.
"""

from __future__ import annotations

import orjson
import pyarrow as pa
import pytest

from tests.app.conftest import ENTRY, Caller
from tests.app.small_index import FILE, SmallIndex
from tierdex.app.http.codecs.arrow_stream import ARROW_STREAM, write_stream
from tierdex.app.keys import KeyFile
from tierdex.app.rights import Scope
from tierdex.clock import ManualClock
from tierdex.filesystem import LocalFileSystem
from tierdex.ids import SeededIds
from tierdex.log_service.message_log import MessageLog

NONE, READ, WRITE, ADMIN = Scope.NONE, Scope.READ, Scope.WRITE, Scope.ADMIN
MESSAGE = Scope.MESSAGE
MATRIX = {
    ("GET", "/"): NONE,
    ("GET", "/console/{name}"): NONE,
    ("GET", "/healthz"): NONE,
    ("GET", "/readyz"): NONE,
    ("GET", "/version"): NONE,
    ("GET", "/metrics"): READ,
    ("GET", "/openapi.json"): READ,
    ("GET", "/docs"): READ,
    ("GET", "/v1/entries"): READ,
    ("POST", "/v1/entries:batchGet"): READ,
    ("POST", "/v1/entries:unpublished"): READ,
    ("GET", "/v1/topics"): READ,
    ("GET", "/v1/tables"): READ,
    ("GET", "/v1/access"): READ,
    ("GET", "/v1/histogram"): READ,
    ("GET", "/v1/journeys"): READ,
    ("GET", "/v1/watermark"): READ,
    ("POST", "/v1/entries"): WRITE,
    ("GET", "/v1/messages"): MESSAGE,
    ("GET", "/v1/queues"): READ,
    ("GET", "/v1/offsets"): READ,
    ("GET", "/v1/timers"): READ,
    ("POST", "/v1/messages"): WRITE,
    ("GET", "/v1/admin/files"): ADMIN,
    ("GET", "/v1/admin/nodes"): ADMIN,
    ("GET", "/v1/admin/files/{file_id:file_id}"): ADMIN,
    ("POST", "/v1/admin/files/{file_id:file_id}:verify"): ADMIN,
    ("GET", "/v1/admin/compaction"): ADMIN,
    ("POST", "/v1/admin/compaction:run"): ADMIN,
    ("POST", "/v1/admin/roll"): ADMIN,
    ("POST", "/v1/admin/refresh"): ADMIN,
    ("POST", "/v1/admin/expire"): ADMIN,
    ("GET", "/v1/admin/forget"): ADMIN,
    ("POST", "/v1/admin/forget"): ADMIN,
    ("POST", "/v1/admin/forget:resume"): ADMIN,
}
# A request that each route answers with 200 (404: a name of nothing) when the caller may make it.
BODIES = {
    ("POST", "/v1/entries"): {"entries": [ENTRY]},
    ("POST", "/v1/messages"): {"messages": [{"topic": "orders", "queue_id": 0, "body": "x"}]},
    ("POST", "/v1/entries:batchGet"): {"lookups": [{"topic": "orders", "key": "k"}]},
    ("POST", "/v1/admin/expire"): {"before": 0, "dry_run": True},
    ("POST", "/v1/admin/forget"): {"lookups": [{"topic": "orders", "key": "k"}], "dry_run": True},
    ("POST", "/v1/admin/forget:resume"): {"forgetting": "f1"},
}
QUERIES = {
    ("GET", "/v1/entries"): "?topic=orders&key=k",
    ("GET", "/v1/histogram"): "?topic=orders&key=k",
    ("GET", "/v1/journeys"): "?key=k",
    ("GET", "/v1/watermark"): "?topic=orders&queue_id=0",
    ("GET", "/v1/messages"): "?topic=orders&queue_id=0",
    ("GET", "/v1/offsets"): "?topic=orders&queue_id=0",
}
CALLERS = {
    "nobody": NONE, "read": READ, "message": MESSAGE, "write": WRITE, "admin": ADMIN, "removed": None,
    "forged": None, "other id": None, "cut": None, "basic": None, "empty": None,
}  # fmt: skip


def routes_of(router):
    """Yield (method, path) of every route, those of included routers too."""
    for route in router.routes:
        inner = getattr(route, "original_router", None) or getattr(route, "router", None)
        if inner is not None:
            yield from routes_of(inner)
        else:
            assert route.methods, f"{route} has no method: what is it?"
            yield from ((method, route.path) for method in route.methods - {"HEAD"})


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """Return the tierdex_service and the Authorization header of each caller."""
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    clock = ManualClock()
    keys = KeyFile(LocalFileSystem(), path, clock=clock, ids=SeededIds(3))
    made = {scope: keys.create(scope) for scope in (READ, MESSAGE, WRITE, ADMIN)}
    removed = keys.create(ADMIN)
    keys.remove(removed.split("_")[1])
    clock.advance(2)
    admin = made[ADMIN]
    headers = {
        "nobody": None,
        "read": f"Bearer {made[READ]}",
        "message": f"Bearer {made[MESSAGE]}",
        "write": f"bearer {made[WRITE]}",
        "admin": f"Bearer {admin}",
        "removed": f"Bearer {removed}",
        "forged": f"Bearer {admin[:-4]}AAAA",
        "other id": f"Bearer {admin.replace(admin.split('_')[1], made[READ].split('_')[1])}",
        "cut": f"Bearer {admin[:-1]}",
        "basic": f"Basic {admin}",
        "empty": "",
    }
    index = SmallIndex()
    index.put_batch(topic="orders", keys=["k"], queue_id=0, offset=1, size=1, timestamp=1)
    with MessageLog.open(tmp_path_factory.mktemp("log"), node="n", journal_bytes=16 << 20) as log:
        tierdex_service = Caller(index, keys=keys, log=log)
        tierdex_service.app.state.service.readiness.is_serving = (
            True  # what the server's start does
        )
        yield tierdex_service, headers


def test_every_route_is_in_the_matrix_and_nothing_else(service):
    tierdex_service, _ = service
    assert sorted(routes_of(tierdex_service.app)) == sorted(MATRIX)


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("route", MATRIX, ids=" ".join)
def test_caller_reaches_exactly_what_its_scope_covers(service, route, caller):
    tierdex_service, headers = service
    method, path = route
    needed, has = MATRIX[route], CALLERS[caller]
    filled = path.replace("{file_id:file_id}", FILE["file_id"]).replace("{name}", "console.js")
    sent = {} if headers[caller] is None else {"authorization": headers[caller]}
    body = BODIES.get(route)
    if method == "POST":
        sent["content-type"] = "application/json"
    content = None if body is None else orjson.dumps(body)
    if path.endswith(":unpublished"):
        sent["content-type"] = ARROW_STREAM
        content = bytes(write_stream(pa.table({"hash": pa.array([], pa.uint64())})))
    response = tierdex_service.request(
        method,
        filled + QUERIES.get(route, ""),
        headers=sent,
        content=content,
    )
    if needed is NONE:
        expected = 200
    elif has is None or (has is NONE):
        expected = 401
    else:
        done = 404 if path.endswith(":resume") else 200  # there is no such request of the log
        expected = done if has.covers(needed) else 403
    assert response.status_code == expected, response.text
    if expected == 401:
        assert b"entries" not in response.content
        assert response.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("scope", ["read", "write", "admin"])
def test_anonymous_scope_reaches_exactly_what_it_covers(scope):
    tierdex_service = Caller(SmallIndex(), allow_anonymous=scope)
    tierdex_service.index.put_batch(
        topic="orders", keys=["k"], queue_id=0, offset=1, size=1, timestamp=1
    )
    for (method, path), needed in MATRIX.items():
        filled = path.replace("{file_id:file_id}", FILE["file_id"]).replace("{name}", "console.js")
        status = tierdex_service.request(method, filled).status_code
        assert (status == 403) == (not Scope[scope.upper()].covers(needed)), (method, path, status)
        assert status != 401


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"])
def test_no_other_method_reaches_a_handler(service, method):
    tierdex_service, headers = service
    for path in {path for _, path in MATRIX}:
        filled = path.replace("{file_id:file_id}", FILE["file_id"]).replace("{name}", "console.js")
        response = tierdex_service.request(
            method, filled, headers={"authorization": headers["admin"]}
        )
        assert response.status_code == 405, (method, path)
