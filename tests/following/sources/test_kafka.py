"""Following a Kafka topic: transactions, compaction, records without key or value, times, trouble, rights."""

from __future__ import annotations

import logging
import threading

import pytest

from tests.following.test_follower import offsets
from tests.following.worlds import KafkaWorld, Sent, make_records
from tests.patience import PATIENCE_S
from tierdex.clock import Bell, SystemClock
from tierdex.errors import InvalidRequestError, NotFoundError
from tierdex.following.follow import follow
from tierdex.following.records import Parts

clock = SystemClock()


@pytest.fixture
def topic(kafka, request):
    return KafkaWorld(kafka, request.node.name.replace("test_", "t-"))


def run_once(index, topic, **wanted):
    wanted = {"keys": ["key"], **wanted}
    return follow(index, topic.address, once=True, **wanted).run()


def test_aborted_transactions_are_not_indexed_and_positions_pass_their_markers(index, kafka, topic):
    kafka.need_real()
    producer = kafka.producer(transactional_id="follow")
    producer.init_transactions(PATIENCE_S)
    for number in range(6):
        producer.begin_transaction()
        producer.produce(topic.name, b"{}", b"t%d" % number, 0)
        if number % 2:
            producer.flush(PATIENCE_S)  # it is in the log, and then aborted
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)
    status = run_once(index, topic)
    assert (status.messages, status.lost, status.total_lag()) == (3, 0, 0)
    assert [len(offsets(index, f"t{n}", topic.name)) for n in range(6)] == [1, 0, 1, 0, 1, 0]
    producer.begin_transaction()
    producer.produce(topic.name, b"{}", b"open", 0)
    producer.flush(PATIENCE_S)
    assert run_once(index, topic).messages == 0  # it ends before what is not decided
    producer.commit_transaction(PATIENCE_S)
    assert run_once(index, topic).messages == 1


@pytest.mark.heavy
def test_compacted_topic_is_followed_over_its_holes(index, kafka, request):
    kafka.need_real()
    topic = KafkaWorld(
        kafka, "t-compacted", cleanup_policy="compact", segment_ms=50,
        min_cleanable_dirty_ratio=0.01, max_compaction_lag_ms=100, delete_retention_ms=100_000,
    )  # fmt: skip
    sent = [Sent(b"k%d" % (n % 5), b'{"n": %d}' % n) for n in range(100)]
    topic.append(0, sent)
    give_up, left = clock.monotonic() + PATIENCE_S, 100
    while left > 60:  # the cleaner runs when it likes
        assert clock.monotonic() < give_up
        clock.wait(Bell(), 0.1)
        topic.append(0, [Sent(b"k0", b'{"n": -1}')])  # closes the segment before
        source = topic.source()
        source.open({0: 0}, Parts())
        left = sum(len(source.read(1000, 0.3) or []) for _ in range(2))
        source.close()
    status = run_once(index, topic)
    assert status.lost == 0
    assert 0 < status.messages < 100
    assert len(offsets(index, "k4", topic.name)) >= 1
    assert run_once(index, topic).messages == 0


def test_records_of_every_shape_are_indexed_by_what_they_have(index, topic):
    topic.append(
        0,
        [
            Sent(None, b'{"id": "no key"}', (("region", b"eu"),)),
            Sent(b"tombstone", None, (("region", b"eu"),)),
            Sent(b"", b'{"id": "empty key"}'),
            Sent(b"\xff", b'{"id": "binary key"}', (("region", b"eu"), ("region", b"us"), ("n", b"1"))),
            Sent(b"poison", b'{"id": "trunc'),
        ],
    )  # fmt: skip
    status = run_once(index, topic, keys=["key", "$.id", "{header:region}/{$.id}"])
    assert (status.messages, status.without_value, status.unreadable) == (5, 1, 2)
    found = {
        key: offsets(index, key, topic.name)
        for key in ("no key", "eu/no key", "tombstone", "empty key", "us/binary key", "poison")
    }
    assert found == {
        "no key": [(0, 0)], "eu/no key": [(0, 0)], "tombstone": [(0, 1)], "empty key": [(0, 2)],
        "us/binary key": [(0, 3)], "poison": [(0, 4)],
    }  # fmt: skip
    (tombstone,) = index.query(topic.name, key="tombstone").entries
    assert tombstone.size == 0


def test_times_are_the_producers_or_the_brokers(index, kafka, topic):
    then = clock.now_ms() - 3_600_000  # retention counts from it
    topic.append(0, [Sent(b"created", b"{}")], timestamp=then)
    run_once(index, topic)
    (entry,) = index.query(topic.name, key="created").entries
    assert entry.timestamp == then
    kafka.need_real()
    logged = KafkaWorld(kafka, "t-log-time", message_timestamp_type="LogAppendTime")
    logged.append(0, [Sent(b"appended", b"{}")], timestamp=then)
    run_once(index, logged)
    (entry,) = index.query(logged.name, key="appended").entries
    assert then + 3_600_000 <= entry.timestamp <= clock.now_ms()


def test_retention_that_overtakes_the_follower_is_told_and_counted(index, kafka, topic):
    kafka.need_real()
    topic.append(0, make_records(10))
    run_once(index, topic)
    topic.append(0, make_records(90, 10))
    topic.lose_before(0, 70)
    status = run_once(index, topic)
    assert (status.lost, status.messages) == (60, 30)
    assert offsets(index, "k70", topic.name) == [(0, 70)]
    assert offsets(index, "k9", topic.name) == [(0, 9)]


def test_partition_that_is_added_is_followed(index, kafka, topic):
    kafka.need_real()
    topic.append(0, make_records(5))
    run_once(index, topic)
    topic.append(topic.add_partition(), [Sent(b"fresh", b"{}")])
    assert run_once(index, topic).messages == 1
    assert offsets(index, "fresh", topic.name) == [(2, 0)]


@pytest.mark.heavy
def test_topic_that_was_made_again_is_another_log(index, kafka, topic):
    kafka.need_real()
    topic.append(0, make_records(5))
    run_once(index, topic)
    kafka.admin.delete_topics([topic.name])[topic.name].result(PATIENCE_S)
    clock.wait(Bell(), 0.2)
    again = KafkaWorld(kafka, topic.name)
    again.append(0, [Sent(b"other", b"{}")] * 3)
    with pytest.raises(InvalidRequestError, match="another log"):
        run_once(index, again)
    status = run_once(index, again, accept_other_log=True)
    assert status.messages == 3


def test_unknown_topic_stops_and_a_broker_that_is_down_is_waited_for(
    index, kafka, caplog, monkeypatch
):
    from tierdex.following.sources import kafka as module

    monkeypatch.setattr(module, "_ASK_S", 0.5)
    with pytest.raises(NotFoundError, match="kafka://127"):
        run_once(index, KafkaAddress(f"kafka://{kafka.address}/t-nothing"))
    address = "kafka://tina:hunter-2@127.0.0.1:9/orders?security.protocol=SASL_PLAINTEXT"
    follower = follow(
        index, f"{address}&sasl.mechanism=PLAIN&ssl.key.password=hunter-3", keys=["key"], once=True
    )
    with caplog.at_level(logging.DEBUG):
        thread = threading.Thread(target=follower.run)
        thread.start()
        give_up = clock.monotonic() + PATIENCE_S
        while follower.status.trouble is None:
            assert clock.monotonic() < give_up
            clock.wait(Bell(), 0.05)
        follower.stop()
        thread.join()
    said = str([record.__dict__ for record in caplog.records]) + str(follower.status)
    assert "waiting" in said
    assert "127.0.0.1:9/orders" in said
    assert "hunter" not in said


def test_options_that_librdkafka_does_not_know_are_refused(index, kafka):
    address = f"kafka://{kafka.address}/orders"
    with pytest.raises(InvalidRequestError, match=r"no\.such\.option"):
        follow(index, address, keys=["key"], options={"no.such.option": "1"}).run()
    with pytest.raises(InvalidRequestError, match="source"):
        follow(index, "kafka:orders", keys=["key"])


class KafkaAddress:
    def __init__(self, address):
        self.address = address
