"""Routes of many lookups at once: those of callers, and those of other nodes.

Depends on documents, entries, app.http, codecs, app.rights and index_service.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from fastapi import APIRouter, Query
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotation
from starlette.responses import Response

from tierdex.app.documents import answer_document
from tierdex.app.http.body import JSON, read_body, request_body
from tierdex.app.http.codecs.arrow_entries import column_of, topics_in
from tierdex.app.http.codecs.arrow_stream import ARROW_STREAM, read_stream, write_stream
from tierdex.app.http.codecs.json_lookups import (
    LookupColumns,
    answer_columns,
    answer_each,
    columns_of,
    query_each,
    read_lookups,
)
from tierdex.app.http.openapi import operation_id, refusals
from tierdex.app.http.routes.entries import ARROW_SCHEMA, message_limits
from tierdex.app.http.schemas.key_models import Answers, Lookup, Lookups
from tierdex.app.http.schemas.parameters import (
    LookupsQuery,
)
from tierdex.app.http.security import require
from tierdex.app.http.service import json_response, record_of, service_of
from tierdex.app.rights import Scope
from tierdex.errors import InvalidRequestError
from tierdex.index_service.requests.entry_rules import check_integer

if TYPE_CHECKING:
    from tierdex.app.http.service import RequestRecord, Service

_FEW_LOOKUPS_BYTES = 128 * 1024
_ARROW_ANSWERS = {
    ARROW_STREAM: {
        "schema": {
            **ARROW_SCHEMA,
            "description": "a table of entries with the column `lookup`; with `on_error=partial` the "
            "schema's metadata `missing` is a JSON array of {file, reason, lookups} for answers that "
            "are incomplete, `lookups` null for all; `as_of` and `unasked` stand there as in JSON answers",
        }
    }
}

router = APIRouter(tags=["entries"], generate_unique_id_function=operation_id)


@router.post(
    "/v1/entries:batchGet",
    summary="Look many keys up",
    response_model=Answers,
    dependencies=[require(Scope.READ, LookupsQuery, in_route=True)],
    responses={200: {"content": _ARROW_ANSWERS}, **refusals(404, 408, 413, 415)},
    openapi_extra=request_body(Lookups, {ARROW_STREAM: ARROW_SCHEMA}),
)
async def look_many_up(request: Request, query: Annotated[LookupsQuery, Query()]) -> Response:
    """Answer many lookups in one call, in their order; with `message` (JSON) also fetch the messages."""
    service = service_of(request)
    if query.max_count is not None:
        check_integer(query.max_count, "max_count", 1, service.limits.max_count_limit)
    limits = message_limits(request, vars(query).copy())
    kind, body = await read_body(request, JSON, ARROW_STREAM)
    if limits is not None:
        if kind == ARROW_STREAM:
            raise InvalidRequestError("is for lookups in JSON", field="message")
        call = partial(_answer_with_messages, record_of(request), body, query, limits)
        return await service.in_thread(call, slow=True)  # type: ignore[no-any-return]
    read, answer = (
        (_read_arrow, _answer_arrow) if kind == ARROW_STREAM else (_read_json, _answer_json)
    )
    record = record_of(request)
    if len(body) > _FEW_LOOKUPS_BYTES:
        return await service.in_thread(  # type: ignore[no-any-return]
            lambda: answer(service, read(record, body), query)
        )
    # On the event loop where memory alone has the answers: that takes no longer than to start a thread.
    lookups = read(record, body)
    response = None
    if service.own_index is not None:
        response = answer(service, lookups, query, local=True)
    if response is None:
        response = await service.in_thread(answer, service, lookups, query)
    return response


def _answer_with_messages(
    record: RequestRecord, body: bytes, query: LookupsQuery, limits: dict[str, Any]
) -> Response:
    service = record.service
    fetcher = service.message_fetcher
    lookups = _read_json(record, body).lookups
    record.need(Scope.MESSAGE, {lookup.get("topic") for lookup in lookups})
    answers = query_each(
        service.index_to_query, lookups, query.max_count, query.on_error or "partial",
        query.fresh_within,
    )  # fmt: skip
    _count_lookups(service, len(answers), sum(bool(answer.entries) for answer in answers))
    shown = fetcher.with_messages_of_batch(answers, lookups, **limits)
    return json_response({"answers": [answer_document(answer) for answer in shown]})


class _JsonLookups(NamedTuple):
    lookups: list[Lookup]
    columns: LookupColumns | None


def _read_json(record: RequestRecord, body: bytes) -> _JsonLookups:
    lookups = read_lookups(body)
    if record.reads_topics(Scope.READ):
        record.note_names(
            (lookup.get("key") for lookup in lookups),
            (lookup.get("message_id") for lookup in lookups),
        )
        record.need(Scope.READ, {lookup.get("topic") for lookup in lookups})
    return _JsonLookups(lookups, columns_of(lookups))


def _answer_json(
    service: Service, asked: _JsonLookups, query: LookupsQuery, *, local: bool = False
) -> Response | None:
    """Return the answers; None when `local` and memory alone does not have them."""
    on_error = query.on_error or "partial"
    if asked.columns is not None:
        answered = answer_columns(
            service.index_to_query,
            asked.columns,
            query.max_count,
            on_error,
            local=local,
            fresh_within=query.fresh_within,
        )
        if answered is not None:
            _count_lookups(service, answered.asked, answered.found)
            return Response(answered.body, media_type=JSON)
    if local:
        return None
    answers = answer_each(
        service.index_to_query, asked.lookups, query.max_count, on_error, query.fresh_within
    )
    _count_lookups(service, len(answers), sum(bool(answer["entries"]) for answer in answers))
    return json_response({"answers": answers})


def _count_lookups(service: Service, count: int, found: int) -> None:
    service.metrics.count_lookups(found, found=True, complete=True)
    service.metrics.count_lookups(count - found, found=False, complete=True)


def _read_arrow(record: RequestRecord, body: bytes) -> Any:
    table = read_stream(body, max_rows=record.service.limits.max_lookups, field="lookups")
    if record.reads_topics(Scope.READ):
        topics, *names = (
            column_of(table, name, "lookups") for name in ("topic", "key", "message_id")
        )
        if record.notes is not None:
            record.note_names(*(() if each is None else each.to_pylist() for each in names))
        record.need(Scope.READ, {None} if topics is None else topics_in(topics, "lookups"))
    return table


def _answer_arrow(
    service: Service, lookups: Any, query: LookupsQuery, *, local: bool = False
) -> Response | None:
    """Return the answers; None when `local` and memory alone does not have them."""
    max_count = query.max_count or 1
    if local:
        answers = service.index_to_query.query_batch_local(
            lookups, max_count=max_count, fresh_within=query.fresh_within
        )
        if answers is None:
            return None
    else:
        answers = service.index_to_query.query_batch_arrow(
            lookups,
            max_count=max_count,
            on_error=query.on_error or "fail",
            fresh_within=query.fresh_within,
        )
    return Response(write_stream(answers), media_type=ARROW_STREAM)


@router.post(
    "/v1/entries:unpublished",
    summary="Ask a node for what it has not published",
    responses={
        200: {"content": {ARROW_STREAM: {"schema": ARROW_SCHEMA}}},
        **refusals(408, 409, 413, 415),
    },
    dependencies=[require(Scope.READ)],
    response_class=Response,
    openapi_extra={
        "requestBody": {"content": {ARROW_STREAM: {"schema": ARROW_SCHEMA}}, "required": True}
    },
)
async def get_unpublished(request: Request) -> Response:
    """Answer another node's reader from what is not published here: see `peers` among the settings."""
    service = service_of(request)
    _kind, body = await read_body(request, ARROW_STREAM)
    question = read_stream(body, max_rows=service.limits.max_lookups, field="question")
    answer = await service.in_thread(lambda: service.index_to_query.unpublished(question))
    return Response(answer, media_type=ARROW_STREAM)
