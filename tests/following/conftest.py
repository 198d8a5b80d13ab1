"""The brokers of these tests: one of each kind for the session, which all of them share."""

from __future__ import annotations

import pytest

from tests.servers.kafka import running_kafka
from tests.servers.nats import running_nats
from tests.servers.rabbitmq import running_rabbitmq
from tests.servers.redis import running_redis
from tests.servers.rocketmq import running_rocketmq


@pytest.fixture(scope="session")
def kafka(tmp_path_factory):
    """A Kafka cluster (`tests.servers.kafka.Topics`)."""
    with running_kafka(tmp_path_factory.mktemp("kafka")) as topics:
        yield topics


@pytest.fixture(scope="session")
def redis(tmp_path_factory):
    """A Redis server (`tests.servers.redis.RedisServer`)."""
    with running_redis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="session")
def nats(tmp_path_factory):
    """A NATS server (`tests.servers.nats.NatsServer`)."""
    with running_nats(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory):
    """A RabbitMQ server (`tests.servers.rabbitmq.RabbitServer`)."""
    with running_rabbitmq(tmp_path_factory.mktemp("rabbitmq")) as server:
        yield server


@pytest.fixture(scope="package")
def rocketmq(tmp_path_factory):
    """A RocketMQ broker (`tests.servers.rocketmq.RocketTopics`), which is busy while it idles."""
    with running_rocketmq(tmp_path_factory.mktemp("rocketmq")) as topics:
        yield topics


@pytest.fixture
def index(tmp_path):
    """An empty index in the folder `data` (tests/following/test_follower.py)."""
    from tests.following.test_follower import opened

    with opened(tmp_path / "data") as index:
        yield index
