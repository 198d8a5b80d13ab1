"""The messages of a broker's commit log become entries, with the names that they have.

A store folder of RocketMQ has files of messages one behind the other, of all topics and queues::

    STORE/commitlog/00000000000000000000 | message | message | ... | filler |
                    00000000001073741824 | message | ... | zeros: not yet written

Files are read and never changed, so that they may be a running broker's, a backup's, or those of a broker
that is no more. An entry has the place that consumers know: topic, queue and offset. A put that was done
before does no harm, so an import may be run again, or begin where the one before ended.

Source: RocketMQ 5.3.3, CommitLog. Depends on errors, extraction, selectors, sources, target and numpy.
"""

from __future__ import annotations

import re
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tierdex.errors import CorruptFileError, NotFoundError
from tierdex.following.extraction import Extraction
from tierdex.following.selectors import Selector
from tierdex.following.sources.folder_files import open_file
from tierdex.following.sources.rocketmq_message import is_filler, messages_of, size_at
from tierdex.following.sources.rocketmq_topic import (
    QUEUE_BITS,
    USUAL_KEYS,
    USUAL_MESSAGE_ID,
    batch_of,
    is_system_topic,
)
from tierdex.following.target import IndexTarget

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterator
    from pathlib import Path

    from tierdex.filesystem import FileSystem, OpenFile
    from tierdex.following.sources.rocketmq_message import StoredMessage
    from tierdex.index_service.index import Index

_FILE: Final = re.compile(r"[0-9]{20}")
_PIECE: Final = 8 << 20
_HEAD_BYTES: Final = 64
_BATCH: Final = 5_000  # messages
_BATCH_BYTES: Final = 32 << 20  # of the log, whose bodies wait in memory


class ImportPlan(NamedTuple):
    """What is imported: `topics` (empty: all but the brokers' own), from a byte of the commit log on.

    `broker` is the number of the broker, as `tierdex follow` gives it: 0 for the first.
    """

    topics: Collection[str] = ()
    begin: int = 0
    broker: int = 0

    def takes(self, topic: str) -> bool:
        return topic in self.topics if self.topics else not is_system_topic(topic)


@dataclass
class Imported:
    """What was done: `end` is the byte behind the last message that is in."""

    end: int
    messages: int = 0
    entries: int = 0
    left_out: int = 0
    nameless: int = 0


class CommitLog:
    """The files of a store folder."""

    def __init__(self, filesystem: FileSystem, store: Path) -> None:
        """Raises NotFoundError where there is no commit log."""
        self._filesystem = filesystem
        self._folder = store / "commitlog"
        if not filesystem.is_folder(self._folder):
            raise NotFoundError(f"{store} is no store folder of a broker: it has no commitlog")
        self.files = sorted(n for n in filesystem.list_folder(self._folder) if _FILE.fullmatch(n))

    @property
    def bytes(self) -> int:
        """The bytes of all files."""
        return sum(self._filesystem.file_size(self._folder / name) for name in self.files)

    def messages(self, begin: int) -> Iterator[tuple[int, list[StoredMessage]]]:
        """Yield the messages from a byte on, each with the byte behind it. Raises CorruptFileError."""
        cut: Path | None = None  # the file that has no filler: the last one with messages
        for name in self.files:
            path = self._folder / name
            if int(name) + self._filesystem.file_size(path) <= begin:
                continue
            with closing(open_file(self._filesystem, path)) as file:
                if cut is not None:
                    if size_at(file.read_at(0, _HEAD_BYTES), 0):
                        raise CorruptFileError(cut, "is cut: messages follow in the next file")
                    continue  # made ahead by the broker
                is_full = yield from _messages_of(file, path, int(name), max(0, begin - int(name)))
            cut = None if is_full else path


def _messages_of(
    file: OpenFile, path: Path, first: int, at: int
) -> Generator[tuple[int, list[StoredMessage]], None, bool]:
    """Yield the messages of one file, whose first byte is `first` of the log; return whether it is full."""
    while True:
        piece = file.read_at(at, _PIECE)
        done = 0
        while (size := size_at(piece, done)) and done + size <= len(piece):
            if is_filler(piece[done : done + size]):
                return True
            try:
                found = list(messages_of(piece[done : done + size]))
            except ValueError as error:
                raise CorruptFileError(path, f"at byte {at + done}: {error}") from error
            done += size
            yield first + at + done, found
        if size < 0 or (size and not done):
            raise CorruptFileError(path, f"at byte {at + done}: a message of {size} bytes")
        if not size or len(piece) < _PIECE:
            return False  # not yet written from here on, or the last one is being written
        at += done


def import_commit_log(
    index: Index,
    log: CommitLog,
    plan: ImportPlan,
    progress: Callable[[int, int], None],
    stop: Callable[[], bool],
) -> Imported:
    """Put the messages of a commit log until its end, or until `stop`; they are durable on return.

    Raises CorruptFileError for a file that holds something else; what came before it is in.
    """
    done, waiting = Imported(plan.begin), _Waiting(index, plan)
    total = log.bytes
    try:
        for end, messages in log.messages(plan.begin):
            for message in messages:
                if plan.takes(message.topic):
                    waiting.add(message)
                else:
                    done.left_out += 1
            if waiting.count >= _BATCH or end - done.end >= _BATCH_BYTES:
                waiting.put(end, done)
                progress(end, total)
                if stop():
                    return done
            waiting.end = end
    finally:
        waiting.put(waiting.end, done)
        index.flush("disk")
    return done


class _Waiting:
    """Messages that were read and not yet put, by topic."""

    def __init__(self, index: Index, plan: ImportPlan) -> None:
        self._index = index
        self._upper = plan.broker << QUEUE_BITS
        self._extraction = Extraction(
            tuple(Selector.parse(key, field="key") for key in USUAL_KEYS),
            Selector.parse(USUAL_MESSAGE_ID, field="message-id"),
            max_key_bytes=index.settings.max_key_bytes,
        )
        self._messages: dict[str, list[StoredMessage]] = defaultdict(list)
        self.count = 0
        self.end = plan.begin

    def add(self, message: StoredMessage) -> None:
        self._messages[message.topic].append(message)
        self.count += 1

    def put(self, end: int, done: Imported) -> None:
        """Put all: everything before byte `end` is in then."""
        while self._messages:
            topic, messages = self._messages.popitem()
            queues = np.array([self._upper | each.queue for each in messages], np.int32)
            batch = batch_of(queues, messages, {}, self._extraction.wanted())
            extracted = self._extraction.entries_of(batch)
            IndexTarget(self._index, topic).put(extracted)
            done.messages += len(messages)
            done.entries += extracted.count
            done.nameless += len(messages) - len(np.unique(extracted.rows))
        self.count = 0
        done.end = max(done.end, end)
