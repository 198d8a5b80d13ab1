"""The item is open: locations of rows in Parquet files, with the hash-table code untouched."""

import numpy as np

from tests.indexfile.chained_files import FILESYSTEM, key, make_file
from tests.indexfile.searches import find_all
from tierdex.indexfile.chained.file import ChainedFile
from tierdex.indexfile.columns import ItemColumns, ItemRows, StringColumn
from tierdex.indexfile.schema import Schema, SchemaField

PARQUET = Schema(
    (
        SchemaField("source", "<u4", dictionary=True),
        SchemaField("row_group", "<u4"),
        SchemaField("row", "<i8"),
    )
)


def append_paths(file, paths, names, source):
    part = ItemColumns(
        strings=StringColumn.from_values(names),
        topics="orders",
        timestamp=np.arange(len(names)),
        fields={"source": source, "row_group": 3, "row": np.arange(len(names))},
        dictionaries={"source": paths},
    )
    file.append([part])


def located(file, text):
    sources, rows = file.dictionaries.strings("source"), find_all(file, key(text))
    return [(sources[row["source"]], int(row["row_group"]), int(row["row"])) for row in rows]


def test_rows_of_parquet_files_are_found_by_key(tmp_path):
    file = make_file(tmp_path / "file", schema=PARQUET)
    append_paths(file, ["/x.parquet", "/y.parquet"], ["a", "b", "a"], np.array([1, 0, 0]))
    append_paths(file, ["/z.parquet", "/y.parquet"], ["a"], np.uint32(1))
    expected = [("/y.parquet", 3, 0), ("/x.parquet", 3, 2), ("/y.parquet", 3, 0)]
    assert located(file, "a") == expected
    assert file.dictionaries.strings("source") == ["/x.parquet", "/y.parquet", "/z.parquet"]
    assert file.end_offsets() == {}
    assert file.check() == []
    recovered = ChainedFile.recover(FILESYSTEM, file.path)
    assert located(recovered, "a") == expected
    recovered.seal()
    sealed = ChainedFile.open_sealed(FILESYSTEM, file.path)
    assert (sealed.schema, located(sealed, "a"), sealed.check()) == (PARQUET, expected, [])


def test_gathered_rows_bring_their_sources(tmp_path):
    file = make_file(tmp_path / "file", schema=PARQUET)
    append_paths(file, ["/x.parquet"], ["x"], 0)
    rows = np.zeros(2, PARQUET.dtype)
    rows["key_hash"], rows["source"] = key("a").key_hash, [0, 1]
    file.append([ItemRows(rows, ["orders"], {"source": ["/new.parquet", "/x.parquet"]})])
    assert [place[0] for place in located(file, "a")] == ["/x.parquet", "/new.parquet"]


def test_smallest_item_has_no_fields_at_all(tmp_path):
    file = make_file(tmp_path / "file", schema=Schema(()))
    part = ItemColumns(
        strings=StringColumn.from_values(["a", "b"]), topics="orders", timestamp=7, fields={}
    )
    file.append([part])
    assert file.schema.item_bytes == 24
    assert len(find_all(file, key("a"))) == 1
    assert file.check() == []
