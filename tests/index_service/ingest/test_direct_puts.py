"""Single puts without a lock: what they take, what they leave to the general path, nothing half done."""

from __future__ import annotations

import threading
from contextlib import closing

import numpy as np
import pytest

from tests.indexfile.chained_files import FILESYSTEM, key, make_file, message_id, offsets_of
from tests.indexfile.searches import find_all
from tierdex.index_service.ingest import direct_puts as put_buffer
from tierdex.index_service.ingest.direct_puts import DirectPuts
from tierdex.index_service.requests.put import CheckedPut
from tierdex.indexfile.chained.file import ChainedFile

GOOD = {
    "keys": ["k"], "message_id": None, "timestamp": 4, "offset": 2, "size": 3, "queue_id": 1,
}  # fmt: skip


class Text(str):
    __slots__ = ()


class Number(int):
    __slots__ = ()


class Names(list):
    __slots__ = ()


REFUSED = [
    {"keys": [""]}, {"keys": [5]}, {"keys": ["k", 5]}, {"keys": ("k", "")},
    {"keys": [b"k"]}, {"keys": ["\ud800"]}, {"keys": ["k" * 9]}, {"keys": ["ä" * 5]},
    {"keys": ["k", "k" * 9]}, {"keys": iter(["k"])}, {"keys": None}, {"keys": []},
    {"keys": [None]}, {"keys": Names(["k"])},
    {"message_id": ""}, {"message_id": 5}, {"message_id": "m" * 9}, {"message_id": ["m"]},
    {"queue_id": -1}, {"queue_id": 1 << 31}, {"queue_id": None},
    {"offset": -1}, {"offset": 1 << 63}, {"offset": 1.0}, {"offset": True}, {"offset": "1"},
    {"offset": np.float64(1)}, {"offset": np.uint64((1 << 64) - 1)},
    {"size": -1}, {"size": 1 << 32}, {"size": 1 << 64}, {"size": False},
    {"timestamp": 1 << 63}, {"timestamp": -(1 << 63) - 1}, {"timestamp": 1.5},
]  # fmt: skip
TAKEN = [
    {"keys": "k"}, {"keys": ("k",)}, {"keys": ["k", "l"]}, {"keys": ("k", "ü", "l") * 5},
    {"keys": [Text("k")]}, {"keys": Text("k")}, {"message_id": Text("m")},
    {"keys": ["k", "k"], "message_id": "m"},
    {"queue_id": np.int32(1)}, {"offset": np.uint64(1 << 62)}, {"timestamp": Number(1)},
]  # fmt: skip
EXTREMES = [
    {"keys": ["ä" * 4]}, {"keys": ["k" * 8]}, {"timestamp": -(1 << 63)},
    {"timestamp": (1 << 63) - 1}, {"offset": (1 << 63) - 1}, {"size": (1 << 32) - 1},
    {"queue_id": (1 << 31) - 1}, {"keys": None, "message_id": "m" * 8},
    {"keys": [], "message_id": "ü"},
]  # fmt: skip


class Puts:
    """A buffer with a file behind it; what the writer does, by hand."""

    def __init__(self, path, *, entries=64, item_capacity=10_000):
        self.file = make_file(path, item_capacity=item_capacity)
        self.buffer = DirectPuts(entries, item_capacity, 8)

    def slowly(self, topic, *, keys=(), message_id=None, timestamp, offset, size, queue_id):
        keys = (keys,) if isinstance(keys, str) else tuple(keys or ())
        entry = CheckedPut(topic, keys, message_id, timestamp, offset, size, queue_id)
        assert self.buffer.learn(topic)
        return self.buffer.items_of(entry)

    def write(self, rows):
        self.buffer.shut()
        self.file.append([rows])
        self.buffer.open_to(self.file, rows.topics)

    def go(self, level, topic, *, keys=None, message_id=None, timestamp, offset, size, queue_id):
        """Say whether a put went its way at once."""
        seed, number = self.buffer.topics[topic]
        return self.buffer.kernels[level](
            self.buffer.arguments, keys, message_id, seed, number, timestamp, offset, size, queue_id
        )

    def put(self, topic, **message):
        """Append one message, on the general path when it has to be."""
        if topic not in self.buffer.topics or not self.go("os", topic, **message):
            self.write(self.slowly(topic, **message))
            return False
        return True


@pytest.fixture
def puts(tmp_path):
    puts = Puts(tmp_path / "file")
    puts.write(puts.slowly("t", **GOOD))
    yield puts
    assert puts.file.check() == []
    puts.file.close()


def waiting(buffer):
    rows = buffer.gathered()
    return [] if rows is None else rows.rows["offset"].tolist()


@pytest.mark.parametrize("level", ["received", "os"])
@pytest.mark.parametrize("wrong", REFUSED, ids=lambda wrong: " ".join(wrong))
def test_what_no_entry_may_have_is_refused_with_nothing_done(puts, level, wrong):
    before = puts.file.snapshot
    assert not puts.go(level, "t", **{**GOOD, **wrong})
    assert (puts.file.snapshot, waiting(puts.buffer)) == (before, [])


class Cutting:
    """An integer that empties a list when it is looked at."""

    def __init__(self, keys):
        self._keys = keys

    def __index__(self):
        self._keys.clear()
        return 1


def test_keys_that_go_while_the_other_values_are_taken_are_refused(puts):
    before = puts.file.snapshot
    for level in ("received", "os"):
        keys = ["k", "l"]
        assert not puts.go(level, "t", **{**GOOD, "keys": keys, "queue_id": Cutting(keys)})
    assert (puts.file.snapshot, waiting(puts.buffer)) == (before, [])


@pytest.mark.parametrize("given", [*EXTREMES, *TAKEN], ids=str)
def test_both_kernels_keep_every_bit(puts, given):
    message = {**GOOD, **given}
    assert puts.go("os", "t", **message)
    assert puts.go("received", "t", **message)
    expected = puts.slowly("t", **message).rows
    found = puts.buffer.gathered()
    assert (found.rows.tolist(), found.topics) == (expected.tolist(), ["t"])
    keys = message["keys"] or [None]
    text = keys if isinstance(keys, str) else keys[0]
    lookup = key(text, "t") if text else message_id(message["message_id"])
    stored = find_all(puts.file, lookup)[0]
    for name in ("key_hash", "tag", "timestamp", "offset", "size", "queue_id"):
        assert stored[name] == expected[0][name], name


def test_messages_one_by_one_equal_batches_of_one(tmp_path):
    """Byte for byte, whichever way they went; and recovery finds the same."""
    rows = [
        (f"t{n % 3}", {
            "keys": None if n % 7 == 2 else [f"key-{n % 50}"],
            "message_id": f"m{n}" if n % 7 in (2, 5) else None,
            "timestamp": n * (-1) ** n, "offset": n << 40, "size": n % 1000, "queue_id": n,
        })
        for n in range(3000)
    ]  # fmt: skip
    slow, quick = Puts(tmp_path / "slow"), Puts(tmp_path / "quick")
    for topic, message in rows:
        slow.write(slow.slowly(topic, **message))
    went = [quick.put(topic, **message) for topic, message in rows]
    assert sum(went) > 2900
    assert quick.file.snapshot == slow.file.snapshot
    assert quick.file.end_offsets() == slow.file.end_offsets()
    assert quick.file.check() == []
    assert offsets_of(quick.file, key("key-49", "t2"))[0] == 2999 << 40
    expected = quick.file.snapshot, quick.file.end_offsets()
    slow.file.close()
    quick.file.close()
    assert (tmp_path / "quick").read_bytes() == (tmp_path / "slow").read_bytes()
    with closing(ChainedFile.recover(FILESYSTEM, tmp_path / "quick")) as recovered:
        assert (recovered.snapshot, recovered.end_offsets()) == expected


def test_messages_fill_a_file_through_every_reservation(tmp_path):
    puts = Puts(tmp_path / "file", item_capacity=20_000)
    with closing(puts.file) as file:
        went = sum(
            puts.put("t", **{**GOOD, "keys": [f"{n}"], "queue_id": n, "message_id": f"m{n}"})
            for n in range(9_999)
        )
        assert went > 9_900
        assert puts.put("t", **GOOD)
        assert not puts.go("os", "t", **{**GOOD, "message_id": "m"})
        assert puts.put("t", **GOOD)
        assert file.is_full
        assert not puts.go("os", "t", **GOOD)
        assert file.item_count == 20_000
        assert len(file.end_offsets()) == 9_999
        assert file.check() == []


def test_what_waits_comes_first(puts):
    assert puts.go("received", "t", **GOOD)
    assert not puts.go("os", "t", **GOOD)
    puts.buffer.drop(1)
    assert puts.go("os", "t", **GOOD)


def test_two_names_go_together_at_both_levels(puts):
    message = {**GOOD, "message_id": "m"}
    assert puts.go("os", "t", **message)
    assert puts.go("received", "t", **message)
    rows = puts.buffer.gathered()
    assert rows.rows.tobytes() == puts.slowly("t", **message).rows.tobytes()
    puts.write(rows)
    assert offsets_of(puts.file, key("k", "t")) == [2, 2, 2]
    assert offsets_of(puts.file, message_id("m")) == [2, 2]


def test_rows_of_many_topics_wait_in_order(puts):
    for topic in ("b", "a", "never used"):
        puts.slowly(topic, **GOOD)
    for offset, topic in enumerate(["a", "t", "b", "a"]):
        assert puts.go("received", topic, **{**GOOD, "offset": offset})
    assert puts.go("received", "b", **{**GOOD, "message_id": "m", "offset": 9})
    puts.write(puts.buffer.gathered())
    assert offsets_of(puts.file, key("k", "a")) == [3, 0]
    assert offsets_of(puts.file, key("k", "b")) == [9, 2]
    assert offsets_of(puts.file, message_id("m")) == [9]
    assert sorted(puts.file.topics) == ["a", "b", "t"]


def test_a_full_buffer_takes_nothing(tmp_path):
    puts = Puts(tmp_path / "file", entries=3)
    with closing(puts.file):
        puts.slowly("t", **GOOD)
        assert puts.go("received", "t", **{**GOOD, "message_id": "m"})
        assert not puts.go("received", "t", **{**GOOD, "message_id": "m"})
        assert puts.go("received", "t", **{**GOOD, "offset": 7})
        assert not puts.go("received", "t", **GOOD)
        assert waiting(puts.buffer) == [2, 2, 7]
        puts.buffer.drop(2)
        assert (waiting(puts.buffer), puts.buffer.waits[0]) == ([7], 1)
        puts.buffer.drop(1)
        assert (waiting(puts.buffer), puts.buffer.waits[0]) == ([], 0)


def test_shut_kernels_take_nothing(puts):
    puts.buffer.shut()
    assert not puts.go("os", "t", **GOOD)
    puts.buffer.open_to(puts.file, ())
    assert puts.go("os", "t", **GOOD)
    puts.file.suspect = True
    puts.buffer.shut()
    puts.buffer.open_to(puts.file, ())
    assert not puts.go("os", "t", **GOOD)
    puts.file.suspect = False
    puts.buffer.refuse()
    puts.buffer.open_to(puts.file, ())
    assert not puts.go("os", "t", **GOOD)
    assert not puts.go("received", "t", **GOOD)
    puts.buffer.drop(0)
    assert not puts.go("received", "t", **GOOD)


def test_another_file_has_topics_of_its_own(puts, tmp_path):
    puts.write(puts.slowly("u", **GOOD))
    assert puts.go("os", "u", **GOOD)
    other = Puts(tmp_path / "other")
    with closing(other.file):
        puts.buffer.close_file()
        assert not puts.go("os", "u", **GOOD)
        rows = puts.slowly("u", **GOOD)
        other.file.append([rows])
        puts.buffer.open_to(other.file, ["u"])
        assert not puts.go("os", "t", **GOOD)
        assert puts.go("os", "u", **{**GOOD, "offset": 8})
        assert offsets_of(other.file, key("k", "u")) == [8, 2]


def test_a_forgotten_topics_number_is_refused(puts, monkeypatch):
    monkeypatch.setattr(put_buffer, "_TOPICS_REMEMBERED", 2)
    buffer = puts.buffer
    puts.slowly("u", **GOOD)
    assert buffer.learn("t")
    assert not buffer.learn("v")
    seed, number = buffer.topics["t"]
    assert puts.go("received", "t", **GOOD)
    buffer.forget_topics()  # not while rows wait that have them
    assert "t" in buffer.topics
    puts.write(buffer.gathered())
    buffer.drop(1)
    buffer.forget_topics()
    assert buffer.topics == {}
    puts.write(puts.slowly("v", **GOOD))
    for kernel in buffer.kernels.values():
        assert not kernel(buffer.arguments, ["k"], None, seed, number, 4, 2, 3, 1)
    assert puts.go("os", "v", **{**GOOD, "offset": 5})
    assert puts.go("received", "v", **{**GOOD, "offset": 6})
    assert buffer.gathered().topics == ["v"]
    assert offsets_of(puts.file, key("k", "v")) == [5, 2]


def test_nothing_is_lost_between_threads_that_put_and_one_that_writes(puts):
    """Each thread's puts are found once and in its order, whatever other threads put or write meanwhile."""
    lock, stop = threading.Lock(), threading.Event()

    def put_all(thread):
        for number in range(3000):
            message = {**GOOD, "keys": [f"{thread}"], "offset": number}
            level = "os" if number % 50 == 7 else "received"
            while not puts.go(level, "t", **message):
                with lock:
                    flush()
                if level == "os":
                    with lock:
                        flush()
                        puts.write(puts.slowly("t", **message))
                    break

    def flush():
        rows = puts.buffer.gathered()
        if rows is not None:
            puts.write(rows)
            puts.buffer.drop(rows.row_count)

    def keep_flushing():
        while not stop.is_set():
            with lock:
                flush()

    threads = [threading.Thread(target=put_all, args=(number,)) for number in range(3)]
    flusher = threading.Thread(target=keep_flushing)
    for each in (*threads, flusher):
        each.start()
    for each in threads:
        each.join()
    stop.set()
    flusher.join()
    flush()
    for thread in range(3):
        assert offsets_of(puts.file, key(f"{thread}", "t")) == list(range(2999, -1, -1))


def test_entries_larger_than_the_buffer_do_not_wait(puts):
    message = {**GOOD, "keys": [f"{number}" for number in range(65)]}
    assert not puts.go("received", "t", **message)
    assert waiting(puts.buffer) == []
    assert puts.slowly("t", **message).row_count == 65
