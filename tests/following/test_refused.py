"""Logs that refuse us: a login that may not read what is asked for (RabbitMQ's: test_rabbitmq.py)."""

from __future__ import annotations

import pytest

from tests.following.worlds import KafkaWorld, make_records
from tests.servers.kafka import USERS
from tests.servers.nats import NatsServer
from tierdex.errors import PermissionDeniedError
from tierdex.following.follow import follow

SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
PASSWORD = "hunter-2"
NATS_USERS = """
authorization {
  users: [
    {user: owner, password: owner}
    {user: stranger, password: hunter-2, permissions: {publish: {deny: "$JS.API.STREAM.INFO.>"}}}
    {user: half, password: hunter-2, permissions: {publish: {deny: "$JS.API.CONSUMER.>"}}}
  ]
}
"""


def run_once(index, address, **options):
    return follow(index, address, keys=["key"], once=True, options=options).run()


def check_refused(index, address, **options):
    with pytest.raises(PermissionDeniedError, match=address.split("@")[1]) as raised:
        run_once(index, address, **options)
    for secret in (PASSWORD, *USERS.values()):
        assert secret not in str(raised.value)
    return str(raised.value)


def test_kafka_without_rights_to_the_topic_or_to_its_records(index, kafka):
    world = KafkaWorld(kafka, "t-guarded")
    world.append(0, make_records(3))
    kafka.need_real()

    def address(user, password):
        return f"kafka://{user}:{password}@{kafka.process.login_address}/{world.name}"

    check_refused(index, address("reader", "wrong-login"), **SASL)
    assert "uthoriz" in check_refused(index, address("stranger", USERS["stranger"]), **SASL)
    kafka.allow("reader", world.name, "DESCRIBE")
    assert "uthoriz" in check_refused(index, address("reader", USERS["reader"]), **SASL)
    kafka.allow("reader", world.name, "READ")
    assert run_once(index, address("reader", USERS["reader"]), **SASL).messages == 3


def test_redis_without_rights_to_the_stream(index, redis):
    redis.client.xadd("guarded", {"id": "a"})
    may = {"enabled": True, "passwords": [f"+{PASSWORD}"], "commands": ["+@all"]}
    redis.client.acl_setuser("stranger", keys=["other-*"], **may)
    redis.client.acl_setuser("half", keys=["guarded"], **{**may, "commands": ["+@all", "-xread"]})
    for user in ("stranger", "half"):
        address = f"redis://{user}:{PASSWORD}@{redis.address}/0/guarded"
        assert "permissions" in check_refused(index, address)


def test_nats_without_rights_to_the_stream_or_to_consumers(index, nats, tmp_path):
    server = NatsServer(tmp_path / "nats", NATS_USERS)
    server.start()
    try:
        owner = {"user": "owner", "password": "owner"}
        server.run(lambda stream: stream.add_stream(name="guarded", subjects=["g.>"]), **owner)
        for user in ("stranger", "half"):
            address = f"nats://{user}:{PASSWORD}@{server.address}/guarded"
            assert "ermissions" in check_refused(index, address)
        check_refused(index, f"nats://owner:{PASSWORD}@{server.address}/guarded")
    finally:
        server.kill()
