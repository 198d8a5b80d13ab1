"""All rows in hash order: sorted, newest first among equals, each exactly once, or an error."""

import numpy as np
import pytest

from tests.indexfile.chained_files import make_file, make_part
from tierdex.errors import CorruptFileError
from tierdex.indexfile.chained.kernels.chain_walk import CHAIN_ITEMS
from tierdex.indexfile.layout import KIND_MESSAGE_ID
from tierdex.indexfile.row_bounds import RowBounds
from tierdex.indexfile.schema import Schema, SchemaField


def walk(file, chunk_items=65_536):
    chunks = list(file.rows_in_hash_order(chunk_items))
    return np.concatenate(chunks) if chunks else np.empty(0, file.schema.dtype)


def expected_offsets(names: list[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row, name in enumerate(names):
        found.setdefault(name, []).insert(0, row * 100)
    return found


@pytest.mark.parametrize(
    ("distinct", "slot_count"),
    [(5000, 2000), (5000, 1), (3, 7), (1, 1), (300, 1), (5000, 65)],
    ids=["usual", "one_long_chain", "hot_keys", "one_key", "overfull", "long_chains"],
)
def test_rows_come_sorted_with_the_newest_of_equals_first(tmp_path, distinct, slot_count):
    file = make_file(tmp_path / "file", slot_count=slot_count)
    names = [f"k{number % distinct}" for number in range(6000)]
    for first in range(0, 6000, 1500):
        file.append([make_part(names[first : first + 1500], first=first)])
    rows = walk(file, chunk_items=1000)
    assert len(rows) == 6000
    assert (rows["key_hash"][1:] >= rows["key_hash"][:-1]).all()
    runs = np.split(rows["offset"], np.flatnonzero(np.diff(rows["key_hash"])) + 1)
    assert sorted(run.tolist() for run in runs) == sorted(expected_offsets(names).values())


def test_chain_of_exactly_the_short_limit_and_one_more_are_walked(tmp_path):
    for length in (CHAIN_ITEMS, CHAIN_ITEMS + 1):
        file = make_file(tmp_path / str(length), slot_count=1)
        file.append([make_part([f"k{number}" for number in range(length)])])
        assert len(walk(file)) == length


def test_padding_of_a_row_is_walked_as_it_was_written(tmp_path):
    fields = (("size", "<u4"), ("offset", "<i8"), ("queue_id", "<i4"))
    padded = Schema(tuple(SchemaField(*field) for field in fields))
    assert padded.item_bytes == padded.position("queue_id") + 8
    for distinct in (1, 5000):
        file = make_file(tmp_path / str(distinct), slot_count=1, schema=padded)
        file.append([make_part([f"k{number % distinct}" for number in range(6000)])])
        for chunk in file.rows_in_hash_order(1000):
            raw = chunk.view(np.uint8).reshape(len(chunk), -1)
            raw[:] = 255  # what memory held before: it may be the next chunk's, too
            del chunk, raw


def test_chunks_are_bounded(tmp_path):
    file = make_file(tmp_path / "file", slot_count=1, item_capacity=60_000)
    file.append([make_part(["hot"] * 50_000)])
    assert max(len(chunk) for chunk in file.rows_in_hash_order(1000)) <= 4096


def test_walk_shows_what_was_published_when_it_began(tmp_path):
    file = make_file(tmp_path / "file")
    file.append([make_part(["a"] * 100)])
    chunks = file.rows_in_hash_order()
    first = next(chunks)
    file.append([make_part(["a"] * 100)])
    assert len(first) + sum(len(chunk) for chunk in chunks) == 100


@pytest.mark.parametrize("column", ["link", "offset", "key_hash", "tag"])
def test_damaged_row_ends_the_walk_with_an_error(tmp_path, column):
    file = make_file(tmp_path / "file")
    file.append([make_part(["a", "b"] * 50)])
    file._view.rows[column][60] ^= 1
    with pytest.raises(CorruptFileError):
        walk(file)


def test_lost_chain_ends_the_walk_with_an_error(tmp_path):
    file = make_file(tmp_path / "file")
    file.append([make_part(["a", "b"] * 50)])
    file._view.data[4096 : 4096 + 4 * 64] = 0
    with pytest.raises(CorruptFileError, match="chains hold 0 items, batches 100"):
        walk(file)


def test_bounds_of_a_file_are_those_of_its_rows(tmp_path):
    file = make_file(tmp_path / "file")
    for i in range(40):
        file.append([make_part(["a", "b", "a"], first=7 * i, topic=f"t{i % 5}", queue_id=i % 3)])
    file.append([make_part([str(i) for i in range(3000)], first=-5000, kind=KIND_MESSAGE_ID)])
    found = file.row_bounds()
    expected = RowBounds.measure(file.schema, file.rows_in_hash_order())
    assert (found.kinds, found.least, found.greatest) == (
        expected.kinds,
        expected.least,
        expected.greatest,
    )
    assert found.queues.tolist() == expected.queues.tolist()
    assert file.check() == []
    file.close()


def test_bounds_of_many_queues_and_of_no_rows(tmp_path):
    file = make_file(tmp_path / "file")
    assert file.row_bounds().is_empty
    queues = np.arange(2000, dtype=np.int32)
    file.append([make_part([str(i) for i in queues], queue_id=queues)])
    assert file.row_bounds().queues["queue_id"].tolist() == queues.tolist()
    file.close()


def test_damage_after_the_bounds_were_measured_is_found_by_the_walk(tmp_path):
    file = make_file(tmp_path / "file")
    file.append([make_part([str(i) for i in range(100)])])
    file.row_bounds()
    file._view.rows["offset"][50] ^= 1
    with pytest.raises(CorruptFileError, match="batches"):
        list(file.rows_in_hash_order())
    with pytest.raises(CorruptFileError, match="does not verify"):
        file.row_bounds()
    file._view.rows["offset"][50] ^= 1
    file.close()
