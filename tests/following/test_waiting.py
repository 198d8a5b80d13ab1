"""A follower whose log is not there yet: it waits, says so, and goes on; and tells no secret meanwhile."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import urllib.request

import pytest

from tests.following.test_follower import opened
from tests.following.worlds import WORLDS, make_records
from tests.patience import wait_until
from tierdex.app.cli.terminal.follow_metrics import follow_metrics
from tierdex.clock import SystemClock
from tierdex.following.follow import follow
from tierdex.resolving.message_fetcher import MessageFetcher
from tierdex.resolving.show_settings import ShowSettings
from tools.radosgw import find_free_port

clock = SystemClock()
SERVED = [name for name, world in WORLDS.items() if world.server != "tmp_path"]
MARK = "hunter-2"
SECRETS = {  # options that each kind knows
    "kafka": {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "username": "tina",
        "password": MARK, "ssl.key.password": MARK, "sasl.oauthbearer.client.secret": MARK,
        "sasl.oauthbearer.config": MARK, "debug": "all",
    },
    "redis": {"username": "tina", "password": MARK},
    "nats": {"token": MARK, "username": "tina", "password": MARK},
    "rabbitmq": {"username": "tina", "password": MARK},
    "rocketmq": {"username": "tina", "password": MARK, "security_token": MARK},
}  # fmt: skip


@pytest.mark.heavy
@pytest.mark.parametrize("kind", SERVED)
def test_log_that_is_down_at_the_start_is_waited_for(kind, request, tmp_path):
    server = request.getfixturevalue(WORLDS[kind].server)
    if kind == "kafka":
        server.need_real()
    world = WORLDS[kind](server, "t-down")
    world.append(world.partitions[0], make_records(50))
    server.process.kill()
    command = [
        sys.executable, "-m", "tierdex.app.cli", "follow", world.address, "-k", "$.id", "--once",
        "--data", str(tmp_path / "data"), "-o", "json", "--set", "slot_count=1024",
        "--set", "item_capacity=3000", "--set", "node=here",
    ]  # fmt: skip
    command += ["--source-option", "value=v"] if kind == "redis" else []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as follower:
        said = iter(follower.stderr.readline, b"")
        try:
            assert any(line.startswith(b"waiting: ") for line in said)  # or it ended
        finally:
            server.process.start()
        rest, output = b"".join(said), follower.stdout.read()
    assert follower.returncode == 0, rest
    assert b"going on" in rest
    assert b'"messages": 50' in output


@pytest.mark.parametrize("kind", SERVED)
def test_no_secret_leaves_a_follower_that_waits_or_who_shows_its_messages(
    kind, tmp_path, caplog, capfd
):
    caplog.set_level(logging.DEBUG)
    place = f"127.0.0.1:{find_free_port()}"
    address = f"{kind}://{place}/{'0/orders' if kind == 'redis' else 'orders'}"
    login = "".join(f"{name}={value}\n" for name, value in SECRETS[kind].items())
    (tmp_path / "login").write_text(login)
    (tmp_path / "resolvers.toml").write_text(
        f'[topics.orders]\nsource = "{address}"\nconfig = "login"\nkeys = ["key"]\n'
        f'[topics.others]\nsource = "{address.replace("//", f"//tina:{MARK}@")}"\nkeys = ["key"]\n'
    )
    with opened(tmp_path) as index:
        for topic in ("orders", "others"):
            index.put(topic=topic, keys=["k"], queue_id=0, offset=1, size=1, timestamp=1)
        answers = [index.query(topic, key="k") for topic in ("orders", "others")]
        follower = follow(index, address, keys=["key"], options=SECRETS[kind])
        with follow_metrics(follower.status, 0) as port:
            thread = threading.Thread(target=follower.run)
            thread.start()
            wait_until(lambda: follower.status.trouble is not None)
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                told = answer.read().decode()
            follower.stop()
            thread.join()
    assert 'tierdex_follow_waiting{topic="orders"} 1.0' in told
    with MessageFetcher(tmp_path, ShowSettings(message_timeout=0.5)) as messages:
        shown = [messages.with_messages(each, key="k").to_dict() for each in answers]
    assert [each["entries"][0]["message"]["outcome"] for each in shown] == ["unavailable"] * 2
    said = [str(record.__dict__) for record in caplog.records]
    kept = (tmp_path / "following.json").read_text()
    told = "\n".join([told, *said, *capfd.readouterr(), kept, str(shown), str(follower.status)])
    assert place in told
    assert MARK not in told
