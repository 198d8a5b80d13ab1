"""Verification of log files in a store: damage, wrong rows, gaps, doubles, entries without messages."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.log_service.keyed_world import KeyedWorld
from tests.log_service.tiering.test_log_retention import DAY
from tests.log_service.tiering.test_published_merge import DAY_MS, log_rows, merge, publish_file
from tierdex.clock import ManualClock
from tierdex.ids import SeededIds
from tierdex.lifecycle.manifests.manifest import Change, RemoveReason
from tierdex.lifecycle.manifests.manifest_log import ManifestLog
from tierdex.lifecycle.nodes.claim_terms import ClaimTerms
from tierdex.lifecycle.nodes.ownership import OwnedNode
from tierdex.log_service.notes.carried_notes import row_of_notes
from tierdex.pipeline.logs.log_check import check_stored_logs
from tierdex.pipeline.verify_job import check_published


@pytest.fixture
def world():
    """A store with five log files, all of their index beside them."""
    world = KeyedWorld()
    log = world.open()
    for number in range(5):
        publish_file(world, log, number)
    log.index.roll()
    log.run_compaction()
    log.close()
    return world


def problems(store, *, entries=False):
    return [found.problems for found in check_stored_logs(store, entries=entries)]


def edit(world):
    """Take the node over, to break what only its owner writes."""
    log = ManifestLog(world.store, "n", clock=ManualClock(0), ids=SeededIds(2), checkpoint_every=8)
    return OwnedNode.open(log, SeededIds(3), ClaimTerms(takeover=True))


def flip(store, key, at):
    data = bytearray(store.get(key))
    data[at] ^= 1
    store.put(key, bytes(data))


def test_sound_files_have_no_problem_whatever_was_merged_and_left_out(world):
    assert not any(problems(world.store, entries=True))
    log = world.open(topic_retention={"a": DAY}, merge_min_files=4)
    world.advance(log, 2 * DAY_MS)
    assert merge(log)
    publish_file(world, log, 6)
    log.close()
    assert len(log_rows(world)) == 2
    assert not any(problems(world.store, entries=True))


def test_every_kind_of_damage_is_found_in_the_file_that_has_it(world):
    rows = log_rows(world)
    flip(world.store, rows[0].object_key, 4096 + 70)  # a page
    flip(world.store, rows[1].object_key, 30)  # the header, of which there is a copy
    flip(world.store, rows[2].object_key, rows[2].bytes - 200)
    world.store.delete(rows[3].object_key)
    found = problems(world.store)
    assert [bool(each) for each in found] == [True, True, True, True, True]
    assert "checksum of page 0 differs" in found[0][0]
    assert check_published(world.store, rows[4]) == []
    assert check_published(world.store, rows[3])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"item_count": 7}, "item_count"),
        ({"max_time": 9}, "max_time"),
        ({"schema": "generation"}, "generation"),
    ],
)
def test_row_that_says_something_else_than_its_object_is_found(world, change, words):
    node, last = edit(world), log_rows(world)[-1]
    if "schema" in change:
        said = json.loads(last.schema)
        change = {"schema": json.dumps({**said, "generation": said["generation"] + 1})}
    node.remove([last.uuid], RemoveReason.LOST)
    # Known by its uuid, it is listed again once that was forgotten.
    node.commit(lambda state: Change(forget=(last.uuid,)))
    node.publish([replace(last, **change)])
    found = problems(world.store)
    assert found[:-1] == [[]] * 4
    assert words in found[-1][0]


def test_messages_that_are_in_no_file_are_named(world):
    edit(world).remove([log_rows(world)[2].uuid], RemoveReason.LOST)
    found = problems(world.store)
    assert found[0] == found[1] == found[3] == []
    assert sorted(found[2])[0] == "topic 'a', queue 0: offsets 4 to 5 are in no file"
    assert len(found[2]) == 3


def test_notes_that_the_store_carries_are_verified(world):
    log = world.open()
    log.forget("a", key="k1", now=False)
    log.close()
    assert [found.file_id.endswith(" notes") for found in check_stored_logs(world.store)].count(
        True
    ) == 1
    assert not any(problems(world.store))
    notes = row_of_notes(edit(world).state)
    flip(world.store, notes.object_key, notes.bytes // 2)
    assert [bool(each) for each in problems(world.store)] == [True] + 5 * [False]
    assert check_published(world.store, notes)


def test_files_let_go_beside_an_older_one_that_is_kept_are_no_gap():
    world = KeyedWorld()
    log = world.open()
    world.hold(log, 30 * DAY_MS, b"later", "os")
    for number in range(3):
        publish_file(world, log, number)
    log.index.roll()
    log.run_compaction()
    world.advance(log, 1000)
    log.expire(before=world.now_ms)
    assert [row.item_count for row in log_rows(world)] == [7], "the held message keeps its file"
    assert not any(problems(world.store, entries=True))
    publish_file(world, log, 4)
    publish_file(world, log, 5)
    log.close()
    assert not any(problems(world.store, entries=True))
    edit(world).remove([log_rows(world)[1].uuid], RemoveReason.LOST)
    [gap] = [each for each in problems(world.store) if each]
    assert sorted(gap)[0] == "topic 'a', queue 0: offsets 6 to 7 are in no file"


def test_messages_that_are_there_twice_are_named(world):
    node, rows = edit(world), log_rows(world)
    again = replace(
        rows[4], uuid=rows[3].uuid, number=rows[4].number + 1, object_key=rows[3].object_key,
        bytes=rows[3].bytes, sidecar_position=rows[3].sidecar_position, tail_crc=rows[3].tail_crc,
    )  # fmt: skip
    node.remove([rows[3].uuid], RemoveReason.LOST)
    node.commit(lambda state: Change(forget=(rows[3].uuid,)))
    node.publish([again])
    found = [text for each in problems(world.store) for text in each]
    assert "topic 'a', queue 0: offsets from 6 on are there twice" in found


def test_entries_that_name_messages_which_the_log_does_not_have_are_counted(world):
    edit(world).remove([log_rows(world)[4].uuid], RemoveReason.LOST)
    assert problems(world.store) == [[]] * 4
    found = problems(world.store, entries=True)
    assert "12 entries name messages that the log does not have" in found[-1][0]
