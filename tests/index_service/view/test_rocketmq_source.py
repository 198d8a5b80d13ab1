"""RocketMQ's files beside our own: asked, told apart, and left alone."""

from __future__ import annotations

import json

import pytest

from tests.index_service.conftest import offsets, put
from tests.rocketmq.rocketmq_files import make_writer
from tests.rocketmq.rocketmq_files import put as put_rocketmq
from tierdex.compactor.scrub import Scrubber
from tierdex.testing.components import components_of


@pytest.fixture
def folder(tmp_path):
    """A tiered store's folder with one local file and its topics."""
    root = tmp_path / "rocketmq"
    (root / "tiered_index_file").mkdir(parents=True)
    writer = make_writer()
    for offset in (1, 2):
        put_rocketmq(writer, "orders", "A", offset, topic_id=1)
    put_rocketmq(writer, "other", "A", 3, topic_id=2)
    path = root / "tiered_index_file" / "1700000000000"
    path.write_bytes(writer.local_bytes(ended=True))
    metadata = {"topicMetadataTable": {"orders": {"topicId": 1}, "other": {"topicId": 2}}}
    (root / "config").mkdir()
    (root / "config" / "tieredStoreMetadata.json").write_text(json.dumps(metadata))
    return root


@pytest.fixture
def index(make_index, folder):
    return make_index(rocketmq=folder)


def test_a_key_is_found_in_both_and_told_apart(index):
    put(index, "A", 9)
    answer = index.query("orders", key="A")
    assert sorted(offsets(answer)) == [1, 2, 9]
    functions = {entry.offset: entry.hash_function for entry in answer.entries}
    assert functions[9] is None
    assert functions[1] == functions[2] != functions[9]


def test_batches_ask_them_too(index):
    put(index, "A", 9)
    lookups = [{"topic": "orders", "key": "A"}, {"topic": "orders", "key": "absent"}]
    assert index.query_batch(lookups) == [index.query(**lookup) for lookup in lookups]


def test_a_message_id_without_a_topic_is_tried_in_every_topic(index):
    found = index.query(message_id="A")
    assert sorted((entry.topic, entry.offset) for entry in found.entries) == [
        ("orders", 1), ("orders", 2), ("other", 3),
    ]  # fmt: skip


def test_they_are_not_the_compactors_nor_the_scrubbers(index, folder):
    before = sorted(folder.rglob("*"))
    put(index, "A", 9)
    index.roll()
    index.run_compaction()
    compactor = components_of(index).writing.compactor
    scrubber = Scrubber(
        compactor.components,
        claims=compactor.claims,
        scrub_sidecar=lambda row: True,
    )
    for _ in range(3):
        scrubber.step()
    assert sorted(folder.rglob("*")) == before
    status = index.compaction_status()
    assert (status["backlog_files"], status["oldest_unpublished_age_s"]) == (0, 0.0)
    assert {"orders", "other"} <= set(index.topics())
    strangers = [file for file in index.files() if file.node == "rocketmq"]
    assert [index.verify_file(file.file_id) for file in strangers] == [[]]


def test_a_reader_of_both_keeps_both_over_a_refresh(make_index, folder):
    writer = make_index()
    put(writer, "A", 9, durability="os")
    reader = make_index(read_only=True, rocketmq=folder)
    for _ in range(2):
        assert sorted(offsets(reader.query("orders", key="A"))) == [1, 2, 9]
        reader.refresh()
