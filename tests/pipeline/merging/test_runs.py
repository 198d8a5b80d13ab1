"""Runs: many nodes' old files become pieces by hash range; answers, their order and cursors stay."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.indexfile.compacted_files import make_dictionaries, make_rows
from tests.lifecycle.rows import NOW_MS, make_row
from tests.pipeline.merged_nodes import KEYS, NODES, Fleet, check, expire_oldest, fill, found
from tests.simulation.crash import CrashingStore, every_call
from tests.simulation.simulated_disk import SimulatedCrash
from tierdex.compactor.file_row import make_row as file_row
from tierdex.compactor.upload import Target, upload_file
from tierdex.errors import CursorExpiredError
from tierdex.ids import SeededIds
from tierdex.indexfile.compacted.writer import FilePlan
from tierdex.indexfile.row_bounds import RowBounds
from tierdex.indexfile.schema import MESSAGE_SCHEMA
from tierdex.lifecycle.manifests.file_row import HashGroups, HashRange
from tierdex.lifecycle.manifests.forgotten import NOTHING_FORGOTTEN
from tierdex.lifecycle.manifests.manifest import RemoveReason
from tierdex.lifecycle.paths import StorePaths
from tierdex.lifecycle.retention import KEEP_FOR_EVER
from tierdex.pipeline.jobs.publishing import JobNode
from tierdex.pipeline.jobs.snapshot import ListedFile, open_log, take_snapshot
from tierdex.pipeline.merging.merge_job import merge_runs
from tierdex.pipeline.merging.merge_task import merge_group
from tierdex.pipeline.merging.runs import DAY_MS, RunCutter, plan_runs
from tierdex.storage_layer.memory import MemoryStore

# -- cutting and planning: pure -------------------------------------------------------------------


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=120),
    st.integers(1, 30),
    st.integers(1, 50),
)
def test_pieces_hold_all_rows_in_order_and_share_no_hash(hashes, piece_items, chunk):
    rows = np.zeros(len(hashes), [("key_hash", "<u8"), ("n", "<i8")])
    rows["key_hash"], rows["n"] = sorted(hashes), np.arange(len(hashes))
    chunks = iter([rows[at : at + chunk] for at in range(0, len(rows), chunk)])
    cutter = RunCutter(chunks, piece_items)
    pieces = []
    for piece in cutter:
        found = np.concatenate(list(piece))
        pieces.append((cutter.hash_range, found))
    assert np.array_equal(np.concatenate([found for _, found in pieces]), rows)
    edge = 0
    for hashes_of, found in pieces:
        assert hashes_of.first == edge
        assert hashes_of.first <= found["key_hash"].min() <= found["key_hash"].max()
        assert found["key_hash"].max() <= hashes_of.last
        longest = int(np.unique(found["key_hash"], return_counts=True)[1].max())
        assert len(found) < piece_items + longest
        edge = hashes_of.last + 1
    assert edge == 1 << 64


def listed(seed, node="a", **more):
    more = {"number": NOW_MS + 1000 * seed, "sealed_at_ms": NOW_MS, "item_count": 10, **more}
    return ListedFile(node, make_row(seed, node=node, **more))


def plans_of(files, mergeable=None, **more):
    mergeable = {file.row.uuid for file in files} if mergeable is None else mergeable
    more = {"sealed_before_ms": NOW_MS + DAY_MS, **more}
    plans = plan_runs(files, mergeable, KEEP_FOR_EVER, **more)
    return [[row.number for _, row in plan.group] for plan in plans]


def test_a_file_that_may_not_be_merged_ends_a_run():
    files = [listed(seed, NODES[seed % 3]) for seed in range(7)]
    numbers = [file.row.number for file in files]
    assert plans_of(files) == [numbers]
    others = {file.row.uuid for file in files if file.row.number != numbers[3]}
    assert plans_of(files, others) == [numbers[:3], numbers[4:]]


def test_a_run_is_of_one_day_and_one_schema_and_takes_no_piece():
    files = [
        listed(0), listed(1),
        listed(2, sealed_at_ms=NOW_MS + DAY_MS), listed(3, sealed_at_ms=NOW_MS + DAY_MS),
        listed(4, schema="other"), listed(5, schema="other", hash_range=HashRange(0, 5)),
    ]  # fmt: skip
    numbers = [file.row.number for file in files]
    found = plans_of(files, sealed_before_ms=NOW_MS + 3 * DAY_MS)
    assert found == [numbers[:2], numbers[2:4]]
    assert plans_of(files) == [numbers[:2]]


def test_pieces_stay_below_the_number_of_the_next_file():
    files = [
        listed(0, item_count=1000),
        listed(1, item_count=1000),
        listed(2, number=NOW_MS + 1003),
    ]
    (plan,) = plan_runs(
        files, {file.row.uuid for file in files[:2]}, KEEP_FOR_EVER,
        sealed_before_ms=NOW_MS + DAY_MS, piece_items=10,
    )  # fmt: skip
    assert plan.piece_count == 3


def test_a_run_ends_where_its_sources_small_parts_would_fill_the_memory():
    """Files of 100,000 queues each keep 2.4 MB in memory while they are merged."""
    groups = HashGroups(4_000_000, 1000, 10, 1000 + 2_400_000)
    files = [
        listed(seed, bytes=10_000_000, sidecar_position=1000, groups=groups) for seed in range(60)
    ]
    assert [len(numbers) for numbers in plans_of(files)] == [27, 27, 6]


# -- over several nodes --------------------------------------------------------------------------


@pytest.fixture
def fleet(tmp_path):
    made = Fleet(tmp_path)
    yield made
    made.close()


def test_a_run_answers_like_its_sources_by_one_piece_a_key(fleet):
    fill(fleet)
    report = fleet.merge()
    assert report.files_merged == len(fleet.files)
    assert report.files_written > 4
    reader = fleet.open()
    check(fleet, reader)
    for key in KEYS:
        explain = reader.query("t", key=key, max_count=1000, explain=True).explain
        assert explain.files_read <= 1
    files = [file for file in reader.files() if file.node == "runs"]
    assert len(files) == report.files_written
    assert {file.node for file in reader.files()} == {"runs"}


class CountingStore(MemoryStore):
    """Notes the reads of index files."""

    def __init__(self):
        super().__init__()
        self.reads = []  # (key, position, length)

    def get(self, key, position=None, length=None):
        if "/files/" in key:
            self.reads.append((key, position, length))
        return super().get(key, position, length)


def publish_files(store, count, items):
    """Publish files of a node with so many items each; return their rows."""
    ids, rows = SeededIds(1), []
    for number in range(count):
        uuid = ids.uuid()
        plan, chunk = plan_of_rows(uuid, make_rows(items, seed=number))
        key = StorePaths("a").file_object(0, uuid)
        written = upload_file(store, key, chunk, plan, filter_bits=16, created_ms=NOW_MS)
        dates = {"begin_ms": NOW_MS, "sealed_at_ms": NOW_MS}
        rows.append(replace(file_row(written, uuid, key, dates), number=NOW_MS + 1000 * number))
    JobNode(store, "a").shared.publish(rows)
    return rows


def plan_of_rows(uuid, rows):
    plan = FilePlan(
        uuid=uuid, schema=MESSAGE_SCHEMA, dictionaries=make_dictionaries(), slot_count=1,
        bounds=RowBounds.measure(MESSAGE_SCHEMA, [rows]), expected_items=len(rows),
    )  # fmt: skip
    return plan, [rows]


def test_a_run_reads_of_its_sources_heads_and_pages_and_never_the_filter():
    """Three files of 1.5 MB, of which 0.2 MB are the filter."""
    store = CountingStore()
    rows = publish_files(store, 3, 70_000)
    assert all(row.groups is not None for row in rows)
    report = merge_runs(lambda: store, older_than_ms=0, piece_items=80_000)
    assert (report.files_merged, report.files_written) == (3, 3)
    sources = {row.object_key for row in rows}
    lengths = [length for key, _, length in store.reads if key in sources]
    pages = sum(row.sidecar_position for row in rows)
    filters = sum(row.groups.stride * row.groups.group_count for row in rows)
    assert pages < sum(lengths) < pages + filters / 2
    assert len(lengths) == 3 * 4  # footer, head, a window of the directory, pages


def test_a_reader_of_any_moment_finds_each_entry_once(fleet):
    """Readers that read some manifests before the merge, and some behind it."""
    fill(fleet)
    before = fleet.open()
    check(fleet, before)
    fleet.merge()
    check(fleet, before)  # the sources' objects are there for the grace time
    for name in NODES:
        fleet.owners[name].run_compaction()  # drops its replaced files
        check(fleet, fleet.open())
    before.refresh()
    check(fleet, before)
    assert all(
        dropped.reason is RemoveReason.REPLACED
        for name in NODES
        for dropped in open_log(fleet.store, name).load().dropped.values()
    )


def test_a_cursor_goes_on_in_the_piece_that_took_its_file(fleet):
    fill(fleet, files=12)
    key = max(KEYS, key=lambda one: len(fleet.expected(one)))
    reader = fleet.open()
    expected = fleet.expected(key)
    for length in range(1, len(expected)):
        first = reader.query("t", key=key, max_count=length)
        pages = [entry.offset for entry in first.entries]
        if length == 3:
            fleet.merge()
            reader.refresh()
        cursor = first.next_cursor
        while cursor is not None and len(pages) < len(expected):
            answer = reader.query("t", key=key, max_count=2, cursor=cursor)
            pages += [entry.offset for entry in answer.entries]
            cursor = answer.next_cursor
        assert pages == expected


def test_of_two_merges_at_once_one_commits_a_run(fleet):
    fill(fleet)
    snapshot = take_snapshot(fleet.store)
    (plan,) = plan_runs(
        snapshot.files, {file.row.uuid for file in snapshot.files}, KEEP_FOR_EVER,
        sealed_before_ms=1 << 60, piece_items=7,
    )  # fmt: skip
    jobs = [JobNode(fleet.store, "runs") for _ in range(2)]
    written = [
        merge_group(
            fleet.store, plan.group, Target("runs", 0, 16, NOTHING_FORGOTTEN), piece_items=7
        )
        for _ in jobs
    ]
    listed = [job.merge([(rows, ())]) for job, rows in zip(jobs, written, strict=True)]
    assert [len(each) for each in listed] == [len(written[0]), 0]
    check(fleet, fleet.open())


def test_a_source_that_expired_meanwhile_is_not_brought_back(fleet):
    fill(fleet)
    snapshot = take_snapshot(fleet.store)
    (plan,) = plan_runs(
        snapshot.files, {file.row.uuid for file in snapshot.files}, KEEP_FOR_EVER,
        sealed_before_ms=1 << 60, piece_items=7,
    )  # fmt: skip
    job = JobNode(fleet.store, "runs")
    rows = merge_group(
        fleet.store, plan.group, Target("runs", 0, 16, NOTHING_FORGOTTEN), piece_items=7
    )
    fleet.owners["a"].expire(before=1 << 60)
    assert job.merge([(rows, ())]) == frozenset()
    fleet.files = [file for file in fleet.files if file[1] != "a"]
    check(fleet, fleet.open())


def test_a_merge_that_dies_at_any_call_leaves_every_answer(fleet):
    fill(fleet, files=5)
    for name in NODES:
        fleet.owners[name].close()
    kept = {found.key: fleet.store.get(found.key) for found in fleet.store.list("")}

    def crashing():
        inner = MemoryStore()
        for key, data in kept.items():
            inner.put(key, data)
        return inner, CrashingStore(inner)

    _, counted = crashing()
    merge_runs(lambda: counted, older_than_ms=0, piece_items=7)
    points = list(every_call(counted.calls))
    runs = set()
    for point in points[:: max(1, len(points) // 24)]:
        fleet.store, store = crashing()
        store.crash_at(point)
        with suppress(SimulatedCrash):
            merge_runs(lambda store=store: store, older_than_ms=0, piece_items=7)
        reader = fleet.open()
        check(fleet, reader)
        runs.add(len(reader.files()))
        fleet.merge()
        reader.refresh()
        check(fleet, reader)
        assert {file.node for file in reader.files()} == {"runs"}
    assert len(runs) > 1  # before and after the commit


def test_pieces_are_spelled_out_once_in_a_manifest(fleet):
    fill(fleet, files=12)
    fleet.merge(piece_items=3)
    state = open_log(fleet.store, "runs").load()
    pieces = list(state.files.values())
    assert len(pieces) > 8
    assert all(row.hash_range is not None for row in pieces)
    assert len({id(row.parts) for row in pieces}) == 1
    assert len(pieces[0].parts) == 12


def test_a_later_run_leaves_the_pieces_of_an_earlier_one(fleet):
    fill(fleet)
    fleet.merge()
    before = set(open_log(fleet.store, "runs").load().files)
    fill(fleet, seed=2)
    report = fleet.merge()
    state = open_log(fleet.store, "runs").load()
    assert before < set(state.files)
    assert report.files_merged == 9
    check(fleet, fleet.open())


steps = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(NODES), st.sampled_from(KEYS[:5])),
    st.tuples(st.just("publish"), st.sampled_from(NODES)),
    st.tuples(st.just("merge"), st.integers(1, 12)),
    st.tuples(st.just("expire"), st.integers(0, 3)),
    st.tuples(st.just("drop"), st.sampled_from(NODES)),
)


@settings(
    max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
)
@given(st.lists(steps, min_size=8, max_size=30), st.randoms(use_true_random=False))
def test_any_history_answers_like_the_model(tmp_path_factory, history, source):
    fleet = Fleet(tmp_path_factory.mktemp("fleet"))
    try:
        reader = fleet.open()
        key, cursor, pages = KEYS[0], None, []
        for step, *arguments in history:
            if step == "put":
                fleet.put(*arguments)
                fleet.put(arguments[0], KEYS[0])
            elif step == "publish":
                fleet.publish(*arguments)
            elif step == "merge":
                fleet.merge(piece_items=arguments[0])
            elif step == "drop":
                fleet.owners[arguments[0]].run_compaction()
            elif step == "expire" and cursor is None:
                expire_oldest(fleet, arguments[0])
            reader.refresh()
            for one in KEYS[:5]:
                assert found(reader, one) == fleet.expected(one)
            if cursor is None:
                answer = reader.query("t", key=key, max_count=2)
                expected = fleet.expected(key)
                pages = [entry.offset for entry in answer.entries]
                cursor = answer.next_cursor
            elif source.random() < 0.7:
                try:
                    answer = reader.query("t", key=key, max_count=2, cursor=cursor)
                except CursorExpiredError:  # a run that a newer file went into
                    cursor = None
                    continue
                pages += [entry.offset for entry in answer.entries]
                cursor = answer.next_cursor
                known = [offset for offset in pages if offset in expected]
                assert known == expected[: len(known)]
                assert cursor is not None or len(known) == len(expected)
    finally:
        fleet.close()
