"""What is refused or answered empty, in which words; nothing is half applied."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pyarrow as pa
import pytest

from tests.log_service.append.test_recycling import give_up_oldest
from tests.log_service.log_world import DATA, everything, open_log, seal_rolled
from tests.simulation.simulated_disk import SimulatedFileSystem
from tierdex.errors import (
    ClosedError,
    CorruptFileError,
    FolderInUseError,
    InvalidRequestError,
    NotFoundError,
    OffsetMismatchError,
    ReadOnlyError,
    RequestTooLargeError,
    UnsupportedFormatError,
)
from tierdex.fileparts.footer import read_footer
from tierdex.fileparts.layout import Part
from tierdex.filesystem import make_durable_folder
from tierdex.log_service.message_log import MessageLog
from tierdex.logfile.header import decode_log_header
from tierdex.testing.components import components_of


@pytest.fixture
def disk():
    disk = SimulatedFileSystem()
    make_durable_folder(disk, DATA)
    return disk


@pytest.fixture
def log(disk):
    with open_log(disk) as log:
        yield log


GOOD = {"topic": "a", "queue_id": 0, "body": b"x"}


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"topic": ""}, "topic"),
        ({"topic": "x" * 256}, "topic"),
        ({"topic": "a\nb"}, "topic"),
        ({"topic": 7}, "topic"),
        ({"topic": "\ud800"}, "topic"),
        ({"queue_id": -1}, "queue_id"),
        ({"queue_id": 1 << 31}, "queue_id"),
        ({"queue_id": 1.0}, "queue_id"),
        ({"queue_id": True}, "queue_id"),
        ({"body": 3}, "body"),
        ({"body": b"x" * 8193}, "body"),
        ({"timestamp": 1 << 63}, "timestamp"),
        ({"keys": [""]}, "keys"),
        ({"keys": [7]}, "keys"),
        ({"message_id": "x" * 5000}, "message_id"),
        ({"headers": [("name", 3)]}, "headers"),
        ({"headers": [("h", b"v" * 60_000)]}, "headers"),
        ({"durability": "safe"}, "durability"),
        ({"durability": "remote"}, "durability"),
        ({"expect_offset": -1}, "expect_offset"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_wrong_message_is_refused_by_its_field_and_changes_nothing(log, wrong, field):
    with pytest.raises(InvalidRequestError) as told:
        log.append(**(GOOD | wrong))
    assert told.value.field == field
    assert log.topics() == []
    assert log.append(**GOOD) == 0


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"body": b"one"}, "body"),
        ({"body": [b"x", 3]}, "messages[1].body"),
        ({"body": pa.array([1, 2])}, "body"),
        ({"body": pa.array([b"a", None])}, "body"),
        ({"queue_id": [0]}, "queue_id"),
        ({"queue_id": [0, -1]}, "messages[1].queue_id"),
        ({"queue_id": np.array([0, 1 << 40])}, "messages[1].queue_id"),
        ({"queue_id": np.array([0.0, 1.0])}, "queue_id"),
        ({"topic": ["a", None]}, "messages[1].topic"),
        ({"topic": ["a", ""]}, "messages[1].topic"),
        ({"topic": ["a"]}, "topic"),
        ({"topic": [1, 2]}, "messages[0].topic"),
        ({"timestamp": [1, None]}, "messages[1].timestamp"),
        ({"keys": [["k"]]}, "keys"),
        ({"keys": [["k"], [""]]}, "messages[1].keys"),
        ({"body": [b"ok", b"x" * 8193]}, "messages[1].body"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_wrong_batch_is_refused_by_its_row_and_changes_nothing(log, wrong, field):
    good = {"topic": "a", "queue_id": [0, 1], "body": [b"x", b"y"]}
    with pytest.raises(InvalidRequestError) as told:
        log.append_batch(**(good | wrong))
    assert told.value.field == field
    assert log.topics() == []
    assert log.append_batch(**good).offsets.tolist() == [0, 0]


def test_batch_above_the_limit_is_refused(disk):
    with open_log(disk, max_batch_entries=3) as log:
        with pytest.raises(RequestTooLargeError):
            log.append_batch(topic="a", queue_id=0, body=[b""] * 4)
        assert log.append_batch(topic="a", queue_id=0, body=[b""] * 3).offsets.tolist() == [0, 1, 2]
        assert log.append_batch(topic="a", queue_id=0, body=[]).offsets.tolist() == []


def test_wrong_expectation_names_the_right_offset_and_what_is_durable(log):
    for _ in range(3):
        log.append(**GOOD, durability="received")
    for wrong in (0, 2, 4, 99):
        with pytest.raises(OffsetMismatchError) as told:
            log.append(**GOOD, expect_offset=wrong)
        assert told.value.next_offset == 3
        assert told.value.end_offsets == {"received": 3, "os": 3, "disk": 3}
    assert log.append(**GOOD, expect_offset=3) == 3
    assert log.append(topic="new", queue_id=9, body=b"", expect_offset=0) == 0


def test_unknown_topics_and_queues_answer_empty(log):
    log.append(**GOOD)
    for topic, queue_id in (("other", 0), ("a", 1)):
        answer = log.read(topic, queue_id, 0)
        assert (len(answer), answer.begin_offset, answer.end_offset, answer.complete) == (
            0,
            0,
            0,
            True,
        )
        assert log.end_offset(topic, queue_id) == log.begin_offset(topic, queue_id) == 0
        assert list(log.reader(topic, queue_id)) == []
        assert log.offset_at(topic, queue_id, 5) == 0
    assert log.queues("other") == []


def test_reading_above_the_end_is_empty_and_below_zero_refused(log):
    log.append(**GOOD)
    for offset in (1, 2, (1 << 63) - 1):
        answer = log.read("a", 0, offset)
        assert (len(answer), answer.next_offset, answer.end_offset) == (0, offset, 1)
    for wrong in (
        {"offset": -1},
        {"max_count": 0},
        {"max_bytes": 0},
        {"wait": -1.0},
        {"wait": float("nan")},
        {"wait": "1"},
        {"visible": "x"},
    ):
        with pytest.raises(InvalidRequestError, match=next(iter(wrong))):
            log.read(**({"topic": "a", "queue_id": 0, "offset": 0} | wrong))


def test_what_is_no_argument_of_many_reads_a_reader_or_an_operators_verb_is_refused(log):
    log.append(**GOOD)
    for places in (None, 5, [5], [("a",)], [("a", 0)], [("a", 0, 0), ("a", 0, 0, 0)], "abc"):
        with pytest.raises(InvalidRequestError, match="places"):
            list(log.read_many(places))
    with pytest.raises(InvalidRequestError, match="generation"):
        log.reader("a", 0, 1, generation="x")
    for timeout in ("1", float("nan"), -1.0, True):
        with pytest.raises(InvalidRequestError, match="timeout"):
            log.hand_over(timeout=timeout)
    with pytest.raises(InvalidRequestError, match="forgetting"):
        log.resume_forgetting(5)


def test_offset_below_the_begin_is_answered_from_the_begin_and_says_so(disk):
    with open_log(disk) as log:
        for i in range(6):
            log.append(topic="a", queue_id=0, body=b"%d" % i)
            if i == 2:
                log.roll()
        seal_rolled(log)
        give_up_oldest(log)  # as retention does
        answer = log.read("a", 0, 1)
        assert (answer.first_offset, answer.begin_offset, answer.from_begin) == (3, 3, True)
        assert [m.body for m in answer.messages] == [b"3", b"4", b"5"]
        assert not log.read("a", 0, 3).from_begin
        assert log.begin_offset("a", 0) == 3


def test_limits_count_and_bytes_but_one_message_always_comes(log):
    log.append_batch(topic="a", queue_id=0, body=[b"x" * 100] * 10)
    assert len(log.read("a", 0, 0, max_count=4)) == 4
    assert len(log.read("a", 0, 0, max_bytes=250)) == 2
    assert len(log.read("a", 0, 0, max_bytes=1)) == 1


@pytest.mark.parametrize("state", ["unsealed", "sealed", "compacted"])
def test_file_of_a_newer_format_refuses_the_opening_before_anything_moves(disk, state):
    with open_log(disk) as log:
        log.append(**GOOD)
        if state != "unsealed":
            log.roll()
            seal_rolled(log)
        if state == "compacted":
            log.run_compaction()
        path = components_of(log).table.version.files.local()[0].path
        assert path.parent.name == state
    file = disk.open(path, writable=True)
    header = bytearray(file.read_at(0, 4096))
    decode_log_header(bytes(header), path)
    header[8:10] = (9).to_bytes(2, "little")
    file.write_at(0, bytes(header))
    before = disk.list_folder(path.parent)
    with pytest.raises(UnsupportedFormatError):
        open_log(disk)
    assert disk.list_folder(path.parent) == before


def test_journal_whose_header_is_damaged_is_kept_aside_and_named(disk):
    with open_log(disk) as log:
        log.append(**GOOD)
        path = components_of(log).table.version.files.local()[0].path
    file = disk.open(path, writable=True)
    file.write_at(20, b"damage")
    with open_log(disk) as log:
        answer = log.read("a", 0, 0)
        assert not answer.complete
        assert "quarantine" in answer.missing[0].file
        log.append(**GOOD)
        assert log.read("a", 0, 0).generation == 1, "offset 0 is given a second time"


def opened_twice_naming(disk, path, offset=0):
    """Yield the log at two openings: both name the damaged file, which lies in quarantine."""
    for _ in range(2):
        with open_log(disk) as log:
            answer = log.read("a", 0, offset)
            assert not answer.complete
            assert path.name in answer.missing[0].file
            assert path.name in str(disk.list_folder(DATA / "log/quarantine"))
            yield log


@pytest.mark.parametrize("batch", [0, 2])
def test_journal_of_a_closed_log_that_lost_durable_batches_is_named_and_kept_aside(disk, batch):
    with open_log(disk) as log:
        for i in range(4):
            log.append(topic="a", queue_id=0, body=b"%d" % i * 40)
        path = components_of(log).table.version.files.local()[0].path
        place = 4096 + batch * (components_of(log).writing.active.journal.bytes_used - 4096) // 4
    file = disk.open(path, writable=True)
    file.write_at(place + 80, bytes([file.read_at(place + 80, 1)[0] ^ 1]))
    with open_log(disk, read_only=True) as reader:
        answer = reader.read("a", 0, batch)
        assert not answer.complete
        assert "durable" in answer.missing[0].reason
    for _log in opened_twice_naming(disk, path):
        pass


SHARED_PARTS = (Part.TOPICS, Part.EXTRA, Part.QUEUES)


@pytest.mark.parametrize("damaged", [1, 2])
@pytest.mark.parametrize(
    ("state", "part"),
    [
        *(("sealed", part) for part in (*SHARED_PARTS, Part.CHECKPOINTS)),
        *(("compacted", part) for part in (*SHARED_PARTS, Part.DIRECTORY)),
    ],
)
def test_file_of_which_a_part_does_not_open_is_named_and_kept_aside(disk, state, part, damaged):
    with open_log(disk, merge_min_files=9) as log:
        for i in range(12):
            log.append(topic="a", queue_id=0, body=b"%d" % i * 40)
            if i % 4 == 3:
                log.roll()
        seal_rolled(log) if state == "sealed" else log.run_compaction()
    folder = DATA / "log" / state
    path = folder / sorted(disk.list_folder(folder))[damaged]
    with closing(disk.open(path)) as file:
        place = read_footer(file.read_at, file.size(), path).parts[part]
    flip(disk, path, place.position + place.length // 2)
    for log in opened_twice_naming(disk, path, offset=4 * damaged):
        other = 12 - 4 * damaged
        assert [m.offset for m in log.read("a", 0, other).messages[:1]] == [other]
        offset = log.append(topic="a", queue_id=0, body=b"more")
        assert log.read("a", 0, offset).generation == 1, "an offset may be given again"


def killed(disk, *, count=40, roll_at=(), durability="disk"):
    """Return the disk after a kill, batches of messages "0", "1" ... of one queue; ends of the batches."""
    log = open_log(disk)
    places = []
    for i in range(count):
        if i in roll_at:
            log.roll()
        body = b"%d" % i + bytes(400)
        assert log.append(topic="a", queue_id=0, body=body, durability=durability) == i
        places.append(components_of(log).writing.active.journal.bytes_used)
    return disk.restart(), places


def paths_of(disk):
    folder = DATA / "log/unsealed"
    return [folder / n for n in sorted(disk.list_folder(folder)) if n != "next.ready"]


def flip(disk, path, place):
    file = disk.open(path, writable=True)
    file.write_at(place, bytes([file.read_at(place, 1)[0] ^ 1]))
    file.sync()
    file.close()


# A row; and of the record: magic, checksum, number, length, uuid.
@pytest.mark.parametrize("place", [200, 0, 4, 8, 24, 45])
def test_damage_of_durable_batches_is_no_torn_end_after_a_kill(disk, place):
    disk, ends = killed(disk)
    (path,) = paths_of(disk)
    flip(disk, path, ends[9] + place)
    with open_log(disk, read_only=True) as reader:
        answer = reader.read("a", 0, 0, max_count=100)
        assert not answer.complete
        assert "was durable" in answer.missing[0].reason
    for log in opened_twice_naming(disk, path):
        offset = log.append(topic="a", queue_id=0, body=b"more")
        assert log.read("a", 0, offset).generation == 1, "offset 0 is given a second time"


def test_torn_end_after_a_kill_is_no_damage(disk):
    """A power cut may keep any of what was not synced: later batches, and not the one before them."""
    disk, ends = killed(disk, durability="os")
    (path,) = paths_of(disk)
    flip(disk, path, ends[9] + 200)
    with open_log(disk) as log:
        assert log.end_offset("a", 0) == 10
        assert log.read("a", 0, 0, max_count=100).complete
    assert not disk.list_folder(DATA / "log/quarantine")


@pytest.mark.parametrize("damaged", [0, 1])
def test_damage_of_one_of_two_unsealed_journals_leaves_the_other(disk, damaged):
    disk, ends = killed(disk, roll_at=[20])
    paths = paths_of(disk)
    assert len(paths) == 2
    flip(disk, paths[damaged], ends[20 * damaged + 5] + 200)
    with open_log(disk) as log:
        begin = 20 * (1 - damaged)
        kept = log.read("a", 0, begin, max_count=100).messages
        assert [m.body[:2].strip(b"\0") for m in kept] == [
            b"%d" % i for i in range(begin, begin + 20)
        ]
        answer = log.read("a", 0, 20 * damaged)
        assert not answer.complete
        assert paths[damaged].name in answer.missing[0].file
        assert log.append(topic="a", queue_id=0, body=b"more") == (20 if damaged else 40)


@pytest.mark.parametrize("roll_at", [[], [20]])
def test_journal_that_was_cut_by_hand_is_kept_aside_and_named(disk, roll_at):
    disk, _ = killed(disk, roll_at=roll_at)
    path = paths_of(disk)[0]
    file = disk.open(path, writable=True)
    file.truncate(5000)
    file.sync()
    file.close()
    for _ in range(2):
        with open_log(disk) as log:
            answer = log.read("a", 0, 0)
            assert not answer.complete
            assert path.name in answer.missing[0].file
            assert len(log.read("a", 0, 20, max_count=100)) == (20 if roll_at else 0)


def test_folder_has_one_writer_and_any_number_of_readers(disk):
    with open_log(disk) as log:
        log.append(**GOOD)
        with pytest.raises(FolderInUseError):
            open_log(disk.other_process())
        with open_log(disk.other_process(), read_only=True) as reader:
            assert everything(reader, [("a", 0)], "disk") == {("a", 0): [b"x"]}
            log.append(**GOOD)
            log.roll()
            log.run_compaction()
            log.append(**GOOD)
            reader.refresh()
            assert everything(reader, [("a", 0)], "disk") == {("a", 0): [b"x"] * 3}
            for refused in (lambda: reader.append(**GOOD), reader.roll, reader.flush):
                with pytest.raises(ReadOnlyError):
                    refused()


def test_reading_a_folder_without_a_log_says_so(disk):
    with pytest.raises(NotFoundError, match="holds no message log"):
        open_log(disk, read_only=True)


@pytest.mark.parametrize("state", ["unsealed", "sealed"])
@pytest.mark.parametrize("step", [-1, 1])
def test_journal_of_another_log_refuses_the_opening_and_nothing_is_moved(disk, state, step):
    other = SimulatedFileSystem()
    make_durable_folder(other, DATA)
    for place, count in ((disk, 5), (other, 3)):
        with open_log(place) as log:
            for _ in range(count):
                log.append(**GOOD)
    (name,) = [each for each in disk.list_folder(DATA / "log/unsealed") if each.isdigit()]
    (theirs,) = [each for each in other.list_folder(DATA / "log/unsealed") if each.isdigit()]
    if state == "sealed":
        with open_log(other) as log:
            log.roll()
            seal_rolled(log)
    source = other.open(DATA / "log" / state / theirs)
    stranger = DATA / "log" / state / str(int(name) + step).zfill(len(name))
    disk.open(stranger, writable=True, create=True).write_at(0, source.read_at(0, source.size()))
    with pytest.raises(CorruptFileError, match="another log"):
        open_log(disk)
    assert name in disk.list_folder(DATA / "log/unsealed")
    disk.unlink(stranger)
    with open_log(disk) as log:
        assert len(log.read("a", 0, 0)) == 5
        assert log.append(**GOOD) == 5


def test_folder_of_another_node_is_refused(disk):
    open_log(disk).close()
    with pytest.raises(InvalidRequestError, match="belongs to node n"):
        MessageLog.open(
            DATA, filesystem=disk, node="m", journal_bytes=288 << 10, max_message_bytes=8192
        )


def test_closed_log_refuses_every_call(disk):
    log = open_log(disk)
    log.close()
    log.close()
    for call in (
        lambda: log.append(**GOOD), lambda: log.read("a", 0, 0), log.flush, log.roll, log.topics, log.files,
        lambda: log.append_batch(topic="a", queue_id=0, body=[b""]), lambda: log.end_offset("a", 0),
    ):  # fmt: skip
        with pytest.raises(ClosedError):
            call()


def test_setting_that_is_too_small_for_a_stage_is_refused(disk):
    with pytest.raises(InvalidRequestError, match="journal_bytes"):
        open_log(disk, journal_bytes=64 << 10)
