"""The store contract, run against every backend that needs no server and every wrapper."""

from __future__ import annotations

import pytest

from tierdex.clock import ManualClock
from tierdex.ids import SeededIds
from tierdex.settings import load_settings
from tierdex.storage_layer.local import LocalStore
from tierdex.storage_layer.memory import MemoryStore
from tierdex.storage_layer.metered import MeteredStore
from tierdex.storage_layer.open import open_store
from tierdex.storage_layer.prefixed import PrefixedStore
from tierdex.storage_layer.retrying import RetryingStore, RetryPolicy
from tierdex.testing.faulty_store import Fault, FaultyStore
from tierdex.testing.store_contract import ProbeOnly, StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self):
        return MemoryStore()


class TestLocalStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path):
        self.root = tmp_path / "archive"
        return LocalStore(self.root)

    def fill(self, store, keys):
        for key in keys:  # past the store: 1100 synced puts would take seconds
            path = self.root / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(key.encode())


class TestPrefixedStore(StoreContract):
    @pytest.fixture
    def store(self):
        inner = MemoryStore()
        inner.put("aside", b"not ours")
        inner.put("below/aside", b"not ours")
        return PrefixedStore(inner, "below/here/")


class TestMeteredStore(StoreContract):
    @pytest.fixture
    def store(self):
        return MeteredStore(MemoryStore())


class TestFaultyStoreWithoutFaults(StoreContract):
    @pytest.fixture
    def store(self):
        return FaultyStore(MemoryStore())


class TestRetryingStoreOverABadNetwork(StoreContract):
    """A third of all requests fail, before or after they took effect: no layer above may notice."""

    many_keys = 300
    big_bytes = 1000

    @pytest.fixture
    def store(self):
        clock = ManualClock()
        chances = {
            Fault.FAIL_BEFORE: 0.1,
            Fault.FAIL_AFTER: 0.1,
            Fault.TIMEOUT_BEFORE: 0.05,
            Fault.TIMEOUT_AFTER: 0.05,
            Fault.BUSY: 0.05,
        }
        faulty = FaultyStore(MemoryStore(), ids=SeededIds(3), clock=clock, chances=chances)
        return RetryingStore(faulty, RetryPolicy(40, clock=clock, ids=SeededIds(4)))


class TestOpenedMemoryStore(StoreContract):
    """The whole stack as `open_store` builds it."""

    @pytest.fixture
    def store(self, request):
        settings = load_settings()
        return open_store(f"memory://{abs(hash(request.node.nodeid))}/deep/down", settings=settings)


class _IgnoresConditions(MemoryStore):
    """As some S3 servers do."""

    def put_if_absent(self, key, data):
        self.put(key, data)


class TestStoreThatIgnoresConditions(ProbeOnly):
    @pytest.fixture
    def store(self):
        return _IgnoresConditions()
