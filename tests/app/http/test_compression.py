"""Compressed answers, and answers that a caller has already."""

from __future__ import annotations

import gzip
import io

import anyio
import orjson
import pyarrow as pa
import pytest

from tests.app.conftest import ENTRY
from tests.app.http.test_service import ARROW, arrow_stream
from tierdex.app.http.compression import Compression, accepted_codings

BIG = "/openapi.json"
TAGGED = ["/v1/admin/files", "/v1/topics", "/openapi.json"]


def unpacked(coding, data):
    if coding == "gzip":
        return gzip.decompress(data)
    return pa.CompressedInputStream(pa.BufferReader(data), "zstd").read()


def asked(app, path, headers=(), body=None):
    """Return (status, headers, bytes as they go over the wire) of one request."""
    sent = []
    method, _, path = path.rpartition(" ")
    path, _, query = path.partition("?")
    scope = {
        "type": "http", "method": method or "GET", "path": path, "query_string": query.encode(),
        "headers": [(b"host", b"localhost"), *((n.encode(), v.encode()) for n, v in headers)],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "scheme": "http",
        "http_version": "1.1",
    }  # fmt: skip

    async def receive():
        return {"type": "http.request", "body": body or b"", "more_body": False}

    async def send(message):
        sent.append(message)

    anyio.run(app, scope, receive, send)
    start, *parts = sent
    told = {name.decode(): value.decode() for name, value in start["headers"]}
    return start["status"], told, b"".join(part["body"] for part in parts)


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ("gzip", "gzip"),
        ("gzip, deflate, br, zstd", "zstd"),
        ("gzip;q=0.5, ZSTD;q=0", "gzip"),
        ("gzip;q=0", None),
        ("br", None),
        ("", None),
    ],
)
def test_long_answer_is_compressed_as_the_caller_takes_it(caller, accepted, coding):
    plain = asked(caller.app, BIG)[2]
    status, headers, data = asked(caller.app, BIG, [("accept-encoding", accepted)])
    assert (status, headers.get("content-encoding")) == (200, coding)
    assert headers["vary"] == "Accept-Encoding"
    assert int(headers["content-length"]) == len(data) == caller.log_lines()[-1]["bytes"]
    if coding is None:
        assert data == plain
    else:
        assert len(data) < len(plain) / 4
        assert unpacked(coding, data) == plain


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_tables_are_compressed_and_short_answers_are_not(caller, coding):
    caller.post("/v1/entries", json={"entries": [ENTRY]})
    count = 5000  # above what is compressed in the event loop
    lookups = pa.table({"topic": ["orders"] * count, "key": ["ORDER-1"] * count})
    headers = [("accept-encoding", coding), *ARROW.items()]
    path = "POST /v1/entries:batchGet"
    _, told, data = asked(caller.app, path, headers, arrow_stream(lookups))
    assert told["content-encoding"] == coding
    assert pa.ipc.open_stream(unpacked(coding, data)).read_all().num_rows == count
    assert "content-encoding" not in asked(caller.app, "/version", headers)[1]


def test_nothing_is_compressed_where_the_setting_says_so(make_caller):
    headers = asked(make_caller(compress_above=None).app, BIG, [("accept-encoding", "gzip")])[1]
    assert "content-encoding" not in headers


@pytest.mark.parametrize("header", [(b"content-encoding", b"br"), (b"content-type", b"image/png")])
def test_what_is_compressed_already_goes_as_it_is(header):
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [header]})
        await send({"type": "http.response.body", "body": b"x" * 10_000})

    _, headers, data = asked(Compression(app, above=100), "/", [("accept-encoding", "zstd, gzip")])
    assert data == b"x" * 10_000
    assert headers == {header[0].decode(): header[1].decode()}


def test_answer_in_parts_is_one_stream():
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for part in (b"a" * 1000, b"b" * 200_000, b""):
            more = {"more_body": part != b""}
            await send({"type": "http.response.body", "body": part, **more})

    for coding in ("gzip", "zstd"):
        data = asked(Compression(app, above=100), "/", [("accept-encoding", coding)])[2]
        stream = io.BytesIO(data)
        whole = gzip.decompress(data) if coding == "gzip" else frames(stream)
        assert whole == b"a" * 1000 + b"b" * 200_000


def frames(stream):
    return pa.CompressedInputStream(pa.PythonFile(stream, "r"), "zstd").read()


@pytest.mark.parametrize("path", TAGGED)
def test_answer_that_the_caller_has_is_not_sent_again(caller, path):
    caller.post("/v1/entries", json={"entries": [ENTRY]})
    tag = caller.get(path).headers["etag"]
    for known in (tag, f'"other", {tag}', "*"):
        again = caller.get(path, headers={"if-none-match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    other = caller.get(path, headers={"if-none-match": 'W/"other"'})
    assert (other.status_code, other.headers["etag"]) == (200, tag)


def test_answer_that_changed_is_sent_under_another_tag(caller):
    caller.post("/v1/entries", json={"entries": [ENTRY]})
    tags = {path: caller.get(path).headers["etag"] for path in TAGGED[:2]}
    caller.post("/v1/entries", json={"entries": [{**ENTRY, "topic": "another"}]})
    caller.index.roll()
    for path, tag in tags.items():
        answer = caller.get(path, headers={"if-none-match": tag})
        assert answer.status_code == 200
        assert orjson.loads(answer.content)


def test_codings_are_those_that_are_not_refused():
    assert accepted_codings("gzip;q=1.0 , zstd; q=0.000, br;q=0.1") == {"gzip", "br"}
