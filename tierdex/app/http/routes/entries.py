"""Routes of entries: put, look one key up, look many up; topics and watermark.

Depends on documents, app.http, codecs, app.rights and index_service.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from fastapi import APIRouter, Query
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotation
from starlette.responses import Response

from tierdex.app.documents import answer_document
from tierdex.app.http.body import JSON, read_body, request_body
from tierdex.app.http.codecs.arrow_entries import column_of, rows_of_arrow, topics_in
from tierdex.app.http.codecs.arrow_stream import ARROW_STREAM, read_stream, write_stream
from tierdex.app.http.codecs.json_entries import read_entries, read_lines
from tierdex.app.http.codecs.json_lookups import (
    LookupColumns,
    answer_columns,
    answer_each,
    columns_of,
    query_each,
    read_lookups,
)
from tierdex.app.http.codecs.put_rows import OneEntry
from tierdex.app.http.hints import hints_of
from tierdex.app.http.openapi import operation_id, refusals
from tierdex.app.http.schemas.key_models import Histogram, Journey
from tierdex.app.http.schemas.models import (
    Answer,
    Answers,
    EntriesToPut,
    Lookup,
    Lookups,
    PublishedWatermark,
    PutAnswer,
    Tables,
    Topics,
    Watermark,
)
from tierdex.app.http.schemas.parameters import (
    EntriesQuery,
    HistogramQuery,
    JourneysQuery,
    LookupsQuery,
    PutQuery,
    TopicsQuery,
    WatermarkQuery,
)
from tierdex.app.http.security import need_scope, require
from tierdex.app.http.service import json_response, record_of, service_of, tagged_response
from tierdex.app.rights import Scope
from tierdex.errors import InvalidRequestError
from tierdex.index_service.file_info import TopicInfo
from tierdex.index_service.journey import find_journey
from tierdex.index_service.requests.entry_rules import check_integer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.app.http.codecs.put_rows import PutRows
    from tierdex.app.http.service import RequestRecord, Service
    from tierdex.index_service.journey import Journey as FoundJourney
    from tierdex.value_rules import Durability

NDJSON = "application/x-ndjson"
DEFAULT_DURABILITY: Durability = "os"
_SMALL_BODY_BYTES = 16 * 1024  # parsed on the event loop: a thread costs more
_FEW_LOOKUPS_BYTES = 128 * 1024
_ARROW_SCHEMA = {"type": "string", "format": "binary"}
_ARROW_ANSWERS = {
    ARROW_STREAM: {
        "schema": {
            **_ARROW_SCHEMA,
            "description": "a table of entries with the column `lookup`; with `on_error=partial` the "
            "schema's metadata `missing` is a JSON array of {file, reason, lookups} for answers that "
            "are incomplete, `lookups` null for all; `as_of` and `unasked` stand there as in JSON answers",
        }
    }
}

router = APIRouter(tags=["entries"], generate_unique_id_function=operation_id)


# First: the router tries routes in this order, and this one gets most requests.
@router.get(
    "/v1/entries",
    summary="Look one key up",
    response_model=Answer,
    dependencies=[require(Scope.READ, EntriesQuery)],
    responses=refusals(404, 410),
)
async def get_entries(request: Request, query: Annotated[EntriesQuery, Query()]) -> Response:
    """Look one key or message ID up; with `message` also fetch the messages.

    A message that cannot be shown says why, and its entry is answered all the same.
    """
    service = service_of(request)
    asked = vars(query).copy()
    del asked["hints"]
    fetch = _message_call(request, asked)
    if query.max_count is None:
        asked["max_count"] = service.settings.default_max_count
    # A key in memory is answered on the event loop; a query of the store takes a thread, and goes on
    # there. Beside a log, too: what it has written must be in the index first.
    begun: Any = partial(service.index_to_query.query, **asked)
    if service.own_index is not None:
        begun = service.own_index.begin_query(**asked)
    answer = await service.in_thread(begun) if callable(begun) else begun
    service.metrics.count_lookups(1, found=bool(answer.entries), complete=answer.complete)
    if service.messages is not None:
        answer.lost = service.messages.lost(query.topic)
    if fetch is not None and answer.entries:
        answer = await service.in_thread(partial(fetch, answer), slow=True)
    if not answer.entries and query.cursor is None:
        answer.hints = await hints_of(request, query, is_complete=answer.complete)
    return json_response(answer_document(answer))


def _message_call(request: Request, asked: dict[str, Any]) -> Callable[..., Any] | None:
    """Return what puts messages into an answer, None where they are not asked for.

    It takes what concerns messages out of `asked`. Raises PermissionDeniedError, NotFoundError,
    InvalidRequestError, all before anything is looked up.
    """
    limits = _message_limits(request, asked)
    if limits is None:
        return None
    if "topic" in asked:
        record_of(request).need(Scope.MESSAGE, (asked["topic"],))
    return partial(
        service_of(request).message_fetcher.with_messages,
        key=asked["key"], message_id=asked.get("message_id"), **limits,
    )  # fmt: skip


def _message_limits(request: Request, asked: dict[str, Any]) -> dict[str, Any] | None:
    """Return the bounds of messages and who counts them, None where none are asked for.

    Like `_message_call`, but which topics are concerned the caller knows.
    """
    limits = {name: asked.pop(name) for name in ("max_message_bytes", "message_timeout")}
    if not asked.pop("message"):
        given = [name for name, value in limits.items() if value is not None]
        if given:
            raise InvalidRequestError("is for `message=true`", field=given[0])
        return None
    need_scope(record_of(request), Scope.MESSAGE)
    return {**limits, "note": service_of(request).metrics.count_shown}


@router.get(
    "/v1/histogram",
    summary="Count the entries of one key by time",
    response_model=Histogram,
    dependencies=[require(Scope.READ, HistogramQuery)],
    responses=refusals(),
)
async def get_histogram(request: Request, query: Annotated[HistogramQuery, Query()]) -> Response:
    """Count what all pages of a lookup have together, by time."""
    service = service_of(request)
    asked = vars(query)
    found = await service.in_thread(lambda: service.index_to_query.histogram(**asked), slow=True)
    service.metrics.count_lookups(1, found=bool(found.counts), complete=found.complete)
    return json_response(found.to_dict())


@router.get(
    "/v1/journeys",
    summary="Follow one key over all topics",
    response_model=Journey,
    dependencies=[require(Scope.READ, JourneysQuery, in_route=True)],
    responses=refusals(404),
)
async def get_journeys(request: Request, query: Annotated[JourneysQuery, Query()]) -> Response:
    """Look one key up in every topic, with one batch; entries oldest first, with the time between them.

    Topics that the caller may not read are left out: `restricted` is true for a caller of some topics only.
    """
    service, record = service_of(request), record_of(request)
    asked = vars(query).copy()
    fetch = _message_call(request, asked)
    journey = await service.in_thread(_journey, record, asked)
    if fetch is not None:
        record.need(Scope.MESSAGE, {entry.topic for entry in journey.entries})
    service.metrics.count_lookups(1, found=bool(journey.entries), complete=journey.complete)
    if service.messages is not None:
        lost = service.messages.lost(None)
        journey.lost = tuple(each for each in lost if record.may(Scope.READ, each.topic))
    if fetch is not None and journey.entries:
        journey = await service.in_thread(partial(fetch, journey), slow=True)
    return json_response(journey.to_dict())


def _journey(record: RequestRecord, asked: dict[str, Any]) -> FoundJourney:
    index = record.service.index_to_query
    if not record.is_limited(Scope.READ):
        record.need(Scope.READ, (None,))
        return find_journey(index, **asked)
    known = index.known_topics(fresh_within=asked["fresh_within"])
    readable = [topic for topic in known.names if record.may(Scope.READ, topic)]
    record.need(Scope.READ, readable)
    return find_journey(index, **asked, topics=known._replace(names=readable))


@router.post(
    "/v1/entries",
    summary="Put entries",
    response_model=PutAnswer,
    dependencies=[require(Scope.WRITE, PutQuery, in_route=True)],
    responses=refusals(408, 409, 413, 415, 502, 507),
    openapi_extra=request_body(
        EntriesToPut,
        {
            NDJSON: {"type": "string", "description": "an entry a line"},
            ARROW_STREAM: _ARROW_SCHEMA,
        },
    ),
)
async def put_entries(request: Request, query: Annotated[PutQuery, Query()]) -> Response:
    """Put all entries of the body, or none of them."""
    service = service_of(request)
    kind, body = await read_body(request, JSON, NDJSON, ARROW_STREAM)
    if len(body) < _SMALL_BODY_BYTES:
        rows, durability = _rows(service, kind, body, query.durability)
    else:
        rows, durability = await service.in_thread(_rows, service, kind, body, query.durability)
    record = record_of(request)
    if rows.count and record.reads_topics(Scope.WRITE):
        record.need(Scope.WRITE, topics_in(rows.columns["topic"], "entries"))
    put: Any = partial(rows.put_into, service.index, durability)
    if isinstance(rows, OneEntry):
        put = rows.begin(service.index, durability)
    level = await service.in_thread(put, slow=durability == "remote") if callable(put) else put
    service.metrics.count_entries(rows.count, level)
    return json_response({"accepted": rows.count, "durability": level})


def _rows(
    service: Service, kind: str, body: bytes, asked: Durability | None
) -> tuple[PutRows | OneEntry, Durability]:
    """Return the body's rows and the level to put them at."""
    said: Durability | None = None
    rows: PutRows | OneEntry
    if kind == ARROW_STREAM:
        rows = rows_of_arrow(body, service.limits)
    elif kind == NDJSON:
        rows = read_lines(body, service.limits)
    else:
        rows, said = read_entries(body, service.limits)
    if said is not None and asked is not None and asked != said:
        raise InvalidRequestError("the query and the body differ", field="durability")
    return rows, said or asked or DEFAULT_DURABILITY


@router.post(
    "/v1/entries:batchGet",
    summary="Look many keys up",
    response_model=Answers,
    dependencies=[require(Scope.READ, LookupsQuery, in_route=True)],
    responses={200: {"content": _ARROW_ANSWERS}, **refusals(404, 408, 413, 415)},
    openapi_extra=request_body(Lookups, {ARROW_STREAM: _ARROW_SCHEMA}),
)
async def look_many_up(request: Request, query: Annotated[LookupsQuery, Query()]) -> Response:
    """Answer many lookups in one call, in their order; with `message` (JSON) also fetch the messages."""
    service = service_of(request)
    if query.max_count is not None:
        check_integer(query.max_count, "max_count", 1, service.limits.max_count_limit)
    limits = _message_limits(request, vars(query).copy())
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
        200: {"content": {ARROW_STREAM: {"schema": _ARROW_SCHEMA}}},
        **refusals(408, 409, 413, 415),
    },
    dependencies=[require(Scope.READ)],
    response_class=Response,
    openapi_extra={
        "requestBody": {"content": {ARROW_STREAM: {"schema": _ARROW_SCHEMA}}, "required": True}
    },
)
async def get_unpublished(request: Request) -> Response:
    """Answer another node's reader from what is not published here: see `peers` among the settings."""
    service = service_of(request)
    _kind, body = await read_body(request, ARROW_STREAM)
    question = read_stream(body, max_rows=service.limits.max_lookups, field="question")
    answer = await service.in_thread(lambda: service.index_to_query.unpublished(question))
    return Response(answer, media_type=ARROW_STREAM)


@router.get(
    "/v1/topics",
    summary="List topics",
    response_model=Topics,
    dependencies=[require(Scope.READ, TopicsQuery, in_route=True)],
    responses=refusals(304),
)
async def get_topics(request: Request, query: Annotated[TopicsQuery, Query()]) -> Response:
    """List the topics that have entries, those that the caller may read; with `details` counts and times."""
    service, record = service_of(request), record_of(request)
    index = service.index_to_query
    shown: dict[str, Any] = {"restricted": record.is_limited(Scope.READ)}
    if query.as_of:
        known = await service.in_thread(
            partial(index.known_topics, fresh_within=query.fresh_within)
        )
        names = known.names
        shown["as_of"] = known.as_of
        shown["unasked"] = [node._asdict() for node in known.unasked]
        shown["missing"] = [node.to_dict() for node in known.missing]
    else:
        names = await service.in_thread(index.topics)
    if query.details:
        infos = await service.in_thread(_described_topics, service, slow=True)
        shown["details"] = [info._asdict() for info in infos if record.may(Scope.READ, info.topic)]
    shown["topics"] = [topic for topic in names if record.may(Scope.READ, topic)]
    return tagged_response(request, shown)


@router.get(
    "/v1/tables",
    summary="List followed tables",
    response_model=Tables,
    dependencies=[require(Scope.READ, in_route=True)],
    responses=refusals(),
)
async def get_tables(request: Request) -> Response:
    """List the lake's tables that topics follow, those that the caller may read, with how old each is."""
    service, record = service_of(request), record_of(request)
    infos = await service.in_thread(service.index.tables)
    rows = [info.to_dict() for info in infos if record.may(Scope.READ, info.topic)]
    return json_response({"tables": rows})


def _described_topics(service: Service) -> list[TopicInfo]:
    infos = service.index_to_query.topic_infos()
    of_log = set() if service.log is None else set(service.log.topics())
    infos += map(TopicInfo, of_log.difference(info.topic for info in infos))
    return sorted(infos)


@router.get(
    "/v1/watermark",
    summary="Watermark of a queue",
    response_model=Watermark | PublishedWatermark,
    dependencies=[require(Scope.READ, WatermarkQuery)],
    responses=refusals(404),
)
async def get_watermark(request: Request, query: Annotated[WatermarkQuery, Query()]) -> Response:
    """Return the offset below which everything put is at each level, or (`node`) published by a node."""
    service = service_of(request)
    marks = await service.in_thread(
        lambda: service.index_to_query.watermark(query.topic, query.queue_id, node=query.node)
    )
    asked = query.model_dump(exclude_none=True)
    return json_response({**asked, **marks})
