"""The classes of answers: messages of a queue, the receipt of a batch, files as operators see them.

Clients have them too: nothing heavy is loaded before a table is asked for. Depends on
index_service, logfile and read_policy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tierdex.log_service.read_policy import ReadExplain

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    from tierdex.index_service.answer import Hint, Unasked
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.log_service.levels import Level
    from tierdex.logfile.messages import MessageBatch


class Message(NamedTuple):
    """One message. `headers` are (name, value); times int64 ms."""

    topic: str
    queue_id: int
    offset: int
    timestamp: int
    body: bytes
    keys: tuple[str, ...] = ()
    message_id: str | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    deliver_at: int | None = None  # of a message that was held until then
    is_forgotten: bool = False  # nothing is left of it but its time; the offset stays


class MissingMessages(NamedTuple):
    """What could not be read: the file, why, and the first offset that it concerns, if that is known.

    `is_away`: the store could not be asked, and the file may be whole.
    """

    file: str
    reason: str
    offset: int | None = None
    is_away: bool = False


@dataclass(slots=True)
class ReadAnswer:
    """Consecutive messages of one queue, from `first_offset` on.

    `first_offset` is the offset asked for, or `begin_offset` when that was below it (`from_begin` says
    so). `next_offset` is where to read on. `end_offset` is the offset behind the last message that the
    level asked for lets see. When `complete` is false, `missing` names what could not be read; nothing
    behind it is in the answer. `generation` is that of the file of the last message here.
    """

    topic: str
    queue_id: int
    first_offset: int
    begin_offset: int
    end_offset: int
    batch: MessageBatch
    from_begin: bool = False
    missing: tuple[MissingMessages, ...] = ()
    generation: int = 0
    sources: ReadExplain | None = None  # None: of a read that was answered from a journal alone

    @property
    def explain(self) -> ReadExplain:
        """From where the bytes of the answer came. Of answers of `read_many` see the call's `explain`."""
        return self.sources or ReadExplain(memory=self.batch.content_bytes)

    @property
    def complete(self) -> bool:
        return not self.missing

    @property
    def next_offset(self) -> int:
        return self.batch.next_offset

    @property
    def messages(self) -> list[Message]:
        """The messages as objects; `table` is the quicker way to many."""
        return [
            Message(
                self.topic, self.queue_id, found.offset, found.timestamp, found.body,
                found.extra.keys, found.extra.message_id, found.extra.headers, found.extra.deliver_at,
                found.is_forgotten,
            )
            for found in self.batch
        ]  # fmt: skip

    def __len__(self) -> int:
        return len(self.batch)

    def table(self) -> Any:
        """Return the messages as an Arrow table.

        Its columns: offset, timestamp, body, keys, message_id, headers, deliver_at, is_forgotten. The body is
        large binary over this answer's own memory, without a copy.
        """
        import pyarrow as pa

        from tierdex.logfile.extras import NO_EXTRA
        from tierdex.logfile.layout import MESSAGE_FORGOTTEN

        batch = self.batch
        extras = [found.extra for found in batch] if len(batch.extras) else [NO_EXTRA] * len(batch)
        body = pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), len(batch),
            [None, pa.py_buffer(batch.body_offsets), pa.py_buffer(batch.bodies)],
        )  # fmt: skip
        header = pa.struct([("name", pa.string()), ("value", pa.binary())])
        return pa.table(
            {
                "offset": pa.array(range(batch.first_offset, batch.next_offset), pa.int64()),
                "timestamp": pa.array(batch.times, pa.int64()),
                "body": body,
                "keys": pa.array([list(e.keys) for e in extras], pa.list_(pa.string())),
                "message_id": pa.array([e.message_id for e in extras], pa.string()),
                "headers": pa.array(
                    [[{"name": n, "value": v} for n, v in e.headers] for e in extras],
                    pa.list_(header),
                ),
                "deliver_at": pa.array([e.deliver_at for e in extras], pa.int64()),
                "is_forgotten": pa.array(batch.flags & MESSAGE_FORGOTTEN != 0),
            }
        )


class ExpiredMessage(NamedTuple):
    """Where a message was that retention has taken: the index still knows of it."""

    topic: str
    queue_id: int
    offset: int


@dataclass(slots=True)
class FoundMessages:
    """The messages of a key or message ID, newest first.

    When `complete` is false, `missing` names what could not be read, or is not indexed yet: the messages
    may be there. `next_cursor` asks for more, None when there are no more. `expired` are messages under the
    key's hash that are gone from the log by their age: the answer is complete without them.

    What the log acknowledged before `as_of` (int64 ms, the store's time; 0: not known) was looked at. Its
    owner is in `unasked` when it holds more, for all that is known, and this is another process. `hints`,
    where asked for, are what a lookup without messages may have meant.
    """

    messages: tuple[Message, ...]
    missing: tuple[MissingMessages, ...] = ()
    next_cursor: str | None = None
    expired: tuple[ExpiredMessage, ...] = ()
    explain: ReadExplain = field(default_factory=ReadExplain)  # of the messages, not of the index
    as_of: int = 0
    unasked: tuple[Unasked, ...] = ()
    hints: tuple[Hint, ...] = ()

    @property
    def complete(self) -> bool:
        return not self.missing

    def __len__(self) -> int:
        return len(self.messages)

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)


class AppendReceipt(NamedTuple):
    """What `append_batch` gave: the offset of each message (i8, in order of rows) and the level reached.

    The offset of a message that waits for its `deliver_at` is -1.
    """

    offsets: np.ndarray
    level: Level


class TimerHour(NamedTuple):
    """An hour that begins at `begin` (ms), and how many messages are to be delivered in it."""

    begin: int
    message_count: int


@dataclass(frozen=True, slots=True)
class LogFileInfo:
    """One file of the log as operators see it. Times int64 ms."""

    file_id: str
    state: str
    message_count: int
    bytes: int
    min_time: int
    max_time: int
    begin: int
    generation: int
    sealed_at: int | None = None
    reason: str | None = None  # what is wrong: it does not open, or was found damaged
    published_at: int | None = (
        None  # the store's time of its object; None: not published, or not asked
    )


def describe_file(handle: FileHandle, reason: str | None = None) -> LogFileInfo:
    """Return the row of a file in the table; `reason` says what is wrong with it."""
    return LogFileInfo(
        handle.file_id, handle.state.value, handle.item_count, handle.bytes, handle.min_time,
        handle.max_time, handle.begin_ms, handle.reader.generation, handle.sealed_at_ms, reason,
    )  # fmt: skip
