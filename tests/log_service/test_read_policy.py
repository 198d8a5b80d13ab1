"""Where published messages are read from: kept copies, memory, the store; and how long copies are kept."""

from __future__ import annotations

import httpx2
import pytest

from tests.client.test_remote import AppTransport
from tests.log_service.files.test_read_ahead import BODY, World
from tests.log_service.keyed_world import KeyedWorld
from tests.log_service.log_world import DATA
from tierdex.app.http.application import create_app
from tierdex.app.http.server_settings import ServerSettings
from tierdex.client.remote import Client
from tierdex.errors import InvalidRequestError

UPLOADED = DATA / "log" / "uploaded"
QUIET = {"journal_bytes": 1 << 20, "max_message_bytes": 64 << 10, "page_arena_bytes": 0}
KEEP = {**QUIET, "keep_local_bytes": 64 << 20}


def kept(world):
    return [name for name in world.disk.list_folder(UPLOADED) if name.endswith(".kept")]


@pytest.fixture
def world():
    return World()


def read(log, policy=None):
    return log.read("q", 0, 0, policy=policy)


def test_policies_say_where_messages_come_from(world):
    log = world.open(**KEEP)
    body = world.publish(log, [0], 8)
    assert len(kept(world)) == 1
    for policy, is_cold, source in (
        (None, False, "kept_copy"), ("NOT_IN_DISK", True, "kept_copy"), ("NOT_IN_MEM", False, "kept_copy"),
        ("NOT_IN_MEM", True, "store"), ("FORCE", False, "read_ahead"), ("DISABLE", True, "kept_copy"),
    ):  # fmt: skip
        world.disk.is_cold = is_cold
        answer = read(log, policy)
        assert [m.body for m in answer.messages] == body
        explain = answer.explain
        assert getattr(explain, source) == sum(
            (explain.kept_copy, explain.store, explain.read_ahead)
        ), (policy, is_cold, explain)
    assert world.requests == 1
    many = log.read_many([("q", 0, 0)], policy="FORCE")
    assert many.explain.kept_copy == 0
    assert [m.body for m in many[0].messages] == body


def test_every_door_takes_the_policy_and_tells_the_source(world):
    log = world.open(**KEEP)
    body = world.publish(log, [0], 8)
    log.append(topic="q", queue_id=1, body=b"one", keys=["k"])
    log.roll()
    log.run_compaction()
    app = create_app(None, ServerSettings(log_requests=False), log=log)
    transport = AppTransport(app)
    with Client("http://localhost", transport=transport) as client:
        for policy, source in ((None, "kept_copy"), ("FORCE", "store")):
            world.store.asked.clear()
            assert [m.body for m in client.reader("q", 0, policy=policy)] == body
            assert world.requests == (policy == "FORCE")
            assert getattr(client.get("q", key="k", policy=policy).explain, source) > 0
            answer = client.read("q", 0, 0, policy=policy)
            assert answer.explain == log.read("q", 0, 0, policy=policy).explain
        with pytest.raises(InvalidRequestError, match="policy"):
            client.read("q", 0, 0, policy="never")
    metrics = httpx2.Client(transport=transport).get("http://localhost/metrics").text
    for source in ("kept_copy", "store"):
        assert f'tierdex_messages_read_bytes_total{{source="{source}"}}' in metrics
    cached = log.cached_bytes()
    for where, length in cached.items():
        assert f'tierdex_log_cached_bytes{{where="{where}"}} {float(length)}' in metrics
    assert cached["arena"] == 0  # as it was opened
    assert cached["read_ahead"] >= 8 * BODY
    assert cached["kept_copies"] > 8 * BODY


def test_disabled_store_is_left_alone_and_what_it_alone_has_is_named(world):
    log = world.open(**QUIET, read_policy="DISABLE")
    body = world.publish(log, [0], 8)
    log.append(topic="q", queue_id=0, body=b"local")
    answer = read(log)
    assert len(answer) == 0
    assert [each.offset for each in answer.missing] == [0]
    assert "DISABLE" in answer.missing[0].reason
    assert world.requests == 0
    assert [len(one) for one in log.read_many([("q", 0, 0), ("q", 0, 8)])] == [0, 1]
    assert [m.body for m in read(log, "NOT_IN_DISK").messages] == [*body, b"local"]


def test_policy_that_there_is_not_is_refused(world):
    log = world.open(**QUIET)
    for call in (
        lambda: log.read("q", 0, 0, policy="never"),
        lambda: log.read_many([("q", 0, 0)], policy="never"),
        lambda: log.reader("q", 0, policy="never"),
        lambda: log.get("q", key="k", policy=""),
    ):
        with pytest.raises(InvalidRequestError, match="policy"):
            call()


def test_kept_copies_survive_a_restart_and_need_no_store(world):
    log = world.open(**KEEP)
    body = world.publish(log, [0], 8)
    log.close()
    log = world.open(**KEEP)
    world.store.asked.clear()
    assert [m.body for m in read(log).messages] == body
    assert world.requests == 0
    reading = KeyedWorld()
    reading.disk, reading.store = world.disk.other_process(), world.store
    answer = read(reading.open(read_only=True, **QUIET))
    assert [m.body for m in answer.messages] == body
    assert answer.explain.kept_copy > 0
    assert world.requests == 0


def test_oldest_copies_go_over_the_budget_and_at_their_age(world):
    log = world.open(**KEEP, keep_local_s=3600.0, merge_min_files=100)
    for _ in range(3):
        world.publish(log, [0], 8)
        world.advance(log, 1_000_000)
    names = kept(world)
    size = world.disk.file_size(UPLOADED / names[0])
    assert len(names) == 3
    log.close()
    log = world.open(**QUIET, keep_local_bytes=2 * size + size // 2, merge_min_files=100)
    log.run_compaction()
    world.publish(log, [0], 8)
    assert len(kept(world)) == 2
    assert kept(world)[0] == names[2]
    log.close()
    log = world.open(**KEEP, keep_local_s=3600.0)
    world.advance(log, 3_000_000)
    log.run_compaction()
    assert len(kept(world)) == 1
    log.close()
    world.open(**QUIET).run_compaction()
    assert kept(world) == []


def test_copy_of_a_file_that_expired_goes_with_it(world):
    log = world.open(**KEEP)
    world.publish(log, [0], 8)
    log.expire(before=world.now_ms + 1_000_000)
    assert log.files() == []
    assert kept(world) == []


def test_damaged_copy_goes_and_the_store_answers(world):
    log = world.open(**KEEP)
    body = world.publish(log, [0], 8)
    world.disk.open(UPLOADED / kept(world)[0], writable=True).write_at(4096 + 300, b"damage")
    assert [m.body for m in read(log).messages] == body
    assert kept(world) == []
    assert world.requests == 1


@pytest.mark.parametrize("is_damaged", [False, True])
def test_merge_of_published_files_reads_their_copies_where_these_verify(world, is_damaged):
    log = world.open(**KEEP, merge_min_files=3)
    bodies = []
    for number in range(3):
        log.append_batch(
            topic="q", queue_id=0, body=[b"%d-%d" % (number, n) * 50 for n in range(40)]
        )
        bodies += [b"%d-%d" % (number, n) * 50 for n in range(40)]
        log.roll()
        if number < 2:
            log.run_compaction()
    if is_damaged:
        world.disk.open(UPLOADED / kept(world)[0], writable=True).write_at(4096 + 300, b"damage")
    world.store.asked.clear()
    log.run_compaction()
    assert len(log.files()) == 1
    assert (world.requests > 0) == is_damaged
    assert [m.body for m in log.reader("q", 0)] == bodies
    assert len(kept(world)) <= 1


ARENA = {**QUIET, "page_arena_bytes": 16 << 20}


@pytest.mark.parametrize("many", [False, True])
def test_force_takes_no_page_that_was_decoded_of_a_local_file_or_copy(world, many):
    log = world.open(**ARENA, keep_local_bytes=64 << 20)
    body = world.publish(log, [0], 8)
    ask = (lambda policy: log.read_many([("q", 0, 0)], policy=policy)) if many else (
        lambda policy: log.read("q", 0, 0, policy=policy)
    )  # fmt: skip
    for _ in range(2):
        ask("NOT_IN_DISK")  # its pages are in the arena, of the kept copy
    world.store.asked.clear()
    answer = ask("FORCE")
    assert [m.body for m in (answer[0] if many else answer).messages] == body
    assert (answer.explain.arena, answer.explain.kept_copy) == (0, 0)
    assert world.requests > 0


@pytest.mark.parametrize("many", [False, True])
def test_disable_names_what_the_store_alone_has_though_its_pages_are_in_memory(world, many):
    log = world.open(**ARENA)
    body = world.publish(log, [0], 8)
    assert [m.body for m in read(log, "FORCE").messages] == body  # in the arena, of the store
    if many:
        (answer,) = log.read_many([("q", 0, 0)], policy="DISABLE")
    else:
        answer = read(log, "DISABLE")
    assert len(answer) == 0
    assert "DISABLE" in answer.missing[0].reason
    assert [m.body for m in read(log).messages] == body


def test_no_copy_is_served_after_a_restart_without_a_budget_for_copies(world):
    log = world.open(**KEEP)
    body = world.publish(log, [0], 8)
    log.close()
    log = world.open(**QUIET, keep_local_bytes=0)
    assert kept(world) == []
    answer = read(log)
    assert [m.body for m in answer.messages] == body
    assert (answer.explain.kept_copy, world.requests) == (0, 1)
