"""The contract of `Source`, held by every kind of log that can be had here."""

from __future__ import annotations

import itertools

import pytest

from tests.following.worlds import WORLDS, make_records
from tests.patience import PATIENCE_S
from tierdex.clock import SystemClock
from tierdex.errors import InvalidRequestError
from tierdex.following.open_source import open_source
from tierdex.following.records import Parts

_NUMBERS = itertools.count()
clock = SystemClock()


@pytest.fixture(params=WORLDS)
def world(request):
    kind = WORLDS[request.param]
    made = kind(request.getfixturevalue(kind.server), f"orders{next(_NUMBERS)}")
    make, sources = made.source, []
    made.source = lambda: sources.append(make()) or sources[-1]
    yield made
    for source in sources:
        source.close()
    made.close()


def read(source, positions, count, wanted=Parts()):  # noqa: B008 - a constant
    """Return so many records from the positions on: (partition, offset, time, key, value, headers)."""
    source.open(positions, wanted)
    found, give_up = [], clock.monotonic() + PATIENCE_S
    at = dict(positions)
    while len(found) < count:
        assert clock.monotonic() < give_up, f"{len(found)} of {count} records came"
        batch = source.read(1000, 0.2)
        if batch is None:
            continue
        at |= batch.positions
        for row in range(len(batch)):
            found.append(
                (
                    int(batch.partitions[row]), int(batch.offsets[row]),
                    int(batch.timestamps[row]), batch.keys and batch.keys[row],
                    batch.values and batch.values[row], batch.headers and batch.headers[row],
                )
            )  # fmt: skip
            assert int(batch.sizes[row]) == len((batch.values and batch.values[row]) or b"")
    return found, at


def test_records_come_in_order_at_their_offsets_and_the_same_each_time(world):
    sent = make_records(200)
    offsets = {p: world.append(p, sent) for p in world.partitions}
    source = world.source()
    bounds = source.bounds(dict.fromkeys(world.partitions))
    positions = {p: bounds[p].first for p in world.partitions}
    found, at = read(source, positions, 200 * len(positions))
    for partition in world.partitions:
        of_it = [row for row in found if row[0] == partition]
        assert [row[1] for row in of_it] == offsets[partition]
        assert [row[4] for row in of_it] == [record.value for record in sent]
        assert offsets[partition][-1] < at[partition] <= bounds[partition].end
    assert len(found) == 200 * len(positions)
    at_the_end = source.read(1000, 0.05)
    assert at_the_end is None or not len(at_the_end)
    again = world.source()
    assert sorted(read(again, positions, len(found))[0]) == sorted(found)
    source.close()
    again.close()


def test_reading_begins_at_the_position(world):
    partition = world.partitions[0]
    offsets = world.append(partition, make_records(50))
    source = world.source()
    found, _ = read(source, {partition: offsets[30]}, 20)
    assert [row[1] for row in found] == offsets[30:]
    found, _ = read(source, {partition: offsets[10] + 1}, 39)  # opened again, at a hole or a record
    assert [row[1] for row in found] == offsets[11:]
    source.close()


def test_bounds_hold_what_is_there(world):
    partition = world.partitions[0]
    source = world.source()
    empty = source.bounds({partition: None})[partition]
    assert empty.first <= empty.end
    offsets = world.append(partition, make_records(10))
    held = source.bounds({partition: None})[partition]
    assert held.first <= offsets[0]
    assert held.end > offsets[-1]
    source.close()


def test_one_record_is_fetched_whole_and_an_absent_one_is_none(world):
    partition = world.partitions[0]
    sent = make_records(30)
    offsets = world.append(partition, sent)
    source = world.source()
    rows, _ = read(world.source(), {partition: offsets[0]}, 30)
    for number in (0, 17, 29):
        record = source.fetch(partition, offsets[number])
        assert (record.partition, record.offset) == (partition, offsets[number])
        assert record.value == sent[number].value
        if source.has_times:
            assert record.timestamp == rows[number][2]
        assert record.key == rows[number][3]
        assert list(record.headers) == list(rows[number][5] or ())
    assert source.fetch(partition, offsets[-1] + 10_000) is None
    assert source.fetch(2_000_000_011, 0) is None
    source.close()


@pytest.mark.parametrize("world", [n for n, w in WORLDS.items() if w.widens], indirect=True)
def test_partition_that_is_added_is_seen(world):
    source = world.source()
    assert set(source.partitions()) == set(world.partitions)
    added = world.add_partition()
    give_up = clock.monotonic() + PATIENCE_S
    while added not in source.partitions():
        assert clock.monotonic() < give_up
    offsets = world.append(added, make_records(3))
    found, _ = read(source, {added: source.bounds({added: None})[added].first}, 3)
    assert [row[1] for row in found] == offsets
    source.close()


@pytest.mark.parametrize("world", [n for n, w in WORLDS.items() if w.loses], indirect=True)
def test_what_the_log_lost_shows_in_its_bounds(world):
    partition = world.partitions[0]
    offsets = world.append(partition, make_records(100))
    world.lose_before(partition, offsets[60])
    source = world.source()
    held = source.bounds({partition: offsets[10]})[partition]
    assert offsets[59] < held.first <= offsets[60]
    for whole in (offsets[60], offsets[60] + 1, offsets[99] + 1):
        assert source.bounds({partition: whole})[partition].first <= whole
    assert source.fetch(partition, offsets[3]) is None
    found, _ = read(source, {partition: held.first}, 40)
    assert [row[1] for row in found] == offsets[60:]
    source.close()


def test_names_of_partitions_are_for_readers(world):
    source = world.source()
    names = [source.name_of(p) for p in source.partitions()]
    assert len(set(names)) == len(names)
    assert all(names)
    assert source.topic
    assert ":" in source.name
    source.close()
    source.close()


@pytest.mark.parametrize(
    "address",
    [
        "kafka:orders", "kafka://h:9092", "kafka://h:x/orders", "kafka://h:0/orders", "kafka://:1/orders",
        "kafka://h:1/a/b", "kafka://h:1/a b", "kafka://h:1,/a",
        "nats:orders", "nats://h:4222", "nats://h:x/orders", "nats://h:70000/orders", "nats://h:1/a.b",
        "nats://h:1/>", "nats://h:1/a b",
        "rabbitmq:s", "rabbitmq://h:1", "rabbitmq://h:x/s", "rabbitmq://h:1/s,",
        "rocketmq:t", "rocketmq://h:1", "rocketmq://h:x/t", "rocketmq://h:1/a.b",
        "redis://h:x/0/s", "redis://h:1/s", "redis://h:1,i:2/0/s", "redis://h:1/x/s",
    ],
)  # fmt: skip
def test_address_that_cannot_be_is_refused_and_not_tried_for_ever(address):
    with pytest.raises(InvalidRequestError, match=r"is (kafka|nats|rabbitmq|redis|rocketmq)://"):
        open_source(address)
