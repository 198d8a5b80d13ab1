"""Target 6: bytes of an entry in the store, filter and directory included; unpacking a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.bench import compact_only, newest_file, store_that_is_down
from benchmarks.data import START_MS, Block
from benchmarks.floor import floor_unpack, load_floor
from benchmarks.measure import Row, seconds, take_turns
from tierdex.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.bench import Bench
    from tierdex import Index

ORIGINAL = 36.0  # bytes an item of the original: 28 and an 8-byte slot (at one item a slot)


def run(bench: Bench) -> None:
    with bench.folder() as folder:
        flights(bench, folder)
    with bench.folder() as folder:
        orders(bench, folder)
    with bench.folder() as folder:
        many_topics(bench, folder)


def flights(bench: Bench, folder: Path) -> None:
    from tools.demo.flights import load_demo

    index = bench.open_index(folder / "data")
    try:
        load_demo(index, folder / "unpacked")
    except NotFoundError as error:
        bench.skip("size of the flights", str(error))
        index.close()
        return
    index.roll()
    index.run_compaction()
    add_size(bench, index, "size of an entry: a year of flights", 0.5)
    index.close()


def orders(bench: Bench, folder: Path) -> None:
    store = store_that_is_down()
    index = bench.open_index(folder, store=store)
    for number in range(20):
        index.put_batch(**Block(number, bench.size(1_000_000)).entries)
    index.roll()
    with store.outage():
        compact_only(index)
        add_size(bench, index, f"size of an entry: {bench.size(20)} M orders", 0.5)
        unpack(bench, newest_file(index).reader)
        index.close()


def many_topics(bench: Bench, folder: Path) -> None:
    """1,000 topics of 8 queues each, one entry in a hundred late by up to a month."""
    store = store_that_is_down()
    index = bench.open_index(folder, store=store)
    rng = np.random.default_rng(9)
    names = pa.array([f"topic-{number:04d}" for number in range(1000)])
    sent = np.zeros((1000, 8), np.int64)
    for number in range(10):
        block = Block(number, bench.size(1_000_000))
        topic = rng.integers(0, 1000, block.count).astype(np.int32)
        queue = rng.integers(0, 8, block.count).astype(np.int32)
        size = rng.integers(300, 700, block.count).astype(np.uint32)
        order = np.lexsort((np.arange(block.count), queue, topic))
        offset = np.empty(block.count, np.int64)
        ends = np.cumsum(size[order].astype(np.int64))
        group = (topic.astype(np.int64) * 8 + queue)[order]
        starts = np.flatnonzero(np.diff(group, prepend=-1))
        base = np.repeat(ends[starts] - size[order][starts], np.diff([*starts, block.count]))
        before = sent.reshape(-1)[group]
        offset[order] = before + ends - size[order] - base
        np.maximum.at(sent.reshape(-1), group, offset[order] + size[order])
        time = START_MS + (number * block.count + np.arange(block.count)) // 10
        late = rng.random(block.count) < 0.01
        time[late] -= rng.integers(0, 30 * 86_400_000, np.count_nonzero(late))
        index.put_batch(
            topic=pa.DictionaryArray.from_arrays(topic, names), keys=block.keys, queue_id=queue,
            offset=offset, size=size, timestamp=time,
        )  # fmt: skip
    index.roll()
    with store.outage():
        compact_only(index)
        add_size(bench, index, "size of an entry: 1,000 topics x 8 queues, 1 % late", 0.56)
        index.close()


def add_size(bench: Bench, index: Index, name: str, limit: float) -> None:
    files = [info for info in index.files() if info.state in {"compacted", "uploaded"}]
    size = sum(info.bytes for info in files) / sum(info.item_count for info in files)
    bench.add(Row(6, name, "byte", size, "original", ORIGINAL, size / ORIGINAL, limit))


def unpack(bench: Bench, file: Any) -> None:
    """A full page, fetched: verified and unpacked to rows, beside a plain loop in C."""
    spans = [
        file.span(page, 1) for page in range(0, file.page_count - 1, max(1, file.page_count // 500))
    ]
    pages = [file.page_bytes(span) for span in spans]

    def ours(_round: int) -> float:
        return seconds(lambda: [file.decode_span(*each) for each in zip(spans, pages, strict=True)])

    contestants: dict[str, Callable[[int], float]] = {"ours": ours}
    library = load_floor()
    if library is not None:
        buffers = [np.frombuffer(page, np.uint8) for page in pages]
        out = np.empty(file.statistics.items_per_page, file.schema.dtype)
        for span, page, buffer in zip(spans, pages, buffers, strict=True):
            floor_unpack(library, file, buffer, out)
            rows = file.decode_span(span, page)
            assert all(
                np.array_equal(out[name], rows[name]) for name in ("key_hash", "offset", "tag")
            )
        contestants["plain C loop"] = lambda _: seconds(
            lambda: [floor_unpack(library, file, buffer, out) for buffer in buffers]
        )
    timings = take_turns(contestants)
    for times in timings.rounds.values():
        times[:] = [taken / len(spans) * 1e6 for taken in times]
    name = f"a full page of {file.statistics.items_per_page} items, verified and unpacked"
    bench.add_ratio(6, name, "us", timings, "plain C loop", 1.0)
