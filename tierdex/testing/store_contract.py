"""The contract of a store as a test suite: an author of a store subclasses it and provides a `store`.

::

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self): return MyStore(...)        # empty, and this test's own

Slow stores lower the sizes; a store whose multipart limit is not `part_bytes` sets `big_bytes`
above it.

Depends on pytest, storage_layer and errors.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tierdex.errors import (
    AlreadyExistsError,
    CorruptFileError,
    InvalidRequestError,
    NotFoundError,
    StoreRefusedError,
)
from tierdex.ids import SeededIds
from tierdex.storage_layer.probe import probe

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tierdex.storage_layer.base import Store

BODY = bytes(range(256)) * 4
WRITERS = 8


class StoreContract:
    """The rules of every store and wrapper. Subclasses provide the fixture `store`."""

    many_keys = 1100  # above the 1000 that one request of a listing returns
    big_bytes = 8 << 20  # above the multipart limit of the store under test

    def fill(self, store: Store, keys: Iterable[str]) -> None:
        """Write a small object under each key; a subclass may know a quicker way."""
        with ThreadPoolExecutor(WRITERS) as pool:
            for done in [pool.submit(store.put, key, key.encode()) for key in keys]:
                done.result()

    # -- reading ------------------------------------------------------------------------------------

    def test_get_returns_what_was_put(self, store: Store) -> None:
        store.put("a/b.idx", BODY)
        assert store.get("a/b.idx") == BODY

    def test_put_takes_any_buffer(self, store: Store) -> None:
        store.put("view", memoryview(bytearray(BODY))[1:9])
        assert store.get("view") == BODY[1:9]

    def test_put_replaces_what_was_there(self, store: Store) -> None:
        store.put("key", BODY)
        store.put("key", b"shorter")
        assert store.get("key") == b"shorter"
        assert store.head("key").size == 7

    def test_empty_object_is_an_object(self, store: Store) -> None:
        store.put("empty", b"")
        assert store.get("empty") == b""
        assert store.head("empty").size == 0
        assert [found.key for found in store.list("")] == ["empty"]

    @pytest.mark.parametrize(
        ("position", "length"),
        [(0, 1), (0, 1024), (1023, 1), (17, 300), (1000, 24), (0, None), (1000, None), (None, 5)],
    )
    def test_range_returns_exactly_its_bytes(
        self, store: Store, position: int | None, length: int | None
    ) -> None:
        store.put("key", BODY)
        start = position or 0
        end = len(BODY) if length is None else start + length
        assert store.get("key", position, length) == BODY[start:end]

    def test_range_of_no_bytes_is_empty(self, store: Store) -> None:
        store.put("key", BODY)
        assert store.get("key", 5, 0) == b""

    @pytest.mark.parametrize(
        ("position", "length"), [(0, 1025), (1023, 2), (1024, 1), (5000, 5), (1024, None)]
    )
    def test_range_beyond_the_end_is_an_error_and_never_short(
        self, store: Store, position: int, length: int | None
    ) -> None:
        store.put("key", BODY)
        with pytest.raises(CorruptFileError):
            store.get("key", position, length)

    def test_absent_object_is_not_found(self, store: Store) -> None:
        store.put("folder/key", b"x")
        for key in ("nothing", "folder", "folder/key/below", "fold"):
            with pytest.raises(NotFoundError):
                store.get(key)
            with pytest.raises(NotFoundError):
                store.get(key, 0, 10)
            with pytest.raises(NotFoundError):
                store.head(key)

    def test_head_tells_size_and_time(self, store: Store) -> None:
        store.put("first", BODY)
        found = store.head("first")
        assert (found.key, found.size) == ("first", len(BODY))
        listed = next(iter(store.list("")))
        assert (listed.key, listed.size) == ("first", len(BODY))
        assert found.modified_ms > 1_600_000_000_000
        assert abs(found.modified_ms - listed.modified_ms) < 1000  # HTTP's header has whole seconds

    def test_the_store_tells_its_time(self, store: Store) -> None:
        store.put("first", BODY)
        told = store.time_ms()
        assert told is not None
        assert abs(told - store.head("first").modified_ms) < 600_000

    # -- conditional writes -------------------------------------------------------------------------

    def test_put_if_absent_writes_once_and_keeps_the_first(self, store: Store) -> None:
        store.put_if_absent("log/1", b"first")
        with pytest.raises(AlreadyExistsError):
            store.put_if_absent("log/1", b"second")
        assert store.get("log/1") == b"first"

    def test_put_if_absent_repeated_after_a_lost_answer_succeeds(self, store: Store) -> None:
        store.put_if_absent("log/1", BODY)
        store.put_if_absent("log/1", BODY)
        assert store.get("log/1") == BODY

    def test_put_if_absent_of_another_object_with_the_same_start_is_refused(
        self, store: Store
    ) -> None:
        store.put_if_absent("log/1", BODY)
        for other in (BODY + b"x", BODY[:-1], b""):
            with pytest.raises(AlreadyExistsError):
                store.put_if_absent("log/1", other)

    def test_put_if_absent_after_delete_writes_again(self, store: Store) -> None:
        store.put_if_absent("log/1", b"first")
        store.delete("log/1")
        store.put_if_absent("log/1", b"second")
        assert store.get("log/1") == b"second"

    def test_put_if_absent_of_many_threads_has_one_winner(self, store: Store) -> None:
        barrier = threading.Barrier(WRITERS)

        def write(number: int, key: str) -> bool:
            barrier.wait()
            try:
                store.put_if_absent(key, f"writer {number}".encode())
            except AlreadyExistsError:
                return False
            return True

        with ThreadPoolExecutor(WRITERS) as pool:
            for key in ("race/1", "race/2", "race/3"):
                won = list(pool.map(write, range(WRITERS), [key] * WRITERS))
                assert won.count(True) == 1
                assert store.get(key) == f"writer {won.index(True)}".encode()

    def test_probe_finds_conditional_writes_honoured_and_leaves_nothing(self, store: Store) -> None:
        probe(store, "nodes/a/", SeededIds(1))
        assert list(store.list("")) == []

    # -- large objects ------------------------------------------------------------------------------

    def test_upload_of_a_large_object_arrives_whole(self, store: Store) -> None:
        source = PatternSource(self.big_bytes)
        store.upload("files/big", source, self.big_bytes)
        assert store.head("files/big").size == self.big_bytes
        for position in (0, self.big_bytes // 2, self.big_bytes - 1000):
            length = min(1000, self.big_bytes - position)
            assert store.get("files/big", position, length) == source.read_at(position, length)

    def test_upload_of_a_small_object_arrives_whole(self, store: Store) -> None:
        store.upload("files/small", PatternSource(1000), 1000)
        assert store.get("files/small") == PatternSource(1000).read_at(0, 1000)

    def test_upload_replaces_what_was_there(self, store: Store) -> None:
        store.put("files/one", BODY)
        store.upload("files/one", PatternSource(10), 10)
        assert len(store.get("files/one")) == 10

    def test_upload_whose_source_ends_early_leaves_nothing(self, store: Store) -> None:
        with pytest.raises(CorruptFileError):
            store.upload("files/cut", PatternSource(self.big_bytes - 1), self.big_bytes)
        assert list(store.list("")) == []

    # -- deleting -----------------------------------------------------------------------------------

    def test_delete_removes_and_may_be_repeated(self, store: Store) -> None:
        store.put("a/key", BODY)
        store.delete("a/key")
        store.delete("a/key")
        store.delete("never/there")
        assert list(store.list("")) == []
        assert store.list_folders("") == []

    # -- listing ------------------------------------------------------------------------------------

    def test_list_is_in_key_order_whatever_the_folders(self, store: Store) -> None:
        keys = ["a", "a-b", "a.b", "aa/b", "ab", "b/1", "b-2/x", "b=3", "b/1-1/x", "B", "0/9", "_z"]
        self.fill(store, keys)
        assert [found.key for found in store.list("")] == sorted(keys)

    def test_list_of_a_prefix_leaves_out_the_rest(self, store: Store) -> None:
        self.fill(store, ["n/a/1", "n/a/2", "n/ab/1", "n/b", "m"])
        assert [found.key for found in store.list("n/a/")] == ["n/a/1", "n/a/2"]
        assert [found.key for found in store.list("n/a")] == ["n/a/1", "n/a/2", "n/ab/1"]
        assert [found.key for found in store.list("n/b")] == ["n/b"]
        assert list(store.list("x/y")) == []

    @pytest.mark.parametrize("after", ["", "a", "n/", "n/1", "n/2", "n/2/x", "n/25", "n/9", "z"])
    def test_list_starts_behind_the_key_given(self, store: Store, after: str) -> None:
        keys = ["n/1", "n/2-", "n/2.5/x", "n/3", "n/4/1", "n/4/2", "o"]
        self.fill(store, keys)
        expected = [key for key in sorted(keys) if key > after]
        assert [found.key for found in store.list("", after)] == expected
        below = [key for key in expected if key.startswith("n/")]
        assert [found.key for found in store.list("n/", after)] == below

    def test_list_goes_on_beyond_one_page(self, store: Store) -> None:
        keys = [f"manifest/{number:020d}" for number in range(self.many_keys)]
        self.fill(store, keys)
        assert [found.key for found in store.list("manifest/")] == keys
        middle = self.many_keys // 2
        assert [found.key for found in store.list("manifest/", keys[middle])] == keys[middle + 1 :]

    def test_list_folders_names_what_lies_right_below(self, store: Store) -> None:
        self.fill(store, ["nodes/b/hint", "nodes/a/m/1", "nodes/a/m/2", "nodes/c", "other/x"])
        assert store.list_folders("nodes/") == ["a", "b"]
        assert store.list_folders("") == ["nodes", "other"]
        assert store.list_folders("nodes/a/") == ["m"]
        assert store.list_folders("nothing/") == []

    # -- bad input ----------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        "key",
        ["", "/a", "a/", "a//b", "../a", "a/../b", "./a", ".hidden", "a b", "ä", "a\n", "a\\b"],
    )
    def test_bad_key_is_refused_by_every_verb(self, store: Store, key: str) -> None:
        for call in (
            lambda: store.get(key),
            lambda: store.get(key, 0, 0),
            lambda: store.put(key, b""),
            lambda: store.put_if_absent(key, b""),
            lambda: store.upload(key, PatternSource(1), 1),
            lambda: store.delete(key),
            lambda: store.head(key),
        ):
            with pytest.raises(InvalidRequestError):
                call()

    def test_bad_prefix_is_refused(self, store: Store) -> None:
        for prefix in ("/a", "../", "a//", "ü"):
            with pytest.raises(InvalidRequestError):
                list(store.list(prefix))
        with pytest.raises(InvalidRequestError):
            store.list_folders("no-slash")

    def test_url_names_the_store(self, store: Store) -> None:
        assert "://" in store.url


class ProbeOnly:
    """For stores that are known to ignore conditions: opening them for writing must be refused."""

    def test_probe_refuses_a_store_that_ignores_conditions(self, store: Store) -> None:
        with pytest.raises(StoreRefusedError, match="conditional"):
            probe(store, "", SeededIds(1))
        assert list(store.list("")) == []


class PatternSource:
    """`size` bytes that differ from place to place, made when read."""

    def __init__(self, size: int) -> None:
        self._size = size

    def read_at(self, position: int, length: int) -> bytes:
        """Return up to `length` bytes; fewer only at the end."""
        end = min(position + length, self._size)
        first = position // 8
        words = b"".join(n.to_bytes(8, "little") for n in range(first, -(-end // 8)))
        return words[position - first * 8 : end - first * 8]
