"""A RocketMQ name server and broker for the test session, and a producer by the wire: its own, not ours."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import socket
import struct
import zlib

import pytest

from tests.patience import PATIENCE_S
from tierdex.clock import SystemClock
from tools.maven import JarsUnavailableError
from tools.rocketmq_server import RocketServer

_SEND, _PULL, _ROUTE, _MAKE_TOPIC, _DROP_TOPIC, _DELETE_OLD = 10, 11, 105, 17, 215, 329
_MAKE_USER, _MAX_OFFSET, _MIN_OFFSET = 3001, 30, 31
_BATCH_MAGIC = 0xDAA320A7
clock = SystemClock()


class RocketTopics:
    """What tests do to the topics of a broker. `process` is the server."""

    def __init__(self, process):
        self.process = process
        self.address = process.address
        self.admin = process.admin_command()
        self._sockets = {}
        self._login = None

    def make_topic(self, name, queues=2, attributes="", brokers=("broker-a",)):
        for broker in brokers:
            self._make_topic(name, queues, attributes, broker)
        give_up = clock.monotonic() + PATIENCE_S
        while self._queues(name) != [queues] * len(brokers):
            assert clock.monotonic() < give_up
        return tuple(range(queues))

    def _make_topic(self, name, queues, attributes, broker):
        self.ask(
            _MAKE_TOPIC,
            topic=name, defaultTopic="TBW102", readQueueNums=queues, writeQueueNums=queues, perm=6,
            topicFilterType="SINGLE_TAG", topicSysFlag=0, order="false", attributes=attributes,
            broker=broker,
        )  # fmt: skip

    def make_user(self, name, password):
        user = {"username": name, "password": password, "userType": "Normal"}
        self.ask(_MAKE_USER, json.dumps(user).encode(), username=name)

    def drop_topic(self, name):
        self.ask(_DROP_TOPIC, topic=name)

    def delete_old_files(self):
        """Let the broker delete what is older than its `fileReservedTime`, soon."""
        self.ask(_DELETE_OLD)

    def send(self, topic, queue, records, broker="broker-a"):
        """Append records (key, value, headers) as one batch; return their offsets once they can be read."""
        packed = [
            _packed(value or b"", _properties(key, headers)) for key, value, headers in records
        ]
        told = self.ask(
            _SEND,
            b"".join(packed),
            producerGroup="tests", topic=topic, defaultTopic="TBW102", defaultTopicQueueNums=4,
            queueId=queue, sysFlag=0, bornTimestamp=1_700_000_000_000, flag=0, properties="",
            reconsumeTimes=0, unitMode="false", batch="true", maxReconsumeTimes=0, broker=broker,
        )  # fmt: skip
        first = int(told["queueOffset"])
        offsets = list(range(first, first + len(records)))
        give_up = clock.monotonic() + PATIENCE_S
        while self._end_of(topic, queue, broker) <= offsets[-1]:
            assert clock.monotonic() < give_up
        return offsets

    def first_of(self, topic, queue):
        return int(self.ask(_MIN_OFFSET, topic=topic, queueId=queue)["offset"])

    def is_registered(self, topic):
        return self._queues(topic) != []

    def _end_of(self, topic, queue, broker):
        return int(self.ask(_MAX_OFFSET, broker=broker, topic=topic, queueId=queue)["offset"])

    def stored(self, topic, queue):
        """Return the first messages of a queue as the broker sends them."""
        wanted = {
            "consumerGroup": "tests", "topic": topic, "queueId": queue, "queueOffset": 0,
            "maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0,
            "subscription": "*", "subVersion": 0, "expressionType": "TAG",
        }  # fmt: skip
        return self._asked("broker-a", _PULL, wanted, b"")[1]

    def sign(self, access_key, secret):
        """Sign what is asked from now on."""
        self._login = access_key, secret

    def ask(self, code, body=b"", *, broker="broker-a", **fields):
        """Ask a broker, and return the fields of its answer."""
        return self._asked(broker, code, fields, body)[0]

    def _asked(self, broker, code, fields, body):
        fields = {name: str(value) for name, value in fields.items()}
        if self._login is not None:
            access_key, secret = self._login
            fields["AccessKey"] = access_key
            content = "".join(fields[name] for name in sorted(fields)).encode() + body
            digest = hmac.new(secret.encode(), content, hashlib.sha1).digest()
            fields["Signature"] = base64.b64encode(digest).decode()
        for is_known in (broker in self._sockets, False):
            if not is_known:
                self._sockets[broker] = _connect(self.process.address_of(broker))
            try:
                return _ask(self._sockets[broker], code, fields, body)
            except OSError:  # of a broker that was killed, and took nothing
                self.close()
                if not is_known:
                    raise
        raise AssertionError

    def close(self):
        while self._sockets:
            self._sockets.popitem()[1].close()

    def _queues(self, topic):
        with _connect(self.address) as client:
            wanted = {"topic": topic, "acceptStandardJsonOnly": "true"}
            code, body = _ask(client, _ROUTE, wanted, may_fail=True)
        return [] if code else [each["readQueueNums"] for each in json.loads(body)["queueDatas"]]


def _connect(address):
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), PATIENCE_S)


def _ask(client, code, fields, body=b"", *, may_fail=False):
    header = json.dumps(
        {
            "code": code, "language": "OTHER", "version": 453, "opaque": 1, "flag": 0,
            "extFields": fields,
            "serializeTypeCurrentRPC": "JSON",
        }
    ).encode()  # fmt: skip
    length = 4 + len(header) + len(body)
    client.sendall(struct.pack(">ii", length, len(header)) + header + body)
    frame = _read(client, struct.unpack(">i", _read(client, 4))[0])
    size = struct.unpack(">i", frame[:4])[0] & 0xFFFFFF
    answer = json.loads(frame[4 : 4 + size])
    if may_fail:
        return answer["code"], frame[4 + size :]
    assert answer["code"] == 0, answer
    return answer.get("extFields") or {}, frame[4 + size :]


def _read(client, count):
    data = b""
    while len(data) < count:
        piece = client.recv(count - len(data))
        if not piece:
            raise ConnectionError("the server closed the connection")
        data += piece
    return data


def _properties(key, headers):
    named = [("KEYS", key)] if key is not None else []
    return b"\x02".join(
        name.encode() + b"\x01" + (value if isinstance(value, bytes) else value.encode())
        for name, value in [*named, *headers]
    )


def _packed(body, properties):
    size = 20 + len(body) + 2 + len(properties)
    head = struct.pack(">iIIii", size, _BATCH_MAGIC, zlib.crc32(body), 0, len(body))
    return head + body + struct.pack(">H", len(properties)) + properties


@contextlib.contextmanager
def running_rocketmq(folder, **settings):
    """Yield the topics of a broker; skip where it cannot run."""
    try:
        server = RocketServer(folder, **settings)
        server.start()
    except JarsUnavailableError as error:
        pytest.skip(f"needs a real RocketMQ broker, which needs Maven, Java and a network: {error}")
    topics = RocketTopics(server)
    try:
        yield topics
    finally:
        topics.close()
        server.kill()
