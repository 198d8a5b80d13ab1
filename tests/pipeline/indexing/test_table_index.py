"""Rows of Parquet, JSON lines and CSV are found where they lie, and fetched from there."""

from __future__ import annotations

import gzip
import json

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from tests.pipeline.conftest import read_csv_rows
from tierdex import Index
from tierdex.errors import InvalidRequestError
from tierdex.pipeline import fetch_rows, index_table, lookup
from tierdex.pipeline.indexing.source_files import path_of, source_of

COLUMNS = ("source", "row_group", "row", "offset", "size")


@pytest.fixture(scope="module")
def table(spark):
    number = F.col("id")
    return spark.range(2000, numPartitions=2).select(
        "id",
        F.concat(F.lit("k"), number % 50).alias("key"),
        F.when(number % 10 > 0, F.concat(F.lit("näme,"), number)).alias("other"),
        F.timestamp_millis(F.lit(1_700_000_000_000) + number).alias("at"),
    )


def test_parquet_rows_are_found_and_fetched(spark, table, store_url, tmp_path):
    source = str(tmp_path / "a table.parquet")
    table.write.option("parquet.block.size", "1024").parquet(source)
    report = index_table(
        spark, source, store_url, key=["key", "other"], topic="orders", timestamp="at"
    )
    assert (report.rows, report.skipped, report.files) == (2000, 0, 2)
    found = find(spark, store_url, ["k7", "näme,1234", "nobody"])
    assert found.where("row_group > 0").count() > 0
    records = fetched(spark, found)
    assert len(records["k7"]) == 40
    assert {json.loads(one)["id"] % 50 for one in records["k7"]} == {7}
    assert [json.loads(one)["id"] for one in records["näme,1234"]] == [1234]
    assert records["nobody"] == [None]
    with Index.open(None, store=store_url) as index:
        (entry,) = index.query("orders", key="näme,1234").entries
    assert entry.source.startswith(source)
    assert set(entry.location) == {"source", "row_group", "row"}
    with pytest.raises(InvalidRequestError, match="again=True"):
        index_table(spark, source, store_url, key=["key", "other"], topic="orders", timestamp="at")


def test_wrong_column_is_the_first_line_of_the_error(spark, store_url):
    frame = spark.range(1).select(F.lit("t").alias("topic"), F.lit("k").alias("kee"))
    sink = frame.write.format("tierdex").mode("append")
    with pytest.raises(AnalysisException, match=r"\A[^\n]*offset: is missing"):
        sink.save(store_url)


def test_lines_of_json_are_found_by_their_bytes(spark, table, store_url, tmp_path):
    source = str(tmp_path / "lines.jsonl")
    table.write.json(source)
    # In blocks whose borders cut lines.
    spark.conf.set("spark.sql.files.maxPartitionBytes", "20000")
    try:
        report = index_table(
            spark,
            source,
            store_url,
            key="other",
            message_id="concat('id-', id)",
            topic=F.concat(F.lit("t"), F.col("id") % 2),
            timestamp="to_timestamp(at)",
        )
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
    assert (report.rows, report.skipped) == (2000, 0)
    ids = spark.range(0, 2000, 111).select(F.concat(F.lit("id-"), "id").alias("message_id"))
    found = lookup(spark, store_url, ids, columns=COLUMNS).cache()
    for row in fetch_rows(spark, found).collect():
        assert f"id-{json.loads(row.record)['id']}" == row.message_id
        with open(row.source, "rb") as file:
            file.seek(row.offset)
            assert file.read(row.size).decode() == row.record


def test_flights_in_their_csv_are_found_by_tail_number(spark, flights_csv, store_url, tmp_path):
    months = tmp_path / "flights.csv"  # the first of them: a sixth of the year
    with open(flights_csv) as year:
        months.write_text("".join(line for line, _ in zip(year, range(60_001), strict=False)))
    rows = read_csv_rows(months, 60_000)
    report = index_table(
        spark,
        str(months),
        store_url,
        key=["nullif(tailnum, 'NA')"],
        topic="carrier",
        timestamp="unix_millis(to_timestamp(time_hour))",
        schema=", ".join(f"`{name}` string" for name in rows[0]),
    )
    unnamed = sum(row["tailnum"] == "NA" for row in rows)
    assert unnamed > 100
    assert (report.rows, report.skipped, report.files) == (60_000, unnamed, 1)
    found = find(spark, store_url, ["N14228"], topic="UA")
    records = fetched(spark, found)["N14228"]
    assert len(records) == sum(
        row["carrier"] == "UA" and row["tailnum"] == "N14228" for row in rows
    )
    assert all(",UA," in record and ",N14228," in record for record in records)


def test_byte_order_mark_carriage_returns_and_a_missing_newline(spark, store_url, tmp_path):
    folder = tmp_path / "csv"
    folder.mkdir()
    (folder / "1.csv").write_bytes(b'\xef\xbb\xbfk,v\r\nk1,"a,b"\r\n\r\nk2,x')
    (folder / "2.csv").write_bytes(b"k,v\nk3,y\nk1,z\n")
    report = index_table(
        spark, str(folder), store_url, key="k", topic="t", timestamp="5", format="csv"
    )
    assert (report.rows, report.skipped) == (5, 1)  # a blank line is a row without a key
    records = fetched(spark, find(spark, store_url, ["k1", "k2", "k3"], topic="t"))
    assert records == {"k1": ['k1,"a,b"', "k1,z"], "k2": ["k2,x"], "k3": ["k3,y"]}


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("x.csv.gz", gzip.compress(b"k\n" + b"v\n" * 100, mtime=0), "compressed"),
        ("x.csv", b'k,v\n1,"a\nb"\n', "several lines"),
    ],
)
def test_text_that_is_no_lines_is_refused(spark, store_url, tmp_path, name, data, message):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(Exception, match=message):
        index_table(
            spark, str(tmp_path / name), store_url, key="k", topic="t", timestamp="1", format="csv"
        )


def test_different_headers_are_refused(spark, store_url, tmp_path):
    (tmp_path / "a.csv").write_text("k,v\n1,2\n")
    (tmp_path / "b.csv").write_text("v,k\n1,2\n")
    with pytest.raises(InvalidRequestError, match="different headers"):
        index_table(
            spark, str(tmp_path), store_url, key="k", topic="t", timestamp="1", format="csv"
        )


def test_arguments_are_checked(spark, store_url):
    with pytest.raises(InvalidRequestError, match="format"):
        index_table(spark, "/tmp/x.xls", store_url, key="k", topic="t", timestamp="1")
    with pytest.raises(InvalidRequestError, match="key"):
        index_table(spark, "/tmp/x.csv", store_url, topic="t", timestamp="1")
    with pytest.raises(InvalidRequestError, match="source"):
        fetch_rows(spark, spark.range(1))


def test_sources_are_written_as_people_write_paths():
    assert source_of("file:///tmp/a%20b.csv") == source_of("file:/tmp/a%20b.csv") == "/tmp/a b.csv"
    assert source_of("s3a://bucket/a%5B1%5D") == "s3a://bucket/a[1]"
    assert path_of("/tmp/a[1]*.csv") == "/tmp/a\\[1\\]\\*.csv"


def find(spark, url, keys, topic="orders"):
    wanted = spark.createDataFrame([(topic, key) for key in keys], "topic string, key string")
    return lookup(spark, url, wanted, columns=COLUMNS).cache()


def fetched(spark, found):
    """Return the sorted records of each key."""
    records = {}
    for row in fetch_rows(spark, found).collect():
        records.setdefault(row.key, []).append(row.record)
    return {key: sorted(values, key=str) for key, values in records.items()}


def test_row_without_a_time_is_named_by_file_and_row_and_left_out_where_told(
    spark, store_url, tmp_path
):
    source = str(tmp_path / "odd.parquet")
    number = F.col("id")
    spark.range(500, numPartitions=1).select(
        F.concat(F.lit("k"), number).alias("key"),
        F.when(number != 321, F.timestamp_millis(F.lit(1_700_000_000_000) + number)).alias("at"),
        F.when(number != 77, F.lit("orders")).alias("topic"),
    ).write.parquet(source)
    wanted = {"key": "key", "topic": "topic", "timestamp": "at"}
    with pytest.raises(
        Exception, match=r"required \(.*odd.parquet/.*: row group 0, row (77|321)\)"
    ):
        index_table(spark, source, store_url, **wanted)
    report = index_table(spark, source, store_url, skip_bad=True, **wanted)
    assert (report.rows, report.skipped, report.bad_rows) == (500, 0, 2)
    assert [place.rpartition(": ")[2] for place in report.bad_places] == [
        "row group 0, row 77", "row group 0, row 321",
    ]  # fmt: skip
    assert find(spark, store_url, ["k76", "k77", "k321"]).where("source is not null").count() == 1


def test_keys_of_numbers_are_digits_as_those_of_a_load(spark, store_url, tmp_path):
    source = str(tmp_path / "numbers.parquet")
    spark.sql(
        "select cast(1234567890123 as double) as id, cast(0.0000001 as decimal(20, 7)) as price, "
        "cast(8841 as float) as short, X'6b6579' as bytes, timestamp_millis(1) as at"
    ).write.parquet(source)
    keys = ["id", "price", "short", "bytes"]
    index_table(spark, source, store_url, key=keys, topic="orders", timestamp="at")
    wanted = ["1234567890123", "0.0000001", "8841", "key"]
    assert find(spark, store_url, wanted).where("source is not null").count() == 4
