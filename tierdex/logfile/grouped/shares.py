"""What a merged file has of each file that was merged into it: how many messages of every queue.

Of one queue the messages of an older file come first, so the counts alone say which messages came from where:
a reader that had read some of the files before goes on in the merged one, as a stream does.

::

    shares u4 | queues u4 | uuid of each file, 16 bytes, oldest first | zstd: counts u4 [share][queue]

Depends on errors, layout and pages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.logfile import layout
from tierdex.logfile.grouped.pages import make_codec
from tierdex.logfile.layout import Codec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.logfile.grouped.file import GroupedFile
    from tierdex.logfile.grouped.queue_groups import QueueRows
    from tierdex.logfile.grouped.sources import GroupedSource

_UUID_BYTES = 16


class MergePlan(NamedTuple):
    """What comes together: the queues of the new file, and where each source has them."""

    names: tuple[np.ndarray, np.ndarray]  # ends i8, bytes u1
    queues: QueueRows
    firsts: list[np.ndarray]  # a source: first message of each new queue there
    counts: list[np.ndarray]  # a source: messages of each new queue there, 0 without any


@dataclass(frozen=True)
class FileShares:
    """The files that are in a file, oldest first. Immutable."""

    uuids: tuple[bytes, ...]
    counts: np.ndarray  # i8 [share, queue]: their sum over the shares is the queues' counts

    def encode(self) -> bytes:
        """Return the bytes of the part."""
        head = np.zeros((), layout.SHARES_HEAD)
        head["share_count"], head["queue_count"] = self.counts.shape
        packed = make_codec(Codec.ZSTD).compress(self.counts.astype("<u4").tobytes(), asbytes=True)
        return head.tobytes() + b"".join(self.uuids) + bytes(packed)

    @classmethod
    def of(cls, file: GroupedFile) -> FileShares:
        """Return what a file says; one that says nothing is its own share. Raises CorruptFileError."""
        counts, data = file.queues().counts, file.shares()
        if data is None:
            return cls((file.uuid,), counts[None, :])
        found = np.frombuffer(memoryview(data), np.uint8)
        begin = layout.SHARES_HEAD.itemsize
        shares, queues = (int(n) for n in found[:begin].view(layout.SHARES_HEAD)[0].item())
        end = begin + _UUID_BYTES * shares
        uuids = found[begin:end].tobytes()
        try:
            plain = make_codec(Codec.ZSTD).decompress(
                found[end:], decompressed_size=4 * shares * queues
            )
        except (OSError, ValueError) as error:
            raise CorruptFileError(file.path, f"shares do not decompress: {error}") from error
        matrix = np.frombuffer(plain, "<u4").astype(np.int64).reshape(shares, queues)
        if queues != len(counts) or (matrix.sum(axis=0) != counts).any():
            raise CorruptFileError(file.path, "shares and queues disagree")
        starts = range(0, len(uuids), _UUID_BYTES)
        return cls(tuple(uuids[at : at + _UUID_BYTES] for at in starts), matrix)


def join_shares(sources: Sequence[GroupedSource], plan: MergePlan) -> FileShares:
    """Return the shares of a merged file: its sources, or what is in those. Raises CorruptFileError."""
    uuids: list[bytes] = []
    rows = []
    for source, firsts, counts in zip(sources, plan.firsts, plan.counts, strict=True):
        own = FileShares.of(source.file)
        held = np.flatnonzero(counts)
        starts = np.cumsum(source.queues.counts) - source.queues.counts
        queues = np.searchsorted(starts, firsts[held])
        mine = np.zeros((len(own.uuids), len(counts)), np.int64)
        mine[:, held] = own.counts[:, queues]
        uuids += own.uuids
        rows.append(mine)
    return FileShares(tuple(uuids), np.concatenate(rows))
