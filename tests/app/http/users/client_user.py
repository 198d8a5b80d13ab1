"""A user's program over `tierdex_client`; its one line is JSON. What is refused for want of Arrow is told."""

from __future__ import annotations

import asyncio
import json
import sys

from tierdex_client import AsyncClient, Client, errors

url = sys.argv[1]
HEAVY = ("numba", "numpy", "pyarrow", "pydantic", "tierdex")
told = {"heavy": [name for name in HEAVY if name in sys.modules], "columns": {}}
topic = f"lookups of {len(sys.path)} {sys.path[0]}"
place = {"topic": topic, "queue_id": 0, "size": 1, "timestamp": 1_700_000_000_000}


def column(name, send):
    """Note what columns come to, or why they cannot be sent."""
    try:
        told["columns"][name] = send()
    except errors.InvalidRequestError as error:
        told["columns"][name] = str(error)


def asked(client):
    """Return the offsets that a table of one lookup finds."""
    try:
        import pyarrow as pa

        lookups = pa.table({"topic": [topic], "key": ["c"]})
    except ImportError:
        lookups = None
    return client.query_batch_arrow(lookups).column("offset").to_pylist()


with Client(url) as client:
    for offset in (1, 2, 3):
        assert client.put(**place, offset=offset, key="k") == "os"
    pages, cursor = [], None
    while not pages or cursor is not None:
        answer = client.query(topic, key="k", max_count=1, cursor=cursor)
        pages += [entry.offset for entry in answer.entries]
        cursor = answer.next_cursor
    told["pages"] = pages
    for offset, body in enumerate((b"a", b"b")):
        assert client.append(topic=topic, queue_id=0, body=body, key="k") == offset
    told["bodies"] = [message.body.decode() for message in client.get(topic, key="k")]
    try:
        client.put(**place, offset=1, key="k", keys=["k"])
    except errors.TierdexError as error:
        told["refused"] = [type(error).__name__, error.field]
    rows = {"topic": topic, "queue_id": 1}
    column("put_batch", lambda: client.put_batch(**{**place, "offset": [7]}, key=["c"]))
    column(
        "append_batch",
        lambda: client.append_batch(**rows, body=[b"x", b"y"], key=["k", "l"]).offsets.tolist(),
    )
    column("query_batch_arrow", lambda: asked(client))
    column("read", lambda: [[m.offset, m.body.decode(), m.keys] for m in client.reader(topic, 1)])


async def ask() -> bool:
    async with AsyncClient(url) as client:
        return (await client.query(topic, key="k")).complete


assert asyncio.run(ask())
print(json.dumps(told))
