"""Files of the log that expire: what queues say then, what never begins again, what a crash leaves."""

from __future__ import annotations

import pytest

from tests.log_service.keyed_world import TINY_INDEX, KeyedWorld
from tests.log_service.log_world import DATA, open_log, seal_rolled
from tests.log_service.recovery.test_crash import Story
from tests.simulation.simulated_disk import SimulatedCrash
from tierdex.errors import CorruptFileError, InvalidRequestError
from tierdex.testing.components import components_of

DAY = 86_400.0


def later(log, seconds: float) -> None:
    components_of(log).seams.clock.advance(seconds)


def fill(log, queues, number=0, count=5):
    for queue in queues:
        for i in range(count):
            log.append(topic=queue[0], queue_id=queue[1], body=b"%d %d" % (number, i))
    log.roll()
    log.run_compaction()


def numbers(log) -> list[int]:
    return [int(info.file_id.partition("-")[0]) for info in log.files()]


def bodies(log, topic, queue_id, offset=0) -> list[bytes]:
    answer = log.read(topic, queue_id, offset)
    assert answer.complete, answer.missing
    return [message.body for message in answer.messages]


@pytest.mark.parametrize("seconds", [-1.0, 0.0, float("inf"), float("nan")])
def test_retention_that_is_none_is_refused_also_of_one_topic(seconds):
    for given in ({"retention": seconds}, {"topic_retention": {"a": seconds}}):
        with pytest.raises(InvalidRequestError, match="retention"):
            open_log(Story().disk, **given)


def test_message_is_found_by_its_key_while_the_log_has_it_although_its_index_file_is_older():
    story = Story()
    log = open_log(story.disk, topic_retention={"a": DAY}, **TINY_INDEX)
    log.append(topic="a", queue_id=0, body=b"x", keys=["k"])
    log.catch_up()
    log.index.roll()
    log.index.run_compaction()
    later(log, DAY)
    assert [message.body for message in log.get("a", key="k")] == bodies(log, "a", 0) == [b"x"]
    log.roll()
    seal_rolled(log)
    later(log, DAY)
    answer = log.get("a", key="k")
    assert (len(answer), [place.offset for place in answer.expired]) == (0, [0])
    assert bodies(log, "a", 0) == []


def test_queue_whose_files_are_all_gone_goes_on_where_it_ended_also_after_a_restart():
    story = Story()
    log = open_log(story.disk, retention=DAY)
    fill(log, [("a", 0), ("b", 3)])
    later(log, DAY)
    log.run_compaction()
    assert log.files() == []
    for _ in range(2):
        answer = log.read("a", 0, 2)
        assert (answer.begin_offset, answer.end_offset, answer.next_offset) == (5, 5, 5)
        assert (answer.from_begin, answer.complete, len(answer)) == (True, True, 0)
        assert (log.begin_offset("b", 3), log.end_offset("b", 3)) == (5, 5)
        assert log.offset_at("a", 0, 0) == 5
        assert log.topics() == ["a", "b"]
        [many, other] = log.read_many([("a", 0, 0), ("a", 9, 0)])
        assert (many.begin_offset, many.end_offset, other.end_offset) == (5, 5, 0)
        log.close()
        log = open_log(story.disk, retention=DAY)
    assert log.append(topic="a", queue_id=0, body=b"on") == 5
    assert log.append(topic="a", queue_id=1, body=b"new") == 0
    assert bodies(log, "a", 0) == [b"on"]
    assert log.read("a", 0, 0).from_begin
    reader = open_log(story.disk.other_process(), read_only=True)
    assert (reader.begin_offset("a", 0), reader.end_offset("a", 0)) == (5, 6)
    assert (reader.begin_offset("b", 3), reader.end_offset("b", 3)) == (5, 5)
    assert reader.topics() == ["a", "b"]


def test_topic_of_a_short_retention_is_hidden_while_its_file_is_kept_for_another():
    story = Story()
    settings = {"retention": 10 * DAY, "topic_retention": {"short": DAY}}
    log = open_log(story.disk, **settings)
    fill(log, [("long", 0), ("short", 0)])
    fill(log, [("short", 0)], 1)
    assert log.begin_offset("short", 0) == 0
    reader = open_log(story.disk.other_process(), read_only=True)
    later(log, DAY)
    later(reader, DAY)
    for each in (log, reader):
        answer = each.read("short", 0, 3)
        assert (answer.begin_offset, answer.end_offset, answer.from_begin) == (10, 10, True)
        assert each.begin_offset("long", 0) == 0
    log.run_compaction()
    assert len(log.files()) == 1, "the file of the short topic alone is gone"
    log.append(topic="short", queue_id=0, body=b"on")
    assert bodies(log, "short", 0) == [b"on"]
    assert bodies(log, "long", 0) == [b"0 %d" % i for i in range(5)]
    log.close()
    raised = open_log(story.disk, retention=10 * DAY)
    later(raised, DAY)
    assert raised.begin_offset("short", 0) == 10, "what went with its file does not leave a gap"


def test_expire_drops_what_was_sealed_before_a_time_and_names_it():
    story = Story()
    log = open_log(story.disk)
    fill(log, [("a", 0)])
    later(log, 100)
    middle = components_of(log).seams.clock.now_ms()
    later(log, 100)
    fill(log, [("a", 0)], 1)
    newest = numbers(log)[0]
    [named] = log.expire(before=middle, dry_run=True)
    assert len(log.files()) == 2
    assert log.expire(before=middle) == [named]
    assert numbers(log) == [newest]
    assert (log.begin_offset("a", 0), log.end_offset("a", 0)) == (5, 10)
    assert bodies(log, "a", 0) == [b"1 %d" % i for i in range(5)]


def test_file_that_is_not_in_the_index_yet_stays():
    world = KeyedWorld()
    log = world.open(retention=DAY)
    world.append(log, ("a", 0), b"one", ["k"])
    log.roll()
    seal_rolled(log)
    kind = components_of(log).writing.kind
    kind.is_indexed = lambda handle: False
    later(log, 2 * DAY)
    log.run_compaction()
    assert [info.state for info in log.files()] == ["sealed"]
    del kind.is_indexed
    log.run_compaction()
    assert log.files() == []


def test_expired_message_of_a_key_is_said_to_be_gone():
    world = KeyedWorld()
    log = world.open(retention=DAY)
    world.append(log, ("a", 0), b"old", ["k"])
    log.roll()
    log.run_compaction()
    later(log, DAY)
    world.append(log, ("a", 0), b"young", ["k"])
    for _ in range(2):
        found = log.get("a", key="k")
        assert [message.body for message in found] == [b"young"]
        assert found.complete
        assert found.expired == (("a", 0, 0),)
        log.run_compaction()
    log.close()
    log = world.open(retention=DAY)
    found = log.get("a", key="k")
    assert ([message.body for message in found], found.expired) == ([b"young"], (("a", 0, 0),))


def test_index_goes_on_behind_an_expired_file_and_nothing_of_it_is_cut():
    world = KeyedWorld()
    log = world.open(retention=DAY)
    world.append(log, ("a", 0), b"old", ["k"])
    log.roll()
    log.run_compaction()
    later(log, DAY)
    log.run_compaction()
    assert log.files() == []
    log.close()
    log = world.open(retention=DAY)
    assert len(log.index.query("a", key="k").entries) == 1
    world.append(log, ("a", 0), b"young", ["k"])
    assert [message.body for message in log.get("a", key="k")] == [b"young"]


def test_generation_does_not_fall_when_all_files_are_gone():
    story = Story()
    log = open_log(story.disk, retention=DAY)
    log.append(topic="a", queue_id=0, body=b"x")
    story.disk = story.disk.restart()
    log = open_log(story.disk, retention=DAY)
    fill(log, [("a", 0)])
    generation = log.read("a", 0, 2).generation
    assert generation == 1
    later(log, DAY)
    log.run_compaction()
    log.append(topic="a", queue_id=0, body=b"lost", durability="received")
    assert log.read("a", 0, 6, visible="received").generation == generation
    log = open_log(story.disk.restart(), retention=DAY)
    log.append(topic="a", queue_id=0, body=b"another")
    again = log.read("a", 0, 6)
    assert [message.body for message in again.messages] == [b"another"]
    assert again.generation == generation + 1


def test_clock_that_was_set_back_lets_nothing_go_before_what_is_older():
    story = Story()
    log = open_log(story.disk, topic_retention={"a": DAY})
    later(log, DAY / 2)
    fill(log, [("a", 0), ("b", 0)])
    later(log, -DAY / 2)
    fill(log, [("a", 0)], 1)
    later(log, DAY)
    log.run_compaction()
    assert len(log.files()) == 2
    assert log.begin_offset("a", 0) == 0
    later(log, DAY / 2)
    log.run_compaction()
    assert log.begin_offset("a", 0) == 10
    assert len(log.files()) == 1


def test_damaged_record_of_what_is_gone_refuses_the_opening():
    story = Story()
    log = open_log(story.disk, retention=DAY)
    fill(log, [("a", 0)])
    later(log, DAY)
    log.run_compaction()
    log.close()
    file = story.disk.open(DATA / "log/GONE", writable=True)
    file.write_at(30, b"\xff")
    file.sync()
    with pytest.raises(CorruptFileError, match="bring it back"):
        open_log(story.disk)


def test_expiry_cut_off_at_any_call_is_finished_by_the_next_opening():
    """Whatever a kill or a power cut leaves: offsets go on, what is answered is whole, no file stays."""

    def prepare():
        story = Story()
        log = open_log(story.disk, retention=DAY)
        fill(log, [("a", 0), ("b", 1)])
        fill(log, [("a", 0)], 1)
        later(log, DAY)
        fill(log, [("a", 0)], 2)  # looks for what is due, too: nothing of this file
        return story, log

    story, log = prepare()
    log.append(topic="a", queue_id=0, body=b"tail")
    begun = len(story.disk.trace)
    later(log, 60)
    log.expire(before=components_of(log).seams.clock.now_ms() + 1)
    calls = len(story.disk.trace) - begun
    assert calls > 4
    for nth in range(1, calls + 1):  # the disk after a call is that before the next
        story, log = prepare()
        log.append(topic="a", queue_id=0, body=b"tail")
        later(log, 60)
        story.disk.crash_at(nth, after=True)
        with pytest.raises(SimulatedCrash):
            log.expire(before=components_of(log).seams.clock.now_ms() + 1)
        for survivor in [story.disk.restart(), *story.disk.crash_states(limit=4, seed=nth)]:
            again = open_log(survivor)
            assert (again.begin_offset("a", 0), again.end_offset("a", 0)) in (
                (10, 16),
                (15, 16),
            )
            held = bodies(again, "a", 0)
            assert held in ([*(b"2 %d" % i for i in range(5)), b"tail"], [b"tail"])
            assert (again.begin_offset("b", 1), again.end_offset("b", 1)) == (5, 5)
            assert again.append(topic="a", queue_id=0, body=b"x") == 16
            assert again.append(topic="b", queue_id=1, body=b"x") == 5


def test_record_says_the_rules_so_that_readers_decide_alike():
    story = Story()
    open_log(story.disk, retention=DAY, topic_retention={"a": 5.0}).close()
    reader = open_log(story.disk.other_process(), read_only=True)
    rules = components_of(reader).gone.current.rules
    assert (rules.default_ms, rules.topics_ms) == (86_400_000, {"a": 5000})


def test_files_with_delayed_messages_stay_until_these_are_delivered_and_their_mark_a_while_longer():
    world = KeyedWorld()
    log = world.open(retention=60.0)
    clock = components_of(log).seams.clock
    day = 24 * 3_600_000
    log.append(topic="t", queue_id=0, body=b"in a day", deliver_at=clock.now_ms() + day)
    log.append(topic="t", queue_id=0, body=b"old")
    log.roll()
    log.run_compaction()
    clock.advance(3600)
    assert log.expire(before=clock.now_ms()) == []
    log.run_compaction()
    assert log.read("t", 0, 0).begin_offset == 1, "hidden, though its file stays"
    assert [hour.message_count for hour in log.timers()] == [1]
    world.now_ms = clock.now_ms()
    log.close()
    log = world.open()
    clock = components_of(log).seams.clock
    clock.advance(24 * 3600)
    assert log.deliver_due() == 1
    log.roll()
    log.run_compaction()
    clock.advance(3600)
    for left in (1, 0):  # the mark goes after the messages that it is of
        assert len(log.expire(before=clock.now_ms())) == 1
        assert sum(file.message_count > 0 for file in log.files()) == left
    world.now_ms = clock.now_ms()
    log.close()
    log = world.open()
    assert log.deliver_due() == 0
    log.append(topic="t", queue_id=0, body=b"again", deliver_at=world.now_ms + 5)
    world.advance(log, 5)
    assert log.deliver_due() == 1
    assert [(m.offset, m.body) for m in log.reader("t", 0, 2)] == [(2, b"again")]
    log.close()
