"""Hostile requests, made from a seed and a number: the same two give the same bytes.

Each family below makes one kind of trouble with small random differences. `make_case(seed, number)`
takes the families in turn, so that every run of some length meets all of them.
"""

from __future__ import annotations

import gzip
import io
import random
import zlib
from typing import NamedTuple

import orjson
import pyarrow as pa

from tests.app.http.hostile.peer_questions import odd_question

ENTRY = {
    "topic": "orders",
    "keys": ["k"],
    "queue_id": 0,
    "offset": 1,
    "size": 2,
    "timestamp": 3,
}
MESSAGE = {
    "topic": "orders",
    "queue_id": 0,
    "body": "x",
    "keys": ["k"],
    "headers": [{"name": "h", "value": "v"}],
    "timestamp": 3,
}
ARROW = "application/vnd.apache.arrow.stream"
PATHS = (
    "/v1/entries", "/v1/histogram", "/v1/entries:batchGet", "/v1/topics", "/v1/watermark", "/v1/messages",
    "/v1/queues", "/v1/offsets", "/v1/timers", "/v1/entries:unpublished", "/v1/admin/nodes",
    "/v1/admin/files", "/v1/admin/files/00000001700000000000-local", "/v1/admin/files/x:verify",
    "/v1/admin/compaction", "/v1/admin/compaction:run", "/v1/admin/roll", "/v1/admin/refresh",
    "/v1/admin/expire", "/healthz", "/readyz", "/version", "/metrics", "/openapi.json", "/docs",
    "/", "/console.js",
)  # fmt: skip
BODY_PATHS = (
    "/v1/entries", "/v1/entries:batchGet", "/v1/messages", "/v1/admin/expire", "/v1/admin/refresh",
    "/v1/entries:unpublished",
)  # fmt: skip


class Case(NamedTuple):
    """`pieces` go out one after the other; `family` and the number name it in a failure."""

    family: str
    pieces: list[bytes]
    ends: str = "half"


def make_case(seed, number):
    """Return case `number` of this seed."""
    family = FAMILIES[number % len(FAMILIES)]
    rng = random.Random(f"{seed}:{number}")
    pieces = family(rng)
    ends = rng.choices(("half", "away"), (19, 1))[0]
    return Case(family.__name__, pieces if isinstance(pieces, list) else [pieces], ends)


def request(method, path, body=None, headers=(), *, version="1.1", host="localhost"):
    """Return a request's bytes; `body` adds its length."""
    lines = [f"{method} {path} HTTP/{version}".encode()]
    if host is not None:
        lines.append(f"Host: {host}".encode())
    if body is not None:
        lines.append(b"Content-Length: %d" % len(body))
    lines += [line if isinstance(line, bytes) else line.encode() for line in headers]
    return b"\r\n".join([*lines, b"", body or b""])


def post_json(path, document, headers=()):
    body = document if isinstance(document, bytes) else orjson.dumps(document)
    return request("POST", path, body, ("Content-Type: application/json", *headers))


def chunked(body, rng):
    out, at = b"", 0
    while at < len(body):
        size = rng.randint(1, 50)
        piece = body[at : at + size]
        out += b"%x\r\n%s\r\n" % (len(piece), piece)
        at += size
    return out + b"0\r\n\r\n"


def cut(data, rng, most=4):
    """Return `data` in a few pieces, each sent by itself."""
    places = sorted(rng.randint(0, len(data)) for _ in range(rng.randint(0, most)))
    return [
        data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True) if a < b
    ] or [data]


def some_bytes(rng, least, most):
    return rng.randbytes(rng.randint(least, most))


# -- families: the wire ---------------------------------------------------------------------------


def garbage(rng):
    return cut(some_bytes(rng, 1, 400), rng)


def garbage_after_a_request(rng):
    return request("GET", rng.choice(PATHS)) + some_bytes(rng, 1, 200)


def mutated_request(rng):
    data = bytearray(post_json("/v1/entries", {"entries": [ENTRY]}))
    for _ in range(rng.randint(1, 6)):
        place = rng.randrange(len(data))
        action = rng.randrange(3)
        if action == 0:
            data[place] = rng.randrange(256)
        elif action == 1:
            del data[place : place + rng.randint(1, 8)]
        else:
            data[place:place] = some_bytes(rng, 1, 8)
        if not data:
            data += b"\r\n"
    return cut(bytes(data), rng)


def truncated_request(rng):
    data = post_json(rng.choice(BODY_PATHS), {"entries": [ENTRY]})
    return cut(data[: rng.randint(1, len(data) - 1)], rng)


def bad_chunking(rng):
    bad = rng.choice(
        (
            b"ZZ\r\nx\r\n0\r\n\r\n", b"-1\r\n\r\n", b"5\r\nab\r\n0\r\n\r\n",
            b"1;ext=\x00\r\na\r\n0\r\n\r\n",
            b"ffffffffffffffffffff\r\n", b"1" * 40 + b"\r\n", b"2\r\nabc\r\n0\r\n\r\n",
            b"\r\n\r\n", b"0\r\n",
            b"1\r\na\r\n0\r\nTrailer: x\r\n\r\n", b"1;" + b"e" * 40_000 + b"\r\na\r\n0\r\n\r\n",
            b"0x1\r\na\r\n0\r\n\r\n",
        )
    )  # fmt: skip
    head = request(
        "POST", rng.choice(BODY_PATHS), None,
        ("Transfer-Encoding: chunked", "Content-Type: application/json"),
    )  # fmt: skip
    return cut(head + bad, rng)


def good_chunking_in_pieces(rng):
    body = orjson.dumps({"entries": [ENTRY] * rng.randint(0, 5)})
    head = request(
        "POST",
        "/v1/entries",
        None,
        ("Transfer-Encoding: chunked", "Content-Type: application/json"),
    )
    return cut(head + chunked(body, rng), rng, most=12)


def lengths_that_disagree(rng):
    body = orjson.dumps({"entries": [ENTRY]})
    return b"\r\n".join(
        [
            b"POST /v1/entries HTTP/1.1", b"Host: localhost", b"Content-Type: application/json",
            rng.choice(
                (
                    b"Content-Length: -1", b"Content-Length: 1e3", b"Content-Length: 99999999999999999999",
                    b"Content-Length: 5\r\nContent-Length: 6", b"Content-Length: %d" % (len(body) + 7),
                    b"Content-Length: 0", b"Content-Length: 3\r\nTransfer-Encoding: chunked",
                    b"Content-Length: \xff", b"Content-Length: +5", b"Content-Length: 5, 5",
                    b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: identity",
                    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
                    b"Transfer-Encoding : chunked", b"Content-Length: %d" % (1 << 40),
                )
            ),
            b"", body,
        ]
    )  # fmt: skip


def huge_head(rng):
    what = rng.randrange(4)
    if what == 0:
        return request("GET", "/v1/topics", None, [f"X: {'a' * rng.randint(30_000, 200_000)}"])
    if what == 1:
        return request("GET", "/" + "a" * rng.randint(30_000, 100_000))
    if what == 2:
        lines = [f"X-{n}: {n}" for n in range(rng.randint(500, 5000))]
        return request("GET", "/v1/topics", None, lines)
    return request("GET", f"/v1/entries?topic=orders&key={'k' * rng.randint(4000, 31_000)}")


def odd_header_bytes(rng):
    line = rng.choice(
        (
            b"X: \x00", b"X: \xff\xfe", b"X\x00: a", b": a", b" : a", b"X : a", b"X", b"X: a\rb",
            b"X: a\nY: b",
            b"\tX: folded", b"Authorization: Bearer \xff\xfe", b"Authorization: \xf0\x9f\x98\x80",
            b"Content-Type: \xff", b"X-Request-Id: \xff" + b"a" * 200, b"Accept: " + b"*/*," * 5000,
            b"Authorization: Bearer " + b"tdx_" * 2000, b"Expect: 100-continue", b"Expect: nonsense",
            b"Connection: close, keep-alive, \xff", b"Range: bytes=0-" + b"9" * 40,
            b"Transfer-Encoding: \xff", b"Content-Encoding: \xff",
        )
    )  # fmt: skip
    return request(rng.choice(("GET", "POST")), rng.choice(PATHS), None, (line,))


def pipelined(rng):
    good = request("GET", "/v1/topics")
    put = post_json("/v1/entries", {"entries": [ENTRY]})
    bad = post_json("/v1/entries", b"{")
    return cut(b"".join(rng.choice((good, put, bad)) for _ in range(rng.randint(2, 30))), rng)


def http_1_0(rng):
    path = rng.choice(PATHS)
    version = rng.choice(("1.0", "0.9", "1.2", "2.0", "3", "1.1.1", "x", ""))
    return request(rng.choice(("GET", "POST")), path, None, version=version, host=None)


def http_2_preface(rng):
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + some_bytes(rng, 0, 60)


def upgrade(rng):
    kind = rng.choice(("websocket", "h2c", "tls", "\x7f"))
    lines = ("Connection: Upgrade", f"Upgrade: {kind}", "Sec-WebSocket-Key: x")
    return request("GET", rng.choice(PATHS), None, lines)


def wrong_method(rng):
    method = rng.choice(
        ("PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "CONNECT", "PROPFIND", "get", "X" * 300)
    )  # fmt: skip
    return request(method, rng.choice((*PATHS, "*", "http://evil.example/")), b"")


def traversal(rng):
    path = rng.choice(
        (
            "/../../etc/passwd", "/..%2f..%2fetc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd",
            "/v1/admin/files/..%2f..%2fkeys.json", "/v1/admin/files/../../keys.json", "/./", "/%00",
            "/v1/admin/files/%2e%2e:verify", "/v1/admin/files/..;/:verify", "/console.js/../../service.py",
            "/v1/admin/files/" + "9" * 4000, "/v1/admin/files/%ff%fe", "/v1//entries", "/v1/entries/",
            "/v1/admin/files/00000000000000000001-..%2f..%2fx", "/\\..\\..\\etc", "/v1/admin/files/-", "/%",
            "/%zz", "/v1/admin/files/0-a%0d%0ax:y", "/%c0%ae%c0%ae/", "/static/../console.js",
            "/index.html%00.js",
        )
    )  # fmt: skip
    return request(rng.choice(("GET", "POST")), path, b"" if rng.random() < 0.5 else None)


def host_tricks(rng):
    host = rng.choice(
        (
            "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "localhost@evil", "",
            "[::1", "[::1]:x", "127.0.0.1:99999999", "0x7f000001", "2130706433", "localhost:80:80",
            "127.1", "localhost%00.evil", "\u0131localhost", "a" * 5000, "[::ffff:127.0.0.1]", "localhost.",
        )
    )  # fmt: skip
    lines = rng.choice(((), ("Host: localhost",), ("X-Forwarded-Host: localhost",)))
    return request("GET", rng.choice(PATHS), None, lines, host=host)


# -- families: the query string -------------------------------------------------------------------


def odd_value(rng):
    return rng.choice(
        (
            "", "0", "-1", "1.5", "1e3", "NaN", "Infinity", "0x10", "١٢", "+1", " 1", "null",
            "true", "9" * 19,
            "9" * 30, "-9223372036854775809", "9223372036854775808", "%00", "%ff%fe", "%", "%zz",
            "%ed%a0%80",
            "a" * 5000, "2024-13-01T00:00:00Z", "2024-01-01", "9999-12-31T23:59:60Z",
            "0001-01-01T00:00:00+23:59",
            "../../etc", "s3://bucket/x", "file:///etc/passwd", "%0d%0aX:y", "[]", "{}", "\u202e", "1_000",
        )
    )  # fmt: skip


def odd_query(rng):
    names = (
        "topic", "key", "message_id", "begin", "end", "max_count", "cursor", "explain", "on_error",
        "queue_id", "durability", "unknown", "", "%00", "%ff", "Topic", "topic%20",
    )  # fmt: skip
    pairs = [f"{rng.choice(names)}={odd_value(rng)}" for _ in range(rng.randint(1, 6))]
    if rng.random() < 0.5:
        pairs = ["topic=orders", "key=k", *pairs]
    if rng.random() < 0.3:
        pairs += pairs  # everything twice
    return _query_request(rng, pairs)


def _query_request(rng, pairs):
    path = rng.choice(("/v1/entries", "/v1/watermark", "/v1/topics", "/v1/admin/files"))
    query = rng.choice(("&", "&&", ";")).join(pairs)
    return b"GET %s?%s HTTP/1.1\r\nHost: localhost\r\n\r\n" % (path.encode(), query.encode())


def many_parameters(rng):
    pairs = [f"p{n}=1" for n in range(rng.randint(100, 4000))]
    return _query_request(rng, pairs)


def odd_cursor(rng):
    cursor = rng.choice(
        (some_bytes(rng, 1, 80).hex(), "A" * rng.randint(1, 300), "====", "e30", "eyJhIjoxfQ", "_-" * 30)
    )  # fmt: skip
    return request("GET", f"/v1/entries?topic=orders&key=k&cursor={cursor}")


# -- families: bodies -----------------------------------------------------------------------------


def odd_json_value(rng, depth=2):
    plain = (
        None, True, False, 0, -1, 1.0, 1.5, 1e300, -0.0, 1 << 31, (1 << 32), (1 << 63) - 1, -(1 << 63),
        (1 << 64) - 1, "", "k", "\x00", "\u0007", "\ud7ff", "😀", "a" * 5000, "9", "s3://b/k", "../../x",
    )  # fmt: skip
    if depth and rng.random() < 0.3:
        inner = odd_json_value(rng, depth - 1)
        return rng.choice(([inner], {"a": inner}, [inner] * 3, {"": inner}))
    return rng.choice(plain)


def odd_entry(rng):
    entry = dict(ENTRY)
    for _ in range(rng.randint(1, 3)):
        name = rng.choice((*ENTRY, "key", "message_id", "unknown", "", "path", "__class__"))
        if rng.random() < 0.2:
            entry.pop(name, None)
        else:
            entry[name] = odd_json_value(rng)
    before = [ENTRY] * rng.randint(0, 3)
    document = {"entries": [*before, entry]}
    if rng.random() < 0.2:
        document[rng.choice(("durability", "x", "Entries"))] = odd_json_value(rng)
    return post_json("/v1/entries", document)


def odd_message(rng):
    message = dict(MESSAGE)
    for _ in range(rng.randint(1, 3)):
        name = rng.choice((*MESSAGE, "encoding", "message_id", "offset", "unknown", "__class__"))
        if rng.random() < 0.2:
            message.pop(name, None)
        else:
            message[name] = odd_json_value(rng)
    query = rng.choice(
        ("", "?durability=received", "?durability=x", "?expect_offset=0", "?expect_offset=-1")
    )
    before = [MESSAGE] * rng.randint(0, 3)
    return post_json(f"/v1/messages{query}", {"messages": [*before, message]})


def odd_read(rng):
    names = (
        "topic", "queue_id", "offset", "max_count", "max_bytes", "visible", "encoding", "timestamp",
        "from_queue_id", "unknown",
    )  # fmt: skip
    pairs = [f"{rng.choice(names)}={odd_value(rng)}" for _ in range(rng.randint(1, 4))]
    if rng.random() < 0.7:
        pairs = [
            "topic=orders",
            "queue_id=0",
            f"wait_ms={rng.choice((0, 1, -1, 1 << 40, 'x'))}",
            *pairs,
        ]
    path = rng.choice(("/v1/messages", "/v1/queues", "/v1/offsets"))
    accept = rng.choice(("*/*", ARROW, "text/html", "\x7f"))
    return request("GET", f"{path}?{'&'.join(pairs)}", None, (f"Accept: {accept}",))


def odd_document(rng):
    name = rng.choice(("entries", "lookups", "messages", "before", "dry_run", "body"))
    document = rng.choice((odd_json_value(rng, 4), {name: odd_json_value(rng, 4)}))
    return post_json(rng.choice(BODY_PATHS), document)


def odd_lookup(rng):
    lookup = {"topic": "orders", "key": "k"}
    for _ in range(rng.randint(1, 3)):
        name = rng.choice(
            ("topic", "key", "message_id", "begin", "end", "max_count", "cursor", "explain", "x")
        )
        lookup[name] = odd_json_value(rng)
    query = rng.choice(("", "?max_count=0", "?max_count=99999999", "?on_error=x", "?on_error=fail"))
    return post_json(f"/v1/entries:batchGet{query}", {"lookups": [lookup] * rng.randint(1, 3)})


def odd_numbers(rng):
    """Numbers that orjson cannot make from Python: written out by hand."""
    number = rng.choice(
        ("9" * 25, "-" + "9" * 25, "1E400", "1.0", "1e2", "01", "+1", "0x1", "1.", ".5", "--1", "NaN",
         "Infinity", "-Infinity", "9223372036854775808", "18446744073709551616", "1" * 5000)
    )  # fmt: skip
    name = rng.choice(("queue_id", "offset", "size", "timestamp"))
    text = orjson.dumps({**ENTRY, name: "@"}).replace(b'"@"', number.encode())
    return post_json("/v1/entries", b'{"entries":[' + text + b"]}")


def deep_json(rng):
    depth = rng.choice((900, 1100, 5000, 100_000))
    opening, closing = rng.choice(((b"[", b"]"), (b'{"a":', b"}")))
    body = opening * depth + b"1" + closing * (depth if rng.random() < 0.7 else 0)
    return post_json(rng.choice(BODY_PATHS), b'{"entries":' + body + b"}")


def broken_json(rng):
    body = bytearray(orjson.dumps({"entries": [ENTRY, ENTRY]}))
    if rng.random() < 0.5:
        place = rng.randrange(len(body))
        body[place : place + 1] = rng.choice((b"\x00", b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"'"))
    else:
        body = body[: rng.randrange(len(body))]
    return post_json(rng.choice(BODY_PATHS), bytes(body))


def surrogates(rng):
    text = rng.choice(
        (rb"\ud800", rb"\udfff", rb"\ud800\ud800", rb"\u0000", rb"a\ud83d", rb"\uDC00a")
    )
    name = rng.choice((b"topic", b"key", b"message_id", b"durability"))
    body = b'{"entries":[{"%s":"%s"}]}' % (name, text)
    if rng.random() < 0.5:
        body = b'{"lookups":[{"topic":"orders","%s":"%s"}]}' % (name, text)
    return post_json(rng.choice(BODY_PATHS), body)


def repeated_names(rng):
    body = b'{"entries":[{"topic":"a","topic":"b","keys":["k"],"queue_id":0,"offset":1,"size":1,'
    body += b'"timestamp":1}],"entries":[]}' if rng.random() < 0.5 else b'"timestamp":1}]}'
    return post_json("/v1/entries", body)


def compressed_body(rng):
    plain = b" " * rng.choice((100, 1_000_000, 20_000_000))
    packed = gzip.compress(plain, mtime=0) if rng.random() < 0.5 else zlib.compress(plain)
    coding = rng.choice(("gzip", "deflate", "br", "zstd", "gzip, gzip", "x-gzip", "GZIP"))
    lines = (f"Content-Encoding: {coding}", "Content-Type: application/json")
    return request("POST", rng.choice(BODY_PATHS), packed, lines)


def odd_media_type(rng):
    kind = rng.choice(
        ("", "text/plain", "application/json; charset=utf-16", "application/x-ndjson", ARROW,
        "multipart/form-data",
         "application/x-www-form-urlencoded", "application/JSON", "a" * 3000, ";;;",
         "application/json,text/plain")
    )  # fmt: skip
    body = orjson.dumps({"entries": [ENTRY]})
    return request("POST", rng.choice(BODY_PATHS), body, (f"Content-Type: {kind}",))


def odd_ndjson(rng):
    good = orjson.dumps(ENTRY)
    lines = [
        rng.choice(
            (good, b"", b" ", b"[]", b"1", b"null", b"{", b"\xff", b"\x00", good + good, b"\r")
        )
        for _ in range(rng.randint(1, 20))
    ]
    body = rng.choice((b"\n", b"\r\n", b"\r", b"\x0b")).join(lines)
    return request("POST", "/v1/entries", body, ("Content-Type: application/x-ndjson",))


def _arrow_bytes(table, **options):
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _arrow_table(**columns):
    base = {
        "topic": pa.array(["orders", "orders"]),
        "key": pa.array(["a", "b"]),
        "queue_id": pa.array([0, 1], pa.int32()),
        "offset": pa.array([0, 100], pa.int64()),
        "size": pa.array([10, 20], pa.uint32()),
        "timestamp": pa.array([1, 2], pa.int64()),
    }
    return pa.table({**base, **columns})


def odd_arrow_bytes(rng):
    data = bytearray(_arrow_bytes(_arrow_table()))
    action = rng.randrange(3)
    if action == 0:
        data = data[: rng.randrange(len(data))]
    else:
        for _ in range(rng.randint(1, 20)):
            data[rng.randrange(len(data))] = rng.choice((0, 0xFF, 0x7F, 0x80, rng.randrange(256)))
    path = rng.choice(
        ("/v1/entries", "/v1/entries:batchGet", "/v1/messages", "/v1/entries:unpublished")
    )
    return request("POST", path, bytes(data), (f"Content-Type: {ARROW}",))


_HEADER = pa.struct([("name", pa.string()), ("value", pa.binary())])


def odd_arrow_column(rng):
    strings = pa.array(["a", "b"])
    column = rng.choice(
        (
            strings.cast(pa.string_view()), strings.cast(pa.large_string()), strings.dictionary_encode(),
            pa.array([b"\xff", b"\x00"], pa.binary()), pa.array([1.5, float("nan")]), pa.nulls(2),
            pa.array([None, None], pa.string()), pa.array([[["a"]], [["b"]]]), pa.array([{"a": 1},
            {"a": 2}]),
            pa.array([1 << 63, 1], pa.uint64()), pa.array([-1, -2]), pa.array([True, False]),
            pa.array([1, 2], pa.timestamp("ns", "Asia/Tokyo")), pa.array([1, 2], pa.date64()),
            pa.array([1, 2], pa.duration("ms")), pa.array(["1", "2"]), pa.array([["a"], None]),
            pa.array([["a", "b"], []]), pa.array([b"ab", b"cd"], pa.binary(2)),
            pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), pa.array(["a"])),
            pa.array([[{"name": "a", "value": b"b"}], None], pa.list_(_HEADER)), pa.array([[None], []]),
            pa.array([[{"name": "a", "value": None}], [None]], pa.list_(_HEADER)),
        )
    )  # fmt: skip
    name = rng.choice(
        (
            "topic",
            "key",
            "message_id",
            "queue_id",
            "offset",
            "size",
            "timestamp",
            "x",
            "body",
            "headers",
        )
    )
    table = _arrow_table(**{name: column})
    if name in ("body", "headers"):
        table = table.append_column("body", pa.array([b"a", b"b"])) if name == "headers" else table
        body = _arrow_bytes(table.drop_columns(["offset", "size"]))
        return request("POST", "/v1/messages", body, (f"Content-Type: {ARROW}",))
    compression = rng.choice((None, None, "zstd", "lz4"))
    path = "/v1/entries"
    if rng.random() < 0.4:
        path = "/v1/entries:batchGet"
        table = table.select(rng.sample(table.column_names, rng.randint(1, 3)))
    body = _arrow_bytes(table, compression=compression)
    return request("POST", path, body, (f"Content-Type: {ARROW}",))


def odd_peer_question(rng):
    head = (f"Content-Type: {ARROW}",)
    return request("POST", "/v1/entries:unpublished", odd_question(rng), head)


def oversized_body(rng):
    size = rng.randint(70_000, 300_000)  # the server under test takes 64 KiB
    body = rng.choice((b" ", b"[", b"a", b"\x00")) * size
    if rng.random() < 0.5:
        return post_json(rng.choice(BODY_PATHS), body)
    head = request(
        "POST", rng.choice(BODY_PATHS), None,
        ("Transfer-Encoding: chunked", "Content-Type: application/json"),
    )  # fmt: skip
    return head + b"".join(b"1000\r\n%s\r\n" % (body[:4096],) for _ in range(size // 4096))


def body_where_none_belongs(rng):
    path = rng.choice(("/v1/topics", "/healthz", "/metrics", "/v1/admin/compaction", "/"))
    return request(rng.choice(("GET", "HEAD")), path, some_bytes(rng, 1, 2000))


FAMILIES = (
    garbage, garbage_after_a_request, mutated_request, truncated_request, bad_chunking,
    good_chunking_in_pieces, lengths_that_disagree, huge_head, odd_header_bytes, pipelined, http_1_0,
    http_2_preface, upgrade, wrong_method, traversal, host_tricks, odd_query, many_parameters,
    odd_cursor, odd_entry, odd_message, odd_read, odd_document, odd_lookup, odd_numbers, deep_json,
    broken_json, surrogates,
    repeated_names, compressed_body, odd_media_type, odd_ndjson, odd_arrow_bytes, odd_arrow_column,
    odd_peer_question, oversized_body, body_where_none_belongs,
)  # fmt: skip
MESSAGE_FAMILIES = (odd_message, odd_read, odd_document, odd_arrow_bytes, odd_arrow_column)
