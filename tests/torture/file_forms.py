"""Index files of both forms, here and in a store, each with a judge (see forms.py)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np

from tests.indexfile.searches import find_all
from tests.simulation.scheduler import InlineExecutor
from tests.torture.damages import Damages
from tests.torture.form import PATH, REFUSALS, Form
from tests.torture.guarded_memory import GuardedFiles, GuardedMemory
from tests.torture.specimens import LARGE, NODE, TOPICS, make_specimens
from tierdex.compactor.file_row import make_row
from tierdex.errors import CorruptFileError, NotFoundError
from tierdex.fileparts.filter import partitions_of
from tierdex.index_service.readers.file_reader import Budget, FileMeter, FileSearch
from tierdex.index_service.readers.page_cache import PageCache
from tierdex.index_service.readers.published_file import PublishedFile
from tierdex.index_service.readers.sidecar_cache import SidecarCache
from tierdex.index_service.requests.lookups import Lookups
from tierdex.indexfile.chained.file import ChainedFile
from tierdex.indexfile.column_search import search_file
from tierdex.indexfile.compacted.file import CompactedFile
from tierdex.indexfile.compacted.hash_group import GroupSizes
from tierdex.indexfile.compacted.page_stream import PageStream
from tierdex.indexfile.compacted.writer import CompactedWriter, FilePlan
from tierdex.indexfile.hashing import MESSAGE_ID_SEED, topic_seed
from tierdex.indexfile.layout import TOPIC_MASK
from tierdex.indexfile.lookup import DONE, START, TIME_MAX, TIME_MIN, Lookup, Search
from tierdex.indexfile.message_finder import MessageFinder
from tierdex.indexfile.schema import join_rows
from tierdex.lifecycle.paths import DataPaths

MOST = 10_000  # rows of one lookup
MOST_FOUND = 1024  # rows of a finder, that always fit
MOST_KEY_BYTES = 256
_SINGLE = 5  # lookups that are asked one by one, beside the batch


class ChainedForm(Form):
    """What the two chained forms share: the rows of all lookups, in a batch and one by one."""

    def __init__(self, seed):
        specimens, other = make_specimens(seed), make_specimens(seed + 1)
        self.lookups = specimens.lookups
        self.files = GuardedFiles()
        self.turn = 0
        self.images = self.pick(specimens), self.pick(other), self.pick_older(specimens)
        self.damages = Damages(*self.images, whole=False)
        self.sound = np.frombuffer(self.images[0], np.uint8)
        self.files.place(PATH, self.sound)
        reader = self.open()
        self.rows_of_file = reader.published
        self.offsets, self.numbers, self.rows = self.ask(reader)
        assert len(self.rows) > len(self.lookups.hashes) * 0.8
        reader.close()

    def ask(self, reader):
        lookups = self.lookups
        tags = np.append(reader.tags_of(TOPICS, 0), np.uint32(reader.tag_of(None, 1)))
        found = search_file(reader, Search.of(lookups.hashes, tags[lookups.topics], limit=MOST))
        return found.offsets, found.places, found.rows

    def judge(self, data):
        self.files.place(PATH, data)
        reader = None
        try:
            reader = self.open()
            self.ask_singly(reader)
            offsets, numbers, rows = self.ask(reader)
        except REFUSALS:
            return "refused"
        finally:
            if reader is not None:
                reader.close()
        return self.compare(reader, offsets, numbers, rows)

    def ask_singly(self, reader):
        """Ask a few lookups by the kernels of single queries; must agree as well."""
        lookups = self.lookups
        for _ in range(_SINGLE):
            self.turn = (self.turn + 1) % len(lookups.hashes)
            topic = lookups.topics[self.turn]
            lookup = Lookup(
                int(lookups.hashes[self.turn]), int(lookups.kinds[self.turn]),
                None if topic < 0 else TOPICS[topic],
            )  # fmt: skip
            begin, end = self.offsets[self.turn], self.offsets[self.turn + 1]
            wanted = self.rows[begin:end][self.numbers[begin:end] <= reader.published]
            got = find_all(reader, lookup, limit=7)
            assert _same(got, wanted), f"a single lookup gave {got}, not {wanted}"
            check_finder(reader, lookup.topic, lookups.texts[self.turn], wanted)


def check_finder(reader, topic, text, wanted):
    """A finder gives the newest of the wanted rows, repeats once, or wants to be asked otherwise."""
    seed = MESSAGE_ID_SEED if topic is None else topic_seed(topic)
    finder = MessageFinder([(reader, ())], topic, seed, kind=tuple, most_bytes=MOST_KEY_BYTES)
    entries = []
    count, *_ = finder.find(text, entries, TIME_MIN, TIME_MAX, MOST_FOUND, 0, START, 0)
    if count < 0:
        return
    names = reader.dictionaries.strings("topic")
    fields = [names[tag & TOPIC_MASK] for tag in wanted["tag"].tolist()]
    columns = [wanted[name].tolist() for name in ("queue_id", "offset", "size", "timestamp")]
    expected = list(dict.fromkeys(zip(fields, *columns, strict=True)))
    assert count == len(expected), f"a finder found {count}, not {len(expected)}"
    assert entries[:count] == expected[:MOST_FOUND], f"a finder gave {entries}, not {expected}"


class Unsealed(ChainedForm):
    """The file being written: opened by its writer's next process, and by readers beside it.

    Damage at its end may look like the torn end of a crash: then later batches are gone, as a whole.
    """

    name = "chained, unsealed"

    def pick(self, specimens):
        return specimens.unsealed

    def pick_older(self, specimens):
        return specimens.half

    def open(self):
        if self.turn % 2:
            return ChainedFile.open_for_reading(self.files, PATH)
        return ChainedFile.recover(self.files, PATH)

    def compare(self, reader, offsets, numbers, rows):
        published = reader.published
        kept = self.numbers <= published
        counts = np.concatenate([[0], np.cumsum(kept)])[self.offsets]
        assert np.array_equal(offsets, counts), "other lookups have entries"
        assert np.array_equal(numbers, self.numbers[kept]), "other rows"
        assert _same(rows, self.rows[kept]), "other entries"
        return "unharmed" if published == self.rows_of_file else "shorter"


class Sealed(ChainedForm):
    """An immutable chained file; what its compaction would read is held to the same."""

    name = "chained, sealed"

    def __init__(self, seed):
        super().__init__(seed)
        self.files.place(PATH, self.sound)
        self.walk = np.concatenate(list(self.open().rows_in_hash_order()))

    def pick(self, specimens):
        return specimens.sealed

    def pick_older(self, specimens):
        return specimens.unsealed[: len(specimens.sealed)]

    def open(self):
        return ChainedFile.open_sealed(self.files, PATH)

    def compare(self, reader, offsets, numbers, rows):
        assert np.array_equal(offsets, self.offsets), "other lookups have entries"
        assert np.array_equal(numbers, self.numbers), "other rows"
        assert _same(rows, self.rows), "other entries"
        try:
            reader = self.open()
            assert _same(np.concatenate(list(reader.rows_in_hash_order())), self.walk), "other walk"
        except REFUSALS:
            pass
        return "unharmed"


class Compacted(Form):
    """A compacted file that lies here whole."""

    name = "compacted, local"

    def __init__(self, seed):
        specimens, other = make_specimens(seed, LARGE), make_specimens(seed + 1, LARGE)
        self.lookups, self.turn = specimens.lookups, 0
        self.files = GuardedFiles()
        images = specimens.compacted, other.compacted, specimens.compacted_again
        self.damages = Damages(*images, whole=False)
        self.files.place(PATH, np.frombuffer(images[0], np.uint8))
        reader = CompactedFile.open_local(self.files, PATH)
        self.offsets, self.rows = self.ask(reader)
        self.walk = np.concatenate(list(reader.rows_in_hash_order()))

    def ask(self, reader):
        found = reader.search(Search.of(self.lookups.hashes, self.tags(reader), limit=MOST))
        return found.offsets, found.rows

    def tags(self, reader):
        tags = np.append(reader.tags_of(TOPICS, 0), np.uint32(reader.tag_of(None, 1)))
        return tags[self.lookups.topics]

    def judge(self, data):
        self.files.place(PATH, data)
        try:
            reader = CompactedFile.open_local(self.files, PATH)
            self.ask_singly(reader)
            offsets, rows = self.ask(reader)
        except REFUSALS:
            return "refused"
        assert np.array_equal(offsets, self.offsets), "other lookups have entries"
        assert _same(rows, self.rows), "other entries"
        try:
            walk = np.concatenate(list(reader.rows_in_hash_order()))
            assert _same(walk, self.walk), "other rows in a walk"
            reader.check()
        except REFUSALS:
            pass
        return "unharmed"

    def lookup(self, number):
        return lookup_at(self.lookups, number)

    def ask_singly(self, reader):
        for _ in range(_SINGLE):
            self.turn = (self.turn + 1) % len(self.lookups.hashes)
            wanted = self.rows[self.offsets[self.turn] : self.offsets[self.turn + 1]]
            lookup = self.lookup(self.turn)
            if self.lookups.texts and isinstance(reader, CompactedFile):
                check_finder(reader, lookup.topic, self.lookups.texts[self.turn], wanted)
            assert _same(find_all(reader, lookup, limit=7), wanted)


class Published(Compacted):
    """The same file in a store: sidecar fetched, pages by ranges."""

    name = "compacted, in the store"

    def __init__(self, seed):
        super().__init__(seed)
        self.row = make_specimens(seed, LARGE).row
        self.store = OneObject(self.damages.sound)
        self.file = None
        offsets, rows = self.ask_published(self.open())
        assert np.array_equal(offsets, self.offsets)
        assert _same(rows, self.rows)

    def open(self):
        sidecars = SidecarCache(self.files, None, 1 << 30)
        return PublishedFile(self.row, NODE, self.store, sidecars, PageCache(0))

    def forge_row(self, crc):
        """Believe in a footer of that checksum."""
        self.row = replace(self.row, tail_crc=crc)

    def ask_published(self, file, which=None):
        """Return offsets and rows of the lookups `which` (None: of all), asked in one search."""
        meter = FileMeter(Budget(requests=10_000, items=1 << 40))
        which = np.arange(len(self.lookups.hashes)) if which is None else which
        count = len(self.lookups.hashes)
        lookups = Lookups(
            self.lookups.hashes, self.lookups.kinds, TOPICS, self.lookups.topics.astype(np.int32),
            np.full(count, TIME_MIN), np.full(count, TIME_MAX), np.full(count, MOST), str,
        )  # fmt: skip
        limits, items = np.full(count, MOST), 1 << 40
        search = FileSearch(lookups, which, limits[which], None, items)
        answer = file.search(search, meter, InlineExecutor())
        assert (answer.found.following == DONE).all()
        bounds = pairwise(answer.found.offsets.tolist())
        rows = [answer.found.rows[begin:end] for begin, end in bounds]
        # The empty piece is there when the filter of a forged file excludes every lookup.
        return self.in_order(answer.wanted, rows, which.tolist(), answer.found.rows[:0])

    @staticmethod
    def in_order(wanted, rows, which, *pieces):
        """Return offsets and rows of the lookups in their own order."""
        found = dict(zip(wanted.tolist(), rows, strict=True))
        sizes = [len(found.get(number, ())) for number in which]
        in_order = [found[number] for number in which if number in found]
        return np.concatenate([[0], np.cumsum(sizes)]), join_rows([*pieces, *in_order])

    def judge(self, data):
        self.store.data = data
        sound = self.damages.sound
        begin = self.row.sidecar_position
        same_tail = len(data) == len(sound) and np.array_equal(data[begin:], sound[begin:])
        if not same_tail or self.file is None:
            self.file = self.open()
        try:
            offsets, rows = self.ask_published(self.file)
        except (*REFUSALS, NotFoundError):
            return "refused"
        finally:
            if not same_tail:
                self.file = None
        assert np.array_equal(offsets, self.offsets), "other lookups have entries"
        assert _same(rows, self.rows), "other entries"
        return "unharmed"


class InGroups(Published):
    """A file in a store of which no sidecar is here: each lookup by its own hash group.

    Damage of what a reader of groups never fetches is no business of its.
    """

    name = "compacted, in hash groups"

    def __init__(self, seed):
        make = partial(in_groups, make_specimens(seed, LARGE))
        Compacted.__init__(self, seed)
        other = make_specimens(seed + 1, LARGE)
        data, self.row = make("compacted")
        older, _ = make("compacted_again")
        self.damages = Damages(data, in_groups(other, "compacted")[0], older)
        self.store = OneObject(self.damages.sound)
        hashes = self.lookups.hashes
        self.groups = partitions_of(hashes, self.row.groups.group_count)
        assert self.row.groups.group_count > 3
        for number in range(self.row.groups.group_count):
            self.compare(number, *self.ask_group(number))

    def ask_group(self, number):
        """Ask the lookups of one group, of a file of which nothing is here."""
        which = np.flatnonzero(self.groups == number)
        self.store.asked.clear()
        return self.ask_published(self.open(), which)

    def compare(self, number, offsets, rows):
        which = np.flatnonzero(self.groups == number)
        bounds = [slice(self.offsets[n], self.offsets[n + 1]) for n in which]
        expected = join_rows([self.rows[:0], *(self.rows[bound] for bound in bounds)])
        sizes = [bound.stop - bound.start for bound in bounds]
        assert np.array_equal(np.diff(offsets), sizes), "other lookups have entries"
        assert _same(rows, expected), "other entries"

    def judge(self, data):
        self.store.data = data
        number = self.turn = (self.turn + 1) % self.row.groups.group_count
        try:
            found = self.ask_group(number)
        except (*REFUSALS, NotFoundError):
            return "refused"
        self.compare(number, *found)
        return "unharmed"


class Streamed(InGroups):
    """A file in a store whose rows a merge reads in order, a little at a time."""

    name = "compacted, read for a merge"

    def __init__(self, seed):
        super().__init__(seed)
        self.walk = self.read_all()

    def read_all(self):
        row, reads = self.row, []

        def read(position, length):
            reads.append(position)
            data = self.store.get(row.object_key, position, length)
            return bytes(data) if len(reads) <= 2 else data  # directory and pages: guarded

        stream = PageStream(
            read, position=row.sidecar_position, file_bytes=row.bytes, crc=row.tail_crc,
            name=row.object_key,
        )  # fmt: skip
        return np.concatenate([self.rows[:0], *stream.rows_in_hash_order(300)])

    def judge(self, data):
        self.store.data = data
        try:
            walk = self.read_all()
        except REFUSALS:
            return "refused"
        assert _same(walk, self.walk), "other rows"
        return "unharmed"


def in_groups(specimens, which):
    """Return the bytes and the row of a specimen's file, written again in small hash groups."""
    old = CompactedFile.from_bytes(getattr(specimens, which))
    data = bytearray()
    plan = FilePlan(
        uuid=old.uuid,
        schema=old.schema,
        dictionaries=old.dictionaries,
        slot_count=old.slot_count,
        bounds=old.row_bounds(),
        expected_items=old.item_count,
        group_sizes=GroupSizes(keys=500, whole_bytes=0),
    )
    bits = old.statistics.filter_bits
    writer = CompactedWriter(data.extend, plan, filter_bits=bits, created_ms=old.created_ms)
    for rows in old.rows_in_hash_order():
        writer.append(rows)
    written = writer.finish()
    row = specimens.row
    dates = {"begin_ms": row.begin_ms, "sealed_at_ms": row.sealed_at_ms}
    return bytes(data), make_row(written, row.uuid, row.object_key, dates)


class LocalSidecar(Published):
    """The local copy of a published file's tail, the store being well: no answer may change or fail."""

    name = "sidecar"

    def __init__(self, seed):
        super().__init__(seed)
        specimens, other = make_specimens(seed, LARGE), make_specimens(seed + 1, LARGE)
        begin = self.row.sidecar_position
        self.damages = Damages(
            specimens.compacted[begin:],
            other.compacted[other.row.sidecar_position :],
            specimens.compacted_again[-len(specimens.compacted) + begin :],
        )
        self.store.data = np.frombuffer(specimens.compacted, np.uint8)
        self.path = DataPaths(Path("/data")).sidecar(self.row.number, NODE, self.row.uuid)

    def judge(self, data):
        self.files.place(self.path, data)
        sidecars = SidecarCache(self.files, DataPaths(Path("/data")), 1 << 30, read_only=True)
        file = PublishedFile(self.row, NODE, self.store, sidecars, PageCache(0))
        self.store.asked.clear()
        offsets, rows = self.ask_published(file)
        assert np.array_equal(offsets, self.offsets), "other lookups have entries"
        assert _same(rows, self.rows), "other entries"
        return "fetched anew" if self.row.sidecar_position in self.store.asked else "unharmed"


class OneObject:
    """A store of one object, whose bytes lie in guarded memory; a range ends where it ends."""

    def __init__(self, data):
        self.data, self.asked = data, set()
        self._memories = {}

    def get(self, key, position=None, length=None):
        del key
        self.asked.add(position)
        piece = self.data if position is None else self.data[position : position + length]
        if position is not None and not len(piece):
            raise CorruptFileError("object", "the range lies behind its end")
        # The reader of another range may still look at it, so each has memory of its own.
        memory = self._memories.get((position, length))
        if memory is None:
            memory = self._memories[position, length] = GuardedMemory(len(self.data) + 16_384)
        return memory.place(piece).data


def lookup_at(lookups, number):
    topic = lookups.topics[number]
    return Lookup(
        int(lookups.hashes[number]),
        int(lookups.kinds[number]),
        None if topic < 0 else TOPICS[topic],
    )


def _same(first, second):
    return len(first) == len(second) and first.tobytes() == second.tobytes()
