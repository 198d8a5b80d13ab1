"""A relation that several plans use answers each of them as if it were the only one.

Spark 4.3 keeps what a Python reader made of one plan's filters with the relation (see
decision 0014); whether its own switch for pushing filters is on
must change nothing.
"""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F

from tests.pipeline.conftest import append, key_rows, read
from tierdex.pipeline import entries, key_is

KEYS = 4000
PUSHING = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def store(spark, tmp_path_factory):
    """Two files; each key is in both."""
    url = str(tmp_path_factory.mktemp("reused") / "store")
    rows = key_rows(spark, [f"k{number}" for number in range(KEYS)], partitions=1)
    append(rows, url)
    append(rows.withColumn("timestamp", F.col("timestamp") + 10_000_000), url)
    return url


@pytest.fixture
def pushing(request, spark):
    """Spark's switch as another source of the session may want it: on, unless a test says both."""
    before = spark.conf.get(PUSHING)
    spark.conf.set(PUSHING, getattr(request, "param", "true"))
    yield
    spark.conf.set(PUSHING, before)


def one():
    return key_is("orders", "k7")


def two():
    return key_is("orders", "k8", "k9")


@pytest.mark.parametrize(
    "pushing", ["false", "true"], ids=["pushing off", "pushing on"], indirect=True
)
def test_frame_that_was_filtered_before_is_whole_again(spark, store, pushing):
    frame = read(spark, store)
    first, second = frame.where(one()), frame.where(two())
    assert [each.count() for each in (frame, first, frame)] == [2 * KEYS, 2, 2 * KEYS]
    assert sorted(row.offset for row in second.collect()) == [800, 800, 900, 900]
    assert [row.offset for row in first.collect()] == [700, 700]
    assert frame.count() == 2 * KEYS


def test_first_plan_may_be_the_filtered_one(spark, store, pushing):
    frame = read(spark, store)
    assert frame.where(two()).count() == 4
    assert frame.where(F.col("timestamp") < 1_700_000_001_000).count() == 1
    assert frame.count() == 2 * KEYS


def test_view_that_was_filtered_before_is_whole_again(spark, store, pushing):
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW reused USING tierdex OPTIONS (path '{store}')")
    hashed = "key_hash = xxhash64('orders', 'k7')"
    counts = [
        spark.sql(f"SELECT count(*) FROM reused {where}").first()[0]
        for where in ("", f"WHERE {hashed}", "", "WHERE topic = 'nobody'", "")
    ]
    assert counts == [2 * KEYS, 2, 2 * KEYS, 0, 2 * KEYS]
    both = f"SELECT * FROM reused WHERE {hashed} UNION ALL SELECT * FROM reused"
    assert spark.sql(f"SELECT count(*) FROM ({both})").first()[0] == 2 * KEYS + 2
    spark.catalog.dropTempView("reused")


def test_sides_of_a_join_keep_their_own_filters(spark, store, pushing):
    frame = read(spark, store, columns="topic,kind,key_hash,offset,timestamp")
    first = frame.where(one()).select("key_hash", "timestamp")
    joined = first.join(frame.where("timestamp >= 1700010000000"), "key_hash")
    assert joined.count() == 2  # k7 as of both files, and of the later file
    assert first.join(frame, "key_hash").count() == 4
    assert first.crossJoin(frame.where(two()).select("offset")).count() == 8


def test_branches_of_a_union_keep_their_own_filters(spark, store, pushing):
    frame = read(spark, store)
    union = frame.where(one()).union(frame.where(two()))
    assert sorted(row.offset for row in union.collect()) == [700, 700, 800, 800, 900, 900]
    assert union.union(frame).count() == 2 * KEYS + 6


def test_cached_plan_and_its_relation_do_not_mix(spark, store, pushing):
    frame = read(spark, store)
    kept = frame.where(one()).cache()
    assert kept.count() == 2
    assert frame.where(two()).count() == 4
    assert (frame.count(), kept.count()) == (2 * KEYS, 2)
    kept.unpersist()
    assert (kept.count(), frame.count()) == (2, 2 * KEYS)


def test_options_select_for_every_plan_over_their_relation(spark, store, pushing):
    some = entries(spark, store, topic="orders", keys=["k7", "k8"])
    seven, late = some.where("key = 'k7'"), some.where("timestamp >= 1700010000000")
    assert [each.count() for each in (seven, some, late, some)] == [2, 4, 2, 4]
    assert seven.join(late, "key").count() == 2
    assert some.join(read(spark, store), "key_hash").count() == 8


def test_relation_keeps_the_snapshot_of_its_first_query(spark, tmp_path):
    url = f"file://{tmp_path}/store"
    append(key_rows(spark, ["a", "b"]), url)
    frame = read(spark, url)
    assert frame.count() == 2
    append(key_rows(spark, ["c"], first=2), url)
    assert (frame.count(), read(spark, url).count()) == (2, 3)
