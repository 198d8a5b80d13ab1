"""A user's program, for type checkers: what ends in `# refused` must be an error, nothing else may be."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

import tierdex


def right(index: tierdex.Index, client: tierdex.Client) -> int:
    index.put(topic="t", keys=["a"], queue_id=0, offset=1, size=2, timestamp=3, durability="os")
    client.put(topic="t", keys=("a", "b"), queue_id=0, offset=1, size=2, timestamp=3)
    index.flush("remote")
    answer: tierdex.Answer = index.query("t", key="a", on_error="fail")
    explain: tierdex.Explain | None = answer.explain
    level: tierdex.Durability = "remote"
    client.append(topic="t", queue_id=0, body=b"x", keys={"a"}, durability=level)
    index.put_batch(
        topic="t", keys=[["a", "b"], "c"], queue_id=0, offset=[1, 2], size=2, timestamp=3
    )
    index.put_batch(
        topic=pa.array(["t"]), key=np.array(["k"]), message_id=[None], queue_id=np.int32(0),
        offset=range(1), size=pa.array([1]), timestamp=[datetime.now(UTC)],
    )  # fmt: skip
    client.append_batch(topic="t", queue_id=0, body=["text", "texts"])
    client.append_batch(topic=["t"], queue_id=0, body=[b"x"], headers=[[("n", b"v")]], key=["k"])
    index.query_batch(
        [{"topic": "t", "key": "a", "begin": "2024-01-01T00:00:00Z"}, {"message_id": "m"}]
    )
    files: list[tierdex.FileInfo] = [*index.files(), *client.files()]
    assert explain is None or files
    return sum(entry.offset + entry.size for entry in answer.entries)


def open_it() -> tierdex.Index:
    level: tierdex.Durability = "disk"
    index = tierdex.Index.open("data", roll_after=3, node="n", peers=["http://a:1"])
    index.flush(level)
    return index


def wrong(index: tierdex.Index, client: tierdex.Client) -> None:
    tierdex.Indxe()  # refused
    tierdex.Index.open("data", roll_afterr=3)  # refused
    tierdex.Index.open("data", roll_after="soon")  # refused
    tierdex.MessageLog.open("data", slot_cuont=3)  # refused
    index.put(topic="t", keys=7, queue_id=0, offset=1, size=2, timestamp=3)  # refused
    client.put(topic="t", keys=7, queue_id=0, offset=1, size=2, timestamp=3)  # refused
    index.flush("dsk")  # refused
    client.flush("dsk")  # refused
    index.put_batch(topic="t", timestamp=3, durability="dsk")  # refused
    index.query("t", key="a", on_error="ignore")  # refused
    index.qurey("t", key="a")  # refused
    index.put_batch(topic=3, keys=["a"], queue_id=0, offset=[1], size=2, timestamp=3)  # refused
    client.put_batch(topic="t", queue_id="0", offset=1, size=2, timestamp=3)  # refused
    index.query_batch([{"topc": "t", "key": "a"}])  # refused
    client.query_batch([{"topic": "t", "key": 1}])  # refused
    raise tierdex.errors.NotFuondError("x")  # refused


def wrong_log(log: tierdex.MessageLog, client: tierdex.Client) -> None:
    log.append(topic="t", queue_id=0, body=b"x", keys=7)  # refused
    client.append(topic="t", queue_id=0, body=b"x", keys=7)  # refused
    log.append_nowait(topic="t", queue_id=0, body=b"x", durability="dsk")  # refused
    client.append_batch(topic="t", queue_id=0, body=[b"x"], durability="dsk")  # refused
    log.append_batch(topic="t", queue_id=0, body="text")  # refused
    client.append_batch(topic="t", queue_id=0, body=[7])  # refused
    log.append_batch(topic=3, queue_id=0, body=[b"x"])  # refused
    log.flush("dsk")  # refused
    client.read("t", 0, 0, visible="dsk")  # refused
    log.get("t", key="a", policy="FORCED")  # refused


async def wrong_too(client: tierdex.AsyncClient) -> None:
    await client.flush("dsk")  # refused
    await client.query("t", key=b"a")  # refused
