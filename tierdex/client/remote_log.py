"""The verbs of `MessageLog` over HTTP: what `Client` and `AsyncClient` have beside those of `Index`.

Names, answers and errors are those of the embedded log; only its `topics` is `log_topics` here, since
`topics` are the index's. An append is never repeated: where its answer was lost, look at the end offset, or
give `expect_offset`.

Depends on message_calls, clock and log_service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import anyio

from tierdex.client import message_calls as calls
from tierdex.clock import Bell
from tierdex.log_service.given_messages import GivenMessages
from tierdex.log_service.queue_reader import (
    DEFAULT_GROUP,
    QueueReader,
    refuse_missing,
    refuse_reused,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tierdex.client.calls import Call
    from tierdex.clock import Clock
    from tierdex.log_service.answer import (
        AppendReceipt,
        FoundMessages,
        Message,
        ReadAnswer,
        TimerHour,
    )
    from tierdex.times import Time

T = TypeVar("T")
_WAIT_STEP_S = 10.0  # of one request, below the client's timeout
_PAUSE_S = 0.1  # where a service waits shorter than it was asked to


class _Sends(Protocol):
    _clock: Clock

    def _send(self, call: Call[T]) -> T: ...


class LogVerbs:
    """The verbs of a message log, synchronous."""

    def append(
        self: _Sends,
        *,
        topic: str,
        queue_id: int,
        body: bytes,
        keys: Any = None,
        message_id: str | None = None,
        headers: Any = None,
        timestamp: Time | None = None,
        deliver_at: Time | None = None,
        expect_offset: int | None = None,
        durability: str = "disk",
    ) -> int:
        """Append one message; return its offset, -1 where it waits. Raises as `MessageLog.append`."""
        given = GivenMessages(
            topic, queue_id, body, keys, message_id, headers, timestamp, deliver_at
        )
        return self._send(calls.append(given, expect_offset, durability))

    def append_batch(
        self: _Sends,
        *,
        topic: Any,
        queue_id: Any,
        body: Any,
        keys: Any = None,
        message_id: Any = None,
        headers: Any = None,
        timestamp: Any = None,
        deliver_at: Any = None,
        durability: str = "disk",
    ) -> AppendReceipt:
        """Append messages by column, all or none; return their offsets."""
        given = GivenMessages(
            topic, queue_id, body, keys, message_id, headers, timestamp, deliver_at
        )
        return self._send(calls.append_batch(given, durability))

    def read(
        self: _Sends,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_count: int = 100,
        max_bytes: int = 1 << 20,
        wait: float = 0.0,
        visible: str = "disk",
        policy: str | None = None,
        group: str | None = None,
    ) -> ReadAnswer:
        """Return messages of a queue from `offset` on; at its end wait for more, up to `wait` seconds."""
        limits = {
            "max_count": max_count, "max_bytes": max_bytes, "visible": visible, "policy": policy,
            "group": group,
        }  # fmt: skip
        deadline = self._clock.monotonic() + wait
        while True:
            left = deadline - self._clock.monotonic()
            step = min(left, _WAIT_STEP_S)
            answer = self._send(calls.read(topic, queue_id, offset, limits, step))
            waited = left - (deadline - self._clock.monotonic())
            if len(answer) or not answer.complete or left <= _WAIT_STEP_S:
                return answer
            if waited < step:
                self._clock.wait(Bell(), _PAUSE_S)

    def read_arrow(self, topic: str, queue_id: int, offset: int, **limits: Any) -> Any:
        """Return the same as an Arrow table, as `MessageLog.read_arrow` does."""
        return self.read(topic, queue_id, offset, **limits).table()  # type: ignore[misc]

    def reader(
        self,
        topic: str,
        queue_id: int,
        offset: int = 0,
        *,
        group: str = DEFAULT_GROUP,
        generation: int | None = None,
        max_count: int = 1000,
        max_bytes: int = 1 << 20,
        wait: float = 0.0,
        visible: str = "disk",
        policy: str | None = None,
    ) -> QueueReader:
        """Return an iterator over the messages from `offset` on, as `MessageLog.reader` does."""

        def read(at: int, count: int | None) -> ReadAnswer:
            return self.read(  # type: ignore[misc]
                topic, queue_id, at, max_count=count or max_count, max_bytes=max_bytes,
                wait=0.0 if count else wait, visible=visible, policy=policy,
                group=None if count else group,
            )  # fmt: skip

        return QueueReader(read, offset, generation)

    def get(
        self: _Sends,
        topic: str | None = None,
        *,
        key: str | None = None,
        message_id: str | None = None,
        begin: Time | None = None,
        end: Time | None = None,
        max_count: int = 64,
        cursor: str | None = None,
        visible: str = "disk",
        policy: str | None = None,
    ) -> FoundMessages:
        """Return the messages of a topic's key, or of a message ID, newest first, with their bodies."""
        asked = {
            "topic": topic, "key": key, "message_id": message_id, "begin": begin, "end": end,
            "max_count": max_count, "cursor": cursor, "visible": visible,
            "policy": policy,
        }  # fmt: skip
        return self._send(calls.get(asked))

    def begin_offset(self: _Sends, topic: str, queue_id: int) -> int:
        """Return the offset of the first message of a queue that is still there."""
        return self._send(calls.begin_offset(topic, queue_id))

    def end_offset(self: _Sends, topic: str, queue_id: int, *, level: str = "disk") -> int:
        """Return the offset behind the last message that has `level`."""
        return self._send(calls.end_offset(topic, queue_id, level))

    def end_offsets(self: _Sends, topic: str, queue_id: int) -> dict[str, int | None]:
        """Return the offset behind the last message of each level, as `MessageLog.end_offsets` does."""
        return self._send(calls.end_offsets(topic, queue_id))

    def offset_at(self: _Sends, topic: str, queue_id: int, timestamp: Time) -> int:
        """Return the least offset whose message has a time >= `timestamp`; the end if none has."""
        return self._send(calls.offset_at(topic, queue_id, timestamp))

    def timers(self: _Sends) -> list[TimerHour]:
        """Return the hours in which messages are to be delivered, in order, and how many each."""
        return self._send(calls.timers())

    def log_topics(self: _Sends) -> list[str]:
        """Return the topics that hold messages, sorted."""
        return self._send(calls.log_topics())

    def queues(self: _Sends, topic: str) -> list[int]:
        """Return the queues of a topic that hold messages, sorted."""
        found, at = [], 0
        while True:
            page = self._send(calls.queues(topic, at))
            found += page.queue_ids
            if page.next_queue_id is None:
                return found
            at = page.next_queue_id


class _SendsAsync(Protocol):
    _clock: Clock

    async def _send(self, call: Call[T]) -> T: ...


class AsyncLogVerbs:
    """The verbs of a message log, awaited."""

    async def append(
        self: _SendsAsync,
        *,
        topic: str,
        queue_id: int,
        body: bytes,
        keys: Any = None,
        message_id: str | None = None,
        headers: Any = None,
        timestamp: Time | None = None,
        deliver_at: Time | None = None,
        expect_offset: int | None = None,
        durability: str = "disk",
    ) -> int:
        """Append one message; return its offset, -1 where it waits. Raises as `MessageLog.append`."""
        given = GivenMessages(
            topic, queue_id, body, keys, message_id, headers, timestamp, deliver_at
        )
        return await self._send(calls.append(given, expect_offset, durability))

    async def append_batch(
        self: _SendsAsync,
        *,
        topic: Any,
        queue_id: Any,
        body: Any,
        keys: Any = None,
        message_id: Any = None,
        headers: Any = None,
        timestamp: Any = None,
        deliver_at: Any = None,
        durability: str = "disk",
    ) -> AppendReceipt:
        """Append messages by column, all or none; return their offsets."""
        given = GivenMessages(
            topic, queue_id, body, keys, message_id, headers, timestamp, deliver_at
        )
        return await self._send(calls.append_batch(given, durability))

    async def read(
        self: _SendsAsync,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_count: int = 100,
        max_bytes: int = 1 << 20,
        wait: float = 0.0,
        visible: str = "disk",
        policy: str | None = None,
        group: str | None = None,
    ) -> ReadAnswer:
        """Return messages of a queue from `offset` on; at its end wait for more, up to `wait` seconds."""
        limits = {
            "max_count": max_count, "max_bytes": max_bytes, "visible": visible, "policy": policy,
            "group": group,
        }  # fmt: skip
        deadline = self._clock.monotonic() + wait
        while True:
            left = deadline - self._clock.monotonic()
            step = min(left, _WAIT_STEP_S)
            answer = await self._send(calls.read(topic, queue_id, offset, limits, step))
            waited = left - (deadline - self._clock.monotonic())
            if len(answer) or not answer.complete or left <= _WAIT_STEP_S:
                return answer
            if waited < step:
                await anyio.sleep(_PAUSE_S)

    async def read_arrow(self, topic: str, queue_id: int, offset: int, **limits: Any) -> Any:
        """Return the same as an Arrow table, as `MessageLog.read_arrow` does."""
        return (await self.read(topic, queue_id, offset, **limits)).table()  # type: ignore[misc]

    async def reader(
        self,
        topic: str,
        queue_id: int,
        offset: int = 0,
        *,
        group: str = DEFAULT_GROUP,
        generation: int | None = None,
        max_count: int = 1000,
        max_bytes: int = 1 << 20,
        wait: float = 0.0,
        visible: str = "disk",
        policy: str | None = None,
    ) -> AsyncIterator[Message]:
        """Yield the messages from `offset` on, until the end, as `MessageLog.reader` does.

        Raises IncompleteAnswerError where one cannot be read, OffsetsReusedError as `MessageLog.reader`.
        """
        while True:
            if generation is not None and offset:
                last = await self.read(topic, queue_id, offset - 1, max_count=1)  # type: ignore[misc]
                refuse_reused(last, offset, generation)
            answer = await self.read(  # type: ignore[misc]
                topic, queue_id, offset, max_count=max_count, max_bytes=max_bytes, wait=wait,
                visible=visible, policy=policy, group=group,
            )  # fmt: skip
            for message in answer.messages:
                offset, generation = message.offset + 1, answer.generation
                yield message
            refuse_missing(answer, offset)
            if not len(answer):
                return

    async def get(
        self: _SendsAsync,
        topic: str | None = None,
        *,
        key: str | None = None,
        message_id: str | None = None,
        begin: Time | None = None,
        end: Time | None = None,
        max_count: int = 64,
        cursor: str | None = None,
        visible: str = "disk",
        policy: str | None = None,
    ) -> FoundMessages:
        """Return the messages of a topic's key, or of a message ID, newest first, with their bodies."""
        asked = {
            "topic": topic, "key": key, "message_id": message_id, "begin": begin, "end": end,
            "max_count": max_count, "cursor": cursor, "visible": visible,
            "policy": policy,
        }  # fmt: skip
        return await self._send(calls.get(asked))

    async def begin_offset(self: _SendsAsync, topic: str, queue_id: int) -> int:
        """Return the offset of the first message of a queue that is still there."""
        return await self._send(calls.begin_offset(topic, queue_id))

    async def end_offset(
        self: _SendsAsync, topic: str, queue_id: int, *, level: str = "disk"
    ) -> int:
        """Return the offset behind the last message that has `level`."""
        return await self._send(calls.end_offset(topic, queue_id, level))

    async def end_offsets(self: _SendsAsync, topic: str, queue_id: int) -> dict[str, int | None]:
        """Return the offset behind the last message of each level, as `MessageLog.end_offsets` does."""
        return await self._send(calls.end_offsets(topic, queue_id))

    async def offset_at(self: _SendsAsync, topic: str, queue_id: int, timestamp: Time) -> int:
        """Return the least offset whose message has a time >= `timestamp`; the end if none has."""
        return await self._send(calls.offset_at(topic, queue_id, timestamp))

    async def timers(self: _SendsAsync) -> list[TimerHour]:
        """Return the hours in which messages are to be delivered, in order, and how many each."""
        return await self._send(calls.timers())

    async def log_topics(self: _SendsAsync) -> list[str]:
        """Return the topics that hold messages, sorted."""
        return await self._send(calls.log_topics())

    async def queues(self: _SendsAsync, topic: str) -> list[int]:
        """Return the queues of a topic that hold messages, sorted."""
        found, at = [], 0
        while True:
            page = await self._send(calls.queues(topic, at))
            found += page.queue_ids
            if page.next_queue_id is None:
                return found
            at = page.next_queue_id
