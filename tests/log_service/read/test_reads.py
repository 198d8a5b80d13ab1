"""Reading: columns of every kind go in, and come out by queue and offset, over files in every state."""

from __future__ import annotations

import datetime
import gc

import numpy as np
import pyarrow as pa
import pytest

from tests.log_service.log_world import DATA, everything, open_log, seal_rolled
from tests.simulation.simulated_disk import SimulatedFileSystem
from tierdex.filesystem import make_durable_folder
from tierdex.log_service.message_log import MessageLog
from tierdex.logfile.journal.tables import Tables
from tierdex.testing.components import components_of

TIME = 1_700_000_000_000


@pytest.fixture
def log():
    disk = SimulatedFileSystem()
    make_durable_folder(disk, DATA)
    with open_log(disk) as log:
        yield log


def advance(log):
    """Bring the only file to its next state: unsealed, sealed, compacted."""
    state = log.files()[0].state
    if state == "unsealed":
        assert log.roll()
        assert seal_rolled(log) == 1
    elif state == "sealed":
        assert log.run_compaction() == 1


@pytest.mark.parametrize(
    ("topic", "queue_id", "body"),
    [
        (["a", "b", "a", "a"], [1, 2, 1, 1], [b"0", b"", b"22", b"333"]),
        (
            np.array(["a", "b", "a", "a"]), np.array([1, 2, 1, 1], np.int32),
            pa.array([b"0", b"", b"22", b"333"]),
        ),
        (
            pa.array(["a", "b", "a", "a"]).dictionary_encode(), pa.array([1, 2, 1, 1], pa.int64()),
            pa.chunked_array([[b"0", b""], [b"22", b"333"]], pa.large_binary()),
        ),
        (
            pa.chunked_array([["a"], ["b", "a", "a"]]), np.array([1, 2, 1, 1], np.uint8),
            pa.array([b"no", b"0", b"", b"22", b"333"], pa.binary()).slice(1),
        ),
        (["a", "b", "a", "a"], [1, 2, 1, 1], pa.array(["0", "", "22", "333"])),
    ],
    ids=["lists", "numpy", "dictionary", "sliced", "text"],
)  # fmt: skip
def test_columns_of_every_kind_are_the_same_messages(log, topic, queue_id, body):
    times = [TIME, TIME - 5, TIME + 10**12, -(2**63)]
    receipt = log.append_batch(topic=topic, queue_id=queue_id, body=body, timestamp=times)
    assert receipt.offsets.tolist() == [0, 0, 1, 2]
    for _ in range(3):
        found = log.read("a", 1, 0).messages
        assert [(m.offset, m.timestamp, m.body) for m in found] == [
            (0, times[0], b"0"), (1, times[2], b"22"), (2, times[3], b"333"),
        ]  # fmt: skip
        assert [m.body for m in log.read("b", 2, 0).messages] == [b""]
        advance(log)


def test_keys_message_id_and_headers_come_back_with_the_message(log):
    log.append(
        topic="a", queue_id=0, body=b"x", keys=["k1", "größe"], message_id="id", timestamp=TIME,
        headers=[("h", b"\0\xff"), ("h", b"")],
    )  # fmt: skip
    log.append(topic="a", queue_id=0, body=b"y", keys="one")
    log.append_batch(
        topic="a", queue_id=0, body=[b"z", b"zz"], keys=[["k"], None], message_id=[None, "id2"],
        headers=[[], [("n", b"v")]],
    )  # fmt: skip
    for _ in range(3):
        first, second, third, fourth = log.read("a", 0, 0).messages
        assert (first.keys, first.message_id) == (("k1", "größe"), "id")
        assert first.headers == (("h", b"\0\xff"), ("h", b""))
        assert (second.keys, second.message_id, second.headers) == (("one",), None, ())
        assert (third.keys, fourth.message_id, fourth.headers) == (("k",), "id2", (("n", b"v"),))
        table = log.read_arrow("a", 0, 0)
        assert table["offset"].to_pylist() == [0, 1, 2, 3]
        assert table["timestamp"][0].as_py() == TIME
        assert table["body"].to_pylist() == [b"x", b"y", b"z", b"zz"]
        assert table["keys"].to_pylist() == [["k1", "größe"], ["one"], ["k"], []]
        assert table["message_id"].to_pylist() == ["id", None, None, "id2"]
        assert table["headers"].to_pylist()[3] == [{"name": "n", "value": b"v"}]
        advance(log)


def test_empty_answers_make_empty_tables(log):
    table = log.read_arrow("a", 0, 0)
    assert (table.num_rows, table.column_names[:3]) == (0, ["offset", "timestamp", "body"])


def test_reads_go_on_over_sealed_and_unsealed_journals(log):
    for i in range(30):
        log.append(topic="a", queue_id=i % 2, body=b"%d" % i)
        if i % 8 == 7:
            log.roll()
        if i == 12:
            log.run_compaction()
        if i == 20:
            seal_rolled(log)
    assert {file.state for file in log.files()} == {"compacted", "sealed", "unsealed"}
    assert everything(log, [("a", 0), ("a", 1)]) == {
        ("a", half): [b"%d" % i for i in range(half, 30, 2)] for half in (0, 1)
    }
    answers = log.read_many([("a", 0, 3), ("a", 1, 14), ("a", 1, 0), ("b", 0, 0)], max_count=2)
    assert [[m.body for m in answer.messages] for answer in answers] == [
        [b"6", b"8"], [b"29"], [b"1", b"3"], [],
    ]  # fmt: skip
    assert log.read_many([]) == []
    reader = log.reader("a", 0, 5, max_count=3)
    assert [m.offset for m in reader] == list(range(5, 15))
    log.append(topic="a", queue_id=0, body=b"later")
    assert [m.body for m in reader] == [b"later"]
    assert log.topics() == ["a"]
    assert log.queues("a") == [0, 1]


def test_end_offsets_follow_the_levels(log):
    log.append(topic="a", queue_id=0, body=b"0")
    log.append(topic="a", queue_id=0, body=b"1", durability="os")
    log.append(topic="a", queue_id=0, body=b"2", durability="received")
    assert [log.end_offset("a", 0, level=level) for level in ("received", "os", "disk")] == [
        3,
        2,
        1,
    ]
    for visible, count in (("received", 3), ("os", 2), ("disk", 1)):
        assert len(log.read("a", 0, 0, visible=visible)) == count
    assert len(log.read("a", 0, 0)) == 1, (
        "by default no reader sees what a power cut could take back"
    )
    log.flush("os")
    assert log.end_offset("a", 0, level="os") == 3
    log.flush()
    assert log.end_offset("a", 0) == 3
    assert log.begin_offset("a", 0) == 0


def test_offset_of_a_time_is_the_first_message_at_or_after_it(log):
    times = [100, 300, 200, 300, 50, 500]
    for i, time in enumerate(times):
        log.append(topic="a", queue_id=0, body=b"", timestamp=time)
        log.append(topic="a", queue_id=1, body=b"", timestamp=10_000)
        if i == 3:
            advance(log)
    for wanted in range(0, 600, 50):
        expected = next((i for i, time in enumerate(times) if time >= wanted), len(times))
        assert log.offset_at("a", 0, wanted) == expected, wanted


def test_times_are_now_unless_given_and_arrow_timestamps_are_milliseconds(log):
    log.append(topic="a", queue_id=0, body=b"")
    now = components_of(log).seams.clock.now_ms()
    moment = datetime.datetime(2024, 5, 6, 7, 8, 9, 10_000, tzinfo=datetime.UTC)
    log.append_batch(
        topic="a", queue_id=0, body=[b""], timestamp=pa.array([moment], pa.timestamp("us", "UTC"))
    )
    log.append_batch(
        topic="a", queue_id=0, body=[b""], timestamp=np.array(["2024-05-06T07:08:09.010"], "M8[us]")
    )
    expected = round(moment.timestamp() * 1000)
    assert [m.timestamp for m in log.read("a", 0, 0).messages] == [now, expected, expected]


def test_batch_larger_than_stage_and_journal_goes_over_several_files(log):
    count = 1500
    receipt = log.append_batch(
        topic="a",
        queue_id=np.arange(count) % 3,
        body=[bytes([i % 251]) * 1000 for i in range(count)],
    )
    assert receipt.offsets.tolist() == [i // 3 for i in range(count)]
    assert len(log.files()) > 4
    found = everything(log, [("a", queue) for queue in range(3)], "disk")
    for queue in range(3):
        assert found["a", queue] == [bytes([i % 251]) * 1000 for i in range(queue, count, 3)]


def test_many_queues_cost_no_python_object_each(tmp_path):
    queues, topics = 60_000, 300
    with MessageLog.open(
        tmp_path, journal_bytes=64 << 20, background=False, node="n", index=False
    ) as log:
        ids = np.arange(queues) // topics
        names = pa.DictionaryArray.from_arrays(
            pa.array(np.arange(queues) % topics, pa.int32()),
            pa.array([f"topic-{i}" for i in range(topics)]),
        )
        body = pa.array([b"%d" % i for i in range(queues)], pa.binary())
        log.append(topic="other", queue_id=0, body=b"warm")
        gc.collect()
        before = len(gc.get_objects())
        for turn in range(3):
            offsets = log.append_batch(
                topic=names, queue_id=ids, body=body, durability="os"
            ).offsets
            assert set(offsets.tolist()) == {turn}
            if turn == 1:
                log.roll()
                log.run_compaction()
        gc.collect()
        assert len(gc.get_objects()) - before < queues // 4
        for i in (0, 1, 299, 300, 31_234, queues - 1):
            answer = log.read(f"topic-{i % topics}", i // topics, 0, visible="os")
            assert [m.body for m in answer.messages] == [b"%d" % i] * 3
        assert len(log.topics()) == topics + 1
        assert log.queues("topic-7") == list(range(queues // topics))
        assert log.queues("topic-7", first=3, max_count=2) == [3, 4]
        assert log.queues("topic-7", first=queues // topics - 1, max_count=2) == [199]
    with MessageLog.open(tmp_path, read_only=True) as log:
        assert len(log.topics()) == topics + 1
        assert log.end_offset("topic-7", 3) == 3


def test_pages_of_queues_look_at_all_queues_once_and_see_those_that_come(monkeypatch):
    looks = []
    states = Tables.states
    monkeypatch.setattr(Tables, "states", lambda self: looks.append(1) or states(self))
    disk = SimulatedFileSystem()
    make_durable_folder(disk, DATA)
    with open_log(disk) as log:
        log.append_batch(topic="a", queue_id=[5, 3, 9, 1], body=[b""] * 4)
        log.append(topic="b", queue_id=7, body=b"")
        assert [log.queues("a", first=first, max_count=2) for first in (0, 4, 6)] == [
            [1, 3], [5, 9], [9],
        ]  # fmt: skip
        assert len(looks) == 1
        log.append(topic="a", queue_id=4, body=b"")
        assert log.queues("a") == [1, 3, 4, 5, 9]
        assert log.queues("b") == [7]
        with open_log(disk.other_process(), read_only=True) as reader:
            assert reader.queues("a", first=4) == [4, 5, 9]
            before = len(looks)
            assert reader.queues("a") == [1, 3, 4, 5, 9]
            assert len(looks) == before
            log.append(topic="a", queue_id=2, body=b"")
            log.roll()
            log.run_compaction()
            reader.refresh()
            assert reader.queues("a", max_count=2) == [1, 2]
