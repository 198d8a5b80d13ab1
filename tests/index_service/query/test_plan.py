"""Files that cannot hold an answer are not asked; all others are, newest first."""

from __future__ import annotations

import pytest

from tests.lifecycle.rows import make_row
from tierdex.index_service.query.plan import Plan, find_covering
from tierdex.index_service.requests.lookups import Lookups
from tierdex.index_service.requests.query import QueryValues, make_request
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.manifests.file_row import FileRef
from tierdex.lifecycle.table.file_handle import FileHandle
from tierdex.lifecycle.table.file_table import FileTable
from tierdex.lifecycle.topic_set import topic_set
from tierdex.settings import load_settings


def handle(number, low, high, *topics, items=1):
    return FileHandle(
        number=number, node="n", uuid=number.to_bytes(16, "big"), state=FileState.SEALED,
        topics=topic_set(topics) or None, fixed_item_count=items,
        fixed_min_time=low, fixed_max_time=high,
    )  # fmt: skip


def plan(files, **asked):
    table = FileTable()
    table.insert(*files)
    with table.snapshot() as snapshot:
        plan = Plan(
            snapshot.file_list, Lookups.of([make_request(load_settings(), QueryValues(**asked))]), 0
        )
        candidates = list(plan.candidates())
        rest = plan.rest({h.file_id for h in candidates})
    assert rest.skipped == []
    found = [candidates, rest.pruned_by_time, rest.pruned_by_topic]
    return [[h.number for h in part] for part in found]


@pytest.mark.parametrize("more", [0, 100])  # one span of the list, or several
@pytest.mark.parametrize(
    ("begin", "end", "asked"),
    [
        (None, None, [3, 2, 1]),
        (20, 20, [1]),
        (15, 30, [2, 1]),
        (30, None, [3, 2]),
        (None, 9, []),
        (21, 29, []),
        (10, 10, [1]),
        (40, 50, [3, 2]),
    ],
)
def test_files_whose_times_overlap_are_asked_newest_first(begin, end, asked, more):
    files = [handle(1, 10, 20), handle(2, 30, 40), handle(3, 40, 90)]
    files += [handle(100 + n, 1000, 1000) for n in range(more)]
    candidates, outside, _ = plan(files, topic="t", key="k", begin=begin, end=end)
    assert [number for number in candidates if number < 100] == asked
    assert sorted(candidates + outside) == sorted(file.number for file in files)


def test_files_that_list_other_topics_are_left_out_for_keys_and_message_ids():
    files = [handle(1, 0, 9, "a"), handle(2, 0, 9, "b"), handle(3, 0, 9)]
    assert plan(files, topic="a", key="k") == [[3, 1], [], [2]]
    assert plan(files, topic="a", message_id="m") == [[3, 1], [], [2]]
    assert plan(files, message_id="m") == [[3, 2, 1], [], []]


def test_an_empty_file_is_not_asked():
    assert plan([handle(1, 0, 0, items=0)], topic="t", key="k") == [[], [1], []]


def test_a_merged_file_covers_its_parts():
    parts = tuple(FileRef("n", bytes([n]) * 16, n) for n in (4, 5))
    merged = FileHandle.of_row(make_row(9, number=5, parts=parts), "n")
    other = handle(7, 0, 9)
    table = FileTable()
    table.insert(other, merged)
    with table.snapshot() as snapshot:
        files = snapshot.file_list
    assert find_covering(files, f"{5:020d}-n", 7) is merged
    assert find_covering(files, f"{4:020d}-n", 7) is merged
    assert find_covering(files, f"{7:020d}-n", 7) is other
    assert find_covering(files, f"{4:020d}-m", 7) is None


def test_a_plan_looks_at_no_file_beyond_those_that_are_taken(monkeypatch):
    looked_at = []
    overlaps = FileHandle.overlaps

    def counting(self, begin, end):
        looked_at.append(self.number)
        return overlaps(self, begin, end)

    count = 10_000
    table = FileTable()
    table.insert(*(handle(n, 10 * n, 10 * n + 9) for n in range(1, count)))
    table.insert(handle(count, 5, 10 * count))  # a late file: it overlaps nearly all
    monkeypatch.setattr(FileHandle, "overlaps", counting)
    for asked in ({}, {"begin": 5000, "end": 5019}):
        with table.snapshot() as snapshot:
            request = make_request(load_settings(), QueryValues(topic="t", key="k", **asked))
            lookups = Lookups.of([request])
            candidates = Plan(snapshot.file_list, lookups, 0).candidates()
            assert next(candidates).number == count
            assert looked_at == [count]
            following = next(candidates).number
            assert looked_at == [count, following]
            assert following == (501 if asked else count - 1)
        looked_at.clear()
    with table.snapshot() as snapshot:
        request = make_request(
            load_settings(), QueryValues(topic="t", key="k", begin=5000, end=5019)
        )
        found = [h.number for h in Plan(snapshot.file_list, Lookups.of([request]), 0).candidates()]
    assert found == looked_at == [count, 501, 500]
