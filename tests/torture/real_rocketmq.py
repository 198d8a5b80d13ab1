"""Index files that a real RocketMQ broker wrote and uploaded: every key lies where the broker says.

The broker's files are opened in place, inspected and verified; what they answer is put into an index of ours,
which then answers the same.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tierdex import Index
from tierdex.app.cli.commands.inspect import describe_index_file
from tierdex.app.cli.commands.verify import check_index_file
from tierdex.filesystem import LocalFileSystem
from tierdex.rocketmq.folder import RocketmqFolder
from tools.rocketmq_broker import TOPIC, run_tiered_broker

_SMALL = {"slot_count": 1 << 16, "item_capacity": 1 << 18}


def compare_with_broker(count, *, items=20_000):
    """Send so many messages through a broker, and compare; return how many keys were looked up."""
    with tempfile.TemporaryDirectory() as folder:
        root, places = run_tiered_broker(Path(folder), count, items=items)
        files, unreadable = RocketmqFolder(LocalFileSystem(), root).files()
        assert unreadable == []
        forms = [(file.shape.form, file.item_count) for file in files]
        # Its shutdown uploads the last one; an item for the key, one for the client's own ID.
        assert {form for form, _ in forms} == {"compacted"}, forms
        assert sum(held for _, held in forms) == 2 * count, forms
        for path in sorted(root.rglob("rmq_sys_INDEX/0/INDEX/*")):
            assert check_index_file(path) == []
            assert describe_index_file(path)["item_count"] > 0
        with Index.open(Path(folder) / "data", rocketmq=root, **_SMALL) as index:
            rows = [_row_of(index, place) for place in places]
            imported = Path(folder) / "imported"
        with Index.open(imported, **_SMALL) as index:
            index.put_batch(
                topic=TOPIC, keys=[place.key for place in places],
                queue_id=[row.queue_id for row in rows], offset=[row.offset for row in rows],
                size=[row.size for row in rows], timestamp=[row.timestamp for row in rows],
            )  # fmt: skip
            for place, row in zip(places, rows, strict=True):
                (entry,) = index.query(TOPIC, key=place.key).entries
                assert (entry.queue_id, entry.offset, entry.size, entry.timestamp) == (
                    row.queue_id, row.offset, row.size, row.timestamp,
                )  # fmt: skip
    return len(places)


def _row_of(index, place):
    """Return the one entry that lies where the broker says; others of the key share its 32-bit hash."""
    answer = index.query(TOPIC, key=place.key, max_count=1000)
    assert answer.complete, answer.missing
    found = [
        entry
        for entry in answer.entries
        if (entry.queue_id, entry.offset, entry.size) == (place.queue_id, place.offset, place.size)
    ]
    assert len(found) == 1, (place, answer.entries)
    return found[0]
