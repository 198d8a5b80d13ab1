"""Where a follower puts what it reads: an index, or a message log (see kept_messages.py).

Depends on schema, extraction, records and index_service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from tierdex.indexfile.schema import SEQUENCE_SCHEMA

if TYPE_CHECKING:
    from pathlib import Path

    from tierdex.following.extraction import Extracted
    from tierdex.following.records import Parts
    from tierdex.index_service.index import Index


class Target(Protocol):
    """One topic of an index or a message log."""

    @property
    def folder(self) -> Path:
        """The data folder, which this process holds."""
        ...

    def watermark(self, partition: int) -> int | None:
        """Return the offset behind the last record that is in; None when none is."""
        ...

    @property
    def repeats_last(self) -> bool:
        """Whether the last record that is in must be put again after a crash, which may have cut it."""
        ...

    def wanted(self, parts: Parts) -> Parts:
        """Return the parts of a record that are needed, when entries need `parts`."""
        ...

    def put(self, extracted: Extracted) -> int:
        """Take a batch, which survives a killed process; return how many records have no place here.

        After an error a prefix may be in.
        """
        ...

    def sync(self) -> None:
        """Make everything that was taken durable."""
        ...


class IndexTarget:
    """A topic of an index that this process has open for writing.

    Whatever the setting `offsets` says, its offsets are a sequence: then the watermark is the number behind
    the last record that is in, for positions in a file as well.
    """

    repeats_last = True

    def __init__(self, index: Index, topic: str) -> None:
        self._index = index
        self._topic = topic
        self._most = index.settings.max_batch_entries

    @property
    def folder(self) -> Path:
        return self._index.data_folder

    def watermark(self, partition: int) -> int | None:
        return self._index.watermark(self._topic, partition)["os"]

    def wanted(self, parts: Parts) -> Parts:
        return parts

    def put(self, extracted: Extracted) -> int:
        columns = extracted.columns()
        for begin in range(0, extracted.count, self._most):
            part: dict[str, Any] = {
                name: None if column is None else column[begin : begin + self._most]
                for name, column in columns.items()
            }
            self._index.put_batch(topic=self._topic, schema=SEQUENCE_SCHEMA, **part)
        return 0

    def sync(self) -> None:
        self._index.flush("disk")
