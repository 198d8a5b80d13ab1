"""An archive of a followed log moves between folders: nothing is lost that the log has, nothing doubled."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys

import pytest

import tierdex
from tests.following.memory_log import MemoryLog
from tests.following.test_keeping import SMALL, bodies
from tests.following.worlds import WORLDS, make_records
from tests.patience import PATIENCE_S
from tierdex.clock import Bell, ManualClock, SystemClock
from tierdex.errors import FencedError, IncompleteAnswerError, InvalidRequestError, OwnershipError
from tierdex.following.follow import follow
from tierdex.seams import Seams
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.faulty_store import FaultyStore

clock = SystemClock()


class Archived:
    """A followed log of one kind, its archive's folders and store, and what the log was given."""

    def __init__(self, world, folder):
        self.world, self.folder = world, folder
        self.store = FaultyStore(MemoryStore())
        self.sent = {partition: [] for partition in world.partitions}

    def open(self, name, **claim):
        return tierdex.MessageLog.open(self.folder / name, store=self.store, **SMALL | claim)

    def grow(self, count=40):
        for partition, held in self.sent.items():
            records = make_records(count, len(held))
            self.world.append(partition, records)
            held += [record.value for record in records]

    def follow(self, log):
        return follow(
            log, self.world.source(), keys=["$.id"], time="$.at", topic="orders", once=True,
            seams=Seams.of(ManualClock()),
        ).run()  # fmt: skip

    def publish(self, log):
        log.roll()
        log.run_compaction()

    def check(self, log):
        for partition, held in self.sent.items():
            assert bodies(log, partition) == held


@pytest.fixture(params=["folder", "redis"])
def archived(request, tmp_path):
    kind = WORLDS[request.param]
    server = request.getfixturevalue(kind.server)
    return Archived(kind(server, f"moved-{request.node.name[:30]}"), tmp_path)


def test_archive_that_was_handed_over_goes_on_in_another_folder_and_back(archived):
    for turn, (name, claim) in enumerate([("a", False), ("b", True), ("a", True), ("c", True)]):
        with archived.open(name, takeover=claim) as log:
            archived.grow()
            assert archived.follow(log).messages == 40 * len(archived.sent)
            if turn % 2:
                archived.publish(log)
                archived.grow(3)
                archived.follow(log)
            archived.check(log)
            log.hand_over()


def test_what_a_lost_disk_alone_had_is_read_from_the_log_again(archived):
    lost = archived.open("a")
    archived.grow()
    archived.follow(lost)
    archived.publish(lost)
    archived.grow()
    archived.follow(lost)  # its owner lives, and its folder is found later
    with archived.open("b", takeover="lossy") as log:
        ends = {partition: len(bodies(log, partition)) for partition in archived.sent}
        assert set(ends.values()) == {40}
        archived.grow(5)
        assert archived.follow(log).messages == 45 * len(ends)
        archived.check(log)
        archived.grow(2)
        archived.follow(lost)
        lost.roll()
        with pytest.raises(FencedError):
            lost.run_compaction()
        archived.grow(1)
        with pytest.raises(FencedError):
            archived.follow(lost)
        archived.follow(log)
        archived.publish(log)
        archived.check(log)
    lost.close()
    with pytest.raises(OwnershipError):
        archived.open("a", takeover=True)
    with archived.open("a", adopt=True, node="rescued") as rescued:
        for partition, held in archived.sent.items():
            found = [bytes(m.body) for m in rescued.reader("orders", partition, 40, visible="os")]
            assert found == held[40 : 40 + len(found)], "what b read again, under another node"
            assert len(found) >= 40
    with archived.open("b") as log:
        assert archived.follow(log).messages == 0
        archived.check(log)


def test_follower_of_a_new_owner_waits_for_the_store_that_has_its_position(archived):
    with archived.open("a") as log:
        archived.grow()
        archived.follow(log)
        log.hand_over()
    with archived.open("b", takeover=True) as log:
        with archived.store.outage(), pytest.raises(IncompleteAnswerError):
            archived.follow(log)
        archived.grow(1)
        archived.follow(log)
        archived.check(log)


# -- positions that are gone by their age ------------------------------------------------------------------


@pytest.fixture
def source():
    source = MemoryLog()
    for number in range(9):
        source.append(0, b"%d" % number, b"k")
    return source


def run_once(log, source):
    return follow(
        log, source.source(), keys=["key"], once=True, seams=Seams.of(ManualClock())
    ).run()


def let_all_expire(log):
    log.roll()
    log.run_compaction()
    log.expire(before="2100-01-01")
    assert log.begin_offset("orders", 0) == log.end_offset("orders", 0) > 0


def open_in(folder, **claim):
    return tierdex.MessageLog.open(folder, **SMALL | claim)


def test_idle_follower_writes_a_position_anew_that_is_gone_by_its_age(tmp_path, source):
    with open_in(tmp_path / "a") as log:
        run_once(log, source)
        let_all_expire(log)
        assert run_once(log, source).messages == 0
        (tmp_path / "a" / "following.json").unlink()
        source.append(0, b"9", b"k")
        assert run_once(log, source).messages == 1
        assert [bytes(m.body) for m in log.reader("orders", 0, 9, visible="os")] == [b"9"]


def test_follower_goes_on_at_the_saved_positions_where_those_of_the_archive_are_gone(
    tmp_path, source
):
    with open_in(tmp_path / "a") as log:
        run_once(log, source)
    with open_in(tmp_path / "a") as log:
        let_all_expire(log)
    source.append(0, b"9", b"k")
    with open_in(tmp_path / "a") as log:
        assert run_once(log, source).messages == 1


def test_archive_whose_positions_nobody_knows_is_not_filled_anew(tmp_path, source):
    with open_in(tmp_path / "a") as log:
        run_once(log, source)
        let_all_expire(log)
    (tmp_path / "a" / "following.json").unlink()
    with open_in(tmp_path / "a") as log, pytest.raises(InvalidRequestError, match="another topic"):
        run_once(log, source)


# -- real processes ----------------------------------------------------------------------------------------


@pytest.mark.heavy
def test_machine_that_is_killed_and_lost_leaves_an_archive_that_another_fills_up(tmp_path):
    logs, store = tmp_path / "orders", tmp_path / "store"
    logs.mkdir()
    written = 0

    def command(*words, data):
        settings = ["slot_count=4096", "journal_bytes=33554432", "node=here", "roll_after=0.5"]
        told = [word for each in settings for word in ("--set", each)]
        place = ["--data", str(data), "--store", str(store)]
        return [sys.executable, "-m", "tierdex.app.cli", *words, *place, *told]

    def follow_command(data, *more):
        words = ["follow", f"folder:{logs}", "-k", "$.id", "--keep", "--time", "$.at", *more]
        return command(*words, data=data)

    def run(words):
        subprocess.run(words, check=True, capture_output=True, timeout=PATIENCE_S)

    def grow(count):
        nonlocal written
        with (logs / "a.jsonl").open("a") as file:
            file.writelines(f'{{"id":"k{n}","at":{n}}}\n' for n in range(written, written + count))
        written += count

    for turn in range(3):
        data = tmp_path / f"data-{turn}"
        if turn:
            take_over = command("log", "take-over", "--lossy", data=data)
            run([*take_over, "--node", "here"])
        follower = subprocess.Popen(follow_command(data), stderr=subprocess.DEVNULL)
        before = published(store)
        give_up = clock.monotonic() + PATIENCE_S
        while published(store) == before:  # and something is not published yet
            grow(50)
            clock.wait(Bell(), 0.02)
            assert follower.poll() is None
            assert clock.monotonic() < give_up
        grow(500)
        follower.send_signal(signal.SIGKILL)
        follower.wait()
        if turn == 0:
            shutil.rmtree(data)  # the disk of the second is kept, and no reader asks it
    last = tmp_path / "data-3"
    run([*command("log", "take-over", "--lossy", data=last), "--node", "here"])
    run(follow_command(last, "--once"))
    with tierdex.MessageLog.open(last, store=f"{store}", read_only=True) as log:
        (queue,) = log.queues("orders")
        assert bodies(log, queue) == [
            line.encode() for line in (logs / "a.jsonl").read_text().splitlines()
        ]


def published(store):
    return {path.name for path in store.glob("**/files/*")}
