"""Routes of the operator: files, nodes, verify, compaction, roll, refresh, expire.

Depends on doors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tierdex.app import operations
from tierdex.app import query_string as q
from tierdex.app.documents import file_document
from tierdex.app.doors import RouteSpec, json_response
from tierdex.app.json_entries import parse_json
from tierdex.app.keys import Scope
from tierdex.app.request_body import JSON, media_type, refuse_body, refuse_media_type
from tierdex.app.times import parse_time
from tierdex.errors import InvalidRequestError
from tierdex.index_service.request import check_integer

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from tierdex.app.doors import Service


async def get_files(service: Service, request: Request) -> Response:
    """List index files, newest first."""
    _refuse_query(request)
    files = await service.in_thread(lambda: [file_document(f) for f in service.index.files()])
    return json_response({"files": files})


async def get_nodes(service: Service, request: Request) -> Response:
    """List the store's nodes, and what is wrong with those that cannot be read."""
    _refuse_query(request)
    nodes = await service.in_thread(service.index.nodes)
    return json_response({"nodes": [node._asdict() for node in nodes]})


async def get_file(service: Service, request: Request) -> Response:
    """Describe one file."""
    _refuse_query(request)
    file = await service.in_thread(service.index.file, request.path_params["file_id"])
    return json_response(file_document(file))


async def verify_file(service: Service, request: Request) -> Response:
    """Check every checksum and invariant of one file."""
    _refuse_query(request)
    await refuse_body(service.bodies, request)
    file_id = request.path_params["file_id"]
    problems = await service.in_thread(service.index.verify_file, file_id, slow=True)
    return json_response({"file_id": file_id, "sound": not problems, "problems": list(problems)})


async def get_compaction(service: Service, request: Request) -> Response:
    """Say what the compactor does and how far behind it is."""
    _refuse_query(request)
    return json_response(await service.in_thread(service.index.compaction_status))


async def run_compaction(service: Service, request: Request) -> Response:
    """Compact and publish all that is due, and wait for it."""
    _refuse_query(request)
    await refuse_body(service.bodies, request)
    done = await service.in_thread(service.index.run_compaction, slow=True)
    status = await service.in_thread(service.index.compaction_status)
    return json_response({**status, "done": done})


async def roll(service: Service, request: Request) -> Response:
    """Seal the file that is being written and go on in the next."""
    _refuse_query(request)
    await refuse_body(service.bodies, request)
    rolled = await service.in_thread(service.index.roll)
    return json_response({"rolled": rolled})


async def refresh(service: Service, request: Request) -> Response:
    """Read the manifests of all nodes again, now."""
    _refuse_query(request)
    await refuse_body(service.bodies, request)
    await service.in_thread(service.index.refresh, slow=True)
    return json_response({})


async def expire(service: Service, request: Request) -> Response:
    """Expire the files of this node that were sealed before a time."""
    _refuse_query(request)
    kind = media_type(request)
    if kind != JSON:
        raise refuse_media_type(kind, (JSON,))
    with service.bodies.holding() as held:
        body = await service.bodies.read(request, held)
    before, dry_run = _read_expiry(parse_json(body))
    files = await service.in_thread(
        lambda: service.index.expire(before=before, dry_run=dry_run), slow=True
    )
    return json_response({"files": [file_document(f) for f in files], "dry_run": dry_run})


def _read_expiry(document: Any) -> tuple[int, bool]:
    if type(document) is not dict:
        raise InvalidRequestError("must be a JSON object", field="body")
    for name in document.keys() - {"before", "dry_run"}:
        raise InvalidRequestError("there is no such field", field=name[:64])
    if "before" not in document:
        raise InvalidRequestError("is required", field="before")
    before, dry_run = document["before"], document.get("dry_run", False)
    if type(before) is str:
        before = parse_time(before, field="before")
    if type(dry_run) is not bool:
        raise InvalidRequestError("must be true or false", field="dry_run")
    return check_integer(before, "before"), dry_run


def _refuse_query(request: Request) -> None:
    q.read_query(request.scope["query_string"], {})


_FILE = "/v1/admin/files/{file_id:file_id}"
ROUTES = [
    RouteSpec(
        "GET", "/v1/admin/files", Scope.ADMIN, get_files, "List files", operations.FILES_GET
    ),
    RouteSpec(
        "GET", "/v1/admin/nodes", Scope.ADMIN, get_nodes, "List nodes", operations.NODES_GET
    ),
    RouteSpec("GET", _FILE, Scope.ADMIN, get_file, "Describe a file", operations.FILE_GET),
    RouteSpec(
        "POST", f"{_FILE}:verify", Scope.ADMIN, verify_file, "Verify a file", operations.FILE_VERIFY
    ),
    RouteSpec(
        "GET", "/v1/admin/compaction", Scope.ADMIN, get_compaction, "Compaction's progress",
        operations.COMPACTION_GET,
    ),
    RouteSpec(
        "POST", "/v1/admin/compaction:run", Scope.ADMIN, run_compaction, "Compact now",
        operations.COMPACTION_RUN,
    ),
    RouteSpec("POST", "/v1/admin/roll", Scope.ADMIN, roll, "Roll", operations.ROLL),
    RouteSpec("POST", "/v1/admin/refresh", Scope.ADMIN, refresh, "Refresh", operations.REFRESH),
    RouteSpec("POST", "/v1/admin/expire", Scope.ADMIN, expire, "Expire files", operations.EXPIRE),
]  # fmt: skip
