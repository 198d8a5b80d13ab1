import pytest

from tests.lifecycle.rows import KnobStore, make_log, make_row, make_uuid
from tierdex.clock import ManualClock
from tierdex.errors import ConflictError, CorruptFileError, StoreTimeoutError
from tierdex.ids import SeededIds
from tierdex.lifecycle import changes
from tierdex.lifecycle.manifest import Change, NodeKind, RemoveReason
from tierdex.lifecycle.manifest_codec import encode_hint
from tierdex.lifecycle.manifest_log import Draft, list_nodes
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
    assert store.requests == {"get": 2 + 3, "list": 1}


def test_refresh_with_nothing_new_is_one_request(store):
    filled(store, 19)
    reader = make_log(store)
    reader.refresh()
    store.requests.clear()
    reader.refresh()
    assert store.requests == {"get": 1}


def test_commit_is_one_request_and_two_at_a_checkpoint(store):
    log = filled(store, 6)
    store.requests.clear()
    add(log, 7)
    assert store.requests == {"create": 1}
    add(log, 8)
    assert store.requests == {"create": 2, "put": 1}


def test_refresh_follows_what_others_committed(store):
    writer, reader = make_log(store), make_log(store)
    reader.load()
    add(writer, 1)
    add(writer, 2)
    assert seeds_of(reader.refresh()) == [1, 2]


@pytest.mark.parametrize("damage", ["absent", "corrupt", "foreign", "leads_nowhere", "stale"])
def test_hint_is_never_trusted(store, damage):
    log = filled(store, 19)
    key = log.paths.hint
    if damage == "absent":
        store.delete(key)
    elif damage == "corrupt":
        store.flip(key, 40)
    elif damage == "foreign":
        store.put(key, b"hello")
    elif damage == "leads_nowhere":
        store.put(key, encode_hint("n1", 4_000))
    else:
        store.put(key, encode_hint("n1", 8))
    assert make_log(store).load() == log.state


def test_hint_at_a_commit_that_is_no_checkpoint_is_ignored(store):
    log = filled(store, 19)
    store.put(log.paths.hint, encode_hint("n1", 17))
    assert make_log(store).load() == log.state


def test_load_without_a_hint_lists_the_folder(store):
    log = filled(store, 19)
    store.delete(log.paths.hint)
    store.requests.clear()
    make_log(store).load()
    # hint, newest, its base, and the three commits since
    assert store.requests == {"get": 3 + 3, "list": 2}


def test_corrupt_commit_is_a_typed_error_that_names_the_object(store):
    log = filled(store, 5)
    store.flip(log.paths.manifest(3), 90)
    with pytest.raises(CorruptFileError) as caught:
        make_log(store).load()
    assert caught.value.path == log.paths.manifest(3)


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
    assert store.requests == {"get": 3}


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
    store.put(log.paths.hint, encode_hint("n1", 8))
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
    assert store.requests.total() <= 3 + 32


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
