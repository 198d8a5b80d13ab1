"""A Kafka broker for the test session: a real one where Maven and Java are, else librdkafka's mock cluster.

The mock speaks the protocol, over TCP, within the test process: no log, no retention, no topic IDs.
"""

from __future__ import annotations

import contextlib

import pytest

from tools.kafka_broker import KafkaBroker
from tools.maven import JarsUnavailableError

_S = 120.0
USERS = {"reader": "reader-login", "stranger": "stranger-login"}


class Topics:
    """What tests do to the topics of a cluster."""

    def __init__(self, address, process=None):
        from confluent_kafka.admin import AdminClient

        self.address = address
        self.process = process  # None: the mock cluster
        self.admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        self._producers = {}

    def need_real(self):
        if self.process is None:
            pytest.skip("needs a real Kafka broker, which needs Maven and Java")

    def make_topic(self, name, partitions, **settings):
        """Make a topic and return its partitions; the mock makes what is asked for, with four."""
        from confluent_kafka.admin import NewTopic

        if self.process is None:
            while not (found := self._partitions(name)):
                pass
            return tuple(found)
        config = {key.replace("_", "."): str(value) for key, value in settings.items()}
        topic = NewTopic(name, partitions, 1, config=config)
        self.admin.create_topics([topic])[name].result(_S)
        self._wait_for_leaders(name, partitions)
        return tuple(range(partitions))

    def _wait_for_leaders(self, name, partitions):
        """Wait until the broker knows the partitions, and that it leads them: it tells the first before."""
        while len(self._partitions(name)) < partitions:
            pass
        for partition in range(partitions):
            while not self._is_led(name, partition):
                pass

    def _is_led(self, name, partition):
        from confluent_kafka import KafkaError, KafkaException, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        asked = self.admin.list_offsets(
            {TopicPartition(name, partition): OffsetSpec.earliest()}, request_timeout=_S
        )
        try:
            for answer in asked.values():
                answer.result(_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION:
                raise
            return False
        return True

    def _partitions(self, name):
        found = self.admin.list_topics(name, timeout=_S).topics[name]
        return {} if found.error else found.partitions

    def widen(self, name, partitions):
        from confluent_kafka.admin import NewPartitions

        self.need_real()
        self.admin.create_partitions([NewPartitions(name, partitions)])[name].result(_S)
        self._wait_for_leaders(name, partitions)
        for producer in self._producers.values():  # each knows the partitions on its own
            while len(producer.list_topics(name, timeout=_S).topics[name].partitions) < partitions:
                pass

    def allow(self, user, name, *operations):
        """Let a user of `process.login_address` do some operations on a topic: "READ", "DESCRIBE"."""
        from confluent_kafka import admin as kafka

        self.need_real()
        rights = [
            kafka.AclBinding(
                kafka.ResourceType.TOPIC, name, kafka.ResourcePatternType.LITERAL, f"User:{user}", "*",
                kafka.AclOperation[each], kafka.AclPermissionType.ALLOW,
            )
            for each in operations
        ]  # fmt: skip
        for made in self.admin.create_acls(rights).values():
            made.result(_S)

    def lose_before(self, name, partition, offset):
        from confluent_kafka import TopicPartition

        self.need_real()
        place = TopicPartition(name, partition, offset)
        self.admin.delete_records([place])[place].result(_S)

    def producer(self, **settings):
        from confluent_kafka import Producer

        given = {key.replace("_", "."): value for key, value in settings.items()}
        if str(given) not in self._producers:
            self._producers[str(given)] = Producer(
                {
                    "bootstrap.servers": self.address, "linger.ms": 1, "log_level": 0,
                    # Else a batch that is sent again is there twice, or behind the next.
                    "enable.idempotence": True, "max.in.flight": 1,
                    **given,
                }
            )  # fmt: skip
        return self._producers[str(given)]

    def produce(self, name, partition, records, *, timestamp=None, **settings):
        """Append records (key, value, headers) and return their offsets."""
        offsets = {}

        def delivered(number):
            def note(error, message):
                assert error is None, error
                offsets[number] = message.offset()

            return note

        producer = self.producer(**settings)
        for number, (key, value, headers) in enumerate(records):
            extra = {} if timestamp is None else {"timestamp": timestamp}
            producer.produce(
                name, value, key, partition, on_delivery=delivered(number), headers=list(headers), **extra
            )  # fmt: skip
        producer.flush(_S)
        return [offsets[number] for number in range(len(records))]


@contextlib.contextmanager
def running_kafka(folder):
    """Yield the topics of a cluster; skip where there is no client for it."""
    pytest.importorskip("confluent_kafka", reason="pip install 'tierdex[kafka]'")
    try:
        broker = KafkaBroker(folder, users=USERS)
    except JarsUnavailableError:
        with _mock_cluster() as address:
            yield Topics(address)
        return
    broker.start()
    try:
        yield Topics(broker.address, broker)
    finally:
        broker.kill()  # its folder is thrown away


@contextlib.contextmanager
def _mock_cluster():
    from confluent_kafka import Producer

    # The cluster lives as long as this client; its address stands in the client's metadata.
    client = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 0})
    (broker,) = client.list_topics(timeout=_S).brokers.values()
    yield f"{broker.host}:{broker.port}"
