"""Following a JetStream stream: subjects and headers, purges, a server that ends, what is not there."""

from __future__ import annotations

import threading

import pytest

from tests.following.test_follower import offsets, opened
from tests.following.worlds import JetStreamWorld, Sent, make_records
from tests.patience import PATIENCE_S
from tests.servers.nats import NatsServer
from tierdex.clock import Bell, SystemClock
from tierdex.errors import InvalidRequestError, NotFoundError
from tierdex.following.follow import follow

clock = SystemClock()


@pytest.fixture
def index(tmp_path):
    with opened(tmp_path / "data") as index:
        yield index


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


@pytest.mark.heavy
def test_server_that_is_killed_while_it_is_followed_is_read_on(index, nats, tmp_path):
    server = NatsServer(tmp_path / "own")
    server.start()
    world = JetStreamWorld(server, "killed")
    world.append(0, make_records(10))
    follower = follow(index, world.address, keys=["key"])
    thread = threading.Thread(target=follower.run)
    thread.start()
    try:
        await_that(lambda: follower.status.messages == 10)
        server.kill()
        await_that(lambda: follower.status.trouble is not None)
        server.start()
        world.append(0, make_records(10, 10))
        await_that(lambda: follower.status.messages >= 20)
    finally:
        follower.stop()
        thread.join()
        server.kill()
    assert follower.status.messages == 20
    assert offsets(index, "killed.k19", "killed") == [(0, 20)]


def await_that(holds):
    give_up = clock.monotonic() + PATIENCE_S
    while not holds():
        assert clock.monotonic() < give_up
        clock.wait(Bell(), 0.02)


def test_once_ends_at_a_stream_whose_last_messages_were_deleted(index, nats):
    world = JetStreamWorld(nats, "deleted")
    world.append(0, make_records(3))
    nats.run(lambda stream: stream.delete_msg("deleted", 3))
    assert run_once(index, world.address).messages == 2
    world.append(0, make_records(1))
    assert run_once(index, world.address).messages == 1
