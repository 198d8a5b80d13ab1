"""Following Redis Streams: fields, IDs that do not fit, trimming, the wrong key, a login."""

from __future__ import annotations

import pytest

from tests.following.test_follower import offsets
from tierdex.errors import InvalidRequestError, NotFoundError, PermissionDeniedError
from tierdex.following.follow import follow
from tierdex.following.open_source import open_source


@pytest.fixture
def stream(redis, request):
    name = request.node.name
    return f"redis://{redis.address}/0/{name}", redis.client, name


def run_once(index, address, **wanted):
    return follow(index, address, once=True, **{"keys": ["$.id"], **wanted}).run()


def test_fields_are_headers_and_one_json_object(index, stream):
    address, client, name = stream
    client.xadd(name, {"id": "a", "region": "eu"}, id="1700000000000-7")
    client.xadd(name, {"id": b"\xff", "region": "us"}, id="1700000000001-0")
    status = run_once(index, address, keys=["header:id", "{$.id}/{$.region}"])
    assert (status.messages, status.unreadable) == (2, 1)
    place = (0, 1_700_000_000_000 << 21 | 7)
    assert offsets(index, "a", name) == offsets(index, "a/eu", name) == [place]
    (entry,) = index.query(name, key="a").entries
    assert entry.timestamp == 1_700_000_000_000


def test_place_of_an_entry_is_its_id(stream):
    address, _, name = stream
    source = open_source(address)
    assert source.place_of(0, 1_700_000_000_000 << 21 | 7) == f"{name}, entry 1700000000000-7"
    source.close()


def test_ids_that_have_no_place_are_counted(index, stream):
    address, client, name = stream
    client.xadd(name, {"id": "in"}, id="5-5")
    client.xadd(name, {"id": "out"}, id=f"6-{1 << 21}")
    client.xadd(name, {"id": "in too"}, id="7-0")
    client.xadd(name, {"id": "beyond"}, id=f"{1 << 42}-0")
    status = run_once(index, address)
    assert (status.messages, status.passed_over) == (2, 2)
    assert offsets(index, "in too", name) == [(0, 7 << 21)]
    assert run_once(index, address).messages == 0


def test_trimming_is_no_loss_until_it_passes_what_was_read(index, stream):
    address, client, name = stream
    for number in range(10):
        client.xadd(name, {"id": f"k{number}"})
    run_once(index, address)
    client.xtrim(name, 1, approximate=False)
    client.xadd(name, {"id": "k10"})
    assert run_once(index, address).lost == 0
    for number in range(11, 20):
        client.xadd(name, {"id": f"k{number}"})
    client.xtrim(name, 5, approximate=False)
    status = run_once(index, address)
    assert (status.lost, status.messages) == (1, 5)


def test_what_cannot_be_followed_says_why(index, stream, redis):
    address, client, name = stream
    with pytest.raises(NotFoundError, match=name):
        run_once(index, address)
    client.set(name, "text")
    with pytest.raises(InvalidRequestError, match="WRONGTYPE"):
        run_once(index, address)
    with pytest.raises(PermissionDeniedError) as caught:
        run_once(index, f"redis://tina:hunter-2@{redis.address}/0/x")
    assert "hunter" not in str(caught.value)
    with pytest.raises(InvalidRequestError, match="HOST:PORT/DB/STREAM"):
        run_once(index, "redis://host/stream")


def test_once_ends_at_a_stream_whose_last_entries_were_deleted(index, stream):
    address, client, name = stream
    client.xadd(name, {"id": "a"}, id="1-1")
    client.xdel(name, client.xadd(name, {"id": "b"}, id="2-1"))
    assert run_once(index, address).messages == 1
    client.xadd(name, {"id": "c"}, id="2-2")
    assert run_once(index, address).messages == 1


def test_fields_of_one_name_are_all_in_the_message(index, stream):
    address, client, name = stream
    client.execute_command("XADD", name, "1-0", "id", "first", "id", "second", "n", "1")
    run_once(index, address, keys=["header:id"])
    assert offsets(index, "second", name) == [(0, 1 << 21)]
    source = open_source(address)
    record = source.fetch(0, 1 << 21)
    assert record.value == b'{"id":"first","id":"second","n":"1"}'
    assert [value for _, value in record.headers] == [b"first", b"second", b"1"]
    source.close()
    source = open_source(address, {"value": "id"})
    record = source.fetch(0, 1 << 21)
    assert (record.value, list(record.headers)) == (b"first", [("id", b"second"), ("n", b"1")])
    source.close()
