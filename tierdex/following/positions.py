"""`DATA/following.json`: how far each followed topic has been read, beyond what the index knows.

The watermark of a queue says how far it is indexed. It says nothing of records that gave no key, nor that the
log was begun anew, nor what was lost. A saved position is used only while the index still has what it had::

    flush("disk")              what the position stands behind is durable before the position is
    replace following.json     durable; before that, more is read again than need be, and that is harmless

A saved position that lies below its watermark is of a log that was begun anew: its offsets are counted from
the beginning again, and until they pass the old watermark the saved position alone says where we are.

The process that holds the data folder writes the file. Depends on errors and whole_file.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tierdex.errors import CorruptFileError
from tierdex.whole_file import read_file, replace_file

if TYPE_CHECKING:
    from pathlib import Path

    from tierdex.filesystem import FileSystem

FILE_NAME: Final = "following.json"
_GAPS_KEPT: Final = 100


@dataclass(frozen=True)
class Gap:
    """Offsets [begin, end) that the log lost before they were read; `noticed` int64 ms."""

    begin: int
    end: int
    noticed: int


@dataclass
class PartitionPosition:
    """`next` is what is read next, `watermark` what the index had then; `lost` counts what was in gaps."""

    next: int
    watermark: int | None = None
    lost: int = 0
    restarts: int = 0
    gaps: list[Gap] = field(default_factory=list)

    def resume(self, watermark: int | None, *, repeats_last: bool) -> int | None:
        """Return where to go on in an index that is at `watermark`; None: from the beginning."""
        behind = behind_of(watermark, repeats_last=repeats_last)
        has_all = self.watermark is None or (watermark is not None and watermark >= self.watermark)
        if not has_all:
            return behind
        if watermark == self.watermark:
            return self.next
        return max(behind or 0, self.next)

    def note_gap(self, gap: Gap, lost: int) -> None:
        self.lost += lost
        self.gaps = [*self.gaps, gap][-_GAPS_KEPT:]


@dataclass(frozen=True)
class FollowedSource:
    """Where a topic's log is and by what it was indexed, for who shows its messages. It holds no secret.

    `has_secrets`: the log was opened with a login or an option that is not told here.
    """

    source: str
    keys: list[str]
    message_id: str | None
    options: dict[str, str]
    has_secrets: bool = False


@dataclass
class TopicPositions:
    """The positions of one topic; `identity` tells its log from another one.

    `memory` is what the source remembers, see `RememberingSource`.
    """

    source: str = ""
    identity: str = ""
    partitions: dict[int, PartitionPosition] = field(default_factory=dict)
    followed: FollowedSource | None = None
    memory: dict[str, Any] = field(default_factory=dict)


def behind_of(watermark: int | None, *, repeats_last: bool) -> int | None:
    """Return where to go on at a watermark: at the last record below it, where a crash may have cut that."""
    return watermark if watermark is None or not repeats_last else max(0, watermark - 1)


class PositionFile:
    """The positions of a data folder's topics."""

    def __init__(self, filesystem: FileSystem, data_folder: Path) -> None:
        self._filesystem = filesystem
        self._path = data_folder / FILE_NAME

    def load(self, topic: str) -> TopicPositions:
        """Return a topic's positions, none when it was never followed. Raises CorruptFileError."""
        return self.topics().get(topic) or TopicPositions()

    def topics(self) -> dict[str, TopicPositions]:
        """Return the positions of every topic. Raises CorruptFileError."""
        try:
            return {topic: _decode(rows) for topic, rows in self._read().items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._corrupt(error) from error

    def save(self, topic: str, positions: TopicPositions) -> None:
        """Replace a topic's positions, durably. Raises OSError, CorruptFileError."""
        every = {**self._read(), topic: asdict(positions)}
        text = json.dumps({"topics": every}, indent=1)
        replace_file(self._filesystem, self._path, text.encode())

    def _read(self) -> dict[str, Any]:
        if not self._filesystem.exists(self._path):
            return {}
        text = read_file(self._filesystem, self._path)
        try:
            topics: dict[str, Any] = json.loads(text)["topics"]
        except (ValueError, KeyError, TypeError) as error:
            raise self._corrupt(error) from error
        return topics

    def _corrupt(self, error: Exception) -> CorruptFileError:
        return CorruptFileError(
            self._path,
            f"holds no positions ({error}); without the file, following begins at the watermarks",
        )


def _decode(rows: dict[str, Any]) -> TopicPositions:
    partitions = {
        int(number): PartitionPosition(**{**row, "gaps": [Gap(**gap) for gap in row["gaps"]]})
        for number, row in rows["partitions"].items()
    }
    followed = rows.get("followed")  # a file of before does not say it
    return TopicPositions(
        rows["source"], rows["identity"], partitions,
        None if followed is None else FollowedSource(**followed), rows.get("memory") or {},
    )  # fmt: skip
