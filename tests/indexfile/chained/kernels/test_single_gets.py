"""One key in a file of messages, by one call: the message, none, or to be asked otherwise."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.indexfile.chained_files import FILESYSTEM, make_file, make_part
from tierdex.fileparts.layout import BLOCK_BYTES
from tierdex.indexfile.chained.file import ChainedFile
from tierdex.indexfile.chained.message_finder import MessageFinder
from tierdex.indexfile.hashing import MESSAGE_ID_SEED, key_hash, topic_seed
from tierdex.indexfile.layout import HEADER_BYTES, KIND_BIT, KIND_KEY, KIND_MESSAGE_ID
from tierdex.indexfile.lookup import Search

MOST_BYTES = 16
NOTHING = (0, 0, 0, 0, 0, 0, 0)
OTHERWISE = (-1, 0, 0, 0, 0, 0, 0)


@pytest.fixture
def file(tmp_path):
    with closing(make_file(tmp_path / "file")) as made:
        made.append([make_part(["a", "b", "b", "ä"], topic="t1")])
        yield made


def finder(file, topic):
    seed = MESSAGE_ID_SEED if topic is None else topic_seed(topic)
    signed = seed - (1 << 64) if seed >> 63 else seed
    return MessageFinder([file], topic, signed, MOST_BYTES)


def asking(file, topic):
    """Return the `ask` of a finder that lives as long: it owns the memory that is looked at."""
    found = finder(file, topic)
    return lambda name: found.ask(name)


def place_of(file, text, topic):
    """Return where `search` finds the one message of a key."""
    found = file.search(Search.of([key_hash(topic, text)], file.tag_of(topic, KIND_KEY)))
    (place,) = found.places.tolist()
    return place


def test_only_message_of_a_key_is_found(file):
    ask = asking(file, "t1")
    assert ask("a") == (1, 0, 0, 100, 1000, place_of(file, "a", "t1"), 0)
    assert ask("ä") == (1, 0, 300, 100, 1003, place_of(file, "ä", "t1"), 0)
    assert ask("b") == OTHERWISE  # two
    assert ask("absent") == NOTHING
    assert file.finder_arguments("t2") is None


def test_message_id_is_found_under_every_topic(file):
    ask = asking(file, None)
    assert ask("m") == NOTHING
    for topic in ("t1", "t2"):
        file.append([make_part([f"id-{topic}"], topic=topic, kind=KIND_MESSAGE_ID)])
    assert ask("id-t1")[0] == 1 + KIND_BIT
    assert ask("id-t2")[0] == 2 + KIND_BIT
    assert ask("a") == NOTHING


@pytest.mark.parametrize("name", ["", "x" * 17, "ä" * 9, "\ud800", b"a", 5, None, ["a"]])
def test_name_that_is_not_plain_is_asked_otherwise(file, name):
    assert asking(file, "t1")(name) == OTHERWISE


def test_longest_name_is_plain(file):
    assert asking(file, "t1")("x" * 16) == NOTHING


def test_later_messages_are_found_by_an_older_finder(file):
    ask = asking(file, "t1")
    assert ask("new") == NOTHING
    file.append([make_part(["new"], topic="t1", first=7, queue_id=3)])
    assert ask("new") == (1, 3, 700, 100, 1007, place_of(file, "new", "t1"), 0)


def test_key_in_a_long_chain_is_asked_otherwise(tmp_path):
    with closing(make_file(tmp_path / "one-slot", slot_count=1)) as made:
        made.append([make_part([str(n) for n in range(64)])])
        ask = asking(made, "orders")
        assert ask("0")[:5] == (1, 0, 0, 100, 1000)
        made.append([make_part(["more"])])
        assert ask("0") == OTHERWISE


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
        assert [ask(f"k{n}")[2] for n in range(500)] == [100 * n for n in range(500)]
