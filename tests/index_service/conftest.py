"""An index over a fresh folder, small files, no threads, manual clock: everything by hand."""

from __future__ import annotations

import pytest

from tierdex import Index
from tierdex.clock import ManualClock
from tierdex.ids import SeededIds
from tierdex.index_service.answer import Answer

SMALL = {"slot_count": 64, "item_capacity": 1000, "background": False, "disk_reserve_bytes": 0}


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def make_index(tmp_path, clock):
    """Return a factory of indexes over `tmp_path`; all are closed at the end."""
    opened = []

    def make(data=tmp_path / "data", **settings):
        ids = settings.pop("ids", None) or SeededIds(len(opened))
        seams = {"clock": settings.pop("clock", clock), "ids": ids}
        index = Index.open(data, **seams, **{**SMALL, **settings})
        opened.append(index)
        return index

    yield make
    for index in opened:
        index.close()


@pytest.fixture
def index(make_index):
    return make_index()


def put(index, key, offset, *, topic="orders", timestamp=None, **more):
    """Put one message whose offset tells it apart, through the buffer unless told otherwise."""
    fields = {
        "durability": "received",
        "queue_id": 0,
        "size": 10,
        "timestamp": 1000 + offset if timestamp is None else timestamp,
    }
    return index.put(topic=topic, keys=[key], offset=offset, **{**fields, **more})


def offsets(answer):
    return [entry.offset for entry in answer.entries]


def from_memory(index, topic=None, **asked):
    """Return the answer that memory alone has, None where a query would go on elsewhere."""
    told = index.begin_query(topic, **asked)
    return told if isinstance(told, Answer) else None
