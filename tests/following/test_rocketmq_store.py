"""Importing the commit log of a broker: a real one's files, of many topics, cut and damaged."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from tests.following.test_follower import offsets, opened
from tests.following.worlds import Sent
from tests.servers.rocketmq import running_rocketmq
from tierdex.app.cli.commands import make_cli
from tierdex.errors import CorruptFileError, NotFoundError
from tierdex.filesystem import LocalFileSystem
from tierdex.following.rocketmq_store import CommitLog, ImportPlan, import_commit_log


@pytest.fixture(scope="module")
def rocketmq(tmp_path_factory):
    """A broker whose commit log begins with the messages of these tests."""
    with running_rocketmq(tmp_path_factory.mktemp("rocketmq")) as topics:
        yield topics


@pytest.fixture(scope="module")
def store(rocketmq):
    """The folder of a broker that runs: two files of a megabyte, and a part of the third."""
    for topic in ("imported", "other"):
        rocketmq.make_topic(topic, 2)
    for first in range(0, 40, 10):
        rocketmq.send("imported", first // 10 % 2, sent(10, first))
    rocketmq.send("other", 0, sent(3))
    return rocketmq.process.folder / "broker-a"


def sent(count, first=0):
    return [
        Sent(b"i%d both" % n, b"x" * 60_000, (("UNIQ_KEY", b"U%d" % n),))
        for n in range(first, first + count)
    ]


def imported(index, store, plan=ImportPlan(topics=("imported", "other"))):  # noqa: B008 - a constant
    log = CommitLog(LocalFileSystem(), store)
    return import_commit_log(index, log, plan, lambda _done, _total: None, lambda: False)


def test_every_message_is_found_at_the_place_that_consumers_know(store, tmp_path):
    with opened(tmp_path / "data") as index:
        done = imported(index, store)
        assert (done.messages, done.entries, done.nameless) == (43, 43 * 3, 0)
        assert offsets(index, "i17", "imported") == [(1, 7)]
        assert offsets(index, "i25", "imported") == [(0, 15)]
        assert len(offsets(index, "both", "imported")) == 40
        (entry,) = index.query("other", message_id="U2").entries
        assert (entry.queue_id, entry.offset, entry.size) == (0, 2, 60_000)
        again = imported(index, store)
        assert (again.messages, again.end) == (43, done.end)
        assert len(offsets(index, "both", "imported")) == 40


def test_import_begins_where_the_one_before_ended_and_tells_brokers_apart(
    store, tmp_path, rocketmq
):
    with opened(tmp_path / "data") as index:
        end = imported(index, store).end
        rocketmq.send("imported", 0, sent(2, 100))
        done = imported(index, store, ImportPlan(("imported",), end))
        assert (done.messages, done.end > end) == (2, True)
        imported(index, store, ImportPlan(("imported",), end, broker=2))
        assert {queue for queue, _ in offsets(index, "i100", "imported")} == {0, 2 << 16}


def test_damaged_file_is_named_and_what_came_before_is_in(store, tmp_path):
    copy = tmp_path / "store" / "commitlog"
    copy.mkdir(parents=True)
    whole = (store / "commitlog" / f"{0:020}").read_bytes()
    at = whole.rindex(b"i5 both")
    broken = bytearray(whole[: at - 50_000])  # ends within a message, as a copy of a full disk does
    (copy / f"{0:020}").write_bytes(broken)
    with opened(tmp_path / "cut") as index:
        assert imported(index, tmp_path / "store").messages == 5
    (copy / f"{len(whole):020}").write_bytes(whole)  # now a file follows the one that is cut
    with opened(tmp_path / "gap") as index, pytest.raises(CorruptFileError, match="is cut"):
        imported(index, tmp_path / "store")
    damaged = bytearray(whole)
    start = 0
    for _ in range(5):  # the sixth message says that it has no size
        start += int.from_bytes(whole[start : start + 4], "big")
    damaged[start + 4] ^= 0xFF
    (copy / f"{0:020}").write_bytes(damaged)
    (copy / f"{len(whole):020}").unlink()
    with opened(tmp_path / "damaged") as index:
        with pytest.raises(CorruptFileError, match=f"at byte {start}"):
            imported(index, tmp_path / "store")
        assert len(offsets(index, "both", "imported")) == 5
    with opened(tmp_path / "none") as index, pytest.raises(NotFoundError, match="no store folder"):
        imported(index, tmp_path)


def test_command_tells_what_it_did(store, tmp_path):
    command = ["rocketmq", "import", str(store), "-t", "other", "--data", str(tmp_path / "data")]
    told = CliRunner().invoke(make_cli(), [*command, "-o", "json"])
    assert told.exit_code == 0, told.output
    assert json.loads(told.output)["messages"] == 3
