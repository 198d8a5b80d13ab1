"""The follower over a log in memory: where it begins, what it counts, what it says of what was lost."""

from __future__ import annotations

import json

import pytest

import tierdex
from tests.following.memory_log import MemoryLog
from tierdex.clock import ManualClock
from tierdex.errors import InvalidRequestError, UnavailableError
from tierdex.following.follow import follow
from tierdex.following.positions import FILE_NAME
from tierdex.indexfile.schema import SEQUENCE_SCHEMA
from tierdex.seams import Seams

SMALL = {"slot_count": 1024, "item_capacity": 65536, "background": False, "node": "here"}


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "data"


def opened(folder, **settings):
    return tierdex.Index.open(folder, **SMALL, **settings)


def run_once(index, log, **wanted):
    wanted = {"keys": ["key"], **wanted}
    seams = Seams.of(clock=ManualClock())
    return follow(index, log.source(), once=True, seams=seams, **wanted).run()


def offsets(index, key, topic="orders"):
    answer = index.query(topic, key=key, max_count=1000)
    assert answer.complete
    return sorted((entry.queue_id, entry.offset) for entry in answer.entries)


def log_of(count, partitions=(0,)):
    log = MemoryLog(partitions)
    for number in range(count):
        for partition in partitions:
            log.append(partition, b"{}", key=b"k%d" % number)
    return log


def test_every_record_is_found_where_its_log_has_it(folder):
    log = log_of(100, (0, 1, 7))
    with opened(folder) as index:
        status = run_once(index, log)
        assert (status.messages, status.entries) == (300, 300)
        for number in range(100):
            assert offsets(index, f"k{number}") == [(0, number), (1, number), (7, number)]
        assert index.watermark("orders", 7)["disk"] == 100


def test_record_whose_time_looks_like_seconds_is_indexed_as_it_is(folder):
    """A put by hand is refused; a follower that refused it would stand still for ever."""
    log = log_of(2)
    log.append(0, b"{}", key=b"odd", timestamp=1_700_000_000)
    with opened(folder) as index:
        assert run_once(index, log).entries == 3
        (entry,) = index.query("orders", key="odd").entries
        assert entry.timestamp == 1_700_000_000


def test_second_run_reads_only_what_came(folder):
    log = log_of(50)
    with opened(folder) as index:
        run_once(index, log)
        log.append(0, b"{}", key=b"late")
        assert run_once(index, log).messages == 1
        assert offsets(index, "late") == [(0, 50)]


def test_without_its_positions_it_goes_on_at_the_watermark(folder):
    log = log_of(50)
    with opened(folder) as index:
        run_once(index, log)
        (folder / FILE_NAME).unlink()
        log.append(0, b"{}", key=b"late")
        assert run_once(index, log).messages == 2  # the last one that is in, again
        assert offsets(index, "k49") == [(0, 49)]


def test_last_message_with_some_of_its_keys_is_read_again(folder):
    """A crash may cut a batch between two keys of one message."""
    log = MemoryLog()
    value = json.dumps({"ids": ["a", "b", "c"]}).encode()
    log.append(0, value)
    with opened(folder) as index:
        index.put_batch(
            topic="orders", keys=["a"], queue_id=0, offset=0, size=len(value),
            timestamp=1_700_000_000_000, schema=SEQUENCE_SCHEMA,
        )  # fmt: skip
        run_once(index, log, keys=["$.ids[*]"])
        assert [offsets(index, key) for key in "abc"] == [[(0, 0)]] * 3


def test_positions_of_an_index_that_lost_entries_are_not_believed(folder):
    log = log_of(50)
    with opened(folder) as index:
        run_once(index, log)
    for file in (folder / "unsealed").iterdir():
        file.unlink()
    with opened(folder) as index:
        assert run_once(index, log).messages == 50
        assert offsets(index, "k3") == [(0, 3)]


def test_records_without_a_key_are_not_read_for_ever(folder):
    log = log_of(3)
    for _ in range(20):
        log.append(0, b"{}")
    with opened(folder) as index:
        assert run_once(index, log).missing["key"] == 20
        log.lose(0, 23)  # what we have seen may go
        status = run_once(index, log)
        assert (status.messages, status.lost) == (0, 0)


def test_messages_that_the_log_lost_first_are_told_and_counted(folder, caplog):
    log = log_of(10)
    with opened(folder) as index:
        run_once(index, log)
        for number in range(10, 30):
            log.append(0, b"{}", key=b"k%d" % number)
        log.lose(0, 25)
        status = run_once(index, log)
        assert (status.lost, status.messages) == (15, 5)
        assert "gone before they were read" in caplog.text
        assert offsets(index, "k25") == [(0, 25)]
    saved = json.loads((folder / FILE_NAME).read_text())["topics"]["orders"]["partitions"]["0"]
    assert (saved["lost"], saved["gaps"][0]["begin"], saved["gaps"][0]["end"]) == (15, 10, 25)


def test_messages_lost_between_two_reads_are_counted(folder):
    log = log_of(10)
    seams = Seams.of(clock=ManualClock())

    def overtake():
        if log.reads == 2:  # the first ten are read, the look is done
            for number in range(10, 40):
                log.append(0, b"{}", key=b"k%d" % number)
            log.lose(0, 30)
        if log.reads == 4:
            follower.stop()

    log.before_read = overtake
    with opened(folder) as index:
        follower = follow(index, log.source(), keys=["key"], seams=seams)
        status = follower.run()
        assert (status.lost, status.messages) == (20, 20)


def test_holes_of_a_compacted_log_are_no_loss(folder):
    log = MemoryLog()
    for number in range(10):
        log.append(0, b"{}", key=b"k%d" % number, skip=number)
    with opened(folder) as index:
        status = run_once(index, log)
        assert (status.messages, status.lost) == (10, 0)


def test_log_that_was_cut_is_read_anew(folder):
    log = log_of(20)
    with opened(folder) as index:
        run_once(index, log)
        log.cut(0, 5)
        log.append(0, b"{}", key=b"other")
        status = run_once(index, log)
        assert (status.restarts, status.messages) == (1, 6)
        assert offsets(index, "other") == [(0, 5)]
        # behind the old watermark, and after another start, it goes on as ever
        for number in range(6, 30):
            log.append(0, b"{}", key=b"again%d" % number)
        assert run_once(index, log).messages == 24
        assert offsets(index, "again29") == [(0, 29)]
        assert run_once(index, log).messages == 0


def test_cut_is_remembered_when_the_log_grows_past_it_before_the_next_start(folder):
    log = log_of(20)
    with opened(folder) as index:
        run_once(index, log)
        log.cut(0, 5)
        log.down = 0
        follower = follow(index, log.source(), keys=["key"], seams=Seams.of(clock=ManualClock()))
        log.before_read = follower.stop  # it saw the cut and read nothing
        log.records[0], kept = {}, log.records[0]
        follower.run()
        log.records[0], log.before_read = kept, lambda: None
        for number in range(5, 40):
            log.append(0, b"{}", key=b"new%d" % number)
        run_once(index, log)
        assert offsets(index, "new7") == [(0, 7)]


def test_other_log_of_the_same_name_is_refused_until_it_is_accepted(folder):
    with opened(folder) as index:
        run_once(index, log_of(20))
        other = log_of(8)
        other.identity = "log-2"
        other.append(0, b"{}", key=b"other")
        with pytest.raises(InvalidRequestError, match="another log"):
            run_once(index, other)
        status = run_once(index, other, accept_other_log=True)
        assert status.messages == 9
        assert offsets(index, "other") == [(0, 8)]
        assert run_once(index, other).messages == 0


def test_followers_share_partitions_by_ordinal(folder):
    log = log_of(5, (0, 1, 2, 3, 4))
    seen = []
    for number in range(2):
        with opened(folder / str(number)) as index:
            run_once(index, log, ordinal=(number, 2))
            seen.append({queue for queue, _ in offsets(index, "k0")})
    assert seen == [{0, 2, 4}, {1, 3}]


def test_listed_partitions_are_followed_and_an_absent_one_is_refused(folder):
    log = log_of(5, (0, 1, 2))
    with opened(folder) as index:
        run_once(index, log, partitions=[1])
        assert offsets(index, "k0") == [(1, 0)]
        with pytest.raises(InvalidRequestError, match="no partition 9"):
            run_once(index, log, partitions=[1, 9])


def test_new_partition_is_seen(folder):
    log = log_of(5)

    def grow():
        if log.reads == 3:
            log.add_partition(1)
            log.append(1, b"{}", key=b"fresh")
        if log.reads > 3 and log.reads % 2 == 0:
            clock.advance(6.0)
        if log.reads > 12:
            follower.stop()

    clock = ManualClock()
    log.before_read = grow
    with opened(folder) as index:
        follower = follow(index, log.source(), keys=["key"], seams=Seams.of(clock=clock))
        follower.run()
        assert offsets(index, "fresh") == [(1, 0)]


def test_log_that_is_down_is_waited_for(folder, caplog):
    log = log_of(5)
    log.down = 7
    with opened(folder) as index:
        status = run_once(index, log)
        assert (status.messages, status.trouble) == (5, None)
        assert status.retries == 7
        assert caplog.text.count("waiting") == 1


def test_index_that_takes_nothing_is_waited_for_and_nothing_is_missed(folder, monkeypatch):
    log = log_of(5)
    with opened(folder) as index:
        put, refusals = index.put_batch, [1, 2]

        def refuse_twice(**columns):
            if refusals:
                refusals.pop()
                raise UnavailableError("the disk is full")
            return put(**columns)

        monkeypatch.setattr(index, "put_batch", refuse_twice)
        status = run_once(index, log)
        assert (status.messages, status.retries) == (5, 2)
        assert offsets(index, "k4") == [(0, 4)]


def test_message_without_the_wanted_key_stops_it_only_when_asked(folder):
    log = MemoryLog()
    log.append(0, b'{"id": "a"}')
    log.append(0, b"{}")
    with opened(folder) as index:
        with pytest.raises(InvalidRequestError, match=r"orders\[0\], offset 1: .* \$\.id"):
            run_once(index, log, keys=["$.id"], on_missing="fail")
        status = run_once(index, log, keys=["$.id"])
        assert status.missing == {"$.id": 1}
        assert offsets(index, "a") == [(0, 0)]


def test_poison_is_indexed_by_what_can_be_read(folder):
    log = MemoryLog()
    log.append(0, b'{"id": "trunc', key=b"p1")
    log.append(0, None, key=b"p2")
    log.append(0, b'{"id": "fine"}', key=b"\xff\xfe")
    log.append(0, b'{"id": "x%s"}' % (b"x" * 5000), key=b"p4")
    log.append(0, b'{"id": {"no": "text"}}', key=b"p5")
    with opened(folder) as index:
        status = run_once(index, log, keys=["key", "$.id"], on_missing="fail")
        assert (status.unreadable, status.without_value, status.too_long) == (3, 1, 1)
        assert [len(offsets(index, key)) for key in ("p1", "p2", "fine", "p4", "p5")] == [1] * 5


def test_time_is_the_records_own_unless_another_place_is_named(folder):
    log = MemoryLog()
    log.append(0, b'{"at": "2024-01-01T00:00:00Z"}', key=b"a")
    log.append(0, b'{"at": "soon"}', key=b"b")
    with opened(folder) as index:
        status = run_once(index, log, time="$.at")
        assert status.untimed == 1
        (a,), (b,) = (index.query("orders", key=key).entries for key in "ab")
        assert (a.timestamp, b.timestamp) == (1_704_067_200_000, 1_700_000_000_000)


def test_message_id_and_keys_stand_in_one_message(folder):
    log = MemoryLog()
    log.append(0, b'{"no": 7}', key=b"a", headers=[("id", b"M-1"), ("id", b"M-2")])
    log.append(0, b'{"no": 8}')
    with opened(folder) as index:
        run_once(index, log, keys=["{key}/{$.no}"], message_id="header:id")
        assert offsets(index, "a/7") == [(0, 0)]
        assert [e.offset for e in index.query(message_id="M-2").entries] == [0]


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        ({"keys": []}, "key"),
        ({"keys": ["id"]}, "key"),
        ({"keys": ["$.a["]}, "key"),
        ({"keys": ["{$.a[*]}-{key}"]}, "key"),
        ({"keys": ["{key"]}, "key"),
        ({"keys": ["key"], "time": "$.a[*]"}, "time"),
        ({"keys": ["key"], "timezone": "Mars/North"}, "timezone"),
        ({"keys": ["key"], "ordinal": (3, 3)}, "ordinal"),
        ({"keys": ["key"], "topic": "a\x00b"}, "topic"),
        ({"keys": ["key"], "on_missing": "stop"}, "on_missing"),
    ],
)
def test_wrong_options_are_named(folder, wanted, field):
    with opened(folder) as index, pytest.raises(InvalidRequestError) as caught:
        follow(index, MemoryLog().source(), **wanted)
    assert caught.value.field == field
