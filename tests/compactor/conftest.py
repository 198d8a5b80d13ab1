"""The compactor inside an index without threads: its units one by one, over a store that may fail."""

from __future__ import annotations

import pytest

from tests.index_service.conftest import clock, index, make_index  # noqa: F401
from tierdex.errors import StoreUnavailableError
from tierdex.storage_layer.memory import MemoryStore


class Shop(MemoryStore):
    """A memory store: counts requests, and fails verbs named in `broken`."""

    def __init__(self, ticks):
        super().__init__(clock=ticks)
        self.broken = set()
        self.calls = []

    def _note(self, verb, key):
        self.calls.append((verb, key))
        if verb in self.broken:
            raise StoreUnavailableError(f"{verb}: away")

    def get(self, key, position=None, length=None):
        self._note("get", key)
        return super().get(key, position, length)

    def put_if_absent(self, key, data):
        self._note("put_if_absent", key)
        super().put_if_absent(key, data)

    def upload(self, key, source, length):
        self._note("upload", key)
        super().upload(key, source, length)

    def delete(self, key):
        self._note("delete", key)
        super().delete(key)

    def list(self, prefix, start_after=""):
        self._note("list", prefix)
        return super().list(prefix, start_after)

    def objects(self):
        """Return the keys of the files' objects."""
        return [found.key for found in MemoryStore.list(self, "nodes/") if "/files/" in found.key]


@pytest.fixture
def store(clock):  # noqa: F811
    return Shop(clock)
