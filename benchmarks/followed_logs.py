"""How fast `tierdex follow` reads each kind of log, beside its bare client library with the same decoding.

    python -m benchmarks.followed_logs [--messages 100000] [--rounds 3] [KIND ...]

Each round reads the whole log twice: by the library alone (each message's key, offset, time, and a field of
its JSON), then by a follower into a new index. Same process, same server; the median of the rounds' ratios
counts, in seconds of the clock and in seconds of CPU, which a busy machine disturbs less. The servers are
those of the tests.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import orjson

import tierdex
from tests.following.worlds import WORLDS, Sent
from tests.servers.kafka import running_kafka
from tests.servers.nats import running_nats
from tests.servers.rabbitmq import running_rabbitmq
from tests.servers.redis import running_redis

SERVERS = {
    "kafka": running_kafka, "redis": running_redis, "nats": running_nats, "rabbitmq": running_rabbitmq,
}  # fmt: skip
BATCH = 5_000


def messages(count):
    for n in range(count):
        order = {
            "id": f"ORDER-{n}",
            "state": "packed",
            "items": [{"sku": "TEA", "n": n % 9}],
            "note": "x" * 120,
        }
        yield Sent(b"customer-%d" % (n % 5000), orjson.dumps({"order": order}))


def decode(value):
    return orjson.loads(value)["order"]["id"]


# -- the bare libraries: each returns how many messages it read --------------------------------------------


def read_folder(world, count):
    read = 0
    for path in sorted(world.folder.iterdir()):
        at = 0
        with path.open("rb") as file:
            for line in file:
                decode(line)
                at += len(line)
                read += 1
    return read


def read_kafka(world, count):
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": world.broker.address, "group.id": "bare", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(world.name, p, OFFSET_BEGINNING) for p in world.partitions])
    read = 0
    while read < count:
        for message in consumer.consume(BATCH, 1.0):
            _ = message.key(), message.offset(), message.timestamp()
            decode(message.value())
            read += 1
    consumer.close()
    return read


def read_redis(world, count):
    client, read, after = world._client, 0, dict.fromkeys(world._names, "0-0")
    while read < count:
        for stream, entries in client.xread(after, count=BATCH):
            for _, fields in entries:
                decode(fields[b"v"])
                read += 1
            after[stream.decode()] = entries[-1][0]
    return read


def read_nats(world, count):
    async def reading(stream):
        from nats.js.api import AckPolicy, ConsumerConfig

        config = ConsumerConfig(ack_policy=AckPolicy.NONE)
        pull = await stream.pull_subscribe("", stream=world._name, config=config)
        read = 0
        while read < count:
            for message in await pull.fetch(2000, timeout=5):
                told = message.metadata
                _ = message.subject.encode(), told.sequence.stream, told.timestamp
                decode(message.data)
                read += 1
        return read

    return world._server.run(reading)


def read_rabbitmq(world, count):
    import rstream

    async def reading():
        host, _, port = world._server.address.partition(":")
        consumer = rstream.Consumer(host, int(port), username="guest", password="guest")
        done, read = asyncio.Event(), 0

        def take(message, context):
            nonlocal read
            _ = message.properties.subject, context.offset, context.timestamp
            decode(message.body)
            read += 1
            if read == count:
                done.set()

        await consumer.start()
        for stream in world._names:
            await consumer.subscribe(stream, take, decoder=rstream.amqp_decoder)
        await done.wait()
        taken = time.perf_counter()
        await consumer.close()  # it sleeps
        world.waited = time.perf_counter() - taken
        return read

    return asyncio.run(reading())


# -- the follower ------------------------------------------------------------------------------------------


def follow(world, kind, folder, count):
    keys = ["$.order.id"] if kind in ("folder", "redis") else ["key", "$.order.id"]
    options = {"value": "v"} if kind == "redis" else None
    with tierdex.Index.open(folder) as index:
        follower = tierdex.follow(
            index,
            world.address,
            keys=keys,
            topic="t",
            once=True,
            options=options,
            time="$.none" if kind == "folder" else None,
        )
        began = now()
        status = follower.run()
        taken = now() - began
        assert status.messages == count, status
        assert index.query("t", key=f"ORDER-{count - 1}").entries
    return taken


def timed(read, world, count):
    world.waited = 0.0
    began = now()
    assert read(world, count) == count
    return now() - began - np.array([world.waited, 0.0])


def now():
    """The clock, and the CPU of all our threads, in seconds."""
    return np.array([time.perf_counter(), time.process_time()])


def compare(kind, world, count, rounds, scratch):
    for partition in world.partitions:
        share = world.partitions.index(partition), len(world.partitions)
        mine = [each for n, each in enumerate(messages(count)) if n % share[1] == share[0]]
        for begin in range(0, len(mine), 1000):
            world.append(partition, mine[begin : begin + 1000])
    bare, ours = np.empty((2, rounds, 2))
    for number in range(-1, rounds):  # the first one, which warms up, is written over
        bare[number] = timed(globals()[f"read_{kind}"], world, count)
        ours[number] = follow(world, kind, scratch / f"{kind}-{number}", count)
        shutil.rmtree(scratch / f"{kind}-{number}")
    rates = count / np.median([bare, ours], axis=1)
    clock, cpu = np.median(bare / ours, axis=0)
    print(
        f"{kind:10} library {rates[0, 0]:9,.0f}/s  follow {rates[1, 0]:9,.0f}/s  ratio {clock:.2f}"
        f"   of CPU: {rates[0, 1]:9,.0f}/s {rates[1, 1]:9,.0f}/s  ratio {cpu:.2f}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", default=["folder", *SERVERS])
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="followed-"))
    try:
        for kind in asked.kinds:
            if kind == "folder":
                world = WORLDS[kind](scratch, "lines")
                world.folder = scratch / "lines"
                world.address = f"folder:{world.folder}"
                world.partitions = world.partitions[:1]
                compare(kind, world, asked.messages, asked.rounds, scratch)
                continue
            with SERVERS[kind](scratch / f"{kind}-server") as server:
                world = WORLDS[kind](server, "rates")
                compare(kind, world, asked.messages, asked.rounds, scratch)
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
