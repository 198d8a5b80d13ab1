"""The source position of a batch: up to where the log has the messages that it indexes.

An index beside a message log notes it in every batch, and a sealed or compacted file keeps the last one:
recovery cuts an unsealed file before the first batch whose messages the log does not have, and has the
log fill in what comes behind the last position. A file that indexes no log of ours has none. One that ends in
the middle of a batch also says from where its last entries come: it is published after that part of the log.

Depends on layout only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tierdex.indexfile import layout

EXTRA_NAME = "source"  # of the position in a compacted file's EXTRA and a sealed file's statistics
COVERS_NAME = (
    "covers"  # there, of what entries behind the last whole position come from, if there are any
)


class Source(NamedTuple):
    """The log file `uuid` has `batch_count` batches, the last of which has the checksum `batch_crc`.

    Everything in them and in the log files before is indexed up to here, but not all of the last batch
    when the position is `partial`.
    """

    uuid: bytes
    batch_count: int
    batch_crc: int
    partial: bool = False

    def is_within(self, batch_count: int, batch_crc: int) -> bool:
        """Return whether a log file with so many batches, the last of that checksum, has all up to here."""
        at_end = self.batch_count == batch_count
        is_same = self.partial or self.batch_crc == batch_crc
        return self.batch_count < batch_count or (at_end and is_same)

    def encode(self) -> bytes:
        """Return the bytes that stand in a batch."""
        record = np.zeros((), layout.SOURCE)
        record["uuid"] = np.void(self.uuid)
        record["batch_count"], record["batch_crc"] = self.batch_count, self.batch_crc
        record["partial"] = self.partial
        return record.tobytes()


def decode_source(data: bytes) -> Source:
    """Return what `encode` gave. Raises ValueError for what it never gives."""
    if len(data) != layout.SOURCE_BYTES:
        raise ValueError(f"a source position of {len(data)} bytes")
    record = np.frombuffer(data, layout.SOURCE)[0]
    found = Source(
        bytes(record["uuid"]),
        int(record["batch_count"]),
        int(record["batch_crc"]),
        bool(record["partial"]),
    )
    if found.encode() != data:
        raise ValueError("a source position is neither whole nor partial")
    return found


def source_of_extra(extra: object, name: str = EXTRA_NAME) -> Source | None:
    """Return the position in a file's JSON, None when it has none. Raises ValueError."""
    text = extra.get(name) if isinstance(extra, dict) else None
    if text is None:
        return None
    if not isinstance(text, str):
        raise ValueError("a source position is no text")
    return decode_source(bytes.fromhex(text))
