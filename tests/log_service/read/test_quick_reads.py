"""Reads in one kernel call say what the general path says, wherever the messages lie."""

from __future__ import annotations

import random
from contextlib import closing

import pytest

from tests.log_service.log_world import DATA, open_log, seal_rolled
from tests.simulation.simulated_disk import SimulatedFileSystem
from tierdex.errors import InvalidRequestError
from tierdex.fileparts.layout import HEADER_BYTES
from tierdex.filesystem import make_durable_folder
from tierdex.log_service.levels import LEVELS
from tierdex.log_service.read.reads import place_of
from tierdex.log_service.read_policy import ReadLimits
from tierdex.testing.components import components_of

QUEUES = [("a", 0), ("a", 1), ("b", 5), ("only now", 0)]
DAY = 86_400.0
LIMITS = [(1, 1), (3, 200), (10, 1 << 20), (256, 1 << 20), (300, 1 << 20)]


def make_log(**settings):
    disk = SimulatedFileSystem()
    make_durable_folder(disk, DATA)
    return open_log(disk, **settings)


def fill(log, queues, seed: int, durability: str) -> None:
    rng = random.Random(seed)
    for i in range(60):
        topic, queue_id = rng.choice(queues)
        log.append(
            topic=topic, queue_id=queue_id, body=rng.randbytes(rng.randrange(120)), durability=durability,
            keys=[f"k{i}"] if i % 5 == 0 else None, headers=[("h", b"v")] if i % 7 == 0 else None,
            timestamp=rng.randrange(1 << 34, 1 << 45),
        )  # fmt: skip


def grown() -> object:
    log = make_log()
    fill(log, QUEUES, 1, "disk")
    fill(log, QUEUES, 2, "os")
    fill(log, QUEUES, 3, "received")
    return log


def behind_a_sealed_one() -> object:
    log = make_log()
    fill(log, QUEUES[:3], 1, "disk")
    log.roll()
    log.run_compaction()
    fill(log, QUEUES, 2, "disk")
    fill(log, QUEUES, 3, "received")
    return log


def behind_an_unsealed_one() -> object:
    log = make_log()
    fill(log, QUEUES[:3], 1, "disk")
    log.roll()
    fill(log, QUEUES, 2, "disk")
    return log


def behind_one_that_is_gone() -> object:
    log = behind_a_sealed_one()
    handle = components_of(log).table.version.files.local()[0]
    components_of(log).table.remove(handle)
    components_of(log).writing.next_journal.reuse(handle.path)
    return log


def in_a_sealed_one() -> object:
    log = make_log()
    fill(log, QUEUES, 1, "disk")
    log.roll()
    seal_rolled(log)
    return log


def over_files_of_every_form() -> object:
    """Two grouped files, whose queues spread over pages, a sealed journal, two growing ones."""
    log = make_log()
    for seed in (1, 2):
        fill(log, QUEUES[seed - 1 : seed + 2], seed, "disk")
        for i in range(12):
            body = bytes([i]) * (1 if i % 4 == 0 else 8000)
            log.append(topic="b", queue_id=5, body=body, timestamp=i)
        log.roll()
        log.run_compaction()
    fill(log, QUEUES[:2], 3, "disk")
    log.roll()
    seal_rolled(log)
    fill(log, QUEUES[1:], 4, "disk")
    log.roll()
    fill(log, QUEUES, 5, "disk")
    fill(log, QUEUES, 6, "os")
    return log


def with_what_is_gone_and_hidden() -> object:
    """Topic "a" expires: a file of it alone is gone, in the next one it is hidden."""
    log = make_log(retention=10 * DAY, topic_retention={"a": DAY})
    for queues in (QUEUES[:1], QUEUES[:3]):
        fill(log, queues, len(queues), "disk")
        log.roll()
        log.run_compaction()
    components_of(log).seams.clock.advance(DAY)
    log.run_compaction()
    assert len(log.files()) == 1
    fill(log, QUEUES[1:], 4, "disk")
    return log


def with_damage() -> object:
    """The same, and each immutable file has a block that does not verify."""
    log = over_files_of_every_form()
    for handle in components_of(log).table.version.files.local()[:3]:
        with closing(components_of(log).seams.filesystem.open(handle.path, writable=True)) as file:
            at = HEADER_BYTES + 200
            file.write_at(at, bytes([file.read_at(at, 1)[0] ^ 1]))
    return log


STATES = [
    grown, behind_a_sealed_one, behind_an_unsealed_one, behind_one_that_is_gone, in_a_sealed_one,
    over_files_of_every_form, with_what_is_gone_and_hidden, with_damage,
]  # fmt: skip


def plain(answer) -> tuple:
    return (
        answer.topic, answer.queue_id, answer.first_offset, answer.begin_offset, answer.end_offset,
        answer.next_offset, answer.from_begin, answer.missing, answer.generation, answer.messages,
        answer.table().to_pydict(),
    )  # fmt: skip


@pytest.mark.parametrize("make", STATES, ids=lambda make: make.__name__)
@pytest.mark.parametrize("visible", [level for level in LEVELS if level != "remote"])
def test_quick_reads_say_what_the_general_path_says(make, visible):
    log = make()
    reads = components_of(log).reads
    for count, size in LIMITS:
        limits = ReadLimits(count, size, LEVELS[visible])
        places = [
            (topic, queue_id, offset)
            for topic, queue_id in [*QUEUES, ("nobody's", 0), ("a", 77)]
            for offset in (0, 1, 5, 17, 30, 44, 999)
        ]
        wanted = [plain(reads.read(place_of(*place), limits)) for place in places]
        given = {"max_count": count, "max_bytes": size, "visible": visible}
        assert [plain(log.read(*place, **given)) for place in places] == wanted
        many = log.read_many(places, **given)
        assert [plain(answer) for answer in many] == wanted
        assert any(answer.missing for answer in many) == (make is with_damage)
        assert plain(many[-3]) == wanted[-3]
        assert [plain(answer) for answer in many[2:5]] == wanted[2:5]
    with pytest.raises(IndexError):
        many[len(places)]
    log.close()


def test_tail_reads_and_reads_of_many_queues_ask_no_file_by_itself(monkeypatch):
    log = behind_a_sealed_one()
    ends = {queue: log.end_offset(*queue) for queue in QUEUES}
    for queue, end in ends.items():
        log.read(*queue, end - 1)  # where it begins is known from here on
    monkeypatch.setattr(components_of(log).reads, "read", None)
    for queue, end in ends.items():
        assert len(log.read(*queue, end - 2)) == 2
    log.close()


def test_reads_of_many_queues_ask_no_queue_by_itself(monkeypatch):
    log = over_files_of_every_form()
    wanted = [plain(log.read(*queue, 0, max_count=1000)) for queue in QUEUES]
    monkeypatch.setattr(components_of(log).reads, "_answer", None)
    answers = log.read_many([(*queue, 0) for queue in QUEUES], max_count=1000)
    assert [plain(answer) for answer in answers] == wanted
    assert [plain(one) for one in log.read_many([(*QUEUES[3], 0)] * 50)[48:]] == wanted[3:] * 2
    log.close()


@pytest.mark.parametrize(
    "place",
    [("a", 0, -1), ("a", -1, 0), ("a", 1 << 31, 0), ("a", 0, 1 << 63), ("", 0, 0), ("a", True, 0),
     ("a", 0, 1.0), (b"a", 0, 0)],
    ids=str,
)  # fmt: skip
def test_places_that_are_none_are_named(place):
    log = grown()
    with pytest.raises(InvalidRequestError):
        log.read(*place)
    with pytest.raises(InvalidRequestError):
        log.read_many([("a", 0, 0), place])


def test_batches_outlive_the_journal_that_they_came_from():
    log = grown()
    one, many = log.read("a", 0, 0), log.read_many([("a", 0, 0)])
    wanted = [message.body for message in one.messages]
    log.close()
    assert [message.body for message in one.messages] == wanted
    assert [message.body for message in many[0].messages] == wanted
