"""Merges change how files lie, never what is found, whatever is read or written meanwhile."""

from __future__ import annotations

import threading

import pytest

from tests.damaged_manifests import DAMAGES, write_two_nodes
from tests.pipeline.conftest import append, key_rows, read
from tierdex import Index
from tierdex.lifecycle.manifests.manifest import NodeKind
from tierdex.pipeline import lookup, merge, verify
from tierdex.pipeline.jobs.options import ReadOptions
from tierdex.pipeline.jobs.snapshot import open_log, take_snapshot
from tierdex.pipeline.scan.reader import TierdexReader
from tierdex.storage_layer.open import open_store


def small_files(spark, url, count, *, first=0, **options):
    """Publish `count` files of 100 entries by one job."""
    keys = [f"k{n % 70}" for n in range(100 * count)]
    append(key_rows(spark, keys, first=first), url, targetEntries="100", **options)


def everything(spark, url):
    rows = read(spark, url, columns="key_hash,offset,timestamp").collect()
    return sorted((row.key_hash, row.offset, row.timestamp) for row in rows)


def test_small_files_become_one_and_nothing_else_changes(spark, store_url):
    small_files(spark, store_url, 7)
    before = everything(spark, store_url)
    newest = take_snapshot(open_store(store_url)).files[0]
    planned = TierdexReader(ReadOptions.parse({"path": store_url}), ("offset",), None)
    partitions = planned.partitions()
    with Index.open(None, store=store_url) as index:
        answer = index.query("orders", key="k7", max_count=3)
        report = merge(spark, store_url)
        assert (report.files_merged, report.files_written, report.skipped) == (7, 1, 0)
        assert everything(spark, store_url) == before
        (merged,) = take_snapshot(open_store(store_url)).files
        assert merged.file_id == newest.file_id  # the order of answers stays
        assert len(merged.row.parts) == 7
        # A scan that was planned before reads what it planned: the grace time keeps it.
        batches = [batch for one in partitions for batch in planned.read(one)]
        assert sum(batch.num_rows for batch in batches) == len(before)
        # A query that began before goes on, across the merge, with its cursor.
        rest = index.query("orders", key="k7", max_count=50, cursor=answer.next_cursor)
        index.refresh()
        again = index.query("orders", key="k7", max_count=50, cursor=answer.next_cursor)
        assert [e.offset for e in again.entries] == [e.offset for e in rest.entries]
    assert all(row.is_sound for row in verify(spark, store_url).collect())
    assert merge(spark, store_url).files_written == 0


def test_tasks_cut_runs_by_hash_and_lookups_ask_one_piece(spark, store_url):
    small_files(spark, store_url, 4)
    before = everything(spark, store_url)
    report = merge(spark, store_url, piece_items=20, older_than_ms=0)
    assert report.files_merged == 4
    assert report.files_written > 1
    assert everything(spark, store_url) == before
    assert all(file.row.hash_range for file in take_snapshot(open_store(store_url)).files)


def test_only_files_of_the_time_window_are_merged(spark, store_url):
    for hour in range(4):
        for part in range(2):
            small_files(spark, store_url, 1, first=3600 * hour + 100 * part)
    begin = 1_700_000_000_000 + 3_600_000
    report = merge(spark, store_url, begin=begin, end=begin + 3_599_999)
    assert report.files_merged == 2
    assert len(take_snapshot(open_store(store_url)).files) == 7


def test_files_of_owned_nodes_are_merged_into_a_shared_one(spark, store_url, tmp_path):
    for queue, node in enumerate(("east", "west")):
        with Index.open(
            tmp_path / node, store=store_url, node=node, background=False, merge_min_files=1000
        ) as index:
            for roll in range(3):
                index.put_batch(
                    topic="orders",
                    keys=[f"{node}-{roll}-{n}" for n in range(20)] + ["shared"],
                    queue_id=queue,
                    offset=[1000 * roll + n for n in range(21)],
                    size=1,
                    timestamp=1000 + roll,
                )
                index.roll()
                index.run_compaction()
    before = everything(spark, store_url)
    report = merge(spark, store_url, node="merged", nodes=["east", "west"])
    assert (report.files_merged, report.files_written) == (6, 1)
    (merged,) = take_snapshot(open_store(store_url)).files
    assert merged.node == "merged"
    assert {ref.node for ref in merged.row.replaces} == {"east", "west"}
    assert everything(spark, store_url) == before
    # The owners drop their files later, and nothing is seen twice or lost on the way.
    with Index.open(tmp_path / "east", store=store_url, node="east", background=False) as index:
        assert len(index.query("orders", key="shared").entries) == 6
        assert [e.node for e in index.query("orders", key="west-1-5").entries] == ["merged"]
        index.run_compaction()
    assert everything(spark, store_url) == before


def test_queries_and_writers_go_on_during_merges(spark, store_url):
    small_files(spark, store_url, 8)
    expected = sum(1 for n in range(800) if n % 70 == 7)
    stop, faults, asked = threading.Event(), [], [0]

    def ask():
        with Index.open(None, store=store_url) as index:
            while not stop.is_set():
                index.refresh()
                answer = index.query("orders", key="k7", max_count=100)
                asked[0] += 1
                if not answer.complete or len(answer.entries) < expected:
                    faults.append(answer)

    reader = threading.Thread(target=ask)
    reader.start()
    try:
        writer = threading.Thread(
            target=small_files, args=(spark, store_url, 3), kwargs={"first": 800}
        )
        writer.start()
        merge(spark, store_url)
        writer.join()
        merge(spark, store_url)
    finally:
        stop.set()
        reader.join()
    assert not faults
    assert asked[0] > 0
    assert read(spark, store_url).count() == 1100


def test_two_writers_of_one_node_publish_both(spark, store_url):
    def write(number):
        append(key_rows(spark, [f"w{number}"], first=number), store_url)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    state = open_log(open_store(store_url), "spark").load()
    assert state.kind is NodeKind.SHARED
    assert len({row.number for row in state.files.values()}) == 3
    keys = spark.createDataFrame(
        [("orders", f"w{number}") for number in range(3)], "topic string, key string"
    )
    found = lookup(spark, store_url, keys, how="inner").collect()
    assert sorted(row.offset for row in found) == [0, 100, 200]


def test_damage_and_loss_are_found_by_verify(spark, store_url, tmp_path):
    small_files(spark, store_url, 3)
    files = take_snapshot(open_store(store_url)).files
    damaged, lost, _ = files
    path = tmp_path / "store" / damaged.row.object_key
    data = bytearray(path.read_bytes())
    data[5000] ^= 1
    path.write_bytes(data)
    (tmp_path / "store" / lost.row.object_key).unlink()
    rows = {row.file_id: row for row in verify(spark, store_url).collect()}
    assert [rows[file.file_id].is_sound for file in files] == [False, False, True]
    assert "checksum of page" in rows[damaged.file_id].problems[0]
    assert "holds no object" in rows[lost.file_id].problems[0]
    # whichever of the two comes first
    with pytest.raises(Exception, match=r"checksum of page|holds no object"):
        read(spark, store_url, nodes="spark").where("timestamp > 0").count()


@pytest.mark.parametrize("damage", DAMAGES)
def test_node_whose_manifest_is_damaged_is_a_broken_row(spark, tmp_path, damage):
    store = write_two_nodes(tmp_path)
    DAMAGES[damage](store)
    rows = verify(spark, f"file://{store}").collect()
    assert [row.file_id for row in rows if not row.is_sound] == ["node:b"]
    assert {row.node for row in rows if row.is_sound} == {"a"}
    with pytest.raises(Exception, match="manifest"):  # a count would be too small
        read(spark, f"file://{store}").count()
