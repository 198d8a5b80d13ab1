"""The trace of a request: taken, told in the log, given on by the clients, and a span where asked for."""

from __future__ import annotations

import sys

import httpx2
import pytest
from opentelemetry import context, propagate, trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, StatusCode, TraceFlags

from tests.app.conftest import Caller
from tests.app.small_index import SmallIndex
from tierdex.app.rights import Scope
from tierdex.client.remote import Client
from tierdex.clock import ManualClock
from tierdex.connections import carried_trace, trace_headers, trace_id_of

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
HEADER = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    "wrong",
    [
        "", "x", HEADER.upper(), HEADER[:-1], f"{HEADER} ", f"{HEADER}\n", f"ff{HEADER[2:]}",
        HEADER.replace(TRACE, "0" * 32), HEADER.replace("00f067aa0ba902b7", "0" * 16), f"{HEADER}-more",
    ],
)  # fmt: skip
def test_what_is_no_traceparent_is_ignored_and_given_to_nobody(make_caller, wrong):
    assert trace_id_of(wrong) is None
    with carried_trace(wrong):
        assert trace_headers() == {}
    caller = make_caller()
    if wrong.isprintable():
        assert caller.get("/healthz", headers={"traceparent": wrong}).status_code == 200
        assert "trace_id" not in caller.log_lines()[0]


def test_trace_of_a_request_is_in_its_line_and_in_no_other(make_caller):
    caller = make_caller()
    caller.get("/v1/topics", headers={"traceparent": HEADER})
    caller.get("/v1/topics")
    first, second = caller.log_lines()
    assert first["trace_id"] == TRACE
    assert "trace_id" not in second


def test_what_a_request_calls_belongs_to_its_trace_also_in_a_thread(make_caller):
    caller, seen = make_caller(), []
    caller.index.topics = lambda: seen.append(trace_headers()) or []
    caller.get("/v1/topics", headers={"traceparent": HEADER})
    caller.get("/v1/topics")
    assert seen == [{"traceparent": HEADER}, {}]


def client_that_tells(sent):
    def answer(request):
        sent.append(request.headers.get("traceparent"))
        return httpx2.Response(200, json={"topics": [], "restricted": False})

    return Client("http://x", transport=httpx2.MockTransport(answer), clock=ManualClock())


def test_client_gives_on_what_its_program_carries_or_has_as_its_span():
    sent = []
    client = client_that_tells(sent)
    client.topics()
    with carried_trace(HEADER):
        client.topics()
    client.topics()
    span = SpanContext(int(TRACE, 16), 0xABCDEF, is_remote=False, trace_flags=TraceFlags(1))
    with trace.use_span(NonRecordingSpan(span)), carried_trace(HEADER):
        client.topics()
    assert sent == [None, HEADER, None, f"00-{TRACE}-0000000000abcdef-01"]


def test_program_without_opentelemetry_imports_none_of_it(monkeypatch):
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    monkeypatch.setattr(propagate, "inject", None)
    with carried_trace(HEADER):
        assert trace_headers() == {"traceparent": HEADER}
    assert "opentelemetry.trace" not in sys.modules


class Recorded(NonRecordingSpan):
    """A span that keeps what it is told; made by `Recorder`, as a provider makes its own."""

    def __init__(self, made):
        super().__init__(SpanContext(int(TRACE, 16), 5, is_remote=False))
        self.told = dict(made)

    def update_name(self, name):
        self.told["name"] = name

    def set_attributes(self, attributes):
        self.told["attributes"] = {**self.told["attributes"], **attributes}

    def set_status(self, status, description=None):
        self.told["status"] = status


class Recorder:
    """A tracer with which a test stands in for an SDK, through the API alone."""

    def __init__(self):
        self.spans = []

    def start_as_current_span(self, name, **made):
        parent = trace.get_current_span(made.pop("context")).get_span_context()
        span = Recorded({"name": name, "parent": parent.span_id, **made})
        self.spans.append(span)
        return trace.use_span(
            span,
            record_exception=made["record_exception"],
            set_status_on_exception=made["set_status_on_exception"],
        )


@pytest.fixture
def recorder(monkeypatch):
    made = Recorder()
    monkeypatch.setattr(trace, "get_tracer", lambda *_: made)
    return made


def test_span_tells_route_status_and_kind_of_caller_and_no_key(recorder, keys):
    key = keys.create(Scope.READ)
    caller = Caller(SmallIndex(), keys=keys, trace_spans=True)
    caller.index.topics = lambda: given.append(trace_headers()) or []
    given = []
    caller.get("/v1/topics", key=key, headers={"traceparent": HEADER})
    caller.index.error = ValueError("ORDER-1 is in this text")
    caller.get("/v1/entries?topic=orders&key=ORDER-1", key=key)
    caller.get("/nothing/ORDER-1", key=key)
    first, second, third = (span.told for span in recorder.spans)
    assert first["parent"] == 0x00F067AA0BA902B7
    assert (first["name"], first["kind"]) == ("GET /v1/topics", SpanKind.SERVER)
    assert first["attributes"] == {
        "http.request.method": "GET", "url.scheme": "http", "http.route": "/v1/topics",
        "http.response.status_code": 200, "tierdex.caller": "key",
    }  # fmt: skip
    assert given == [{"traceparent": f"00-{TRACE}-0000000000000005-00"}]
    assert (second["attributes"]["http.response.status_code"], second["status"]) == (
        500,
        StatusCode.ERROR,
    )
    assert third["attributes"]["http.route"] == "(none)"
    assert "ORDER-1" not in str([first, second, third])
    assert "status" not in first
    assert not trace.get_current_span(context.get_current()).get_span_context().is_valid
    assert [line["trace_id"] for line in caller.log_lines() if line["event"] == "request"] == [
        TRACE
    ] * 3


def test_spans_without_a_provider_cost_nothing_and_change_nothing(make_caller):
    caller = make_caller(trace_spans=True)
    assert caller.get("/v1/topics").status_code == 200
    caller.get("/v1/topics", headers={"traceparent": HEADER})
    assert [line.get("trace_id") for line in caller.log_lines()] == [None, TRACE]
