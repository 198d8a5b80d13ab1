from __future__ import annotations

import os
import stat
import threading
from typing import TYPE_CHECKING

import orjson
import pytest

from tierdex.app.keys import KeyFile
from tierdex.app.rights import Grant, Scope, parse_scope
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
    assert (str(row.rights), row.name, row.id) == ("write", "broker", key.split("_")[1])
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
    assert str(service.identify(key).rights) == "read"
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
    assert {str(keys.identify(key).rights) for key in made} == {"read"}
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


def test_file_is_its_owner_s_alone_from_the_first_key_on(make_keys, path):
    before = os.umask(0)
    try:
        make_keys().create(Scope.READ)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert make_keys().exposure() is None
    path.chmod(0o644)
    assert f"chmod 600 {path}" in make_keys().exposure()
    make_keys(2).create(Scope.READ)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_file_that_anybody_may_write_is_refused_also_by_a_running_service(
    make_keys, path, clock: ManualClock
):
    service = make_keys()
    key = make_keys(2).create(Scope.READ)
    assert service.identify(key)
    path.chmod(0o602)
    forged = orjson.loads(path.read_bytes())
    forged["keys"].append({**forged["keys"][0], "id": "00000000", "scope": "admin"})
    path.write_bytes(orjson.dumps(forged))
    clock.advance(1)
    with pytest.raises(CorruptFileError, match="chmod 600"):
        service.identify(key)
    with pytest.raises(CorruptFileError, match="chmod 600"):
        make_keys()


def test_limited_key_is_unreadable_to_a_tierdex_that_knows_no_patterns(make_keys, path):
    """It would read `scope` and take the key of one topic for a key of all."""
    key = make_keys().create(Scope.READ, Grant(Scope.WRITE, "orders.*"), rate_limit=2.5)
    make_keys(2).create(Grant(Scope.READ, "orders"))
    make_keys(3).create(Scope.ADMIN)
    row = make_keys().identify(key)
    assert (str(row.rights), row.rate_limit) == ("read write:orders.*", 2.5)
    rows = orjson.loads(path.read_bytes())["keys"]
    assert sorted("scope" in row for row in rows) == [False, False, True]
    for wrong in ({"grants": ["root"]}, {"grants": None}, {"rate_limit": 0}, {"rate_limit": "x"}):
        path.write_bytes(orjson.dumps({"keys": [{**rows[0], **wrong}]}))
        with pytest.raises(CorruptFileError):
            make_keys()


def test_scope_of_another_name_is_refused():
    assert parse_scope("Admin") is Scope.ADMIN
    with pytest.raises(InvalidRequestError):
        parse_scope("root")
    with pytest.raises(InvalidRequestError):
        parse_scope("none")
