"""`FollowedTables`: the tables that topics of a data folder follow, as queries see them.

An answer is of one state of a table, taken before its entries are searched: every row that the state calls
live was put before the state was written, so the search finds it. Looking the other way round would miss rows
of a newer snapshot, and say that it had seen it.

::

    refresh   states are read, then the folder's files (read_view), then `note_new`
    note_new  a table that is new since: it has no snapshot yet, and nothing of it is shown

A follower rolls when it begins with a table, so that its entries lie in files which are newer than its log:
who sees the files has looked at the log.

Depends on errors, file_info and the other modules of this folder.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from tierdex.errors import (
    CorruptFileError,
    InvalidRequestError,
    NotFoundError,
    ReadOnlyError,
    TierdexError,
)
from tierdex.index_service.file_info import TableInfo
from tierdex.index_service.tables.dead_entries import DeadEntries
from tierdex.index_service.tables.table_log import FOLDER, TableLog, topics_of

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from tierdex.filesystem import FileSystem
    from tierdex.index_service.tables.table_objects import TableObjects
    from tierdex.index_service.tables.table_state import DeletesPlace, TableState

logger = logging.getLogger(__name__)
_DELETES_KEPT: Final = 10_000_000  # rows, of 8 bytes


class FollowedTables:
    """The tables of one data folder; of none where there is no folder. Safe to share between threads."""

    def __init__(
        self, filesystem: FileSystem, data: Path | None, objects: TableObjects | None = None
    ) -> None:
        """`objects` are the states in the store, of tables that other nodes follow."""
        self._objects = objects
        self._filesystem = filesystem
        self._folder = None if data is None else data / FOLDER
        self._lock = threading.Lock()
        self._logs: dict[str, TableLog] = {}
        self._owned: set[str] = set()
        # One object for ever: `Index` has it at hand. A topic never leaves it.
        self.topics: dict[str, TableState | None] = {}
        self.damaged: dict[str, str] = {}
        self._deletes: OrderedDict[tuple[str, DeletesPlace], np.ndarray] = OrderedDict()
        self._deletes_kept = 0
        self.dead = DeadEntries(self.topics)

    # -- reading ---------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Read what the logs say now; a log that cannot be read makes its topic damaged."""
        with self._lock:
            for topic in self._names():
                if topic not in self._owned:
                    self._refresh(topic)
            if self._objects is not None:
                self._refresh_objects(self._objects)

    def learn(self) -> bool:
        """Read the states in the store, since rows of an unknown table were found; say whether one is new."""
        with self._lock:
            known = len(self.topics)
            if self._objects is not None:
                self._refresh_objects(self._objects, is_wanted=True)
            return len(self.topics) > known

    def _refresh_objects(self, objects: TableObjects, *, is_wanted: bool = False) -> None:
        """Take the states in the store; where it cannot be read, those that are known stay."""
        try:
            objects.refresh(is_wanted=is_wanted)
        except TierdexError as error:
            logger.warning("tables in the store cannot be read", extra={"error": str(error)})
        for topic, state in objects.states.items():
            if topic not in self._logs:
                self.topics[topic] = state

    def note_new(self) -> None:
        """Note tables that were begun since `refresh`: of these nothing is shown yet."""
        with self._lock:
            for topic in self._names():
                self.topics.setdefault(topic, None)

    def _names(self) -> list[str]:
        if self._folder is None or not self._filesystem.is_folder(self._folder):
            return []
        return topics_of(self._filesystem.list_folder(self._folder))

    def _refresh(self, topic: str) -> None:
        log = self._log_of(topic)
        try:
            self.topics[topic] = log.refresh()
            self.damaged.pop(topic, None)
        except (CorruptFileError, OSError) as error:
            self.topics.setdefault(topic, None)
            if self.damaged.get(topic) != str(error):
                logger.error("table cannot be read", extra={"topic": topic, "error": str(error)})
            self.damaged[topic] = str(error)

    def _log_of(self, topic: str) -> TableLog:
        if topic not in self._logs:
            assert self._folder is not None
            self._logs[topic] = TableLog(self._filesystem, self._folder, topic)
        return self._logs[topic]

    def state_of(self, topic: str) -> TableState | None:
        """Return the state that answers are made of now; None: no snapshot was indexed, or no table."""
        return self.topics.get(topic)

    def deletes(self, topic: str, place: DeletesPlace) -> np.ndarray:
        """Return deleted rows of a file (u8, rising). Raises CorruptFileError, OSError."""
        with self._lock:
            known = self._deletes.get((topic, place))
            if known is not None:
                self._deletes.move_to_end((topic, place))
                return known
            if self._is_elsewhere(topic):
                assert self._objects is not None
                rows = self._objects.read_deletes(topic, place)
            else:
                rows = self._log_of(topic).read_deletes(place)
            self._deletes[topic, place] = rows
            self._deletes_kept += len(rows)
            while self._deletes_kept > _DELETES_KEPT and len(self._deletes) > 1:
                self._deletes_kept -= len(self._deletes.popitem(last=False)[1])
            return rows

    def last_look(self, topic: str) -> dict[str, Any]:
        """Return what the follower noted when it last looked at the table."""
        with self._lock:
            if not self._is_elsewhere(topic):
                return self._log_of(topic).last_look()
            state = self.topics.get(topic)
            if self._objects is None or state is None or "max_staleness" not in state.head.options:
                return {}
            return self._objects.last_look(topic)

    def _is_elsewhere(self, topic: str) -> bool:
        return topic not in self._logs and self._objects is not None

    def local_states(self) -> list[tuple[str, TableState]]:
        """Return the tables that this folder follows, of which a snapshot is indexed."""
        with self._lock:
            states = [(topic, self.topics.get(topic)) for topic in self._logs]
        return [(t, state) for t, state in states if state is not None and state.newest is not None]

    def log_of(self, topic: str) -> TableLog:
        """Return the log of a table that this folder follows."""
        with self._lock:
            return self._log_of(topic)

    def infos(self) -> list[TableInfo]:
        """Return every table, by topic."""
        return [self._described(topic) for topic in sorted(self.topics)]

    def _described(self, topic: str) -> TableInfo:
        state, look = self.topics[topic], self.last_look(topic)
        trouble = self.damaged.get(topic) or look.get("trouble")
        looked, behind = look.get("looked_at"), look.get("behind")
        newest = None if state is None else state.newest
        if state is None or newest is None:
            table, source = ("", "") if state is None else (state.head.table, state.head.source)
            return TableInfo(
                topic, table, source, None, None, None, looked, behind, trouble, 0, 0, 0, 0, 0
            )
        lives = [(file, file.life_at(newest.step)) for file in state.files]
        live = [(file, life) for file, life in lives if life is not None]
        dead = sum(file.rows is not None and not file.lives for file in state.files)
        rows = sum(file.rows or 0 for file, _ in live)
        deleted = sum(life.deletes.rows for _, life in live if life.deletes is not None)
        return TableInfo(
            topic, state.head.table, state.head.source,
            newest.snapshot, newest.version, newest.time_ms, looked, behind, trouble,
            len(live), rows - deleted, deleted, dead, len(state.snapshots),
        )  # fmt: skip

    # -- the follower ----------------------------------------------------------------------------

    def own(self, topic: str) -> TableLog:
        """Return a topic's log to write to, as it is now: its writer alone calls `publish` from now on.

        Raises ReadOnlyError without a data folder, CorruptFileError, OSError.
        """
        if self._folder is None:
            raise ReadOnlyError("a table is followed into a data folder, which this index has not")
        with self._lock:
            log = self._log_of(topic)
            state = log.refresh()
            if state is not None:  # a topic that is refused below follows no table
                self.topics[topic] = state
            self._owned.add(topic)
            return log

    def adopted(self, topic: str) -> TableState | None:
        """Begin a topic's log with the state that a job has made of its table; None where there is none.

        Raises InvalidRequestError where another node follows the table, and what the store raises.
        """
        found = None if self._objects is None else self._objects.published(topic)
        if self._objects is None or found is None:
            return None
        state, node = found
        if node is not None:
            raise InvalidRequestError(
                f"node {node} follows the table of topic {topic!r}, or did, and has given its files their "
                "numbers: give another topic",
                field="topic",
            )
        with self._lock:
            return self._log_of(topic).adopt(state, self._objects.deletes_of(state))

    def publish(self, topic: str, state: TableState) -> None:
        """Let queries see a state whose entries were put, and which is in the log."""
        with self._lock:
            self.topics[topic] = state

    def require(self, topic: str) -> TableState:
        """Return the state of a topic that follows a table. Raises NotFoundError for another one."""
        state = self.topics.get(topic)
        if state is None or state.newest is None:
            raise NotFoundError(f"topic {topic!r} follows no table of which a snapshot is indexed")
        return state
