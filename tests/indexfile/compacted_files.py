"""Small compacted files for tests, in memory, and a brute-force model of what they must answer."""

from __future__ import annotations

import numpy as np

from tests.indexfile.searches import find_all
from tierdex.fileparts.dictionary import Dictionaries
from tierdex.indexfile import layout
from tierdex.indexfile.compacted.file import CompactedFile
from tierdex.indexfile.compacted.hash_group import GROUP_SIZES
from tierdex.indexfile.compacted.writer import CompactedWriter, FilePlan
from tierdex.indexfile.lookup import TIME_MAX, TIME_MIN, Lookup
from tierdex.indexfile.row_bounds import RowBounds
from tierdex.indexfile.schema import MESSAGE_SCHEMA

UUID = bytes(range(16))
TOPICS = ("orders", "payments", "订单")


def make_dictionaries(schema=MESSAGE_SCHEMA, topics=TOPICS, **strings) -> Dictionaries:
    dictionaries = Dictionaries(schema.dictionary_names)
    dictionaries.stage("topic", topics)
    for name, values in strings.items():
        dictionaries.stage(name, values)
    dictionaries.keep()
    return dictionaries


def make_rows(count: int, *, seed: int = 1, distinct: int | None = None, topics: int = 3):
    """Sorted rows with a few runs: hashes repeat when `distinct` is below `count`."""
    random = np.random.default_rng(seed)
    rows = np.zeros(count, MESSAGE_SCHEMA.dtype)
    hashes = random.integers(0, 1 << 64, distinct or count, dtype=np.uint64)
    rows["key_hash"] = hashes[random.integers(0, len(hashes), count)] if distinct else hashes
    rows["tag"] = random.integers(0, topics, count).astype(np.uint32)
    rows["tag"] |= random.integers(0, 2, count).astype(np.uint32) << np.uint32(31)
    rows["timestamp"] = 1_700_000_000_000 + random.integers(0, 86_400_000, count)
    rows["queue_id"] = random.integers(0, 8, count)
    rows["offset"] = 1_000_000 * rows["queue_id"].astype(np.int64) + np.arange(count) * 512
    rows["size"] = random.integers(100, 900, count)
    return rows[np.argsort(rows["key_hash"], kind="stable")]


def write(
    rows,
    *,
    schema=MESSAGE_SCHEMA,
    dictionaries=None,
    chunk=1000,
    filter_bits=16,
    uuid=UUID,
    bounds=None,
    extra=None,
    group_sizes=GROUP_SIZES,
) -> bytes:
    """The bytes of a compacted file of sorted `rows`."""
    out = bytearray()
    writer = CompactedWriter(
        out.extend,
        FilePlan(
            uuid=uuid,
            schema=schema,
            dictionaries=make_dictionaries() if dictionaries is None else dictionaries,
            slot_count=64,
            bounds=RowBounds.measure(schema, [rows]) if bounds is None else bounds,
            expected_items=len(rows),
            dates=extra or {},
            group_sizes=group_sizes,
        ),
        filter_bits=filter_bits,
        created_ms=1_700_000_000_000,
    )
    for first in range(0, len(rows), chunk):
        writer.append(rows[first : first + chunk])
    summary = writer.finish()
    assert summary.bytes == len(out)
    return bytes(out)


def make_file(rows, **options) -> CompactedFile:
    return CompactedFile.from_bytes(write(rows, **options))


def remote(data: bytes, reads: list | None = None) -> CompactedFile:
    """The same file as one in a store: its tail, and a reader that notes what it is asked for."""
    position = CompactedFile.from_bytes(data).sidecar_position

    def read(begin: int, length: int) -> bytes:
        if reads is not None:
            reads.append((begin, length))
        return data[begin : begin + length]

    return CompactedFile.from_sidecar(data[position:], read, position=position)


def expected(rows, lookup: Lookup, begin=TIME_MIN, end=TIME_MAX, topics=TOPICS):
    """The rows that a lookup must give, by looking at all of them."""
    kind = rows["tag"] >> 31
    wanted = (rows["key_hash"] == np.uint64(lookup.key_hash)) & (kind == lookup.kind)
    if lookup.topic is not None:
        topic = topics.index(lookup.topic) if lookup.topic in topics else -1
        wanted &= (rows["tag"] & layout.TOPIC_MASK).astype(np.int64) == topic
    return rows[wanted & (rows["timestamp"] >= begin) & (rows["timestamp"] <= end)]


def found(file: CompactedFile, lookup: Lookup, **times):
    return find_all(file, lookup, read=getattr(file, "_read", None), **times)


def lookup_of(row, topics=TOPICS) -> Lookup:
    tag = int(row["tag"])
    return Lookup(int(row["key_hash"]), tag >> 31, topics[tag & layout.TOPIC_MASK])
