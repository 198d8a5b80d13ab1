"""A data folder knows its store: it is used where none is named, and another one is refused."""

from __future__ import annotations

import shutil

import pytest

from tests.index_service.conftest import offsets, put
from tierdex.errors import CorruptFileError, InvalidRequestError, LostManifestError
from tierdex.log_service.message_log import MessageLog

TINY = {"background": False, "slot_count": 64, "item_capacity": 1000, "disk_reserve_bytes": 0}


@pytest.fixture
def elsewhere(make_index, tmp_path):
    """Return the store of a folder whose store is outside of it; one entry is published."""
    store = tmp_path / "archive"
    index = make_index(store=str(store))
    put(index, "A", 1)
    index.roll()
    index.run_compaction()
    index.close()
    return store


@pytest.mark.parametrize("read_only", [False, True])
def test_a_folder_whose_store_is_elsewhere_is_opened_without_naming_it(
    make_index, elsewhere, read_only
):
    index = make_index(read_only=read_only)
    answer = index.query("orders", key="A")
    assert (offsets(answer), answer.complete) == ([1], True)


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("other", ["other", "s3://bucket/prefix", "memory://other"])
def test_another_store_is_refused_with_the_name_of_the_right_one(
    make_index, elsewhere, tmp_path, other, read_only
):
    named = str(tmp_path / other) if "://" not in other else other
    with pytest.raises(InvalidRequestError, match=f"belongs to store {elsewhere}") as caught:
        make_index(store=named, read_only=read_only)
    assert caught.value.field == "store"
    assert not (tmp_path / "other").exists()


def test_the_same_store_may_be_spelt_in_other_ways(make_index, elsewhere, tmp_path):
    for spelt in (f"file://{elsewhere}", f"{elsewhere}/", f"{tmp_path}/x/../archive"):
        index = make_index(store=spelt)
        assert offsets(index.query("orders", key="A")) == [1]
        index.close()
    assert offsets(make_index().query("orders", key="A")) == [1]


def test_a_folder_with_its_store_inside_may_be_moved(make_index, tmp_path):
    index = make_index()
    put(index, "A", 1)
    index.roll()
    index.run_compaction()
    index.close()
    assert (tmp_path / "data" / "STORE").read_text() == "store\n"
    shutil.move(tmp_path / "data", tmp_path / "moved")
    assert offsets(make_index(tmp_path / "moved").query("orders", key="A")) == [1]
    with pytest.raises(InvalidRequestError, match="belongs to store"):
        make_index(tmp_path / "moved", store=str(tmp_path / "elsewhere"), read_only=True)


def test_a_store_is_moved_on_purpose_by_writing_it_into_the_folder(make_index, elsewhere, tmp_path):
    shutil.move(elsewhere, tmp_path / "moved")
    (tmp_path / "data" / "STORE").write_text(f"{tmp_path / 'moved'}\n")
    index = make_index()
    put(index, "A", 2)
    assert offsets(index.query("orders", key="A")) == [2, 1]


def test_a_folder_of_before_names_the_store_as_what_is_wrong(make_index, elsewhere, tmp_path):
    (tmp_path / "data" / "STORE").unlink()
    with pytest.raises(LostManifestError, match=r"is it the store of this folder\? Name that"):
        make_index()
    assert offsets(make_index(store=str(elsewhere)).query("orders", key="A")) == [1]
    assert (tmp_path / "data" / "STORE").read_text() == f"{elsewhere}\n"


def test_a_damaged_note_says_what_to_write(make_index, elsewhere, tmp_path):
    (tmp_path / "data" / "STORE").write_bytes(b"\0\n")
    with pytest.raises(CorruptFileError, match="write the correct one"):
        make_index()


def test_a_message_log_knows_its_store_as_well(tmp_path):
    data, store = tmp_path / "log", tmp_path / "archive"
    with MessageLog.open(data, store=str(store), **TINY) as log:
        log.append(topic="a", queue_id=0, body=b"x", key="K")
        log.hand_over()
    with MessageLog.open(data, **TINY) as log:
        assert [message.body for message in log.get("a", key="K")] == [b"x"]
    with MessageLog.open(data, read_only=True, **TINY) as log:
        assert [message.body for message in log.get("a", key="K")] == [b"x"]
    for read_only in (False, True):
        with pytest.raises(InvalidRequestError, match=f"belongs to store {store}"):
            MessageLog.open(data, store=str(tmp_path / "other"), read_only=read_only, **TINY)
