"""What a later load of the same files does: leave out, go on, begin anew."""

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.app.recording_index import RecordingIndex
from tierdex.app.load import file_load
from tierdex.app.load.loader import Loader, Watch
from tierdex.app.load.plan import LoadOptions
from tierdex.app.load.register import LoadRegister
from tierdex.app.load.sources import Sources
from tierdex.clock import ManualClock
from tierdex.errors import InvalidRequestError
from tierdex.filesystem import LocalFileSystem

FILES = LocalFileSystem()
OPTIONS = LoadOptions(topic="o", keys=("id",))
NOW_MS = 1_700_000_000_000
LATER = NOW_MS - 60_000


@pytest.fixture
def register(tmp_path):
    return LoadRegister(FILES, tmp_path / "data")


@pytest.fixture
def small_blocks(monkeypatch):
    read = file_load.read_blocks
    monkeypatch.setattr(
        file_load, "read_blocks", lambda *a, **k: read(*a, **{**k, "block_bytes": 64})
    )


def write(path, data, changed_ms=LATER):
    path.write_bytes(data)
    os.utime(path, ns=(changed_ms * 1_000_000,) * 2)
    return path


def run(register, given, options=OPTIONS, watch=None, index=None, **more):
    """Return the (key, time) of each new entry, and the report."""
    index = index or RecordingIndex()
    clock = more.pop("clock", None) or ManualClock(NOW_MS)
    report = Loader(index, register=register, clock=clock).load(given, options, watch, **more)
    return [(put.key, put.timestamp) for put in index.puts], report


def keys(register, given, **more):
    return [key for key, _ in run(register, given, **more)[0]]


def stopping_after(pieces):
    seen = iter([False] * (pieces - 1) + [True] * 9)
    return Watch(stop=lambda: next(seen))


def lines(first, end):
    return b"".join(b"K%03d,padding\n" % n for n in range(first, end))


def names(first, end):
    return [f"K{n:03}" for n in range(first, end)]


def test_loaded_files_are_left_out_unread(tmp_path, register, monkeypatch):
    paths = [write(tmp_path / f"{n}.csv", b"id\nA%d\n" % n) for n in range(2)]
    assert keys(register, paths) == ["A0", "A1"]
    monkeypatch.setattr(Sources, "opened", None)
    found, report = run(register, paths)
    assert (found, report.unchanged, report.files) == ([], 2, 0)
    monkeypatch.undo()
    assert keys(register, paths, again=True) == ["A0", "A1"]


def test_other_options_are_another_load(tmp_path, register):
    path = write(tmp_path / "a.csv", b"id,b\nA,B\n")
    assert keys(register, path) == ["A"]
    assert keys(register, path, options=LoadOptions(topic="o", keys=("b",))) == ["B"]
    assert keys(register, path, options=LoadOptions(topic="p", keys=("id",))) == ["A"]
    assert keys(register, path) == []


@pytest.mark.parametrize("kind", ["csv", "jsonl", "csv.gz", "parquet"])
def test_touched_file_is_known_by_its_digest(tmp_path, register, kind):
    path = tmp_path / f"a.{kind}"
    if kind == "parquet":
        pq.write_table(pa.table({"id": ["A"]}), path)
        data = path.read_bytes()
    else:
        data = b'{"id": "A"}\n' if kind == "jsonl" else b"id\nA\n"
        data = pa.compress(data, "gzip", asbytes=True) if kind == "csv.gz" else data
    assert keys(register, write(path, data)) == ["A"]
    found, report = run(register, write(path, data, LATER + 5000))
    assert (found, report.unchanged) == ([], 1)


def test_rows_that_were_appended_are_loaded(tmp_path, register):
    path = write(tmp_path / "a.csv", b"id,p\n" + lines(0, 9))
    assert keys(register, path) == names(0, 9)
    write(path, b"id,p\n" + lines(0, 12), LATER + 1)
    assert run(register, path)[0] == [(name, LATER + 1) for name in names(9, 12)]
    write(path, b"id,p\n" + lines(0, 12) + b"K0,x", LATER + 2)  # a line that is being written
    assert keys(register, path) == []
    write(path, b"id,p\n" + lines(0, 12) + b"K0,xyz\nK013,x\n", LATER + 3)
    assert keys(register, path) == ["K0", "K013"]


def test_file_with_other_rows_is_loaded_from_its_begin(tmp_path, register):
    path = write(tmp_path / "a.csv", b"id,p\n" + lines(0, 9))
    keys(register, path)
    write(path, b"p,id\nx,Z\n" + lines(0, 12), LATER + 1)
    assert keys(register, path)[0] == "Z"


def test_rewritten_file_of_the_same_time_and_size_is_read(tmp_path, register):
    """A clock ticks in milliseconds at best: what changed just now may change once more unseen."""
    path = write(tmp_path / "a.csv", b"id\nA\n", NOW_MS - 1)
    assert keys(register, path) == ["A"]
    assert keys(register, write(path, b"id\nB\n", NOW_MS - 1)) == ["B"]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("kind", ["csv", "jsonl", "csv.gz"])
def test_stopped_load_goes_on_where_it_was(tmp_path, register, kind):
    data = b"id,p\n" + lines(0, 40)
    if kind == "jsonl":
        data = b"".join(b'{"id": "K%03d"}\n' % n for n in range(40))
    elif kind == "csv.gz":
        data = pa.compress(data, "gzip", asbytes=True)
    path = write(tmp_path / f"a.{kind}", data)
    index = RecordingIndex()
    first, report = run(register, path, watch=stopping_after(2), index=index)
    assert 0 < len(first) < 40
    assert report.stopped_at == f"{path}:{len(first) + (kind != 'jsonl') + 1}"
    assert index.flushed == ["disk"]
    os.utime(path)  # touched since: the rest keeps the time of its load
    rest, report = run(register, path, clock=ManualClock(NOW_MS))
    assert first + rest == [(name, LATER) for name in names(0, 40)]
    assert report.stopped_at is None


def test_stopped_load_of_parquet_goes_on_behind_its_row_groups(tmp_path, register):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": names(0, 40)}), path, row_group_size=10)
    os.utime(path, ns=(LATER * 1_000_000,) * 2)
    first, report = run(register, path, watch=stopping_after(2))
    assert [key for key, _ in first] == names(0, 20)
    assert report.stopped_at == f"{path}: row 20"
    assert keys(register, path) == names(20, 40)
    assert keys(register, path) == []


@pytest.mark.usefixtures("small_blocks")
def test_load_that_a_bad_row_ended_goes_on_when_it_is_corrected(tmp_path, register):
    good = b"id,p\n" + lines(0, 20)
    path = write(tmp_path / "a.csv", good + b"BAD\n" + lines(20, 30))
    index = RecordingIndex()
    with pytest.raises(InvalidRequestError, match=r"a.csv:22: has 1 fields"):
        run(register, path, index=index)
    before = [put.key for put in index.puts]
    assert before == names(0, len(before))
    assert len(before) > 10
    write(path, good + lines(20, 30), LATER + 1)
    assert keys(register, path) == names(len(before), 30)


def test_touched_file_without_a_last_line_break_repeats_no_other_time(tmp_path, register):
    path = write(tmp_path / "a.csv", b"id\nA\nB")
    first, _ = run(register, path)
    again, _ = run(register, write(path, b"id\nA\nB", LATER + 9))
    assert set(again) <= set(first)


@pytest.mark.usefixtures("small_blocks")
def test_kill_between_putting_and_noting_puts_again_the_same_entries(tmp_path, register):
    """No note is written without its entries on disk, so a crash repeats entries and loses none."""
    path = write(tmp_path / "a.csv", b"id,p\n" + lines(0, 40))
    clock = ManualClock(NOW_MS)

    class Killed(Exception):
        pass

    class Index(RecordingIndex):
        durable = 0

        def put_batch(self, **columns):
            clock.advance(4.0)
            super().put_batch(**columns)
            if len(self.puts) > 25:
                raise Killed

        def flush(self, durability="os"):
            self.durable = len(self.puts)
            return super().flush(durability)

    index = Index()
    with pytest.raises(Killed):
        run(register, path, index=index, clock=clock)
    assert 0 < index.durable < len(index.puts)
    os.utime(path)
    put = [(one.key, one.timestamp) for one in index.puts]
    rest, _ = run(register, path)
    assert rest[0][0] == f"K{index.durable:03}"  # nothing that may be lost is left out
    assert {*put, *rest} == {
        (name, LATER) for name in names(0, 40)
    }  # what is put twice is the same
