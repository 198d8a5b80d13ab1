"""The index of a log that Spark builds, and messages beside looked-up entries: by few requests."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.pipeline.log_store import fill, open_log, publish, told
from tierdex.errors import AlreadyExistsError, InvalidRequestError, NotFoundError
from tierdex.pipeline import index_log, lookup
from tierdex.pipeline.jobs.job_store import StoreLink
from tierdex.pipeline.jobs.snapshot import take_log_snapshot
from tierdex.pipeline.lookups.message_join import MessageJoin
from tierdex.pipeline.merging.merge_job import merge_runs
from tierdex.storage_layer.metered import RequestCounts

COUNT = 100  # of each of two files


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A store with two files of a log and no index, and what the log reads of them."""
    folder = tmp_path_factory.mktemp("log")
    url = f"file://{folder}/store"
    with open_log(folder / "data", url) as log:
        for first in (0, COUNT):
            fill(log, COUNT, first)
            publish(log)
        return url, told(log)


def join_of(url, name_column="key", *, is_left=True):
    """Return the tasks' side of a join, and what counts its requests."""
    link, counts = StoreLink.of(url), RequestCounts()
    scoped = link.open().scoped(counts)
    files = {}
    for file in take_log_snapshot(link.open())[0]:
        files.setdefault(file.node, []).append(file)

    class Counted:
        def __getattr__(self, name):
            return getattr(link, name)

        def __hash__(self):
            return hash(link)

        def __eq__(self, other):
            return True

        def open(self):
            return scoped

    entry_columns = ("queue_id", "offset", "node")
    return MessageJoin(Counted(), files, name_column, entry_columns, is_left), counts


def entries(places, names, name_column="key"):
    """Return rows as a lookup gives them: (node, topic, queue_id, offset) or None, and their names."""
    columns = list(zip(*[place or (None, "a", None, None) for place in places], strict=True))
    return pa.record_batch(
        {
            name_column: pa.array(names, pa.string()),
            "topic": pa.array(columns[1], pa.string()),
            "queue_id": pa.array(columns[2], pa.int32()),
            "offset": pa.array(columns[3], pa.int64()),
            "node": pa.array(columns[0], pa.string()),
        }
    )


def joined(join, batch):
    return pa.Table.from_batches(list(join.join_all([batch]))).to_pylist()


def test_every_message_is_read_beside_its_entry_by_a_request_a_file(published):
    url, known = published
    keyed = [m for m in known if m[5]]
    join, counts = join_of(url)
    batch = entries([m[:4] for m in keyed], [m[5][0] for m in keyed])
    found = joined(join, batch)
    assert [(row["headers"], row["body"]) for row in found] == [(m[6], m[8]) for m in keyed]
    assert counts.requests <= 4  # the sidecars, if no other test brought them, and the pages
    by_id = [m for m in known if m[7]]
    join, _ = join_of(url, "message_id")
    batch = entries([m[:4] for m in by_id], [m[7] for m in by_id], "message_id")
    assert [row["body"] for row in joined(join, batch)] == [m[8] for m in by_id]


def test_places_of_one_page_cost_one_request(published):
    url, known = published
    (message,) = [m for m in known if m[1:4] == ("b", 1, 7)]
    join, _ = join_of(url)
    batch = entries([message[:4]] * 3, [message[5][0]] * 3)
    joined(join, batch)
    join, counts = join_of(url)
    assert [row["body"] for row in joined(join, batch)] == [message[8]] * 3
    assert counts.requests == 1


def test_message_without_the_key_is_none_and_a_place_without_message_has_no_body(published):
    url, known = published
    (message,) = [m for m in known if m[1:4] == ("b", 1, 7)]
    place, key = message[:4], message[5][0]
    places = [
        place,
        place,
        None,
        (*place[:3], 1 << 40),
        ("other", *place[1:]),
        ("n.index", *place[1:]),
    ]
    batch = entries(places, [key, "of the same hash", "absent", key, key, key])
    found = joined(join_of(url)[0], batch)
    body = message[8]
    assert [row["body"] for row in found] == [body, None, None, None, None, body]
    assert [row["offset"] for row in found] == [7, None, None, 1 << 40, 7, 7]
    inner = joined(join_of(url, is_left=False)[0], batch.take(pa.array([0, 1, 3])))
    assert [(row["key"], row["body"]) for row in inner] == [(key, body), (key, None)]


def test_index_that_is_built_of_a_log_finds_every_key_and_its_messages(spark, published):
    url, known = published
    report = index_log(spark, url, node="n")
    named = [m for m in known if m[5] or m[7]]
    assert (report.rows, report.skipped, report.files) == (len(known), len(known) - len(named), 2)
    wanted = {(m[1], key) for m in known for key in m[5]} | {("a", "absent")}
    keys = spark.createDataFrame(sorted(wanted), "topic string, key string")
    found = lookup(spark, url, keys, how="inner", columns=["queue_id", "offset"], with_body=True)
    assert found.columns == ["topic", "key", "queue_id", "offset", "headers", "body"]
    assert sorted((*row[:4], bytes(row.body)) for row in found.collect()) == sorted(
        (m[1], key, m[2], m[3], m[8]) for m in known for key in m[5]
    )
    with pytest.raises(AlreadyExistsError, match="again=True"):
        index_log(spark, url, node="n")
    with pytest.raises(NotFoundError, match="no log"):
        index_log(spark, url, node="none")
    with pytest.raises(InvalidRequestError, match="rename it"):
        lookup(spark, url, keys.selectExpr("topic", "key", "1 as body"), with_body=True)


def test_entries_of_a_log_stay_with_their_node_in_merges(tmp_path):
    url = f"file://{tmp_path}/store"
    with open_log(tmp_path / "data", url) as log:
        for first in (0, 40):
            fill(log, 40, first)
            publish(log)
            log.index.roll()
            log.run_compaction()
        (before,) = log.get("b", key="k7")
        report = merge_runs(StoreLink.of(url).open, older_than_ms=0, min_files=1)
        assert (report.files_considered, report.files_merged) == (2, 0)
        log.index.refresh()
        assert [*log.get("b", key="k7")] == [before]
