"""How far a stream has read the logs of a store: a place in each node's list of files, never one a queue.

::

    {"nodes": {"n": {"file": 7, "end": "5e…"}}}                                     all up to file 7
    {"nodes": {"n": {"file": 8, "topic": "a", "queue": 3, "offset": 120}}}          of file 8 what is before

The messages of a file stand in order of (topic's name, queue, offset). A merge puts files together: their
messages then stand between each other, and what the merged file has of each (`logfile.grouped.shares`) tells
which of them were read. `end` names the last journal of a file that was read whole. The row of the file
behind it names the same journal, so a file that expired in between is missed. Depends on errors, log_service
and logfile.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tierdex.errors import CorruptFileError, InvalidRequestError
from tierdex.log_service.files.log_row import LogRowMore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tierdex.logfile.grouped.file import GroupedFile
    from tierdex.pipeline.jobs.snapshot import ListedFile
    from tierdex.pipeline.logs.log_file_scan import WantedMessages


@dataclass(frozen=True)
class LogPosition:
    """A place among the files of a node; without a topic it is behind all of the file."""

    number: int
    end: str = ""  # the journal that it ends with, in hex
    topic: str | None = None
    queue_id: int = 0
    offset: int = 0

    @classmethod
    def behind(cls, file: ListedFile) -> LogPosition:
        """Return the place behind all messages of a file. Raises CorruptFileError."""
        return cls(numbers_of(file)[-1], LogRowMore.of(file.row).end.uuid.hex())

    @property
    def is_whole(self) -> bool:
        return self.topic is None

    def to_json(self) -> dict[str, Any]:
        if self.topic is None:
            return {"file": self.number, "end": self.end}
        place = {"topic": self.topic, "queue": self.queue_id, "offset": self.offset}
        return {"file": self.number, **place}

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> LogPosition:
        return cls(
            int(found["file"]), found.get("end", ""), found.get("topic"),
            int(found.get("queue", 0)), int(found.get("offset", 0)),
        )  # fmt: skip

    def passed(self, file: ListedFile) -> bool:
        """Return whether all of a file was read."""
        newest = numbers_of(file)[-1]
        return self.number > newest or (self.number == newest and self.is_whole)

    def touches(self, file: ListedFile) -> bool:
        """Return whether some of a file was read."""
        return self.number >= numbers_of(file)[0]


def numbers_of(file: ListedFile) -> list[int]:
    """Return the numbers of the files that are in a file, its own included, ascending."""
    row = file.row
    return sorted({row.number, *(part.number for part in row.parts if part.node == file.node)})


def to_json(positions: Mapping[str, LogPosition]) -> dict[str, Any]:
    """Return positions by node as Spark's checkpoint keeps them."""
    return {"nodes": {node: positions[node].to_json() for node in sorted(positions)}}


def of_json(found: Mapping[str, Any]) -> dict[str, LogPosition]:
    """Return the positions by node. Raises InvalidRequestError for another source's checkpoint."""
    try:
        nodes = found["nodes"].items()
        return {node: LogPosition.of_json(position) for node, position in nodes}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidRequestError(
            f"the checkpoint is not of format tierdex-log: {error}", field="checkpointLocation"
        ) from error


class FileOrder:
    """The order in which a stream reads the messages of one file. Immutable.

    Segments stand by the file that they came from, then by queue: segment [share, queue].
    """

    def __init__(self, wanted: WantedMessages, file: ListedFile) -> None:
        """Raises CorruptFileError."""
        from tierdex.logfile.grouped.shares import FileShares

        self._wanted = wanted
        shares = FileShares.of(wanted.file)
        known = {part.uuid: part.number for part in file.row.parts if part.node == file.node}
        known[file.row.uuid] = file.row.number
        numbers = [known.get(uuid, file.row.number) for uuid in shares.uuids]
        if len(shares.uuids) == 1 and len(numbers_of(file)) > 1:
            raise CorruptFileError(
                file.row.object_key, "does not say which of its messages were in which file"
            )
        self._numbers = np.array(numbers, np.int64)
        self._counts = shares.counts
        self._before = np.cumsum(shares.counts, axis=0) - shares.counts

    def read_before(self, position: LogPosition) -> np.ndarray:
        """Return how many messages of each queue stand before a position (i8)."""
        done = self._counts[self._numbers < position.number].sum(axis=0)
        here = self._counts[self._numbers == position.number].sum(axis=0)
        if position.topic is None:
            return np.asarray(done + here)
        queues = self._wanted.queues
        name = position.topic.encode()
        names = self._wanted.topic_names
        topic = bisect_left(names, name)
        is_there = topic < len(names) and names[topic] == name
        same = (queues.topics == topic) & is_there
        is_before = (queues.topics < topic) | (same & (queues.queue_ids < position.queue_id))
        is_it = same & (queues.queue_ids == position.queue_id)
        within = np.clip(position.offset - queues.first_offsets - done, 0, here)
        return np.asarray(done + np.where(is_before, here, np.where(is_it, within, 0)))

    def cut(self, count: int) -> LogPosition:
        """Return the position behind the first `count` wanted messages, which are not all."""
        wanted = self._wanted
        low = np.maximum(self._before, wanted.low)
        high = np.minimum(self._before + self._counts, wanted.high)
        sizes = np.maximum(high - low, 0).ravel()
        above = np.cumsum(sizes)
        segment = int(np.searchsorted(above, count, side="right"))
        share, queue = divmod(segment, len(wanted.queues))
        within = count - int(above[segment] - sizes[segment])
        rows = wanted.queues
        offset = int(rows.first_offsets[queue]) + int(low[share, queue]) + within
        topic = wanted.topic_names[int(rows.topics[queue])].decode()
        return LogPosition(int(self._numbers[share]), "", topic, int(rows.queue_ids[queue]), offset)


class StreamPiece(NamedTuple):
    """The messages of a file between two positions that lie on the pages [first_page, end_page)."""

    first_page: int
    end_page: int
    after: LogPosition | None
    until: LogPosition


def keep_between(
    wanted: WantedMessages, file: ListedFile, after: LogPosition | None, until: LogPosition
) -> None:
    """Want no more than what lies between two positions of a stream. Raises CorruptFileError."""
    order = FileOrder(wanted, file)
    begin = np.zeros_like(wanted.low) if after is None else order.read_before(after)
    wanted.keep(begin, order.read_before(until))


def missed(position: LogPosition, file: ListedFile, topics: tuple[str, ...] | None) -> str | None:
    """Return why messages between a position and the next file were lost, None when none were.

    `file` is the oldest that was not read whole; of `topics` (None: any) messages are read. Raises
    CorruptFileError.
    """
    if file.is_fading and (topics is None or any(map(file.hides, topics))):
        return f"file {file.row.number} has topics whose retention is over"
    if position.touches(file):
        return None
    if not position.is_whole:
        return f"file {position.number} has expired, of which a part was read"
    follows = LogRowMore.of(file.row).follows
    if follows is not None and follows.hex() != position.end:
        return f"files between {position.number} and {file.row.number} have expired"
    return None


def left_out_unread(
    position: LogPosition, file: GroupedFile, topics: tuple[str, ...] | None
) -> str | None:
    """Return why messages that merges left out of a file were lost, None when none were.

    Raises CorruptFileError.
    """
    from tierdex.log_service.files.log_file import left_out_before

    for name, number in left_out_before(file).last_files().items():
        place = position.topic
        was_read = position.number > number or (
            position.number == number and (place is None or name < place.encode())
        )
        if not was_read and (topics is None or name.decode() in topics):
            return f"the retention of topic {name.decode()} in file {number} is over"
    return None
