"""Blocks of a compacted file are the next file's, and no reader sees a row of another life under any name."""

from __future__ import annotations

import itertools
import os
import signal
from contextlib import closing
from pathlib import Path

import pytest

from tests.index_service.conftest import SMALL
from tests.simulation.scheduler import InlineExecutor
from tests.simulation.simulated_disk import SimulatedFileSystem
from tests.torture.fork_server import server
from tierdex import Index
from tierdex.clock import ManualClock
from tierdex.errors import UnavailableError
from tierdex.filesystem import LocalFileSystem, make_durable_folder
from tierdex.ids import SeededIds
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of

DATA = Path("/data")
READY = DATA / "unsealed/next.ready"
RESERVE = 1 << 20
BATCH = 300  # entries; three are a file that is nearly full
NAMES = ("old", "kept", "new", "newer")


@pytest.fixture
def world():
    with closing(World()) as world:
        yield world


class World:
    """An index on a simulated disk, which keeps compacted files: nothing is published."""

    def __init__(self, disk=None, data=DATA, store=None):
        self.disk = disk or SimulatedFileSystem()
        self.data = data
        make_durable_folder(self.disk, data)
        self.store = store or MemoryStore()
        self.clock = ManualClock()
        self.opened = 0
        self.index = self.open(self.disk)
        self.writer = components_of(self.index).writing.writer
        self.first = {}

    def open(self, disk, **more):
        self.opened += 1
        return Index.open(
            self.data, store=self.store, clock=self.clock, ids=SeededIds(self.opened),
            filesystem=disk, executor=InlineExecutor(), node="a",
            **{**SMALL, "disk_reserve_bytes": RESERVE, **more},
        )  # fmt: skip

    def fill(self, name):
        """Put three batches under the key `name`: nearly a file, so the first rolls the one before."""
        self.first[name] = first = len(self.first) * 10_000
        for start in range(first, first + 3 * BATCH, BATCH):
            numbers = range(start, start + BATCH)
            self.index.put_batch(
                topic="t", keys=[name] * BATCH, queue_id=0, offset=list(numbers), size=1,
                timestamp=list(numbers),
            )  # fmt: skip

    def seal(self):
        """Roll the file that takes puts, and seal it."""
        self.index.roll()
        components_of(self.index).writing.compactor.local.step()

    def turn(self, *names):
        """Fill, then compact and give up what was rolled, and make the next file; publish nothing."""
        for name in names:
            self.fill(name)
            self.compact()
            self.writer.prepare_next()

    def compact(self):
        local = components_of(self.index).writing.compactor.local
        while local.step() == 0.0:
            pass

    def offsets(self, index, name):
        answer = index.query("t", key=name, max_count=5000)
        assert answer.complete, answer.missing
        return sorted(entry.offset for entry in answer.entries)

    def wanted(self, name):
        return list(range(self.first[name], self.first[name] + 3 * BATCH))

    def check(self, index):
        for name in self.first:
            assert self.offsets(index, name) == self.wanted(name), name
        for file in index.files():
            assert index.verify_file(file.file_id) == []

    def recycled(self):
        """Return how many files were made of another's blocks: the others' name was cleared first."""
        ends = [
            c.kind
            for c in self.disk.trace
            if c.kind in ("lease", "map", "unlink") and c.path == str(READY)
        ]
        return sum(pair == ("lease", "map") for pair in itertools.pairwise(ends))

    def close(self):
        if self.index is not None:
            self.index.close()


def test_next_file_takes_the_blocks_of_one_that_was_compacted(world):
    world.turn(*NAMES)
    assert world.recycled() == 3
    assert not [c for c in world.disk.trace if c.kind == "unlink" and "/data/sealed/" in c.path]
    world.check(world.index)
    world.index.close()
    assert not world.disk.exists(READY)
    world.index = None
    with closing(world.open(world.disk)) as again:
        world.check(again)


def test_query_that_began_before_keeps_its_file(world):
    world.fill("old")
    world.seal()
    with components_of(world.index).table.snapshot() as snapshot:
        sealed = snapshot.files[0].reader
        world.turn("kept")
        assert world.recycled() == 0
        assert sealed.check() == []
        assert sealed.item_count == 3 * BATCH
    world.check(world.index)


def test_reader_of_another_process_keeps_its_file(world):
    world.fill("old")
    world.seal()
    with closing(world.open(world.disk.other_process(), read_only=True)) as reader:
        assert [file.state for file in reader.files()] == ["sealed"]
        world.turn(*NAMES[1:])
        assert world.recycled() == 2, "the files that the reader never saw, and no other"
        assert world.offsets(reader, "old") == world.wanted("old")
        assert world.offsets(reader, "new") == []
        reader.refresh()
        world.check(reader)


@pytest.mark.parametrize("is_sealed", [False, True])
def test_reader_never_takes_another_file_for_the_one_it_opens(world, is_sealed):
    """Between its look at the name and its opening, the file is given up, recycled, filled, and sealed."""
    world.fill("old")
    world.seal()
    (sealed,) = [DATA / "sealed" / name for name in world.disk.list_folder(DATA / "sealed")]
    system = world.disk.other_process()
    real_open, opened = system.open, []

    def open_late(path, **options):
        if path != sealed or opened:
            return real_open(path, **options)
        opened.append(path)
        world.turn("kept")  # into a new file; the next is made of the old one's blocks
        world.fill("new")
        if is_sealed:
            world.compact()  # "kept"
            world.seal()
        assert world.recycled() == 1
        # The kernel had found the file behind the name, and opens it only now.
        folder = DATA / ("sealed" if is_sealed else "unsealed")
        newest = max(name for name in world.disk.list_folder(folder) if name != READY.name)
        return real_open(folder / newest, **options)

    system.open = open_late
    with closing(world.open(system, read_only=True)) as reader:
        assert opened
        world.check(reader)
        assert len({file.file_id for file in reader.files()}) == 3


def test_blocks_are_not_kept_while_the_disk_is_short(world):
    world.fill("old")
    world.seal()
    world.fill("kept")
    world.compact()
    assert world.disk.exists(READY)
    world.writer.free_blocks_if_short()
    assert world.disk.exists(READY)
    world.disk.capacity_bytes = 0
    world.writer.free_blocks_if_short()
    assert not world.disk.exists(READY)
    world.disk.capacity_bytes = None
    world.turn("new", "newer")
    world.check(world.index)


def test_no_blocks_are_kept_that_the_disk_wants_back(world):
    world.fill("old")
    world.seal()
    world.fill("kept")
    world.disk.capacity_bytes = 1 << 30
    more = 16 << 10  # than the reserve, but less than the file has
    world.disk.capacity_bytes -= world.disk.free_bytes(DATA) - RESERVE - more
    world.compact()
    assert not world.disk.exists(READY)
    world.check(world.index)


def test_file_that_is_compacted_beside_a_request_to_forget_leaves_no_row_behind(world):
    world.fill("old")
    world.seal()
    world.fill("kept")
    world.index.forget([{"topic": "t", "key": "kept"}])
    world.compact()
    assert not world.disk.exists(READY)


@pytest.mark.parametrize("kind", ["lease", "open", "truncate", "reserve", "write", "sync"])
def test_failing_call_costs_the_blocks_and_nothing_else(world, kind):
    world.fill("old")
    world.seal()
    world.fill("kept")
    world.compact()
    world.disk.fail(kind)
    with pytest.raises(UnavailableError):
        world.writer.prepare_next()
    world.writer.prepare_next()
    assert world.recycled() == 0
    world.turn("new", "newer")
    world.check(world.index)


@pytest.mark.parametrize("nth", range(1, 6))
@pytest.mark.parametrize("kind", ["rename", "sync_folder", "stat"])
def test_failing_move_is_tried_again(world, kind, nth):
    world.fill("old")
    world.seal()
    world.fill("kept")
    world.disk.fail(kind, nth)
    for _ in range(3):
        world.compact()
        world.clock.advance(100)
    world.disk.heal()
    assert world.disk.list_folder(DATA / "sealed") == []
    world.turn("new", "newer")
    world.check(world.index)
    world.close()
    world.index = world.open(world.disk)
    world.check(world.index)


# -- a real second process ---------------------------------------------------------------------------


def read_and_stop(data, store, telling):
    """Open a folder beside its writer and ask; stop (SIGSTOP), and ask again without a refresh, and with."""
    with closing(Index.open(data, store=store, read_only=True, background=False)) as reader:

        def ask():
            told = []
            for name in NAMES:
                answer = reader.query("t", key=name, max_count=5000)
                told += [answer.complete, sorted(entry.offset for entry in answer.entries)]
            return told

        answers = [ask()]
        os.kill(os.getpid(), signal.SIGSTOP)
        answers.append(ask())
        reader.refresh()
        answers.append(ask())
    telling.send(answers)


def test_real_process_that_has_the_file_mapped_keeps_it(tmp_path):
    made = []

    class Files(LocalFileSystem):
        def open(self, path, **how):
            file = super().open(path, **how)
            real = file.prove_alone

            def prove_alone():
                made.append(None)
                real()
                made[-1] = os.fstat(file._descriptor).st_ino

            file.prove_alone = prove_alone
            return file

    data, store = tmp_path / "data", str(tmp_path / "store")
    with closing(World(Files(), data, store)) as world:
        world.fill("old")
        world.seal()
        (sealed,) = (data / "sealed").iterdir()
        inode = sealed.stat().st_ino
        with server().fork(
            "tests.index_service.test_recycling:read_and_stop", data, store
        ) as child:
            assert child.wait_stopped()
            world.turn(*NAMES[1:])
            child.signal(signal.SIGCONT)
            before, after, refreshed = child.tells.recv()
            assert child.wait() == 0
        assert made[0] is None, "the file that the child has mapped was taken"
        assert len(made) == 3
        assert None not in made[1:], "no reader had the others"
        assert inode not in made
        nothing = [item for _ in NAMES[1:] for item in (True, [])]
        assert before == after == [True, world.wanted("old"), *nothing]
        assert refreshed == [item for name in NAMES for item in (True, world.wanted(name))]
        world.check(world.index)
