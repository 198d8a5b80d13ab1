"""Traces: spans of a real exporter come in, and go as Tempo and Jaeger answer them."""

from __future__ import annotations

import gzip
import json
import urllib.error
import urllib.request

import pytest
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode, format_trace_id, set_span_in_context

import tierdex
from tests.following.memory_log import MemoryLog
from tests.servers.tierdex_server import running_tierdex
from tierdex.app.traces.otlp import read_request

GONE = "0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running_tierdex(
        tmp_path_factory.mktemp("traces") / "data", log=True, traces=True, journal_bytes=1 << 24
    ) as server:
        host, port = server.address
        yield f"http://{host}:{port}"


def sent_trace(service, name, compression=Compression.NoCompression):
    """Send a trace of three spans of two services, each span in a request of its own; return its ID."""
    tracers = []
    for of in ("shop", "stock"):
        exporter = OTLPSpanExporter(f"{service}/v1/traces", compression=compression)
        provider = TracerProvider(resource=Resource.create({"service.name": of, "host.name": "h"}))
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        tracers.append(provider.get_tracer("tests", "1.0"))
    with tracers[0].start_as_current_span(name, kind=SpanKind.SERVER) as root:
        root.set_attribute("order", "ORDER-8841")
        root.add_event("paid", {"by": "card"})
        with tracers[1].start_as_current_span(
            "reserve", context=set_span_in_context(root), kind=SpanKind.CLIENT
        ) as child:
            child.set_attribute("tries", 3)
            child.set_status(Status(StatusCode.ERROR, "none left"))
        with tracers[0].start_as_current_span("ship"):
            pass
        return format_trace_id(root.get_span_context().trace_id)


def ask(url, data=None, **headers):
    """Return (status, type, body)."""
    request = urllib.request.Request(
        url, data, {k.replace("_", "-"): v for k, v in headers.items()}
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.headers["content-type"], answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["content-type"], error.read()


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip])
def test_trace_of_an_exporter_comes_whole_as_tempo_answers_it(service, compression):
    trace_id = sent_trace(service, "order", compression)
    accepted = {"Accept": "application/protobuf"}
    status, kind, body = ask(f"{service}/tempo/api/traces/{trace_id}?start=0&end=9", **accepted)
    assert (status, kind) == (200, "application/protobuf")
    trace = TracesData.FromString(body)
    names = {
        (resource.resource.attributes[-1].value.string_value, span.name)
        for resource in trace.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    }
    assert {name for _, name in names} == {"order", "reserve", "ship"}
    assert len(trace.resource_spans) == 2
    assert all(
        span.trace_id.hex() == trace_id
        for resource in trace.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    )
    enveloped = ask(f"{service}/tempo/api/v2/traces/{trace_id}", **accepted)[2]
    assert enveloped.endswith(body)  # field 1 of the envelope, behind its length
    assert enveloped[:1] == b"\x0a"
    told = json.loads(ask(f"{service}/tempo/api/v2/traces/{trace_id}")[2])
    assert len(told["trace"]["resourceSpans"]) == 2
    told = json.loads(ask(f"{service}/tempo/api/traces/{trace_id.upper()}")[2])
    assert len(told["batches"]) == 2


def test_trace_is_a_tree_with_tags_and_logs_as_jaeger_answers_it(service):
    trace_id = sent_trace(service, "jaeger")
    status, _, body = ask(f"{service}/jaeger/api/traces/{trace_id.lstrip('0')}")
    assert status == 200
    (trace,) = json.loads(body)["data"]
    spans = {span["operationName"]: span for span in trace["spans"]}
    root, child = spans["jaeger"], spans["reserve"]
    assert child["references"] == [
        {"refType": "CHILD_OF", "traceID": trace_id, "spanID": root["spanID"]}
    ]
    assert trace["processes"][root["processID"]]["serviceName"] == "shop"
    assert trace["processes"][child["processID"]]["serviceName"] == "stock"
    tags = {tag["key"]: (tag["type"], tag["value"]) for tag in child["tags"]}
    assert tags["tries"] == ("int64", 3)
    assert tags["error"] == ("bool", True)
    assert tags["otel.status_description"] == ("string", "none left")
    assert tags["span.kind"] == ("string", "client")
    assert [field["value"] for field in root["logs"][0]["fields"]] == ["paid", "card"]
    assert root["duration"] >= child["duration"] >= 0
    assert 0 <= child["startTime"] - root["startTime"] <= root["duration"]


def test_absent_trace_is_a_404_without_a_body_for_tempo(service):
    for path in ("traces", "v2/traces"):
        status, _, body = ask(f"{service}/tempo/api/{path}/{GONE}", Accept="application/protobuf")
        assert (status, body) == (404, b"")
    status, _, body = ask(f"{service}/jaeger/api/traces/{GONE}")
    assert (status, json.loads(body)["errors"][0]["code"]) == (404, 404)
    for wrong in ("xyz", "0" * 33):
        assert ask(f"{service}/tempo/api/traces/{wrong}")[0] == 400
    assert ask(f"{service}/tempo/api/echo")[2] == b"echo"
    assert json.loads(ask(f"{service}/jaeger/api/services")[2])["data"]


def span(trace_id, span_id, name="s"):
    return {
        "traceId": trace_id, "spanId": span_id, "name": name, "kind": 2,
        "startTimeUnixNano": "1700000000000000000", "endTimeUnixNano": "1700000000001000000",
        "newFieldOfALaterVersion": 1,
    }  # fmt: skip


def request_of(*spans):
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}).encode()


def test_json_of_otlp_is_taken_and_a_span_that_comes_twice_is_shown_once(service):
    first, other = "a" * 32, "b" * 32
    body = request_of(span(first, "1" * 16), span(other, "2" * 16), span(first, "3" * 16))
    for _ in range(2):
        status, kind, answer = ask(f"{service}/v1/traces", body, Content_Type="application/json")
        assert (status, kind, answer) == (200, "application/json", b"{}")
    told = json.loads(ask(f"{service}/jaeger/api/traces/{first}")[2])["data"][0]
    assert sorted(each["spanID"] for each in told["spans"]) == ["1" * 16, "3" * 16]
    told = json.loads(ask(f"{service}/v1/entries?topic=traces&key={other}")[2])
    assert {each["timestamp"] for each in told["entries"]} == {1_700_000_000_000}


def test_request_that_cannot_be_is_refused_as_a_whole(service):
    good, key = span("c" * 32, "1" * 16), "c" * 32
    bad = [
        request_of(good, span("", "2" * 16)),
        request_of(good, span("0" * 32, "2" * 16)),
        request_of(good, span("xy", "2" * 16)),
        b"[1]", b"{", b'{"resourceSpans": 7}',
    ]  # fmt: skip
    for body in bad:
        assert ask(f"{service}/v1/traces", body, Content_Type="application/json")[0] == 400
    proto = ExportTraceServiceRequest()
    proto.resource_spans.add().scope_spans.add().spans.add(trace_id=bytes(16), name="zeros")
    packed = gzip.compress(proto.SerializeToString())
    kinds = {"Content_Type": "application/x-protobuf", "Content_Encoding": "gzip"}
    for body in (packed, packed[:-9], b"no gzip"):
        assert ask(f"{service}/v1/traces", body, **kinds)[0] == 400
    assert ask(f"{service}/v1/traces", b"\xff\xff", Content_Type="application/x-protobuf")[0] == 400
    bomb = gzip.compress(bytes(70 << 20))
    assert ask(f"{service}/v1/traces", bomb, **kinds)[0] == 413
    assert ask(f"{service}/v1/traces", b"{}", Content_Type="text/plain")[0] == 415
    assert ask(f"{service}/tempo/api/traces/{key}")[0] == 404
    assert ask(f"{service}/v1/traces", b"", Content_Type="application/x-protobuf")[0] == 200


def test_spans_that_a_collector_wrote_to_a_log_are_followed_and_shown(tmp_path):
    source = MemoryLog((0,))
    for spans in ([span("d" * 32, "1" * 16), span("e" * 32, "2" * 16)], [span("d" * 32, "3" * 16)]):
        source.append(0, read_request(request_of(*spans), is_json=True).SerializeToString())
    source.append(0, b"\xff no spans")
    with tierdex.MessageLog.open(tmp_path / "data", background=False, journal_bytes=1 << 24) as log:
        status = tierdex.follow(
            log, source.source(), keys=["otlp:trace_id"], topic="otlp_spans", once=True
        ).run()
    assert (status.entries, status.unreadable) == (3, 1)
    with running_tierdex(
        tmp_path / "data", log=True, traces=True, trace_topic="otlp_spans", journal_bytes=1 << 24
    ) as server:
        address = "http://{}:{}".format(*server.address)
        told = json.loads(ask(f"{address}/jaeger/api/traces/{'d' * 32}")[2])["data"][0]
        assert sorted(each["spanID"] for each in told["spans"]) == ["1" * 16, "3" * 16]
        told = json.loads(ask(f"{address}/jaeger/api/traces/{'e' * 32}")[2])["data"][0]
        assert [each["spanID"] for each in told["spans"]] == ["2" * 16]


def test_spans_need_the_rights_of_their_topic(tmp_path):
    with running_tierdex(
        tmp_path / "data", "--allow-anonymous", "read", log=True, traces=True, journal_bytes=1 << 24
    ) as server:
        address = "http://{}:{}".format(*server.address)
        body = request_of(span("a" * 32, "1" * 16))
        assert ask(f"{address}/v1/traces", body, Content_Type="application/json")[0] == 403
        for path in ("tempo/api", "tempo/api/v2", "jaeger/api"):
            assert ask(f"{address}/{path}/traces/{'a' * 32}")[0] == 403
