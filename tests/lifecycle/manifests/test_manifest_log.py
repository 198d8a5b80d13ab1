from dataclasses import replace

import pytest

from tests.lifecycle.rows import KnobStore, make_log, make_row, make_uuid
from tierdex.clock import ManualClock
from tierdex.errors import (
    ConflictError,
    CorruptFileError,
    LostManifestError,
    StoreTimeoutError,
    UnsupportedFormatError,
)
from tierdex.ids import SeededIds
from tierdex.lifecycle.manifests import changes
from tierdex.lifecycle.manifests.manifest import (
    Change,
    Draft,
    Hint,
    ManifestState,
    NodeKind,
    RemoveReason,
)
from tierdex.lifecycle.manifests.manifest_codec import (
    REPEATED_BYTES_MAX,
    decode_manifest,
    encode_commit,
    encode_hint,
)
from tierdex.lifecycle.manifests.manifest_log import list_nodes
from tierdex.testing.faulty_store import Fault, FaultyStore


def add(log, *seeds):
    """Commit the files `seeds` the way a shared node does."""

    def build(state):
        change = changes.add_files(state, [make_row(seed, node=log.node) for seed in seeds])
        return None if change is None else Draft(NodeKind.SHARED, 0, bytes(16), change)

    return log.commit(build)


def seeds_of(state):
    return sorted(int.from_bytes(uuid, "big") for uuid in state.files)


def filled(store, count, **knobs):
    log = make_log(store, **knobs)
    for seed in range(1, count + 1):
        add(log, seed)
    return log


@pytest.fixture
def store():
    return KnobStore(ManualClock())


def test_node_that_nobody_wrote_is_number_zero(store):
    state = make_log(store).load()
    assert (state.number, state.kind, state.files) == (0, None, {})


@pytest.mark.parametrize("count", [1, 3, 7, 8, 9, 16, 23])
def test_another_reader_finds_what_was_committed(store, count):
    writer = filled(store, count)
    state = make_log(store).load()
    assert state == writer.state
    assert seeds_of(state) == list(range(1, count + 1))


def test_load_with_a_hint_reads_the_checkpoint_and_what_follows(store):
    filled(store, 19)  # checkpoints at 8 and 16
    store.requests.clear()
    make_log(store).load()
    assert store.requests == {
        "get": 3,
        "list": 1,
    }  # hint, checkpoint, and the newest: it repeats two


def test_refresh_with_nothing_new_is_one_request(store):
    filled(store, 19)
    reader = make_log(store)
    reader.refresh()
    store.requests.clear()
    reader.refresh()
    assert store.requests == {"get": 1}


def test_commit_is_one_request_and_one_for_the_hint(store):
    log = filled(store, 6)
    store.requests.clear()
    add(log, 7)
    assert store.requests == {"create": 1, "put": 1}
    add(log, 8)
    assert store.requests == {"create": 2, "put": 2}


def test_refresh_follows_what_others_committed(store):
    writer, reader = make_log(store), make_log(store)
    reader.load()
    add(writer, 1)
    add(writer, 2)
    assert seeds_of(reader.refresh()) == [1, 2]


@pytest.mark.parametrize("damage", ["absent", "corrupt", "foreign", "stale"])
def test_hint_is_never_needed(store, damage):
    log = filled(store, 19)
    key = log.paths.hint
    if damage == "absent":
        store.delete(key)
    elif damage == "corrupt":
        store.flip(key, 40)
    elif damage == "foreign":
        store.put(key, b"hello")
    else:
        store.put(key, encode_hint("n1", Hint(8, 11)))
    assert make_log(store).load() == log.state


def test_hint_at_a_commit_that_is_no_checkpoint_is_ignored(store):
    log = filled(store, 19)
    store.put(log.paths.hint, encode_hint("n1", Hint(17, 18)))
    assert make_log(store).load() == log.state


def test_load_without_a_hint_lists_the_folder(store):
    log = filled(store, 19)
    store.delete(log.paths.hint)
    store.requests.clear()
    make_log(store).load()
    # hint, newest, its base, and newest again; the objects' names tell of lost ones
    assert store.requests == {"get": 4, "list": 3}


def test_corrupt_commit_is_a_typed_error_that_names_the_object(store):
    log = filled(store, 5)
    store.flip(log.paths.manifest(5), 90)
    with pytest.raises(CorruptFileError) as caught:
        make_log(store).load()
    assert caught.value.path == log.paths.manifest(5)


def test_corrupt_commit_that_a_later_one_repeats_is_in_nobodys_way(store):
    log = filled(store, 5)
    store.flip(log.paths.manifest(3), 90)
    assert make_log(store).load() == log.state


def test_an_opening_reads_what_no_commit_read_so_far_repeats(store):
    """Commits of programs that repeat nothing, and more of them than one commit repeats."""
    log = make_log(store, checkpoint_every=200)
    for first in range(1, 501, 5):
        add(log, *range(first, first + 5))
    store.requests.clear()
    assert make_log(store).load() == log.state
    many = store.requests["get"]
    assert 3 < many < 12  # a hundred commits of five files
    for number in range(80, 100):
        (found, state) = decode(store, log, number), ManifestState(node="n1")
        store.put(log.paths.manifest(number), encode_commit(found, state))
    store.requests.clear()
    reader = make_log(store)
    assert reader.load() == log.state
    assert store.requests["get"] <= many + 20
    assert [commit.number for commit in reader.state.since] == list(range(1, 101))
    assert all(not commit.repeats for commit in reader.state.since)


def test_a_commit_that_repeats_others_than_those_before_it_is_damage(store):
    log = filled(store, 5)
    found = decode(store, log, 5)
    assert [each.number for each in found.repeats] == [1, 2, 3, 4]
    for wrong in (
        found.repeats[:2],
        [replace(found.repeats[3], node="n2")],
        [replace(found.repeats[3], base=3)],
        [replace(found.repeats[3], number=5)],
    ):
        state = replace(log.state, since=tuple(wrong))
        store.put(log.paths.manifest(5), encode_commit(found, state))
        with pytest.raises(CorruptFileError, match="repeats"):
            make_log(store).load()


def test_a_commit_stays_small_whatever_came_before_it(store):
    log = make_log(store, checkpoint_every=100)
    for first in range(1, 1000, 20):
        add(log, *range(first, first + 20))
        assert len(store.get(log.paths.manifest(log.state.number))) < REPEATED_BYTES_MAX + 12_000


def decode(store, log, number):
    key = log.paths.manifest(number)
    return decode_manifest(store.get(key), key=key, node="n1", number=number)


def test_corrupt_newest_commit_is_not_taken_for_the_end(store):
    log = filled(store, 5)
    reader = make_log(store)
    reader.load()
    add(log, 6)
    store.flip(log.paths.manifest(6), 90)
    with pytest.raises(CorruptFileError):
        reader.refresh()
    assert reader.state.number == 5


def test_commit_altered_on_its_way_is_read_again(store):
    log = filled(store, 5)
    reader = make_log(faulty := FaultyStore(store))
    reader.load()
    add(log, 6)
    faulty.fail("get", fault=Fault.ALTERED_BODY)
    store.requests.clear()
    assert reader.refresh() == log.state
    assert store.requests == {"get": 4}  # twice that commit, what is behind it, and its hint


def test_hole_in_the_history_is_not_taken_for_its_end(store):
    log = filled(store, 5)
    store.delete(log.paths.manifest(4))
    with pytest.raises(CorruptFileError, match="missing"):
        make_log(store).load()


def test_missing_checkpoint_is_damage(store):
    log = filled(store, 9)
    store.delete(log.paths.hint)
    store.delete(log.paths.manifest(8))
    with pytest.raises(CorruptFileError, match="missing"):
        make_log(store).load()


def test_refusal_of_our_own_success_is_a_success(store):
    log = make_log(store)
    store.refuse_own_create = True
    assert seeds_of(add(log, 1)) == [1]
    assert log.state.number == 1


def test_lost_answer_is_an_error_and_the_next_attempt_a_no_op(store):
    log = make_log(store)
    store.lose_answer_of_create = True
    with pytest.raises(StoreTimeoutError):
        add(log, 1)
    assert log.state.number == 0
    assert seeds_of(add(log, 1)) == [1]
    assert log.state.number == 1


def test_lost_race_is_drafted_again_on_the_newer_state(store):
    ours, theirs = make_log(store, ids=SeededIds(1)), make_log(store, ids=SeededIds(2))
    ours.load()
    store.before_create = lambda: add(theirs, 1)
    assert seeds_of(add(ours, 2)) == [1, 2]
    assert ours.state.number == 2


def test_somebody_who_commits_in_every_pause_is_not_in_the_way(store):
    other = make_log(store, ids=SeededIds(3))

    class BusyClock(ManualClock):
        def wait(self, event, timeout_s):
            add(other, 1000 + other.state.number)
            return super().wait(event, timeout_s)

    log = make_log(store, clock=BusyClock(), ids=SeededIds(2))
    log.load()
    add(other, 1)
    add(log, 2)  # loses the first number, and wins another
    assert {1, 2} < set(seeds_of(log.refresh()))
    assert log.state.number == 3


def test_races_lost_again_and_again_end_in_a_conflict(store):
    ours, theirs = make_log(store, ids=SeededIds(1)), make_log(store, ids=SeededIds(2))
    seeds = iter(range(10, 99))

    def build(_):
        store.before_create = lambda: add(theirs, next(seeds))
        return Draft(NodeKind.SHARED, 0, bytes(16), Change(streams={"a": 1}))

    with pytest.raises(ConflictError):
        ours.commit(build, attempts=3)


def test_writer_that_stalled_while_numbers_were_collected_finds_the_way(store):
    stalled, busy = make_log(store, ids=SeededIds(1)), make_log(store, ids=SeededIds(2))
    add(stalled, 1)
    for seed in range(2, 21):
        add(busy, seed)
    busy.bury(1, 15)
    assert seeds_of(add(stalled, 21)) == list(range(1, 22))
    assert stalled.state.number == 21
    assert make_log(store).load() == stalled.state


def test_reader_that_stalled_follows_tombstones_to_tombstones(store):
    reader, busy = make_log(store, ids=SeededIds(1)), make_log(store, ids=SeededIds(2))
    add(busy, 1)
    reader.load()
    for seed in range(2, 11):
        add(busy, seed)
    busy.bury(1, 7)  # these name 8
    for seed in range(11, 30):
        add(busy, seed)
    busy.bury(8, 23)  # 8 names 24
    assert reader.refresh() == busy.state


def test_hint_at_a_collected_checkpoint_leads_on(store):
    log = filled(store, 20)
    log.bury(1, 15)
    store.put(log.paths.hint, encode_hint("n1", Hint(8, 8)))
    assert make_log(store).load() == log.state


def test_collected_numbers_still_exist(store):
    log = filled(store, 20)
    log.bury(1, 15)
    assert all(store.has(log.paths.manifest(number)) for number in range(1, 21))


def test_thousand_published_files_are_few_requests(store):
    log = make_log(store, checkpoint_every=32)
    for first in range(0, 1_000, 25):
        add(log, *range(first + 1, first + 26))
    store.requests.clear()
    assert len(make_log(store).load().files) == 1_000
    assert store.requests == {"get": 4, "list": 1}  # eight commits of 9 KB since the checkpoint


def test_state_number_never_falls_on_a_second_load(store):
    log = filled(store, 9)
    assert log.load() == log.state
    assert log.state.number == 9


def test_read_time_is_that_of_the_last_look(store):
    clock = ManualClock(1_000)
    log = make_log(store, clock=clock)
    assert log.read_ms == 0
    log.load()
    clock.advance(5)
    log.refresh()
    assert log.read_ms == 6_000


def test_nodes_are_listed_in_order(store):
    for node in ("b", "a", "c.d"):
        add(make_log(store, node), 1)
    store.put("nodes/Not-a-node/hint", b"")
    assert list_nodes(store) == ["a", "b", "c.d"]


def test_removal_is_seen_by_a_reader_that_follows(store):
    log, reader = make_log(store), make_log(store)
    add(log, 1)
    reader.load()
    log.commit(
        lambda state: Draft(
            NodeKind.SHARED,
            0,
            bytes(16),
            changes.remove_files(state, [make_uuid(1)], RemoveReason.EXPIRED),
        )
    )
    assert reader.refresh().files == {}


# -- what the store has lost ------------------------------------------------------------------------


def lose(log, *numbers):
    for number in numbers:
        log.store.delete(log.paths.manifest(number))


@pytest.mark.parametrize("count", [1, 2, 8, 9, 19])
def test_lost_newest_commit_is_damage_not_the_end(store, count):
    log = filled(store, count)
    lose(log, count)
    with pytest.raises(LostManifestError, match="accept-rollback") as caught:
        make_log(store).load()
    assert caught.value.path == log.paths.manifest(count)


def test_every_number_lost_is_damage_not_a_node_that_nobody_wrote(store):
    log = filled(store, 19)
    lose(log, *range(1, 20))
    with pytest.raises(LostManifestError):
        make_log(store).load()


def test_objects_named_after_a_lost_number_tell_of_it_where_the_hint_is_lost_too(store):
    log = filled(store, 3)
    store.put(log.paths.file_object(2, make_uuid(9)), b"x")
    lose(log, 1, 2, 3)
    store.delete(log.paths.hint)
    with pytest.raises(LostManifestError) as caught:
        make_log(store).load()
    assert caught.value.path == log.paths.manifest(1)


def test_upload_of_a_node_that_nobody_committed_to_yet_is_no_damage(store):
    store.put(make_log(store).paths.file_object(0, make_uuid(9)), b"x")
    assert make_log(store).load().number == 0


def test_commit_between_the_listing_and_a_look_at_the_objects_is_no_damage(store):
    writer = filled(store, 2)
    store.delete(writer.paths.hint)
    reader = make_log(store)
    named = reader._reader.newest_named

    def commit_first(state):
        add(writer, 3)
        store.put(writer.paths.file_object(3, make_uuid(4)), b"x")
        return named(state)

    reader._reader.newest_named = commit_first
    assert reader.load().number == 3


def test_follower_learns_from_the_hint_that_the_next_number_is_lost(store):
    clock = ManualClock()
    writer = filled(store, 5)
    reader = make_log(store, clock=clock)
    reader.load()
    add(writer, 6)
    lose(writer, 6)
    assert reader.refresh().number == 5  # within the minute: it did not ask
    clock.advance(61)
    for _ in range(2):
        with pytest.raises(LostManifestError):
            reader.refresh()
    assert reader.read_ms < clock.now_ms() - 60_000  # so answers name the node before long


def test_history_that_ends_below_what_is_known_elsewhere_is_refused(store):
    filled(store, 5)
    store.delete(make_log(store).paths.hint)
    reader = make_log(store)
    reader.expect(5)
    assert reader.load().number == 5
    reader.expect(6)
    with pytest.raises(LostManifestError):
        reader.refresh()


def draft(state):
    return Draft(NodeKind.SHARED, 0, bytes(16), Change())


@pytest.mark.parametrize(
    ("lost", "kept"),
    [
        ([19], 18),
        ([17, 18, 19], 16),
        ([16, 17, 18, 19], 15),
        ([16], 15),  # the newest checkpoint: what is above it needs it
        ([18], 19),  # 19 repeats it
        ([18, 19], 17),
        (list(range(1, 20)), 0),
        ([9, 12], 19),  # below the newest checkpoint: not needed
    ],
)
def test_accepted_rollback_goes_on_above_every_number_known(store, lost, kept):
    log = filled(store, 19)
    lose(log, *lost)
    stranger = make_log(store)
    state = stranger.commit_after_loss(draft)
    nothing_lost = lost == [9, 12]
    assert state.number == 20
    assert state.rollback == (0 if nothing_lost else 19)
    assert seeds_of(state) == list(range(1, kept + 1))
    assert make_log(store).load() == state
    if not nothing_lost:
        assert stranger.missing_numbers() == []


def test_reader_that_knows_the_lost_history_does_not_take_what_follows_for_its_own(store):
    writer = filled(store, 19)
    reader = make_log(store)
    reader.load()
    lose(writer, 18, 19)
    stranger = make_log(store)
    stranger.commit_after_loss(draft)
    add(stranger, 99)
    assert seeds_of(reader.refresh()) == [*range(1, 18), 99]
    behind = make_log(store)
    behind._state = reader.state  # and one that stalled at a number now filled by a tombstone
    assert behind.refresh() == reader.state


def test_rollback_that_ended_half_way_is_finished_by_the_next(store):
    log = filled(store, 19)
    lose(log, 17, 18, 19)
    crashed = make_log(FaultyStore(store))
    crashed.store.fail("put", nth=1, fault=Fault.TIMEOUT_BEFORE, count=99)
    with pytest.raises(StoreTimeoutError):
        crashed.commit_after_loss(draft)
    with pytest.raises(CorruptFileError):
        make_log(store).load()
    finished = make_log(store)
    state = finished.commit_after_loss(draft)
    assert seeds_of(state) == list(range(1, 17))
    assert make_log(store).load() == state
    assert finished.missing_numbers() == []


def test_manifest_of_a_newer_program_is_never_rolled_back(store):
    log = filled(store, 5)
    data = store.get(log.paths.manifest(5))
    _, version, rest = data.split(b" ", 2)
    assert version.isdigit()
    store.put(log.paths.manifest(5), b"tierdex-manifest 99 " + rest)
    with pytest.raises(UnsupportedFormatError):
        make_log(store).commit_after_loss(draft)


def test_nothing_lost_is_an_ordinary_commit(store):
    filled(store, 5)
    state = make_log(store).commit_after_loss(draft)
    assert (state.number, state.rollback, state.base) == (6, 0, 0)
