"""The state of a followed table in the store, for readers without the data folder.

::

    tables/TOPIC/state          the table's state, as a log without its history; TOPIC in base64
    tables/TOPIC/STEP.deletes   deleted rows of a step
    tables/TOPIC/look           what the follower last saw, where answers depend on how old that is

Order of writing, by the owner of the node::

    entries   published: every file that has entries of the state is in the manifest
    deletes   written
    state     replaced: visible to readers, who read it before the manifests

A reader that sees a state therefore sees the entries of every row that the state calls live. The state that
it sees may be old, never ahead.

Depends on errors, storage_layer, table_log, table_state and numpy.
"""

from __future__ import annotations

import json
import logging
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np

from tierdex.errors import CorruptFileError, NotFoundError, TierdexError
from tierdex.index_service.tables.table_log import (
    DELETES,
    encode_state,
    node_of_log,
    path_of_topic,
    places_of,
    state_of_log,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tierdex.clock import Clock
    from tierdex.index_service.tables.dead_entries import DeadEntries
    from tierdex.index_service.tables.table_log import TableLog
    from tierdex.index_service.tables.table_state import DeletesPlace, TableState
    from tierdex.storage_layer.base import Store

logger = logging.getLogger(__name__)
_PREFIX: Final = "tables/"
_STATE: Final = "state"
_LOOK: Final = "look"
_LOOK_AGAIN_S: Final = 60.0
_STEP_S: Final = 5.0


def prefix_of(topic: str) -> str:
    """Return the folder of a topic's objects."""
    return f"{_PREFIX}{urlsafe_b64encode(topic.encode()).decode()}/"


def _topic_of(key: str) -> str:
    return urlsafe_b64decode(key.removeprefix(_PREFIX).partition("/")[0]).decode()


def _deletes_key(topic: str, file: str) -> str:
    """Return the object of a local file TOPIC.STEP.deletes."""
    return prefix_of(topic) + ".".join(file.rsplit(".", 2)[1:])


class TableObjects:
    """Reads the states in a store. Not thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: dict[str, tuple[int, int]] = {}
        self.states: dict[str, TableState] = {}

    def refresh(self, *, is_wanted: bool = False) -> None:
        """Read the states that have changed: one request, and one for each of them.

        Until a query has found rows of a table (`is_wanted`), nothing is asked: most stores have no table.
        Raises what the store raises, CorruptFileError.
        """
        if not self.states and not is_wanted:
            return
        for found in self._store.list(_PREFIX):
            if not found.key.endswith("/" + _STATE):
                continue
            seen = (found.size, found.modified_ms)
            if self._seen.get(found.key) == seen:
                continue
            try:
                data = self._store.get(found.key)
            except NotFoundError:
                continue
            self.states[_topic_of(found.key)] = state_of_log(data, found.key)
            self._seen[found.key] = seen

    def published(self, topic: str) -> tuple[TableState, str | None] | None:
        """Return the state of a topic in the store, and the node that follows its table, None: only jobs do.

        None where there is none. Raises CorruptFileError, what the store raises.
        """
        key = prefix_of(topic) + _STATE
        try:
            data = self._store.get(key)
        except NotFoundError:
            return None
        return state_of_log(data, key), node_of_log(data)

    def begin(self, state: TableState) -> None:
        """Write the state of a topic that has none yet. Raises AlreadyExistsError."""
        self._store.put_if_absent(prefix_of(state.head.topic) + _STATE, encode_state(state))

    def replace(self, state: TableState) -> None:
        """Write the state that a job has made: visible to readers."""
        self._store.put(prefix_of(state.head.topic) + _STATE, encode_state(state))

    def write_deletes(self, topic: str, step: int, parts: list[np.ndarray]) -> list[DeletesPlace]:
        """Write the deleted rows (u8, rising) of a step's files; return where each lies."""
        file = path_of_topic(Path(), topic).with_suffix(f".{step}{DELETES}").name
        places, data = places_of(file, parts)
        if parts:
            self._store.put(_deletes_key(topic, file), data)
        return places

    def deletes_of(self, state: TableState) -> dict[str, bytes]:
        """Return the files of deleted rows of a state, by the names that they have in a folder."""
        topic = state.head.topic
        return {name: self._store.get(_deletes_key(topic, name)) for name in state.deletes_files()}

    def read_deletes(self, topic: str, place: DeletesPlace) -> np.ndarray:
        """Return deleted rows (u8, rising). Raises CorruptFileError, what the store raises."""
        key = _deletes_key(topic, place.file)
        raw = self._store.get(key, place.offset, place.size)
        if zlib.crc32(raw) != place.crc:
            raise CorruptFileError(key, f"the deleted rows at byte {place.offset} are damaged")
        return np.frombuffer(raw, "<u8")

    def last_look(self, topic: str) -> dict[str, Any]:
        """Return what the follower noted in the store; nothing where it notes nothing there."""
        try:
            said = json.loads(self._store.get(prefix_of(topic) + _LOOK))
        except (NotFoundError, ValueError):
            return {}
        return said if isinstance(said, dict) else {}


class _Pending(NamedTuple):
    state: TableState
    number: int  # the newest file that may have entries of it


class LocalTables(Protocol):
    """The tables of a data folder, as their publisher reads them."""

    dead: DeadEntries

    def local_states(self) -> Iterable[tuple[str, TableState]]:
        """Return topics and states, of tables that this folder follows."""

    def log_of(self, topic: str) -> TableLog:
        """Return the log of a topic's state."""

    def last_look(self, topic: str) -> Mapping[str, Any]:
        """Return what the follower last saw of a topic's table."""


class TablePublisher:
    """Publishes the states of one node's tables, once their entries are published. One thread at a time."""

    name = "tables"

    def __init__(
        self,
        tables: LocalTables,
        store: Store,
        clock: Clock,
        unpublished: Callable[[], list[int]],
        is_fenced: Callable[[], bool],
        node: str,
    ) -> None:
        """`unpublished` returns the numbers of the node's files that have entries and are not published."""
        self._tables = tables
        self._store = store
        self._clock = clock
        self._unpublished = unpublished
        self._is_fenced = is_fenced
        self._node = node
        self._pending: dict[str, _Pending] = {}
        self._published: dict[str, TableState] = {}
        self._looks: dict[str, float] = {}
        self._needless: set[str] = set()

    def step(self) -> float:
        """Publish what is due, for a background thread; what fails is tried at the next step."""
        try:
            self.run()
        except TierdexError as error:
            logger.warning("table not published", extra={"error": str(error)})
        return _STEP_S

    def run(self) -> int:
        """Publish what is due; return how many states that were. Raises what the store raises."""
        done = 0
        for topic, state in self._tables.local_states():
            if self._is_fenced():
                return done
            if state is not self._published.get(topic):
                done += self._try_state(topic, state)
            if topic in self._published and "max_staleness" in state.head.options:
                self._note_look(topic)
        return done

    def _try_state(self, topic: str, state: TableState) -> int:
        pending = self._pending.get(topic)
        if pending is None:
            newest = max(self._unpublished(), default=-1)
            pending = self._pending[topic] = _Pending(state, newest)
        waiting = self._unpublished()
        if any(number <= pending.number for number in waiting):
            return 0
        self._write(topic, pending)
        self._published[topic] = pending.state
        self._tables.dead.note_published(topic, pending.state, self._clock.monotonic())
        del self._pending[topic]
        return 1

    def _write(self, topic: str, pending: _Pending) -> None:
        prefix, log = prefix_of(topic), self._tables.log_of(topic)
        there = {found.key for found in self._store.list(prefix)}
        for file in pending.state.deletes_files():
            key = _deletes_key(topic, file)
            if key not in there:
                self._store.put(key, log.read_file(file))
        self._store.put(prefix + _STATE, encode_state(pending.state, self._node))
        needed = {_deletes_key(topic, file) for file in pending.state.deletes_files()}
        needless = {key for key in there - needed if key.endswith(DELETES)}
        for key in needless & self._needless:  # a reader of the state before may be at a newer one
            self._store.delete(key)
        self._needless = self._needless - there | needless

    def _note_look(self, topic: str) -> None:
        now = self._clock.monotonic()
        if now - self._looks.get(topic, float("-inf")) >= _LOOK_AGAIN_S:
            look = json.dumps(self._tables.last_look(topic)).encode()
            self._store.put(prefix_of(topic) + _LOOK, look)
            self._looks[topic] = now
