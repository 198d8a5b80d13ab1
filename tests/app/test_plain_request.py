"""Whatever is read as a plain request, h11 reads the same way; whatever is not is left to h11."""

from __future__ import annotations

import random

import h11
import pytest

from tests.hostile_http.cases import FAMILIES, make_case, post_json, request
from tierdex.app.connection import LARGEST_HEAD_BYTES
from tierdex.app.plain_request import read_plain_request

HOST = b"Host: localhost\r\n"
PLAIN = (
    request("GET", "/v1/entries?topic=a&key=b%20c"),
    request("GET", "/", None, ["Accept: */*", "Connection: keep-alive", "X-Empty:", "X:close"]),
    request("GET", "/", None, ["User-Agent: Mozilla/5.0 (X11; Linux x86_64) a/1.2"]),
    post_json("/v1/entries", {"entries": []}, ["Authorization: Bearer tdx_1_2"]),
    request("POST", "/v1/admin/roll", b""),
    request("POST", "/v1/admin/roll"),
    request("GET", "/", b"a body"),
)


def read_by_h11(data):
    """Return what h11 makes of a request: head, body, whether it is whole; None when it refuses."""
    connection = h11.Connection(h11.SERVER, LARGEST_HEAD_BYTES)
    connection.receive_data(data)
    body, head = b"", None
    try:
        while (event := connection.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            if isinstance(event, h11.Request):
                head = event
                assert event.http_version == b"1.1"
                assert connection.their_state is not h11.MUST_CLOSE
                assert not connection.they_are_waiting_for_100_continue
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                return head, body, True
    except h11.RemoteProtocolError:
        return None
    return head, body, False


def assert_read_alike(data):
    """Say whether the request is plain; fail when it is and h11 reads another."""
    plain = read_plain_request(data, LARGEST_HEAD_BYTES)
    if plain is None:
        return False
    head, body, is_whole = read_by_h11(data)
    assert (plain.method.encode(), plain.target) == (head.method, head.target)
    assert plain.headers == list(head.headers)
    begin = plain.head_bytes
    assert body == data[begin : begin + plain.body_bytes]
    assert is_whole == (len(data) - begin >= plain.body_bytes)
    return True


@pytest.mark.parametrize("data", PLAIN)
def test_what_callers_send_is_plain(data):
    assert assert_read_alike(data)
    assert assert_read_alike(data + request("GET", "/next"))


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\n" + HOST,  # not whole
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + HOST + b"\r\n",
        b"GET / HTTP/1.0\r\n" + HOST + b"\r\n",
        b"HEAD / HTTP/1.1\r\n" + HOST + b"\r\n",
        b"get / HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET  / HTTP/1.1\r\n" + HOST + b"\r\n",
        b"\r\nGET / HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET / HTTP/1.1\n" + HOST + b"\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + b" folded\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + b"X : y\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + b"X: y \r\n\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + b"X: y\tz\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + b"X: \xe9\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + b"X: y\n\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + b"X: y\rz\r\n\r\n",
        b"GET /\xe9 HTTP/1.1\r\n" + HOST + b"\r\n",
        b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\n",
        b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1, 1\r\n\r\n",
        b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: +1\r\n\r\n",
        b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length:\r\n\r\n",
        b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1234567890123456\r\n\r\n",
        b"POST / HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"a" * LARGEST_HEAD_BYTES + b"\r\n\r\n",
    ],
)
def test_what_deviates_is_left_to_h11(head):
    assert read_plain_request(head, LARGEST_HEAD_BYTES) is None


def test_hostile_requests_are_read_as_h11_reads_them():
    plain = sum(
        assert_read_alike(b"".join(make_case(11, number).pieces)[: LARGEST_HEAD_BYTES - 1])
        for number in range(60 * len(FAMILIES))
    )
    assert plain > 100


def test_mutated_plain_requests_are_read_as_h11_reads_them():
    rng = random.Random(5)
    alphabet = b"\r\n\t :;,%\x00\x7f\x80/aG1-"
    plain = 0
    for _ in range(4000):
        data = bytearray(rng.choice(PLAIN))
        for _ in range(rng.randint(1, 3)):
            place = rng.randrange(len(data))
            data[place : place + rng.randint(0, 2)] = bytes(
                rng.choices(alphabet, k=rng.randint(0, 2))
            )
        plain += assert_read_alike(bytes(data))
    assert 400 < plain < 3900


def test_head_that_never_fits_takes_one_pass():
    """The pattern gives nothing back: as many steps as bytes, whatever is at the end."""
    for filler in (b"a " * 16_000, b"a" * 32_000, b"X: y\r\n" * 5_000):
        head = b"GET / HTTP/1.1\r\n" + HOST + b"X: " + filler
        assert (
            read_plain_request(head[: LARGEST_HEAD_BYTES - 9] + b"\x00\r\n\r\n", LARGEST_HEAD_BYTES)
            is None
        )
