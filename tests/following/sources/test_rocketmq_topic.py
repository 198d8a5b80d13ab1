"""Following RocketMQ topics: what its own clients send, several brokers, trouble, another log."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tests.app.http.test_certificate import make_certificate
from tests.following.test_follower import offsets
from tests.following.worlds import Sent
from tests.patience import PATIENCE_S
from tests.servers.rocketmq import running_rocketmq
from tierdex.clock import Bell, SystemClock
from tierdex.errors import (
    InvalidRequestError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)
from tierdex.following.follow import follow
from tierdex.following.open_source import open_source
from tierdex.following.sources.rocketmq_message import messages_in

SAMPLES = Path(__file__).with_name("rocketmq") / "Samples.java"
SECOND_BROKER = 1 << 16
clock = SystemClock()


@pytest.fixture
def topic(rocketmq, request):
    name = "r-" + request.node.name.removeprefix("test_")[:60]
    rocketmq.make_topic(name)
    return f"rocketmq://{rocketmq.address}/{name}", name


def run_once(index, address, **wanted):
    return follow(index, address, once=True, **wanted).run()


def numbered(count, first=0):
    return [
        Sent(b"k%d a-b" % n, b'{"id": %d}' % n, (("UNIQ_KEY", b"u%d" % n),))
        for n in range(first, first + count)
    ]


def test_each_word_of_keys_and_the_unique_key_are_indexed_when_nothing_is_said(
    index, rocketmq, topic
):
    address, name = topic
    rocketmq.send(name, 0, numbered(5))
    rocketmq.send(name, 1, [Sent(None, b"no names"), Sent(b"  k1   k9 ", b"{}")])
    status = run_once(index, address)
    assert (status.messages, status.entries, status.total_lag()) == (7, 5 * 3 + 2, 0)
    assert offsets(index, "k1", name) == [(0, 1), (1, 1)]
    assert offsets(index, "k9", name) == [(1, 1)]
    assert len(offsets(index, "a-b", name)) == 5
    (entry,) = index.query(name, message_id="u3").entries
    assert (entry.queue_id, entry.offset) == (0, 3)


@pytest.mark.heavy
def test_messages_of_the_java_client_are_read_in_every_compression_and_batch(
    index, rocketmq, topic
):
    address, name = topic
    rocketmq.make_topic("inner-batches", 1, "+queue.type=BatchCQ")
    said = rocketmq.process.run_java(SAMPLES, rocketmq.address, name, "inner-batches")
    ids = {row.split()[0]: row.split()[2] for row in said.splitlines() if row.count(" ") == 2}
    run_once(index, address)
    assert [offsets(index, kind, name) for kind in ("LZ4", "ZSTD", "ZLIB")] == [
        [(0, 0)], [(0, 1)], [(0, 2)],
    ]  # fmt: skip
    assert len(offsets(index, "SKU-1", name)) == 3
    (entry,) = index.query(name, message_id=ids["ZSTD"]).entries
    assert entry.offset == 1
    with contextlib.closing(open_source(address)) as source:
        for offset in range(3):
            record = source.fetch(0, offset)
            assert record.value == b'{"text":"%b"}' % (b"packed " * 200)
            assert ("region", b"eu") in record.headers
    assert [offsets(index, f"BATCH-{n}", name) for n in range(3)] == [
        [(0, 3 + n)] for n in range(3)
    ]
    inner = f"rocketmq://{rocketmq.address}/inner-batches"
    assert run_once(index, inner).messages == 3
    assert [offsets(index, f"BATCH-{n}", "inner-batches") for n in range(3)] == [
        [(0, n)] for n in range(3)
    ]


def test_topic_that_was_made_anew_is_another_log(index, rocketmq, topic):
    address, name = topic
    rocketmq.send(name, 0, numbered(10))
    assert run_once(index, address).messages == 10
    rocketmq.drop_topic(name)
    give_up = clock.monotonic() + PATIENCE_S
    rocketmq.make_topic(name)
    while rocketmq.send(name, 0, numbered(1, 100)) != [0]:  # its queue is dropped a moment later
        assert clock.monotonic() < give_up
        rocketmq.drop_topic(name)
        clock.wait(Bell(), 0.2)
        rocketmq.make_topic(name)
    rocketmq.send(name, 0, numbered(20, 101))  # longer than what was read of the one before
    with pytest.raises(InvalidRequestError, match="another log"):
        run_once(index, address)
    status = run_once(index, address, accept_other_log=True)
    assert (status.messages, status.total_lag()) == (21, 0)
    assert offsets(index, "k120", name) == [(0, 20)]
    rocketmq.send(name, 0, numbered(1, 200))
    assert run_once(index, address).messages == 1


def test_what_is_not_there_or_cannot_be_followed_says_so(index, rocketmq):
    with pytest.raises(NotFoundError, match="no such topic"):
        run_once(index, f"rocketmq://{rocketmq.address}/nothing")
    for name in (
        "%25RETRY%25group",
        "%25DLQ%25group",
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
    ):
        with pytest.raises(InvalidRequestError, match="system_topics=true"):
            run_once(index, f"rocketmq://{rocketmq.address}/{name}")
    with pytest.raises(InvalidRequestError, match="no such option"):
        run_once(index, f"rocketmq://{rocketmq.address}/a?user=x")


@pytest.mark.heavy
def test_queues_of_a_broker_that_is_away_wait_and_the_others_go_on(index, rocketmq, request):
    name, server = "two-brokers", rocketmq.process
    server.start_broker("broker-b")
    request.addfinalizer(rocketmq.close)
    rocketmq.make_topic(name, 2, brokers=("broker-a", "broker-b"))
    address = f"rocketmq://{rocketmq.address}/{name}"
    rocketmq.send(name, 0, numbered(10))
    rocketmq.send(name, 0, numbered(10, 10), broker="broker-b")
    assert run_once(index, address).messages == 20
    assert offsets(index, "k12", name) == [(SECOND_BROKER, 2)]
    rocketmq.send(name, 1, numbered(5, 20), broker="broker-b")
    server.kill_broker("broker-b")
    rocketmq.send(name, 1, numbered(5, 30))
    status = run_once(index, address)
    assert (status.messages, status.lost, status.restarts) == (5, 0, 0)
    assert offsets(index, "k34", name) == [(1, 4)]
    server.start_broker("broker-b")
    rocketmq.make_topic(name, 2, brokers=("broker-a", "broker-b"))  # waits until it is registered
    status = run_once(index, address)
    assert (status.messages, status.lost, status.restarts) == (5, 0, 0)
    assert offsets(index, "k24", name) == [(SECOND_BROKER + 1, 4)]
    server.end_broker("broker-b")


@pytest.mark.heavy
def test_expired_messages_are_counted_as_lost_and_shown_no_more(index, tmp_path):
    with running_rocketmq(
        tmp_path / "rocketmq", fileReservedTime=0, cleanResourceInterval=500
    ) as topics:
        topics.make_topic("short", 1)
        address = f"rocketmq://{topics.address}/short"
        topics.send("short", 0, numbered(10))
        assert run_once(index, address).messages == 10
        for first in range(10, 60, 10):
            big = [
                Sent(key, value + b" " * 90_000, rest) for key, value, rest in numbered(10, first)
            ]
            for each in big:
                topics.send("short", 0, [each])
        topics.delete_old_files()
        give_up = clock.monotonic() + PATIENCE_S
        with contextlib.closing(open_source(address)) as source:
            while (first := source.bounds({0: 10})[0].first) <= 10:
                assert clock.monotonic() < give_up
                clock.wait(Bell(), 0.5)
            assert source.fetch(0, 3) is None
        status = run_once(index, address)
        assert status.lost == first - 10
        assert status.total_lag() == 0
        assert offsets(index, "k59", "short") == [(0, 59)]


_GUARDED = {
    "authenticationEnabled": "true",
    "authenticationProvider": "authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": "authentication.provider.LocalAuthenticationMetadataProvider",
    "initAuthenticationUser": '{"username":"admin","password":"admin-secret-1"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"admin","secretKey":"admin-secret-1"}',
    "authorizationEnabled": "true",
    "authorizationProvider": "authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": "authorization.provider.LocalAuthorizationMetadataProvider",
}


@pytest.mark.heavy
def test_login_is_signed_and_no_secret_is_told(index, tmp_path, caplog):
    settings = {
        name: f"org.apache.rocketmq.auth.{value}" if "Provider" in name else value
        for name, value in _GUARDED.items()
    }
    with running_rocketmq(tmp_path / "rocketmq", **settings) as topics:
        address = f"rocketmq://admin:admin-secret-1@{topics.address}/guarded"
        topics.sign("admin", "admin-secret-1")
        topics.make_topic("guarded", 1)
        topics.make_user("stranger", "stranger-secret-1")
        topics.send("guarded", 0, numbered(3))
        assert run_once(index, address).messages == 3
        for login in ("stranger:stranger-secret-1@", "admin:wrong-secret@", "nobody:secret@", ""):
            with pytest.raises(PermissionDeniedError) as raised:
                run_once(index, f"rocketmq://{login}{topics.address}/guarded", topic="t")
            assert "secret" not in str(raised.value) + caplog.text


@pytest.mark.heavy
def test_servers_are_trusted_by_their_authority_alone(index, tmp_path):
    cert, key = make_certificate(tmp_path / "tls")
    java = [
        "-Dtls.test.mode.enable=false",
        f"-Dtls.server.certPath={cert}",
        f"-Dtls.server.keyPath={key}",
    ]
    with running_rocketmq(tmp_path / "rocketmq", java=java) as topics:
        topics.make_topic("sealed", 1)
        topics.send("sealed", 0, numbered(3))
        address = f"rocketmqs://{topics.address}/sealed"
        assert run_once(index, address, options={"ca_file": str(cert)}).messages == 3
        with (
            contextlib.closing(open_source(address)) as source,
            pytest.raises(UnavailableError, match="CERTIFICATE_VERIFY_FAILED"),
        ):
            source.partitions()


def test_answer_that_is_cut_or_changed_is_refused(rocketmq, topic):
    _, name = topic
    rocketmq.send(name, 0, numbered(3))
    whole = rocketmq.stored(name, 0)
    assert [each.key for each in messages_in(whole)] == [b"k0 a-b", b"k1 a-b", b"k2 a-b"]
    for end in range(1, len(whole)):
        with contextlib.suppress(ValueError):  # at the end of a message: fewer, and whole
            assert len(list(messages_in(whole[:end]))) < 3
    for at in range(0, len(whole), 3):
        with contextlib.suppress(ValueError):
            list(messages_in(whole[:at] + bytes([whole[at] ^ 0x80]) + whole[at + 1 :]))
