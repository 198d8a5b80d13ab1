from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from tierdex.app.keys import KeyFile, Scope, parse_scope
from tierdex.clock import SystemClock
from tierdex.errors import (
    AuthenticationError,
    CorruptFileError,
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
)
from tierdex.filesystem import LocalFileSystem
from tierdex.ids import SeededIds

if TYPE_CHECKING:
    from tierdex.clock import ManualClock


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data" / "keys.json"


@pytest.fixture
def make_keys(path, clock):
    def make(seed=1):
        return KeyFile(LocalFileSystem(), path, clock=clock, ids=SeededIds(seed))

    return make


def test_key_is_known_after_it_was_made_and_the_file_holds_only_its_hash(make_keys, path):
    key = make_keys().create(Scope.WRITE, name="broker")
    row = make_keys().identify(key)
    assert (row.scope, row.name, row.id) == (Scope.WRITE, "broker", key.split("_")[1])
    assert key not in path.read_text()
    assert key.split("_", 2)[2] not in path.read_text()


def test_changed_key_is_unknown(make_keys):
    keys = make_keys()
    key = keys.create(Scope.READ)
    for wrong in (key[:-1], key + "x", key.upper(), "", "tdx__", key.split("_", 2)[2]):
        with pytest.raises(AuthenticationError):
            keys.identify(wrong)


def test_running_service_sees_a_new_key_at_once_and_a_removed_one_within_a_second(
    make_keys, clock: ManualClock
):
    service, tool = make_keys(), make_keys(2)
    assert not service.had_keys
    key = tool.create(Scope.READ)
    assert service.identify(key).scope is Scope.READ
    assert service.had_keys
    tool.remove(key.split("_")[1])
    clock.advance(1)
    with pytest.raises(AuthenticationError):
        service.identify(key)
    assert len(service) == 0
    assert service.had_keys


def test_changes_at_one_time_undo_none_of_each_other(make_keys, path):
    removed = make_keys().create(Scope.ADMIN)
    clock = SystemClock()
    made = []

    def create(seed):
        keys = KeyFile(LocalFileSystem(), path, clock=clock, ids=SeededIds(seed))
        made.append(keys.create(Scope.READ))

    threads = [threading.Thread(target=create, args=(seed,)) for seed in range(2, 12)]
    for thread in threads:
        thread.start()
    KeyFile(LocalFileSystem(), path, clock=clock, ids=SeededIds(1)).remove(removed.split("_")[1])
    for thread in threads:
        thread.join()
    keys = make_keys()
    assert {keys.identify(key).scope for key in made} == {Scope.READ}
    assert len(keys) == len(made) == 10


def test_a_change_that_another_one_keeps_waiting_gives_up(make_keys, path):
    keys = make_keys()
    keys.create(Scope.READ)
    lock = LocalFileSystem().lock(path.with_name(".keys.json.lock"), "")
    with pytest.raises(UnavailableError, match="try again"):
        keys.create(Scope.READ)
    lock.release()
    keys.create(Scope.READ)
    assert sorted(file.name for file in path.parent.iterdir()) == [".keys.json.lock", "keys.json"]


def test_removing_an_unknown_key_says_so(make_keys):
    with pytest.raises(NotFoundError):
        make_keys().remove("00000000")


def test_damaged_key_file_is_an_error_not_an_open_service(make_keys, path):
    path.parent.mkdir()
    for text in ("", "{}", '{"keys": [{}]}', "[]"):
        path.write_text(text)
        with pytest.raises(CorruptFileError):
            make_keys()


def test_scope_of_another_name_is_refused():
    assert parse_scope("Admin") is Scope.ADMIN
    with pytest.raises(InvalidRequestError):
        parse_scope("root")
