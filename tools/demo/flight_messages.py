"""The flights as messages of a log: each row of the file is a body, found by its keys and its message ID.

The loader gives a block once a key, and the message ID with the last one; a message takes all of them. A
journal is rolled where a month ends, so that there is a file a month to look at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from pathlib import Path

    from tierdex.filesystem import FileSystem
    from tierdex.log_service.message_log import MessageLog
    from tierdex.value_rules import Durability

_MONTH = 7  # characters of a message ID: 2013-01


class _Found(NamedTuple):
    """What a question for a message ID found."""

    entries: tuple[Any, ...]


class FlightMessages:
    """A message log with the verbs of an index that `load_demo` calls."""

    def __init__(self, log: MessageLog, csv_path: Path, filesystem: FileSystem) -> None:
        self._log = log
        self._path = csv_path
        self._filesystem = filesystem
        self._keys: dict[int, list[str]] = {}  # of rows whose message ID is still to come
        self._month = ""

    def query(self, *, message_id: str) -> _Found:
        return _Found(self._log.get(message_id=message_id, max_count=1).messages)

    def flush(self, durability: Durability = "disk", /) -> None:
        self._log.flush(durability)

    def put_batch(
        self, *, keys: Any, message_id: Any, offset: np.ndarray, size: np.ndarray, **columns: Any
    ) -> None:
        """Append a row of the file a message, once all of its keys have come."""
        for place, key in zip(offset.tolist(), keys.to_pylist(), strict=True):
            if key is not None:
                self._keys.setdefault(place, []).append(key)
        if message_id is None:
            return
        messages = {
            **columns,
            "message_id": message_id,
            "keys": [self._keys.pop(place, []) for place in offset.tolist()],
            "body": pa.array(self._rows(offset, size), pa.binary()),
        }
        months = [text[:_MONTH] for text in message_id.to_pylist()]
        ends = [n for n in range(1, len(months)) if months[n] != months[n - 1]]
        for first, end in zip([0, *ends], [*ends, len(months)], strict=True):
            if self._month not in ("", months[first]):
                self._log.roll()
            self._month = months[first]
            part = {name: _part(column, first, end) for name, column in messages.items()}
            self._log.append_batch(**part, durability="os")

    def _rows(self, offset: np.ndarray, size: np.ndarray) -> list[bytes]:
        """Return the bytes of a block's rows, read at once: they stand one after the other."""
        begin, end = int(offset[0]), int(offset[-1]) + int(size[-1])
        file = self._filesystem.open(self._path)
        try:
            block = file.read_at(begin, end - begin)
        finally:
            file.close()
        rows = zip((offset - begin).tolist(), size.tolist(), strict=True)
        return [block[place : place + length].rstrip(b"\r\n") for place, length in rows]


def _part(column: Any, first: int, end: int) -> Any:
    """Return rows [first, end) of a column; one value stands for all rows."""
    if isinstance(column, list | np.ndarray | pa.Array | pa.ChunkedArray):
        return column[first:end]
    return column
