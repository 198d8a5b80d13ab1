"""Routes of traces: spans come by OTLP, and go as Tempo and Jaeger answer a trace ID.

A message of the log has the spans that a request sent of one trace, under the trace's ID; they are kept as
the service keeps every message. Tempo, its external finder (`querier.trace_by_id.external`) and Grafana ask
below `/tempo`, Jaeger's users below `/jaeger`: both call their path `/api/traces/{id}`.

A trace that cannot be read whole is a refusal, never a shorter trace, nor "not found".

Depends on app.http, app.rights, app.traces, errors, fastapi, google, resolving and starlette.
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotation
from starlette.responses import Response

from tierdex.app.http.body import JSON, content_encoding, media_type
from tierdex.app.http.problems import HttpRefusalError
from tierdex.app.http.security import require
from tierdex.app.http.service import json_response, record_of, service_of
from tierdex.app.rights import Scope
from tierdex.app.traces.jaeger import jaeger_trace
from tierdex.app.traces.otlp import as_json, parts_of, read_request, response, trace_id_of, trace_of
from tierdex.errors import InvalidRequestError, RequestTooLargeError, UnavailableError
from tierdex.resolving.compression import decompress
from tierdex.resolving.resolver import TooLargeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.app.http.service import Service
    from tierdex.log_service.message_log import MessageLog

_PROTOBUF: Final = "application/x-protobuf"
_ASKED_PROTOBUF: Final = ("application/protobuf", _PROTOBUF)
_PAGE: Final = 256  # messages of a trace that are read at once
_QUEUE: Final = 0
_DURABILITY: Final = "os"

router = APIRouter(include_in_schema=False)


@router.post("/v1/traces", dependencies=[require(Scope.WRITE, any_query=True, in_route=True)])
async def take_spans(request: Request) -> Response:
    """Take spans by OTLP over HTTP, as protobuf or JSON, plain or gzip; answer once all are written."""
    service = service_of(request)
    log, topic = service.message_log, service.settings.trace_topic
    record_of(request).need(Scope.WRITE, (topic,))
    kind = media_type(request, _PROTOBUF, JSON)
    is_json, encoding = kind == JSON, content_encoding(request)
    if encoding not in ("identity", "gzip"):
        raise HttpRefusalError(415, "send bodies plain or as gzip", {"accept-encoding": "gzip"})
    body, settings = await request.body(), service.settings
    most = settings.max_json_bytes if is_json else settings.max_body_bytes
    count = await service.in_thread(_append, log, topic, body, encoding, most, is_json)
    service.metrics.count_appended(count, _DURABILITY)
    return Response(response(is_json=is_json), media_type=kind)


def _append(
    log: MessageLog, topic: str, body: bytes, encoding: str, most: int, is_json: bool
) -> int:
    """Append the spans of a request, a message a trace: all of them or none. Return how many messages."""
    parts = parts_of(read_request(_unfolded(body, encoding, most), is_json=is_json))
    if parts:
        log.append_batch(
            topic=topic,
            queue_id=_QUEUE,
            body=[part.body for part in parts],
            key=[part.trace_id for part in parts],
            timestamp=[part.begin_ms for part in parts],
            durability=_DURABILITY,
        )
    return len(parts)


def _unfolded(body: bytes, encoding: str, most: int) -> bytes:
    """Return a body as it was before its exporter compressed it, at most `most` bytes."""
    if encoding == "identity":
        return body
    try:
        return decompress(body, encoding, most)
    except TooLargeError as error:
        raise RequestTooLargeError(f"unfolds to more than {most} bytes", field="body") from error
    except ValueError as error:
        raise InvalidRequestError(str(error), field="body") from error


@router.get(
    "/tempo/api/traces/{trace_id}",
    dependencies=[require(Scope.MESSAGE, any_query=True, in_route=True)],
)
async def tempo_trace(request: Request, trace_id: str) -> Response:
    """Answer a trace as Tempo does: `TracesData` in protobuf where `Accept` names it, else JSON."""
    return await _tempo_answer(
        request, trace_id, bytes, lambda told: {"batches": told.get("resourceSpans", [])}
    )


@router.get(
    "/tempo/api/v2/traces/{trace_id}",
    dependencies=[require(Scope.MESSAGE, any_query=True, in_route=True)],
)
async def tempo_trace_in_envelope(request: Request, trace_id: str) -> Response:
    """The same as `TraceByIDResponse`, which has the trace in its field `trace`."""
    return await _tempo_answer(
        request,
        trace_id,
        lambda trace: _envelope()(trace=trace).SerializeToString(),
        lambda told: {"trace": told},
    )


async def _tempo_answer(
    request: Request,
    trace_id: str,
    body_of: Callable[[bytes], bytes],
    document_of: Callable[[dict[str, Any]], dict[str, Any]],
) -> Response:
    trace = await _trace(request, trace_id_of(trace_id))
    if trace is None:
        return Response(status_code=404)  # Tempo decodes the body of a 404, too: it must be empty
    accepted = request.headers.get("accept", "")
    if any(kind in accepted for kind in _ASKED_PROTOBUF):
        return Response(body_of(trace.SerializeToString()), media_type=_ASKED_PROTOBUF[0])
    return json_response(document_of(as_json(trace)))


@router.get(
    "/jaeger/api/traces/{trace_id}",
    dependencies=[require(Scope.MESSAGE, any_query=True, in_route=True)],
)
async def jaeger_ui_trace(request: Request, trace_id: str) -> Response:
    """Answer a trace in the JSON of Jaeger's UI."""
    wanted = trace_id_of(trace_id)
    trace = await _trace(request, wanted)
    if trace is None:
        answer = json_response({"data": None, "errors": [{"code": 404, "msg": "trace not found"}]})
        answer.status_code = 404
        return answer
    data = [jaeger_trace(wanted, trace)]
    return json_response({"data": data, "total": 0, "limit": 0, "offset": 0, "errors": None})


@router.get("/tempo/api/echo", dependencies=[require(Scope.READ, any_query=True, in_route=True)])
async def echo(request: Request) -> Response:
    """Answer Grafana's test of a Tempo data source."""
    return Response("echo", media_type="text/plain")


@router.get(
    "/jaeger/api/services", dependencies=[require(Scope.READ, any_query=True, in_route=True)]
)
async def jaeger_services(request: Request) -> Response:
    """Answer Grafana's test of a Jaeger data source: traces are found by their IDs, not by services."""
    return json_response({"data": ["tierdex"], "total": 1, "limit": 0, "offset": 0, "errors": None})


async def _trace(request: Request, trace_id: str) -> Any:
    """Return a trace, None where there is none. Raises UnavailableError where that is not sure."""
    service = service_of(request)
    topic = service.settings.trace_topic
    record = record_of(request)
    record.need(Scope.MESSAGE, (topic,))
    record.note_names((trace_id,))
    record.need_unmasked(topic)
    return await service.in_thread(_read, service, topic, trace_id)


def _read(service: Service, topic: str, trace_id: str) -> Any:
    most, taken, cursor = service.settings.max_body_bytes, 0, None
    bodies: list[bytes] = []
    find = partial(
        service.message_log.get, topic, key=trace_id, max_count=_PAGE, visible=_DURABILITY
    )
    while True:
        found = find(cursor=cursor)
        if not found.complete:
            raise UnavailableError(
                f"trace {trace_id} cannot be read whole: {len(found.missing)} parts of the log could not "
                "be read; ask again"
            )
        for message in found:
            bodies.append(bytes(message.body))
            taken += len(bodies[-1])
        if taken > most:
            raise RequestTooLargeError(
                f"trace {trace_id} has more than {most} bytes (max_body_bytes)", field="trace_id"
            )
        cursor = found.next_cursor
        if cursor is None:
            break
    service.metrics.count_read(len(bodies), found.explain)
    trace = trace_of(trace_id, reversed(bodies))  # the oldest first
    return trace if trace.resource_spans else None


@cache
def _envelope() -> Any:
    """Return the class of Tempo's `TraceByIDResponse`, as far as it is needed here."""
    file = descriptor_pb2.FileDescriptorProto(
        name="tierdex/tempo_trace_by_id.proto", package="tierdex.tempo", syntax="proto3"
    )
    field = descriptor_pb2.FieldDescriptorProto
    file.message_type.add(name="TraceByIDResponse").field.add(
        name="trace", number=1, type=field.TYPE_BYTES, label=field.LABEL_OPTIONAL
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    described = pool.FindMessageTypeByName("tierdex.tempo.TraceByIDResponse")
    return message_factory.GetMessageClass(described)
