import numpy as np
import pytest

from tests.indexfile import compacted_files as files
from tierdex.errors import InvalidRequestError
from tierdex.fileparts.dictionary import Dictionaries
from tierdex.indexfile.compacted.file import CompactedFile
from tierdex.indexfile.compacted.merge_rows import RowMerge
from tierdex.indexfile.compacted.writer import CompactedWriter, FilePlan
from tierdex.indexfile.lookup import Lookup
from tierdex.indexfile.schema import MESSAGE_SCHEMA, Schema, SchemaField, join_rows

TOPICS = [("orders", "payments"), ("payments", "refunds"), ("refunds", "orders", "audit")]


def make_source(number: int, count: int = 3000, distinct: int | None = None) -> CompactedFile:
    rows = files.make_rows(count, seed=number, topics=len(TOPICS[number]), distinct=distinct)
    rows["offset"] += 1_000_000_000 * number
    dictionaries = files.make_dictionaries(topics=TOPICS[number])
    return files.make_file(rows, dictionaries=dictionaries, uuid=bytes([number] * 16))


def merged(sources, chunk=1000) -> CompactedFile:
    merge = RowMerge(sources)
    out = bytearray()
    writer = CompactedWriter(
        out.extend,
        FilePlan(
            uuid=files.UUID,
            schema=merge.schema,
            dictionaries=merge.dictionaries,
            slot_count=1,
            bounds=merge.bounds,
            expected_items=merge.item_count,
        ),
        filter_bits=16,
        created_ms=1,
    )
    for rows in merge.rows(chunk):
        writer.append(rows)
    writer.finish()
    return CompactedFile.from_bytes(bytes(out))


def named(file: CompactedFile, rows):
    """Rows as tuples with the topic's name in place of its index."""
    names = file.dictionaries.strings("topic")
    return [
        (names[row["tag"] & 0x7FFFFFFF], row["tag"] >> 31, *row[["offset", "timestamp"]])
        for row in rows
    ]


def test_merged_file_answers_as_its_parts_newest_file_first():
    sources = [make_source(n, distinct=500) for n in (2, 1, 0)]
    shared = make_source(1, distinct=500)
    whole = merged(sources)
    assert whole.check() == []
    assert whole.item_count == sum(source.item_count for source in sources)
    assert set(whole.topics) == {"orders", "payments", "refunds", "audit"}
    hashes = np.unique(join_rows([r for s in sources for r in s.rows_in_hash_order()])["key_hash"])
    for key_hash in hashes[::23].tolist():
        for topic in ("orders", "payments", "refunds", "audit"):
            lookup = Lookup(key_hash, 0, topic)
            parts = [named(source, files.found(source, lookup)) for source in sources]
            assert named(whole, files.found(whole, lookup)) == [row for p in parts for row in p]
    assert shared.item_count == sources[1].item_count


def test_entries_that_several_files_repeat_are_kept_once():
    source = make_source(0)
    whole = merged([source, source, source])
    assert whole.item_count == source.item_count
    assert np.array_equal(
        join_rows(list(whole.rows_in_hash_order())), join_rows(list(source.rows_in_hash_order()))
    )


def test_hot_run_over_many_chunks_keeps_its_order():
    sources = []
    for number in range(3):
        rows = files.make_rows(12_000, seed=number, topics=1)
        rows["key_hash"][3000:9000] = 1 << 63
        rows = rows[np.argsort(rows["key_hash"], kind="stable")]
        rows["offset"] = np.arange(len(rows)) + 10**9 * number
        dictionaries = files.make_dictionaries(topics=("orders",))
        sources.append(files.make_file(rows, dictionaries=dictionaries))
    whole = merged(sources, chunk=4096)
    hot = Lookup(1 << 63, 0, "orders")
    parts = [files.found(source, hot)["offset"] for source in sources]
    assert np.array_equal(files.found(whole, hot)["offset"], np.concatenate(parts))
    assert whole.check() == []


def test_bounds_of_the_parts_join_without_a_pass():
    sources = [make_source(n) for n in range(3)]
    merge = RowMerge(sources)
    rows = join_rows(list(merge.rows(1000)))
    for name in ("timestamp", "offset", "size", "queue_id"):
        assert merge.bounds.least[name] == rows[name].min()
        assert merge.bounds.greatest[name] == rows[name].max()
    ends = {}
    for source in sources:
        for queue, end in source.end_offsets().items():
            ends[queue] = max(end, ends.get(queue, 0))
    assert merged(sources).end_offsets() == ends


def test_dictionary_of_a_schema_field_is_remapped():
    schema = Schema((SchemaField("source", "<u4", dictionary=True), SchemaField("row", "<u4")))
    sources = []
    for paths in (("a", "b"), ("b", "c")):
        rows = np.zeros(4, schema.dtype)
        rows["key_hash"], rows["source"], rows["row"] = range(4), [0, 1, 0, 1], range(4)
        dictionaries = files.make_dictionaries(schema, ("logs",), source=paths)
        sources.append(files.make_file(rows, schema=schema, dictionaries=dictionaries))
    whole = merged(sources)
    names = whole.dictionaries.strings("source")
    found = files.found(whole, Lookup(1, 0, "logs"))
    assert [names[i] for i in found["source"]] == ["b", "c"]
    assert whole.check() == []


def test_empty_files_merge_to_an_empty_file():
    empty = files.make_file(files.make_rows(0), dictionaries=files.make_dictionaries(topics=()))
    assert merged([empty, empty]).item_count == 0
    some = make_source(0)
    assert merged([empty, some]).item_count == some.item_count


def test_files_of_different_schemas_are_refused():
    other = Schema((SchemaField("row", "<u4"),))
    odd = files.make_file(
        np.zeros(0, other.dtype), schema=other, dictionaries=Dictionaries(other.dictionary_names)
    )
    with pytest.raises(InvalidRequestError, match="schemas"):
        RowMerge([make_source(0), odd])
    assert other != MESSAGE_SCHEMA
