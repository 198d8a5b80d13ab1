"""Grouped files against lists: compaction, reads by offset, by ranges, merges."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.logfile.grouped.grouped_files import (
    grouped_bytes,
    make_grouped,
    open_bytes,
    sealed_of,
)
from tests.logfile.log_files import (
    FILESYSTEM,
    MOST,
    Model,
    append,
    everything,
    make_journal,
    some_rows,
)
from tierdex.errors import CorruptFileError
from tierdex.logfile.check import check_log_file, open_log_file
from tierdex.logfile.columns import BinaryColumn, MessageColumns, QueueColumns
from tierdex.logfile.dump import describe_log_file
from tierdex.logfile.extras import Extra
from tierdex.logfile.grouped.file import GroupedFile
from tierdex.logfile.grouped.shares import FileShares
from tierdex.logfile.grouped.sources import GroupedSource, JournalSource
from tierdex.logfile.journal.file import SealedJournal
from tierdex.logfile.layout import Codec

CODECS = st.sampled_from(list(Codec))
QUEUES = st.tuples(st.sampled_from(["a", "orders", "é"]), st.integers(0, 2**31 - 1))


@settings(max_examples=25, deadline=None)
@given(
    rows=st.integers(0, 250), queues=st.integers(1, 60), page_bytes=st.sampled_from([256, 700, 16384]),
    codec=CODECS, filter_bits=st.sampled_from([0, 8, 16]), most=st.sampled_from([1, 60, 600]),
)  # fmt: skip
def test_grouped_file_answers_as_the_journal(
    tmp_path_factory, rows, queues, page_bytes, codec, filter_bits, most
):
    model = Model()
    listed = some_rows(rows, queues=queues, most_bytes=most)
    data = make_grouped(
        tmp_path_factory.mktemp("log"), [listed], model,
        page_bytes=page_bytes, codec=codec, filter_bits=filter_bits, extra={"covers": [1]},
    )  # fmt: skip
    file = open_bytes(data)
    assert everything(file, model.queues) == model.queues
    assert file.check() == []
    assert (file.message_count, file.queue_count) == (rows, len(model.queues))
    assert file.extra == {"covers": [1]}
    by_range = open_bytes(data, file.sidecar_position)
    assert everything(by_range, model.queues) == model.queues
    assert file.extent(b"nobody", 3) is None
    assert not len(file.read(b"orders", 2**31 - 1, 0, max_count=1, max_bytes=1))


@settings(max_examples=25, deadline=None)
@given(
    calls=st.lists(st.lists(st.tuples(QUEUES, st.binary(max_size=300)), max_size=40), min_size=1, max_size=4),
    codec=CODECS, left_out=st.booleans(),
)  # fmt: skip
def test_merge_of_files_is_the_file_of_all_messages(tmp_path_factory, calls, codec, left_out):
    """Of journals and grouped files in any mixture: the same bytes."""
    folder = tmp_path_factory.mktemp("log")
    model = Model()
    journals = []
    for number, call in enumerate(calls):
        rows = [
            (queue, body, i, Extra(keys=("k",)) if i % 3 else None)
            for i, (queue, body) in enumerate(call)
        ]
        for queue, *_ in rows:
            first = len(model.queues.get(queue, []))
            model.first_offsets.setdefault(queue, 0)
            del first
        path = folder / str(number)
        journal = make_journal(path, uuid=bytes([number]) * 16)
        if rows:
            append_on(journal, rows, model)
        journal.seal()
        journals.append(SealedJournal.open(FILESYSTEM, path))
    settings_ = {"page_bytes": 512, "codec": codec}
    without = [b"orders"] if left_out else []
    header = journals[0].header
    sources = [JournalSource(journal) for journal in journals]
    for source in sources:
        source.left_out = without
    merged = grouped_bytes(sources, header, **settings_)
    parts = [
        GroupedSource(
            open_bytes(grouped_bytes([JournalSource(journal)], journal.header, codec=codec)),
            without,
        )
        for journal in journals
    ]
    assert grouped_bytes(parts, header, **settings_) == merged
    mixed = [sources[0], *parts[1:]]
    assert grouped_bytes(mixed, header, **settings_) == merged
    file = open_bytes(merged)
    wanted = {q: m for q, m in model.queues.items() if not (left_out and q[0] == "orders")}
    assert everything(file, wanted) == wanted
    assert file.message_count == sum(map(len, wanted.values()))
    assert file.check() == []
    told = FileShares.of(open_bytes(grouped_bytes(parts, header, shared_by=parts, **settings_)))
    assert told.uuids == tuple(part.file.uuid for part in parts)
    assert [messages_of(file, counts) for counts in told.counts] == [
        {q: n for q, n in messages_of(part.file, part.queues.counts).items() if q[0] not in without}
        for part in parts
    ]
    pair = open_bytes(grouped_bytes(parts[:2], header, shared_by=parts[:2], **settings_))
    assert pair.check() == []
    nested = [GroupedSource(pair, without), *parts[2:]]
    again = FileShares.of(open_bytes(grouped_bytes(nested, header, shared_by=nested, **settings_)))
    assert again.uuids == told.uuids
    assert (again.counts == told.counts).all()


def messages_of(file, counts):
    """Return how many messages there are of each queue of a file that has any."""
    queues = zip(file.queues().topics, file.queues().queue_ids, counts, strict=True)
    return {(file.topics.name(topic), queue): n for topic, queue, n in queues if n}


def append_on(journal, rows, model):
    """Append to a further journal: its queues begin where the model ends."""
    names = list(dict.fromkeys(queue for queue, *_ in rows))
    first = np.array([len(model.queues.get(queue, [])) for queue in names])
    journal.define(QueueColumns.of(names), first)
    append(journal, rows, model)


def test_gap_between_two_files_is_refused(tmp_path):
    model = Model()
    first = sealed_of(tmp_path, [some_rows(20)], model)
    again = sealed_of(tmp_path, [some_rows(20)], Model(), uuid=bytes(16))
    with pytest.raises(CorruptFileError, match="do not go on"):
        grouped_bytes([JournalSource(first), JournalSource(again)], first.header)


def test_large_messages_have_pages_of_their_own(tmp_path):
    model = Model()
    rows = [
        (("a", 0), bytes([i]) * size, i, None) for i, size in enumerate([10, 5000, 3, 9000, 2, 2])
    ]
    file = open_bytes(make_grouped(tmp_path, [rows], model, page_bytes=1024, codec=Codec.PLAIN))
    assert everything(file, model.queues) == model.queues
    assert [file.page(i).message_count for i in range(file.page_count)] == [1, 1, 1, 1, 2]
    assert file.check() == []


def test_one_queue_over_many_chunks_and_pages(tmp_path):
    journal = make_journal(tmp_path / "journal", capacity=16 << 20, stage_bytes=1 << 20)
    count = 150_000
    numbers = journal.define(QueueColumns.of([("a", 1), ("b", 0), ("b", 7)]), np.array([5, 0, 9]))
    bodies = np.arange(count + 20, dtype=np.int64)
    which = np.zeros(count + 20, np.uint32)
    which[:10], which[-10:] = numbers[1], numbers[2]
    journal.append(
        MessageColumns(
            queues=which,
            bodies=BinaryColumn(np.arange(count + 21) * 8, bodies.view(np.uint8)),
            times=np.arange(count + 20),
        )
    )
    journal.seal()
    source = JournalSource(SealedJournal.open(FILESYSTEM, journal.path))
    file = open_bytes(grouped_bytes([source], journal.header, page_bytes=16384))
    assert file.check() == []
    random = np.random.default_rng(5)
    for ordinal in [0, count - 1, *random.integers(0, count, 100).tolist()]:
        batch = file.read(b"a", 1, 5 + ordinal, max_count=5000, max_bytes=MOST)
        assert len(batch) == min(5000, count - ordinal)
        assert batch.bodies.view(np.int64).tolist() == list(
            range(10 + ordinal, 10 + ordinal + len(batch))
        )
    assert len(file.read(b"a", 1, 5, max_count=MOST, max_bytes=8 * 9999)) == 9999
    # 8 bytes of body and a byte or two of columns a message, not a journal's 20.
    assert file.payload_bytes < 11 * count


def test_read_ends_at_count_and_bytes_over_pages(tmp_path):
    rows = [(("a", 0), bytes([i]) * 100, i, None) for i in range(50)]
    file = open_bytes(make_grouped(tmp_path, [rows], Model(), page_bytes=512))
    counts = [
        len(file.read(b"a", 0, 7, max_count=count, max_bytes=most))
        for count, most in [(30, MOST), (100, 1250), (100, 99), (100, 0), (0, MOST), (100, MOST)]
    ]
    assert counts == [30, 12, 1, 1, 0, 43]


def test_one_range_brings_all_pages_of_a_read(tmp_path):
    """What the service fetches in one request; the bytes of nothing else are looked at."""
    model = Model()
    data = make_grouped(tmp_path, [some_rows(400, queues=5)], model)
    position = open_bytes(data).sidecar_position

    def refuse(position, length):
        raise AssertionError("a page was read again")

    file = GroupedFile.from_sidecar(data[position:], refuse)
    for (topic, queue_id), held in model.queues.items():
        place = file.find(topic.encode(), queue_id)
        span = file.plan(place, 3, len(held))
        opened = {
            page.number: page for page in file.open_span(span, data[span.position :][: span.length])
        }
        found = file.read_pages(place, 3, max_count=MOST, max_bytes=MOST, pages=opened.__getitem__)
        assert list(found) == held[3:]
        with pytest.raises(CorruptFileError):
            file.open_span(span, data[span.position :][: span.length - 1])


def test_topic_is_a_contiguous_range_of_pages(tmp_path):
    file = open_bytes(make_grouped(tmp_path, [some_rows(500, queues=40)], Model()))
    firsts = file.directory()["first_queue"][:-1].astype(np.int64)
    topics = [file.topics.index_of_queue(int(queue)) for queue in firsts]
    assert topics == sorted(topics)
    names = [file.topics.name(i) for i in range(len(file.topics))]
    assert names == sorted(names)


def test_queues_cost_about_eight_bytes(tmp_path):
    journal = make_journal(tmp_path / "journal", capacity=8 << 20, stage_bytes=4 << 20)
    count = 20_000
    queues = QueueColumns(
        BinaryColumn.from_values([b"topic"]),
        np.zeros(count, np.uint32),
        np.arange(count, dtype=np.int32),
    )
    random = np.random.default_rng(2)
    first = random.integers(0, 1 << 30, count)
    done = 0
    while done < count:
        part = slice(done, done + journal.most_queues)
        one = QueueColumns(queues.topics, queues.topic_index[part], queues.queue_ids[part])
        numbers = journal.define(one, first[part])
        journal.append(
            MessageColumns(
                queues=np.repeat(numbers, 3),
                bodies=BinaryColumn(
                    np.zeros(3 * len(numbers) + 1, np.int64), np.empty(0, np.uint8)
                ),
                times=1,
            )
        )
        done += len(numbers)
    journal.seal()
    source = JournalSource(SealedJournal.open(FILESYSTEM, journal.path))
    file = open_bytes(grouped_bytes([source], journal.header, page_bytes=16384))
    assert file.check() == []
    rows = file.queues()
    assert rows.first_offsets.tolist() == first.tolist()
    assert file.bytes - file.sidecar_position < 8 * count
    assert all(file.may_contain(b"topic", i) for i in range(0, count, 97))
    strangers = sum(file.may_contain(b"topic", count + i) for i in range(2000))
    assert strangers < 40, "8 bits: one in 256"


def test_file_is_opened_checked_and_described_in_every_state(tmp_path):
    model = Model()
    journal = make_journal(tmp_path / "unsealed", capacity=1 << 16)
    append(journal, some_rows(50), model)
    journal.flush()
    sealed = sealed_of(tmp_path, [some_rows(50)], Model())
    (tmp_path / "grouped").write_bytes(grouped_bytes([JournalSource(sealed)], sealed.header))
    kinds = set()
    for path in (tmp_path / "unsealed", sealed.path, tmp_path / "grouped"):
        assert check_log_file(FILESYSTEM, path) == []
        described = describe_log_file(FILESYSTEM, path)
        assert (described["message_count"], described["queue_count"]) == (50, len(model.queues))
        opened = open_log_file(FILESYSTEM, path)
        kinds.add(type(opened).__name__)
        assert everything(opened, model.queues) == model.queues
        opened.close()
    assert kinds == {"Journal", "SealedJournal", "GroupedFile"}
    (tmp_path / "foreign").write_bytes(b"something else" * 999)
    assert "not a log file" in check_log_file(FILESYSTEM, tmp_path / "foreign")[0]


def test_empty_journal_makes_an_empty_file(tmp_path):
    file = open_bytes(make_grouped(tmp_path, [], Model(), queue_table=b"table"))
    assert (file.message_count, file.page_count, file.min_time, file.max_time) == (0, 0, 0, -1)
    assert file.check() == []
    assert file.queue_table() == b"table"
    assert not file.may_contain(b"a", 0)
