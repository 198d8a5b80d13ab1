"""Messages of followed logs, shown by what `tierdex follow` left in the data folder, from real servers."""

from __future__ import annotations

import orjson
import pytest

from tests.following.worlds import WORLDS, Sent
from tests.patience import PATIENCE_S
from tierdex.following.follow import follow
from tierdex.index_service.index import Index
from tierdex.resolving.message_fetcher import MessageFetcher
from tierdex.resolving.show_settings import ShowSettings

BIG = (1 << 63) - 1
PATIENT = ShowSettings(message_timeout=PATIENCE_S)
ADDRESSED = [name for name in WORLDS if name != "memory"]
SENT = [
    Sent(b"k%d" % n, orjson.dumps({"id": f"ID-{n}", "n": BIG - n, "card": "4111"}), (("h", b"v"),))
    for n in range(3)
]


@pytest.fixture(params=ADDRESSED)
def world(request, tmp_path):
    kind = WORLDS[request.param]
    made = kind(request.getfixturevalue(kind.server), f"show-{request.param}")
    yield made
    made.close()


def address_of(world):
    return world.address if hasattr(world, "address") else world.source().name


def options_of(world):
    return {"value": "v"} if world.server == "redis" else {}


def followed(data, world):
    """Index the world by id; return what was found of the second record's key."""
    with Index.open(data, slot_count=64, item_capacity=1000, background=False) as index:
        follow(
            index, address_of(world), keys=["$.id"], topic="t", time="$.none", once=True,
            options=options_of(world),
        ).run()  # fmt: skip
        return index.query("t", key="ID-1")


def place_of(world, partition, offset):
    source = world.source()
    source.partitions()
    place = source.place_of(partition, offset)
    source.close()
    return place


def shown(data, answer, key="ID-1", settings=PATIENT):
    with MessageFetcher(data, settings) as messages:
        (entry,) = messages.with_messages(answer, key=key).entries
    return entry.message


def test_message_is_shown_until_its_log_has_it_no_more(world, tmp_path):
    partition = world.partitions[0]
    offsets = world.append(partition, SENT)
    data = tmp_path / "data"
    answer = followed(data, world)
    message = shown(data, answer)
    assert message.outcome == "shown", message
    assert f'"n": {BIG - 1}' in message.text
    assert message.body == SENT[1].value
    place = place_of(world, partition, offsets[1])
    assert message.where.endswith(f", {place}")
    assert shown(data, answer, key="ID-2").outcome == "mismatch"
    assert b"4111" not in (shown(data, answer, key="ID-2").body or b"")
    (data / "resolvers.toml").write_text('[default]\nmask = ["$.card", "header:h", "key"]\n')
    hidden = shown(data, answer)
    assert b"4111" not in hidden.body
    assert "$.card" in hidden.masked
    assert all(value == b"***" for name, value in hidden.headers if name == "h")
    if world.loses and not (world.server == "kafka" and world.broker.process is None):
        world.lose_before(partition, offsets[2])
        gone = shown(data, answer)
        assert gone.outcome == "gone"
        assert gone.reason.endswith(f"it was at {gone.where}")
        assert gone.where.endswith(f", {place}")


def test_log_that_is_away_leaves_the_entry_and_says_so(tmp_path):
    from tools.free_port import find_free_port

    (tmp_path / "resolvers.toml").write_text(
        f"""
        [topics.t]
        source = "redis://user:hunter2@127.0.0.1:{find_free_port()}/0/s"
        keys = ["$.id"]
        """
    )
    with Index.open(tmp_path / "i", slot_count=64, item_capacity=100, background=False) as index:
        index.put(topic="t", keys=["k"], queue_id=0, offset=1, size=1, timestamp=1)
        answer = index.query("t", key="k")
    message = shown(tmp_path, answer, key="k")
    assert message.outcome == "unavailable"
    assert "hunter2" not in str(message)


def test_lost_offsets_of_a_followed_log_are_told(tmp_path):
    from tests.following.memory_log import MemoryLog

    log = MemoryLog((0,), "m")
    for n in range(3):
        log.append(0, b'{"id":"K-%d"}' % n)
    with Index.open(tmp_path, slot_count=64, item_capacity=100, background=False) as index:
        follow(index, log.source(), keys=["$.id"], topic="t", once=True).run()
        for n in range(3, 9):
            log.append(0, b'{"id":"K-%d"}' % n)
        log.lose(0, 5)
        follow(index, log.source(), keys=["$.id"], topic="t", once=True).run()
    with MessageFetcher(tmp_path) as messages:
        (gap,) = messages.lost("t")
        assert messages.lost("other") == ()
    assert gap[:4] == ("t", 0, 3, 5)
