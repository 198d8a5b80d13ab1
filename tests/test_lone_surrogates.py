"""Half of a surrogate pair is refused by a typed error wherever the embedded API takes text."""

from __future__ import annotations

import pytest

from tierdex import Index, MessageLog
from tierdex.errors import InvalidRequestError, TierdexError
from tierdex.index_service.journey import find_journey
from tierdex.storage_layer.local import LocalStore

HALF = "\ud800"
PLACE = {"queue_id": 0, "offset": 0, "size": 1, "timestamp": 1_700_000_000_000}
TINY = {"background": False, "slot_count": 64, "item_capacity": 1000}

OF_INDEX = [
    lambda i: i.put(topic=HALF, key="k", **PLACE),
    lambda i: i.put(topic="t", key=HALF, **PLACE),
    lambda i: i.put(topic="t", keys=["a", HALF], **PLACE),
    lambda i: i.put(topic="t", message_id=HALF, **PLACE),
    lambda i: i.put(topic="t", key="k", **{**PLACE, "timestamp": HALF}),
    lambda i: i.put_batch(topic=["t", HALF], keys=["a", "b"], **PLACE),
    lambda i: i.put_batch(topic="t", keys=["a", HALF], **PLACE),
    lambda i: i.put_batch(topic="t", message_id=["a", HALF], **PLACE),
    lambda i: i.query(HALF, key="k"),
    lambda i: i.query("t", key=HALF),
    lambda i: i.query(message_id=HALF),
    lambda i: i.query("t", key="k", begin=HALF),
    lambda i: i.query("t", key="k", cursor=HALF),
    lambda i: i.query("t", key="k", on_error=HALF),
    lambda i: i.query_batch([{"topic": "t", "key": HALF}]),
    lambda i: i.query_batch([{HALF: "t"}]),
    lambda i: i.query_batch_arrow([{"topic": HALF}]),
    lambda i: i.histogram("t", key=HALF),
    lambda i: find_journey(i, HALF),
    lambda i: i.watermark(HALF, 0),
    lambda i: i.watermark("t", 0, node=HALF),
    lambda i: i.file(HALF),
    lambda i: i.expire(before=HALF),
    lambda i: i.forget([{"topic": "t", "key": HALF}]),
    lambda i: i.resume_forgetting(HALF),
    lambda i: i.flush(HALF),
]
OF_LOG = [
    lambda log: log.append(topic=HALF, queue_id=0, body=b"x"),
    lambda log: log.append(topic="t", queue_id=0, body=b"x", keys=["a", HALF]),
    lambda log: log.append(topic="t", queue_id=0, body=b"x", message_id=HALF),
    lambda log: log.append(topic="t", queue_id=0, body=b"x", headers={HALF: "a"}),
    lambda log: log.append(topic="t", queue_id=0, body=b"x", headers={"a": HALF}),
    lambda log: log.append_batch(topic=["t", HALF], queue_id=0, body=[b"x", b"y"]),
    lambda log: log.append_batch(topic="t", queue_id=0, body=[b"x"], keys=[[HALF]]),
    lambda log: log.append_batch(topic="t", queue_id=0, body=[b"x"], headers=[{"a": HALF}]),
    lambda log: log.read(HALF, 0, 0),
    lambda log: log.read_many([(HALF, 0, 0)]),
    lambda log: list(log.reader(HALF, 0)),
    lambda log: log.get("t", key=HALF),
    lambda log: log.get(message_id=HALF),
    lambda log: log.get("t", key="k", cursor=HALF),
    lambda log: log.offset_at(HALF, 0, 0),
    lambda log: log.forget([{"topic": "t", "key": HALF}]),
]
OF_OPENING = [
    {"node": HALF}, {"store": f"/tmp/{HALF}"}, {"store": f"s3://bucket/{HALF}"}, {"rocketmq": HALF},
    {"topic_retention": {HALF: 1.0}}, {"cache_dir": HALF}, {"kernel_cache_dir": HALF},
    {"advertise_url": HALF}, {"peers": [HALF]}, {HALF: 1},
]  # fmt: skip


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    with Index.open(tmp_path_factory.mktemp("index"), **TINY) as index:
        yield index


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    with MessageLog.open(tmp_path_factory.mktemp("log"), **TINY) as log:
        yield log


@pytest.mark.parametrize("call", OF_INDEX)
def test_calls_of_an_index_refuse_half_a_pair(index, call):
    with pytest.raises(TierdexError):
        call(index)


@pytest.mark.parametrize("call", OF_LOG)
def test_calls_of_a_log_refuse_half_a_pair(log, call):
    with pytest.raises(TierdexError):
        call(log)


@pytest.mark.parametrize("kind", [Index, MessageLog])
@pytest.mark.parametrize("named", OF_OPENING)
def test_openings_refuse_half_a_pair(tmp_path, kind, named):
    if kind is MessageLog and "rocketmq" in named:
        return
    with pytest.raises(TierdexError):
        kind.open(tmp_path / "data", **{**TINY, **named}).close()


@pytest.mark.parametrize("kind", [Index, MessageLog])
def test_a_folder_with_half_a_pair_is_refused(tmp_path, kind):
    with pytest.raises(InvalidRequestError, match="surrogate"):
        kind.open(f"{tmp_path}/{HALF}", **TINY)


def test_a_store_that_is_a_file_blames_no_permissions(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(TierdexError, match="it is no folder: name another one"):
        LocalStore(tmp_path / "file").put("a/b", b"x")
