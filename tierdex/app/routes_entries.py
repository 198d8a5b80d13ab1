"""Routes of entries: put, look one key up, look many up; topics and watermark.

Depends on doors and the readers of bodies and query strings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tierdex.app import query_string as q
from tierdex.app.arrow_entries import rows_of_arrow
from tierdex.app.arrow_stream import ARROW_STREAM, read_stream, write_stream
from tierdex.app.batch_json import AnsweredLookups, answer_any, answer_plain, read_plain
from tierdex.app.documents import answer_document
from tierdex.app.doors import RouteSpec, WholeResponse, json_response
from tierdex.app.index_port import DURABILITIES
from tierdex.app.json_entries import parse_json, parse_ndjson, rows_of_json
from tierdex.app.keys import Scope
from tierdex.app.operations import (
    ENTRIES_GET,
    ENTRIES_POST,
    LOOKUPS_POST,
    TOPICS_GET,
    WATERMARK_GET,
)
from tierdex.app.request_body import JSON, media_type, refuse_media_type
from tierdex.app.times import parse_time
from tierdex.errors import InvalidRequestError
from tierdex.index_service.request import check_integer

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from tierdex.app.doors import Service
    from tierdex.app.put_rows import PutRows
    from tierdex.index_service.answer import Answer

NDJSON = "application/x-ndjson"
DEFAULT_DURABILITY = "os"
_read_durability = q.choice(*DURABILITIES)
_read_on_error = q.choice("partial", "fail")
_QUERY_READERS = {
    "topic": q.text,
    "key": q.text,
    "message_id": q.text,
    "begin": q.time,
    "end": q.time,
    "max_count": q.integer,
    "cursor": q.text,
    "explain": q.boolean,
    "on_error": _read_on_error,
}


async def put_entries(service: Service, request: Request) -> Response:
    """Put all entries of the body, or none of them."""
    values = q.read_query(request.scope["query_string"], {"durability": _read_durability})
    kind = media_type(request)
    if kind not in (JSON, NDJSON, ARROW_STREAM):
        raise refuse_media_type(kind, (JSON, NDJSON, ARROW_STREAM))
    asked = values.get("durability")
    with service.bodies.holding() as held:
        body = await service.bodies.read(request, held)
        # Small bodies are parsed here: a thread would cost more than the work.
        if len(body) < _INLINE_BYTES:
            rows, durability = _rows(service, kind, body, asked)
        else:
            rows, durability = await service.in_thread(_rows, service, kind, body, asked)
        del body
        level = await service.in_thread(
            rows.put_into, service.index, durability, slow=durability == "remote"
        )
    service.metrics.count_entries(rows.count, level)
    return json_response({"accepted": rows.count, "durability": level})


_INLINE_BYTES = 16 * 1024


def _rows(
    service: Service, kind: str, body: bytes | bytearray, asked: str | None
) -> tuple[PutRows, str]:
    """Return the body's rows and the level to put them at."""
    if kind == ARROW_STREAM:
        return rows_of_arrow(body, service.limits), asked or DEFAULT_DURABILITY
    if kind == NDJSON:
        rows = rows_of_json(parse_ndjson(body, service.limits), service.limits)
        return rows, asked or DEFAULT_DURABILITY
    document = _object(parse_json(body), {"entries", "durability"})
    if "entries" not in document:
        raise InvalidRequestError("is required", field="entries")
    durability = document.get("durability", asked or DEFAULT_DURABILITY)
    if durability not in DURABILITIES:
        raise InvalidRequestError(f"must be one of {', '.join(DURABILITIES)}", field="durability")
    if asked is not None and asked != durability:
        raise InvalidRequestError("the query and the body differ", field="durability")
    return rows_of_json(document["entries"], service.limits), durability


def _object(document: Any, allowed: set[str]) -> dict[str, Any]:
    if type(document) is not dict:
        raise InvalidRequestError("must be a JSON object", field="body")
    for name in document:
        if name not in allowed:
            raise InvalidRequestError("there is no such field", field=name[:64])
    return document


async def get_entries(service: Service, request: Request) -> Response:
    """Look one key or message ID up."""
    values = q.read_query(request.scope["query_string"], _QUERY_READERS)
    values.setdefault("max_count", service.settings.default_max_count)
    # A key that lies in local files is answered at once; a thread is taken when the store is needed.
    answer = service.index.query_local(**values)
    if answer is None:
        answer = await service.in_thread(_query, service, values)
    service.metrics.count_lookups(1, found=bool(answer.entries), complete=answer.complete)
    return json_response(answer_document(answer))


def _query(service: Service, values: dict[str, Any]) -> Answer:
    return service.index.query(**values)


async def look_many_up(service: Service, request: Request) -> Response:
    """Answer many lookups in one call, in their order."""
    values = q.read_query(
        request.scope["query_string"], {"on_error": _read_on_error, "max_count": q.integer}
    )
    if "max_count" in values:
        check_integer(values["max_count"], "max_count", 1, service.limits.max_count_limit)
    kind = media_type(request)
    if kind not in (JSON, ARROW_STREAM):
        raise refuse_media_type(kind, (JSON, ARROW_STREAM))
    on_arrow = kind == ARROW_STREAM
    with service.bodies.holding() as held:
        body = await service.bodies.read(request, held)
        if len(body) <= _FEW_LOOKUPS_BYTES:
            # At once, if memory alone has the answers: as long as a thread would take to begin.
            at_once = _arrow_from_memory if on_arrow else _json_from_memory
            response: Response | None = at_once(service, body, values)
        else:
            response = None
        if response is None:
            work = _answer_arrow if on_arrow else _answer_json
            response = await service.in_thread(work, service, body, values)
    return response


_FEW_LOOKUPS_BYTES = 128 * 1024


def _json_from_memory(
    service: Service, body: bytes | bytearray, values: dict[str, Any]
) -> Response | None:
    plain = read_plain(body)
    if plain is None:
        return None
    on_error = values.get("on_error", "partial")
    answered = answer_plain(service.index, plain, values.get("max_count"), on_error, local=True)
    return None if answered is None else _answered(service, answered)


def _answer_json(service: Service, body: bytes | bytearray, values: dict[str, Any]) -> Response:
    max_count, on_error = values.get("max_count"), values.get("on_error", "partial")
    plain = read_plain(body)
    if plain is not None:
        answered = answer_plain(service.index, plain, max_count, on_error)
        if answered is not None:
            return _answered(service, answered)
    document = _object(parse_json(body), {"lookups"})
    lookups = document.get("lookups")
    if type(lookups) is not list:
        raise InvalidRequestError("must be a list of lookups", field="lookups")
    for number, lookup in enumerate(lookups):
        if type(lookup) is dict and ("begin" in lookup or "end" in lookup):
            _make_times_numbers(lookup, number)
    answers = answer_any(service.index, lookups, max_count, on_error)
    _count_lookups(service, len(answers), sum(bool(answer["entries"]) for answer in answers))
    return json_response({"answers": answers})


def _answered(service: Service, answered: AnsweredLookups) -> Response:
    _count_lookups(service, answered.asked, answered.found)
    return WholeResponse(answered.body, JSON)


def _count_lookups(service: Service, count: int, found: int) -> None:
    service.metrics.count_lookups(found, found=True, complete=True)
    service.metrics.count_lookups(count - found, found=False, complete=True)


def _make_times_numbers(lookup: dict[str, Any], number: int) -> None:
    for name in ("begin", "end"):
        value = lookup.get(name)
        if type(value) is str:
            lookup[name] = parse_time(value, field=f"lookups[{number}].{name}")


def _arrow_from_memory(
    service: Service, body: bytes | bytearray, values: dict[str, Any]
) -> Response | None:
    lookups = read_stream(body, max_rows=service.limits.max_lookups, field="lookups")
    answers = service.index.query_batch_local(lookups, max_count=values.get("max_count", 1))
    return None if answers is None else WholeResponse(write_stream(answers), ARROW_STREAM)


def _answer_arrow(service: Service, body: bytes | bytearray, values: dict[str, Any]) -> Response:
    lookups = read_stream(body, max_rows=service.limits.max_lookups, field="lookups")
    answers = service.index.query_batch_arrow(
        lookups,
        max_count=values.get("max_count", 1),
        on_error=values.get("on_error", "fail"),
    )
    return WholeResponse(write_stream(answers), ARROW_STREAM)


async def get_topics(service: Service, request: Request) -> Response:
    """List the topics that have entries."""
    q.read_query(request.scope["query_string"], {})
    return json_response({"topics": sorted(await service.in_thread(service.index.topics))})


async def get_watermark(service: Service, request: Request) -> Response:
    """Say below which offset everything put is at each level."""
    values = q.read_query(request.scope["query_string"], {"topic": q.text, "queue_id": q.integer})
    for name in ("topic", "queue_id"):
        if name not in values:
            raise InvalidRequestError("is required", field=name)
    marks = await service.in_thread(service.index.watermark, values["topic"], values["queue_id"])
    return json_response({**values, **marks})


ROUTES = [
    RouteSpec("POST", "/v1/entries", Scope.WRITE, put_entries, "Put entries", ENTRIES_POST),
    RouteSpec("GET", "/v1/entries", Scope.READ, get_entries, "Look one key up", ENTRIES_GET),
    RouteSpec(
        "POST", "/v1/entries:batchGet", Scope.READ, look_many_up, "Look many keys up", LOOKUPS_POST
    ),
    RouteSpec("GET", "/v1/topics", Scope.READ, get_topics, "List topics", TOPICS_GET),
    RouteSpec(
        "GET", "/v1/watermark", Scope.READ, get_watermark, "Watermark of a queue", WATERMARK_GET
    ),
]
