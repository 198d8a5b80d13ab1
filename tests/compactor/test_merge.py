"""Which neighbours are merged, and that a merge changes no answer."""

from __future__ import annotations

import pytest

from tests.index_service.conftest import offsets, put
from tests.lifecycle.rows import make_row
from tierdex.compactor.merge import plan_merge
from tierdex.errors import AlreadyExistsError, CorruptFileError
from tierdex.lifecycle.manifests.manifest import ManifestState
from tierdex.lifecycle.retention import make_retention
from tierdex.lifecycle.topic_set import topic_set
from tierdex.settings import load_settings

SETTINGS = load_settings(merge_below_items=100, merge_min_files=3, item_capacity=250)


def plan(*counts, settings=SETTINGS, unmergeable=()):
    """Return the numbers of the files taken; file `n` holds counts[n] items."""
    rows = [
        make_row(number, number=number, item_count=count) for number, count in enumerate(counts)
    ]
    state = ManifestState(node="n", files={row.uuid: row for row in reversed(rows)})
    avoid = {rows[number].uuid for number in unmergeable}
    return [row.number for row in plan_merge(state, settings, avoid)]


@pytest.mark.parametrize(
    ("counts", "taken"),
    [
        ((), []),
        ((10, 10), []),  # too few
        ((10, 10, 10), [0, 1, 2]),
        ((10, 10, 10, 500, 10, 10, 10), [0, 1, 2]),  # the oldest run
        ((500, 10, 10, 10), [1, 2, 3]),
        ((10, 10, 500, 10), []),  # neighbours only
        ((90, 10, 10), []),  # one larger than all others together
        ((90, 10, 10, 10), [1, 2, 3]),  # no file behind it waits for it
        ((10, 10, 10, 90, 10), [0, 1, 2]),
        ((20, 10, 10), [0, 1, 2]),
        ((99, 99, 99), []),  # would not fit into one file
        ((99, 50, 50, 50, 50, 50), [0, 1, 2, 3]),
    ],
)
def test_runs_of_small_neighbours_are_taken(counts, taken):
    assert plan(*counts) == taken


def test_files_of_different_age_are_no_neighbours_where_retention_passes():
    rows = [
        make_row(
            n, number=n, begin_ms=1000 * n, sealed_at_ms=1000 * n + 900, topics=topic_set(["a"])
        )
        for n in range(9)
    ]
    files = {row.uuid: row for row in rows}

    def taken(rules):
        state = ManifestState(node="n", files=files, retention=rules)
        return [row.number for row in plan_merge(state, SETTINGS)]

    assert taken(make_retention(None)) == list(range(9))
    assert taken(make_retention(None, {"a": 40, "b": 1})) == [0, 1, 2, 3]
    assert taken(make_retention(10)) == []


def test_a_file_that_cannot_be_merged_ends_a_run():
    assert plan(10, 10, 10, 10, 10, unmergeable=[1]) == [2, 3, 4]


def fill(index, count, *, repeat=()):
    for offset in range(count):
        put(index, "A", offset)
        put(index, f"K{offset}", offset)
        for again in repeat:
            put(index, "A", again)
        index.roll()


def test_a_merge_changes_no_answer_and_drops_repeats(make_index, store):
    index = make_index(store=store, merge_min_files=3)
    fill(index, 6, repeat=[0])
    before = index.query("orders", key="A")
    index.run_compaction()
    assert len(index.files()) == 1
    answer = index.query("orders", key="A")
    assert [e.offset for e in answer.entries] == [e.offset for e in before.entries]
    assert sum(file.item_count for file in index.files()) == 12  # 18 with the repeats
    assert all(offsets(index.query("orders", key=f"K{n}")) == [n] for n in range(6))


def test_a_lost_part_is_set_aside_and_the_rest_goes_on(make_index, store, clock):
    index = make_index(store=store, merge_min_files=3)
    fill(index, 2)
    index.run_compaction()
    store.delete(store.objects()[0])
    clock.advance(60)
    fill(index, 1)
    index.run_compaction()  # the merge of the three fails, and nothing else
    assert index.compaction_status()["last_error"]["job"] == "merge"
    clock.advance(60)
    index.refresh()
    fill(index, 3)
    index.run_compaction()
    assert [file.state for file in index.files()] == ["uploaded"] * 4
    answer = index.query("orders", key="A")
    assert not answer.complete
    assert len(answer.missing) == 1


def alter_answers_about(store, name, count):
    """Let the next `count` answers about objects whose keys hold `name` be altered on their way."""
    sound, left = store.get, [count]

    def get(key, position=None, length=None):
        data = sound(key, position, length)
        if name not in key or not left[0]:
            return data
        left[0] -= 1
        return bytes([data[0] ^ 1]) + data[1:]

    store.get = get


def test_a_part_altered_on_its_way_is_merged_later(make_index, store, clock):
    index = make_index(store=store, merge_min_files=3)
    fill(index, 3)
    alter_answers_about(store, "/files/", 1)
    index.run_compaction()
    assert len(index.files()) == 3
    assert index.compaction_status()["last_error"]["job"] == "merge"
    clock.advance(600)
    index.run_compaction()
    assert len(index.files()) == 3
    clock.advance(3600)
    index.run_compaction()
    assert len(index.files()) == 1
    assert offsets(index.query("orders", key="A")) == [2, 1, 0]


def test_a_manifest_altered_on_its_way_sets_no_file_aside(make_index, store, clock):
    index = make_index(store=store, merge_min_files=3)
    fill(index, 3)
    create = store.put_if_absent

    def create_unanswered(key, data):
        create(key, data)
        if len(store.objects()) == 4:  # the merge's commit
            alter_answers_about(store, "/manifest/", 2)
            raise AlreadyExistsError("412 on our own success")

    store.put_if_absent = create_unanswered
    with pytest.raises(CorruptFileError):
        index.run_compaction()
    store.put_if_absent = create
    index.run_compaction()
    assert len(index.files()) == 1
    assert index.compaction_status()["totals"]["merged"] == 0  # it had been
