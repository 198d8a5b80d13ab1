"""One row of a Parquet file: the same as pyarrow's, from the pages that have it and no others."""

from __future__ import annotations

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tierdex.errors import InvalidRequestError
from tierdex.files import page_map
from tierdex.files.object_file import RangeFile
from tierdex.files.page_map import DictionaryMemory
from tierdex.files.parquet_pages import read_columns
from tierdex.files.parquet_row import KnownParquet, read_parquet_row
from tierdex.files.thrift_compact import decode, encode

COUNT = 6000
GROUP = 2500
ROWS = [(0, 0), (0, 1), (0, 2499), (1, 1234), (2, 0), (2, 999)]
NOISE = np.random.default_rng(1)


def flat():
    numbers = range(COUNT)
    return {
        "id": [f"ORDER-{n}" for n in numbers],
        "n": pa.array(numbers, pa.int64()),
        "state": [["new", "paid", None][n % 3] for n in numbers],
        "note": [NOISE.bytes(200).hex() for _ in numbers],
        "at": pa.array(numbers, pa.timestamp("us", "Europe/Berlin")),
        "amount": pa.array([None if n % 11 == 0 else n for n in numbers], pa.decimal128(12, 2)),
        "flag": [n % 2 == 0 for n in numbers],
        "kind": pa.array([["a", "b"][n % 2] for n in numbers]).dictionary_encode(),
        "late": [None if n < COUNT - 1 else 1.5 for n in numbers],
        "raw": pa.array([b"\xff%d" % n for n in numbers], pa.large_binary()),
    }


def nested():
    numbers = range(COUNT)
    return {
        "tags": [None if n % 5 == 0 else [f"t{n}"] * (n % 4) for n in numbers],
        "one": [{"x": n} for n in numbers],
        "where": [None if n % 7 == 0 else {"x": n, "y": {"z": f"z{n}"}} for n in numbers],
        "lists": [[[n], None, [n, n]] for n in numbers],
        "items": [[{"sku": "a", "n": n}] * (n % 3) for n in numbers],
        "map": pa.array([[("k", n)] for n in numbers], pa.map_(pa.string(), pa.int32())),
    }


def written(columns, **options):
    sink = io.BytesIO()
    given = {"row_group_size": GROUP, "write_page_index": True, "data_page_size": 4096, **options}
    pq.write_table(pa.table(columns), sink, write_batch_size=64, **given)
    return sink.getvalue()


def opened(data):
    return RangeFile(lambda position, length: data[position : position + length], len(data))


def check_rows(data, rows=ROWS):
    whole = pq.ParquetFile(io.BytesIO(data))
    for group, row in rows:
        found = read_parquet_row(opened(data), group, row)
        expected = whole.read_row_group(group).slice(row, 1)
        assert found.schema.equals(expected.schema)
        assert found.to_pylist() == expected.to_pylist()


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "zstd", "snappy"])
@pytest.mark.parametrize("use_dictionary", [True, False, ["state"]])
def test_row_is_the_one_that_pyarrow_reads(version, compression, use_dictionary):
    options = {"compression": compression, "use_dictionary": use_dictionary}
    check_rows(written(flat() | nested(), data_page_version=version, **options))


def test_row_is_the_one_without_a_page_index_and_without_arrows_schema():
    check_rows(written(flat() | nested(), write_page_index=False))
    check_rows(written(flat() | nested(), store_schema=False))
    check_rows(written({"n": range(COUNT)}, row_group_size=COUNT, data_page_size=1), [(0, 3210)])


def test_only_the_pages_with_the_row_are_fetched():
    columns = {"id": flat()["id"], "note": flat()["note"], "tags": nested()["tags"]}
    options = {"compression": "none", "use_dictionary": False}
    with_index, without = (
        written(columns, **options, write_page_index=wanted) for wanted in (True, False)
    )
    group = pq.ParquetFile(io.BytesIO(with_index)).metadata.row_group(1)
    footer = 64 << 10  # pyarrow reads so much of the end
    chunks = sum(group.column(n).total_compressed_size for n in range(group.num_columns))
    file = opened(with_index)
    read_parquet_row(file, 1, 1234)
    assert file.bytes - footer < chunks / 10
    file = opened(without)
    known = KnownParquet(file)
    read_parquet_row(file, 1, 1234, known)
    assert file.bytes >= chunks


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_first_row_of_a_group_makes_a_map_of_its_pages_for_the_others(version, monkeypatch):
    for name in ("_SPARE_BYTES", "_GAP_BYTES"):  # the chunks are small: nothing is read besides
        monkeypatch.setattr(page_map, name, 0)
    data = written(flat(), write_page_index=False, data_page_version=version)
    group = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(1)
    chunks = sum(group.column(n).total_compressed_size for n in range(group.num_columns))
    file, dictionaries = opened(data), DictionaryMemory(8 << 20)
    known = KnownParquet(file, dictionaries)
    whole = pq.ParquetFile(io.BytesIO(data))
    for number, row in enumerate((0, 1, 1234, 2499, 2498)):
        before = file.bytes
        found = read_parquet_row(file, 1, row, known)
        expected = whole.read_row_group(1).slice(row, 1)
        assert found.to_pylist() == expected.to_pylist()
        assert file.bytes - before >= chunks if number == 0 else file.bytes - before < chunks / 4


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "zstd", "snappy", "gzip", "lz4", "brotli"])
def test_every_row_of_pages_with_dictionaries_is_found_by_its_number(version, compression):
    random = np.random.default_rng(7)
    runs = np.repeat(random.integers(0, 40, 60), random.integers(1, 40, 60))[:900]
    numbers = random.integers(0, 300, 900)
    columns = {
        "runs": pa.array([None if n % 3 == 0 else f"r{n}" for n in runs.tolist()]),
        "numbers": pa.array([None if n % 50 == 1 else n for n in numbers.tolist()], pa.int32()),
        "one": ["x"] * 900,
        "none": pa.nulls(900, pa.string()),
        "late": pa.array([None] * 899 + [1.5]),
        "money": pa.array(numbers, pa.int64()).cast(pa.decimal128(20, 0)),
        "day": pa.array(numbers.astype("int32"), pa.date32()),
    }
    schema = pa.schema(
        [pa.field(n, pa.table(columns).schema.field(n).type, n != "one") for n in columns]
    )
    sink = io.BytesIO()
    pq.write_table(
        pa.table(columns, schema=schema), sink, compression=compression, data_page_version=version,
        data_page_size=512, write_batch_size=64,
    )  # fmt: skip
    whole = pq.ParquetFile(io.BytesIO(sink.getvalue())).read().to_pylist()
    file = opened(sink.getvalue())
    known = KnownParquet(file, DictionaryMemory(1 << 20))
    for row in [*range(0, 900, 7), *range(880, 900)]:
        assert read_parquet_row(file, 0, row, known).to_pylist() == [whole[row]]
        assert len(read_columns(file, known.pages, schema, 0, row, "ns")) == len(columns)


def test_dictionary_that_is_kept_is_not_fetched_again():
    data = written({"state": flat()["id"]}, row_group_size=COUNT, compression="none")
    file, dictionaries = opened(data), DictionaryMemory(1 << 20)
    known = KnownParquet(file, dictionaries)
    read_parquet_row(file, 0, 10, known)
    requests, fetched = file.requests, file.bytes
    assert read_parquet_row(file, 0, 5000, known).to_pylist() == [{"state": "ORDER-5000"}]
    assert (file.requests - requests, file.bytes - fetched < 20_000) == (1, True)
    dictionaries.put(
        "another", pa.array(bytes(1 << 20), pa.uint8())
    )  # of two that do not fit the older one goes
    read_parquet_row(file, 0, 5000, known)
    assert file.bytes - fetched > 60_000


def test_near_pages_come_together_so_that_requests_are_few():
    columns = {f"c{n}": [f"{n}-{row}" for row in range(COUNT)] for n in range(12)}
    data = written(columns, compression="none", use_dictionary=False, row_group_size=COUNT)
    file = opened(data)
    known = KnownParquet(file)
    read_parquet_row(file, 0, 1, known)
    requests, fetched = file.requests, file.bytes
    assert read_parquet_row(file, 0, 4000, known).to_pylist()[0]["c7"] == "7-4000"
    assert file.requests - requests <= 4
    assert file.bytes - fetched < (1 << 20) + 12 * 5000


def test_row_of_a_known_file_costs_its_pages_and_no_dictionary_that_they_do_not_need():
    data = written(
        {"id": flat()["id"], "state": flat()["state"], "note": flat()["note"]},
        row_group_size=COUNT, compression="none", dictionary_pagesize_limit=1024,
    )  # fmt: skip
    file = opened(data)
    known = KnownParquet(file)
    read_parquet_row(file, 0, 4000, known)
    requests, fetched = file.requests, file.bytes
    read_parquet_row(file, 0, 5000, known)
    chunk = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0)
    assert chunk.column(0).has_dictionary_page  # ids outgrew theirs: later pages are plain
    assert file.requests - requests <= 4
    assert file.bytes - fetched < 200_000
    check_rows(data, [(0, 0), (0, 4000), (0, 5999)])


def test_damaged_offset_index_is_left_and_the_chunks_are_read():
    data = bytearray(written(flat()))
    footer = footer_of(data)
    for chunk in footer[4][1][1][1][1][1][1]:
        begin, length = chunk[4][1], chunk[5][1]
        data[begin : begin + length] = bytes(length)
    check_rows(bytes(data), [(1, 1234)])
    for chunk in footer[4][1][1][0][1][1][1]:
        begin, length = chunk[4][1], chunk[5][1]
        data[begin : begin + length] = b"\xff" * length
    check_rows(bytes(data), [(0, 7)])


def test_row_that_is_not_there_is_refused():
    data = written({"n": range(COUNT)})
    refused = [(3, 0, "row_group"), (-1, 0, "row_group"), (2, 1000, "row"), (0, -1, "row")]
    for group, row, field in refused:
        with pytest.raises(InvalidRequestError) as caught:
            read_parquet_row(opened(data), group, row)
        assert caught.value.field == field
    with pytest.raises(InvalidRequestError, match="not a Parquet file"):
        read_parquet_row(opened(json.dumps({"a": 1}).encode() * 9), 0, 0)


def footer_of(data):
    length = int.from_bytes(data[-8:-4], "little")
    return decode(bytes(data[-8 - length : -8]))


def test_footer_is_encoded_as_it_was():
    for columns in (flat(), nested(), {f"c{n}": [n, None, -n] for n in range(40)}):
        data = written(columns)
        length = int.from_bytes(data[-8:-4], "little")
        assert encode(footer_of(data)) == data[-8 - length : -8]
