"""The verbs of a message log over HTTP give what the embedded log gives, and raise what it raises."""

from __future__ import annotations

import anyio
import httpx2
import numpy as np
import pyarrow as pa
import pytest

from tests.app.small_index import SmallIndex
from tests.client.test_remote import AppTransport
from tierdex import errors
from tierdex.app.http.application import create_app
from tierdex.app.http.server_settings import ServerSettings
from tierdex.client.remote import AsyncClient, Client
from tierdex.client.remote_log import AsyncLogReading, LogReading, LogVerbs
from tierdex.log_service.message_log import MessageLog

OF_A_SERVICE = {"log_topics"}


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    folder = tmp_path_factory.mktemp("log")
    with MessageLog.open(
        folder, node="n", journal_bytes=1 << 20, max_message_bytes=64 << 10, remote_interval=0
    ) as log:
        yield log


@pytest.fixture
def app(log):
    return create_app(SmallIndex(), ServerSettings(log_requests=False, max_wait=0.01), log=log)


@pytest.fixture
def client(app):
    with Client("http://localhost", transport=AppTransport(app)) as client:
        yield client


@pytest.fixture
def topic(request):
    return request.node.name


def test_message_comes_back_as_the_log_itself_gives_it(client, log, topic):
    offset = client.append(
        topic=topic, queue_id=3, body=b"\x00\xff", keys=["k"], message_id="M",
        headers=[("h", b"\xfe")], timestamp=5,
    )  # fmt: skip
    assert offset == 0
    assert client.append(topic=topic, queue_id=3, body=b"", keys="one") == 1
    ours, theirs = client.read(topic, 3, 0), log.read(topic, 3, 0)
    assert ours.messages == theirs.messages
    assert ours.table().equals(theirs.table())
    for name in (
        "first_offset", "next_offset", "begin_offset", "end_offset", "from_begin", "missing", "generation",
        "complete",
    ):  # fmt: skip
        assert getattr(ours, name) == getattr(theirs, name), name
    assert client.read_arrow(topic, 3, 1).column("offset").to_pylist() == [1]
    assert client.read(topic, 3, 2, wait=0.01).messages == []


@pytest.mark.parametrize(
    "body", [[b"a", b"b", b"c"], pa.array([b"a", b"b", b"c"]), pa.chunked_array([["a"], ["b", "c"]])],
    ids=["list", "binary", "chunked string"],
)  # fmt: skip
def test_columns_of_any_kind_are_appended(client, log, topic, body):
    receipt = client.append_batch(
        topic=topic, queue_id=np.array([0, 1, 0]), body=body, keys=[["k"], None, "l"],
        message_id=[None, "m", None], headers=[None, [("n", b"v")], []], timestamp=[1, 2, 3],
    )  # fmt: skip
    assert receipt.offsets.tolist() == [0, 0, 1]
    assert receipt.level.name == "DISK"
    first, last = log.read(topic, 0, 0).messages
    assert (first.body, first.keys, last.body, last.keys, last.timestamp) == (
        b"a",
        ("k",),
        b"c",
        ("l",),
        3,
    )
    (other,) = log.read(topic, 1, 0).messages
    assert (other.message_id, other.headers) == ("m", (("n", b"v"),))


@pytest.mark.parametrize("door", ["log", "client"])
def test_bodies_and_headers_are_what_users_write(log, client, topic, door):
    of = {"log": log, "client": client}[door]
    view = memoryview(b"abc")
    rows = [
        ("text \u00e4", {"h": "\u00e4", "i": b"\xff"}), (bytearray(b"b"), [("h", "x")]),
        (view[::2], [["h", b"y"], ["h", b"z"]]), (b"d", None), ("", {}),
    ]  # fmt: skip
    for body, headers in rows:
        of.append(topic=topic, queue_id=0, body=body, headers=headers)
    bodies, headers = [list(column) for column in zip(*rows, strict=True)]
    of.append_batch(topic=topic, queue_id=0, body=bodies, headers=headers)
    found = log.read(topic, 0, 0).messages
    assert [message.body for message in found] == 2 * [
        "text \u00e4".encode(), b"b", b"ac", b"d", b""
    ]  # fmt: skip
    assert [message.headers for message in found] == 2 * [
        (("h", "\u00e4".encode()), ("i", b"\xff")), (("h", b"x"),), (("h", b"y"), ("h", b"z")), (), (),
    ]  # fmt: skip
    for wrong in ({"body": 3}, {"body": None}, {"body": "\ud800"}):
        with pytest.raises(errors.InvalidRequestError) as told:
            of.append(**{"topic": topic, "queue_id": 0} | wrong)
        assert told.value.field == "body"
        with pytest.raises(errors.InvalidRequestError) as told:
            of.append_batch(topic=topic, queue_id=0, body=[b"good", wrong["body"]])
        assert told.value.field == "messages[1].body"
    for headers in ({"h": 3}, {3: "h"}, ["ab"], [("h",)]):
        with pytest.raises(errors.InvalidRequestError) as told:
            of.append(topic=topic, queue_id=0, body=b"", headers=headers)
        assert told.value.field == "headers"
        with pytest.raises(errors.InvalidRequestError) as told:
            of.append_batch(topic=topic, queue_id=0, body=[b"", b""], headers=[None, headers])
        assert told.value.field == "messages[1].headers"


@pytest.mark.parametrize("door", ["log", "client"])
def test_one_key_is_given_as_a_key(log, client, topic, door):
    of = {"log": log, "client": client}[door]
    of.append(topic=topic, queue_id=0, body=b"a", key="k")
    of.append_batch(topic=topic, queue_id=0, body=[b"b", b"c"], key=["k", "l"])
    assert [message.body for message in of.get(topic, key="k")] == [b"b", b"a"]
    for both in (of.append, of.append_batch):
        with pytest.raises(errors.InvalidRequestError, match="either `key` or `keys`"):
            both(topic=topic, queue_id=0, body=b"a", key="k", keys=["k"])


def test_reader_goes_through_the_queue_and_begins_again(client, topic):
    client.append_batch(topic=topic, queue_id=0, body=[b"%d" % n for n in range(25)])
    reader = client.reader(topic, 0, max_count=10)
    assert [m.body for m in reader] == [b"%d" % n for n in range(25)]
    client.append(topic=topic, queue_id=0, body=b"more")
    assert [m.body for m in reader] == [b"more"]


def test_offsets_queues_and_topics_are_those_of_the_log(client, log, topic):
    client.append_batch(topic=topic, queue_id=[4, 0, 4], body=[b"x"] * 3, timestamp=[10, 20, 30])
    client.append(topic=topic, queue_id=4, body=b"y", durability="received")
    assert client.queues(topic) == [0, 4] == log.queues(topic)
    assert client.log_topics() == log.topics()
    assert client.begin_offset(topic, 4) == 0
    assert client.end_offset(topic, 4, level="received") == 3
    assert client.offset_at(topic, 4, 11) == log.offset_at(topic, 4, 11) == 1


def test_remote_is_a_level_as_the_others(client, log, topic):
    assert client.append(topic=topic, queue_id=0, body=b"x", durability="remote") == 0
    client.append(topic=topic, queue_id=0, body=b"y")
    assert client.end_offset(topic, 0, level="remote") == 1
    assert client.end_offsets(topic, 0) == log.end_offsets(topic, 0)
    assert [m.body for m in client.read(topic, 0, 0, visible="remote").messages] == [b"x"]
    receipt = client.append_batch(topic=topic, queue_id=0, body=[], durability="remote")
    assert (receipt.level.name, len(receipt.offsets)) == ("REMOTE", 0)
    assert client.end_offset(topic, 0, level="remote") == 2


def test_messages_of_a_key_come_back_with_all_they_carry(client, log, topic):
    client.append_batch(
        topic=topic, queue_id=0, body=[b"\x00", b"y", b"z"], keys=[["k"], ["k"], None],
        headers=[[("h", b"\xff")], None, None],
    )  # fmt: skip
    found = client.get(topic, key="k", max_count=1)
    assert found == log.get(topic, key="k", max_count=1)
    assert [m.body for m in found] == [b"y"]
    rest = client.get(topic, key="k", cursor=found.next_cursor)
    assert (rest.messages[0].headers, rest.complete) == ((("h", b"\xff"),), True)
    assert not len(client.get(message_id="none"))


def test_messages_for_later_wait_and_are_told_by_hour(client, log, topic):
    later = 4_102_444_800_000
    assert client.append(topic=topic, queue_id=0, body=b"x", deliver_at=later + 5) == -1
    receipt = client.append_batch(
        topic=topic, queue_id=0, body=[b"a", b"b", b"c"], deliver_at=[later, None, 5],
    )  # fmt: skip
    assert receipt.offsets.tolist() == [-1, 0, 1]
    assert client.timers() == log.timers() == [(later, 2)]
    answer = client.read(topic, 0, 0)
    assert answer.messages == log.read(topic, 0, 0).messages
    assert [m.deliver_at for m in answer.messages] == [None, 5]


def test_refusals_of_the_log_are_raised_as_they_are(client, topic):
    client.append(topic=topic, queue_id=0, body=b"x")
    with pytest.raises(errors.OffsetMismatchError) as mismatch:
        client.append(topic=topic, queue_id=0, body=b"x", expect_offset=7)
    assert mismatch.value.next_offset == 1
    assert mismatch.value.end_offsets == {"received": 1, "os": 1, "disk": 1, "remote": 0}
    with pytest.raises(errors.RequestTooLargeError):
        client.append(topic=topic, queue_id=0, body=b"x" * (65 << 10))
    for wrong in ({"queue_id": -1}, {"body": None}, {"topic": ""}, {"headers": [("a", None)]}):
        with pytest.raises(errors.InvalidRequestError):
            client.append(**{"topic": topic, "queue_id": 0, "body": b"x", **wrong})
        if "headers" not in wrong:
            with pytest.raises(errors.InvalidRequestError):
                client.append_batch(**{"topic": topic, "queue_id": 0, "body": [b"x"], **wrong})
    with pytest.raises(errors.InvalidRequestError, match="rows"):
        client.append_batch(topic=topic, queue_id=[0], body=[b"x", b"y"])
    with pytest.raises(errors.InvalidRequestError):
        client.read(topic, 0, -1)
    assert client.end_offset(topic, 0, level="received") == 1


def test_append_whose_answer_is_lost_is_not_sent_twice(app, topic):
    lost = AppTransport(app, [httpx2.ReadError("gone")])
    with (
        Client("http://localhost", transport=lost) as client,
        pytest.raises(errors.UnavailableError),
    ):
        client.append(topic=topic, queue_id=0, body=b"x")
    assert lost.requests == 1


def test_asynchronous_client_has_the_same_verbs_and_answers(app, log, topic):
    def verbs(of):
        return {name for name in vars(of) if not name.startswith("_")}

    assert (
        verbs(LogReading) == verbs(AsyncLogReading) == {"reader"}
    )  # all others are described once
    assert verbs(LogVerbs) - OF_A_SERVICE <= set(dir(MessageLog))

    async def main():
        transport = httpx2.ASGITransport(app=app)
        async with AsyncClient("http://localhost", transport=transport) as client:
            assert await client.append(topic=topic, queue_id=0, body=b"a") == 0
            receipt = await client.append_batch(topic=topic, queue_id=0, body=[b"b", b"c"])
            assert receipt.offsets.tolist() == [1, 2]
            assert [m.body async for m in client.reader(topic, 0, max_count=2)] == [
                b"a",
                b"b",
                b"c",
            ]
            assert (await client.read(topic, 0, 3, wait=0.01)).messages == []
            assert (await client.read_arrow(topic, 0, 1)).num_rows == 2
            assert await client.queues(topic) == [0]
            assert not len(await client.get(topic, key="k"))
            assert topic in await client.log_topics()
            assert await client.begin_offset(topic, 0) == 0
            assert await client.end_offset(topic, 0) == 3
            assert await client.append(topic=topic, queue_id=0, body=b"", durability="remote") == 3
            assert (await client.end_offsets(topic, 0))["remote"] == 4
            assert await client.offset_at(topic, 0, 0) == 0
            assert isinstance(await client.timers(), list)

    anyio.run(main)


def test_messages_are_forgotten_with_the_same_receipt(client, app, log, topic):
    for i in range(4):
        client.append(topic=topic, queue_id=0, body=b"%d" % i, keys=[f"{topic}{i}", topic])
    name = {"topic": topic, "key": f"{topic}1"}
    assert client.forget([name], dry_run=True).messages[0].offset == 1
    receipt = client.forget([name], wait=15.0)
    assert [tuple(place) for place in receipt.messages] == [(topic, 0, 1)]
    assert receipt.forgetting in client.forgettings()
    again = client.resume_forgetting(receipt)
    assert (again.messages, again.held_count) == (receipt.messages, 0)
    ours, theirs = client.read(topic, 0, 0), log.read(topic, 0, 0)
    assert ours.messages == theirs.messages
    assert ours.table().equals(theirs.table())
    assert [(m.body, m.is_forgotten) for m in ours.messages][1] == (b"", True)
    assert [m.body for m in client.get(topic, key=topic)] == [b"3", b"2", b"0"]

    async def ask():
        async with AsyncClient(
            "http://localhost", transport=httpx2.ASGITransport(app=app)
        ) as service:
            only = await service.forget([{"topic": topic, "key": topic}], only=[(0, 3)])
            with pytest.raises(errors.NotFoundError):
                await service.resume_forgetting("00" * 16, wait=15.0)
            return only

    assert [place.offset for place in anyio.run(ask).messages] == [3]
    assert [m.is_forgotten for m in log.read(topic, 0, 0).messages] == [False, True, False, True]
