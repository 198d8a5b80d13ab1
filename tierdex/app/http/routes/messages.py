"""Routes of the message log: append, read a queue and wait for more, list queues, tell offsets.

No thread is held while a message is on its way to the disk, or while a caller waits for messages.

`encoding` belongs to a message and not to the request: what a read answers can be sent back as it is.
`expect_offset` is a parameter of a request with one message: of a batch over many queues a mismatch of one
would say nothing about the others.

Depends on app.http, codecs, errors, app.rights and log_service.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
from fastapi import APIRouter, Query
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotation
from starlette.responses import Response

from tierdex.app.http.body import JSON, read_body, request_body
from tierdex.app.http.codecs.arrow_entries import topics_in
from tierdex.app.http.codecs.arrow_stream import ARROW_STREAM, write_stream
from tierdex.app.http.codecs.messages_in import (
    OneMessage,
    read_message_lines,
    read_message_table,
    read_messages,
)
from tierdex.app.http.codecs.messages_out import found_document, messages_document, messages_stream
from tierdex.app.http.hints import hints_of
from tierdex.app.http.openapi import operation_id, refusals
from tierdex.app.http.routes.entries import NDJSON
from tierdex.app.http.schemas.message_models import (
    Appended,
    LogOffsets,
    LogQueues,
    Messages,
    MessagesFound,
    MessagesToAppend,
    TimerHours,
)
from tierdex.app.http.schemas.parameters import (
    AppendQuery,
    MessagesQuery,
    OffsetsQuery,
    QueuesQuery,
)
from tierdex.app.http.security import require
from tierdex.app.http.service import json_response, record_of, service_of
from tierdex.app.rights import Scope
from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tierdex.app.http.codecs.messages_in import MessageColumns
    from tierdex.app.http.service import Service
    from tierdex.log_service.answer import FoundMessages, ReadAnswer
    from tierdex.log_service.append.commit import Commit, PendingBatch
    from tierdex.log_service.message_log import MessageLog

_SMALL_BODY_BYTES = 16 * 1024  # parsed on the event loop: a thread costs more
_FEW_BYTES = 64 * 1024  # written as JSON on the event loop
_READ_MOST, _READ_BYTES, _FOUND_MOST = 100, 1 << 20, 64
_OF_QUEUE = ("queue_id", "offset", "max_bytes", "wait_ms", "group")
_OF_KEY = ("begin", "end", "cursor", "fresh_within")
_ARROW = {"type": "string", "format": "binary"}
_ARROW_OFFSETS = {
    ARROW_STREAM: {
        "schema": {**_ARROW, "description": "a column `offset`, null where a message waits"}
    }
}
_ARROW_MESSAGES = {
    ARROW_STREAM: {
        "schema": {
            **_ARROW,
            "description": "offset, timestamp, body, keys, message_id, headers, deliver_at, is_forgotten; "
            "the schema's metadata `answer` is a JSON object of the other members",
        }
    }
}

router = APIRouter(tags=["messages"], generate_unique_id_function=operation_id)


@router.post(
    "/v1/messages",
    summary="Append messages",
    response_model=Appended,
    dependencies=[require(Scope.WRITE, AppendQuery, in_route=True)],
    responses={200: {"content": _ARROW_OFFSETS}, **refusals(404, 408, 409, 413, 415, 507)},
    openapi_extra=request_body(
        MessagesToAppend,
        {
            NDJSON: {"type": "string", "description": "a message a line"},
            ARROW_STREAM: {
                **_ARROW,
                "description": "topic, queue_id, body (binary or string); if wanted keys (list of "
                "string) or key, message_id, headers (list of struct of name: string, value: binary), "
                "timestamp, deliver_at",
            },
        },
    ),
)
async def append_messages(request: Request, query: Annotated[AppendQuery, Query()]) -> Response:
    """Append all messages of the body, or none of them; answer once they have the level."""
    service = service_of(request)
    log = service.message_log
    kind, body = await read_body(request, JSON, NDJSON, ARROW_STREAM)
    if len(body) < _SMALL_BODY_BYTES:
        columns = _columns(service, kind, body)
    else:
        columns = await service.in_thread(_columns, service, kind, body)
    record = record_of(request)
    if columns.row_count and record.reads_topics(Scope.WRITE):
        record.need(Scope.WRITE, topics_in(columns.columns["topic"], "messages"))
    how = (log, query.durability, query.expect_offset)
    pending: PendingBatch | None = None
    if isinstance(columns, OneMessage):
        pending = columns.append_at_once(*how)
    if pending is None:  # in a thread: a full stage is written by the one who appends
        pending = await service.in_thread(columns.append_nowait, *how)
        assert pending is not None
    await _settled(pending)
    service.metrics.count_appended(len(pending.offsets), query.durability)
    if _wants_arrow(request):
        offsets = pa.array(pending.offsets, pa.int64(), mask=pending.offsets < 0)
        return Response(write_stream(pa.table({"offset": offsets})), media_type=ARROW_STREAM)
    given = [None if offset < 0 else offset for offset in pending.offsets.tolist()]
    return json_response({"offsets": given, "durability": query.durability})


def _columns(service: Service, kind: str, body: bytes) -> MessageColumns | OneMessage:
    if kind == ARROW_STREAM:
        return read_message_table(body, service.limits)
    read = read_message_lines if kind == NDJSON else read_messages
    return read(body, service.limits, service.clock.now_ms())


async def _settled(pending: PendingBatch) -> None:
    """Return once the commit has the level. Raises why it has not."""
    if not pending.commit.is_settled(pending.level):
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def tell(_commit: Commit) -> None:
            loop.call_soon_threadsafe(done.set)

        pending.commit.add_callback(pending.level, tell)
        await done.wait()
    pending.commit.raise_error(pending.level)


def _wants_arrow(request: Request) -> bool:
    return ARROW_STREAM in request.headers.get("accept", "")


@router.get(
    "/v1/messages",
    summary="Read messages",
    response_model=Messages | MessagesFound,
    dependencies=[require(Scope.MESSAGE, MessagesQuery)],
    responses={200: {"content": _ARROW_MESSAGES}, **refusals(404, 410)},
)
async def get_messages(request: Request, query: Annotated[MessagesQuery, Query()]) -> Response:
    """Read messages of a queue from an offset on, and wait for more at its end; or those of a key.

    A queue's messages come as Arrow where `Accept` names it, else as JSON.
    """
    service = service_of(request)
    log = service.message_log
    if query.topic is not None:
        record_of(request).need_unmasked(query.topic)
    if query.key is None and query.message_id is None:
        return await _queue_messages(request, service, query)
    _refuse(query, _OF_QUEUE, "is for a queue, not for a key")
    find = partial(
        log.get, query.topic, key=query.key, message_id=query.message_id, begin=query.begin,
        end=query.end, max_count=query.max_count or _FOUND_MOST, cursor=query.cursor, visible=query.visible,
        policy=query.policy, fresh_within=query.fresh_within,
    )  # fmt: skip
    found: FoundMessages = await service.in_thread(find)
    for message in found:
        record_of(request).need_unmasked(message.topic)
    service.metrics.count_read(len(found), found.explain)
    if not len(found) and query.cursor is None:
        found = replace(found, hints=await hints_of(request, query, is_complete=found.complete))
    return json_response(found_document(found, query.encoding))


def _refuse(query: MessagesQuery, names: Iterable[str], why: str) -> None:
    for name in names:
        if getattr(query, name) is not None:
            raise InvalidRequestError(why, field=name)


async def _queue_messages(request: Request, service: Service, query: MessagesQuery) -> Response:
    _refuse(query, _OF_KEY, "is for a key, not for a queue")
    if query.topic is None or query.queue_id is None:
        field = "topic" if query.topic is None else "queue_id"
        raise InvalidRequestError("is required, or `key`, or `message_id`", field=field)
    read = partial(
        service.message_log.read, query.topic, query.queue_id, query.offset or 0,
        max_count=query.max_count or _READ_MOST, max_bytes=query.max_bytes or _READ_BYTES,
        visible=query.visible, policy=query.policy, group=query.group,
    )  # fmt: skip
    answer: ReadAnswer
    if query.wait_ms and service.arrivals is not None:
        seconds = min(query.wait_ms / 1000, service.settings.max_wait)
        with service.arrivals.place():
            answer = await service.arrivals.wait_for_more(
                request, partial(service.in_thread, read), seconds, query.visible
            )
    else:
        answer = await service.in_thread(read)
    service.metrics.count_read(len(answer), answer.explain)
    render = partial(_render, answer, None if _wants_arrow(request) else query.encoding)
    if answer.batch.content_bytes < _FEW_BYTES:
        return render()
    return await service.in_thread(render)  # type: ignore[no-any-return]


def _render(answer: ReadAnswer, encoding: str | None) -> Response:
    """Return an answer as JSON, or as Arrow without an encoding."""
    if encoding is None:
        return Response(messages_stream(answer), media_type=ARROW_STREAM)
    return json_response(messages_document(answer, encoding))


@router.get(
    "/v1/queues",
    summary="List queues",
    response_model=LogQueues,
    dependencies=[require(Scope.READ, QueuesQuery, in_route=True)],
    responses=refusals(404),
)
async def get_queues(request: Request, query: Annotated[QueuesQuery, Query()]) -> Response:
    """List the topics of the message log that the caller may read, or the queues of one topic."""
    service, record = service_of(request), record_of(request)
    if query.topic is not None:
        record.need(Scope.READ, (query.topic,))
    found = await service.in_thread(_queues, service.message_log, query)
    found["topics"] = [topic for topic in found["topics"] if record.may(Scope.READ, topic)]
    return json_response({**found, "restricted": record.is_limited(Scope.READ)})


def _queues(log: MessageLog, query: QueuesQuery) -> dict[str, Any]:
    if query.topic is None:
        return {"topics": log.topics(), "queues": [], "next_queue_id": None}
    found = log.queues(query.topic, first=query.from_queue_id, max_count=query.max_count + 1)
    rows = [
        {
            "queue_id": queue_id,
            "begin_offset": log.begin_offset(query.topic, queue_id),
            "end_offset": log.end_offset(query.topic, queue_id),
        }
        for queue_id in found[: query.max_count]
    ]
    more = found[query.max_count :]
    return {"topics": [query.topic], "queues": rows, "next_queue_id": more[0] if more else None}


@router.get(
    "/v1/offsets",
    summary="Offsets of a queue",
    response_model=LogOffsets,
    dependencies=[require(Scope.READ, OffsetsQuery)],
    responses=refusals(404),
)
async def get_offsets(request: Request, query: Annotated[OffsetsQuery, Query()]) -> Response:
    """Tell where a queue begins, where it ends at each level, and which offset a time has."""
    service = service_of(request)
    return json_response(await service.in_thread(_offsets, service.message_log, query))


def _offsets(log: MessageLog, query: OffsetsQuery) -> dict[str, Any]:
    queue = (query.topic, query.queue_id)
    return {
        "topic": query.topic,
        "queue_id": query.queue_id,
        "begin_offset": log.begin_offset(*queue),
        "end_offsets": log.end_offsets(*queue),
        "offset": None if query.timestamp is None else log.offset_at(*queue, query.timestamp),
    }


@router.get(
    "/v1/timers",
    summary="Messages to be delivered",
    response_model=TimerHours,
    dependencies=[require(Scope.READ)],
    responses=refusals(404),
)
async def get_timers(request: Request) -> Response:
    """List the hours in which messages with a `deliver_at` are to be delivered, and how many each."""
    service = service_of(request)
    hours = await service.in_thread(service.message_log.timers)
    return json_response({"hours": [hour._asdict() for hour in hours]})
