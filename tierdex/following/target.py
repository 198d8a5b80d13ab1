"""Where a follower puts what it reads: an index.

Depends on schema, extraction and index_service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from tierdex.indexfile.schema import SEQUENCE_SCHEMA

if TYPE_CHECKING:
    from pathlib import Path

    from tierdex.following.extraction import Extracted
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

    def put(self, extracted: Extracted) -> None:
        """Take a batch's entries, which survive a killed process; after an error a prefix may be in."""
        ...

    def sync(self) -> None:
        """Make everything that was taken durable."""
        ...


class IndexTarget:
    """A topic of an index that this process has open for writing.

    Whatever the setting `offsets` says, its offsets are a sequence: then the watermark is the number behind
    the last record that is in, for positions in a file as well.
    """

    def __init__(self, index: Index, topic: str) -> None:
        self._index = index
        self._topic = topic
        self._most = index.settings.max_batch_entries

    @property
    def folder(self) -> Path:
        return self._index.data_folder

    def watermark(self, partition: int) -> int | None:
        return self._index.watermark(self._topic, partition)["os"]

    def put(self, extracted: Extracted) -> None:
        columns = extracted.columns()
        for begin in range(0, extracted.count, self._most):
            part: dict[str, Any] = {
                name: None if column is None else column[begin : begin + self._most]
                for name, column in columns.items()
            }
            self._index.put_batch(topic=self._topic, schema=SEQUENCE_SCHEMA, **part)

    def sync(self) -> None:
        self._index.flush("disk")
