"""Chained files made of another's blocks, on a simulated disk that is cut off anywhere.

Where a new file has zeros, a recycled one has the rows of its old life: valid items, in batches that
verify, often of the very shapes, keys and places of the new ones. Only the uuid in each batch's checksum
stands between them and an answer. After each end a prefix of the new life's batches is found, as long as
what was synced at least, and nothing else; so it is again after more was put.
"""

from __future__ import annotations

import random
from contextlib import closing, suppress
from pathlib import Path

import numpy as np

from tests.indexfile.chained_files import key, make_part, offsets_of
from tests.simulation.simulated_disk import SimulatedCrash, SimulatedFileSystem
from tierdex.errors import CorruptFileError
from tierdex.filesystem import make_durable_folder
from tierdex.indexfile.chained.file import ChainedFile
from tierdex.indexfile.check import check_file
from tierdex.indexfile.schema import MESSAGE_SCHEMA
from tierdex.indexfile.source import Source

FOLDER = Path("/data")
READY, PATH = FOLDER / "next.ready", FOLDER / "1"
LOG = bytes(range(16, 32))
STATES = 24  # after one end
_SIZES = (1, 1, 2, 9, 60, 103, 240)  # entries of a batch; 102 rows are a page
_OLD_FIRST = 1_000_000


class Lives:
    """What is put into a file in its old lives and in its new one, as a seed says."""

    def __init__(self, seed: int) -> None:
        source = self.source = random.Random(seed)
        self.slot_count = source.choice((3, 64, 1500))
        self.shapes = [source.choice(_SIZES) for _ in range(source.randrange(3, 10))]
        self.old_lives = [
            self.shapes * 2
            if source.random() < 0.7
            else [source.choice(_SIZES) for _ in range(source.randrange(1, 12))]
            for _ in range(source.choice((1, 1, 2)))
        ]
        self.syncs = [source.random() < 0.4 for _ in self.shapes]
        self.has_source = source.random() < 0.3  # as an index beside a log has

    def part(self, number: int, count: int, first: int = 0):
        """Return batch `number`: two keys of its own and one that all batches have, in turns."""
        names = [("hot", f"a{number}", f"b{number}")[n % 3] for n in range(count)]
        return make_part(names, topic=f"t{number % 3}", first=first + number * 1000)

    def position(self, number: int) -> Source | None:
        return Source(LOG, number + 1, number) if self.has_source else None


class Writer:
    """One process that makes the file, puts into it, and seals it; what it knows when it ends."""

    def __init__(self, lives: Lives) -> None:
        self.lives = lives
        self.disk = SimulatedFileSystem()
        self.put = 0  # batches handed over
        self.real = 0  # of them, appended: a killed process loses none
        self.synced = 0

    def prepare(self) -> None:
        """Live the old lives; nothing is uncertain on the disk afterwards."""
        make_durable_folder(self.disk, FOLDER)
        for number, shapes in enumerate(self.lives.old_lives):
            file = self._make(bytes([100 + number]) * 16, is_new=not number)
            for batch, count in enumerate(shapes):
                part = self.lives.part(batch, count, _OLD_FIRST)
                file.append([part], self.lives.position(batch))
            file.seal()
            file.close()
        self.disk.sync_folder(FOLDER)

    def _make(self, uuid: bytes, *, is_new: bool) -> ChainedFile:
        make = ChainedFile.create if is_new else ChainedFile.recycle
        return make(
            self.disk, READY, uuid=uuid, schema=MESSAGE_SCHEMA, slot_count=self.lives.slot_count,
            item_capacity=5000, created_ms=1,
        )  # fmt: skip

    def begin(self) -> ChainedFile:
        file = self._make(bytes(range(16)), is_new=False)
        self.disk.rename(READY, PATH)
        self.disk.sync_folder(FOLDER)
        return file

    def live(self) -> None:
        with closing(self.begin()) as file:
            file.reserve_ahead(200_000)
            for number, count in enumerate(self.lives.shapes):
                self.put += 1
                file.append([self.lives.part(number, count)], self.lives.position(number))
                self.real = self.put
                if self.lives.syncs[number]:
                    file.sync()
                    self.synced = self.real
            assert file.check() == []
            file.seal()
            self.synced = self.real


def count_calls(seed: int) -> tuple[int, int]:
    """Return the calls of a life until the file has its name, and all."""
    writer = Writer(Lives(seed))
    writer.prepare()
    writer.disk.trace.clear()
    writer.begin().close()
    made = len(writer.disk.trace)
    writer = Writer(Lives(seed))
    writer.prepare()
    writer.disk.trace.clear()
    writer.live()
    return made, len(writer.disk.trace)


def end_anywhere(seed: int) -> int:
    """End one life at one call, by a kill and by power cuts; return how many states were judged."""
    lives = Lives(seed)
    made, calls = count_calls(seed)
    writer = Writer(lives)
    writer.prepare()
    if lives.source.random() < 0.5:
        writer.disk.note_stores_at_every_call()
    writer.disk.crash_at(
        lives.source.randrange(made + 1, calls + 1), after=lives.source.random() < 0.5
    )
    with suppress(SimulatedCrash):
        writer.live()
    states = 1
    for survivor in writer.disk.crash_states(limit=STATES, seed=seed):
        judge(survivor, writer, least=writer.synced)
        states += 1
    judge(writer.disk.restart(), writer, least=writer.real)  # last: it goes on on the same disk
    return states


def judge(disk: SimulatedFileSystem, writer: Writer, least: int) -> None:
    """Read, recover, compare, put more, end again, and compare once more."""
    lives, source = writer.lives, writer.lives.source
    with closing(ChainedFile.open_for_reading(disk, PATH)) as beside:
        seen = _batches_of(beside, lives)
        assert least <= seen <= writer.put
    held = seen
    holds = None
    if lives.has_source and source.random() < 0.7:
        held = source.randrange(seen + 1)
        holds = lambda position: position.batch_count <= held  # noqa: E731
    with closing(ChainedFile.recover(disk, PATH, holds)) as file:
        if file.sealed:
            assert _batches_of(file, lives) == len(lives.shapes) == seen
            assert list(check_file(disk, PATH)) == []
            return
        assert _batches_of(file, lives) == held
        counts = lives.shapes[:held]
        for number in range(held, min(held + 2, len(lives.shapes))):  # as they were, or others
            counts.append(source.choice((lives.shapes[number], source.choice(_SIZES))))
            file.append([lives.part(number, counts[-1])], lives.position(number))
        if source.random() < 0.5:
            file.sync()
            disk = disk.crash(lambda effect: effect.kind not in ("page", "sector"))
        else:
            disk = disk.restart()
    with closing(ChainedFile.recover(disk, PATH)) as again:
        assert _batches_of(again, lives, counts) == len(counts)
        again.seal()
    assert list(check_file(disk, PATH)) == []


def _batches_of(file: ChainedFile, lives: Lives, counts: list[int] | None = None) -> int:
    """Return how many batches `file` has; it must hold what they brought, each entry once, in order."""
    counts = lives.shapes if counts is None else counts
    ends = np.cumsum([0, *counts]).tolist()
    if file.item_count not in ends:
        raise CorruptFileError(file.path, f"{file.item_count} entries are no whole batches")
    batches = ends.index(file.item_count)
    wanted = [_offsets(number, count) for number, count in enumerate(counts[:batches])]
    rows = [np.zeros(0, np.int64), *(rows["offset"] for rows in file.rows_in_hash_order())]
    found = np.sort(np.concatenate(rows))
    assert np.array_equal(found, np.concatenate([np.zeros(0, np.int64), *wanted])), "foreign rows"
    for topic in range(3):
        newest_first = [
            offset
            for number in reversed(range(batches))
            if number % 3 == topic
            for offset in reversed(wanted[number][::3].tolist())
        ]
        assert offsets_of(file, key("hot", f"t{topic}")) == newest_first
    if batches < len(lives.shapes):
        assert offsets_of(file, key(f"a{batches}", f"t{batches % 3}")) == []
    assert file.check() == []
    return batches


def _offsets(number: int, count: int) -> np.ndarray:
    return (np.arange(count, dtype=np.int64) + number * 1000) * 100
