"""Unclean stops of a journal: kills, power cuts, failed calls, full disks, damage and cuts anywhere."""

import errno
from pathlib import Path

import numpy as np
import pytest

from tests.interrupting import interrupted_at
from tests.logfile.log_files import (
    CAPACITY,
    FILESYSTEM,
    Model,
    append,
    everything,
    make_journal,
    read_all,
    some_rows,
)
from tests.simulation.simulated_disk import ANY, SimulatedCrash, SimulatedFileSystem
from tierdex.errors import CorruptFileError, UnsupportedFormatError
from tierdex.fileparts.predecessor import NO_PREDECESSOR, Predecessor
from tierdex.filesystem import make_durable_folder
from tierdex.logfile import layout
from tierdex.logfile.check import check_log_file
from tierdex.logfile.columns import BinaryColumn, MessageColumns, QueueColumns
from tierdex.logfile.header import decode_log_header
from tierdex.logfile.journal.file import Journal, SealedJournal, recover_journal
from tierdex.logfile.journal.scan import BatchScan
from tierdex.logfile.journal.tables import Tables

FOLDER, PATH = Path("/data"), Path("/data/journal")
SMALL = 16 << 10


class Writer:
    """Appends, syncs, seals on a simulated disk; notes what is acknowledged at which level."""

    def __init__(self, disk: SimulatedFileSystem, *, recycled: bool) -> None:
        self.disk = disk
        self.model = Model()  # everything that was handed over
        self.at_os = Model()
        self.at_disk = Model()
        self.recycled = recycled

    def prepare(self) -> None:
        """Before any crash: the folder, and the file whose blocks are taken over."""
        make_durable_folder(self.disk, FOLDER)
        if self.recycled:
            old = make_journal(PATH, filesystem=self.disk, uuid=bytes(16), capacity=SMALL)
            append(old, [(("stale", 1), b"s" * 100, 1, None)] * 60)
            old.seal()
            old.close()
        self.disk.sync_folder(FOLDER)

    def begin(self) -> Journal:
        settings = {"capacity": SMALL, "created_ms": 1, "stage_bytes": 4096}
        if self.recycled:
            return Journal.recycle(self.disk, PATH, uuid=bytes(range(16)), **settings)
        journal = Journal.create(self.disk, PATH, uuid=bytes(range(16)), **settings)
        self.disk.sync_folder(FOLDER)
        return journal

    def run(self) -> None:
        journal = self.begin()
        journal.follow(Predecessor(bytes(16), 3, 4))
        for number, count in enumerate([1, 5, 60, 2, 3]):
            rows = some_rows(count, seed=number, most_bytes=40)
            rows.append((("new", number), b"%d" % number, 5, None))
            append(journal, rows, self.model)
            self.at_os = self.model.copy()
            if number % 2:
                journal.sync()
                self.at_disk = self.model.copy()
        journal.sync()
        self.at_disk = self.model.copy()
        journal.seal({"covers": [1]})
        journal.close()


def assert_prefix(found: dict, model: Model, least: Model) -> None:
    for queue, messages in found.items():
        assert messages == model.queues[queue][: len(messages)], "not a prefix"
        assert len(messages) >= len(least.queues.get(queue, [])), "an acknowledged message is gone"


def judge(disk: SimulatedFileSystem, model: Model, least: Model) -> None:
    """Recover, compare, go on writing, and recover once more."""
    journal = recover_journal(disk, PATH, stage_bytes=4096)
    found = everything(journal, model.queues)
    assert_prefix(found, model, least)
    assert journal.check() == []
    if isinstance(journal, SealedJournal):
        assert found == model.queues
        journal.close()
        return
    seen = Model()
    for queue, messages in found.items():
        for message in messages:
            seen.add(queue, message.body, message.timestamp, message.extra)
    append(journal, [*some_rows(9, seed=99), (("later", 0), b"later", 1, None)], seen)
    journal.sync()
    journal.close()
    again = recover_journal(disk.restart(), PATH, stage_bytes=4096)
    assert everything(again, [*model.queues, ("later", 0)]) == {
        queue: seen.queues.get(queue, []) for queue in [*model.queues, ("later", 0)]
    }
    again.close()


def count_calls(*, recycled: bool) -> tuple[int, int]:
    """Return the calls until the journal is there, and all."""
    writer = Writer(SimulatedFileSystem(), recycled=recycled)
    writer.prepare()
    writer.disk.trace.clear()
    writer.begin().close()
    made = len(writer.disk.trace)
    writer = Writer(SimulatedFileSystem(), recycled=recycled)
    writer.prepare()
    writer.disk.trace.clear()
    writer.run()
    return made, len(writer.disk.trace)


@pytest.mark.parametrize("recycled", [False, True], ids=["new", "recycled"])
def test_killed_or_cut_anywhere_keeps_what_was_acknowledged(recycled):
    made, calls = count_calls(recycled=recycled)
    assert calls > made + 12
    for nth in range(made + 1, calls + 1):
        writer = Writer(SimulatedFileSystem(), recycled=recycled)
        writer.prepare()
        writer.disk.crash_at(nth)
        with pytest.raises(SimulatedCrash):
            writer.run()
        for survivor in writer.disk.crash_states(limit=10, seed=nth):
            judge(survivor, writer.model, writer.at_disk)
        judge(writer.disk.restart(), writer.model, writer.at_os)


def test_recycled_file_is_the_old_one_or_the_new_one_until_it_is_durable():
    made, _ = count_calls(recycled=True)
    for nth in range(1, made + 1):
        writer = Writer(SimulatedFileSystem(), recycled=True)
        writer.prepare()
        writer.disk.crash_at(nth)
        with pytest.raises(SimulatedCrash):
            writer.begin()
        for survivor in writer.disk.crash_states(limit=40, seed=nth):
            try:
                journal = recover_journal(survivor, PATH)
            except CorruptFileError:
                continue  # `next.ready` is a leftover: removed
            fresh = journal.uuid == bytes(range(16))
            assert journal.message_count == (0 if fresh else 60)
            journal.close()


def test_every_failing_call_leaves_a_journal_that_recovers():
    made, calls = count_calls(recycled=False)
    for nth in range(made + 1, calls + 1):
        writer = Writer(SimulatedFileSystem(), recycled=False)
        writer.prepare()
        writer.disk.fail(ANY, nth)
        with pytest.raises(OSError, match="/data"):
            writer.run()
        writer.disk.heal()
        for survivor in writer.disk.crash_states(limit=4, seed=nth):
            judge(survivor, writer.model, writer.at_disk)
        judge(writer.disk.restart(), writer.model, writer.at_os)


def test_failed_write_is_written_again_by_the_next_flush():
    disk = SimulatedFileSystem()
    make_durable_folder(disk, FOLDER)
    journal = make_journal(PATH, filesystem=disk)
    model = Model()
    append(journal, some_rows(5), model)
    disk.fail("write", number=errno.ENOSPC, written_bytes=70)
    with pytest.raises(OSError, match="No space"):
        append(journal, some_rows(5, seed=2), model)
    append_failed = journal.published
    append(journal, some_rows(5, seed=3), model)
    assert journal.published > append_failed
    # The rows of the failed call were staged: they come with the next flush, in their order.
    journal.flush()
    assert journal.message_count == 15
    assert journal.check() == []


def test_failed_sync_makes_the_journal_suspect_until_it_is_recovered():
    disk = SimulatedFileSystem()
    make_durable_folder(disk, FOLDER)
    journal = make_journal(PATH, filesystem=disk)
    disk.sync_folder(FOLDER)
    model = Model()
    append(journal, some_rows(20), model)
    journal.sync()
    append(journal, some_rows(20, seed=2), model)
    disk.fail("sync")
    with pytest.raises(OSError, match="journal"):
        journal.sync()
    assert everything(journal, model.queues) == model.queues
    for refused in (journal.sync, journal.seal):
        with pytest.raises(OSError, match="recover"):
            refused()
    with pytest.raises(OSError, match="recover"):
        append(journal, some_rows(1))
    journal.close()
    again = recover_journal(disk, PATH)
    # What the failed sync left clean is still in the page cache, and written anew from there.
    assert everything(again, model.queues) == model.queues
    assert again.synced == again.published
    for survivor in disk.crash_states(limit=20, seed=1):
        later = recover_journal(survivor, PATH)
        assert everything(later, model.queues) == model.queues


def test_what_a_failed_sync_lost_for_good_is_a_suffix():
    """The kernel let go of the clean pages before they were written again."""
    disk = SimulatedFileSystem()
    make_durable_folder(disk, FOLDER)
    journal = make_journal(PATH, filesystem=disk)
    model = Model()
    append(journal, some_rows(20), model)
    journal.sync()
    durable = model.copy()
    append(journal, some_rows(200, seed=2), model)
    disk.fail("sync")
    with pytest.raises(OSError, match="journal"):
        journal.sync()
    journal.close()
    file = disk.open(PATH)
    file.forget_cached()
    again = recover_journal(disk, PATH)
    found = everything(again, model.queues)
    assert_prefix(found, model, durable)
    assert again.message_count == 20


# Within a generator's end Python only says that it was raised.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_journal_recovers_after_a_call_that_was_interrupted_anywhere(tmp_path):
    """Queues and topics that make the tables grow, rows of two batches: all, some or none of a prefix."""
    queues = [(f"topic-{i}", i) for i in range(40)]
    columns, bodies = QueueColumns.of(queues), [b"%d" % i for i in range(40)]
    body_column, first = BinaryColumn.from_values(bodies), np.zeros(40, np.int64)

    def call(journal):
        numbers = journal.define(columns, first)
        journal.append(MessageColumns(queues=numbers, bodies=body_column, times=1))

    warm = make_journal(tmp_path / "warm")
    call(warm)  # loads the kernels
    append(warm, [((f"t{i}", i), b"x", 1, None) for i in range(30)])
    place, has_come_so_far = 0, True
    while has_come_so_far:
        place += 1
        journal = make_journal(tmp_path / str(place), capacity=SMALL, stage_bytes=4096)
        model = Model()
        append(journal, [((f"t{i}", i), b"x", 1, None) for i in range(30)], model)
        has_come_so_far = interrupted_at(place, lambda j=journal: call(j))
        if not journal.suspect:
            append(journal, [(("last", 0), b"last", 1, None)])
            journal.flush()
            assert journal.check() == []
        journal.close()
        again = recover_journal(FILESYSTEM, journal.path)
        assert again.check() == []
        assert everything(again, model.queues) == model.queues
        assert len(again.read(b"last", 0, 0, max_count=9, max_bytes=99)) == (not journal.suspect)
        found = [read_all(again, queue) for queue in queues]
        assert [m.body for held in found for m in held] in ([], bodies)
        again.close()
    assert place > 60


def test_recovery_writes_again_only_what_was_not_known_as_durable():
    disk = SimulatedFileSystem()
    make_durable_folder(disk, FOLDER)
    journal = make_journal(PATH, filesystem=disk, capacity=1 << 20)
    for number in range(20):
        append(journal, [(("a", 0), b"x" * 8000, number, None)])
        journal.sync()
    synced, end = journal.synced, journal.published
    append(journal, [(("a", 0), b"y" * 100, 1, None)])
    disk = disk.restart()
    recovered = recover_journal(disk, PATH)
    written = [call for call in disk.trace if call.kind == "write"]
    assert recovered.published > end == synced
    assert len(written) == 3, "the end in one piece, the header, the zeroed record"


def test_every_cut_of_an_unsealed_journal_is_refused(tmp_path):
    journal = make_journal(tmp_path / "journal", capacity=SMALL)
    append(journal, some_rows(5))
    journal.close()
    data = journal.path.read_bytes()
    for length in [*range(0, len(data), 131), len(data) - 1]:
        journal.path.write_bytes(data[:length])
        with pytest.raises(CorruptFileError):
            recover_journal(FILESYSTEM, journal.path)
        with pytest.raises(CorruptFileError):
            Journal.open_for_reading(FILESYSTEM, journal.path)


def test_every_flipped_bit_of_an_unsealed_journal_ends_it_there_or_is_harmless(tmp_path):
    """What is left is a prefix, and a damaged header is an error."""
    journal = make_journal(tmp_path / "journal", capacity=8192, stage_bytes=2048)
    model = Model()
    for number in range(4):
        append(journal, some_rows(4, seed=number, most_bytes=20), model)
    end = journal.published
    journal.close()
    data = journal.path.read_bytes()
    whole = 0
    for place in [*range(64), *range(4032, end + 80)]:
        for bit in range(8) if place in range(4096, 4200) else [place * 5 % 8]:
            damaged = bytearray(data)
            damaged[place] ^= 1 << bit
            journal.path.write_bytes(bytes(damaged))
            try:
                again = Journal.open_for_reading(FILESYSTEM, journal.path)
                assert again.predecessor is None
            except (CorruptFileError, UnsupportedFormatError):
                assert place < 4096, "only a header is refused whole"
                continue
            assert_prefix(everything(again, model.queues), model, Model())
            whole += again.message_count == 16
            assert again.message_count < 16 or place >= end
            again.close()
    assert whole == 80, "only what lies behind the last batch is harmless"


def synced_journal(path, *, synced=True):
    """Return the bytes of an unsealed journal of 60 batches, and where each begins."""
    journal = make_journal(path)
    begins = []
    for number in range(60):
        begins.append(journal.published)
        append(journal, [(("a", 0), b"x" * 300, number, None)])
        if synced:
            journal.sync()
    journal.close()
    return bytearray(path.read_bytes()), begins


def test_damage_of_what_was_durable_is_told_by_recovery_readers_and_verification(tmp_path):
    path = tmp_path / "journal"
    data, begins = synced_journal(path)
    assert check_log_file(FILESYSTEM, path) == []
    found = 0
    for number, place in enumerate(begins):
        damaged = data.copy()
        damaged[place + 100] ^= 1
        damaged[place + 40 : place + 50] = bytes(10)  # of the record's uuid
        path.write_bytes(damaged)
        told = check_log_file(FILESYSTEM, path)
        if place >= begins[-1] // 4096 * 4096:
            assert told == [], "nothing there is known as durable: a torn end"
            continue
        assert f"batch {number} at byte {place}" in told[0]
        for opens in (recover_journal, Journal.open_for_reading):
            with pytest.raises(CorruptFileError, match="was durable"):
                opens(FILESYSTEM, path)
        assert path.read_bytes() == damaged, "kept as it is"
        found += 1
    assert found > 40


@pytest.mark.parametrize("piece", [72, 504, 4096, 1 << 20])
def test_later_batch_is_found_wherever_pieces_end(tmp_path, piece):
    data, begins = synced_journal(tmp_path / "journal")
    data[begins[20] + 100] ^= 1
    scan = BatchScan(decode_log_header(bytes(data[:4096]), "journal"))
    read_at = lambda place, length: bytes(data[place : place + length])  # noqa: E731
    scan.pass_file(read_at, len(data))
    assert scan.position == begins[20]
    later = scan.find_durable_behind(read_at, len(data), piece)
    first = next(place for place in begins if place // 4096 * 4096 > begins[20])
    assert later in begins[begins.index(first) :][:2]


def test_record_that_a_power_cut_tore_proves_nothing(tmp_path):
    """Its uuid is in one sector, `synced_to` in the next one, which kept the bytes of an older journal."""
    path = tmp_path / "journal"
    data, begins = synced_journal(path, synced=False)
    data[begins[10] + 100] ^= 1
    torn = [place for place in begins[20:] if place % 512 > 448]
    whole = [place for place in begins[20:] if place % 512 <= 448]
    for place in [torn[0], whole[0]]:
        later = data.copy()
        later[place + 60 : place + 64] = (begins[10] // 4096 + 1).to_bytes(4, "little")
        path.write_bytes(later)
        assert bool(check_log_file(FILESYSTEM, path)) == (place == whole[0])


def test_reader_beside_a_writer_takes_no_batch_under_way_for_damage(tmp_path, monkeypatch):
    journal = make_journal(tmp_path / "journal")
    real = BatchScan.find_durable_behind

    def find_beside_a_writer(scan, *where):
        if journal.published < 40_000:
            for number in range(20):
                append(journal, [(("a", 0), b"x" * 300, number, None)])
                journal.sync()
        return real(scan, *where)

    monkeypatch.setattr(BatchScan, "find_durable_behind", find_beside_a_writer)
    reader = Journal.open_for_reading(FILESYSTEM, journal.path)
    assert reader.message_count == journal.message_count == 100


def test_scan_goes_on_where_a_piece_ends_within_a_batch(tmp_path):
    journal = make_journal(tmp_path / "journal", stage_bytes=8192)
    model = Model()
    for number in range(30):
        append(journal, some_rows(1 + number * 5 % 40, seed=number), model)
    for piece in (64, 100, 1000, 4096):
        tables, scan = Tables(), BatchScan(journal.header)
        scan.take_file(journal._file.read_at, tables, PATH, CAPACITY, piece)
        assert scan.end == journal.end
        assert tables.message_count == journal.message_count


def test_checkpoints_are_those_of_a_scan(tmp_path):
    journal = make_journal(tmp_path / "journal", capacity=1 << 20)
    for number in range(600):
        append(journal, [(("a", number % 3), b"", 1000 - number, None)])
    scan = BatchScan(journal.header)
    scan.take_file(journal._file.read_at, Tables(), PATH, 1 << 20)
    held = journal._scan.checkpoints
    assert np.array_equal(scan.checkpoints, held)
    assert held["message_count"].tolist() == [0, 256, 512]
    journal.seal()
    sealed = SealedJournal.open(FILESYSTEM, journal.path)
    begin = sealed.checkpoint(300)
    assert begin.number == 256
    assert [rows.end.number for rows in sealed.arrivals(begin)] == list(range(257, 601))
    assert sealed.checkpoint(10**6).number == 512


def test_predecessor_is_told(tmp_path):
    journal = make_journal(tmp_path / "journal")
    assert journal.predecessor is None
    journal.follow(NO_PREDECESSOR)
    assert journal.predecessor == NO_PREDECESSOR
    append(journal, some_rows(3))
    end = journal.end_of_batches
    assert (end.uuid, end.batch_count) == (journal.uuid, 1)
    journal.seal()
    assert SealedJournal.open(FILESYSTEM, journal.path).end_of_batches == end


def test_foreign_and_newer_files_say_so(tmp_path):
    path = tmp_path / "file"
    for data in (b"", b"hello world", b"\0" * 9000, b"TIERDEX1" * 2000):
        path.write_bytes(data)
        with pytest.raises(CorruptFileError):
            recover_journal(FILESYSTEM, path)
    make_journal(tmp_path / "journal").close()
    newer = bytearray((tmp_path / "journal").read_bytes())
    newer[layout.places(layout.HEADER)["format_version"]] = 2
    path.write_bytes(newer)
    with pytest.raises(UnsupportedFormatError, match="newer"):
        recover_journal(FILESYSTEM, path)
