"""Files that are renamed, copied, cut, replaced and moved away: each line is found once all the same."""

from __future__ import annotations

import json
import shutil
import threading

import pytest

import tierdex
from tests.following.test_follower import SMALL, offsets, opened
from tests.hasty_clock import HastyClock
from tests.patience import PATIENCE_S
from tierdex.clock import Bell, SystemClock
from tierdex.following.follow import follow
from tierdex.following.positions import FILE_NAME
from tierdex.resolving.message_fetcher import MessageFetcher
from tierdex.seams import Seams

clock = SystemClock()


@pytest.fixture
def logs(tmp_path):
    (tmp_path / "orders").mkdir()
    return tmp_path / "orders"


def lines(*names, more=""):
    return "".join(f'{{"id":"{name}"{more}}}\n' for name in names)


class Indexed:
    """The lines as an index has them."""

    def __init__(self, folder):
        self.folder = folder

    def run(self, logs, options=None):
        with opened(self.folder) as index:
            return self._follow(index, logs, options).run()

    def _follow(self, into, logs, options=None, **wanted):
        wanted = {"once": True, **wanted}
        return follow(
            into, f"folder:{logs}", keys=["$.id"], time="$.at", topic="orders", options=options, **wanted
        )  # fmt: skip

    def count(self, name):
        with opened(self.folder) as index:
            return len(offsets(index, name))


class Kept(Indexed):
    """The lines as a message log keeps them."""

    def _opened(self):
        more = {"journal_bytes": 32 << 20, "max_message_bytes": 1 << 20}
        return tierdex.MessageLog.open(self.folder, **{**SMALL, **more})

    def run(self, logs, options=None):
        with self._opened() as log:
            return self._follow(log, logs, options).run()

    def count(self, name):
        with self._opened() as log:
            return len(log.get("orders", key=name, max_count=100).messages)


@pytest.fixture(params=[Indexed, Kept])
def target(request, tmp_path):
    return request.param(tmp_path / "data")


def check(target, *names):
    counts = {name: target.count(name) for name in names}
    assert counts == dict.fromkeys(names, 1)


@pytest.mark.parametrize("files", ["*.jsonl", "*.jsonl*"])
def test_renamed_file_is_read_on_and_the_new_one_from_its_begin(target, logs, files):
    options = {"files": files}
    log = logs / "a.jsonl"
    log.write_text(lines("A-1", "A-2"))
    target.run(logs, options)
    with log.open("a") as file:
        file.write(lines("A-3"))
    log.rename(logs / "a.jsonl.1")
    log.write_text(lines("B-1", "B-2", "B-3", "B-4"))
    status = target.run(logs, options)
    assert (status.restarts, status.messages, status.lost) == (1, 5, 0)
    check(target, "A-1", "A-2", "A-3", "B-1", "B-2", "B-3", "B-4")
    (logs / "a.jsonl.1").rename(logs / "a.jsonl.2")
    log.rename(logs / "a.jsonl.1")
    log.write_text(lines("C-1"))
    status = target.run(logs, options)
    assert (status.restarts, status.messages) == (1, 1)
    assert target.run(logs, options).messages == 0
    check(target, "A-1", "B-1", "C-1")


@pytest.mark.parametrize("files", ["*.jsonl", "*.jsonl*"])
def test_copied_and_cut_file_is_read_on_in_its_copy(target, logs, files):
    options = {"files": files}
    log = logs / "a.jsonl"
    log.write_text(lines("A-1", "A-2"))
    target.run(logs, options)
    with log.open("a") as file:
        file.write(lines("A-3"))
    shutil.copy(log, logs / "a.jsonl.1")
    with log.open("w") as file:  # the same inode
        file.write(lines("B-1", "B-2", "B-3", "B-4"))
    status = target.run(logs, options)
    assert (status.restarts, status.messages) == (1, 5)
    check(target, "A-1", "A-2", "A-3", "B-1", "B-2", "B-3", "B-4")


@pytest.mark.parametrize(
    "new",
    [
        lines("LONGER-1", "LONGER-2", "LONGER-3"),
        lines("B-1", "B-2"),
        lines("B-1"),
        lines("A-1", "B-2", "B-3"),
        lines("A-1", "B-2"),
    ],
    ids=["inside a line", "as long", "shorter", "the same first line", "as long, the same first line"],
)  # fmt: skip
def test_file_written_anew_in_its_place_is_read_from_its_begin(target, logs, new):
    (logs / "a.jsonl").write_text(lines("A-1", "A-2"))
    target.run(logs)
    (logs / "a.jsonl").write_text(new)
    status = target.run(logs)
    assert status.restarts == 1
    for line in new.splitlines():
        name = json.loads(line)["id"]
        assert target.count(name) == (2 if name == "A-1" else 1)  # which is in the log twice
    assert target.run(logs).messages == 0


def test_file_rewritten_with_the_same_begin_is_no_other(target, logs):
    """As an editor or a synchronisation does it: another inode, the old lines and more."""
    (logs / "a.jsonl").write_text(lines("A-1", "A-2"))
    target.run(logs)
    (logs / "new").write_text(lines("A-1", "A-2", "A-3"))
    (logs / "new").replace(logs / "a.jsonl")
    status = target.run(logs)
    assert (status.restarts, status.messages) == (0, 1)
    check(target, "A-1", "A-2", "A-3")


def test_header_that_every_file_begins_with_tells_no_file(target, logs):
    header = lines("H")
    for day in "abc":
        (logs / "a.jsonl").unlink(missing_ok=True)
        (logs / "a.jsonl").write_text(header + lines(f"{day}-1", f"{day}-2"))
        target.run(logs)
    check(target, *(f"{day}-{n}" for day in "abc" for n in (1, 2)))


def test_files_in_many_marks_are_known_by_both_their_ends(target, logs):
    """More than a mark reads: the bytes before the position tell, or those at the begin."""
    long = [f"{n:05}" for n in range(2000)]
    (logs / "a.jsonl").write_text(lines(*long))
    (logs / "b.jsonl").write_text(lines(*(f"x{n}" for n in long)))
    target.run(logs)
    with (logs / "a.jsonl").open("a") as file:
        file.write(lines("later"))
    text = (logs / "b.jsonl").read_text()
    (logs / "b.jsonl").write_text(text[:-32] + lines("other-end", "and-more"))
    status = target.run(logs)
    assert status.restarts == 1
    check(target, "later", "00000", "01999", "other-end", "and-more")


def test_positions_without_their_memory_lose_no_line(tmp_path, logs):
    """Who lost `following.json`, or has the index alone, reads a file from its begin."""
    target = Indexed(tmp_path / "data")
    (logs / "a.jsonl").write_text(lines("H", "A-1", "A-2"))
    target.run(logs)
    (tmp_path / "data" / FILE_NAME).unlink()
    (logs / "a.jsonl").unlink()
    (logs / "a.jsonl").write_text(lines("H", "B-1", "B-2", "B-3"))
    target.run(logs)
    check(target, "A-1", "B-1", "B-2", "B-3")


def test_kept_lines_are_kept_once_by_who_lost_the_memory(tmp_path, logs):
    target = Kept(tmp_path / "data")
    (logs / "a.jsonl").write_text(lines("A-1", "A-2"))
    target.run(logs)
    (logs / "a.jsonl").write_text(lines("B-1", "B-2", "B-3"))
    target.run(logs)
    (tmp_path / "data" / FILE_NAME).unlink()
    assert target.run(logs).messages == 0
    check(target, "A-1", "A-2", "B-1", "B-2", "B-3")


class Running:
    """A follower in a thread of its own."""

    def __init__(self, target, logs, options=None):
        self._index = opened(target.folder) if type(target) is Indexed else target._opened()
        self._follower = target._follow(
            self._index.__enter__(), logs, options, once=False, seams=Seams.of(clock=HastyClock())
        )
        self._thread = threading.Thread(target=self._follower.run)
        self._thread.start()

    @property
    def status(self):
        return self._follower.status

    def wait_for(self, messages):
        give_up = clock.monotonic() + PATIENCE_S
        while self.status.messages < messages:
            assert clock.monotonic() < give_up, self.status
            clock.wait(Bell(), 0.02)

    def stop(self):
        self._follower.stop()
        self._thread.join(PATIENCE_S)
        self._index.__exit__(None, None, None)
        return self.status


def rename(log, logs, away):
    log.rename(logs / "a.jsonl.1")


def move_away(log, logs, away):
    log.rename(away / "a.jsonl")


def delete(log, logs, away):
    log.unlink()


@pytest.mark.parametrize("rotate", [rename, move_away, delete])
def test_file_rotated_under_a_running_follower_is_read_to_its_end(target, logs, tmp_path, rotate):
    log = logs / "a.jsonl"
    log.write_text(lines("A-1", "A-2"))
    running = Running(target, logs)
    running.wait_for(2)
    with log.open("a") as file:
        rotate(log, logs, tmp_path)
        log.write_text(lines("B-1", "B-2", "B-3", "B-4"))
        file.write(lines("A-3"))  # by a writer that has not heard of it yet
    running.wait_for(7)
    status = running.stop()
    assert (status.restarts, status.lost) == (1, 0)
    check(target, "A-1", "A-2", "A-3", "B-1", "B-2", "B-3", "B-4")


@pytest.mark.parametrize("files", ["*.jsonl", "*.jsonl*"])
def test_file_cut_under_a_running_follower_is_read_from_its_begin(target, logs, files):
    log = logs / "a.jsonl"
    log.write_text(lines("A-1", "A-2"))
    running = Running(target, logs, {"files": files})
    running.wait_for(2)
    with log.open("a") as file:
        file.write(lines("A-3"))
        file.flush()
        shutil.copy(log, logs / "a.jsonl.1")
        file.truncate(0)
        file.write(lines("B-1", "B-2", "B-3", "B-4", "B-5"))
    running.wait_for(8)
    status = running.stop()
    assert (status.restarts, status.messages) == (1, 8)
    check(target, "A-1", "A-2", "A-3", "B-1", "B-2", "B-3", "B-4", "B-5")


def test_lines_that_are_gone_before_they_were_read_are_told(tmp_path, logs):
    target = Indexed(tmp_path / "data")
    (logs / "a.jsonl").write_text(lines("A-1"))
    with opened(target.folder) as index:
        follower = target._follow(index, logs)
        follower._look()
        (logs / "a.jsonl").unlink()
        status = follower.run()
    assert status.lost == len(lines("A-1"))
    saved = json.loads((target.folder / FILE_NAME).read_text())["topics"]["orders"]
    ((_, row),) = saved["partitions"].items()
    assert [(gap["begin"], gap["end"]) for gap in row["gaps"]] == [(0, status.lost)]


def test_message_of_a_rotated_file_is_shown_from_where_it_is_now(tmp_path, logs):
    target = Indexed(tmp_path / "data")
    (logs / "a.jsonl").write_text(lines("A-1", "A-2"))
    target.run(logs)
    with MessageFetcher(target.folder) as messages:

        def shown(name):
            with opened(target.folder) as index:
                answer = index.query("orders", key=name)
            (entry,) = messages.with_messages(answer, key=name).entries
            return entry.message

        assert shown("A-2").text == '{\n  "id": "A-2"\n}'
        (logs / "a.jsonl").rename(logs / "a.jsonl.1")
        (logs / "a.jsonl").write_text(lines("B-1", "B-2", "B-3"))
        target.run(logs)
        assert shown("A-2").where.endswith("a.jsonl.1, byte 13")
        assert shown("B-2").where.endswith("a.jsonl, byte 13")
        assert shown("A-2").outcome == shown("B-2").outcome == "shown"
        (logs / "a.jsonl.1").unlink()
        assert shown("A-2").outcome == "gone"
        (logs / "a.jsonl").write_text(lines("X-1", "X-2", "X-3"))
        assert shown("B-2").outcome == "gone"
