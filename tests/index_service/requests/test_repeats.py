"""One entry is a location at a time: a replay repeats both, whatever form the files have."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tests.index_service.conftest import from_memory, put
from tierdex.index_service.requests.repeats import first_of_each

EVERY_FORM = pytest.mark.parametrize("form", ["chained", "sealed", "compacted", "merged", "across"])
TIMES = (2000, 1000, 2000, 3000, 1000)  # of one location, one after the other
NEWEST_FIRST = [1000, 3000, 2000]


@pytest.fixture
def index(make_index, form):
    """One location put at three times, at two of them twice, in files of one form."""
    index = make_index(merge_min_files=2)
    for number, timestamp in enumerate(TIMES):
        put(index, "A", 7, timestamp=timestamp, message_id="M")
        if form == "across" or (form == "merged" and number == 2):
            index.roll()
    if form != "chained":
        index.roll()
    if form in ("compacted", "merged"):
        index.run_compaction()
        assert [info.item_count for info in index.files()] == [
            6
        ]  # three of the key, three of the ID
    return index


RANGES = [(None, None), (None, 2500), (None, 1500), (1500, 2500), (2500, None), (1001, 1999)]


@EVERY_FORM
@pytest.mark.parametrize(("begin", "end"), RANGES)
def test_a_time_range_finds_what_lies_in_it(index, begin, end):
    wanted = [t for t in NEWEST_FIRST if (begin or 0) <= t <= (end or 9999)]
    for lookup in ({"topic": "orders", "key": "A"}, {"message_id": "M"}):
        asked = lookup | {"begin": begin, "end": end}
        assert times(index.query(**asked)) == wanted
        assert times(index.query(**asked, explain=True)) == wanted
        assert times(index.query_batch([asked])[0]) == wanted
        local = from_memory(index, **asked)
        assert local is None or times(local) == wanted


@EVERY_FORM
@pytest.mark.parametrize("max_count", [1, 2, 3, 4])
def test_batches_count_a_location_once_for_each_time(index, max_count):
    asked = {"topic": ["orders", "orders"], "key": ["A", "absent"]}
    table = index.query_batch_arrow(pa.table(asked), max_count=max_count)
    assert table.column("timestamp").to_pylist() == NEWEST_FIRST[:max_count]
    table = index.query_batch_arrow(pa.table({"message_id": ["M"]}), max_count=max_count)
    assert table.column("timestamp").to_pylist() == NEWEST_FIRST[:max_count]
    answers = index.query_batch([{"topic": "orders", "key": "A", "max_count": max_count}])
    assert times(answers[0]) == NEWEST_FIRST[:max_count]


@EVERY_FORM
def test_pages_hold_each_time_of_a_location_once(index):
    found, cursor = [], None
    while True:
        answer = index.query("orders", key="A", max_count=1, cursor=cursor)
        found += times(answer)
        cursor = answer.next_cursor
        if cursor is None:
            assert found == NEWEST_FIRST
            return


def test_the_first_of_equal_rows_stays():
    columns = [np.array([1, 1, 2, 1, 2]), np.array([5, 6, 5, 5, 5], np.uint32)]
    assert first_of_each(columns).tolist() == [True, True, True, False, False]
    assert first_of_each([column[:0] for column in columns]).tolist() == []


def times(answer):
    assert answer.complete
    return [entry.timestamp for entry in answer.entries]
