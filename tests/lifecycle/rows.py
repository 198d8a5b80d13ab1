"""Factories and a store with knobs for the lifecycle tests."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tierdex.clock import ManualClock
from tierdex.errors import AlreadyExistsError, NotFoundError, StoreTimeoutError
from tierdex.ids import SeededIds
from tierdex.lifecycle.manifests.file_row import FileRow
from tierdex.lifecycle.manifests.manifest_log import ManifestLog
from tierdex.lifecycle.paths import StorePaths
from tierdex.lifecycle.topic_set import topic_set
from tierdex.storage_layer.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

NOW_MS = 1_700_000_000_000


def make_uuid(seed: int) -> bytes:
    return seed.to_bytes(16, "big")


def make_row(seed: int, *, node: str = "n1", read_number: int = 1, **changes: object) -> FileRow:
    uuid = make_uuid(seed)
    fields = {
        "uuid": uuid,
        "number": NOW_MS + seed,
        "object_key": StorePaths(node).file_object(read_number, uuid),
        "bytes": 1_000,
        "item_count": 10,
        "slot_count": 4,
        "min_time": NOW_MS,
        "max_time": NOW_MS + 10,
        "begin_ms": NOW_MS,
        "sealed_at_ms": NOW_MS + 20,
        "sidecar_position": 700,
        "tail_crc": 7,
        "topics": topic_set(["orders"]),
        "schema": "message",
    }
    return FileRow(**(fields | changes))


class KnobStore(MemoryStore):
    """A memory store that counts requests, loses answers and lets others go first."""

    def __init__(self, clock: ManualClock | None = None) -> None:
        super().__init__(clock=clock)
        self.requests: Counter[str] = Counter()
        self.before_create: Callable[[], None] | None = None
        self.lose_answer_of_create = False  # took effect; the caller sees a time-out
        self.refuse_own_create = False  # took effect; the retried request is answered 412
        self.honours_conditions = True

    def get(self, key, position=None, length=None):
        self.requests["get"] += 1
        return super().get(key, position, length)

    def put(self, key, data):
        self.requests["put"] += 1
        super().put(key, data)

    def list(self, prefix, start_after=""):
        self.requests["list"] += 1
        return super().list(prefix, start_after)

    def put_if_absent(self, key, data):
        self.requests["create"] += 1
        if "/manifest/" not in key:
            return self._create(key, data)
        interfere, self.before_create = self.before_create, None
        if interfere is not None:
            interfere()
        self._create(key, data)
        if self.lose_answer_of_create:
            self.lose_answer_of_create = False
            raise StoreTimeoutError("no answer")
        if self.refuse_own_create:
            self.refuse_own_create = False
            raise AlreadyExistsError("412 on our own success")
        return None

    def _create(self, key, data):
        if self.honours_conditions:
            super().put_if_absent(key, data)
        else:
            super().put(key, data)

    def has(self, key: str) -> bool:
        try:
            super().get(key)
        except NotFoundError:
            return False
        return True

    def flip(self, key: str, place: int) -> None:
        data = bytearray(super().get(key))
        data[place] ^= 0x20
        super().put(key, bytes(data))


def make_log(
    store: KnobStore,
    node: str = "n1",
    *,
    clock: ManualClock | None = None,
    ids: SeededIds | None = None,
    checkpoint_every: int = 8,
) -> ManifestLog:
    return ManifestLog(
        store,
        node,
        clock=clock or ManualClock(),
        ids=ids or SeededIds(1),
        checkpoint_every=checkpoint_every,
    )
