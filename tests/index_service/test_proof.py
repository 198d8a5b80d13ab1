"""Proof of absence: a second party finds the same in the store, and sees what was altered or forged."""

from __future__ import annotations

import copy
import hashlib
import json

import pytest

from tests.index_service.conftest import SMALL, offsets, put
from tierdex import Index
from tierdex.clock import ManualClock
from tierdex.errors import InvalidRequestError
from tierdex.ids import SeededIds
from tierdex.index_service.proof import check_proof
from tierdex.settings import load_settings
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of

NOW, DAY = 1_700_000_000_000, 86_400_000


def day(number):
    return NOW + number * DAY


@pytest.fixture
def world(tmp_path):
    """A store of two nodes: files of other times, of other topics, and with other keys."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    owners = [
        Index.open(
            tmp_path / node, store=store, node=node, clock=clock, ids=SeededIds(number),
            remote_interval=0, **SMALL,
        )
        for number, node in enumerate("ab")
    ]  # fmt: skip
    a, b = owners
    put(a, "old", 1, timestamp=day(1))
    a.flush("remote")
    put(a, "K", 2, timestamp=day(9))
    a.flush("remote")
    put(b, "K", 3, timestamp=day(9), topic="payments")
    b.flush("remote")
    clock.advance(60)
    for owner in owners:
        owner.refresh()
    yield store, clock, a, b
    for owner in owners:
        owner.close()


def prove(index, key="absent", **asked):
    asked = {"begin": day(5), **asked}
    return index.query("orders", key=key, explain=True, proof=True, **asked).explain.proof


def check(store, proof):
    return check_proof(store, load_settings(), json.loads(json.dumps(proof)))


def resealed(proof):
    """Return a forged proof with the digest that its content has now: no checksum tells it."""
    content = {name: value for name, value in proof.items() if name != "digest"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return {**content, "digest": "sha256:" + hashlib.sha256(text.encode()).hexdigest()}


def test_each_file_tells_what_said_no_and_another_party_finds_the_same(world):
    store, _, a, _ = world
    proof = prove(a)
    said = {(line["file_id"][-1], line["says_no"]) for line in proof["files"]}
    assert said == {("a", "time"), ("a", "filter"), ("b", "topics")}
    assert proof["absent"]
    assert proof["unpublished"] == ["node:b"]  # it lives, and may hold more since its last record
    assert {line["node"] for line in proof["nodes"]} == {"a", "b"}
    (asked,) = (line for line in proof["files"] if line["says_no"] == "filter")
    assert asked["sidecar_digest"].startswith("sha256:")
    assert store.get(asked["object_key"])
    assert check(store, proof) == []


def test_what_is_there_is_no_proof_of_absence_and_is_found_again(world):
    store, _, a, _ = world
    proof = prove(a, "K")
    assert not proof["absent"]
    assert sum(line["matches"] for line in proof["files"]) == 1
    assert check(store, proof) == []


def test_forgotten_entries_are_absent_and_the_proof_says_why(world):
    store, clock, a, b = world
    a.forget([{"topic": "orders", "key": "K"}])
    clock.advance(5)
    b.run_compaction()
    proof = prove(a, "K")
    assert offsets(a.query("orders", key="K")) == []
    assert proof["absent"]
    assert "forgotten" in {line["says_no"] for line in proof["files"]}
    assert check(store, proof) == []


def test_pages_that_hold_other_keys_only_are_named_with_their_digest(world):
    store, _, a, _ = world
    proof = prove(a, "K", begin=day(9) + 1)
    assert {line["says_no"] for line in proof["files"]} == {"time"}
    put(a, "K", 7, timestamp=day(20))
    put(a, "more", 8, timestamp=day(10))
    a.flush("remote")
    proof = prove(a, "K", begin=day(9) + 1, end=day(15))
    (line,) = (line for line in proof["files"] if line["says_no"] == "pages")
    assert line["pages_digest"].startswith("sha256:")
    assert proof["absent"]
    assert check(store, proof) == []


def test_what_is_not_published_is_named_as_nobody_elses_to_check(world):
    store, _, a, _ = world
    put(a, "waits", 9, timestamp=day(9))
    proof = prove(a)
    assert len(proof["unpublished"]) == 2  # the file here, and what the other node may hold
    assert check(store, proof) == []


def without_a_file(proof):
    del proof["files"][0]
    return "leaves it out"


def with_another_reason(proof):
    line = next(line for line in proof["files"] if line["says_no"] is None)
    line |= {"says_no": "pages", "matches": 0}
    proof["absent"] = True
    return "other matches, says_no"


def with_another_digest(proof):
    line = next(line for line in proof["files"] if "sidecar_digest" in line)
    line["sidecar_digest"] = "sha256:" + "0" * 64
    return "other sidecar_digest"


def with_another_object(proof):
    proof["files"][0]["object_key"] = "nodes/a/files/elsewhere"
    return "other object_key"


def without_a_node(proof):
    proof["nodes"] = [line for line in proof["nodes"] if line["node"] != "a"]
    proof["files"] = [line for line in proof["files"] if not line["file_id"].endswith("-a")]
    proof["absent"] = True
    return "leaves out node a"


def with_an_older_manifest(proof):
    line = next(line for line in proof["nodes"] if line["node"] == "a")
    line["number"] -= 1
    return "leaves out manifest"


def of_the_future(proof):
    line = next(line for line in proof["nodes"] if line["node"] == "a")
    line["number"] += 50
    return "no such manifest"


def of_a_time_when_everything_has_expired(proof):
    proof["time_ms"] += 1000 * DAY
    return "has not come"


def with_another_question(proof):
    proof["asked"]["key"] = "somebody else"
    return "other"


def with_a_false_claim(proof):
    proof["absent"] = True
    return "another answer"


FORGERIES = [
    without_a_file, with_another_reason, with_another_digest, with_another_object, without_a_node,
    with_an_older_manifest, of_the_future, of_a_time_when_everything_has_expired,
    with_another_question, with_a_false_claim,
]  # fmt: skip


@pytest.mark.parametrize("forge", FORGERIES)
def test_altered_or_forged_proof_fails_in_clear_words(world, forge):
    store, _, a, _ = world
    sound = prove(a, "K")
    forged = copy.deepcopy(sound)
    reason = forge(forged)
    assert check(store, forged) == ["the proof was altered: its digest is not that of its content"]
    problems = check(store, resealed(forged))
    assert any(reason in problem for problem in problems), problems


@pytest.mark.parametrize("wrong", [None, [], {}, {"format": "tierdex-proof 9"}])
def test_what_is_no_proof_is_refused(world, wrong):
    with pytest.raises(InvalidRequestError, match="not a proof"):
        check_proof(world[0], load_settings(), wrong)


@pytest.mark.parametrize(
    "changes",
    [
        {"asked": {}},
        {"asked": 5},
        {"nodes": [{}]},
        {"time_ms": "x"},
        {"unpublished": 7},
        {"files": None},
        {"files": [1]},
    ],
)
def test_proof_with_a_field_that_makes_no_sense_is_refused(world, changes):
    store, _, a, _ = world
    with pytest.raises(InvalidRequestError):
        check(store, resealed(prove(a) | changes))


def test_object_that_was_changed_in_the_store_fails_the_proof(world):
    store, _, a, _ = world
    proof = prove(a)
    (line,) = (line for line in proof["files"] if line["says_no"] == "filter")
    data = bytearray(store.get(line["object_key"]))
    data[-200] ^= 1
    store.put(line["object_key"], bytes(data))
    (problem,) = check(store, proof)
    assert "store does not show it" in problem or "sidecar_digest" in problem


def test_proof_is_a_part_of_explain(world):
    with pytest.raises(InvalidRequestError, match="ask for both"):
        world[2].query("orders", key="K", proof=True)


class CountingStore(MemoryStore):
    """A store that counts the bytes of objects that are read."""

    read = 0

    def get(self, key, position=None, length=None):
        data = super().get(key, position, length)
        self.read += len(data) if "/files/" in key else 0
        return data


@pytest.fixture
def large(tmp_path):
    """A file whose sidecar has hash groups, in a store that counts."""
    store, count = CountingStore(), 60_000
    index = Index.open(
        tmp_path / "large", store=store, node="large", ids=SeededIds(1),
        **{**SMALL, "item_capacity": count, "slot_count": count},
    )  # fmt: skip
    index.put_batch(
        topic="orders", keys=[f"K{n}" for n in range(count)], queue_id=0, size=1,
        offset=list(range(count)), timestamp=day(9),
    )  # fmt: skip
    index.flush("remote")
    (row,) = components_of(index).writing.claim.get().state.files.values()
    assert row.groups is not None
    with index:
        yield store, index, row


@pytest.mark.parametrize(("key", "said"), [("absent", "filter"), ("K7", None)])
def test_of_a_large_file_the_part_that_said_no_is_read_alone(large, key, said):
    store, index, row = large
    proof = prove(index, key)
    (line,) = proof["files"]
    assert line["says_no"] == said
    assert "sidecar_digest" not in line
    assert [position for position, _, _ in line["sidecar_ranges"]][-1] >= row.groups.position
    store.read = 0
    assert check(store, proof) == []
    assert 0 < store.read < (row.bytes - row.sidecar_position) / 2
    forged = copy.deepcopy(proof)
    forged["files"][0]["sidecar_ranges"][0][2] = "sha256:" + 64 * "0"
    assert "the store shows other sidecar_ranges" in " ".join(check(store, resealed(forged)))
