"""Following a JetStream stream: subjects and headers, purges, a server that ends, what is not there."""

from __future__ import annotations

import pytest

from tests.following.test_follower import offsets
from tests.following.worlds import JetStreamWorld, Sent, make_records
from tierdex.errors import InvalidRequestError, NotFoundError
from tierdex.following.follow import follow


def run_once(index, address, **wanted):
    return follow(index, address, once=True, **{"keys": ["key"], **wanted}).run()


def test_subject_is_the_key_and_a_purge_is_told(index, nats):
    world = JetStreamWorld(nats, "purged")
    world.append(0, [Sent(b"a", b'{"id": 1}', (("region", b"eu"),))])
    run_once(index, world.address, keys=["key", "{header:region}/{$.id}"])
    assert offsets(index, "purged.a", "purged") == offsets(index, "eu/1", "purged") == [(0, 1)]
    world.append(0, make_records(20))
    world.lose_before(0, 12)
    status = run_once(index, world.address)
    assert (status.lost, status.messages) == (10, 10)


def test_what_is_not_there_says_so(index, nats):
    with pytest.raises(NotFoundError, match="stream not found"):
        run_once(index, f"nats://tina:hunter-2@{nats.address}/nothing")
    with pytest.raises(InvalidRequestError, match="HOST:PORT/STREAM"):
        run_once(index, "nats://host")


def test_once_ends_at_a_stream_whose_last_messages_were_deleted(index, nats):
    world = JetStreamWorld(nats, "deleted")
    world.append(0, make_records(3))
    nats.run(lambda stream: stream.delete_msg("deleted", 3))
    assert run_once(index, world.address).messages == 2
    world.append(0, make_records(1))
    assert run_once(index, world.address).messages == 1
