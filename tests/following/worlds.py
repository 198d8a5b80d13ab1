"""A log of each kind for the contract: how records come into it, and out of it again."""

from __future__ import annotations

import json
from typing import NamedTuple

from tests.following.memory_log import MemoryLog
from tierdex.following.open_source import open_source


class Sent(NamedTuple):
    """A record as it was given to its log."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


class MemoryWorld:
    """The log of the follower's tests. (`server` of a world: the fixture that it is made with.)

    `loses`: old records can be dropped from it. `widens`: a partition can be added to it.
    """

    server = "tmp_path"
    partitions = (0, 1)
    loses = True
    widens = True

    def __init__(self, folder, name):
        self.log = MemoryLog(self.partitions, name)

    def append(self, partition, records):
        return [self.log.append(partition, r.value, r.key, list(r.headers)) for r in records]

    def lose_before(self, partition, offset):
        self.log.lose(partition, offset)

    def add_partition(self):
        self.log.add_partition(2)
        return 2

    def source(self):
        return self.log.source()

    def close(self):
        pass


class FolderWorld:
    """Files of JSON lines. A line has neither key nor headers."""

    server = "tmp_path"
    loses = False
    widens = True

    def __init__(self, folder, name):
        self._folder = folder / name
        self._folder.mkdir()
        self.names = ["a.jsonl", "b.jsonl"]
        for each in self.names:
            (self._folder / each).write_bytes(b"\n")  # an empty line is no record
        numbers = {self.source_of(n): n for n in self.names}
        self._paths = numbers
        self.partitions = tuple(numbers)

    def source_of(self, name):
        source = self.source()
        return next(p for p in source.partitions() if source.name_of(p) == name)

    def append(self, partition, records):
        offsets = []
        with (self._folder / self._paths[partition]).open("ab") as file:
            for record in records:
                offsets.append(file.tell())
                file.write((record.value or b"") + b"\n")
        return offsets

    def add_partition(self):
        (self._folder / "c.jsonl").write_bytes(b"\n")
        number = self.source_of("c.jsonl")
        self._paths[number] = "c.jsonl"
        return number

    def source(self):
        return open_source(f"folder:{self._folder}")

    def close(self):
        pass


class KafkaWorld:
    """A topic of the session's broker."""

    server = "kafka"
    loses = True
    widens = True

    def __init__(self, broker, name, **settings):
        self.broker, self.name = broker, name
        self.partitions = broker.make_topic(name, 2, **settings)

    def append(self, partition, records, **producer):
        return self.broker.produce(self.name, partition, records, **producer)

    def lose_before(self, partition, offset):
        self.broker.lose_before(self.name, partition, offset)

    def add_partition(self):
        self.broker.widen(self.name, 3)
        return 2

    @property
    def address(self):
        return f"kafka://{self.broker.address}/{self.name}"

    def source(self, options=None):
        return open_source(self.address, options)

    def close(self):
        pass


class RedisWorld:
    """Two streams of the session's server, written apart by ten entries of one millisecond each."""

    server = "redis"
    loses = True
    widens = False
    partitions = (0, 1)

    def __init__(self, server, name):
        self.address = f"redis://{server.address}/0/{name}-a,{name}-b"
        self._names = [f"{name}-a", f"{name}-b"]
        self._client = server.client
        for stream in self._names:  # there, and empty
            self._client.xadd(stream, {"v": "x"}, id="1-1")
            self._client.xdel(stream, "1-1")

    def append(self, partition, records):
        pipeline = self._client.pipeline()
        for record in records:
            pipeline.xadd(self._names[partition], {"v": record.value, **dict(record.headers)})
        made = [each.decode().split("-") for each in pipeline.execute()]
        return [int(ms) << 21 | int(number) for ms, number in made]

    def lose_before(self, partition, offset):
        identifier = f"{offset >> 21}-{offset & (1 << 21) - 1}"
        self._client.xtrim(self._names[partition], minid=identifier, approximate=False)

    def source(self):
        return open_source(self.address, {"value": "v"})

    def close(self):
        pass


class JetStreamWorld:
    """A stream of the session's server: one partition."""

    server = "nats"
    loses = True
    widens = False
    partitions = (0,)

    def __init__(self, server, name):
        self._server, self._name = server, name
        self.address = f"nats://{server.address}/{name}"
        server.run(lambda stream: stream.add_stream(name=name, subjects=[f"{name}.>"]))

    def append(self, partition, records):
        async def publish(stream):
            acknowledged = [
                await stream.publish(
                    f"{self._name}.{(record.key or b'none').decode()}",
                    record.value or b"",
                    headers={name: value.decode() for name, value in record.headers},
                )
                for record in records
            ]
            return [each.seq for each in acknowledged]

        return self._server.run(publish)

    def lose_before(self, partition, offset):
        self._server.run(lambda stream: stream.purge_stream(self._name, seq=offset))

    def source(self):
        return open_source(self.address)

    def close(self):
        pass


class RabbitWorld:
    """Two streams of the session's server. Its retention drops segments: see test_rabbitmq.py."""

    server = "rabbitmq"
    loses = False
    widens = False
    partitions = (0, 1)

    def __init__(self, server, name):
        self._server = server
        self._names = [f"{name}-a", f"{name}-b"]
        self._counts = [0, 0]
        self.address = f"rabbitmq://{server.address}/{name}-a,{name}-b"
        for stream in self._names:
            server.make_stream(stream)

    def append(self, partition, records):
        self._server.publish(self._names[partition], records)
        first = self._counts[partition]
        self._counts[partition] += len(records)
        return list(range(first, self._counts[partition]))

    def source(self):
        return open_source(self.address)

    def close(self):
        pass


class RocketWorld:
    """A topic of the session's broker. Its files expire whole: see test_rocketmq_topic.py."""

    server = "rocketmq"
    loses = False
    widens = True

    def __init__(self, server, name):
        self._server, self._name = server, name
        self.address = f"rocketmq://{server.address}/{name}"
        self.partitions = server.make_topic(name)

    def append(self, partition, records):
        return self._server.send(self._name, partition, records)

    def add_partition(self):
        self._server.make_topic(self._name, 3)
        return 2

    def source(self):
        return open_source(self.address)

    def close(self):
        pass


WORLDS = {
    "memory": MemoryWorld,
    "folder": FolderWorld,
    "kafka": KafkaWorld,
    "redis": RedisWorld,
    "nats": JetStreamWorld,
    "rabbitmq": RabbitWorld,
    "rocketmq": RocketWorld,
}


def make_records(count, first=0):
    """Return records that any log can hold."""
    return [
        Sent(
            b"k%d" % n,
            json.dumps({"id": f"k{n}", "text": "\u00e9" * (n % 7)}).encode(),
            (("n", b"%d" % n),),
        )
        for n in range(first, first + count)
    ]  # fmt: skip
