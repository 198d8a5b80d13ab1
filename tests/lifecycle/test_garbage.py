from dataclasses import replace

from tests.lifecycle.manifests.test_manifest import EMPTY, after
from tests.lifecycle.rows import NOW_MS, make_row, make_uuid
from tierdex.lifecycle.garbage import (
    NUMBERS_A_STEP,
    plan_forget_replaced,
    plan_garbage,
    plan_replaced,
)
from tierdex.lifecycle.manifests.file_row import FileRef
from tierdex.lifecycle.manifests.manifest import Checkpoint, ManifestState, RemoveReason
from tierdex.lifecycle.paths import StorePaths
from tierdex.storage_layer.base import StoredObject

GRACE = 1_000
LATER = NOW_MS + GRACE


def make_object(seed, read_number, modified_ms=NOW_MS):
    key = StorePaths("n1").file_object(read_number, make_uuid(seed))
    return StoredObject(key, 10, modified_ms)


def plan(state, *objects, now_ms=LATER, yes=True, missing=()):
    return plan_garbage(state, objects, now_ms=now_ms, grace_ms=GRACE, yes=yes, missing=missing)


def make_state(*, number=10, floor=0, **fields):
    return replace(EMPTY, number=number, floor=floor, base_ms=NOW_MS * 2, **fields)


def test_nothing_to_do_is_an_empty_plan():
    assert plan(make_state()).is_empty


def test_dropped_object_goes_after_the_grace_time_and_is_forgotten():
    row = make_row(1)
    state = after(EMPTY, add=(row,))
    state = after(state, remove={row.uuid: RemoveReason.EXPIRED})
    assert plan(state, now_ms=LATER - 1).is_empty
    due = plan(state)
    assert due.delete == (row.object_key,)
    assert due.change.forget == (row.uuid,)
    assert due.change.floor == 2  # above the object's name: it can never be listed again


def test_listed_and_dropped_objects_are_no_orphans():
    first, second = make_row(1), make_row(2)
    state = after(EMPTY, add=(first, second))
    state = after(state, remove={first.uuid: RemoveReason.EXPIRED})
    objects = [StoredObject(row.object_key, 1, 0) for row in (first, second)]
    assert plan(replace(state, floor=99), *objects, now_ms=LATER - 1).delete == ()


def test_orphan_wants_a_floor_first_and_goes_below_it():
    orphan = make_object(1, read_number=4)
    first = plan(make_state(), orphan)
    assert (first.delete, first.change.floor) == ((), 5)
    second = plan(make_state(floor=5), orphan)
    assert (second.delete, second.change.floor) == ((orphan.key,), None)


def test_orphan_named_after_the_newest_number_wants_a_floor_above_it():
    assert plan(make_state(number=10), make_object(1, read_number=10)).change.floor == 11


def test_young_upload_is_left_alone_and_holds_the_floor():
    old, young = make_object(1, 4), make_object(2, 3, modified_ms=LATER)
    assert plan(make_state(), old, young).is_empty
    old, young = make_object(1, 4), make_object(2, 7, modified_ms=LATER)
    assert plan(make_state(), old, young).change.floor == 5


def test_object_named_beyond_the_state_is_left_alone():
    assert plan(make_state(number=10), make_object(1, read_number=11)).is_empty


def listed_objects(*rows):
    return [StoredObject(row.object_key, 1, 0) for row in rows]


def test_orphans_that_are_more_than_half_of_all_objects_stay_until_the_operator_says_yes():
    rows = make_row(1), make_row(2)
    state = replace(after(EMPTY, add=rows), number=10, floor=9, base_ms=NOW_MS * 2)
    orphans = [make_object(seed, read_number=4) for seed in (3, 4, 5)]
    half = plan(state, *listed_objects(*rows), *orphans[:2], yes=False)
    assert (len(half.delete), half.refused) == (2, "")
    more = plan(state, *listed_objects(*rows), *orphans, yes=False)
    assert (more.delete, more.change.floor) == ((), None)
    assert "3 of the 5 objects" in more.refused
    assert "--yes" in more.refused
    assert len(plan(state, *listed_objects(*rows), *orphans, yes=True).delete) == 3


def test_a_floor_is_not_raised_for_orphans_that_have_to_stay():
    refused = plan(make_state(), make_object(1, read_number=4), yes=False)
    assert refused.is_empty
    assert refused.refused


def test_no_orphan_goes_while_the_manifest_has_a_hole_whatever_the_operator_says():
    rows = make_row(1), make_row(2)
    state = replace(after(EMPTY, add=rows), number=10, floor=9, base_ms=NOW_MS * 2)
    held = plan(state, *listed_objects(*rows), make_object(3, 4), missing=[7, 8])
    assert held.delete == ()
    assert "manifest 7 of node n1" in held.refused


def test_what_commits_dropped_goes_however_much_it_is_and_whatever_is_missing():
    rows = [make_row(seed) for seed in range(1, 5)]
    state = after(
        after(EMPTY, add=tuple(rows)), remove={r.uuid: RemoveReason.EXPIRED for r in rows}
    )
    due = plan(state, *listed_objects(*rows), make_object(9, 0), missing=[1], yes=False)
    assert set(due.delete) == {row.object_key for row in rows}
    assert due.refused


def test_young_objects_are_no_reason_to_keep_old_orphans():
    state = make_state(floor=5)
    young = [make_object(seed, 6, modified_ms=LATER) for seed in (2, 3)]
    kept = plan(state, make_object(1, 4), *young, yes=False)
    assert (len(kept.delete), kept.refused) == (1, "")


def test_foreign_names_are_left_alone():
    foreign = StoredObject("nodes/n1/files/readme", 1, 0)
    assert plan(make_state(floor=99), foreign).is_empty


def test_numbers_below_an_old_checkpoint_are_buried():
    state = replace(EMPTY, number=20, base=16, base_ms=NOW_MS, collected=3)
    assert plan(state, now_ms=LATER - 1).is_empty
    due = plan(state)
    assert due.bury == range(4, 16)
    assert due.change.collected == 15


def test_numbers_are_buried_below_an_old_checkpoint_though_the_newest_is_young():
    old, older = Checkpoint(64, NOW_MS), Checkpoint(32, NOW_MS - 1)
    state = replace(EMPTY, number=99, base=96, base_ms=LATER, checkpoints=(older, old))
    assert plan(state, now_ms=LATER - 1).bury == range(1, 32)
    assert plan(state).bury == range(1, 64)


def test_burying_goes_in_steps():
    state = replace(EMPTY, number=9_000, base=8_000, base_ms=NOW_MS)
    due = plan(state)
    assert due.bury == range(1, NUMBERS_A_STEP + 1)
    assert due.change.collected == NUMBERS_A_STEP


def test_everything_buried_is_an_empty_plan():
    assert plan(replace(EMPTY, number=16, base=16, base_ms=NOW_MS, collected=15)).is_empty


def test_owner_drops_what_merges_of_other_nodes_hold():
    state = after(EMPTY, add=(make_row(1), make_row(2)))
    ref = FileRef("n1", make_uuid(1), make_row(1).number)
    other = replace(ManifestState(node="jobs"), replaced=frozenset({ref}))
    assert plan_replaced(state, [other]) == [make_row(1)]
    assert plan_replaced(state, []) == []


def test_replaced_ref_is_forgotten_once_its_owner_knows_it_no_longer():
    refs = [FileRef(node, make_uuid(seed), seed) for node, seed in (("a", 1), ("a", 2), ("b", 3))]
    state = replace(ManifestState(node="jobs"), replaced=frozenset(refs))
    owner = replace(ManifestState(node="a"), files={make_uuid(1): make_row(1, node="a")})
    assert plan_forget_replaced(state, [owner]) == (refs[1],)


def test_replaced_queue_tables_go_however_many_they_are():
    row = make_row(1)
    state = replace(after(EMPTY, add=(row,)), number=10, floor=9, base_ms=NOW_MS * 2)
    tables = [
        StoredObject(StorePaths("n1").queue_table(4, make_uuid(seed)), 10, NOW_MS)
        for seed in (7, 8, 9)
    ]
    kept = plan(state, *listed_objects(row), *tables, yes=False)
    assert (len(kept.delete), kept.refused) == (3, "")
