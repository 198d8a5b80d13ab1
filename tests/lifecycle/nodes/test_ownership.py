import threading
from dataclasses import replace

import pytest

from tests.lifecycle.rows import KnobStore, make_log, make_row, make_uuid
from tierdex.clock import ManualClock
from tierdex.errors import (
    ConflictError,
    FencedError,
    FloorError,
    LostManifestError,
    NodeInUseError,
    OwnershipError,
    StoreRefusedError,
    StoreTimeoutError,
)
from tierdex.ids import SeededIds
from tierdex.lifecycle.garbage import plan_garbage
from tierdex.lifecycle.manifests import changes
from tierdex.lifecycle.manifests.file_row import FileRef
from tierdex.lifecycle.manifests.manifest import (
    Change,
    NodeKind,
    QueueTableRef,
    RemoveReason,
    Retention,
)
from tierdex.lifecycle.nodes.claim_terms import ClaimTerms, NoMemory
from tierdex.lifecycle.nodes.ownership import OwnedNode
from tierdex.lifecycle.nodes.shared_node import SharedNode
from tierdex.lifecycle.paths import StorePaths


@pytest.fixture
def store():
    return KnobStore(ManualClock())


def open_owned(store, seed, node="n1", **knobs):
    ids = SeededIds(seed)
    return OwnedNode.open(make_log(store, node, ids=ids, **knobs), ids)


def open_shared(store, seed, node="n1", **knobs):
    ids = SeededIds(seed)
    return SharedNode.open(make_log(store, node, ids=ids, **knobs), ids)


def newest(store, node="n1"):
    return make_log(store, node).load()


def rows(*seeds, **fields):
    return [make_row(seed, **fields) for seed in seeds]


# -- owned ------------------------------------------------------------------------------------


def test_opening_commits_a_new_epoch(store):
    assert open_owned(store, 1).epoch == 1
    assert open_owned(store, 2).epoch == 2
    state = newest(store)
    assert (state.number, state.epoch, state.kind) == (2, 2, NodeKind.OWNED)


def test_store_that_ignores_the_condition_is_refused_before_anything_is_committed(store):
    store.honours_conditions = False
    with pytest.raises(StoreRefusedError):
        open_owned(store, 1)
    with pytest.raises(StoreRefusedError):
        open_shared(store, 1)
    assert newest(store).number == 0


def test_stale_owner_is_fenced_for_good_and_changes_nothing(store):
    stale, fresh = open_owned(store, 1), open_owned(store, 2)
    fresh.publish(rows(1))
    before = newest(store)
    for attempt in (
        lambda: stale.publish(rows(2)),
        lambda: stale.remove([make_uuid(1)], RemoveReason.EXPIRED),
        lambda: stale.merge(make_row(3), [make_uuid(1)]),
        stale.refresh,
        lambda: stale.commit(lambda _: None),
    ):
        with pytest.raises(FencedError):
            attempt()
        assert stale.is_fenced
    assert newest(store) == before
    assert not fresh.is_fenced


def test_owner_learns_of_its_fencing_by_a_refresh(store):
    stale = open_owned(store, 1)
    open_owned(store, 2)
    with pytest.raises(FencedError):
        stale.refresh()


def test_fenced_owner_still_answers_from_its_state(store):
    stale = open_owned(store, 1)
    stale.publish(rows(1))
    open_owned(store, 2)
    with pytest.raises(FencedError):
        stale.publish(rows(2))
    assert stale.state.knows(make_uuid(1))


def test_takeover_in_the_middle_of_a_commit_fences_it(store):
    stale = open_owned(store, 1)
    store.before_create = lambda: open_owned(store, 2)
    with pytest.raises(FencedError):
        stale.publish(rows(1))
    assert newest(store).files == {}


def test_two_owners_racing_to_open_get_different_epochs(store):
    opened: list[OwnedNode] = []
    threads = [
        threading.Thread(target=lambda seed=seed: opened.append(open_owned(store, seed)))
        for seed in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(node.epoch for node in opened) == [1, 2, 3, 4, 5, 6]
    outcomes = [_outcome(node, seed) for seed, node in enumerate(opened)]
    assert sorted(outcomes) == ["fenced"] * 5 + ["published"]
    assert len(newest(store).files) == 1


def _outcome(node, seed):
    try:
        node.publish(rows(100 + seed, read_number=node.state.number))
    except FencedError:
        return "fenced"
    return "published"


def test_epochs_in_the_history_never_fall_and_have_one_owner_each(store):
    owners = [open_owned(store, seed) for seed in range(3)]
    for turn in range(9):
        _outcome(owners[turn % 3], turn)
        if turn == 4:
            owners[1] = open_owned(store, 50)
    log = make_log(store)
    owner_of: dict[int, bytes] = {}
    epochs = []
    for number in range(1, log.load().number + 1):
        commit = log._reader.read(number)
        epochs.append(commit.epoch)
        assert owner_of.setdefault(commit.epoch, commit.owner) == commit.owner
    assert epochs == sorted(epochs)


def test_owner_whose_claim_was_answered_412_opens_once(store):
    store.refuse_own_create = True
    assert open_owned(store, 1).epoch == 1
    assert newest(store).number == 1


def test_owner_stalled_while_numbers_were_collected_is_fenced(store):
    stale = open_owned(store, 1)
    fresh = open_owned(store, 2)
    for seed in range(1, 20):
        fresh.publish(rows(seed))
    fresh.log.bury(1, fresh.state.base - 1)
    before = newest(store)
    with pytest.raises(FencedError):
        stale.publish(rows(99))
    assert newest(store) == before


def test_publishing_again_is_a_success_without_a_commit(store):
    owner = open_owned(store, 1)
    owner.publish(rows(1))
    number = owner.state.number
    assert owner.publish(rows(1)).number == number
    assert owner.publish(rows(1, 2)).number == number + 1
    assert len(owner.state.files) == 2


def test_publishing_after_a_lost_answer_does_not_list_twice(store):
    owner = open_owned(store, 1)
    store.lose_answer_of_create = True
    with pytest.raises(StoreTimeoutError):
        owner.publish(rows(1))
    owner.publish(rows(1))
    assert newest(store).number == 2


def make_table(seed, *, before=None, covers=()):
    uuid = make_uuid(seed)
    ref = QueueTableRef(StorePaths("n1").queue_table(1, uuid), uuid, 10, 7)
    return changes.TableDraft(ref, before, frozenset(map(make_uuid, covers)))


def telling(*seeds):
    return [replace(row, tells=True) for row in rows(*seeds)]


def test_file_that_tells_more_than_the_queue_table_stays_until_a_table_holds_it(store):
    owner = open_owned(store, 1)
    owner.publish(telling(1, 2))
    assert newest(store).uncovered == {make_uuid(1), make_uuid(2)}
    for reason in (RemoveReason.EXPIRED, RemoveReason.REPLACED):
        with pytest.raises(ConflictError, match="queue table"):
            owner.remove([make_uuid(1)], reason)
    with pytest.raises(ConflictError, match="queue table"):
        owner.merge(make_row(9), [make_uuid(1), make_uuid(2)])  # the whole would tell nothing
    table = make_table(20, covers=(1,))
    owner.commit(lambda state: changes.cover_ends(state, table))
    owner.commit(lambda state: changes.cover_ends(state, table))  # as after a lost answer
    owner.remove([make_uuid(1)], RemoveReason.EXPIRED)
    state = newest(store)
    assert (state.queue_table, state.uncovered) == (table.ref, {make_uuid(2)})


def test_lost_file_may_go_with_what_it_told(store):
    owner = open_owned(store, 1)
    owner.publish(telling(1))
    owner.remove([make_uuid(1)], RemoveReason.LOST)
    assert newest(store).uncovered == frozenset()


def test_merged_file_tells_what_its_parts_told_and_nothing_covered_again(store):
    owner = open_owned(store, 1)
    owner.publish(telling(1, 2))
    owner.merge(replace(make_row(8), tells=True), [make_uuid(1), make_uuid(2)])
    assert newest(store).uncovered == {make_uuid(8)}
    owner.publish(telling(3), table=make_table(20, covers=(8,)))
    assert newest(store).uncovered == frozenset()
    owner.merge(replace(make_row(9), tells=True), [make_uuid(8), make_uuid(3)])
    assert newest(store).uncovered == frozenset()


def test_next_queue_table_is_made_from_the_newest_and_drops_it(store):
    owner = open_owned(store, 1)
    first, second = make_table(20), make_table(21)
    owner.publish(telling(1), table=first)
    with pytest.raises(ConflictError, match="another queue table"):
        owner.publish(telling(2), table=second)
    second = second._replace(before=first.ref)
    owner.publish(telling(2), table=second)
    state = newest(store)
    assert state.queue_table == second.ref
    assert [dropped.object_key for dropped in state.dropped.values()] == [first.ref.object_key]


def test_merge_swaps_files_in_one_commit(store):
    owner = open_owned(store, 1)
    owner.publish(rows(1, 2, 3))
    number = owner.state.number
    owner.merge(make_row(9), [make_uuid(1), make_uuid(2)])
    state = newest(store)
    assert set(state.files) == {make_uuid(3), make_uuid(9)}
    assert state.number == number + 1
    assert owner.merge(make_row(9), [make_uuid(1), make_uuid(2)]).number == number + 1


def test_merge_of_an_expired_file_is_refused(store):
    owner = open_owned(store, 1)
    owner.publish(rows(1, 2))
    owner.remove([make_uuid(1)], RemoveReason.EXPIRED)
    with pytest.raises(ConflictError):
        owner.merge(make_row(9), [make_uuid(1), make_uuid(2)])


def test_object_named_below_the_floor_is_refused_until_it_is_uploaded_afresh(store):
    owner = open_owned(store, 1)
    named_early = make_row(1, read_number=owner.state.number)
    owner.commit(lambda state: Change(floor=state.number + 1))
    with pytest.raises(FloorError):
        owner.publish([named_early])
    owner.publish([make_row(1, read_number=owner.state.number)])
    assert newest(store).knows(make_uuid(1))


def test_retention_rules_are_committed(store):
    owner = open_owned(store, 1)
    owner.commit(lambda _: Change(retention=Retention(5, {"a": None})))
    assert newest(store).retention == Retention(5, {"a": None})


def test_shared_node_cannot_be_opened_as_owned_nor_the_other_way_round(store):
    open_owned(store, 1, "owned")
    open_shared(store, 1, "jobs").publish(rows(1, node="jobs"))
    with pytest.raises(OwnershipError):
        open_shared(store, 2, "owned")
    with pytest.raises(OwnershipError):
        open_owned(store, 2, "jobs")


def test_job_that_opened_before_the_owner_did_cannot_fence_it(store):
    job = open_shared(store, 1)
    owner = open_owned(store, 2)
    with pytest.raises(OwnershipError):
        job.publish(rows(1))
    owner.publish(rows(2))


# -- takeover: only from an owner that is silent, or on demand ----------------------------------------


class Folder(NoMemory):
    """A memory like that of a data folder; `before_commit` sees the claim that is about to come."""

    def __init__(self, before_commit=lambda: None):
        self.tokens, self.number, self.before_commit = [], 0, before_commit

    def holds(self, token):
        return token in self.tokens

    def note_claim(self, token, before):
        self.tokens.append(token)
        self.before_commit()

    def note_commit(self, number):
        self.number = number


def open_from(store, seed, folder, **options):
    ids = SeededIds(seed)
    terms = ClaimTerms(memory=folder, **{"takeover_after_s": 3600.0, **options})
    return OwnedNode.open(make_log(store, ids=ids), ids, terms)


@pytest.fixture
def ticks():
    return ManualClock()


@pytest.fixture
def shop(ticks):
    return KnobStore(ticks)


def test_living_owner_is_not_taken_over_and_goes_on(shop, ticks):
    owner = open_from(shop, 1, Folder())
    ticks.advance(3599)
    before = newest(shop)
    with pytest.raises(NodeInUseError, match="--take-over") as caught:
        open_from(shop, 2, Folder())
    assert caught.value.node == "n1"
    assert newest(shop) == before
    owner.publish(rows(1))


def test_living_owner_is_taken_over_on_demand(shop):
    owner = open_from(shop, 1, Folder())
    open_from(shop, 2, Folder(), takeover=True)
    with pytest.raises(FencedError, match="take-over"):
        owner.refresh()
    with pytest.raises(FencedError, match="adopt"):
        owner.check()


def test_owner_that_is_silent_for_long_is_taken_over_unasked(shop, ticks):
    open_from(shop, 1, Folder())
    ticks.advance(3600)
    assert open_from(shop, 2, Folder()).epoch == 2


def test_idle_owner_that_signs_is_alive(shop, ticks):
    owner = open_from(shop, 1, Folder())
    for _ in range(5):
        ticks.advance(3000)
        owner.sign()
    with pytest.raises(NodeInUseError):
        open_from(shop, 2, Folder())


def test_fenced_owner_gives_no_sign(shop, ticks):
    owner = open_from(shop, 1, Folder())
    open_from(shop, 2, Folder(), takeover=True)
    owner.log.refresh()
    ticks.advance(4000)
    with pytest.raises(FencedError):
        owner.sign()
    assert open_from(shop, 3, Folder()).epoch == 3


def test_folder_that_had_the_node_last_has_it_again_at_once(shop):
    folder = Folder()
    for epoch in (1, 2, 3):
        assert open_from(shop, epoch, folder).epoch == epoch


def test_folder_that_lost_the_node_does_not_have_it_again(shop):
    first = Folder()
    open_from(shop, 1, first)
    open_from(shop, 2, Folder(), takeover=True)
    with pytest.raises(NodeInUseError):
        open_from(shop, 3, first)


def test_claim_is_noted_before_it_is_committed_so_that_a_crash_between_loses_nothing(shop):
    def look():
        assert newest(shop).number == 0

    folder = Folder(before_commit=look)
    shop.lose_answer_of_create = True  # as if we had died: it took effect, and we do not know
    with pytest.raises(StoreTimeoutError):
        open_from(shop, 1, folder)
    folder.before_commit = lambda: None
    assert open_from(shop, 2, folder).epoch == 2


def test_two_new_owners_of_a_new_node_at_the_same_time_end_as_one(shop):
    shop.before_create = lambda: open_from(shop, 2, Folder())
    with pytest.raises(NodeInUseError):
        open_from(shop, 1, Folder())
    assert newest(shop).epoch == 1


@pytest.mark.parametrize("hours", [-90_000, -30, 0, 30, 90_000])
def test_clocks_of_other_machines_have_no_say(shop, ticks, hours):
    """Only the store's clock counts: ours may be wrong by any amount, that of the owner as well."""
    ids = SeededIds(7)
    wrong = ManualClock(ticks.now_ms() + hours * 3_600_000)
    OwnedNode.open(make_log(shop, ids=ids, clock=wrong), ids, ClaimTerms(takeover_after_s=3600.0))
    ticks.advance(3500)
    wrong.step(-hours * 7_200_000)
    ids = SeededIds(8)
    log = make_log(shop, ids=ids, clock=wrong)
    with pytest.raises(NodeInUseError):
        OwnedNode.open(log, ids, ClaimTerms(takeover_after_s=3600.0))
    ticks.advance(101)
    assert OwnedNode.open(log, ids, ClaimTerms(takeover_after_s=3600.0)).epoch == 2


def test_clock_of_the_store_that_steps_back_makes_nobody_look_dead(shop, ticks):
    open_from(shop, 1, Folder())
    ticks.step(-100_000_000)
    with pytest.raises(NodeInUseError):
        open_from(shop, 2, Folder())


def test_store_that_knows_less_than_the_folder_is_refused(shop):
    folder = Folder()
    owner = open_from(shop, 1, folder)
    owner.publish(rows(1))
    assert folder.number == 2
    for number in (1, 2):
        shop.delete(owner.log.paths.manifest(number))
    shop.delete(owner.log.paths.hint)
    with pytest.raises(LostManifestError):
        open_from(shop, 2, folder)
    assert open_from(shop, 3, folder, accept_rollback=True).state.rollback == 2
    assert folder.number == 3
    open_from(shop, 4, folder).publish(rows(1))


def test_shared_nodes_have_no_owner_that_could_be_in_use(shop):
    open_shared(shop, 1).publish(rows(1))
    open_shared(shop, 2).publish(rows(2))


# -- shared -----------------------------------------------------------------------------------


def test_shared_writers_racing_lose_nothing(store):
    def publish(seed: int) -> None:
        node = open_shared(store, seed)
        for step in range(5):
            node.publish(rows(100 * seed + step))

    threads = [threading.Thread(target=publish, args=(seed,)) for seed in range(1, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    state = newest(store)
    assert len(state.files) == 25
    assert state.number == 25
    assert state.epoch == 0


def test_replayed_batch_is_a_no_op(store):
    node = open_shared(store, 1)
    node.publish_batch("q", 0, rows(1))
    node.publish_batch("q", 1, rows(2))
    number = node.state.number
    restarted = open_shared(store, 2)
    assert restarted.publish_batch("q", 1, rows(3)).number == number
    assert restarted.publish_batch("q", 0, rows(4)).number == number
    restarted.publish_batch("other", 0, rows(5))
    assert set(newest(store).files) == {make_uuid(n) for n in (1, 2, 5)}


def test_batch_whose_answer_was_lost_is_listed_once(store):
    node = open_shared(store, 1)
    store.lose_answer_of_create = True
    with pytest.raises(StoreTimeoutError):
        node.publish_batch("q", 0, rows(1))
    open_shared(store, 2).publish_batch("q", 0, rows(2))
    assert set(newest(store).files) == {make_uuid(1)}


def test_empty_batch_is_remembered(store):
    node = open_shared(store, 1)
    node.publish_batch("q", 3, [])
    assert newest(store).streams == {"q": 3}


def test_batch_ids_survive_merge_expiry_and_checkpoints(store):
    node = open_shared(store, 1)
    node.publish_batch("q", 4, rows(1, 2))
    node.merge(make_row(9), [make_uuid(1), make_uuid(2)])
    node.remove([make_uuid(9)], RemoveReason.EXPIRED)
    for step in range(10):
        node.commit(lambda _, step=step: Change(floor=step + 1))
    assert newest(store).streams == {"q": 4}


def test_two_merges_of_the_same_files_list_one_of_them(store):
    first, second = open_shared(store, 1), open_shared(store, 2)
    first.publish(rows(1, 2))
    second.refresh()
    store.before_create = lambda: first.merge(make_row(8), [make_uuid(1), make_uuid(2)])
    with pytest.raises(ConflictError):
        second.merge(make_row(9), [make_uuid(1), make_uuid(2)])
    assert set(newest(store).files) == {make_uuid(8)}


def test_files_of_another_node_are_replaced_only_once(store):
    ref = FileRef("n2", make_uuid(1), 5)
    node = open_shared(store, 1)
    node.merge(make_row(8, replaces=(ref,)))
    with pytest.raises(ConflictError):
        node.merge(make_row(9, replaces=(ref,)))
    assert newest(store).replaced == {ref}


def test_collection_against_a_slow_uploader_never_lists_a_deleted_object(store):
    """The uploader names its object, stalls; collection runs to its end; then it commits."""
    clock = ManualClock()
    store = KnobStore(clock)
    slow, collector = open_shared(store, 1, clock=clock), open_shared(store, 2, clock=clock)
    collector.publish(rows(1))
    slow.refresh()
    row = make_row(2, read_number=slow.state.number)
    store.put(row.object_key, b"uploaded, not yet listed")
    for _ in range(3):
        clock.advance(3_600)
        state = collector.refresh()
        objects = list(store.list(collector.log.paths.files_prefix))
        plan = plan_garbage(state, objects, now_ms=clock.now_ms(), grace_ms=3_600_000, yes=True)
        for key in plan.delete:
            store.delete(key)
        collector.commit(lambda _, plan=plan: plan.change)
    assert not store.has(row.object_key)
    with pytest.raises(FloorError):
        slow.publish([row])
    fresh = make_row(2, read_number=slow.state.number)
    store.put(fresh.object_key, b"uploaded again")
    slow.publish([fresh])
    assert all(
        store.has(row.object_key) or row.uuid == make_uuid(1)
        for row in newest(store).files.values()
    )


def test_job_that_stalled_since_its_upload_cannot_list_an_expired_and_deleted_object(store):
    clock = ManualClock()
    store = KnobStore(clock)
    slow, collector = open_shared(store, 1, clock=clock), open_shared(store, 2, clock=clock)
    row = make_row(1, read_number=slow.state.number)
    store.lose_answer_of_create = True
    with pytest.raises(StoreTimeoutError):  # listed, but the job does not know
        slow.publish([row])
    collector.refresh()
    collector.remove([row.uuid], RemoveReason.EXPIRED)
    clock.advance(7_200)
    plan = plan_garbage(collector.state, [], now_ms=clock.now_ms(), grace_ms=3_600_000)
    assert plan.delete == (row.object_key,)
    collector.commit(lambda _: plan.change)
    with pytest.raises(FloorError):
        slow.publish([row])
