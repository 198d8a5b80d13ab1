"""Routes of entries: put, and look one key up.

Depends on documents, app.http, codecs, app.rights and index_service.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotation
from starlette.responses import Response  # noqa: TC002 - FastAPI reads the annotation

from tierdex.app.documents import answer_document
from tierdex.app.http.body import JSON, read_body, request_body
from tierdex.app.http.codecs.arrow_entries import rows_of_arrow, topics_in
from tierdex.app.http.codecs.arrow_stream import ARROW_STREAM
from tierdex.app.http.codecs.json_entries import read_entries, read_lines
from tierdex.app.http.codecs.put_rows import OneEntry
from tierdex.app.http.hints import hints_of
from tierdex.app.http.openapi import operation_id, refusals
from tierdex.app.http.schemas.key_models import Histogram, Journey
from tierdex.app.http.schemas.models import (
    Answer,
    EntriesToPut,
    PutAnswer,
)
from tierdex.app.http.schemas.parameters import (
    EntriesQuery,
    HistogramQuery,
    JourneysQuery,
    PutQuery,
)
from tierdex.app.http.security import need_scope, require
from tierdex.app.http.service import json_response, record_of, service_of
from tierdex.app.rights import Scope
from tierdex.errors import InvalidRequestError
from tierdex.index_service.journey import find_journey

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.app.http.codecs.put_rows import PutRows
    from tierdex.app.http.service import RequestRecord, Service
    from tierdex.index_service.journey import Journey as FoundJourney
    from tierdex.value_rules import Durability

NDJSON = "application/x-ndjson"
DEFAULT_DURABILITY: Durability = "os"
ARROW_SCHEMA = {"type": "string", "format": "binary"}
_SMALL_BODY_BYTES = 16 * 1024  # parsed on the event loop: a thread costs more
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
    limits = message_limits(request, asked)
    if limits is None:
        return None
    if "topic" in asked:
        record_of(request).need(Scope.MESSAGE, (asked["topic"],))
    return partial(
        service_of(request).message_fetcher.with_messages,
        key=asked["key"], message_id=asked.get("message_id"), **limits,
    )  # fmt: skip


def message_limits(request: Request, asked: dict[str, Any]) -> dict[str, Any] | None:
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
            ARROW_STREAM: ARROW_SCHEMA,
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
