"""A batch that ends in another file than it began in: its strings are in both, its rows are not."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tierdex.storage_layer.memory import MemoryStore

ROWS = 48
FIRST_B = 40  # beyond the first file's end


def put_over_the_end(index):
    numbers = np.arange(ROWS)
    index.put_batch(
        topic=pa.array(["A"] * FIRST_B + ["B"] * (ROWS - FIRST_B)),
        keys=pa.array([f"key-{number}" for number in range(ROWS)]),
        queue_id=np.zeros(ROWS, np.int32),
        offset=numbers * 10,
        size=np.full(ROWS, 10, np.uint32),
        timestamp=1_700_000_000_000 + numbers,
    )
    index.roll()


def test_topic_of_the_second_file_alone_does_not_keep_the_first_from_being_compacted(make_index):
    index = make_index(store=MemoryStore(), item_capacity=32)
    put_over_the_end(index)
    assert [file.item_count for file in index.files()] == [ROWS - 32, 32]
    index.run_compaction()
    assert [file.state for file in index.files()] == ["uploaded", "uploaded"]
    found = [index.query("A" if n < FIRST_B else "B", key=f"key-{n}").entries for n in range(ROWS)]
    assert [[entry.offset for entry in entries] for entries in found] == [
        [n * 10] for n in range(ROWS)
    ]
