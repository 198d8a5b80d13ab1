"""Routes of the operator: files, nodes, verify, compaction, roll, refresh, expire, forget.

Depends on documents, app.http and app.rights.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotation
from starlette.responses import Response  # noqa: TC002 - FastAPI reads the annotation

from tierdex.app.documents import file_document, log_file_document
from tierdex.app.http.body import NO_BODY, NOTHING, json_body, request_body
from tierdex.app.http.openapi import operation_id, refusals
from tierdex.app.http.schemas.admin_models import (
    Compaction,
    Expired,
    ExpireOrder,
    File,
    Files,
    ForgetOrder,
    Forgettings,
    Nodes,
    Receipt,
    ResumeOrder,
    Rolled,
    Verified,
)
from tierdex.app.http.schemas.models import Nothing
from tierdex.app.http.security import require
from tierdex.app.http.service import json_response, record_of, service_of, tagged_response
from tierdex.app.rights import Scope
from tierdex.errors import NotFoundError

if TYPE_CHECKING:
    from tierdex.app.http.service import Service


class _FileIdConvertor(Convertor[str]):
    """A file id in a path: no slash, and no colon, since a colon begins a verb (`{id}:verify`)."""

    regex = "[^/:]+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("file_id", _FileIdConvertor())

FileId = Annotated[
    str,
    Path(description="as `file_id` in answers", json_schema_extra={"pattern": "^[A-Za-z0-9._-]+$"}),
]
_FILE = "/v1/admin/files/{file_id:file_id}"
_READ: Any = {"dependencies": [require(Scope.ADMIN)]}
_ACT: Any = {"dependencies": [require(Scope.ADMIN), NO_BODY], "openapi_extra": NOTHING}

_TOLD_OF_ONE = ("published_at", "compacted_at", "compaction_s")  # lists ask no file for them

router = APIRouter(tags=["admin"], generate_unique_id_function=operation_id)


@router.get(
    "/v1/admin/files",
    summary="List files",
    response_model=Files,
    responses=refusals(304),
    **_READ,
)
async def get_files(request: Request) -> Response:
    """List the files of the index and of the message log, each newest first."""
    service = service_of(request)
    return tagged_response(request, {"files": await service.in_thread(_files, service)})


def _files(service: Service) -> list[dict[str, Any]]:
    of_log = [] if service.log is None else service.log.files()
    listed = [
        *(file_document(file) for file in service.index.files()),
        *(log_file_document(file) for file in of_log),
    ]
    return [{n: v for n, v in file.items() if n not in _TOLD_OF_ONE} for file in listed]


@router.get(
    "/v1/admin/nodes", summary="List nodes", response_model=Nodes, responses=refusals(), **_READ
)
async def get_nodes(request: Request) -> Response:
    """List the store's nodes, with the problem of each unreadable one."""
    service = service_of(request)
    nodes = await service.in_thread(service.index.nodes)
    skew_s = service.index.clock_skew()
    return json_response({"nodes": [node._asdict() for node in nodes], "clock_skew_s": skew_s})


@router.get(_FILE, summary="Describe a file", response_model=File, responses=refusals(404), **_READ)
async def get_file(request: Request, file_id: FileId) -> Response:
    """Describe one file, of the index (with when it was published) or of the message log."""
    service = service_of(request)
    return json_response(await service.in_thread(_file, service, file_id, slow=True))


def _file(service: Service, file_id: str) -> dict[str, Any]:
    if service.log is not None:
        with suppress(NotFoundError):
            return log_file_document(service.log.file(file_id))
    return file_document(service.index.file(file_id))


@router.post(
    f"{_FILE}:verify",
    summary="Verify a file",
    response_model=Verified,
    responses=refusals(404, 408, 413, 415),
    **_ACT,
)
async def verify_file(request: Request, file_id: FileId) -> Response:
    """Check every checksum and invariant of one file, of the index or of the message log."""
    service = service_of(request)
    problems = await service.in_thread(_verify, service, file_id, slow=True)
    return json_response({"file_id": file_id, "sound": not problems, "problems": list(problems)})


def _verify(service: Service, file_id: str) -> list[str]:
    if service.log is not None:
        with suppress(NotFoundError):
            return service.log.verify_file(file_id)
    return service.index.verify_file(file_id)


@router.get(
    "/v1/admin/compaction",
    summary="Compaction's progress",
    response_model=Compaction,
    responses=refusals(),
    **_READ,
)
async def get_compaction(request: Request) -> Response:
    """Return the compactor's state and backlog; `log`: that of the work on the message log's files."""
    service = service_of(request)
    return json_response(await service.in_thread(_compaction, service))


def _compaction(service: Service) -> dict[str, Any]:
    status = service.index.compaction_status()
    return status if service.log is None else {**status, "log": service.log.compaction_status()}


@router.post(
    "/v1/admin/compaction:run",
    summary="Compact now",
    response_model=Compaction,
    responses=refusals(408, 409, 413, 415, 502, 507),
    **_ACT,
)
async def run_compaction(request: Request) -> Response:
    """Compact and publish all that is due, and wait for it."""
    service = service_of(request)
    done = await service.in_thread(service.owner.run_compaction, slow=True)
    status = await service.in_thread(_compaction, service)
    return json_response({**status, "done": done})


@router.post(
    "/v1/admin/roll",
    summary="Roll",
    response_model=Rolled,
    responses=refusals(408, 409, 413, 415, 507),
    **_ACT,
)
async def roll(request: Request) -> Response:
    """Seal the file that is being written and go on in the next."""
    service = service_of(request)
    return json_response({"rolled": await service.in_thread(service.owner.roll)})


@router.post(
    "/v1/admin/refresh",
    summary="Refresh",
    response_model=Nothing,
    responses=refusals(408, 413, 415, 502),
    **_ACT,
)
async def refresh(request: Request) -> Response:
    """Read the manifests of all nodes again, now."""
    service = service_of(request)
    await service.in_thread(service.index.refresh, slow=True)
    return json_response({})


@router.post(
    "/v1/admin/expire",
    summary="Expire files",
    response_model=Expired,
    responses=refusals(408, 409, 413, 415, 502),
    openapi_extra=request_body(ExpireOrder),
    dependencies=[require(Scope.ADMIN)],
)
async def expire(
    request: Request, order: Annotated[ExpireOrder, json_body(ExpireOrder)]
) -> Response:
    """Expire the files of this node, of index and message log, that were sealed before a time."""
    service = service_of(request)
    files = await service.in_thread(_expire, service, order, slow=True)
    return json_response({"files": files, "dry_run": order.dry_run})


def _expire(service: Service, order: ExpireOrder) -> list[dict[str, Any]]:
    asked: dict[str, Any] = {"before": order.before, "dry_run": order.dry_run}
    of_log = [] if service.log is None else service.log.expire(**asked)
    return [
        *(file_document(file) for file in service.index.expire(**asked)),
        *(log_file_document(file) for file in of_log),
    ]


@router.get(
    "/v1/admin/forget",
    summary="Requests to forget",
    response_model=Forgettings,
    responses=refusals(502),
    **_READ,
)
async def get_forgettings(request: Request) -> Response:
    """List the requests to forget of which some file or object may still hold something."""
    service = service_of(request)
    keeper, _ = _keeper(service, 0.0)
    names = await service.in_thread(keeper.forgettings, slow=True)
    return json_response({"forgettings": names})


@router.post(
    "/v1/admin/forget",
    summary="Forget keys",
    response_model=Receipt,
    responses=refusals(408, 409, 413, 415, 502, 507),
    openapi_extra=request_body(ForgetOrder),
    dependencies=[require(Scope.ADMIN, in_route=True)],
)
async def forget(
    request: Request, order: Annotated[ForgetOrder, json_body(ForgetOrder)]
) -> Response:
    """Hide what keys and message IDs have now on every node; return where it was.

    Of a message log: its messages, in every read, and what its index has of them.
    """
    service, record = service_of(request), record_of(request)
    record.note_names(
        (lookup.get("key") for lookup in order.lookups),
        (lookup.get("message_id") for lookup in order.lookups),
    )
    record.need(Scope.ADMIN, {lookup.get("topic") for lookup in order.lookups})
    keeper, waiting = _keeper(service, order.wait)
    receipt = await service.in_thread(
        lambda: keeper.forget(
            lookups=order.lookups, now=order.now, only=order.only, dry_run=order.dry_run, **waiting
        ),
        slow=True,
    )
    return json_response(receipt.document())


@router.post(
    "/v1/admin/forget:resume",
    summary="Go on forgetting",
    response_model=Receipt,
    responses=refusals(404, 408, 409, 413, 415, 502, 507),
    openapi_extra=request_body(ResumeOrder),
    dependencies=[require(Scope.ADMIN)],
)
async def resume_forgetting(
    request: Request, order: Annotated[ResumeOrder, json_body(ResumeOrder)]
) -> Response:
    """Go on with a request to forget, until every owner has acknowledged it."""
    service = service_of(request)
    keeper, waiting = _keeper(service, order.wait)
    receipt = await service.in_thread(
        lambda: keeper.resume_forgetting(order.forgetting, **waiting), slow=True
    )
    return json_response(receipt.document())


def _keeper(service: Service, wait: float) -> tuple[Any, dict[str, float]]:
    """Return what forgets, and what it is to be told of waiting: a log is done when its call returns."""
    return (service.index, {"wait": wait}) if service.log is None else (service.log, {})
