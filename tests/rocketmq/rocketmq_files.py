"""Makes small RocketMQ index files for the tests."""

import numpy as np

from tierdex.filesystem import LocalFileSystem
from tierdex.rocketmq.file import ROW
from tierdex.rocketmq.layout import java_hash
from tierdex.rocketmq.writer import RocketmqIndexWriter

BEGIN = 1_700_000_000_000
FILES = LocalFileSystem()


def make_writer(*, slots=5, items=20, begin=BEGIN):
    return RocketmqIndexWriter(begin_ms=begin, slot_capacity=slots, item_capacity=items)


def make_vector():
    """The test vector of the format's description."""
    writer = make_writer()
    for i in range(5):
        for j in range(2):
            put(writer, f"TopicTest{i}", "MessageKey", 666 + 10 * i + j, 1000 * (2 * i + j))
    return writer


def put(writer, topic, key, offset, after_ms=0, *, topic_id=123):
    writer.put(
        topic,
        topic_id=topic_id,
        queue_id=2,
        keys=[key],
        offset=offset,
        size=1024,
        timestamp=BEGIN + after_ms,
    )


def find(file, topic, key, begin=None, end=None):
    """Return all rows that a file finds, newest first."""
    return np.concatenate([np.empty(0, ROW), *file.find_blocks(topic, key, begin, end)])


def key_with_hash(topic, wanted):
    """Return a key of printable characters whose java_hash(topic#key) is `wanted`."""
    length = 8
    rest = (wanted - java_hash(f"{topic}#") * 31**length) % (1 << 32)
    low, high = 48, 122
    for value in range(rest, 1 << 60, 1 << 32):
        digits, left = [], value
        for place in range(length - 1, -1, -1):
            power = 31**place
            below = sum(31**k for k in range(place)) * low
            digit = min(high, max(low, (left - below) // power))
            digits.append(digit)
            left -= digit * power
        if left == 0:
            return "".join(map(chr, digits))
    raise AssertionError("no such key")
