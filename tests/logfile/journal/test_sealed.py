"""A sealed journal: read through its dense index, checked whole, damaged and cut anywhere."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.logfile.log_files import (
    FILESYSTEM,
    MOST,
    Model,
    append,
    everything,
    make_journal,
    some_rows,
)
from tierdex.errors import ClosedError, CorruptFileError
from tierdex.fileparts.layout import Part
from tierdex.logfile.journal.file import SealedJournal, recover_journal
from tierdex.logfile.journal.scan import EMPTY_END
from tierdex.logfile.messages import MessageBatch


def make_sealed(path, model, *, batches=4, rows=30, queues=9, first=0, **other):
    journal = make_journal(path, **other)
    for number in range(batches):
        listed = some_rows(rows, seed=number, queues=queues)
        for queue, *_ in listed:
            model.first_offsets.setdefault(queue, first)
        append(journal, listed, model)
    journal.seal({"covers": [[1, 2]]})
    journal.close()
    return SealedJournal.open(FILESYSTEM, path)


@settings(max_examples=25, deadline=None)
@given(
    batches=st.integers(0, 5), rows=st.integers(1, 60), queues=st.integers(1, 30),
    first=st.sampled_from([0, 5, 2**40]),
)  # fmt: skip
def test_sealed_journal_answers_as_the_unsealed_one(tmp_path_factory, batches, rows, queues, first):
    model = Model()
    path = tmp_path_factory.mktemp("log") / "journal"
    sealed = make_sealed(path, model, batches=batches, rows=rows, queues=queues, first=first)
    assert everything(sealed, model.queues) == model.queues
    assert sealed.check() == []
    assert sealed.extra == {"covers": [[1, 2]]}
    assert sealed.message_count == sum(map(len, model.queues.values()))
    times = [message.timestamp for listed in model.queues.values() for message in listed]
    assert (sealed.min_time, sealed.max_time) == ((min(times), max(times)) if times else (0, -1))
    assert sealed.extent(b"nobody", 0) is None
    assert sealed.extent(b"", 0) is None
    assert not len(sealed.read(b"orders", 99, 0, max_count=1, max_bytes=1))
    sealed.close()
    again = recover_journal(FILESYSTEM, path)
    assert isinstance(again, SealedJournal)
    again.close()


def test_queues_stand_in_order_of_names_and_numbers(tmp_path):
    model = Model()
    sealed = make_sealed(tmp_path / "journal", model, queues=40)
    names = [sealed.topics.name(int(row["topic"])).decode() for row in sealed.queues()]
    listed = list(zip(names, sealed.queues()["queue_id"].tolist(), strict=True))
    assert listed == sorted(model.queues, key=lambda queue: (queue[0].encode(), queue[1]))
    totals = {
        sealed.topics.name(i).decode(): int(row["message_count"])
        for i, row in enumerate(sealed.topics.rows)
    }
    assert totals == {
        name: sum(len(held) for (topic, _), held in model.queues.items() if topic == name)
        for name in set(names)
    }


def test_arrivals_are_all_rows_in_their_order(tmp_path):
    model = Model()
    sealed = make_sealed(tmp_path / "journal", model)
    numbers = {int(row["number"]): i for i, row in enumerate(sealed.queues())}
    seen: dict[int, int] = {}
    for rows in sealed.arrivals(EMPTY_END):
        for queue in rows.queues.tolist():
            seen[numbers[queue]] = seen.get(numbers[queue], 0) + 1
    assert [seen[i] for i in range(sealed.queue_count)] == sealed.queues()["count"].tolist()


def test_dense_index_costs_four_bytes_a_message(tmp_path):
    journal = make_journal(tmp_path / "journal", capacity=4 << 20, stage_bytes=1 << 20)
    append(journal, [(("a", 0), b"x" * 58, 1, None)] * 20_000)
    end = journal.published
    assert end < 4096 + 20_000 * 72 + 1000
    journal.seal()
    sealed = SealedJournal.open(FILESYSTEM, journal.path)
    assert sealed.bytes < end + 4 * 20_000 + end // 1024 + 3 * 4096


def test_closed_journal_says_so(tmp_path):
    sealed = make_sealed(tmp_path / "journal", Model())
    sealed.close()
    sealed.close()
    with pytest.raises(ClosedError):
        sealed.read(b"a", 0, 0, max_count=1, max_bytes=1)


@pytest.fixture(scope="module")
def specimen(tmp_path_factory):
    model = Model()
    path = tmp_path_factory.mktemp("log") / "journal"
    sealed = make_sealed(path, model, batches=2, rows=25, queues=5, capacity=16 << 10)
    sealed.close()
    return path.read_bytes(), model


def judge(path, data, model, *, whole=False):
    """Say whether damage was noticed; fail when it changed an answer."""
    path.write_bytes(data)
    try:
        sealed = SealedJournal.open(FILESYSTEM, path)
    except CorruptFileError:
        return True
    try:
        assert everything(sealed, model.queues) == model.queues
        return bool(sealed.check()) if whole else False
    except CorruptFileError:
        return True
    finally:
        sealed.close()


def test_flipped_bits_are_noticed_or_harmless(specimen, tmp_path):
    data, model = specimen
    unnoticed = []
    places = [
        *range(64),
        *range(64, 4096, 97),
        *range(4096, len(data), 5),
        *range(len(data) - 64, len(data)),
    ]
    for place in places:
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        if not judge(tmp_path / "journal", damaged, model):
            unnoticed.append(place)
    # Only bytes that no read here needed: the padding of blocks is under a checksum all the same.
    assert len(unnoticed) < len(places) // 20, unnoticed


def test_check_names_every_flipped_byte(specimen, tmp_path):
    data, model = specimen
    gaps = 0
    for place in range(4096, len(data), 61):
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        gaps += not judge(tmp_path / "journal", damaged, model, whole=True)
    assert gaps <= 1, "only the zero bytes between parts have no checksum"


def test_every_cut_and_growth_is_refused(specimen, tmp_path):
    data, _ = specimen
    path = tmp_path / "journal"
    lengths = [*range(0, len(data), 211), *range(len(data) - 70, len(data))]
    for damaged in [*(data[:length] for length in lengths), data + b"\0", data + data[-64:]]:
        path.write_bytes(damaged)
        with pytest.raises(CorruptFileError):
            SealedJournal.open(FILESYSTEM, path)


def test_blocks_of_another_file_or_place_are_noticed(specimen, tmp_path):
    data, model = specimen
    foreign_model = Model()
    foreign = make_sealed(
        tmp_path / "foreign", foreign_model, batches=2, rows=25, queues=5,
        capacity=16 << 10, uuid=bytes(16),
    )  # fmt: skip
    other = (tmp_path / "foreign").read_bytes()
    foreign.close()
    assert len(other) == len(data)
    for begin in range(0, len(data) - 4096, 4096):
        swapped = data[:begin] + other[begin : begin + 4096] + data[begin + 4096 :]
        assert swapped == data or judge(tmp_path / "journal", swapped, model, whole=True)
    moved = data[:4096] + data[8192:12288] + data[4096:8192] + data[12288:]
    assert judge(tmp_path / "journal", moved, model)


def test_slot_of_another_queue_is_an_error_and_no_answer(specimen, tmp_path):
    """Bytes that verify, and lead to a row of another queue: a writer's fault must not be an answer."""
    data, _ = specimen
    path = tmp_path / "journal"
    path.write_bytes(data)
    sealed = SealedJournal.open(FILESYSTEM, path)
    sealed.slots()  # verified
    queues = sealed.queues()
    writable = np.array(sealed.mapped_bytes)
    first, second = (int(queues["first_slot"][i]) for i in (0, 1))
    begin = sealed.footer.parts[Part.SLOTS].position
    slots = writable[begin : begin + 4 * sealed.message_count].view(np.uint32)
    slots[first] = slots[second]
    words = sealed._open_index.words
    words[0] = writable.ctypes.data
    topic = sealed.topics.name(int(queues["topic"][0]))
    with pytest.raises(CorruptFileError, match="no row of its queue"):
        sealed.read(topic, int(queues["queue_id"][0]), 0, max_count=9, max_bytes=MOST)


def test_joined_batches_are_one():
    parts = [MessageBatch(0, 1, 2, 0), MessageBatch(1, 2, 3, 0)]
    parts[0].body_offsets[:] = [0, 2]
    parts[1].body_offsets[:] = [0, 1, 3]
    parts[0].bodies[:], parts[1].bodies[:] = 1, 2
    joined = MessageBatch.join(parts, 0)
    assert [joined.body(i) for i in range(3)] == [b"\1\1", b"\2", b"\2\2"]
