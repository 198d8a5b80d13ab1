from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lifecycle import strategies as own
from tests.lifecycle.rows import NOW_MS, make_row, make_uuid
from tierdex.lifecycle.manifests.applied_commit import apply, with_checkpoint
from tierdex.lifecycle.manifests.file_row import FileRef
from tierdex.lifecycle.manifests.manifest import (
    Change,
    Commit,
    ManifestState,
    NodeKind,
    RemoveReason,
    Retention,
    is_replaced,
)

EMPTY = ManifestState(node="n1")


def make_commit(state, change, *, time_ms=NOW_MS):
    return Commit(
        node=state.node,
        number=state.number + 1,
        kind=NodeKind.OWNED,
        epoch=1,
        owner=make_uuid(9),
        commit_id=make_uuid(state.number),
        time_ms=time_ms,
        base=state.base,
        change=change,
    )


def after(state, **change):
    return apply(state, make_commit(state, Change(**change)))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_apply_is_total_and_only_rises(data):
    state = data.draw(own.states())
    commit = data.draw(own.commits_after(state))
    result = apply(state, commit)
    assert result.number == state.number + 1
    assert result.floor >= state.floor
    assert result.collected >= state.collected
    assert result.highest_number >= state.highest_number
    assert result.uncovered <= result.files.keys()
    assert all(result.streams[query] >= batch for query, batch in state.streams.items())


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_checkpoint_carries_the_state_that_apply_gives(data):
    state = data.draw(own.states())
    commit = data.draw(own.commits_after(state))
    checkpoint = with_checkpoint(state, commit)
    as_base = replace(commit, base=commit.number)
    assert apply(ManifestState(node=state.node), checkpoint) == apply(state, as_base)


def test_file_that_is_known_is_not_listed_again():
    state = after(EMPTY, add=(make_row(1),))
    again = after(state, add=(make_row(1, item_count=99),))
    assert again.files == state.files


def test_dropped_file_never_comes_back():
    state = after(EMPTY, add=(make_row(1),))
    state = after(state, remove={make_uuid(1): RemoveReason.EXPIRED})
    assert after(state, add=(make_row(1),)).files == {}


def test_part_of_a_merge_is_known():
    part = FileRef("n1", make_uuid(1), NOW_MS)
    state = after(EMPTY, add=(make_row(2, parts=(part,)),))
    assert state.knows(make_uuid(1))
    assert after(state, add=(make_row(1),)).files.keys() == {make_uuid(2)}


def test_removed_row_waits_among_the_dropped():
    state = after(EMPTY, add=(make_row(1),))
    removal = make_commit(state, Change(remove={make_uuid(1): RemoveReason.EXPIRED}), time_ms=77)
    state = apply(state, removal)
    dropped = state.dropped[make_uuid(1)]
    assert (dropped.object_key, dropped.dropped_ms) == (make_row(1).object_key, 77)
    assert dropped.reason is RemoveReason.EXPIRED


def test_removal_of_an_unlisted_file_does_nothing():
    state = after(EMPTY, remove={make_uuid(1): RemoveReason.EXPIRED})
    assert state.dropped == {}


def test_forgotten_object_is_known_no_longer():
    state = after(EMPTY, add=(make_row(1),))
    state = after(state, remove={make_uuid(1): RemoveReason.EXPIRED})
    state = after(state, forget=(make_uuid(1),))
    assert not state.knows(make_uuid(1))
    assert state.highest_number == make_row(1).number


def test_replaced_files_stay_replaced_when_the_merge_expires():
    ref = FileRef("owned", make_uuid(1), 5)
    state = after(EMPTY, add=(make_row(2, replaces=(ref,)),))
    state = after(state, remove={make_uuid(2): RemoveReason.EXPIRED})
    assert state.replaced == {ref}
    assert after(state, forget_replaced=(ref,)).replaced == frozenset()


def test_row_is_replaced_by_name_or_by_all_of_its_parts():
    parts = (FileRef("n1", make_uuid(1), 5), FileRef("n1", make_uuid(2), 6))
    row = make_row(3, parts=parts)
    assert not is_replaced(row, "n1", frozenset())
    assert not is_replaced(row, "n1", frozenset(parts[:1]))
    assert is_replaced(row, "n1", frozenset(parts))
    assert is_replaced(row, "n1", frozenset({FileRef("n1", row.uuid, row.number)}))
    assert not is_replaced(row, "n2", frozenset({FileRef("n1", row.uuid, row.number)}))


def test_retention_changes_only_when_a_commit_says_so():
    state = after(EMPTY, retention=Retention(5))
    assert after(state, streams={"a": 1}).retention == Retention(5)
