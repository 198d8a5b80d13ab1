"""A store that has lost manifest objects: named in answers, refused by the owner, accepted on demand."""

from __future__ import annotations

import pytest

from tests.index_service.conftest import SMALL, offsets, put
from tierdex import Index
from tierdex.errors import LostManifestError
from tierdex.lifecycle.paths import StorePaths
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of

PATHS = StorePaths("n")


@pytest.fixture
def store(clock):
    return MemoryStore(clock=clock)


@pytest.fixture
def published(make_index, store):
    """Return a closed owner's store: keys A and B, a file each."""
    index = make_index(store=store, node="n", merge_below_items=0)
    for offset, key in enumerate("AB"):
        put(index, key, offset)
        index.flush("remote")
    index.close()
    return store


def manifests(store):
    return sorted(found.key for found in store.list(PATHS.manifest_prefix))


def files(store):
    return sorted(found.key for found in store.list(PATHS.files_prefix))


def read(store, clock):
    return Index.open(store=store, clock=clock, background=False)


def lose_newest(store):
    store.delete(manifests(store)[-1])


def lose_all(store):
    for key in manifests(store):
        store.delete(key)


def lose_all_and_the_hint(store):
    lose_all(store)
    store.delete(PATHS.hint)


@pytest.mark.parametrize("lose", [lose_newest, lose_all, lose_all_and_the_hint])
def test_what_was_lost_is_missing_not_absent(published, clock, lose):
    lose(published)
    with read(published, clock) as reader:
        answer = reader.query("orders", key="B")
        assert (offsets(answer), answer.complete) == ([], False)
        assert [missing.file for missing in answer.missing] == ["node:n"]
        assert "accept-rollback" in answer.missing[0].reason
        assert not reader.query_batch([{"topic": "orders", "key": "B"}])[0].complete


@pytest.mark.parametrize("lose", [lose_newest, lose_all, lose_all_and_the_hint])
def test_the_owner_refuses_a_store_that_knows_less_and_deletes_nothing(make_index, published, lose):
    lose(published)
    before = files(published)
    with pytest.raises(LostManifestError):
        make_index(store=published)
    assert files(published) == before


def test_the_owner_refuses_another_store_than_its_own(make_index, published, clock):
    with pytest.raises(LostManifestError):
        make_index(store=MemoryStore(clock=clock))


def test_a_reader_of_the_folder_refuses_it_too(published, clock, tmp_path):
    lose_newest(published)
    published.delete(PATHS.hint)
    with Index.open(
        tmp_path / "data", store=published, clock=clock, **{**SMALL, "read_only": True}
    ) as reader:
        assert not reader.query("orders", key="B").complete


def test_manifests_that_were_restored_answer_as_before(make_index, published, clock):
    newest = manifests(published)[-1]
    data = published.get(newest)
    published.delete(newest)
    with pytest.raises(LostManifestError):
        make_index(store=published)
    published.put(newest, data)
    index = make_index(store=published)
    assert offsets(index.query("orders", key="B")) == [1]
    assert index.query("orders", key="B").complete


@pytest.mark.parametrize("lose", [lose_newest, lose_all, lose_all_and_the_hint])
def test_an_accepted_rollback_goes_on_and_is_written_into_the_manifest(
    make_index, published, clock, lose
):
    lost = len(manifests(published))
    lose(published)
    index = make_index(store=published, accept_rollback=True)
    assert components_of(index).writing.compactor.components.claim.get().state.rollback == lost
    put(index, "C", 3)
    index.flush("remote")
    with read(published, clock) as reader:
        assert reader.query("orders", key="B").complete
        assert offsets(reader.query("orders", key="C")) == [3]
    index.close()
    index = make_index(store=published)  # once is enough
    assert offsets(index.query("orders", key="C")) == [3]


def test_objects_that_an_accepted_rollback_orphaned_stay_until_the_operator_says_yes(
    make_index, published, clock
):
    lose_all(published)
    before = files(published)
    index = make_index(store=published, accept_rollback=True)
    for _ in range(4):
        clock.advance(8000)
        index.run_compaction()
    assert files(published) == before
    assert "tierdex compact --yes" in index.compaction_status()["orphans_kept"]
    components_of(index).writing.compactor.store.step()  # in the background no operator says yes
    assert files(published) == before
    for _ in range(2):
        clock.advance(8000)
        index.run_compaction(yes=True)
    assert files(published) == []
    assert index.compaction_status()["orphans_kept"] is None


def test_no_orphan_goes_while_a_number_is_missing_under_a_living_owner(make_index, store, clock):
    index = make_index(store=store, node="n", merge_below_items=0, checkpoint_every=1000)
    for offset in range(6):
        put(index, "A", offset)
        index.flush("remote")
    orphan = PATHS.file_object(1, bytes(16))
    store.put(orphan, b"whose row was lost, for all we know")
    third = manifests(store)[2]
    data = store.get(third)
    store.delete(third)
    for _ in range(3):
        clock.advance(8000)
        index.run_compaction(yes=True)
    assert orphan in files(store)
    assert "manifest 3 of node n is missing" in index.compaction_status()["orphans_kept"]
    store.put(third, data)
    for _ in range(3):
        clock.advance(8000)
        index.run_compaction()
    assert orphan not in files(store)
