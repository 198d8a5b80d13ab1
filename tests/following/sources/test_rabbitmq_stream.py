"""Following RabbitMQ streams: messages of every shape, batches within, retention, trouble, a login."""

from __future__ import annotations

import contextlib
import logging

import pytest
from rstream import AMQPMessage, CompressionType, Properties

from tests.following.test_follower import offsets
from tests.following.worlds import make_records
from tests.patience import PATIENCE_S
from tierdex.clock import SystemClock
from tierdex.errors import InvalidRequestError, NotFoundError, PermissionDeniedError
from tierdex.following.follow import follow
from tierdex.following.open_source import open_source
from tierdex.following.records import Parts

clock = SystemClock()


@pytest.fixture
def stream(rabbitmq, request):
    name = request.node.name.replace("test_", "r-")
    rabbitmq.make_stream(name)
    return f"rabbitmq://{rabbitmq.address}/{name}", rabbitmq, name


def run_once(index, address, **wanted):
    return follow(index, address, once=True, **{"keys": ["key"], **wanted}).run()


def test_messages_of_every_shape_are_indexed_by_what_they_have(index, stream):
    address, server, name = stream
    full = AMQPMessage(
        body=b'{"id": "whole"}',
        properties=Properties(
            message_id="m-1", subject="orders.eu", creation_time=1_700_000_000_000
        ),
        application_properties={"region": "eu", "n": 1 << 40, "is": True},
        message_annotations={"x-routing-key": "routed"},
    )
    server.publish_messages(
        name,
        [
            full,
            AMQPMessage(body=b'{"id": "routed"}', message_annotations={"x-routing-key": "by.key"}),
            AMQPMessage(value={"id": "a map", "n": 7}),
            b'{"id": "bytes"}',
            bytes(full)[:40],  # cut: a value that is no JSON
            b"\x00\x53\x75",
        ],
    )  # fmt: skip
    status = run_once(
        index, address,
        keys=["key", "$.id", "{header:region}/{header:n}/{header:is}", "header:x-routing-key"],
        message_id="header:message-id", time="header:creation-time",
    )  # fmt: skip
    assert (status.messages, status.unreadable, status.lost, status.total_lag()) == (6, 2, 0, 0)
    keys = ("orders.eu", "whole", "eu/1099511627776/true", "routed", "by.key", "a map", "bytes")
    assert [offsets(index, key, name) for key in keys] == [
        [(0, 0)], [(0, 0)], [(0, 0)], [(0, 0), (0, 1)], [(0, 1)], [(0, 2)], [(0, 3)],
    ]  # fmt: skip
    (entry,) = index.query(name, message_id="m-1").entries
    assert (entry.offset, entry.timestamp) == (0, 1_700_000_000_000)


def test_each_message_of_a_batch_within_a_chunk_has_its_own_offset(index, stream):
    address, server, name = stream
    messages = [AMQPMessage(body=b'{"id": "%d"}' % n) for n in range(30)]
    server.publish_batch(name, messages[:10], CompressionType.Gzip)
    server.publish_batch(name, messages[10:20], CompressionType.No)
    server.publish_messages(name, messages[20:])
    assert run_once(index, address, keys=["$.id"]).messages == 30
    assert [offsets(index, str(n), name) for n in (0, 9, 10, 29)] == [
        [(0, n)] for n in (0, 9, 10, 29)
    ]


def test_what_retention_took_before_it_was_read_is_told(index, rabbitmq):
    rabbitmq.make_stream("short", max_length_bytes=40_000, stream_max_segment_size_bytes=10_000)
    address = f"rabbitmq://{rabbitmq.address}/short"
    rabbitmq.publish("short", make_records(10))
    assert run_once(index, address).messages == 10
    with contextlib.closing(open_source(address)) as source:
        while (first := source.bounds({0: 10})[0].first) <= 10:
            rabbitmq.publish("short", make_records(500, 10))
    status = run_once(index, address)
    assert status.lost >= first - 10  # more may have gone meanwhile
    assert status.total_lag() == 0


def test_what_is_not_there_or_not_allowed_says_so(index, rabbitmq, caplog):
    caplog.set_level(logging.DEBUG)
    with pytest.raises(NotFoundError, match="no such stream"):
        run_once(index, f"rabbitmq://{rabbitmq.address}/nothing")
    for bad in ("tina:hunter-2@", "guest:hunter-2@"):
        with pytest.raises(PermissionDeniedError) as raised:
            run_once(index, f"rabbitmq://{bad}{rabbitmq.address}/nothing")
        assert "hunter-2" not in str(raised.value) + caplog.text
    with pytest.raises(PermissionDeniedError, match="VirtualHost"):
        run_once(index, f"rabbitmq://{rabbitmq.address}/a", options={"vhost": "nowhere"})
    with pytest.raises(InvalidRequestError, match="no such option"):
        run_once(index, f"rabbitmq://{rabbitmq.address}/a?user=x")


def test_fetching_between_reads_loses_nothing(stream):
    address, server, name = stream
    server.publish(name, make_records(50))
    with contextlib.closing(open_source(address)) as source:
        source.open({0: 0}, Parts())
        keys = read_keys(source, 50)
        assert source.fetch(0, 7).key == b"k7"
        server.publish(name, make_records(10, 50))
        assert source.fetch(0, 59).key == b"k59"
        assert keys + read_keys(source, 10) == [b"k%d" % n for n in range(60)]


def read_keys(source, count):
    """Read on until so many have come: what was sent at once may lie in several chunks."""
    keys, give_up = [], clock.monotonic() + PATIENCE_S
    while len(keys) < count:
        assert clock.monotonic() < give_up
        batch = source.read(10_000, 0.2)
        keys += [] if batch is None else batch.keys
    return keys
