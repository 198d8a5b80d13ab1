"""A trace in the JSON of Jaeger's UI, `/api/traces/{id}`, which Grafana's data source reads.

Times are microseconds. Kind, status and scope become tags, events logs, links references, as Jaeger's own
translation from OTLP has them.

Source: opentelemetry.io, "OpenTelemetry to Jaeger Transformation". Depends on google.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from google.protobuf.json_format import MessageToJson

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
    from opentelemetry.proto.trace.v1.trace_pb2 import Span, TracesData

_NS_OF_US: Final = 1000
_SERVICE: Final = "service.name"
_KINDS: Final = {1: "internal", 2: "server", 3: "client", 4: "producer", 5: "consumer"}
_ERROR: Final = 2
_STATUSES: Final = {1: "OK", _ERROR: "ERROR"}
_TYPES: Final = {
    "string_value": "string",
    "bool_value": "bool",
    "int_value": "int64",
    "double_value": "float64",
}


def jaeger_trace(trace_id: str, trace: TracesData) -> dict[str, Any]:
    """Return the `data` of one trace."""
    processes: dict[str, Any] = {}
    spans = []
    for number, resource in enumerate(trace.resource_spans, 1):
        process = f"p{number}"
        named = {each.key: each.value for each in resource.resource.attributes}
        service = named.pop(_SERVICE).string_value if _SERVICE in named else "unknown_service"
        tags = [_tag(name, value) for name, value in named.items()]
        processes[process] = {"serviceName": service, "tags": tags}
        for scope in resource.scope_spans:
            named_scope = {
                "otel.scope.name": scope.scope.name,
                "otel.scope.version": scope.scope.version,
            }
            of_scope = [_text(name, text) for name, text in named_scope.items() if text]
            spans += [_span(trace_id, span, process, of_scope) for span in scope.spans]
    return {"traceID": trace_id, "spans": spans, "processes": processes, "warnings": None}


def _span(
    trace_id: str, span: Span, process: str, of_scope: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "traceID": trace_id,
        "spanID": span.span_id.hex(),
        "flags": span.flags & 0xFF,
        "operationName": span.name,
        "references": list(_references(trace_id, span)),
        "startTime": span.start_time_unix_nano // _NS_OF_US,
        "duration": max(0, span.end_time_unix_nano - span.start_time_unix_nano) // _NS_OF_US,
        "tags": [*_tags(span.attributes), *of_scope, *_kind_and_status(span)],
        "logs": [
            {
                "timestamp": event.time_unix_nano // _NS_OF_US,
                "fields": [_text("event", event.name), *_tags(event.attributes)],
            }
            for event in span.events
        ],
        "processID": process,
        "warnings": None,
    }


def _references(trace_id: str, span: Span) -> Iterator[dict[str, str]]:
    if span.parent_span_id:
        parent = span.parent_span_id.hex()
        yield {"refType": "CHILD_OF", "traceID": trace_id, "spanID": parent}
    for link in span.links:
        yield {
            "refType": "FOLLOWS_FROM", "traceID": link.trace_id.hex(), "spanID": link.span_id.hex(),
        }  # fmt: skip


def _kind_and_status(span: Span) -> Iterator[dict[str, Any]]:
    if span.kind in _KINDS:
        yield _text("span.kind", _KINDS[span.kind])
    if span.status.code in _STATUSES:
        yield _text("otel.status_code", _STATUSES[span.status.code])
    if span.status.code == _ERROR:
        yield {"key": "error", "type": "bool", "value": True}
    if span.status.message:
        yield _text("otel.status_description", span.status.message)
    if span.trace_state:
        yield _text("w3c.tracestate", span.trace_state)


def _tags(attributes: Any) -> list[dict[str, Any]]:
    pairs: list[KeyValue] = list(attributes)
    return [_tag(each.key, each.value) for each in pairs]


def _text(name: str, text: str) -> dict[str, Any]:
    return {"key": name, "type": "string", "value": text}


def _tag(name: str, value: AnyValue) -> dict[str, Any]:
    which = value.WhichOneof("value")
    if which in _TYPES:
        return {"key": name, "type": _TYPES[which], "value": getattr(value, which)}
    if which == "bytes_value":
        return _text(name, value.bytes_value.hex())
    return _text(name, "" if which is None else MessageToJson(value, indent=None))
