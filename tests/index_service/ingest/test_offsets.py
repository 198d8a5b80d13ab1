"""A queue's watermark is the end of its last message: offset + size, or offset + 1 in a sequence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.index_service.conftest import SMALL, offsets, put
from tests.torture.quick_folder import quick_folder
from tierdex import Index
from tierdex.clock import ManualClock
from tierdex.errors import UnsupportedFormatError
from tierdex.filesystem import LocalFileSystem
from tierdex.ids import SeededIds
from tierdex.indexfile import layout
from tierdex.indexfile.dump import describe_file
from tierdex.indexfile.row_bounds import RowBounds
from tierdex.indexfile.schema import MESSAGE_SCHEMA, SEQUENCE_SCHEMA
from tierdex.storage_layer.memory import MemoryStore

TOPICS, QUEUES = ("a", "b"), range(3)
MOST = (1 << 63) - 1
SEMANTICS = ("bytes", "sequence")
message = st.tuples(
    st.sampled_from(TOPICS),
    st.sampled_from(QUEUES),
    st.integers(0, 5000) | st.integers(MOST - 40, MOST),
    st.integers(0, 600) | st.just((1 << 32) - 1),
)
STEPS = st.lists(
    st.tuples(st.sampled_from(("received", "os")), message)
    | st.tuples(st.sampled_from(("batch", "mixed")), st.lists(message, min_size=1, max_size=40))
    | st.tuples(st.sampled_from(("disk", "roll", "compact", "reopen", "expire")), st.none()),
    min_size=3,
    max_size=25,
)


class Story:
    """An index over a folder and a store, and the end of every queue, counted plainly."""

    def __init__(self, folder: Path, semantics: str) -> None:
        self.folder, self.semantics = folder, semantics
        self.clock = ManualClock()
        self.store = MemoryStore(clock=self.clock)
        self.ends: dict[tuple[str, int], int] = {}
        self.opened = 0
        self.index = self.open()

    def open(self) -> Index:
        self.opened += 1
        rules = {"offsets": self.semantics, "merge_min_files": 2, "item_capacity": 60, "node": "n"}
        return Index.open(
            self.folder, store=self.store, clock=self.clock, ids=SeededIds(self.opened), **(SMALL | rules)
        )  # fmt: skip

    def count(self, topic, queue_id, offset, size) -> None:
        end = min(MOST, offset + (1 if self.semantics == "sequence" else size))
        self.ends[topic, queue_id] = max(end, self.ends.get((topic, queue_id), 0))

    def run(self, name, given) -> None:
        self.clock.advance(1)
        if name in {"received", "os"}:
            topic, queue_id, offset, size = given
            self.index.put(
                topic=topic, keys=["k", "l"], message_id="m", queue_id=queue_id, offset=offset, size=size,
                timestamp=self.clock.now_ms(), durability=name,
            )  # fmt: skip
            self.count(*given)
        elif name in {
            "batch",
            "mixed",
        }:  # `batch` has one topic: its rows have a kernel of their own
            rows = [(given[0][0], *row[1:]) for row in given] if name == "batch" else given
            topics, *columns = map(list, zip(*rows, strict=True))
            queues, places, sizes = (
                np.array(column, dtype)
                for column, dtype in zip(columns, ("<i4", "<i8", "<u4"), strict=True)
            )
            self.index.put_batch(
                topic=topics[0] if name == "batch" else topics, keys=[f"k{i}" for i in range(len(rows))],
                timestamp=self.clock.now_ms(), queue_id=queues, offset=places, size=sizes,
            )  # fmt: skip
            for row in rows:
                self.count(*row)
        elif name == "disk":
            self.index.flush("disk")
            self.compare("disk")
        elif name == "roll":
            self.index.roll()
        elif name == "compact":
            self.index.roll()
            self.index.run_compaction()
            self.compare("remote")
        elif name == "expire":
            self.index.expire(before=self.clock.now_ms())
        else:
            self.index.close()
            self.index = self.open()
        self.index.flush("os")
        self.compare("os")

    def compare(self, level) -> None:
        found = {(t, q): self.index.watermark(t, q)[level] for t in TOPICS for q in QUEUES}
        assert found == {queue: self.ends.get(queue) for queue in found}, level


@pytest.mark.parametrize("semantics", SEMANTICS)
@given(steps=STEPS)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_watermark_of_random_puts_is_that_of_a_plain_model(semantics, steps):
    with quick_folder() as folder:
        story = Story(Path(folder), semantics)
        try:
            for name, given_ in steps:
                story.run(name, given_)
            story.run("compact", None)
            reader = Index.open(None, store=story.store, clock=story.clock, background=False)
            with reader:  # another node, whatever its own setting is
                for (topic, queue_id), end in story.ends.items():
                    assert reader.watermark(topic, queue_id, node="n") == {"published": end}
            story.run("reopen", None)
        finally:
            story.index.close()


def test_folder_of_positions_goes_on_with_a_sequence_in_a_file_of_its_own(make_index):
    index = make_index(merge_min_files=2)
    put(index, "K", 100, durability="disk")
    index.close()
    index = make_index(offsets="sequence", merge_min_files=2)
    put(index, "K", 500)
    put(index, "K", 501, queue_id=1, durability="disk")
    assert index.watermark("orders", 0)["disk"] == 501
    assert index.watermark("orders", 1)["disk"] == 502
    index.roll()
    index.run_compaction()
    index.run_compaction()
    assert len(index.files()) == 2, "files of one meaning are merged with each other only"
    assert sorted(offsets(index.query("orders", key="K"))) == [100, 500, 501]
    assert index.watermark("orders", 0)["os"] == 501


def test_program_of_before_refuses_files_of_a_sequence_in_clear_words(
    make_index, tmp_path, monkeypatch
):
    index = make_index(offsets="sequence")
    put(index, "K", 7)
    index.roll()
    index.run_compaction()
    put(index, "K", 8, durability="disk")
    files = [
        path for path in tmp_path.rglob("*") if path.is_file() and "uploaded" not in path.parts
    ]
    files = [path for path in files if path.read_bytes().startswith(layout.HEADER_MAGIC)]
    told = [describe_file(LocalFileSystem(), path) for path in files]
    assert {one["form"] for one in told} == {"chained", "compacted"}
    assert {(one["format_version"], one["offsets"]) for one in told} == {(2, "sequence")}
    monkeypatch.setattr(layout, "SEQUENCE_FORMAT_VERSION", 1)  # as in a program of before
    for path in files:
        with pytest.raises(UnsupportedFormatError, match="format version 2"):
            describe_file(LocalFileSystem(), path)


@pytest.mark.parametrize("schema", [MESSAGE_SCHEMA, SEQUENCE_SCHEMA], ids=SEMANTICS)
def test_ends_of_a_compacted_file_stop_at_the_greatest_offset(schema):
    rows = np.zeros(1, schema.dtype)
    rows["offset"], rows["size"] = MOST, 10
    assert RowBounds.measure(schema, [rows]).queues["end"].tolist() == [MOST]
    rows["offset"] = MOST - 5
    end = MOST - 4 if schema.is_sequence else MOST
    assert RowBounds.measure(schema, [rows]).queues["end"].tolist() == [end]


def test_files_of_positions_are_as_they_were():
    assert MESSAGE_SCHEMA.encode() == (
        b'{"fields":[["offset","<i8",0],["size","<u4",0],["queue_id","<i4",0]]}'
    )
    assert MESSAGE_SCHEMA.format_version == 1
    assert SEQUENCE_SCHEMA != MESSAGE_SCHEMA
    assert SEQUENCE_SCHEMA.is_message
    assert SEQUENCE_SCHEMA.dtype == MESSAGE_SCHEMA.dtype
