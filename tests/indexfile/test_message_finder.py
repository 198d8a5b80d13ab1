"""One name in files of messages, by one call: its entries, none, or to be asked otherwise."""

from __future__ import annotations

import gc
from contextlib import closing
from typing import NamedTuple

import numpy as np
import pytest

from tests.indexfile.chained_files import FILESYSTEM, make_file, make_part
from tierdex.fileparts.layout import BLOCK_BYTES
from tierdex.indexfile.chained.file import ChainedFile
from tierdex.indexfile.column_search import search_file
from tierdex.indexfile.hashing import MESSAGE_ID_SEED, key_hash, topic_seed
from tierdex.indexfile.layout import HEADER_BYTES, KIND_KEY, KIND_MESSAGE_ID, TAG_NONE
from tierdex.indexfile.lookup import START, TIME_MAX, TIME_MIN, Search
from tierdex.indexfile.message_finder import OTHERWISE, MessageFinder, Told, tag_in

MOST_BYTES = 16


class Row(NamedTuple):
    """What an entry is here: the last field comes from the file."""

    topic: str
    queue_id: int
    offset: int
    size: int
    timestamp: int
    file: str


@pytest.fixture
def file(tmp_path):
    with closing(make_file(tmp_path / "file")) as made:
        made.append([make_part(["a", "b", "b", "ä"], topic="t1")])
        yield made


def asking(files, topic):
    """Return what asks for all entries of a name; the answer of the kernel where there are none."""
    seed = MESSAGE_ID_SEED if topic is None else topic_seed(topic)
    files = files if isinstance(files, list) else [files]
    named = [(file, (f"file {number}",)) for number, file in enumerate(files)]
    finder = MessageFinder(named, topic, seed, kind=Row, most_bytes=MOST_BYTES)

    def ask(name, most=64):
        entries = []
        found = finder.find(name, entries, TIME_MIN, TIME_MAX, most, 0, START, 0)
        return entries if found[0] >= 0 else found[0]

    ask.finder = finder
    return ask


def test_entries_of_a_key_are_found_newest_first(file):
    ask = asking(file, "t1")
    assert ask("a") == [Row("t1", 0, 0, 100, 1000, "file 0")]
    assert type(ask("a")[0]) is Row
    assert ask("ä") == [Row("t1", 0, 300, 100, 1003, "file 0")]
    assert [row.offset for row in ask("b")] == [200, 100]
    assert ask("absent") == []
    assert tag_in(file, "t2") == TAG_NONE


def test_rows_that_the_kernel_makes_are_objects_like_any_other(file):
    ask = asking(file, "t1")
    kept = [ask("b") for _ in range(1000)]
    del kept[::2]
    gc.collect()
    assert gc.isenabled()
    assert all(rows == ask("b") for rows in kept)
    assert gc.is_tracked(kept[0][0])


def test_collector_that_is_off_stays_off(file):
    ask = asking(file, "t1")
    gc.disable()
    try:
        ask("b")
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_message_id_is_found_under_every_topic(file):
    ask = asking(file, None)
    assert ask("m") == []
    for topic in ("t1", "t2"):
        file.append([make_part(["m"], topic=topic, kind=KIND_MESSAGE_ID)])
    assert [row.topic for row in ask("m")] == ["t2", "t1"]
    assert ask("a") == []


def test_repeats_in_other_files_are_found_once(tmp_path, file):
    with closing(make_file(tmp_path / "other")) as other:
        other.append([make_part(["x"], topic="t0")])  # t1 has another number here
        other.append([make_part(["a"], topic="t1")])
        other.append([make_part(["m"], topic="t1", kind=KIND_MESSAGE_ID)])
        file.append([make_part(["m"], topic="t1", kind=KIND_MESSAGE_ID)])
        assert [row.file for row in asking([other, file], "t1")("a")] == ["file 0"]
        assert [row.file for row in asking([other, file], None)("m")] == ["file 0"]


def test_page_tells_where_its_last_entry_lies_and_goes_on_there(file):
    file.append([make_part(["b"] * 5, topic="t1", first=10)])
    finder = asking(file, "t1").finder
    entries, place, found = [], START, []
    while True:
        count, *_, last = finder.find("b", entries, TIME_MIN, TIME_MAX, 3, 0, place, 1)
        told = Told.of(entries.pop(), len(entries))
        page = entries[place != START :]
        assert told.latest == max(row.timestamp for row in page)
        assert list(told.places)[-1] == last
        found += page
        if count <= 3:
            break
        entries, place = [], last
    assert [row.offset for row in found] == [1400, 1300, 1200, 1100, 1000, 200, 100]
    assert finder.find("a", [], TIME_MIN, TIME_MAX, 3, 0, last, 0)[0] == OTHERWISE


@pytest.mark.parametrize("name", ["", "x" * 17, "ä" * 9, "\ud800", b"a", 5, None, ["a"]])
def test_name_that_is_not_plain_is_asked_otherwise(file, name):
    assert asking(file, "t1")(name) == OTHERWISE


def test_what_is_no_list_is_not_appended_to(file):
    finder = asking(file, "t1").finder
    for other in ((), {}, None):
        assert finder.find("a", other, TIME_MIN, TIME_MAX, 3, 0, START, 0)[0] == OTHERWISE


def test_longest_name_is_plain(file):
    assert asking(file, "t1")("x" * 16) == []


def test_name_of_a_subclass_of_str_is_plain(file):
    assert asking(file, "t1")(np.str_("a")) == asking(file, "t1")("a")


def test_later_messages_are_found_by_an_older_finder(file):
    ask = asking(file, "t1")
    assert ask("new") == []
    file.append([make_part(["new"], topic="t1", first=7, queue_id=3)])
    assert ask("new") == [Row("t1", 3, 700, 100, 1007, "file 0")]


def test_long_chain_is_left_where_it_has_to_be_gone_on(tmp_path):
    with closing(make_file(tmp_path / "one-slot", slot_count=1)) as made:
        made.append([make_part([str(n) for n in range(3000)])])
        finder, entries = asking(made, "orders").finder, []
        count, file, place, *_ = finder.find("2999", entries, TIME_MIN, TIME_MAX, 64, 0, START, 0)
        assert (count, file) == (1, 0)
        assert Told.of(entries.pop(), 1).items[0] == 2048
        search = Search.of(
            [key_hash("orders", "0")], made.tag_of("orders", KIND_KEY), places=[place]
        )
        assert search_file(made, search).rows["offset"].tolist() == [0]


def test_closed_file_is_asked_otherwise(tmp_path):
    made = make_file(tmp_path / "closed")
    made.append([make_part(["a"])])
    ask = asking(made, "orders")
    made.close()
    assert ask("a") == OTHERWISE


def test_damage_is_asked_otherwise(tmp_path):
    path = tmp_path / "sealed"
    with closing(make_file(path)) as made:
        made.append([make_part(["a"])])
        made.seal()
    data = bytearray(path.read_bytes())
    data[HEADER_BYTES] ^= 1
    path.write_bytes(data)
    with closing(ChainedFile.open_sealed(FILESYSTEM, path)) as made:
        assert asking(made, "orders")("a") == OTHERWISE


def test_sealed_file_is_found_in(tmp_path):
    path = tmp_path / "sealed"
    with closing(make_file(path, slot_count=BLOCK_BYTES)) as made:
        made.append([make_part([f"k{n}" for n in range(500)])])
        made.seal()
    with closing(ChainedFile.open_sealed(FILESYSTEM, path)) as made:
        ask = asking(made, "orders")
        assert [row.offset for n in range(500) for row in ask(f"k{n}")] == [
            100 * n for n in range(500)
        ]
