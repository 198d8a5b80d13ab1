"""Spans as OTLP sends them: read from a request, parted by trace, put together again.

A message of the log holds the spans that one request had of one trace, with their resources and scopes, as an
OTLP `TracesData`; a message that a collector wrote to Kafka holds those of many traces. A trace is what all
messages under its ID have of it, each span once: exporters send again what was not acknowledged.

OTLP's JSON spells trace and span IDs in hexadecimal digits, protobuf's JSON in base64. Everything else is
protobuf's own reading and writing of opentelemetry-proto.

Source: OpenTelemetry Protocol 1.x. Depends on errors, google, opentelemetry and orjson.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_HEX_IDS: Final = frozenset({"traceId", "spanId", "parentSpanId", "trace_id", "span_id"})
_ID: Final = re.compile(r"[0-9A-Fa-f]{1,32}")
_ID_DIGITS: Final = 32
_NS_OF_MS: Final = 1_000_000


class TracePart(NamedTuple):
    """The spans of one trace in one request: `body` is a `TracesData`, `begin_ms` the first span's start."""

    trace_id: str
    begin_ms: int
    body: bytes


def trace_id_of(text: str) -> str:
    """Return a trace ID as 32 digits in lower case; Jaeger leaves zeros at the front out."""
    if not _ID.fullmatch(text):
        raise InvalidRequestError("is a trace ID: up to 32 hexadecimal digits", field="trace_id")
    return text.lower().rjust(_ID_DIGITS, "0")


def read_request(body: bytes, *, is_json: bool) -> ExportTraceServiceRequest:
    """Return what an exporter sent. Raises InvalidRequestError."""
    try:
        request = ExportTraceServiceRequest()
        if is_json:
            ParseDict(_respelled(orjson.loads(body)), request, ignore_unknown_fields=True)
        else:
            request.MergeFromString(body)
        return request
    except (DecodeError, ParseError, ValueError, TypeError) as error:
        raise InvalidRequestError(f"is no OTLP request of traces: {error}", field="body") from error


def response(*, is_json: bool) -> bytes:
    """Return the answer to a request that was taken as a whole."""
    return b"{}" if is_json else ExportTraceServiceResponse().SerializeToString()


def parts_of(request: ExportTraceServiceRequest) -> list[TracePart]:
    """Return the spans of each trace, in the order in which the request has the traces.

    Raises InvalidRequestError for a span whose trace ID is not 16 bytes, or all zeros.
    """
    traces: dict[bytes, _Gathered] = {}
    for resource, scope, span in _spans(request):
        trace = traces.get(span.trace_id)
        if trace is None:
            if len(span.trace_id) != _ID_DIGITS // 2 or not any(span.trace_id):
                raise InvalidRequestError(
                    f"span {span.name!r} has a trace ID of {len(span.trace_id)} bytes, or of zeros: "
                    "16 bytes are wanted",
                    field="trace_id",
                )
            trace = traces[span.trace_id] = _Gathered()
        trace.add(resource, scope, span)
    return [
        TracePart(trace_id.hex(), trace.begin_ns // _NS_OF_MS, trace.data.SerializeToString())
        for trace_id, trace in traces.items()
    ]


def trace_of(trace_id: str, bodies: Iterable[bytes]) -> TracesData:
    """Return the spans of a trace in all bodies, each span once; without spans when no body has any.

    Raises InvalidRequestError for a body that holds no spans of OTLP.
    """
    wanted, gathered, seen = bytes.fromhex(trace_id), _Gathered(), set()
    for body in bodies:
        try:
            data = TracesData.FromString(body)
        except DecodeError as error:
            raise InvalidRequestError(
                f"a message under the trace ID {trace_id} holds no spans of OTLP: {error}"
            ) from error
        for resource, scope, span in _spans(data):
            known = (span.span_id, span.kind)  # a client and a server may share an ID
            if span.trace_id == wanted and known not in seen:
                seen.add(known)
                gathered.add(resource, scope, span)
    return gathered.data


def as_json(trace: TracesData) -> dict[str, Any]:
    """Return a trace as protobuf writes it in JSON, IDs in base64: Tempo's form."""
    document: dict[str, Any] = MessageToDict(trace)
    return document


class _Gathered:
    """Spans under their resources and scopes."""

    def __init__(self) -> None:
        self.data = TracesData()
        self.begin_ns = (1 << 63) - 1
        self._resources: dict[bytes, Any] = {}
        self._scopes: dict[tuple[bytes, bytes], Any] = {}

    def add(self, resource: Any, scope: Any, span: Any) -> None:
        of_resource = resource.resource.SerializeToString(deterministic=True)
        place = of_resource, scope.scope.SerializeToString(deterministic=True)
        into = self._scopes.get(place)
        if into is None:
            under = self._resources.get(of_resource)
            if under is None:
                under = self._resources[of_resource] = self.data.resource_spans.add()
                under.resource.CopyFrom(resource.resource)
                under.schema_url = resource.schema_url
            into = self._scopes[place] = under.scope_spans.add()
            into.scope.CopyFrom(scope.scope)
            into.schema_url = scope.schema_url
        into.spans.add().CopyFrom(span)
        self.begin_ns = min(self.begin_ns, span.start_time_unix_nano)


def _spans(data: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield each span with its resource's and its scope's part of the message."""
    for resource in data.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield resource, scope, span


def _respelled(value: Any) -> Any:
    """Return OTLP's JSON as protobuf's: IDs in base64. Raises ValueError for one that is not hexadecimal."""
    if isinstance(value, list):
        return [_respelled(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: base64.b64encode(bytes.fromhex(each)).decode()
        if name in _HEX_IDS and isinstance(each, str)
        else _respelled(each)
        for name, each in value.items()
    }
