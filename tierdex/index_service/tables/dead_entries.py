"""`DeadEntries`: which rows of index files are entries of a table's files that no kept snapshot has.

A compaction or merge may leave such out once no reader can look at a snapshot that had them: the state which
has forgotten them was published, and the grace time has passed since.

Depends on indexfile and numpy.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tierdex.indexfile.layout import TOPIC_MASK
from tierdex.indexfile.schema import TABLE_ROW_SCHEMA, TOPIC_DICTIONARY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tierdex.fileparts.dictionary import Dictionaries
    from tierdex.index_service.tables.table_state import TableState
    from tierdex.indexfile.schema import Schema
    from tierdex.lifecycle.manifests.file_row import FileRow

_LARGEST_SHARE: Final = 0.3
_SAMPLE: Final = 1 << 14  # rows, in the order of their hashes: of a file any part is like the whole


class DeadEntries:
    """See the module. Safe to share between threads."""

    def __init__(self, states: Mapping[str, TableState | None]) -> None:
        """`states` are those that queries see now, by topic."""
        self._states = states
        self._noted: dict[str, deque[tuple[float, np.ndarray]]] = {}
        self._shares: dict[bytes, tuple[int, float]] = {}

    def note_published(self, topic: str, state: TableState, now_s: float) -> None:
        """Note that readers of the store see a state from now on; seconds of the monotonic clock."""
        self._noted.setdefault(topic, deque()).append((now_s, state.is_forgotten))

    def left_out(self, before_s: float) -> dict[str, np.ndarray]:
        """Return, by topic, which numbers (b1[n]) a file that is written now leaves out.

        They were forgotten by a state that was published before `before_s`.
        """
        found = {}
        for topic, noted in list(self._noted.items()):
            while len(noted) > 1 and noted[1][0] <= before_s:
                noted.popleft()
            if noted[0][0] <= before_s and noted[0][1].any():
                found[topic] = noted[0][1]
        return found

    def shown(self) -> dict[str, np.ndarray]:
        """Return, by topic, which numbers no kept snapshot has."""
        return {
            topic: np.array([not file.lives for file in state.files], bool)
            for topic, state in list(self._states.items())
            if state is not None and state.newest is not None
        }

    def files_to_rewrite(
        self,
        rows: Iterable[FileRow],
        read: Callable[[FileRow], Any],
        dead: Mapping[str, np.ndarray],
    ) -> list[FileRow]:
        """Return the published files of which so much is dead that they are written anew."""
        schema = TABLE_ROW_SCHEMA.encode().decode()
        of_tables = [row for row in rows if dead and row.schema == schema]
        return [row for row in of_tables if self.share(row.uuid, read(row), dead) > _LARGEST_SHARE]

    def share(self, uuid: bytes, reader: Any, dead: Mapping[str, np.ndarray]) -> float:
        """Return which part of a file's rows is dead, by a sample; read again once a tenth more is dead.

        Raises CorruptFileError, and what the store raises.
        """
        count = sum(int(numbers.sum()) for numbers in dead.values())
        if not count:
            return 0.0
        known = self._shares.get(uuid)
        if known is not None and known[0] <= count <= known[0] * 1.1:
            return known[1]
        rows = next(iter(reader.rows_in_hash_order(_SAMPLE)), np.zeros(0))
        gone = rows_of_dead(dead, reader.schema, reader.dictionaries, rows)
        share = 0.0 if gone is None else float(gone.mean())
        self._shares[uuid] = (count, share)
        return share


def rows_of_dead(
    dead: Mapping[str, np.ndarray], schema: Schema, dictionaries: Dictionaries, rows: np.ndarray
) -> np.ndarray | None:
    """Return which rows (b1[n]) of a file are entries of dead files; None: none."""
    if not dead or schema != TABLE_ROW_SCHEMA or not len(rows):
        return None
    mask = np.zeros(len(rows), bool)
    tags = rows["tag"] & np.uint32(TOPIC_MASK)
    for topic, numbers in dead.items():
        tag = dictionaries.index(TOPIC_DICTIONARY, topic)
        if tag >= 0:
            files = rows["table_file"]
            known = np.minimum(files, len(numbers) - 1)
            mask |= (tags == tag) & (files < len(numbers)) & numbers[known]
    return mask if mask.any() else None
