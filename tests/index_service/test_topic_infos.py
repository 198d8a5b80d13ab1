"""Counts and times of topics: exact where files list them, bounds where they do not."""

from __future__ import annotations

from tests.index_service.conftest import put
from tierdex import Index
from tierdex.index_service.opening import catalogue

ORDERS = ("orders", 2, 0, 1000, 1002)
PAYMENTS = ("payments", 1, 0, 1001, 1001)


def put_both(index):
    put(index, "a", 0)
    put(index, "b", 1, topic="payments")
    put(index, "c", 2)
    index.flush()


def test_topics_of_an_unsealed_file_have_bounds_until_it_lists_them(index):
    put_both(index)
    assert index.topic_infos() == [
        ("orders", 0, 3, 1000, 1002, 1),
        ("payments", 0, 3, 1000, 1002, 1),
    ]
    index.roll()
    index.run_compaction()
    assert index.topic_infos() == [(*ORDERS, 1), (*PAYMENTS, 1)]
    put(index, "d", 9, topic="refunds")
    put(index, "e", 3, topic="refunds")
    index.flush()
    assert index.topic_infos()[2] == ("refunds", 2, 0, 1003, 1009, 1)


def test_reader_asks_each_published_file_once_and_few_at_a_time(index, tmp_path, monkeypatch):
    for _ in range(3):
        put_both(index)
        index.roll()
        index.run_compaction()
    monkeypatch.setattr(catalogue, "READS_AT_ONCE", 1)
    with Index.open(store=tmp_path / "data" / "store") as reader:
        sent = []
        for _ in range(3):
            infos = reader.topic_infos()
            sent.append(reader.store_requests()["lookups"].get("get", 0))
        assert [info.item_count + info.uncounted for info in infos] == [6, 3]
        assert infos == [("orders", 6, 0, 1000, 1002, 3), ("payments", 3, 0, 1001, 1001, 3)]
        assert sent == [4, 6, 6]  # the first file, then one more
